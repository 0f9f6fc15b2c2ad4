"""Very many calls of one client wait for the same thing, which comes: few of them go on in a round of the event loop,
and whoever waits for nothing of that has turns in between."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock, settle

from toolgate.app import App
from toolgate.catalog.base import ServerList
from toolgate.config import Server
from toolgate.core import crowds
from toolgate.core.model import Client, Principal
from toolgate.surfaces.controls import base

MANY = 15 * crowds.FEW
TIMEOUT = 30.0


class Ends:
    """In which round of the event loop each of some calls has ended."""

    def __init__(self, calls: list[asyncio.Future[Any]]) -> None:
        self.rounds: Counter[int] = Counter()
        self._number = 0
        self._is_new = True  # the next one that ends is the first of its round
        self._left = len(calls)
        self._all = asyncio.Event()
        for call in calls:
            call.add_done_callback(self._ended)

    def _round_is_over(self) -> None:
        self._is_new = True

    def _ended(self, _call: object) -> None:
        if self._is_new:
            self._is_new = False
            self._number += 1
            asyncio.get_running_loop().call_soon(self._round_is_over)
        self.rounds[self._number] += 1
        self._left -= 1
        if not self._left:
            self._all.set()

    async def most(self) -> int:
        """In one of these rounds."""
        async with asyncio.timeout(300):
            await self._all.wait()
        return max(self.rounds.values())


def begin(visitor: Visitor, name: str = "wild__act") -> list[asyncio.Future[Any]]:
    asked = [visitor.request("tools/call", name=name, arguments={}) for _ in range(MANY)]
    return [asyncio.ensure_future(visitor.send("POST", json.dumps(each).encode())) for each in asked]


class Slow(Scripted):
    """It takes its time to open, until somebody lets it."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(**answers)
        self._opened = self.answers["initialize"]
        self.answers["initialize"] = ...

    def opens(self) -> None:
        self.answers["initialize"] = self._opened
        self.answer_last(self._opened)

    def does_not(self) -> None:
        self.hang_up("exited with status 1")


async def known(visitor: Visitor) -> None:
    await visitor.initialize()
    await visitor.ask("tools/list")


@pytest.mark.parametrize("name", ["wild__act", "nobody_has_this"])
@pytest.mark.parametrize("comes", [Slow.opens, Slow.does_not])
async def test_calls_that_wait_for_a_server_to_start(comes: Callable[[Slow], None], name: str) -> None:
    there = Slow(tools_list=tools("act"), tools_call=said("done"))
    async with gateway(scripts={"wild": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        calls = begin(visitor, name)
        await settle()
        ends = Ends(calls)
        comes(there)
        assert await ends.most() <= 3 * crowds.FEW


async def crash(app: App, there: Scripted, clock: FakeClock, visitor: Visitor) -> None:
    there.hang_up("exited with status 1")


async def their_time_is_over(app: App, there: Scripted, clock: FakeClock, visitor: Visitor) -> None:
    await clock.advance(TIMEOUT + 1)


async def their_session_ends(app: App, there: Scripted, clock: FakeClock, visitor: Visitor) -> None:
    assert (await visitor.send("DELETE")).status == 204


@pytest.mark.parametrize("ends", [crash, their_time_is_over, their_session_ends])
async def test_calls_that_end_together(ends: Callable[..., Awaitable[None]]) -> None:
    there, clock = Scripted(tools_list=tools("act"), tools_call=...), FakeClock()
    wild = Server(id="wild", name="wild", type="stdio", command="memory", timeout=TIMEOUT)
    async with gateway(wild, scripts={"wild": there}, clock=clock) as app:
        visitor = Visitor(app)
        await known(visitor)
        calls = begin(visitor)
        await settle()
        assert len([each for each in there.requests if each.get("method") == "tools/call"]) == MANY
        counted = Ends(calls)
        await ends(app, there, clock, visitor)
        assert await counted.most() <= 3 * crowds.FEW


async def test_those_that_wait_for_what_is_made_of_a_list_go_on_in_turns() -> None:
    """3,000 calls for 9,000 tools went on in one step of 2 s."""
    listed, made = ServerList({}), asyncio.get_running_loop().create_future()
    listed.memo["told"] = made
    ann = Client(Principal("ann"))
    calls: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(base.derived(listed, "told", lambda: "never", ann)) for _ in range(MANY)
    ]
    await settle()
    counted = Ends(calls)
    made.set_result("said")
    assert await counted.most() <= 3 * crowds.FEW
    assert {await each for each in calls} == {"said"}
