"""A server whose descriptions or schemas take long to tell in short: others are served meanwhile, and what was made of
a list is not made again whenever somebody asks."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from inmemory import LATEST, Scripted, Visitor, gateway
from msgspec import Raw
from virtualtime import VirtualTimeLoop, settle

from toolgate.core import items, jsonrpc
from toolgate.gateway import route_view
from toolgate.search import briefs, signatures
from toolgate.search.briefs import brief
from toolgate.search.signatures import Budget, Tool
from toolgate.surfaces.controls import base, daemon, meta
from toolgate.surfaces.controls.base import OfLists

# Briefs.


class Counting:
    """A pattern that counts the characters it is given."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.given = pattern, 0

    def search(self, text: str) -> Any:
        self.given += len(text)
        return self.pattern.search(text)


@pytest.mark.parametrize("description", ["a. " * 666, "e.g. " * 400, "no.) " * 400, "a." + ")" * 1990 + "b"])
def test_each_end_of_a_sentence_is_looked_at_by_a_few_characters(
    description: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(briefs._ABBREVIATION)
    monkeypatch.setattr(briefs, "_ABBREVIATION", counting)
    assert len(brief(description)) <= 100
    assert counting.given <= 1_000


@pytest.mark.parametrize("mark", ["[", "![", "[](", "[a](b(", "[](()", "[[](", "[a]("])
def test_marks_of_links_are_looked_at_once(mark: str) -> None:
    assert briefs._LINK.sub("", mark * 200_000) is not None  # each by all that follow it would take minutes


@pytest.mark.parametrize(
    ("description", "short"),
    [
        ("Read a file (e.g. a log). Then more.", "Read a file (e.g. a log)."),
        ("See [the docs](https://x.test/a_(b)) first. More.", "See the docs first."),
        ("Files of any kind, approx. 20 of them. More.", "Files of any kind, approx. 20 of them."),
        ("x" * 99 + ". More", "x" * 99 + "."),
        ("word " * 100, "word " * 18 + "word…"),
    ],
)
def test_briefs_say_what_they_said(description: str, short: str) -> None:
    assert brief(description) == short


# Signatures.

SELF = {"type": "object", "properties": {f"p{number}": {"$ref": "#"} for number in range(12)}}


def tool(schema: Any, name: str = "t") -> Tool:
    raw = json.dumps(schema).encode()
    return Tool(name, "", raw, raw)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many characters of names and choices, schemas and members were looked at."""
    looked: list[int] = []
    breadth = signatures._breadth
    monkeypatch.setattr(signatures, "_breadth", lambda schema: looked.append(breadth(schema)) or looked[-1])
    return looked


@pytest.mark.parametrize("write", [signatures.one_line, signatures.typescript, signatures.python])
@pytest.mark.parametrize(
    "schema",
    [
        SELF,
        {"properties": {f"p{n}": {"$ref": "#/e"} for n in range(100)}, "e": {"enum": ["x" * 9_000] * 40}},
        {"properties": {f"p{n}": {"$ref": "#/e"} for n in range(100)}, "e": {"const": "x" * 300_000}},
        {"properties": {**SELF["properties"], "x" * 60_000: {}}},
        {"properties": {**SELF["properties"]}, "required": ["x"] * 9_000},
        {"properties": {n: {"$ref": "#/" + "x/" * 9_000} for n in "abcdefgh"}},
        {"properties": {f"{'x' * 500}{n}": {"$ref": "#"} for n in range(12)}},
    ],
    ids=["itself", "choices", "constant", "name", "required", "reference", "names"],
)
def test_what_is_written_of_many_schemas_has_one_budget(
    write: Any, schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, budget = counted(monkeypatch), Budget(5_000)
    written = [write(tool(schema, f"t{number}"), budget) for number in range(300)]
    assert sum(map(len, written)) <= 2_000_000
    assert len(looked) <= 5_000 + 2 * 300  # with the roots, which are read all the same as long as there is room
    assert sum(looked) <= 32 * 10_000 + 2 * 500_000
    assert budget.is_over
    assert write(tool({}, "last"), budget) == ("last(…)" if write is signatures.one_line else "")


def test_tools_as_servers_have_them_are_written_in_full() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "d"} for n in range(10)}}
    budget = Budget(meta._MOST_OF_A_LIST)
    written = [signatures.one_line(tool(schema, f"t{number}"), budget) for number in range(2_000)]
    assert not any("…" in each for each in written)


# What clients ask for.


async def asked(path: str, name: str, arguments: Any, description: str = "a. " * 600, many: int = 1_000) -> list[Any]:
    """What ten calls at once, and one after them, are told of a server with so many such tools."""
    tools = [
        {"name": f"t{number}", "description": description, "inputSchema": SELF, "outputSchema": SELF}
        for number in range(many)
    ]
    async with gateway(scripts={"there": Scripted(LATEST, tools_list={"tools": tools})}) as app:
        visitor = Visitor(app, path)
        await visitor.initialize()
        calls = [visitor.ask("tools/call", name=name, arguments=arguments) for _ in range(10)]
        answers = await asyncio.gather(*calls)
        answers.append(await visitor.ask("tools/call", name=name, arguments=arguments))
        return [json.loads(each.result["content"][0]["text"]) for each in answers]


async def test_briefs_of_a_list_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(daemon, "brief", lambda text: made.append(text) or brief(text))
    answers = await asked("/mcp/daemon", "list_tools", {"server": "there"})
    assert all(len(each["tools"]) == 1_000 for each in answers) and len(made) == 1_000


@pytest.mark.parametrize("format", [{}, {"format": "typescript"}, {"format": "python"}])
async def test_signatures_of_a_list_are_made_once_and_within_one_budget(
    format: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = counted(monkeypatch)
    answers = await asked("/mcp/meta", "mcp_discover", {"server": "there", **format})
    assert len(looked) <= meta._MOST_OF_A_LIST
    for each in answers:
        assert len(each["tools"]) == 1_000 and each == answers[0]
        beyond = sum(tool["signature"].endswith("(…)") for tool in each["tools"])
        assert 900 < beyond < 1_000 and "tools are shown without their parameters" in each["note"]
        assert int(each["note"].split()[0]) - beyond in (0, 1)  # of one there was room for the line only


TOLD = [
    ("/mcp/children", "get_schema", {"server_id": "there"}),
    ("/mcp/meta", "mcp_discover", {"server": "there"}),
    ("/mcp/meta", "mcp_discover", {"server": "there", "format": "python"}),
    ("/mcp/daemon", "list_tools", {"server": "there"}),
    ("/mcp/daemon", "list_tools", {}),
    ("/mcp/daemon", "get_tool_schema", {"server_name": "there", "tool_name": "t7"}),
]


@pytest.mark.parametrize(("path", "name", "arguments"), TOLD)
async def test_lists_are_written_once_for_all_who_are_told_them_and_beside_the_event_loop(
    path: str, name: str, arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, here, in_text, once = jsonrpc.encode, list[int](), base.in_text, list[int]()

    def encoded(value: Any) -> bytes:
        written = encode(value)
        here.append(0 if VirtualTimeLoop.is_aside else len(written))
        return written

    monkeypatch.setattr(jsonrpc, "encode", encoded)
    monkeypatch.setattr(base, "in_text", lambda written: once.append(len(written)) or in_text(written))
    of_one = ("a. " * 20_000, 10) if name == "get_tool_schema" else ()
    answers = await asked(path, name, arguments, *of_one)
    size = len(json.dumps(answers[0]))
    assert all(each == answers[0] for each in answers)
    assert size > 50_000 and max(here) < 10_000 and sum(once) < 2 * size


async def test_what_is_told_of_lists_is_made_when_there_is_room_and_counts_until_its_client_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, kept = OfLists.written, list[int]()
    tools = [{"name": f"t{number}", "description": "a. " * 600, "inputSchema": SELF} for number in range(1_500)]
    async with gateway(scripts={"there": Scripted(LATEST, tools_list={"tools": tools})}) as app:
        results = app._link_deps.results

        def noted(self: OfLists) -> bytes:
            kept.append(results._kept)
            return write(self)

        monkeypatch.setattr(OfLists, "written", noted)
        visitor = Visitor(app, "/mcp/children")
        await visitor.initialize()
        asking = [visitor.ask("tools/call", name="get_schema", arguments={"server_id": "there"}) for _ in range(10)]
        size = len((await asyncio.gather(*asking))[0].body)
        assert len(kept) == 10 and all(0.9 * size < each < 3 * size for each in kept)
        await settle()
        assert not results._by


async def test_of_one_client_as_many_wait_to_be_told_of_lists_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_view, "MOST_WAITING", 5)
    tools = [{"name": f"t{number}", "description": "a. " * 600, "inputSchema": SELF} for number in range(1_500)]
    async with gateway(scripts={"there": Scripted(LATEST, tools_list={"tools": tools})}) as app:
        visitor = Visitor(app, "/mcp/children")
        await visitor.initialize()
        asking = [visitor.ask("tools/call", name="get_schema", arguments={"server_id": "there"}) for _ in range(20)]
        answers = [json.loads(each.result["content"][0]["text"]) for each in await asyncio.gather(*asking)]
    refused = [each for each in answers if "tools" not in each]
    assert 0 < len(answers) - len(refused) <= 8 and {each["code"] for each in refused} == {"RATE_LIMITED"}


def test_hits_of_a_search_have_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, budget = counted(monkeypatch), Budget(meta._MOST_OF_A_SEARCH)
    raw = json.dumps(SELF).encode()
    item = items.Item("t", inputSchema=Raw(raw), outputSchema=Raw(raw))
    found = [meta._declared(item, "python", budget) for _ in range(50)]
    assert len(looked) <= meta._MOST_OF_A_SEARCH + 50
    assert found[0]["signature"].startswith("t(p0") and found[-1] == {"signature": "t(…)"}
