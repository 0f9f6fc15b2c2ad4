"""Who has to leave, and when that is over."""

from __future__ import annotations

import asyncio

import pytest
from virtualtime import FakeClock, settle

from toolgate.auth.refusals import Unauthorized
from toolgate.core import crowds
from toolgate.core.model import Principal
from toolgate.frontends.active_requests import ActiveRequest, ActiveRequests


class Stream:
    """A request that lasts until it is told to end, and does something else then."""

    def __init__(self, of: ActiveRequests) -> None:
        self._of = of
        self.ends, self.goes_on = asyncio.Event(), asyncio.Event()
        self.is_silent = False
        self.work = asyncio.ensure_future(self._run())

    def _silence(self) -> None:
        self.is_silent = True

    async def _run(self) -> str:
        with ActiveRequest(Principal("ann"), FakeClock(), self._of.all) as active_request:
            active_request.lasts("/mcp", self._silence)
            await self.ends.wait()
        await self.goes_on.wait()
        return "done"


async def test_what_lasts_is_silent_at_once_and_ends_in_its_turn() -> None:
    inside = ActiveRequests()
    streams = [Stream(inside) for _ in range(5 * crowds.FEW)]
    await settle()
    inside.expel_unknown(lambda principal: False)
    assert all(each.is_silent for each in streams)
    for each in streams:
        with pytest.raises(Unauthorized):
            await each.work
    assert not inside.all


async def test_one_that_has_ended_before_its_turn_is_left_alone() -> None:
    inside = ActiveRequests()
    streams = [Stream(inside) for _ in range(crowds.FEW)]
    await settle()
    first = streams[0]  # the latest end first
    inside.expel_unknown(lambda principal: False)
    first.ends.set()
    await settle()
    first.goes_on.set()
    async with asyncio.timeout(10):
        assert await first.work == "done"
        await asyncio.gather(*(each.work for each in streams), return_exceptions=True)
