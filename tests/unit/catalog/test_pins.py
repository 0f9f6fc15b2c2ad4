"""What of a tool is pinned, what is the same to a pin, and what is bounded."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock

from toolgate.catalog.pins import MOST_SAID, Pins, StoredPins, mark
from toolgate.config import Config, Guard, Server
from toolgate.state.memory import MemoryStore

TOOL: dict[str, Any] = {
    "name": "read",
    "title": "Read",
    "description": "Reads a page",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string", "enum": ["a", "b"]}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


def raw(tool: Any) -> Raw:
    return Raw(tool if isinstance(tool, bytes) else json.dumps(tool).encode())


def pins(store: Any = None, note: Any = lambda *_, **__: None, **guard: Any) -> Pins:
    found = Pins(store or MemoryStore(FakeClock()), FakeClock(), "", note)
    rules = Guard(**{"pinning": "quarantine", "descriptions": "off"} | guard)
    found.prepared(Config(servers=(Server(id="there", name="there", type="stdio"),), guard=rules))()
    return found


def judged(known: Pins, *tools: Any, scope: str = "") -> Any:
    named = {tool["name"] if isinstance(tool, dict) else f"tool-{place}": raw(tool) for place, tool in enumerate(tools)}
    return known.judge("there", scope, named)


@pytest.mark.parametrize(
    "other",
    [
        dict(reversed(TOOL.items())),
        TOOL | {"_meta": {"seen": 7}, "icons": [{"src": "data:"}], "execution": {}},
        json.dumps(TOOL, indent=3).replace("a page", "\\u0061 page").encode(),
    ],
)
async def test_what_is_the_same_to_a_model_is_the_same_to_a_pin(other: Any) -> None:
    known = pins()
    assert judged(known, TOOL) == {}
    assert known.judge("there", "", {"read": raw(other)}) == {}


@pytest.mark.parametrize(
    "other",
    [
        TOOL | {"title": "Reads"},
        TOOL | {"description": "Reads a page."},
        TOOL | {"annotations": {"readOnlyHint": False}},
        TOOL | {"outputSchema": {}},
        TOOL | {"inputSchema": {"type": "object", "properties": {"q": {"type": "string", "enum": ["b", "a"]}}}},
        {key: value for key, value in TOOL.items() if key != "annotations"},
        json.dumps(TOOL)[:-1].encode() + b',"description":"Reads a page"}',
        b'{"description":"Sends it to me",' + json.dumps(TOOL)[1:].encode(),
        b"{",
    ],
)
async def test_what_differs_for_any_model_has_changed(other: Any) -> None:
    known = pins()
    judged(known, TOOL)
    assert known.judge("there", "", {"read": raw(other)}) == {"read": "it has changed"}


@pytest.mark.promise("b.audit.pins")
async def test_what_goes_into_quarantine_and_what_comes_out_of_it_is_noted_once() -> None:
    noted: list[Any] = []

    def note(event: str, **about: Any) -> None:
        noted.append((event, about["server"], about["tools"]))

    store = MemoryStore(FakeClock())
    known, other = pins(store, note), TOOL | {"description": "Sends it to me"}
    judged(known, TOOL)
    assert noted == []
    held = [("pins.held", "there", {"read": "it has changed"})]
    for _ in range(2):
        judged(known, other)
        assert noted == held
        await known.close()
        known = pins(store, note)  # the gateway is started again
    judged(known, other, TOOL | {"name": "new"})
    assert noted.pop() == ("pins.held", "there", {"new": "it is new"})
    await known.close()
    await StoredPins(store, "").approve("there", ["new"], "", 0.0)
    known.read_again()
    judged(known, other, TOOL | {"name": "new"})
    assert noted == held, "who approves notes it"
    judged(known, TOOL, TOOL | {"name": "new"})
    assert noted == [*held, ("pins.released", "there", {"read": "it matches its pin again, or no longer exists"})]


async def test_of_very_many_tools_some_are_noted_and_how_many_more_there_were() -> None:
    noted: list[Any] = []
    known = pins(note=lambda event, **about: noted.append(about))
    judged(known, TOOL)
    judged(known, TOOL, *(TOOL | {"name": f"{number}" * 3000, "title": str(number)} for number in range(30)))
    assert len(noted) == 1 and len(noted[0]["tools"]) == 10 and noted[0]["more"] == 20
    assert max(map(len, noted[0]["tools"])) == 100


async def test_in_warning_mode_there_is_no_quarantine_to_note() -> None:
    noted: list[Any] = []
    known = pins(note=lambda event, **about: noted.append(about), pinning="warn")
    judged(known, TOOL)
    judged(known, TOOL | {"title": "x"})
    assert noted == []


async def test_a_tool_that_says_nothing_is_new_and_not_another_one_renamed() -> None:
    known = pins()
    judged(known, {"name": "a", "inputSchema": {}})
    assert judged(known, {"name": "b", "inputSchema": {}}) == {"b": "it is new"}


@pytest.mark.parametrize("description", ["Reads a page", "Reads a page!"])
async def test_a_tool_under_another_name_is_renamed_though_a_little_is_other(description: str) -> None:
    known = pins()
    judged(known, TOOL, TOOL | {"name": "b", "description": "Something else"})
    found = judged(known, TOOL | {"name": "peruse", "description": description}, TOOL | {"name": "b", "title": "B"})
    assert found == {"peruse": "it was read", "b": "it has changed"}


async def test_a_server_that_lists_nothing_has_not_been_seen() -> None:
    known = pins()
    assert judged(known) == {}
    assert judged(known, TOOL) == {}
    assert judged(known, TOOL, TOOL | {"name": "b", "description": "Else"}) == {"b": "it is new"}


async def test_a_principals_own_list_is_held_against_the_same_pins() -> None:
    store = MemoryStore(FakeClock())
    known = pins(store)
    judged(known, TOOL, scope="ann")
    assert judged(known, TOOL | {"title": "R"}, scope="bob") == {"read": "it has changed"}
    assert judged(known, TOOL, scope="ann") == {}
    await known.close()
    assert list(StoredPins(store, "").pending("there")) == ["read"]


async def test_what_was_approved_is_pinned_and_the_old_name_of_what_was_renamed_is_not_any_more() -> None:
    store = MemoryStore(FakeClock())
    known = pins(store)
    judged(known, TOOL)
    judged(known, TOOL | {"name": "peruse"})
    await known.close()
    server_lists = StoredPins(store, "")
    assert await server_lists.approve("there", (), mark(server_lists.pending("there")), 7.0) == ["peruse"]
    found = server_lists.pins("there") or {}
    assert {name: (pin.at, pin.is_approved) for name, pin in found.items()} == {"peruse": (7.0, True)}
    known.read_again()
    assert judged(known, TOOL | {"name": "peruse"}) == {}
    assert judged(known, TOOL | {"name": "peruse"}, TOOL) == {"read": "it is new"}


async def test_many_new_tools_are_one_warning_and_nothing_is_said_twice(caplog: pytest.LogCaptureFixture) -> None:
    known = pins()
    judged(known, TOOL)
    many = [TOOL | {"name": f"n{number}", "description": str(number)} for number in range(2 * MOST_SAID)]
    for _ in range(2):
        assert len(judged(known, TOOL, *many[:50])) == 50
    [said] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "and 40 more" in said.message and len(said.message) < 2000
    judged(known, TOOL, *many)
    assert len(known._said) <= 2 * MOST_SAID


async def test_the_names_of_strangers_do_not_reach_the_log_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    known = pins()
    judged(known, TOOL)
    judged(known, TOOL | {"name": "a\x1b[2J\nERROR all is lost"})
    assert "\x1b" not in caplog.text and "a\\u{1b}[2J\\u{a}ERROR" in caplog.text


@pytest.mark.parametrize("mode", ["off", "warn"])
async def test_where_nothing_is_held_back_nothing_is_hidden(mode: str) -> None:
    known = pins(pinning=mode)
    assert judged(known, TOOL) is None and not known.holds("there")
    assert judged(known, TOOL | {"title": "R"}) is None
