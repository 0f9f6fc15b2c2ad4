"""Whether a server has taken the messages that have no answer, where each is an HTTP request that may be overtaken."""

from __future__ import annotations

import asyncio

from toolgate.core.clock import Clock, Timer

PATIENCE = 5.0  # seconds in which a server says that it has taken a message
ROOM_PATIENCE = 1.0  # seconds in which there is room for another one: a message may take longer than that
MOST = 16  # receipts that are waited for at once: each message has a connection of its own


class Receipts:
    """`expect` a receipt for a message before it is sent, `note` that it came, or that none will come."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[object, float] = {}  # since when, the oldest first
        self._waiting: dict[object, asyncio.Future[None]] = {}  # messages that there is no room for
        self._timer: Timer | None = None
        self._all_came = asyncio.Event()

    async def expect(self, message: object) -> None:
        """Wait until few others are expected. Where somebody waits, one that is late by `ROOM_PATIENCE` is expected no
        more: the server gives no receipts."""
        if len(self._expected) < MOST:
            self._expected[message] = self._clock.now()
            return
        room = self._waiting[message] = asyncio.get_running_loop().create_future()
        self._let_in()
        try:
            await room
        except BaseException:
            self._waiting.pop(message, None)
            self.note(message)
            raise

    def note(self, message: object) -> None:
        self._expected.pop(message, None)
        self._let_in()

    def close(self) -> None:
        """None will come any more."""
        self._expected.clear()
        self._let_in()

    async def all(self) -> None:
        """Return when nothing is expected, at the latest after `PATIENCE` seconds."""
        try:
            async with self._clock.timeout(PATIENCE):
                while self._expected:
                    self._all_came.clear()
                    await self._all_came.wait()
        except TimeoutError:
            return

    def _let_in(self) -> None:
        now = self._clock.now()
        while self._waiting and len(self._expected) < MOST:
            message = next(iter(self._waiting))
            room = self._waiting.pop(message)
            if not room.done():
                self._expected[message] = now
                room.set_result(None)
        if self._waiting and not self._timer:
            oldest = next(iter(self._expected.values()))
            self._timer = self._clock.call_later(max(0.0, oldest + ROOM_PATIENCE - now), self._forget_the_late)
        if not self._expected:
            self._all_came.set()

    def _forget_the_late(self) -> None:
        self._timer = None
        if self._waiting:
            late = self._clock.now() - ROOM_PATIENCE
            self._expected = {message: since for message, since in self._expected.items() if since > late}
            self._let_in()
