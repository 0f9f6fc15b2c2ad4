"""Whether a server has taken the messages that have no answer, where each is an HTTP request that may be overtaken."""

from __future__ import annotations

import asyncio

from toolgate.core.clock import Clock

PATIENCE = 5.0  # seconds in which a server says that it has taken a message
ROOM_PATIENCE = 1.0  # seconds in which there is room for another one: a message may take longer than that
MOST = 16  # receipts that are waited for at once: each message has a connection of its own


class Receipts:
    """`expect` a receipt for each message that was sent, `note` that it came, or that none will come."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: set[object] = set()
        self._one_came = asyncio.Event()
        self._all_came = asyncio.Event()

    def expect(self, message: object) -> None:
        self._expected.add(message)

    def note(self, message: object) -> None:
        self._expected.discard(message)
        self._one_came.set()
        if not self._expected:
            self._all_came.set()

    def close(self) -> None:
        """None will come any more."""
        self._expected.clear()
        self._one_came.set()
        self._all_came.set()

    async def room(self) -> None:
        """Return when few are expected. After `ROOM_PATIENCE` none is: the server gives no receipts."""
        try:
            async with self._clock.timeout(ROOM_PATIENCE):
                while len(self._expected) >= MOST:
                    self._one_came.clear()
                    await self._one_came.wait()
        except TimeoutError:
            self.close()

    async def all(self) -> None:
        """Return when nothing is expected, at the latest after `PATIENCE` seconds."""
        try:
            async with self._clock.timeout(PATIENCE):
                while self._expected:
                    self._all_came.clear()
                    await self._all_came.wait()
        except TimeoutError:
            return
