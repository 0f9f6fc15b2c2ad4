"""Work that nobody waits for, and that has an owner all the same: it ends with the object that started it; and work
that goes on to its end when who waits for it is gone.

The rule this file keeps: what fails is said once, in the log or to who waits, and fails nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

log = logging.getLogger(__name__)

Found = TypeVar("Found")
_whole: set[asyncio.Task[Any]] = set()  # else the event loop alone would hold them, and not for long


class BackgroundTasks:
    """Those of one owner."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._under_way)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """The rescue of what nobody waits for."""
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("background task failed: %s", task.get_name(), exc_info=error)

    async def close(self) -> None:
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def whole(work: Coroutine[Any, Any, Found]) -> Found:
    """What it returns. A store writes what it was asked for whoever is gone meanwhile: so does all that belongs to that
    write."""
    task = asyncio.get_running_loop().create_task(work)
    _whole.add(task)
    task.add_done_callback(_whole.discard)
    return await asyncio.shield(task)
