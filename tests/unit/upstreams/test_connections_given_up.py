"""Calls that nobody waits for any more: the connections that were idle when they were sent may be gone with theirs."""

from __future__ import annotations

from typing import Any

from virtualtime import FakeClock

from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams.links.http1 import ConnectionPool, Target
from toolgate.upstreams.links.places import Places


class Wire:
    """A connection that was idle since then, or sent its request then."""

    keep = 60.0

    def __init__(self, at: float = 0.0) -> None:
        self.idle_since = self.sent = at
        self.is_needless = False
        self.closed = 0

    def is_closing(self) -> bool:
        return self.closed > 0

    def close(self) -> None:
        self.closed += 1

    abort = close


async def test_each_of_the_connections_that_were_idle_is_closed_once_however_many_calls_are_given_up() -> None:
    clock = FakeClock()
    target = Target("http://127.0.0.1/mcp")
    pool = ConnectionPool(target, clock, None, IntakeQueue(), Places(clock), "there", 60.0)  # type: ignore[arg-type]
    idle: list[Any] = [Wire() for _ in range(5)]
    for wire in idle:
        pool.give_back(wire)
        await clock.advance(1)
    given_up: list[Any] = [Wire(idle[3].idle_since) for _ in range(4)]
    for wire in given_up:
        pool.abandon(wire)
    assert [wire.closed for wire in idle] == [1, 1, 1, 0, 0]
    assert [wire.closed for wire in given_up] == [1] * 4
    assert pool.take_now("ann") is idle[4]
    pool.drain()
    assert idle[3].closed == 1 and pool.take_now("ann") is None
    pool.close()
