"""What MCP does not define passes at a server's own path: methods, notifications, types of results; and where it does
not, its client is told so, and nobody else's connection dies of it."""

from __future__ import annotations

from typing import Any

import pytest
from official import MODERN
from peers import LATEST, LegacyServer, ModernServer, RpcError, Scene, eventually, form, gateway, named
from virtualtime import settle

from toolgate.config import Config, Overlay
from toolgate.config.access import KnownClient, Permissions
from toolgate.core import mcp

PATH = "/mcp/servers/there"
METHOD = "example/rows"
DECLARED: Any = {"tools": {}, "extensions": {"example.com/table": {}}}
PAIRS = pytest.mark.parametrize(("revision", "server"), [(LATEST, LegacyServer), (MODERN, ModernServer)])
CROSSED = pytest.mark.parametrize(("revision", "server"), [(LATEST, ModernServer), (MODERN, LegacyServer)])


async def plain(scene: Scene) -> str:
    return "done"


async def rows(scene: Scene) -> Any:
    own = {name: value for name, value in scene.params.items() if name != "_meta"}
    return {"rows": [1, 2], "given": own, "kind": scene.meta.get("example.com/kind")}


def there(server: Any, script: Any = rows, **more: Any) -> Any:
    return server({"plain": plain}, extension={METHOD: script}, **({"declares": DECLARED} | more))


# Requests.


@pytest.mark.promise("b.surfaces.server.methods")
@PAIRS
async def test_a_method_that_we_do_not_know_is_its_servers_to_answer(revision: str, server: Any) -> None:
    async with gateway(there=there(server)) as rig:
        client: Any = await rig.client(revision, path=PATH)
        reply = await client.request(METHOD, of="t", arguments=7, meta={"example.com/kind": "k"})
        given = {"of": "t", "arguments": 7}
        assert {"rows": [1, 2], "given": given, "kind": "k"}.items() <= reply.result.items()


@pytest.mark.promise("b.surfaces.server.methods")
@PAIRS
async def test_its_error_stands_as_it_is(revision: str, server: Any) -> None:
    async def fails(scene: Scene) -> Any:
        raise RpcError(-31999, "no such table", {"table": "t"})

    async with gateway(there=there(server, fails)) as rig:
        client: Any = await rig.client(revision, path=PATH)
        error = (await client.request(METHOD)).error
        assert error == {"code": -31999, "message": "no such table", "data": {"table": "t"}}


@PAIRS
async def test_it_may_ask_as_any_call_may(revision: str, server: Any) -> None:
    async def asks(scene: Scene) -> Any:
        return {"who": (await scene.ask(form()))["content"]["name"]}

    async with gateway(there=there(server, asks)) as rig:
        client: Any = await rig.client(revision, path=PATH)
        reply = await client.converse(METHOD, {"elicitation/create": named("Ann")}, of="t")
        assert reply.result["who"] == "Ann"


@PAIRS
@pytest.mark.parametrize("path", ["/mcp", "/mcp/meta"])
async def test_on_a_merged_path_nobody_knows_whose_it_is(revision: str, server: Any, path: str) -> None:
    async with gateway(there=there(server)) as rig:
        client = await rig.client(revision, path=path)
        assert (await client.request(METHOD)).error["code"] == -32601
        assert not rig.servers["there"].requests(METHOD)


@CROSSED
async def test_it_is_not_translated_into_another_era(revision: str, server: Any) -> None:
    async with gateway(there=there(server)) as rig:
        client: Any = await rig.client(revision, path=PATH)
        assert (await client.request(METHOD)).error["code"] == -32601
        assert not rig.servers["there"].requests(METHOD)


@pytest.mark.promise("b.surfaces.server.methods.shared")
@pytest.mark.parametrize("settings", [{}, {"scope": "session"}, {"scope": "principal"}])
async def test_a_process_that_all_share_gets_none_unless_it_declares_more(settings: Any) -> None:
    async with gateway(there=there(LegacyServer, declares={"tools": {}}, **settings)) as rig:
        client = await rig.legacy(LATEST, path=PATH)
        message = (await client.request(METHOD)).message
        assert ("result" in message) is bool(settings)
        assert len(rig.servers["there"].requests(METHOD)) == bool(settings)


@pytest.mark.parametrize("method", ["tasks/list", "resources/subscribe", "server/discover", "roots/list"])
async def test_what_mcp_defines_is_ours_to_answer(method: str) -> None:
    async with gateway(there=there(LegacyServer)) as rig:
        client = await rig.legacy(LATEST, path=PATH)
        before = len(rig.servers["there"].requests(method))
        assert "error" in (await client.request(method)).message
        assert len(rig.servers["there"].requests(method)) == before


LOOKALIKES = ("Tools/Call", "tools/call ", "TOOLS/LIST", "notifications/Cancelled", "notifications/initialized\t")


@pytest.mark.parametrize("method", [*mcp.METHODS, *LOOKALIKES])
async def test_what_mcp_defines_is_not_passed_on_without_an_id_or_as_a_lenient_server_reads_it(method: str) -> None:
    """Some servers carry out a request without an id, and only leave out its answer. What it is about would not be
    judged."""
    async with gateway(config=known(), there=there(LegacyServer)) as rig:
        client = await rig.legacy(LATEST, path=PATH, principal="ann")
        await client.request(METHOD)
        before = len(rig.servers["there"].received)
        client.tell({"jsonrpc": "2.0", "method": method, "params": {"name": "plain", "uri": "x", "requestId": 1}})
        if method in LOOKALIKES:
            assert (await client.request(method, name="plain")).error["code"] == -32601
        assert (await client.request("ping")).result == {}
        await settle()
        sent = [message.get("method") for message in rig.servers["there"].received[before:]]
        assert method not in sent


# Who may.


def known(servers: Any = "all", **permissions: Any) -> Config:
    return Config(clients=(KnownClient(id="ann", name="ann", servers=servers, permissions=Permissions(**permissions)),))


@pytest.mark.promise("b.surfaces.server.methods.permitted")
@pytest.mark.parametrize(
    ("config", "passes"),
    [
        (known(), True),
        (known(tools={"other__x": "off"}), True),
        (known(tools={"there__hidden": "off"}), False),
        (known(tools={"*": "ask"}), False),
        (known(resources={"there+file:///secret": "off"}), False),
        (known(read_only="off"), False),
        (known(everything="ask"), False),
        (known(everything="off", tools={"there__plain": "allow"}), False),
    ],
)
async def test_it_is_for_clients_who_have_the_whole_server(config: Config, passes: bool) -> None:
    async with gateway(config=config, there=there(LegacyServer)) as rig:
        client = await rig.legacy(LATEST, path=PATH, principal="ann")
        message = (await client.request(METHOD)).message
        assert ("result" in message) is passes
        client.tell({"jsonrpc": "2.0", "method": "example/seen", "params": {}})
        assert (await client.request("ping")).result == {}
        assert len(rig.servers["there"].requests(METHOD)) == passes


async def test_where_an_operator_hides_tools_it_is_refused() -> None:
    server = there(LegacyServer)
    server.settings["tools"] = {"plain": Overlay(hidden=True)}
    async with gateway(there=server) as rig:
        client = await rig.legacy(LATEST, path=PATH)
        assert (await client.request(METHOD)).error["data"]["code"] == "ACCESS_DENIED"


# Notifications.


@pytest.mark.promise("b.surfaces.server.notifications")
async def test_a_notification_that_we_do_not_know_reaches_the_server() -> None:
    async with gateway(there=there(LegacyServer)) as rig:
        client = await rig.legacy(LATEST, path=PATH)
        client.tell({"jsonrpc": "2.0", "method": "example/seen", "params": {"row": 1.0}})
        assert (await rig.servers["there"].got("example/seen"))["params"] == {"row": 1.0}


@pytest.mark.promise("b.surfaces.server.notifications")
@PAIRS
async def test_one_of_the_server_reaches_whose_request_it_is(revision: str, server: Any) -> None:
    async def tells(scene: Scene) -> Any:
        scene.connection.say({"jsonrpc": "2.0", "method": "example/row", "params": {"row": 1}})
        return await rows(scene)

    async with gateway(there=there(server, tells)) as rig:
        client: Any = await rig.client(revision, path=PATH)
        reply = await client.request(METHOD)
        assert [each["params"] for each in reply.before if each.get("method") == "example/row"] == [{"row": 1}]


# Types of results.


@pytest.mark.promise("b.surfaces.server.result-types")
@pytest.mark.parametrize("path", [PATH, "/mcp"])
@pytest.mark.parametrize("revision", [MODERN, LATEST])
async def test_a_type_of_result_that_we_do_not_know_passes(revision: str, path: str) -> None:
    async def typed(scene: Scene) -> Any:
        return {"resultType": "example/table", "rows": [1.0]}

    async with gateway(there=ModernServer({"typed": typed})) as rig:
        client = await rig.client(revision, path=path)
        message = (await client.call("typed")).message
        if revision == MODERN and path == PATH:
            assert message["result"] == {"resultType": "example/table", "rows": [1.0]}
        else:
            assert message["error"]["data"]["code"] == "UPSTREAM_ERROR"


# Progress with a question.


@pytest.mark.promise("b.progress.of-clients")
async def test_a_clients_progress_with_a_question_reaches_its_asker() -> None:
    async def asks(scene: Scene) -> Any:
        method, params = form()
        return (await scene.ask((method, {**params, "_meta": {"progressToken": "mine"}})))["action"]

    async with gateway(there=LegacyServer({"asks": asks})) as rig:
        client = await rig.legacy(LATEST)
        pending = client.start("tools/call", name="there__asks")
        await eventually(lambda: client.asked, "nothing was asked")
        token = client.asked[0]["params"]["_meta"]["progressToken"]
        assert token != "mine"
        for told in (token, 999, "x"):
            params = {"progressToken": told, "progress": 0.5}
            client.tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        got = await rig.servers["there"].got("notifications/progress")
        assert got["params"] == {"progressToken": "mine", "progress": 0.5}
        client.answer(client.asked[0], named("Ann"))
        await pending.reply()
        assert len(rig.servers["there"].requests("notifications/progress")) == 1


# Answers that nobody can read.


async def test_an_answer_out_of_shape_ends_its_question_by_an_error() -> None:
    async def asks(scene: Scene) -> Any:
        try:
            return (await scene.ask(form()))["action"]
        except RpcError as error:
            return f"no answer: {error.code}"

    async with gateway(there=LegacyServer({"asks": asks})) as rig:
        client = await rig.legacy(LATEST, stdio=True)
        pending = client.start("tools/call", name="there__asks")
        await eventually(lambda: client.asked, "nothing was asked")
        wire: Any = client.wire
        wire.say(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{}}' % client.asked[0]["id"])
        assert (await pending.reply()).text.startswith("no answer")
