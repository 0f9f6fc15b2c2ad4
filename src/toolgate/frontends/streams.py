"""One HTTP response that may be a JSON body or a stream of events, decided as late as can be.

Nothing is committed until the first message before the end, or 15 seconds: so errors keep their HTTP status, and quick
answers stay plain JSON. Afterwards it is a stream with a comment now and then (spec: basic/transports).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from toolgate.core import sse
from toolgate.core.clock import Clock, waited, wake
from toolgate.core.jsonrpc import OneLine, one_line
from toolgate.core.large import Joined
from toolgate.frontends.unread import FREE, NOTES_KEPT, Backlog
from toolgate.frontends.unsent import PIECE, Unsent

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
HeaderList = Sequence[tuple[bytes, bytes]]

QUIET = 15.0  # seconds until a stream shows that it lives
QUICK = 0.02  # seconds in which a client that goes away is not looked for; well below the window in `modern`

WHOLE = "toolgate.response"  # an ASGI message of ours to a server of ours: status, headers and all of the body
_HTTP = "http.response"
_SSE: HeaderList = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Outbox:
    """Messages on their way to one client; the end is put in as None. They wait in `backlog`, where there is one."""

    def __init__(self, can_stream: bool, can_ask: bool, backlog: Backlog | None = None) -> None:
        self.can_stream = can_stream
        self.can_ask = can_ask
        self._backlog = backlog
        self.waiting = 0  # bytes
        self._messages: deque[bytes | None] = deque()
        self._reader: asyncio.Future[None] | None = None

    def send(self, message: bytes) -> None:
        if self.can_stream:
            self.waiting += len(message)
            self._put(message)
            if self._backlog:
                self._backlog.waits(len(message))

    def note(self, message: bytes) -> None:
        """Send what may be lost: a client that reads too slowly goes without."""
        if self.waiting < NOTES_KEPT:
            self.send(message)

    def end(self) -> None:
        self._put(None)

    def drop(self) -> None:
        """Nobody takes the rest."""
        if self._backlog and self.waiting:
            self._backlog.waits(-self.waiting)
        self._messages.clear()
        self.waiting = 0

    async def get(self, clock: Clock, patience: float) -> bytes | None:
        """The next message, None at the end. Raises `TimeoutError` after `patience` seconds. For one reader."""
        if not self._messages:
            self._reader = asyncio.get_running_loop().create_future()
            await waited(self._reader, clock, patience)
        message = self._messages.popleft()
        if message:
            self.waiting -= len(message)
            if self._backlog:
                self._backlog.waits(-len(message))
        return message

    def _put(self, message: bytes | None) -> None:
        self._messages.append(message)
        wake(self._reader)


class Response:
    """One ASGI response. `kind` is what its messages are called: another for what refuses a WebSocket. `backlog` is
    that of its connection, where a server of ours serves it. `silence` has a stream say nothing more but its end."""

    is_streaming = False
    _is_silent = False
    has_begun = False
    _start, _body = f"{_HTTP}.start", f"{_HTTP}.body"

    def __init__(self, send: Send, headers: HeaderList = (), kind: str = _HTTP, backlog: Backlog | None = None) -> None:
        self.headers = list(headers)
        self.backlog = backlog
        self._send = send
        if kind != _HTTP:
            self._start, self._body = f"{kind}.start", f"{kind}.body"

    async def whole(
        self, status: int, body: bytes | Joined = b"", headers: HeaderList = (), kind: bytes = b"application/json"
    ) -> None:
        length = (b"content-length", b"%d" % len(body))
        typed = [(b"content-type", kind)] if body else []
        self.has_begun = True
        start = {"type": self._start, "status": status, "headers": [*typed, length, *self.headers, *headers]}
        if not self.backlog or len(body) <= PIECE:
            body = bytes(body)
        if self.backlog and len(body) <= FREE:
            await self._send({**start, "type": WHOLE, "body": body})
            return
        if isinstance(body, bytes) and (not self.backlog or len(body) <= PIECE):
            with self._waiting(body) if self.backlog else _NOTHING:
                await self._send(start)
                await self._send({"type": self._body, "body": body})
            return
        assert self.backlog
        unsent = Unsent(body)
        del body
        await self._in_pieces(start, unsent, self.backlog)

    async def _in_pieces(
        self, start: MutableMapping[str, Any], unsent: Unsent, backlog: Backlog, lines: OneLine | None = None
    ) -> None:
        """It counts until it is out, also where it is in a file. `lines`: as the data of an event, behind which more
        may come."""
        size = unsent.left
        backlog.waits(size)
        try:
            await self._send(start)
            while unsent.left:
                piece = await unsent.next()
                sent = lines.piece(piece) if lines else piece
                with unsent.waits():
                    more = lines is not None or unsent.left > 0
                    await self._send({"type": self._body, "body": sent, "more_body": more})
                backlog.wrote(len(piece))
                backlog.waits(-len(piece))
                size -= len(piece)
        finally:
            backlog.waits(-size)
            await unsent.close()

    async def finish(self, status: int, body: bytes | Joined, headers: HeaderList = ()) -> None:
        """The last message: as it began, as a stream, or as a plain body. Who calls need not hold it."""
        if self.is_streaming:
            event = self.event(body)
            del body
            await event
            await self.end()
        else:
            whole = self.whole(status, body, headers)
            del body
            await whole

    async def begin(self, chunk: bytes) -> None:
        """Begin a stream at once, with an event or a comment."""
        await self._open()
        if chunk:
            await self._part(chunk)

    def silence(self) -> None:
        self._is_silent = True

    async def event(self, message: bytes | Joined, id: str | None = None) -> None:
        if self._is_silent:
            return
        await self._open()
        if isinstance(message, bytes) or not self.backlog:
            await self._part(sse.event(one_line(bytes(message)), id))
            return
        unsent, lines = Unsent(message), OneLine()
        del message
        await self._in_pieces(self._piece(sse.head(id) + b" "), unsent, self.backlog, lines)
        await self._part(lines.rest + b"\n\n")

    async def comment(self) -> None:
        await self.begin(sse.COMMENT)

    async def end(self) -> None:
        await self._send({"type": self._body, "body": b""})

    async def _open(self) -> None:
        if not self.is_streaming:
            self.is_streaming = self.has_begun = True
            await self._send({"type": self._start, "status": 200, "headers": [*_SSE, *self.headers]})

    async def _part(self, chunk: bytes) -> None:
        with self._waiting(chunk) if len(chunk) > FREE else _NOTHING:
            await self._send(self._piece(chunk))

    def _piece(self, chunk: bytes) -> MutableMapping[str, Any]:
        return {"type": self._body, "body": chunk, "more_body": True}

    def _waiting(self, data: bytes) -> AbstractContextManager[None]:
        return self.backlog.writing(len(data)) if self.backlog else _NOTHING


_NOTHING = nullcontext()


async def relay(response: Response, outbox: Outbox, clock: Clock) -> None:
    """Stream what the outbox gets until its end."""
    while True:
        try:
            message = await outbox.get(clock, QUIET)
        except TimeoutError:
            if outbox.can_stream:
                await response.comment()
            continue
        if message is None:
            return
        await response.event(message)
        del message  # it may be large, and the next one may be long in coming


class Delivery:
    """What a modern client gets before the answer to its request, and whether it is still there for that.

    `work` is the task that works for the client (else the current one), and is cancelled when that goes away. Where the
    answer comes within `QUICK` and nothing is said before it, this is a timer and no more; else another task streams
    what is said."""

    has_left = False
    is_quiet = False  # it is over, and nothing was said but the answer
    _is_cancelled = False
    _is_over = False
    _outbox: Outbox | None = None  # once it streams
    _streaming: asyncio.Task[None] | None = None

    def __init__(
        self,
        response: Response,
        receive: Receive,
        clock: Clock,
        can_stream: bool,
        work: asyncio.Task[Any] | None = None,
    ) -> None:
        self._response = response
        self._receive = receive
        self._clock = clock
        self._can_stream = can_stream
        self.work = work or asyncio.current_task()
        self._timer = clock.call_later(QUICK, self._start_stream)

    def note(self, message: bytes) -> None:
        """Send what may be lost: a client that reads too slowly goes without."""
        self._start_stream().note(message)

    def cancel(self) -> None:
        """Have the work end, unless its answer is on its way."""
        if self.work and not self._is_cancelled and not self._is_over:
            self._is_cancelled = True
            self.work.cancel()

    def goes_on(self, is_given_up: bool) -> bool:
        """Whether the task of work that was cancelled goes on, to say so: where that was done here, or the gateway has
        given up all work."""
        if self.work and (self._is_cancelled or is_given_up):
            self.work.uncancel()
            return True
        return False

    async def finish(self) -> None:
        """Return when all that was said is out; what follows is the answer."""
        self._is_over = True
        self._timer.cancel()
        self.is_quiet = not self._streaming
        if self._streaming and self._outbox:
            self._outbox.end()
            await self._streaming

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
        if self._streaming and self._outbox:
            self._streaming.cancel()
            self._outbox.drop()

    def _start_stream(self) -> Outbox:
        if not self._outbox:
            self._timer.cancel()
            self._outbox = Outbox(self._can_stream, can_ask=False, backlog=self._response.backlog)
            self._streaming = asyncio.get_running_loop().create_task(self._stream(self._outbox))
        return self._outbox

    async def _stream(self, outbox: Outbox) -> None:
        leaving = asyncio.get_running_loop().create_task(gone(self._receive))
        leaving.add_done_callback(self._left)
        try:
            await relay(self._response, outbox, self._clock)
        finally:
            leaving.cancel()
            self.cancel()  # where the work is not done yet nobody would hear of it

    def _left(self, gone: asyncio.Task[None]) -> None:
        if not gone.cancelled():
            self.has_left = True
            self.cancel()


async def until_any(*work: Coroutine[Any, Any, None]) -> None:
    """Until one of them ends; then the others are ended. Raises what it raised."""
    tasks = [asyncio.get_running_loop().create_task(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _ended(tasks)
    errors = _errors_of(done)
    tasks.clear()  # an error holds this frame, which must not hold the error: messages hang on it
    done.clear()
    if errors:
        raise errors.pop()


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _errors_of(done: Iterable[asyncio.Task[None]]) -> list[BaseException]:
    return [error for task in done if (error := task.exception())]


async def gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
