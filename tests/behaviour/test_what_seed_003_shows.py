"""Seed 003: tool components behind the gateway, under their bare names, with arguments checked before they are sent."""

from __future__ import annotations

from typing import Any

import pytest
from inmemory import Json, Scripted, gateway, said, tools
from stage import Asker, tool

from toolgate.config import Config, Server
from toolgate.core.fault import Fault

ADD = tool("add", "Add two numbers", {"a": "integer", "b": "integer"})


def component(id: str) -> Server:
    """What a component says over HTTP is tried with real sockets; here it is a server in memory."""
    return Server(id=id, name=id, type="component", url=f"http://{id}.example.org/")


def echo(*names: str) -> Scripted:
    return Scripted(tools_list=tools(*names), tools_call=lambda params: said(str(params.get("arguments"))))


@pytest.mark.promise("003.components.bare", "b.surfaces.skins")
async def test_components_have_bare_names_on_their_surface_and_namespaced_ones_elsewhere(era: str) -> None:
    stdio = Server(id="docs", name="docs", type="stdio", command="memory")
    async with gateway(component("echo"), stdio, scripts={"echo": echo("echo"), "docs": echo("find")}) as app:
        asker = Asker(app, era, "/mcp/components")
        assert await asker.listed() == ["echo"]
        assert (await asker.call("echo", {"message": "Hello"}))["content"] == said("{'message': 'Hello'}")["content"]
        assert await Asker(app, era).listed() == ["echo__echo", "docs__find"]
        for path in ("/mcp", "/mcp/components"):
            for name in ("echo", "echo__echo", "docs__find", "find"):
                assert (await Asker(app, era, path).call(name, {}))["content"]


@pytest.mark.promise("003.components.bare", "b.names.control-tools")
async def test_on_its_surface_a_components_name_comes_before_those_of_others_but_not_before_control_tools(
    era: str,
) -> None:
    scripts = {"shop": echo("status", "search", "echo"), "other": echo("echo")}
    other = Server(id="other", name="other", type="stdio", command="memory")
    async with gateway(component("shop"), other, scripts=scripts) as app:
        asker = Asker(app, era, "/mcp/components")
        assert await asker.listed() == ["shop__status", "search", "echo"]
        assert (await asker.call("status", {}))["content"] != said("{}")["content"]
        assert (await asker.call("shop__status", {"a": 1}))["content"] == said("{'a': 1}")["content"]
        assert (await asker.call("search", {"a": 1}))["content"] == said("{'a': 1}")["content"]
        assert (await asker.call("echo", {"a": 1}))["content"] == said("{'a': 1}")["content"]
        assert "tools/call" not in [asked["method"] for asked in scripts["other"].requests]


async def test_a_component_gets_no_calls_that_are_meant_for_others(era: str) -> None:
    scripts = {"evil": echo("mcp_call", "x"), "other": echo("secret")}
    other = Server(id="other", name="other", type="stdio", command="memory")
    async with gateway(component("evil"), other, scripts=scripts) as app:
        asker = Asker(app, era, "/mcp/components")
        result = await asker.result("tools/list")
        assert [each["name"] for each in result["tools"]] == ["evil__mcp_call", "x"]
        assert any("listed as evil__mcp_call" in failure["error"] for failure in result["_meta"]["failures"])
        await asker.call("mcp_call", {"server_name": "other", "tool_name": "secret", "arguments": {"a": 1}})
        assert "tools/call" not in [asked["method"] for asked in scripts["evil"].requests]
        assert (await asker.call("evil__mcp_call", {"a": 1}))["content"] == said("{'a': 1}")["content"]


@pytest.mark.promise("b.003.down")
async def test_two_components_with_one_tool_list_neither_and_say_so(era: str) -> None:
    async with gateway(component("a"), component("b"), scripts={"a": echo("echo", "x"), "b": echo("echo", "y")}) as app:
        result = await Asker(app, era, "/mcp/components").result("tools/list")
        assert [each["name"] for each in result["tools"]] == ["x", "y"]
        assert any("echo" in failure["error"] for failure in result["_meta"]["failures"])
        error = await Asker(app, era, "/mcp/components").error("tools/call", name="echo", arguments={})
        assert error["code"] == -32602


@pytest.mark.promise("b.003.down")
async def test_a_component_that_is_down_is_among_the_failures(era: str) -> None:
    down = Fault("SERVER_FAILED", "Connection refused", reach="not_sent")
    async with gateway(component("a"), component("b"), scripts={"a": echo("echo"), "b": down}) as app:
        result = await Asker(app, era, "/mcp/components").result("tools/list")
        assert [each["name"] for each in result["tools"]] == ["echo"]
        assert [each["server_id"] for each in result["_meta"]["failures"]] == ["b"]


@pytest.mark.promise("003.methods.served", "003.errors.served")
async def test_on_its_surface_errors_are_those_of_json_rpc(era: str) -> None:
    async with gateway(component("echo"), scripts={"echo": echo("echo")}) as app:
        asker = Asker(app, era, "/mcp/components")
        missing = await asker.error("tools/call", name="nope", arguments={})
        assert missing["code"] == -32602
        assert missing["message"].startswith("Tool not found: nope")
        assert (await asker.error("tools/fly"))["code"] == -32601


# Arguments are checked, on every surface but that of one server.

WRONG: list[tuple[Json, list[str]]] = [
    ({"a": 1}, ["b"]),
    ({"a": "1", "b": 2}, ["/a"]),
    ({"a": "1", "b": "2"}, ["/a", "/b"]),
]


@pytest.mark.promise("003.flow.validation")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/components", "/mcp/all"])
@pytest.mark.parametrize(("arguments", "named"), WRONG)
async def test_wrong_arguments_are_refused_with_every_error_and_its_place(
    path: str, arguments: Json, named: list[str], era: str
) -> None:
    script = Scripted(tools_list={"tools": [ADD]}, tools_call=said("3"))
    async with gateway(component("calculator"), scripts={"calculator": script}) as app:
        error = await Asker(app, era, path).error("tools/call", name="add", arguments=arguments)
        assert (error["code"], error["data"]["code"]) == (-32602, "INVALID_ARGS")
        assert error["message"].startswith("Invalid arguments")
        assert all(each in error["message"] + str(error["data"]) for each in named)
        assert "tools/call" not in [asked["method"] for asked in script.requests]
        good = await Asker(app, era, path).call("add", {"a": 1, "b": 2})
        assert good["content"] == said("3")["content"]


@pytest.mark.promise("003.flow.validation", "000.errors.codes")
async def test_through_control_tools_wrong_arguments_have_each_seeds_shape(era: str) -> None:
    script = Scripted(tools_list={"tools": [ADD]}, tools_call=said("3"))
    async with gateway(scripts={"calculator": script}) as app:
        asker = Asker(app, era)
        call = {"server_id": "calculator", "tool_name": "add", "arguments": {"a": "1"}}
        children = await asker.failed("execute_child_tool", **call)
        assert (children["code"], children["error"][:17]) == ("INVALID_ARGS", "Invalid arguments")
        daemon = await asker.failed("call_tool", server_name="calculator", tool_name="add", arguments={"a": "1"})
        assert daemon["error_type"] == "ValueError"
        assert daemon["schema"] == ADD["inputSchema"]
        meta = await asker.call("mcp_call", {"server": "calculator", "tool": "add", "args": {"a": "1"}})
        assert meta["isError"] is True
        assert meta["content"][0]["text"].startswith("Error calling add on calculator: Invalid arguments")
        assert "tools/call" not in [asked["method"] for asked in script.requests]


@pytest.mark.promise("003.flow.validation")
async def test_the_view_of_one_server_leaves_that_to_the_server(era: str) -> None:
    script = Scripted(tools_list={"tools": [ADD]}, tools_call=said("as you like"))
    async with gateway(scripts={"calculator": script}) as app:
        result = await Asker(app, era, "/mcp/servers/calculator").call("add", {"a": "1"})
        assert result["content"] == said("as you like")["content"]


@pytest.mark.promise("003.config.validation")
@pytest.mark.parametrize("off", ["everywhere", "server"])
async def test_the_check_can_be_switched_off(off: str, era: str) -> None:
    script = Scripted(tools_list={"tools": [ADD]}, tools_call=said("as you like"))
    server = Server(
        id="calculator", name="calculator", type="stdio", command="memory", validate_arguments=off != "server"
    )
    config = Config(validate_arguments=off != "everywhere")
    async with gateway(server, config=config, scripts={"calculator": script}) as app:
        result = await Asker(app, era).call("calculator__add", {"a": "1"})
        assert result["content"] == said("as you like")["content"]


@pytest.mark.promise("b.003.validation-broken")
async def test_a_schema_that_does_not_compile_is_its_servers_fault_and_the_call_goes_on(era: str) -> None:
    broken: Any = {"name": "t", "inputSchema": {"type": "object", "properties": {"a": {"type": 7}}}}
    script = Scripted(tools_list={"tools": [broken]}, tools_call=said("done"))
    async with gateway(scripts={"there": script}) as app:
        asker = Asker(app, "modern" if era == "modern" else era, "/mcp")
        assert (await asker.call("there__t", {"a": 1}))["content"] == said("done")["content"]
