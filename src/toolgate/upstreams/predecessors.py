"""What was configured by a server's id before it, and may still be at work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Predecessors:
    """Those of one upstream. A program that starts waits until they have ended: it would compete with theirs for a port
    or a file. Each has a bound of its own, which is how long it is drained."""

    def __init__(self) -> None:
        self._ends: list[asyncio.Event] = []

    def add(self, ends: Iterable[asyncio.Event]) -> None:
        """Each is set when all of one is gone."""
        self._ends.extend(ends)

    async def gone(self) -> None:
        while self._ends:
            await self._ends[-1].wait()
            self._ends = [ended for ended in self._ends if not ended.is_set()]
