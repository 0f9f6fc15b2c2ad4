"""Time: a clock that tests can hold still."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import msgspec

TICKS = 256  # in a second
FARTHEST = 100 * 365 * 24 * 3600.0  # seconds


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time, in seconds."""

    def now(self) -> float:
        """Seconds that only grow; for measuring."""
        ...

    def wall(self) -> float:
        """Seconds since 1970; for what is shown, stored or sealed."""
        ...

    def call_later(self, seconds: float, then: Callable[[], object]) -> Timer:
        """Have something called, not before and soon after."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Like `asyncio.timeout`, by this clock: raises `TimeoutError` at the end of its block."""
        ...


class SystemClock:
    """The clock of the running event loop. Nearly all timers are cancelled before their time, several in each call: so
    those of one tick share one timer of the loop, and to make and cancel one costs a tenth of that. What is due within
    two ticks has a timer of its own; what is due late is so by a thousandth of its time later, so that there are some
    ten thousand ticks at most, whatever was cancelled."""

    def __init__(self) -> None:
        self._timers: dict[int, set[_Timer]] = {}  # by the number of the tick at which they are due
        self._ticks: list[int] = []  # a heap
        self._next: asyncio.TimerHandle | None = None

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def call_later(self, seconds: float, then: Callable[[], object]) -> Timer:
        ticks, step = _in_ticks(seconds)
        if ticks < 2:
            return asyncio.get_running_loop().call_later(seconds, then)
        tick = ((int(time.monotonic() * TICKS) + ticks + 1) // step + 1) * step
        timers = self._timers.get(tick)
        if timers is None:
            timers = self._timers[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._wait()
        timer = _Timer(then, timers)
        timers.add(timer)
        return timer

    def _wait(self) -> None:
        if self._next:
            self._next.cancel()
        left = self._ticks[0] / TICKS - time.monotonic()
        self._next = asyncio.get_running_loop().call_later(max(0.0, left), self._due)

    def _due(self) -> None:
        """Call all that are due. What one of them raises is no matter to the others."""
        self._next = None
        loop, now = asyncio.get_running_loop(), time.monotonic() * TICKS
        while self._ticks and self._ticks[0] <= now:
            due = self._timers.pop(heapq.heappop(self._ticks))
            for timer in due:
                loop.call_soon(timer.call)
            due.clear()  # or it and its timers would hold each other, and these what they call
        while self._ticks and not self._timers[self._ticks[0]]:  # all cancelled
            del self._timers[heapq.heappop(self._ticks)]
        if self._ticks:
            self._wait()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


@lru_cache(maxsize=256)  # nearly all times are of few lengths
def _in_ticks(seconds: float) -> tuple[int, int]:
    """So many ticks, and of how many one is looked at where it is so long."""
    ticks = int(min(seconds, FARTHEST) * TICKS)
    return ticks, 1 << max(0, ticks.bit_length() - 11)


class _Timer(msgspec.Struct, eq=False):
    _then: Callable[[], object] | None
    _all: set[_Timer]

    def cancel(self) -> None:
        self._then = None
        self._all.discard(self)

    def call(self) -> None:
        if self._then:
            self._then()


async def waited(reader: asyncio.Future[None], clock: Clock, patience: float) -> None:
    """Until somebody wakes the reader. Raises `TimeoutError` after `patience` seconds."""
    timer = clock.call_later(patience, lambda: None if reader.done() else reader.set_exception(TimeoutError()))
    try:
        await reader
    finally:
        timer.cancel()


def wake(reader: asyncio.Future[None] | None) -> None:
    if reader and not reader.done():
        reader.set_result(None)
