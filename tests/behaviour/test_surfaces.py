"""Surfaces: what each path shows, what can be called there all the same, and whose a name is (behaviour, 1 and 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import GREETER, Json, Refusal, Scripted, gateway, said, tools
from stage import CALLS, Asker, cast, playing, read

from toolgate.config import Config
from toolgate.core.fault import Fault
from toolgate.surfaces import controls

SURFACES = ["aggregate", "children", "meta", "components", "daemon", "all"]
NAMESPACED = ["serena__search_code", "codegraph__query_graph"]
SETS = {name: [control.name for control in set] for name, set in controls.SETS.items()}

CHANGING = {"add_mcp_server", "remove_mcp_server", "codex_archive_thread"}


def test_every_control_tool_is_tried_here() -> None:
    assert set(CALLS) == set(controls.CONTROLS)


@pytest.mark.promise("b.surfaces.skins")
async def test_each_path_shows_its_own_tools(era: str) -> None:
    shown = {
        "/mcp": NAMESPACED,
        "/mcp/aggregate": NAMESPACED,
        "/mcp/children": SETS["children"],
        "/mcp/meta": SETS["meta"],
        "/mcp/components": [],
        "/mcp/daemon": SETS["daemon"],
        "/mcp/all": [*controls.CONTROLS, *NAMESPACED],
        "/mcp/servers/codegraph": ["query_graph"],
    }
    async with playing("serena", "codegraph") as app:
        for path, names in shown.items():
            assert await Asker(app, era, path).listed() == names, path


@pytest.mark.promise("b.surfaces.skins", "000.children.list")
def test_the_seeds_tools_that_are_served_have_the_seeds_names() -> None:
    assert SETS["children"] == [
        "execute_child_tool", "get_schema", "list_registered_children", "get_child_status", "close_child_session",
    ]  # fmt: skip
    assert {"mcp_discover", "mcp_call"} <= set(SETS["meta"])
    direct = ("status", "list_mcp_servers", "call_tool", "list_tools", "get_tool_schema", "read_mcp_resource")
    assert {*direct, "add_mcp_server", "remove_mcp_server"} <= set(SETS["daemon"])


def test_no_name_of_a_control_tool_is_two_tools() -> None:
    names = [name for control in controls.CONTROLS.values() for name in (control.name, *control.also)]
    assert len(set(names)) == len(names) == sum(len(set) for set in controls.SETS.values()) + len(controls.ALIASES)


@pytest.mark.promise("b.surfaces.skins")
async def test_a_surface_of_control_tools_says_how_they_are_used_and_starts_nothing(era: str) -> None:
    script = cast()["serena"]
    assert isinstance(script, Scripted)
    async with gateway(scripts={"serena": script, "down": Fault("SERVER_FAILED", "broken", reach="not_sent")}) as app:
        for name in ("children", "meta", "daemon"):
            asker = Asker(app, era, f"/mcp/{name}")
            method = "server/discover" if era == "modern" else "initialize"
            opened = await (asker.result(method) if era == "modern" else _initialized(asker))
            assert any(tool in opened["instructions"] for tool in SETS[name])
            listed = await asker.result("tools/list")
            assert "failures" not in listed.get("_meta", {})
            assert await asker.listed("prompts") == []
        assert script.requests == []


async def _initialized(asker: Asker) -> Json:
    return (await asker.visitor.initialize()).result


@pytest.mark.promise("b.surfaces.default")
@pytest.mark.parametrize("surface", SURFACES)
async def test_the_plain_path_shows_the_surface_that_is_configured(surface: Any, era: str) -> None:
    async with playing("serena", config=Config(surface=surface)) as app:
        plain, named = Asker(app, era), Asker(app, era, f"/mcp/{surface}")
        assert await plain.listed() == await named.listed()
        assert "serena__search_code" in await Asker(app, era, "/mcp/aggregate").listed()


# Hidden is not forbidden.


@pytest.mark.promise("b.surfaces.hidden")
@pytest.mark.parametrize("name", [name for name in CALLS if name not in CHANGING])
async def test_every_control_tool_is_called_by_its_name_on_every_surface(name: str, era: str) -> None:
    async with playing("serena", "sqlite") as app:
        for path in ("/mcp", *(f"/mcp/{surface}" for surface in SURFACES)):
            result = await Asker(app, era, path).call(name, CALLS[name])
            assert not result.get("isError"), (path, result)


@pytest.mark.promise("b.surfaces.hidden", "b.surfaces.server")
@pytest.mark.parametrize("name", CALLS)
async def test_the_view_of_one_server_knows_no_control_tool(name: str, era: str) -> None:
    def refuse(params: Json) -> Json:
        raise Refusal(-32602, f"Unknown tool: {params['name']}")

    script = Scripted(tools_list=tools("t"), tools_call=refuse)
    async with gateway(scripts={"serena": script}) as app:
        error = await Asker(app, era, "/mcp/servers/serena").error("tools/call", name=name, arguments=CALLS[name])
        assert error["message"] == f"Unknown tool: {name}"


@pytest.mark.promise("b.surfaces.hidden")
async def test_what_servers_offer_is_used_on_every_surface_by_its_namespaced_name(era: str) -> None:
    async with playing("serena", "sqlite") as app:
        for surface in SURFACES:
            asker = Asker(app, era, f"/mcp/{surface}")
            assert (await asker.call("sqlite__query", {"sql": "SELECT 1"}))["structuredContent"]
            read = await asker.result("resources/read", uri="serena+serena://guide")
            assert read["contents"][0]["text"] == "Search."


@pytest.mark.promise("b.surfaces.hidden")
async def test_a_control_tools_shape_is_its_own_whatever_the_path(era: str) -> None:
    async with playing("serena") as app:
        for surface in SURFACES:
            asker = Asker(app, era, f"/mcp/{surface}")
            children = await asker.failed("get_schema", server_id="nope")
            assert (children["status"], children["code"]) == ("failed", "SERVER_NOT_FOUND")
            meta = await asker.call("mcp_discover", {"server": "nope"})
            assert (meta["isError"], meta["content"][0]["text"][:16]) == (True, "Server not found")
            daemon = await asker.failed("list_tools", server="nope")
            assert (daemon["success"], daemon["error_type"]) == (False, "KeyError")
            names = await asker.error("tools/call", name="nope__t", arguments={})
            assert names["data"]["code"] == "TOOL_NOT_FOUND"


# Whose a name is.


def server(*names: str, says: str = "the server") -> Scripted:
    return Scripted(tools_list=tools(*names), tools_call=said(says))


@pytest.mark.promise("b.names.control-tools")
async def test_a_surfaces_own_control_tools_come_first(era: str) -> None:
    async with gateway(scripts={"rude": server("get_schema", "list_tools")}) as app:
        told = await Asker(app, era, "/mcp/children").told("get_schema", server_id="rude")
        assert [tool["name"] for tool in told["tools"]] == ["get_schema", "list_tools"]
        told = await Asker(app, era, "/mcp/daemon").told("list_tools", server="rude")
        assert told["success"] is True


@pytest.mark.promise("b.names.control-tools")
async def test_a_namespaced_name_comes_before_control_tools_of_other_surfaces(era: str) -> None:
    async with gateway(scripts={"localrouter": server("search_tools")}) as app:
        asker = Asker(app, era)
        assert await asker.listed() == ["localrouter__search_tools"]
        result = await asker.call("localrouter__search_tools", {"query": "x"})
        assert result["content"] == said("the server")["content"]


@pytest.mark.promise("b.names.control-tools")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/meta", "/mcp/children"])
async def test_control_tools_of_other_surfaces_come_before_bare_names(path: str, era: str) -> None:
    async with gateway(scripts={"rude": server("status", "echo")}) as app:
        asker = Asker(app, era, path)
        assert (await asker.told("status"))["status"] == "running"
        assert (await asker.call("rude__status"))["content"] == said("the server")["content"]
        assert (await asker.call("echo"))["content"] == said("the server")["content"]


@pytest.mark.promise("b.names.control-tools", "b.names.ambiguous")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/children", "/mcp/all"])
async def test_a_bare_name_of_two_servers_is_refused_with_the_candidates(path: str, era: str) -> None:
    async with gateway(scripts={"a": server("echo"), "b": server("echo")}) as app:
        error = await Asker(app, era, path).error("tools/call", name="echo", arguments={})
        assert error["code"] == -32602
        assert error["data"]["candidates"] == ["a__echo", "b__echo"]


@pytest.mark.promise("b.names.control-tools")
async def test_other_names_of_the_search_tool_mean_it_where_no_server_has_them(era: str) -> None:
    async with gateway(GREETER) as app:
        asker = Asker(app, era)
        for name in ("search_tools", "localrouter__search_tools", "search"):
            assert read(await asker.call(name, {"query": "greet"}))["matches"], name


# Lists with faults.


@pytest.mark.promise("b.surfaces.skins")
async def test_on_surfaces_that_list_servers_faults_stand_beside_the_list(era: str) -> None:
    down = Fault("SERVER_FAILED", "Command not found: npx", reach="not_sent")
    async with gateway(scripts={"serena": cast()["serena"], "down": down}) as app:
        for path in ("/mcp", "/mcp/all"):
            meta = (await Asker(app, era, path).result("tools/list"))["_meta"]
            assert meta["partial_failure"] is True
            assert [each["server_id"] for each in meta["failures"]] == ["down"]


@pytest.mark.promise("b.names.configured")
async def test_a_result_never_leaks_another_servers_name(era: str) -> None:
    async with playing("serena", "sqlite") as app:
        told = await Asker(app, era).told("get_schema", server_id="serena")
        assert "sqlite" not in json.dumps(told)
