"""Work that nobody waits for, and that has an owner all the same: it ends with the object that started it; and work
that goes on to its end when who waits for it is gone.

The rule this file keeps: what fails is said once, in the log or to who waits, and fails nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from toolgate.core import internal_errors
from toolgate.core.clock import Clock

log = logging.getLogger(__name__)

Found = TypeVar("Found")


AT_ONCE = 64  # tasks that are cancelled in one round of the event loop


async def end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel them, and return when all have ended. Each takes some time of the event loop to end, and there may be
    thousands: others have their turns in between. The latest end first: they may wait for what the others leave."""
    ending = [*tasks]
    left = [*ending]
    try:
        while left:
            for task in reversed(left[-AT_ONCE:]):
                task.cancel()
            del left[-AT_ONCE:]
            await asyncio.sleep(0)
    finally:
        for task in left:
            task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class BackgroundTasks:
    """Those of one owner."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(self._under_way)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._done)

    async def whole(self, work: Coroutine[Any, Any, Found], name: str) -> Found:
        """What it returns. It is carried out whole, also where who waits for it is cancelled meanwhile."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._done)  # nobody else hears of it
            raise

    def _done(self, task: asyncio.Task[Any]) -> None:
        """The rescue of what nobody waits for."""
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("background task failed: %s", task.get_name(), exc_info=error)

    async def close(self) -> None:
        await end_all(self._under_way)


_writes = BackgroundTasks()


async def whole(work: Coroutine[Any, Any, Found]) -> Found:
    """The same for what belongs to one write of a store, which is made though who asked for it is gone: it ends with
    that write."""
    return await _writes.whole(work, "write")


async def rounds(
    clock: Clock, seconds: float, look: Callable[[], Awaitable[None]], what: str, first: float | None = None
) -> None:
    """Look again and again, so many seconds apart, until cancelled; `first`: and so many before the first time. `what`
    that is, in the log."""
    await clock.sleep(seconds if first is None else first)
    while True:
        try:
            await look()
        except Exception as error:  # the rescue: the next look is taken all the same
            if internal_errors.takes(error):
                log.exception("failed, and is tried again: %s", what)
        await clock.sleep(seconds)
