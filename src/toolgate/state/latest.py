"""Values that others can have written anew as often as they like, and large ones: only the latest of each is.

The rules this file keeps: nothing is packed before its turn; what is on its way to the store at once is little, so that
no other write waits behind much; and the time until the next turn grows with what was written in the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock, Timer
from toolgate.state.base import Store

PACE = 8 * 1024 * 1024  # bytes a second
TOGETHER = 4 * 1024 * 1024  # bytes that are written in one turn, and the last value beyond
LITTLE = 64 * 1024  # bytes that are packed without a thread


class _Value(NamedTuple):
    size: int
    pack: Callable[[], bytes] | None
    ttl: float | None


class LatestValues:
    """Those of one owner. Nobody hears whether they were kept."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: dict[tuple[str, str], _Value] = {}  # by space and key: first the one whose turn it is
        self._work = BackgroundTasks()
        self._resting: Timer | None = None

    def put(self, space: str, key: str, size: int, pack: Callable[[], bytes], ttl: float | None = None) -> None:
        """Have written what `pack` returns, which may be called in a thread, and has some `size` in bytes."""
        self._wait((space, key), _Value(size, pack, ttl))

    def delete(self, space: str, key: str) -> None:
        self._wait((space, key), _Value(0, None, None))

    def forget(self) -> None:
        """What waits is not to be written."""
        self._waiting.clear()

    async def close(self) -> None:
        """Have the store write all that waits, which it does before its own end."""
        if self._resting:
            self._resting.cancel()
            self._resting = None
        await self._work.close()
        while self._waiting:
            await self._write_first([])

    def _wait(self, where: tuple[str, str], value: _Value) -> None:
        self._waiting.pop(where, None)
        self._waiting[where] = value
        if not self._resting and not any(self._work):
            self._go_on()

    def _go_on(self) -> None:
        self._resting = None
        if self._waiting:
            self._work.start(self._write(), "write the latest values")

    async def _write(self) -> None:
        size, written = 0, list[Awaitable[None]]()
        while self._waiting and size < TOGETHER:
            size += await self._write_first(written)
        await asyncio.gather(*written, return_exceptions=True)
        self._resting = self._clock.call_later(size / PACE, self._go_on)

    async def _write_first(self, written: list[Awaitable[None]]) -> int:
        """How many bytes it has. Until it is packed it waits: else it would be lost where the gateway ends by then."""
        where, value = next(iter(self._waiting.items()))
        if not value.pack:
            del self._waiting[where]
            written.append(self._store.delete(*where))
            return 0
        packed = value.pack() if value.size <= LITTLE else await asyncio.to_thread(value.pack)
        latest = self._waiting.get(where)
        if latest is value:
            del self._waiting[where]
        if latest:  # else it is to be forgotten
            written.append(self._store.put(*where, packed, value.ttl))
        return len(packed)
