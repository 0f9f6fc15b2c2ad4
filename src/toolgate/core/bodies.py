"""How much is kept at once of bodies: of requests that are still to end, and of results on their way to clients. Each
may have megabytes, and there are many.

The rule this file keeps: who is beyond the budget is not read, and waits; but the oldest of a principal's bodies always
goes on, and so do all within its share, whatever others keep, so nobody waits for somebody else; nor does what one
server answers a principal wait for what another server leaves unfinished, as long as all together have room; and nobody
waits for ever: the reader of a body ends it when it does not come in time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice

SOON = 5.0  # seconds for which one waits for others of its principal to be out of the way
FREE = 64 * 1024  # bytes of each body, which count for nothing where there are few
FREE_OF_MANY = 4 * 1024  # of those of clients, each of which may have thousands
MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one principal's bodies
MOST = 256 * 1024 * 1024  # of all
_LOOKED_AT = 64  # of those that wait: the others have their turn when these have had theirs, or have waited


class Bodies:
    """Those of a frontend, with messages over its WebSockets; or the results of all servers. Beyond `little` bytes of
    one server for one principal the others of these wait for a moment, since few at once come as fast as many (None:
    nobody does).
    `free` bytes of each count for nothing."""

    def __init__(self, little: int | None = None, free: int = FREE) -> None:
        self.free = free
        self._little = little
        self._by: dict[str, dict[Body, None]] = {}  # by principal, the oldest first
        self._kept_by: dict[str, int] = {}  # bytes
        self._from: dict[tuple[str, str], dict[Body, None]] = {}  # by principal and server, the oldest first
        self._kept_from: dict[tuple[str, str], int] = {}  # bytes
        self._kept = 0
        self._waiting: dict[str, dict[Body, asyncio.Future[None]]] = {}  # by principal, who waits longest first

    def begun(self, key: str, server: str = "") -> Body:
        """One of this principal (`Principal.counted_as`), which comes from this server, if it does."""
        return Body(self, key, server)

    def keep(self, body: Body, size: int) -> None:
        self._by.setdefault(body.key, {})[body] = None
        self._kept_by[body.key] = self._kept_by.get(body.key, 0) + size
        self._from.setdefault(body.source, {})[body] = None
        self._kept_from[body.source] = self._kept_from.get(body.source, 0) + size
        self._kept += size
        if size < 0:
            self._wake(body.key)

    async def room(self, body: Body) -> None:
        """Until it may be read on."""
        loop = asyncio.get_running_loop()
        while not self.has_room(body):
            theirs = self._waiting.setdefault(body.key, {})
            turn = theirs[body] = loop.create_future()
            moment = loop.call_later(SOON, self._waited, body, turn)
            try:
                await turn
            finally:
                moment.cancel()
                if theirs.get(body) is turn:
                    del theirs[body]
                if not theirs:
                    self._waiting.pop(body.key, None)
                else:
                    self._wake_one(body.key)  # one after the other: there may be thousands, and room for few

    def _waited(self, body: Body, turn: asyncio.Future[None]) -> None:
        body.has_waited = True
        if self.has_room(body):
            _wake(turn)

    def drop(self, body: Body, size: int) -> None:
        """It is where it was to go, or given up. A reader that waits is let go."""
        theirs = self._by.get(body.key, {})
        if body not in theirs:
            return
        del theirs[body]
        self._kept -= size
        self._kept_by[body.key] -= size
        if not theirs:
            del self._by[body.key], self._kept_by[body.key]
        del (of_server := self._from[body.source])[body]
        self._kept_from[body.source] -= size
        if not of_server:
            del self._from[body.source], self._kept_from[body.source]
        waiting = self._waiting.get(body.key, {})
        if turn := waiting.get(body):
            _wake(turn)
        if of_server and (turn := waiting.get(next(iter(of_server)))) and self.has_room(next(iter(of_server))):
            _wake(turn)
        self._wake(body.key)

    def _wake(self, key: str) -> None:
        """Something of this principal is kept no more."""
        self._wake_one(key)
        if self._kept + MOST_OF_ONE >= MOST:  # what others may keep has been less because of it
            for other in [other for other in self._waiting if other != key]:
                self._wake_one(other)

    def _wake_one(self, key: str) -> None:
        """Of a principal's that wait: its oldest body, and of those that wait longest the first that may go on."""
        waiting = self._waiting.get(key)
        if not waiting:
            return
        oldest = next(iter(self._by.get(key, waiting)))
        longest = next((body for body in islice(waiting, _LOOKED_AT) if self.has_room(body)), oldest)
        for body in {oldest, longest}:
            if (turn := waiting.get(body)) and self.has_room(body):
                _wake(turn)

    def has_room(self, body: Body, can_wait: bool = True) -> bool:
        """Whether it may be read on now. What is given up is none of its business."""
        theirs = self._by.get(body.key, {})
        if body not in theirs:
            return True
        if next(iter(theirs)) is body or (self._kept < MOST and next(iter(self._from[body.source])) is body):
            return True
        waits_first = self._little is not None and can_wait and not body.has_waited
        if waits_first and self._kept_from[body.source] >= (self._little or 0):
            return False
        most = MOST_OF_ONE if self._kept < MOST else min(MOST_OF_ONE, MOST // len(self._by))
        return self._kept_by[body.key] < most


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Body:
    """One that is being read."""

    has_waited = False

    def __init__(self, bodies: Bodies, key: str, server: str) -> None:
        self.key = key
        self.source = key, server
        self._bodies = bodies
        self._counted = 0  # bytes

    def has(self, size: int, can_wait: bool = True) -> bool:
        """So much of it is kept, and there is more. Whether that may be read now; if not, `room` says when. What cannot
        wait is refused only where it would be too much."""
        if size <= self._bodies.free and not self._counted:
            return True
        self._bodies.keep(self, size - self._counted)
        self._counted = size
        return self._bodies.has_room(self, can_wait)

    async def room(self) -> None:
        await self._bodies.room(self)

    def ended(self) -> None:
        """Nothing of it is kept as a body any more."""
        self._bodies.drop(self, self._counted)
        self._counted = 0


class Kept:
    """A body that counts for as long as anybody holds this, wherever it is on its way."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self._loop = asyncio.get_running_loop()

    def __del__(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.body.ended)  # the last who held it may have been a thread
