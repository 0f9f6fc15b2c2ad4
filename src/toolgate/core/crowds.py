"""Very many that go on at the same moment: thousands of calls of one client wait for one server to start, lose their
connection together, or reach their time limit together.

The rule this file keeps: few of them go on in a round of the event loop, so that who waits for nothing of this has its
turns in between; and principals that have some among them take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from toolgate.core.clock import wake
from toolgate.core.fairness import RoundRobin

FEW = 16  # in a round at most: as a rule each takes a tenth of a millisecond
FIRST = 4  # in one of which nothing is known
LONGEST = 0.008  # seconds of a round, beyond which half as many go on in the next


class _Crowd:
    """That of one event loop, which it does not hold."""

    def __init__(self) -> None:
        self._gone = 0  # in this round
        self._most = FIRST
        self._began = 0.0
        self._waiting: RoundRobin[Callable[[], object]] = RoundRobin()

    def has_room(self) -> bool:
        """Whether one more may go on in this round; it counts."""
        if self._gone >= self._most or self._waiting.size:
            return False
        if not self._gone:
            loop = asyncio.get_running_loop()
            self._began = loop.time()
            loop.call_soon(self._next_round)
        self._gone += 1
        return True

    def wait(self, go_on: Callable[[], object], whose: str) -> None:
        self._waiting.put(whose, go_on)

    def leave(self, go_on: Callable[[], object], whose: str) -> None:
        self._waiting.remove(whose, go_on)

    def _next_round(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._most = max(1, self._most // 2) if now - self._began > LONGEST else min(FEW, 2 * self._most)
        self._gone, self._began = min(self._most, self._waiting.size), now
        for _ in range(self._gone):
            if go_on := self._waiting.pop():
                loop.call_soon(go_on)
        if self._gone:
            loop.call_soon(self._next_round)
        else:
            self._most = FIRST


_crowds: WeakKeyDictionary[asyncio.AbstractEventLoop, _Crowd] = WeakKeyDictionary()


def _crowd() -> _Crowd:
    loop = asyncio.get_running_loop()
    found = _crowds.get(loop)
    if not found:
        found = _crowds[loop] = _Crowd()
    return found


def in_turn(go_on: Callable[[], object], whose: str = "") -> None:
    """Have it done: now, or in one of the next rounds where others are before it. `whose` it is: see
    `Principal.counted_as`."""
    try:
        crowd = _crowd()
    except RuntimeError:  # no loop runs any more
        go_on()
        return
    if crowd.has_room():
        go_on()
    else:
        crowd.wait(go_on, whose)


async def turn(whose: str = "") -> None:
    """Wait for one's turn to go on, where very many may do so now."""
    crowd = _crowd()
    if crowd.has_room():
        return
    going: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    go_on = partial(_go_on, going)
    crowd.wait(go_on, whose)
    try:
        await going
    except BaseException:
        crowd.leave(go_on, whose)
        raise


def _go_on(going: asyncio.Future[None]) -> None:
    if not going.done():
        going.set_result(None)


class Signal:
    """An event that thousands may wait for. Of those of asyncio who stops waiting is searched for among all."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: dict[asyncio.Future[None], None] = {}

    def set(self) -> None:
        self._is_set = True
        for each in self._waiting:
            wake(each)

    async def wait(self) -> None:
        if not self._is_set:
            await _one_of([self])

    def join(self, waiting: asyncio.Future[None]) -> None:
        self._waiting[waiting] = None

    def leave(self, waiting: asyncio.Future[None]) -> None:
        self._waiting.pop(waiting, None)


_ends: WeakKeyDictionary[asyncio.Future[Any], Signal] = WeakKeyDictionary()


async def over(*awaited: asyncio.Future[Any]) -> None:
    """Wait until one of these is over, whatever came of it. Who stops waiting ends it for nobody."""
    if not any(each.done() for each in awaited):
        await _one_of([_end(each) for each in awaited])


def _end(awaited: asyncio.Future[Any]) -> Signal:
    found = _ends.get(awaited)
    if not found:
        found = _ends[awaited] = Signal()
        awaited.add_done_callback(lambda _over, end=found: end.set())
    return found


async def _one_of(signals: Sequence[Signal]) -> None:
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for signal in signals:
        signal.join(waiting)
    try:
        await waiting
    finally:
        for signal in signals:
            signal.leave(waiting)
