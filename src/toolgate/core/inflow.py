"""What comes on a connection, taken a piece at a time, so that whoever sends without end keeps nobody else waiting.

The rules this file keeps: after a moment of one connection's pieces the event loop goes round, and until they are taken
nothing more is read from it; their order stays. Of an `Intake` nothing is taken either while anybody holds it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

MOMENT = 0.002  # seconds


class Readable(Protocol):
    """A transport, as far as it is read from."""

    def is_closing(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Inflow:
    """`take` gets each piece. It may raise nothing."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take
        self.waiting: deque[bytes] = deque()  # what has come and was not taken yet
        self._transport: Readable | None = None  # that is not read from meanwhile

    def put(self, pieces: Iterable[bytes], transport: Readable | None) -> None:
        is_under_way = bool(self.waiting)
        self.waiting.extend(pieces)
        if not is_under_way:
            self._go_on(transport)

    def finish(self, within: float = math.inf) -> None:
        """Take all that is left, now: nothing comes after it. What is left after so many seconds is dropped."""
        until = time.perf_counter() + within
        while self.waiting and time.perf_counter() < until:
            self._take(self.waiting.popleft())
        self.drop()

    def drop(self) -> None:
        self.waiting.clear()

    def _go_on(self, transport: Readable | None) -> None:
        until = time.perf_counter() + MOMENT
        while self.waiting:
            self._take(self.waiting.popleft())
            if self.waiting and time.perf_counter() > until:
                self._wait(transport)
                return
        if self._transport:
            paused, self._transport = self._transport, None
            if not paused.is_closing():
                paused.resume_reading()

    def _wait(self, transport: Readable | None) -> None:
        if transport and not self._transport and not transport.is_closing():
            self._transport = transport
            transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._go_on, transport)


class Intake:
    """The same for a connection that others pause too: they get `transport` for it. `take` gets at most `piece` bytes;
    it may hold the intake, and may raise nothing."""

    def __init__(self, transport: Any, take: Callable[[bytes], object], piece: int) -> None:
        self.transport: Any = _Held(transport, self)
        self.real = transport
        self._take = take
        self._piece = piece
        self._waiting: deque[bytes] = deque()
        self._holders: set[object] = set()
        self._is_taking = False
        self._is_due = False  # in the next round
        self._is_paused = False

    @property
    def is_busy(self) -> bool:
        """Whether what comes has to wait."""
        return self._is_paused

    def put(self, data: bytes) -> None:
        if len(data) <= self._piece and not self._is_paused:
            self._take(data)
        else:
            self._waiting.extend(data[start : start + self._piece] for start in range(0, len(data), self._piece))
            self._go_on()

    def hold(self, holder: object) -> None:
        self._holders.add(holder)
        self._pause()

    def let_go(self, holder: object) -> None:
        if holder in self._holders:
            self._holders.discard(holder)
            self._go_on()

    def finish(self, within: float) -> None:
        """Take what is left, whoever holds it: nothing comes after it. What is left after so many seconds is
        dropped."""
        until = time.perf_counter() + within
        while self._waiting and time.perf_counter() < until:
            self._take(self._waiting.popleft())
        self.drop()

    def drop(self) -> None:
        self._waiting.clear()
        self._holders.clear()
        self._pause()

    def _go_on(self) -> None:
        if self._is_taking or self._is_due:
            return
        self._is_taking = True
        until = time.perf_counter() + MOMENT
        while self._waiting and not self._holders and not self.real.is_closing():
            self._take(self._waiting.popleft())
            if time.perf_counter() > until:
                break
        self._is_taking = False
        if self.real.is_closing():
            self._waiting.clear()
        if self._waiting and not self._holders:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._again)
        self._pause()

    def _again(self) -> None:
        self._is_due = False
        self._go_on()

    def _pause(self) -> None:
        is_to_pause = bool(self._waiting or self._holders)
        if is_to_pause != self._is_paused:
            self._is_paused = is_to_pause
            if not self.real.is_closing():
                (self.real.pause_reading if is_to_pause else self.real.resume_reading)()


class _Held:
    """A transport whose reading is an intake's. What each request needs is no look further."""

    def __init__(self, transport: Any, intake: Intake) -> None:
        self._transport = transport
        self._intake = intake
        self.write = transport.write
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self._intake.hold(self)

    def resume_reading(self) -> None:
        self._intake.let_go(self)
