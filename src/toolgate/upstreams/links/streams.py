"""Streams of events over HTTP that outlive their connections: asked for by GET, and again with the last id seen.

The rules this file keeps: nothing is ever sent again, only asked for; the server's own `retry` is waited for; a server
that has no such stream is not asked twice. Spec: 2025-11-25 basic/transports, "Listening for Messages from the Server"
and "Resumability and Redelivery".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from toolgate.core import sse
from toolgate.core.bodies import FREE
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.large import Whole
from toolgate.upstreams.links.base import Headers
from toolgate.upstreams.links.http1 import ResponseReader, Wire

log = logging.getLogger(__name__)

LONGEST_ID = 4096
RETRY = 1.0  # seconds before a stream that ended is asked for again, where its server does not say
LEAST_RETRY, LONGEST_RETRY = 0.05, 3600.0  # whatever it says
LONGEST_PAUSE = 30.0  # seconds between attempts that bring nothing
_PASSING = frozenset({409, 429, 500, 502, 503, 504})  # a server that restarts, or has not seen yet that we were cut off

Open: TypeAlias = Callable[[Headers, ResponseReader], Awaitable[Wire]]


def is_stream(status: int, headers: dict[bytes, bytes]) -> bool:
    """Whether a response is a stream of events. Names of headers are in lower case."""
    return status < 300 and headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")


class Cursor:
    """How far a stream was read, and how long its server wants to be left alone before it is asked to go on."""

    def __init__(self) -> None:
        self.last: bytes | None = None
        self.retry = RETRY

    def note(self, event: sse.Event) -> None:
        if event.id is not None:
            self.last = event.id.encode() or None
        if event.retry is not None:
            self.retry = min(max(LEAST_RETRY, event.retry / 1000), LONGEST_RETRY)

    def pause(self, failures: int) -> float:
        """Seconds to wait before it is asked for again, after so many attempts in a row that brought nothing."""
        return max(self.retry, min(self.retry * 2 ** min(failures, 10), LONGEST_PAUSE))

    def headers(self) -> Headers:
        return ((b"Last-Event-ID", self.last),) if self.last else ()


class Following:
    """One stream, followed until `close`; or until it is not wanted any more, or its server does not go on with it:
    then `over` is called, once, with the HTTP status of the refusal or 0. `cursor`: where a connection left off.
    An event may have `longest` bytes; `keeps` is told how much there is of one that is large."""

    def __init__(
        self,
        clock: Clock,
        open: Open,
        hear: Callable[[Whole], asyncio.Future[None] | None],
        is_wanted: Callable[[], bool],
        over: Callable[[int], None],
        cursor: Cursor,
        longest: int,
        keeps: Callable[[int], object],
    ) -> None:
        self.was_accepted = cursor.last is not None
        self._clock = clock
        self._open = open
        self._hear = hear
        self._is_wanted = is_wanted
        self._over = over
        self._cursor = cursor
        self._longest = longest
        self._keeps = keeps
        self._reply: _Events | None = None  # of the newest connection
        self.wire: Wire | None = None  # while it is ours
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="follow an event stream")

    def close(self) -> None:
        self._task.cancel()
        if self._reply:
            self._reply.forget()  # whoever still holds it: a task that is cancelled holds its frames
        if self.wire:
            self.wire.abort()
            self.wire = None

    async def closed(self) -> None:
        self.close()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        failures = 0
        if self.was_accepted:
            await self._clock.sleep(self._cursor.pause(failures))
        while self._is_wanted():
            began = self._clock.now()
            reply = await self._ask()
            if reply.is_refusal and not (self.was_accepted and reply.status in _PASSING):
                return self._end(reply.status)
            self.was_accepted |= reply.is_stream
            is_alive = reply.was_heard or (reply.is_stream and self._clock.now() - began >= LONGEST_PAUSE)
            failures = 0 if is_alive else failures + 1
            if self._is_wanted():
                await self._clock.sleep(self._cursor.pause(failures))
        self._end(0)

    def _end(self, status: int) -> None:
        self.close()
        self._over(status)

    async def _ask(self) -> _Events:
        """One connection, to its end."""
        events = sse.Reader(self._longest)
        reply = self._reply = _Events(self._cursor, self._heard, self._let_go, events, self._keeps)
        try:
            self.wire = await self._open(self._cursor.headers(), reply)
            await reply.over.wait()
        except (OSError, TimeoutError, Fault) as error:
            log.debug("cannot open an event stream: %s", error)
        return reply

    def _heard(self, data: Whole) -> None:
        until = self._hear(data)
        if until and self.wire:
            self.wire.intake.hold_until(until)
        if not self._is_wanted():
            self._end(0)

    def _let_go(self) -> None:
        self.wire = None


class _Events:
    """What comes over one connection."""

    def __init__(
        self,
        cursor: Cursor,
        hear: Callable[[Whole], None],
        let_go: Callable[[], None],
        events: sse.Reader,
        keeps: Callable[[int], object],
    ) -> None:
        self.status = 0
        self.is_stream = False
        self.was_heard = False
        self.over = asyncio.Event()
        self._is_too_long = False
        self._cursor = cursor
        self._hear = hear
        self._let_go = let_go
        self._keeps = keeps
        self._events = events

    @property
    def is_refusal(self) -> bool:
        return self._is_too_long or (self.status > 0 and not self.is_stream)

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status
        self.is_stream = is_stream(status, headers)

    def body(self, chunk: bytes) -> None:
        if not self.is_stream:
            self.complete()
            raise sse.TooLong("nobody reads more of a refusal than its head")
        try:
            for event in self._events.feed(chunk):
                self.was_heard = True
                self._cursor.note(event)
                if event.data and event.event == "message":
                    self._hear(event.data)
        except sse.TooLong:
            self._is_too_long = True
            self.complete()
            raise
        if self._events.kept > FREE:
            self._keeps(self._events.kept)

    def forget(self) -> None:
        """Keep nothing of an event that will not be whole."""
        self._events.end()

    def complete(self) -> None:
        self.forget()
        self._let_go()
        self.over.set()

    def lost(self, reason: str) -> None:
        self.complete()
