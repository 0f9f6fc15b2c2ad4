"""What an operator has changed of a server's tools, as clients see it, and as rules and the server see their calls."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from inmemory import Refusal, Scripted, Visitor, said
from inmemory import gateway as house_of_scripts
from peers import LATEST, MODERN, LegacyServer, ModernServer, RpcError, Scene, form, gateway
from task_peers import LegacyTaskServer
from virtualtime import settle

from toolgate.app import App
from toolgate.config import Overlay, Parameter
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Outcome, Required
from toolgate.policy.base import Policy

SERVERS = [LegacyServer, ModernServer]
REVISIONS = ["2025-06-18", LATEST, MODERN]
SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "limit": {"type": "integer"},
        "token": {"type": "string"},
        "region": {"type": "string", "x-mcp-header": "Region"},
    },
    "required": ["q", "limit", "token"],
    "additionalProperties": False,
}
FIND = Overlay(
    name="find",
    description="Finds pages",
    parameters={
        "q": Parameter(name="query"),
        "limit": Parameter(default=10),
        "token": Parameter(fixed="t-1"),
    },
)
CHANGES = {"seek": FIND, "drop": Overlay(hidden=True)}


class Watcher(Policy):
    """A rule that lets everything pass, and sees it."""

    name = "watching"

    def __init__(self) -> None:
        self.seen: list[Call] = []

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
        self.seen.append(call)
        return call


async def plain(scene: Scene) -> str:
    return f"{scene.target} was called"


def listed(name: str, schema: Any = SCHEMA) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema}


def a_server(kind: Any, changes: Mapping[str, Overlay] = CHANGES, **more: Any) -> Any:
    server = kind({"seek": plain, "drop": plain, "news": plain}, announces=True, **more)
    server.settings["tools"] = changes
    server.lists["tools/list"] = ("tools", [listed("seek"), listed("drop"), listed("news")])
    return server


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_tool_is_shown_and_called_as_it_was_changed(kind: Any, revision: str) -> None:
    there, rule = a_server(kind), Watcher()
    async with gateway(policies=[rule], there=there) as rig:
        for path, prefix in (("/mcp", "there__"), ("/mcp/servers/there", "")):
            client = await rig.client(revision, path=path)
            tools = (await client.request("tools/list")).result["tools"]
            assert [tool["name"] for tool in tools] == [f"{prefix}find", f"{prefix}news"]
            assert tools[0]["description"] == "Finds pages"
            assert tools[0]["inputSchema"] == {
                "type": "object",
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": "integer", "default": 10},
                    "region": {"type": "string", "x-mcp-header": "Region"},
                },
                "required": ["query"],
                "additionalProperties": False,
            }
            reply = await client.call(f"{prefix}find", arguments={"query": "a"})
            assert reply.text == "seek was called"
            assert there.calls[-1]["params"]["arguments"] == {"q": "a", "limit": 10, "token": "t-1"}
            assert (rule.seen[-1].server, rule.seen[-1].target) == ("there", "seek")
            assert msgspec.json.decode(rule.seen[-1].arguments) == {"q": "a", "limit": 10, "token": "t-1"}


@pytest.mark.promise("b.surfaces.overlays")
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_is_hidden_or_renamed_away_cannot_be_called_by_any_name_on_any_path(
    kind: Any, revision: str
) -> None:
    there, rule = a_server(kind), Watcher()
    async with gateway(policies=[rule], bundles={"all": ("*",)}, there=there) as rig:
        for path in ("/mcp", "/mcp/aggregate", "/mcp/servers/there", "/mcp/bundles/all"):
            client = await rig.client(revision, path=path)
            for name in ("drop", "there__drop", "seek", "there__seek", "unlisted"):
                error = (await client.call(name, arguments={})).error
                assert error["data"]["code"] == "TOOL_NOT_FOUND"
                suggested = error["message"].removeprefix(f"Tool not found: {name}")
                assert "drop" not in suggested and "seek" not in suggested
        assert not there.calls and not rule.seen


FORWARDING = {
    "execute_child_tool": ("server_id", "tool_name", "arguments"),
    "mcp_call": ("server", "tool", "args"),
    "call_tool": ("server_name", "tool_name", "arguments"),
}


@pytest.mark.promise("b.surfaces.overlays")
@pytest.mark.parametrize("control", FORWARDING)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/all"])
async def test_overlays_hold_for_calls_through_control_tools(control: str, path: str) -> None:
    there, rule = a_server(LegacyServer), Watcher()
    server, tool, arguments = FORWARDING[control]
    async with gateway(policies=[rule], there=there) as rig:
        client = rig.modern(path=path)
        for name, given in (("drop", {}), ("seek", {"q": "a"}), ("find", {"query": "a", "token": "mine"})):
            reply = await client.call(control, arguments={server: "there", tool: name, arguments: given})
            assert b'"success": false' in reply.raw or b"failed" in reply.raw or reply.result["isError"]
        assert not there.calls
        await client.call(control, arguments={server: "there", tool: "find", arguments: {"query": "a"}})
        (call,) = there.calls
        assert call["params"]["name"] == "seek"
        assert call["params"]["arguments"] == {"q": "a", "limit": 10, "token": "t-1"}
        assert [seen.target for seen in rule.seen if seen.server == "there"] == ["seek"]


@pytest.mark.promise("b.surfaces.overlays")
async def test_what_is_hidden_cannot_be_called_as_a_task_either() -> None:
    there = LegacyTaskServer({"slow": plain, "drop": plain})
    there.settings["tools"] = {"slow": Overlay(name="long"), "drop": Overlay(hidden=True)}
    async with gateway(there=there) as rig:
        for path, prefix in (("/mcp", "there__"), ("/mcp/servers/there", "")):
            client = await rig.legacy(LATEST, path=path)
            await client.request("tools/list")
            for name in ("drop", "slow"):
                reply = await client.call(prefix + name, task={"ttl": 1000})
                assert reply.error["data"]["code"] == "TOOL_NOT_FOUND"
        assert not there.calls


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_caller_who_gives_what_is_fixed_is_refused_before_any_rule(revision: str) -> None:
    there, rule = a_server(LegacyServer), Watcher()
    async with gateway(policies=[rule], there=there) as rig:
        client = await rig.client(revision)
        for given in ({"query": "a", "token": "mine"}, {"q": "a"}):
            error = (await client.call("there__find", arguments=given)).error
            assert (error["code"], error["data"]["code"], error["data"]["tool"]) == (-32602, "INVALID_ARGS", "find")
        assert not there.calls and not rule.seen


async def test_an_error_names_the_tool_as_the_client_knows_it() -> None:
    class Refusing(Watcher):
        def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
            raise Fault("ACCESS_DENIED", "Not this one")

    there = a_server(LegacyServer)
    async with gateway(policies=[Refusing()], there=there) as rig:
        error = (await rig.modern().call("there__find", arguments={"query": "a"})).error
        assert error["data"]["tool"] == "find"
        task = (await (await rig.legacy()).call("there__find", arguments={"query": "a"}, task={"ttl": 1})).error
        assert task["data"]["tool"] == "find"


@pytest.mark.promise("b.surfaces.overlays")
@pytest.mark.parametrize(("path", "prefix"), [("/mcp", "there__"), ("/mcp/servers/there", "")])
async def test_nothing_can_be_called_while_it_is_not_known_what_is_hidden(path: str, prefix: str) -> None:
    def refuse(_params: Any) -> Any:
        raise Refusal(-32603, "No list today")

    script = Scripted(tools_list=refuse, tools_call=said("called"))
    async with house_of_scripts(scripts={"there": script}) as app:
        app.gateway.snapshot.catalog.show({"there": CHANGES})
        for name in ("drop", "seek", "news", "unlisted"):
            with pytest.raises(Fault, match="No list today"):
                await app.gateway.handle(Call("tools/call", prefix + name, Client()), app.gateway.snapshot.routes[path])
    assert not [asked for asked in script.requests if asked["method"] == "tools/call"]


def names_of(reply: Any) -> list[str]:
    return [tool["name"] for tool in reply.result["tools"]]


async def test_only_changes_that_can_be_seen_are_told_of() -> None:
    there = a_server(LegacyServer)
    async with gateway(there=there) as rig:
        client = rig.modern()
        await client.request("tools/list")
        ear = await client.listen(lists=["tools"])
        there.offer("tools", listed("seek"), listed("drop", {"type": "object"}), listed("news"))
        await rig.clock.advance(60)
        assert ear.changed == []
        there.offer("tools", listed("seek"))
        await rig.clock.advance(60)
        assert ear.changed == ["tools"]


async def test_other_overlays_are_shown_at_once_and_told_of() -> None:
    there = a_server(LegacyServer)
    async with gateway(there=there) as rig:
        client = rig.modern()
        await client.request("tools/list")
        ear = await client.listen(lists=["tools"])
        rig.app.gateway.snapshot.catalog.show({"there": {"news": Overlay(hidden=True)}})
        await settle()
        assert ear.changed == ["tools"]
        assert names_of(await client.request("tools/list")) == ["there__seek", "there__drop"]
        assert (await client.call("there__find")).error["data"]["code"] == "TOOL_NOT_FOUND"
        rig.app.gateway.snapshot.catalog.show({})
        await settle()
        assert names_of(await client.request("tools/list")) == ["there__seek", "there__drop", "there__news"]
        assert len(there.requests("tools/list")) == 1


async def test_what_overlays_name_in_vain_is_logged_once_and_kept_as_data(caplog: pytest.LogCaptureFixture) -> None:
    there = a_server(LegacyServer, {"gone": Overlay(hidden=True)})
    with caplog.at_level(logging.WARNING):
        async with gateway(there=there) as rig:
            client = rig.modern()
            for _ in range(3):
                await client.request("tools/list")
                there.offer("tools", *there.lists["tools/list"][1])
                await rig.clock.advance(60)
            catalog = rig.app.gateway.snapshot.catalog
            server_list = catalog.known("there", "tools", Client())
            assert server_list and server_list.warnings == ("gone: no such tool",)
    assert caplog.text.count("gone: no such tool") == 1


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_server_that_asks_is_called_again_with_its_own_arguments(kind: Any, revision: str) -> None:
    async def ask(scene: Scene) -> str:
        answer = await scene.ask(form())
        return f"{scene.arguments} {answer['action']}"

    there = kind({"seek": ask})
    there.settings["tools"] = CHANGES
    there.lists["tools/list"] = ("tools", [listed("seek")])
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        answers = {"elicitation/create": {"action": "decline"}}
        reply = await client.converse("tools/call", answers, name="there__find", arguments={"query": "a"})
        assert reply.text == "{'q': 'a', 'limit': 10, 'token': 't-1'} decline"


async def test_the_errors_and_results_of_a_server_are_not_touched() -> None:
    async def failing(scene: Scene) -> str:
        raise RpcError(-32602, "q must not be empty")

    there = LegacyServer({"seek": failing})
    there.settings["tools"] = {"seek": FIND}
    async with gateway(there=there) as rig:
        error = (await rig.modern().call("there__find", arguments={"query": "a"})).error
        assert error == {"code": -32602, "message": "q must not be empty"}


async def called(app: App, headers: dict[str, str], **arguments: Any) -> Any:
    visitor = Visitor(app, "/mcp/servers/there")
    return await visitor.ask_modern("tools/call", headers=headers, name="find", arguments=arguments)


async def test_headers_are_held_against_what_was_shown_and_written_for_what_is_sent() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    script, rule = Scripted(tools_list={"tools": [listed("seek", schema)]}, tools_call=said("called")), Watcher()
    moved = Overlay(name="find", parameters={"region": Parameter(name="where")})
    given = Overlay(name="find", parameters={"region": Parameter(fixed="eu")})
    async with house_of_scripts(scripts={"there": script}, policies=[rule]) as app:
        app.gateway.snapshot.catalog.show({"there": {"seek": moved}})
        assert (await called(app, {}, where="a")).error["message"].endswith("Mcp-Param-Region is missing")
        assert (await called(app, {"mcp-param-region": "b"}, where="a")).error["code"] == -32020
        assert (await called(app, {"mcp-param-region": "a"}, where="a")).result["content"][0]["text"] == "called"
        app.gateway.snapshot.catalog.show({"there": {"seek": given}})
        assert (await called(app, {})).result["content"][0]["text"] == "called"
        assert len(rule.seen) == 2
        for call in rule.seen:
            assert call.tool_info and [argument.path for argument in call.tool_info.header_arguments] == [("region",)]
