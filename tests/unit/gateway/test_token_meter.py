"""What clients have loaded is counted once for all who have it, and in turns."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.catalog.loaded import LoadedTools
from toolgate.core.concurrency import FairThreads
from toolgate.core.model import Client, Principal
from toolgate.gateway import token_meter
from toolgate.search import tokens

ITEMS = {f"tool_{number}": Raw(b'{"name":"s__tool_%d"}' % number) for number in range(20)}


def of(loaded: LoadedTools, turns: FairThreads, session: str, who: str = "ann") -> asyncio.Task[object]:
    client = Client(Principal(who, client=who), session, path="/mcp")
    loaded.listed(client, LISTED)
    given = token_meter.Given(loaded.find(client), {"s": (SERVER, ITEMS.keys())})
    return asyncio.ensure_future(token_meter.of(given, {"s": "s"}, turns, who))


LISTED = tuple(ITEMS.values())
SERVER = ServerList(ITEMS, 0.0)


async def test_a_list_is_counted_once_however_many_sessions_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[bytes] = []
    estimate = tokens.estimate

    def counting(text: bytes | str) -> int:
        counted.append(b"")
        return estimate(text)

    monkeypatch.setattr(tokens, "estimate", counting)
    loaded, turns = LoadedTools(), FairThreads(1)
    first = await of(loaded, turns, "session 0")
    once = len(counted)
    for number in range(1, 8):
        assert await of(loaded, turns, f"session {number}") == first
    assert once and len(counted) == once


async def test_who_wants_to_know_it_in_many_sessions_waits_behind_its_own() -> None:
    loaded, turns = LoadedTools(), FairThreads(1)
    await turns.turn("somebody")
    ended: list[str] = []
    asked = [of(loaded, turns, f"session {number}") for number in range(5)]
    await asyncio.sleep(0)
    asked.append(of(loaded, turns, "one", "bob"))
    for number, each in enumerate(asked):
        each.add_done_callback(lambda _done, number=number: ended.append("bob" if number == 5 else "ann"))
    await asyncio.sleep(0)
    turns.give_back("somebody")
    await asyncio.gather(*asked)
    assert "bob" in ended[:2]
