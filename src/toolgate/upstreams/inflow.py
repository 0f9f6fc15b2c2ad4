"""What a server sends, taken a piece at a time, so that one that sends without end keeps nobody else waiting.

The rules this file keeps: after a moment of one server's pieces the event loop goes round, and until they are taken
nothing more of that server is read; their order stays.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

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
