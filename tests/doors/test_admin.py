"""The admin door: servers shown, added and removed in a running gateway, and the configuration read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from inmemory import GREETER, MODERN, THE_SOCKET, Scripted, Visitor, gateway, tools

from toolgate.app import running
from toolgate.config import Config, Server
from toolgate.config.access import KnownClient
from toolgate.core.model import Principal
from toolgate.frontends.web.admin import ROUTES

SECRET = "sk-very-secret"
STDIO = Server(id="files", name="Files", type="stdio", command="no_such_program", env={"KEY": SECRET})


async def asked(visitor: Visitor, method: str, path: str, body: Any = b"", **more: Any) -> tuple[int, Any]:
    """What the operator is answered, who comes over the socket."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await visitor.begin(method, data, path=path, **{"client": THE_SOCKET, **more}).response()
    return response.status, json.loads(response.body)


async def test_servers_are_shown_with_their_state_and_without_secrets() -> None:
    async with gateway(GREETER, STDIO) as app:
        status, said = await asked(Visitor(app), "GET", "/admin/servers")
        assert (status, [each["id"] for each in said["servers"]]) == (200, ["greeter", "files"])
        status, one = await asked(Visitor(app), "GET", "/admin/servers/Files")
        assert (one["state"], one["config"]["command"]) == ("configured", "no_such_program")
        assert SECRET not in json.dumps([said, one])


async def test_how_far_the_syncs_of_files_of_tasks_are_is_told_to_the_operator() -> None:
    async with gateway(GREETER) as app:
        assert await asked(Visitor(app), "GET", "/admin/syncs") == (200, {})
        app.workspace.workspace.syncs[Path("/p")] = "2 of 6 written"
        assert await asked(Visitor(app), "GET", "/admin/syncs") == (200, {"/p": "2 of 6 written"})


async def test_a_server_is_added_called_and_removed() -> None:
    async with gateway(GREETER) as app:
        visitor = Visitor(app)
        new = {"name": "New one", "type": "stdio", "command": "no_such_program"}
        assert await asked(visitor, "POST", "/admin/servers", new) == (201, {"id": "new-one", "name": "New one"})
        assert "new-one" in app.gateway.snapshot.upstreams
        status, again = await asked(visitor, "POST", "/admin/servers", new)
        assert status == 400 and "New one" in again["error"]
        assert await asked(visitor, "DELETE", "/admin/servers/new-one") == (200, {"removed": "new-one"})
        assert "new-one" not in app.gateway.snapshot.upstreams
        status, said = await asked(visitor, "DELETE", "/admin/servers/greeter")
        assert status == 400 and "greeter" in said["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "/admin/servers", b"[]", 400, "JSON object"),
        ("POST", "/admin/servers", {"command": "x"}, 400, "name"),
        ("POST", "/admin/servers", {"name": "x", "comand": "x"}, 400, "comand"),
        ("GET", "/admin/servers/nobody", b"", 404, "Server not found: nobody"),
        ("GET", "/admin/nothing", b"", 404, "/admin/servers"),
        ("PUT", "/admin/servers", b"", 405, "GET, POST"),
    ],
)
async def test_what_is_asked_wrongly_says_what_to_do(method: str, path: str, body: Any, status: int, says: str) -> None:
    async with gateway(GREETER) as app:
        before = app.gateway.snapshot
        found, said = await asked(Visitor(app), method, path, body)
        assert found == status and says in json.dumps(said)
        assert app.gateway.snapshot is before


@pytest.mark.parametrize("path", ROUTES)
async def test_each_path_takes_its_methods_and_no_other(path: str) -> None:
    async with gateway(GREETER) as app:
        path_of_one = "/admin" + path.replace("{name}", "greeter")
        response = await Visitor(app).begin("PATCH", b"", path=path_of_one, client=THE_SOCKET).response()
        assert (response.status, response.headers["allow"]) == (405, ", ".join(ROUTES[path]))


@pytest.mark.parametrize(
    "path",
    ["", "/", "/nothing", "/servers/greeter/nothing", "/servers//check", "/servers/greeter/check/more", "istrator"],
)
async def test_a_path_that_is_none_is_answered_with_those_that_are(path: str) -> None:
    async with gateway(GREETER) as app:
        status, said = await asked(Visitor(app), "GET", "/admin" + path)
        paths = [f"/admin{each}" for each in ROUTES]
        assert status == 404 and said["error"]["message"] == f"Available: {', '.join(paths[:-1])} and {paths[-1]}"


async def test_the_configuration_is_read_again_on_request() -> None:
    async with gateway(GREETER) as app:
        assert await asked(Visitor(app), "POST", "/admin/reload") == (200, {"servers": ["greeter"]})


async def somebody(_headers: Any, address: str, _path: str) -> Principal:
    return Principal("somebody", address)


async def test_nobody_else_steers_the_gateway() -> None:
    async with gateway(GREETER, identify=somebody) as app:
        assert (await asked(Visitor(app), "GET", "/admin/servers", client=("127.0.0.1", 5)))[0] == 403


HERE = ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"]
ADDRESSES = [*HERE, "192.0.2.1", "10.0.0.7", "2001:db8::1", "", "localhost"]


@pytest.mark.parametrize("address", ADDRESSES)
async def test_who_comes_over_tcp_may_call_and_changes_no_server(address: str) -> None:
    async with gateway(GREETER) as app:
        visitor, before = Visitor(app), app.gateway.snapshot
        there = {"client": (address, 5)}
        for method, path in (("GET", "/admin/servers"), ("POST", "/admin/servers"), ("POST", "/admin/reload")):
            status, told = await asked(visitor, method, path, {"name": "x", "command": "x"}, **there)
            assert status == 403 and "toolgate servers" in told["error"]["message"]
        new = {"name": "x", "transport": "stdio", "command": "x"}
        call = visitor.request("tools/call", name="add_mcp_server", arguments=new)
        told = json.loads((await visitor.post(call, **there)).result["content"][0]["text"])
        assert not told["success"]
        if address in HERE:
            assert "nobody has decided yet" in told["error"] and "toolgate approvals allow" in told["hint"]
        else:
            assert told["error_type"] == "PermissionError"
            assert "toolgate servers add" in told["hint"] and "admin = true" in told["hint"]
        listed = await visitor.post(visitor.request("tools/list"), **there)
        assert listed.result["tools"] and app.gateway.snapshot is before


async def test_servers_name_the_project_that_their_configuration_lies_in(tmp_path: Path) -> None:
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1", "name": "one"}')
    config = Config(servers=(GREETER,), source=str(tmp_path / "toolgate.json"))
    async with running(config, environ={}) as app:
        reply = await Visitor(app).ask("tools/call", name="list_mcp_servers")
        told = json.loads(reply.result["content"][0]["text"])
        assert [each["project_id"] for each in told["servers"]] == ["p-1"]


async def test_a_disabled_server_is_seen_and_removed() -> None:
    async with gateway(GREETER, config=Config(add_servers="allow")) as app:
        visitor = Visitor(app, "/mcp/daemon")
        visitor.client = THE_SOCKET
        for name in ("first", "second"):
            new = {"name": name, "type": "stdio", "command": "no_such_program", "enabled": False}
            assert (await asked(visitor, "POST", "/admin/servers", new))[0] == 201
        status, one = await asked(visitor, "GET", "/admin/servers/first")
        assert (status, one["state"]) == (200, "disabled")
        assert await asked(visitor, "DELETE", "/admin/servers/first") == (200, {"removed": "first"})
        listed = await visitor.ask("tools/call", name="list_mcp_servers", arguments={})
        assert "second" in json.dumps(listed.result) and "first" not in json.dumps(listed.result)
        removed = await visitor.ask("tools/call", name="remove_mcp_server", arguments={"name": "second"})
        assert "isError" not in removed.result, removed.result
        assert (await asked(visitor, "GET", "/admin/servers/second"))[0] == 404


async def test_a_tool_is_called_and_lists_are_read_at_the_admin_door() -> None:
    async with gateway(GREETER) as app:
        visitor = Visitor(app)
        status, said = await asked(
            visitor, "POST", "/admin/call", {"tool": "greeter__greet", "arguments": {"name": "A"}}
        )
        assert status == 200 and "A" in json.dumps(said["result"])
        status, said = await asked(visitor, "POST", "/admin/call", {"tool": "greeter__gret"})
        assert (status, said["code"]) == (404, "TOOL_NOT_FOUND") and "did you mean" in said["error"]
        status, said = await asked(visitor, "POST", "/admin/list", {})
        assert "greeter__greet" in json.dumps(said["listing"]) and said["is_whole"]
        status, said = await asked(visitor, "POST", "/admin/servers/greeter/check")
        assert (status, len(said["tools"])) == (200, 2)
        status, said = await asked(visitor, "GET", "/admin/status")
        assert (said["state"], said["servers"][0]["name"]) == ("serving", "greeter")


async def test_a_call_that_its_server_wants_again_is_no_success() -> None:
    again = {"resultType": "input_required", "requestState": "s"}
    async with gateway(scripts={"docs": Scripted(MODERN, tools_list=tools("go"), tools_call=again)}) as app:
        status, said = await asked(Visitor(app), "POST", "/admin/call", {"tool": "docs__go"})
        assert status >= 400 and "asks to be called again" in str(said)


@pytest.mark.promise("b.operator.socket")
async def test_who_comes_over_the_socket_is_the_operator_whatever_clients_there_are() -> None:
    clients = (KnownClient(id="ci", name="ci", key="tg-a-key-that-is-long-enough"),)
    async with gateway(GREETER, config=Config(clients=clients)) as app:
        visitor = Visitor(app)
        assert (await asked(visitor, "GET", "/admin/status", client=("127.0.0.1", 5)))[0] == 401
        exchange = visitor.begin("GET", b"", path="/admin/status", client=THE_SOCKET)
        assert (await exchange.response()).status == 200
