"""The pace of work that takes long in a thread: others have their turn while it goes on, and it ends soon after nobody
waits for it any more.

Python runs one thread at a time, and a thread that computes gives way after five milliseconds at the earliest, for each
step of another anew. So who computes for seconds steps back by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

STRETCH = 0.002  # seconds in which nobody else need have a turn
REST = 0.001  # seconds of a turn of others
OFTEN = 64  # steps of some microseconds from one look at the time to the next

Value = TypeVar("Value")


class Stopped(Exception):
    """Nobody waits for the work any more."""


class Pace:
    """`stop` may be called from another thread. `steps` grow as long as the work goes on."""

    def __init__(self) -> None:
        self.steps = 0
        self._is_stopped = False
        self._since = time.monotonic()

    def stop(self) -> None:
        self._is_stopped = True

    def step(self) -> None:
        """Between two steps of at most a millisecond or so. Raises `Stopped`."""
        self.steps += 1
        if self._is_stopped:
            raise Stopped
        if time.monotonic() - self._since > STRETCH:
            time.sleep(REST)
            self._since = time.monotonic()

    def through(self, values: Iterable[Value]) -> Iterator[Value]:
        """The same values, where what is done with each takes some microseconds."""
        for number, value in enumerate(values):
            if number % OFTEN == 0:
                self.step()
            yield value


async def paced(begin: Callable[[Pace], Awaitable[Value]]) -> Value:
    """What comes of work in a thread. A caller that is cancelled meanwhile waits for its next step: what it uses may be
    closed then."""
    pace = Pace()
    running = asyncio.ensure_future(begin(pace))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        pace.stop()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # somebody has looked
        raise
