"""One HTTP response that may be a JSON body or a stream of events, decided as late as can be.

Nothing is committed until the first message before the end, or 15 seconds: so errors keep their HTTP status, and quick
answers stay plain JSON. Afterwards it is a stream with a comment now and then (spec: basic/transports).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from toolgate.ports import Clock
from toolgate.wire import sse
from toolgate.wire.jsonrpc import one_line

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
HeaderList = Sequence[tuple[bytes, bytes]]

QUIET = 15.0  # seconds until a stream shows that it lives
QUICK = 0.05  # seconds in which a client that goes away is not looked for
LONGEST_QUEUE = 10_000

_SSE: HeaderList = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Outbox:
    """Messages on their way to one client; the end is put in as None. A client that reads too slowly loses notes."""

    def __init__(self, can_stream: bool, can_ask: bool) -> None:
        self.can_stream = can_stream
        self.can_ask = can_ask
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def send(self, message: bytes) -> None:
        if self.can_stream and self._queue.qsize() < LONGEST_QUEUE:
            self._queue.put_nowait(message)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def get(self, clock: Clock, patience: float) -> bytes | None:
        """The next message, None at the end. Raises `TimeoutError` after `patience` seconds."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        async with clock.timeout(patience):
            return await self._queue.get()


class Response:
    """One ASGI response."""

    def __init__(self, send: Send, headers: HeaderList = ()) -> None:
        self.headers = list(headers)
        self.is_streaming = False
        self._send = send

    async def whole(self, status: int, body: bytes = b"", headers: HeaderList = ()) -> None:
        length = (b"content-length", b"%d" % len(body))
        typed = [(b"content-type", b"application/json")] if body else []
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*typed, length, *self.headers, *headers]}
        )
        await self._send({"type": "http.response.body", "body": body})

    async def event(self, message: bytes) -> None:
        await self._open()
        await self._part(sse.event(one_line(message)))

    async def comment(self) -> None:
        await self._open()
        await self._part(sse.COMMENT)

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def _open(self) -> None:
        if not self.is_streaming:
            self.is_streaming = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [*_SSE, *self.headers]})

    async def _part(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})


async def relay(response: Response, outbox: Outbox, clock: Clock, on_quiet: Callable[[], None] | None = None) -> None:
    """Stream what the outbox gets until its end. `on_quiet` is called once, where nothing came for a moment."""
    patience = QUICK if on_quiet else QUIET
    while True:
        try:
            message = await outbox.get(clock, patience)
        except TimeoutError:
            if on_quiet and patience == QUICK:
                on_quiet()
            elif outbox.can_stream:
                await response.comment()
            patience = QUIET
            continue
        if message is None:
            return
        await response.event(message)


async def gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
