"""Work that nobody waits for, and that has an owner all the same: it ends with the object that started it.

The rule this file keeps: what fails is said once, in the log, and fails nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

log = logging.getLogger(__name__)


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
