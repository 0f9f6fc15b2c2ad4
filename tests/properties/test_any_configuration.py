"""Whatever is configured: what a surface lists is called by that name and reaches its own server and tool, what can be
called is what the servers of the route list, by every way that there is, and nothing else is reached."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inmemory import Json, Refusal, Scripted, Visitor, gateway
from virtualtime import play

from toolgate.config import Server
from toolgate.core import names
from toolgate.surfaces import controls

SURFACES = ("aggregate", "children", "meta", "components", "daemon", "all")

SERVERS = [
    "docs",
    "docs-2",
    "docs_2x",
    "My Docs",
    "d",
    "a__b",
    "7up",
    "status",
    "localrouter",
    "x" * 60,
    "x" * 59 + "y",
]
SPECIAL = [
    *("a__b", "__", "_", "a__", "__a", "docs__search", "search", "search ", "Search", "SEARCH"),
    *("x" * 64, "x" * 65, "x" * 64 + "y", "docs__" + "x" * 60, "é" * 40, "ﬀ", "ff"),
    *controls.CONTROLS,
    *controls.ALIASES,
]
# One with U+0000 is not listed: tests/attack/test_items_that_clients_cannot_read.py
written = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
tool_names = (
    st.sampled_from(SPECIAL) | st.text(written, min_size=1, max_size=12) | st.from_regex(r"\A[a-z]_?[a-z]{0,3}\Z")
)
offers = st.dictionaries(
    st.sampled_from(SERVERS), st.lists(tool_names, max_size=4, unique=True), min_size=1, max_size=4
).filter(lambda found: len({names.slug(name) for name in found}) == len(found))

# Every way to call a tool by its server and its own name.
WAYS = {
    "execute_child_tool": lambda server, tool: {"server_id": server, "tool_name": tool, "arguments": {}},
    "mcp_call": lambda server, tool: {"server": server, "tool": tool},
    "call_tool": lambda server, tool: {"server_name": server, "tool_name": tool},
}


def scripted(id: str, offered: list[str]) -> Scripted:
    """It tells which server and which tool it is, in what is neither text nor rewritten."""

    def call(params: Json) -> Json:
        if params["name"] not in offered:
            raise Refusal(-32602, f"Unknown tool: {params['name']}")
        return {"content": [{"type": "text", "text": "."}], "_meta": {"reached": [id, params["name"]]}}

    tools = [{"name": name, "description": "A tool", "inputSchema": {"type": "object"}} for name in offered]
    return Scripted(tools_list={"tools": tools}, tools_call=call)


def config(offered: Mapping[str, list[str]], off: set[str]) -> list[Server]:
    return [
        Server(id=names.slug(name), name=name, type="stdio", command="memory", enabled=name not in off)
        for name in offered
    ]


async def reached(visitor: Visitor, name: str, arguments: Json | None = None) -> tuple[str, str] | None:
    """The server and the tool that a call has reached, None where it was refused."""
    answer = (await visitor.ask("tools/call", name=name, arguments=arguments or {})).last
    result = answer.get("result", {})
    found = result.get("_meta", {}).get("reached")
    assert found or result.get("isError") or "error" in answer, answer
    return (found[0], found[1]) if found else None


async def visit(app: object, path: str) -> Visitor:
    visitor = Visitor(app, path)  # type: ignore[arg-type]
    await visitor.initialize()
    return visitor


async def listed(visitor: Visitor) -> list[str]:
    return [tool["name"] for tool in (await visitor.ask("tools/list")).result["tools"]]


@settings(max_examples=40)
@given(offers, st.data())
@pytest.mark.promise("b.surfaces.listed-callable")
def test_what_is_listed_is_callable_and_reaches_its_own_tool(
    offered: dict[str, list[str]], data: st.DataObject
) -> None:
    off = data.draw(st.sets(st.sampled_from(sorted(offered)), max_size=1))
    path = "/mcp/" + data.draw(st.sampled_from(SURFACES))

    async def conversation() -> None:
        scripts = {names.slug(name): scripted(names.slug(name), tools) for name, tools in offered.items()}
        permitted = {(names.slug(name), tool) for name, tools in offered.items() if name not in off for tool in tools}
        async with gateway(*config(offered, off), scripts=scripts) as app:
            visitor = await visit(app, path)
            shown = await listed(visitor)
            assert len(set(shown)) == len(shown)
            assert all(len(name) <= names.LONGEST for name in shown if name not in controls.CONTROLS)
            own = shown if path == "/mcp/aggregate" else [name for name in shown if name not in controls.CONTROLS]
            found = [await reached(visitor, name) for name in own]
            assert None not in found and len(set(found)) == len(found)
            assert set(found) <= permitted
            if path in ("/mcp/aggregate", "/mcp/all"):
                assert set(found) == permitted

    play(conversation())


@settings(max_examples=40)
@given(offers, st.data())
@pytest.mark.promise("b.surfaces.listed-callable")
def test_every_way_to_call_reaches_what_the_servers_of_the_route_list_and_nothing_else(
    offered: dict[str, list[str]], data: st.DataObject
) -> None:
    off = data.draw(st.sets(st.sampled_from(sorted(offered)), max_size=1))
    path = "/mcp/" + data.draw(st.sampled_from(SURFACES))
    way, arguments = data.draw(st.sampled_from(sorted(WAYS.items())))
    strange = data.draw(tool_names)

    async def conversation() -> None:
        scripts = {names.slug(name): scripted(names.slug(name), tools) for name, tools in offered.items()}
        async with gateway(*config(offered, off), scripts=scripts) as app:
            visitor = await visit(app, path)
            for name, tools in offered.items():
                id = names.slug(name)
                for tool in {*tools, strange}:
                    expected = (id, tool) if name not in off and tool in tools else None
                    assert await reached(visitor, way, arguments(name, tool)) == expected
                    assert await reached(visitor, way, arguments(id, tool)) == expected
                told = (await visitor.ask("tools/call", name="get_schema", arguments={"server_id": name})).result
                assert bool(told.get("isError")) == (name in off)
                if name not in off:
                    shown = json.loads(told["content"][0]["text"])["tools"]
                    assert [each["name"] for each in shown] == tools

    play(conversation())


@settings(max_examples=30)
@given(offers, st.data())
@pytest.mark.promise("b.surfaces.listed-callable", "b.surfaces.server")
def test_the_view_of_one_server_reaches_no_other(offered: dict[str, list[str]], data: st.DataObject) -> None:
    mine = data.draw(st.sampled_from(sorted(offered)))
    id = names.slug(mine)

    async def conversation() -> None:
        scripts = {names.slug(name): scripted(names.slug(name), tools) for name, tools in offered.items()}
        async with gateway(*config(offered, set()), scripts=scripts) as app:
            visitor = await visit(app, f"/mcp/servers/{id}")
            assert await listed(visitor) == offered[mine]
            for tool in offered[mine]:
                assert await reached(visitor, tool) == (id, tool)
            for name, tools in offered.items():
                for tool in tools:
                    for called in {tool, names.join_name(names.slug(name), tool)}:
                        found = await reached(visitor, called)
                        assert found == ((id, called) if called in offered[mine] else None)
                    for way, arguments in WAYS.items():
                        found = await reached(visitor, way, arguments(name, tool))
                        assert found == ((id, way) if way in offered[mine] else None)
            others = {name: script for name, script in scripts.items() if name != id}
            asked = [each["method"] for script in others.values() for each in script.requests]
            assert "tools/call" not in asked

    play(conversation())


@settings(max_examples=40)
@example(offered={"docs": ["search "]}, name="search ")
@given(offers, tool_names)
@pytest.mark.promise("b.names.control-tools", "b.surfaces.listed-callable")
def test_a_bare_name_reaches_the_one_server_that_has_it_or_none(offered: dict[str, list[str]], name: str) -> None:
    async def conversation() -> None:
        scripts = {names.slug(server): scripted(names.slug(server), tools) for server, tools in offered.items()}
        async with gateway(*config(offered, set()), scripts=scripts) as app:
            visitor = await visit(app, "/mcp")
            if name in await listed(visitor) or names.slug(name) in map(names.slug, controls.NAMES):
                return
            owners = [names.slug(server) for server, tools in offered.items() if name in tools]
            split = names.split_name(name, [names.slug(server) for server in offered])
            if not split:
                assert await reached(visitor, name) == ((owners[0], name) if len(owners) == 1 else None)

    play(conversation())
