"""The HTTP frontend on a socket: uvicorn with uvloop and httptools, ended by an event of ours instead of its signals.

What only a WebSocket needs is imported with the first of them, so that the start does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from functools import cached_property, lru_cache, partial
from typing import Any, cast

import uvicorn
from httptools import HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from toolgate.core import crowds, encrypted
from toolgate.core.bodies import Bodies
from toolgate.core.clock import SystemClock
from toolgate.core.complaints import Complaints
from toolgate.core.inflow import Intake, IntakeQueue, LittleReads, PacedProtocol, SharedTransport
from toolgate.frontends import frames, tls, unread
from toolgate.frontends.accepting import GivesWay, accepting
from toolgate.frontends.application import Application
from toolgate.frontends.connections import HEAD_FREE, OF_LINE, STATE, Connection, UnfinishedHead
from toolgate.frontends.known_heads import CAME, END, Parted
from toolgate.frontends.peers import Operator, met
from toolgate.frontends.scheduling import Turn
from toolgate.frontends.slots import Slot
from toolgate.frontends.streams import WHOLE, HeaderList
from toolgate.frontends.tls import Certificate

KEEP_ALIVE = 75  # seconds
HEAD_LIMIT = 128 * 1024  # bytes of a request's line and headers, and of what is neither these nor its body
LONGEST_TARGET = 8 * 1024  # bytes of what a request is for
LONGEST_PATH = 2 * 1024  # bytes of it before its query
LONGEST_UPGRADE = 4 * 1024  # bytes of the headers by which another protocol is wished for
_OF_UPGRADES = (b"connection", b"upgrade")
MOST_LINES = 200  # of a head, about
FRAMING = 16  # bytes of chunk lines that each byte of a body may bring
HEAD_PATIENCE = 30.0  # seconds for them to come
BODY_PATIENCE = 120.0  # seconds for a request's body
UNTAKEN = 16 * 1024  # bytes of a body that wait to be taken; no more are read meanwhile
UNREAD_PATIENCE = 2.0  # seconds for the rest of one that was answered already
PIECE = 1024  # bytes that are taken in one go: 57 requests at most, in 3 ms
MOST_PIPELINED = 8  # requests that wait for the one before on their connection; no more are read meanwhile
LAST_WORDS = 3  # seconds for responses under way when the server ends


class _Nothing(list[tuple[bytes, bytes]]):
    """Keeps nothing."""

    def append(self, item: tuple[bytes, bytes], /) -> None: ...


_TRAILERS = _Nothing()


class _Cycle(RequestResponseCycle):
    """One request and its response, each of which may come in one piece: the former is handed over with no wait, the
    latter written at once and not looked at twice."""

    _is_taken = False  # all of the request
    is_awaited = False  # its end, by whom it was started for

    def end(self) -> None:
        """Nothing more comes of its body."""
        self.more_body = False
        self.message_event.set()

    async def receive(self) -> Any:
        is_over = self.disconnected or self.response_complete
        self.is_awaited = self.more_body
        if self.more_body or self._is_taken or is_over or self.waiting_for_100_continue:
            return await super().receive()
        self._is_taken = True
        self.message_event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        body, self.body = self.body, bytearray()
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.transport.is_closing():
            self.disconnected = True  # it is told later; to write to one that has left is a failure of nobody
        if message["type"] != WHOLE:
            await super().send(message)
        elif not self.disconnected:
            self.answer(message["status"], message["headers"], message["body"])

    def is_head(self) -> bool:
        return self.scope["method"] == "HEAD"

    def tell(self) -> None:
        """Whoever waits for the client to go."""
        self.message_event.set()

    def answer(self, status: int, headers: HeaderList, body: bytes) -> None:
        """The whole response."""
        lines = [STATUS_LINE[status]]
        lines += [_line(name, value) for name, value in (*self.default_headers, *headers)]
        if (b"connection", b"close") in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines += b"\r\n", (b"" if self.is_head() else body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        if not self.transport.is_closing():  # else its client has left, which is no failure of ours
            self.transport.write(b"".join(lines))
        self.tell()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


@lru_cache(maxsize=256)  # nearly all are the same in each response
def _line(name: bytes, value: bytes) -> bytes:
    if HEADER_VALUE_RE.search(value):
        raise ValueError(f"the value of the header {name.decode()} contains a control character")
    return b"%b: %b\r\n" % (name, value)


class _KnownCycle(_Cycle, Slot):
    """That of a request which came whole, with a head that is known: nothing of it is parsed."""

    logger = logging.getLogger("uvicorn.error")
    access_log = False
    waiting_for_100_continue = False
    more_body = False
    response_started = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, protocol: HttpProtocol, known: Any, came: Parted, connection: Connection) -> None:
        self.came = came
        self.connection = connection
        self._protocol = protocol
        self.known = known
        self.body = came.body  # type: ignore[assignment]
        # What each one is asked for: of an object it is found sooner than of its class.
        self.disconnected = self.response_complete = False
        self.keep_alive = True
        self.on_left: Callable[[], object] | None = None
        self._event: asyncio.Event | None = None

    async def run_asgi(self, app: Any) -> None:
        await super().run_asgi(app)
        if self.disconnected and self._protocol.cycle is self:
            self._protocol.cycle = None  # type: ignore[assignment]  they would hold each other

    # What others are given, and only some need.

    @property
    def transport(self) -> asyncio.Transport:  # type: ignore[override]
        return self._protocol.transport

    @property
    def flow(self) -> FlowControl:  # type: ignore[override]
        return self._protocol.flow

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:  # type: ignore[override]
        return self._protocol.server_state.default_headers

    @cached_property
    def on_response(self) -> Callable[[], None]:  # type: ignore[override]
        return self._protocol.on_response_complete

    @cached_property
    def scope(self) -> Any:  # type: ignore[override]
        scope = {**self.known.scope, "state": {**self._protocol.app_state, CAME: self.came}}
        if self.came.varying:
            varying = [(name.encode(), value.encode()) for name, value in self.came.varying.items()]
            names = [name for name, _ in varying]
            scope["headers"] = [*(each for each in scope["headers"] if each[0] not in names), *varying]
        return scope

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        self._event = self._event or asyncio.Event()
        return self._event

    def is_head(self) -> bool:
        return False

    def tell(self) -> None:
        if self._event:  # else nobody waits
            self._event.set()

    def can_answer(self) -> bool:
        return not self._protocol.flow.write_paused

    def answer_whole(self, status: int, headers: HeaderList, body: bytes) -> None:
        if not self.keep_alive:
            self.answer(status, (*headers, (b"content-length", b"%d" % len(body))), body)
            return
        protocol, usual = self._protocol, self._protocol.server_state.default_headers
        last_status, last_headers, last_usual, head = protocol.last_head
        if last_headers is not headers or last_status != status or last_usual is not usual:
            lines = [STATUS_LINE[status], *(_line(name, value) for name, value in (*usual, *headers))]
            head = b"".join(lines)
            protocol.last_head = status, headers, usual, head
        self.response_started = self.response_complete = True
        transport = cast(SharedTransport, protocol.transport)
        is_closing = transport.is_closing
        if not is_closing():
            transport.write_soon(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        if self._event:
            self._event.set()
        protocol.on_response_complete()

    def go_on(self, app: Any) -> asyncio.Task[None]:
        return self._protocol.start(self, app)


class _Intake(Intake):
    sees_end = True


class _Pipeline(list[tuple[RequestResponseCycle, ASGI3Application]]):
    """What uvicorn has a deque for, which takes ten times the memory while it is empty, as it nearly always is."""

    def appendleft(self, each: tuple[RequestResponseCycle, ASGI3Application]) -> None:
        self.insert(0, each)


class _Backpressure(FlowControl):
    """The same, but its event is there only once somebody has to wait."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = False

    @cached_property
    def _is_writable_event(self) -> asyncio.Event:  # type: ignore[override]
        event = asyncio.Event()
        if not self.write_paused:
            event.set()
        return event


class HttpProtocol(HttpToolsProtocol):
    """Bounds what uvicorn does not: the size of a request's head, chunk lines and trailers, the time that it and its
    body may take to come, and how many connections there are. Trailers are dropped: what the head says was checked. A
    request is started when it is its principal's turn. Of one that comes whole in one piece no timer is started, and
    none while nothing is read; and where its head is known, too, uvicorn's parser has no part in it. The same holds,
    but for the timer, where its head comes in one piece and its body in the next."""

    # Not in the object's dictionary: each request looks at most of them.
    __slots__ = (
        "_again",
        "_came",
        "_head",
        "_idle_since",
        "_is_between",
        "_is_full",
        "_is_in_head",
        "_is_passed_over",
        "_keeping",
        "_known",
        "_lines",
        "_overhead",
        "_patience",
        "_piece",
        "_running",
        "_stranger",
        "_timer",
        "_turn",
        "_unfinished",
        "_unstarted",
        "last_head",
    )

    def __init__(self, application: Application, **given: Any) -> None:
        super().__init__(**given)
        self.pipeline = _Pipeline()  # type: ignore[assignment]
        self.headers = _TRAILERS  # before there are any
        self._application = application
        self._scheduler = application.scheduler
        self._callers = application.callers
        self._connections = application.connections
        self._known_heads = application.known_heads
        # Of an answer: what it was made of, and it.
        self.last_head: tuple[int, HeaderList, Any, bytes] = 0, (), None, b""
        self._overhead = 0  # bytes of this request that are not its body
        self._lines = 0  # of what comes, since its head began
        self._is_in_head = True
        self._unfinished: UnfinishedHead | None = None
        self._patience = HEAD_PATIENCE  # for what is coming; 0: nothing is
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._keeping: asyncio.TimerHandle | None = None  # until it is looked whether it is idle for too long
        self._stranger = ""  # whose turn a request takes that shows nothing
        self._turn: Turn | None = None
        self._unstarted: tuple[RequestResponseCycle, ASGI3Application] | None = None  # while answers are not read
        self._is_full = False  # of pipelined requests
        self._is_between = True  # requests: what comes next begins one
        self._head = b""  # of the one that begins, where its body comes with the next piece
        self._came: Parted | None = None  # the one that begins, where it came whole
        self._known: _KnownCycle | None = None  # the last one whose head was known
        self._piece = b""  # that is read just now
        self._again = b""  # what of it is to be read once more, in other words
        self._is_passed_over = False  # a head that is to be read once more
        self._running: RequestResponseCycle | None = None  # what is answered, where others wait behind it
        self._intake = _Intake(self._take, None, PIECE, self._connections.turns, self._whose, self._is_one)
        self.data_received = self._intake.put

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._intake.transport = transport
        super().connection_made(SharedTransport(transport, self._intake, self._connections.turns.outflow))  # type: ignore[arg-type]
        self.flow = _Backpressure(self.transport)
        self.client = self.peer(transport) or self.client
        address = self.client[0] if self.client else ""
        self._connection = Connection(self._connections.unread, transport, address)
        self._connection.client, self._connection.server = self.client, self.server
        self._connection.is_encrypted = self.scheme == "https"
        self._stranger = self._connection.key
        self.app_state = {STATE: self._connection}
        self._timer = self.loop.call_later(HEAD_PATIENCE, self.transport.close)
        if not isinstance(self.client, Operator):
            self._connection.counts(self._connections)

    def peer(self, transport: asyncio.Transport) -> tuple[str, int] | None:
        """Who is at the other end, where its address does not say."""
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._intake.drop()
        for cycle in (self.cycle, self._running):
            if cycle and not cycle.response_complete:
                cycle.disconnected = True  # nothing is begun for it any more
        crowds.in_turn(partial(self._is_lost, exc), self._stranger)

    def _is_lost(self, exc: Exception | None) -> None:
        self._head_ended()
        self._stop_timer()
        self._stop_keeping()
        self._connection.closed()
        super().connection_lost(exc)
        if (running := self._running) and not running.response_complete:
            running.disconnected = True  # another one may have begun behind it
            cast(_Cycle, running).tell()
            if (known := self._known) is running and known and known.on_left:
                known.on_left()
        # These lead back here, also from what was never started. A cycle for each connection is what the garbage
        # collector takes long for, or never gets to.
        self.cycle = self._known = self._running = self._turn = self._unstarted = None  # type: ignore[assignment]
        self.pipeline.clear()
        self._intake.forget()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.backlog.full()

    def resume_writing(self) -> None:
        self._connection.backlog.drained()
        super().resume_writing()
        unstarted, self._unstarted = self._unstarted, None
        if unstarted and not self.transport.is_closing():
            self._start_asgi_task(*unstarted)

    def handle_websocket_upgrade(self) -> None:
        """From here on the connection has another protocol, which is told of its end. A client that has requests under
        way has no use for that."""
        is_busy = self.flow.write_paused or (self.cycle and not self.cycle.response_complete)
        if is_busy or self.transport.is_closing():  # it was refused
            self._intake.drop()
            self.transport.close()
            return
        self._stop_timer()
        self._stop_keeping()
        self._patience = 0.0
        self._is_in_head = False
        self._intake.drop()
        cast(SharedTransport, self.transport).flush()
        transport: Any = self._intake.transport
        self.transport = transport
        super().handle_websocket_upgrade()
        if isinstance(opened := transport.get_protocol(), PacedProtocol):
            transport.set_protocol(LittleReads(opened))
        del self.parser  # a reference cycle, as below
        self._intake.forget()

    def _whose(self) -> str:
        return self._connection.backlog.key

    def _is_one(self, data: bytes) -> bool:
        """Whether this is one request and no more. What is not waits to be read, and is kept meanwhile."""
        if self._is_between and self._known_heads.parted(self._connection.address, self._head + data) is not None:
            return True
        if self._is_between or self._is_in_head:
            self._keeps_of_head((0 if self._is_between else self._head_size()) + len(data))
        return False

    def _keeps_of_head(self, size: int) -> None:
        """So much has come of a head that has not ended, as far as it was read."""
        if not self._unfinished:
            self._unfinished = UnfinishedHead(self._connections.heads, self._connection, self.loop.time())
        self._unfinished.has(size)

    def _head_size(self) -> int:
        """What has come of a head, in bytes of memory."""
        return self._overhead + OF_LINE * len(self.headers)

    def _head_ended(self) -> None:
        if self._unfinished:
            self._unfinished.ended()
            self._unfinished = None

    def _take(self, data: bytes) -> None:
        is_closing = self.transport.is_closing
        if is_closing():
            self._intake.drop()
            return
        if self._is_between:
            address = self._connection.address
            if self._head:
                data, self._head = self._head + data, b""
            elif data.endswith(END) and address and self._known_heads.is_alone(data):
                self._head, self._patience = data, HEAD_PATIENCE
                self._timer = self._timer or self.loop.call_later(HEAD_PATIENCE, self.transport.close)
                return
            came = self._known_heads.parted(address, data)
            if came and self._took_known(came):
                return
            self._came = came
            self._is_between = False
        else:
            self._came = None
        self._overhead += len(data)
        self._lines += data.count(b"\n")
        while data:
            self._piece, self._again = data, b""
            super().data_received(data)
            data = self._again
        self._piece = b""
        if self.pipeline and len(self.pipeline) > MOST_PIPELINED:
            self._is_full = True
            self._intake.hold(self)
        if self._is_in_head and (size := self._head_size()) > HEAD_FREE:
            self._keeps_of_head(size)
        has_lines = self._is_in_head and self._lines > MOST_LINES
        if (has_lines or self._overhead > HEAD_LIMIT) and not self.transport.is_closing():
            if self._is_in_head:
                self._refuse(431, "The request's head is too large.")
            else:
                self._intake.drop()
                self.transport.close()
        elif self._patience and not self._timer and not self._intake.is_busy:
            self._timer = self.loop.call_later(self._patience, self.transport.close)

    def _took_known(self, request: Parted) -> bool:
        """Start a request whose head is known, where nothing is under way."""
        known = self._known_heads.by_head.get(request.head)
        if known is None or self.flow.write_paused or (self.cycle and not self.cycle.response_complete):
            return False
        if self._timer:
            self._stop_timer()
        self._patience = 0.0
        cycle = self.cycle = self._known = self._running = _KnownCycle(self, known, request, self._connection)
        key = known.principal.counted_as
        if not self._scheduler.lets_pass(key):
            self._turn = self._scheduler.start(key, lambda: cycle.disconnected or self._begin(cycle))
        elif not self._application.begin(cycle):
            self.not_begun(cycle)
        return True

    def _begin(self, cycle: _KnownCycle) -> None:
        """Its turn has come. What its head means may be something else by now."""
        known = self._known_heads.by_head.get(cycle.came.head)
        cycle.known = known or cycle.known
        if not known or not self._application.begin(cycle):
            self.not_begun(cycle)

    def not_begun(self, cycle: _KnownCycle) -> None:
        """More is to be done for a request than its head says."""
        self.start(cycle, cast(Any, self.app))  # pyright: ignore[reportUnknownMemberType]

    def start(self, cycle: RequestResponseCycle, app: Any) -> asyncio.Task[None]:
        """Answer a request in a task."""
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        return task

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_between = False
        self._overhead = self._lines = 0
        self._is_in_head = True
        self._patience = HEAD_PATIENCE

    def on_headers_complete(self) -> None:
        if not self.transport.is_closing() and (refused := _refused_target(self.url) or self._refused_upgrade()):
            self._refuse(*refused)
        if self.transport.is_closing():
            self._is_passed_over = True
            return
        self._is_passed_over = self.parser.should_upgrade() and not self._should_upgrade()
        if self._is_passed_over:
            return
        if self._timer:
            self._stop_timer()
        self._head_ended()
        self._is_in_head = False
        self._patience = BODY_PATIENCE
        if self.url[:1] != b"/" and (found := _absolute.match(self.url)):  # its host is the one that counts
            hosts = [each for each in self.headers if each[0] == b"host"]
            others = [each for each in self.headers if each[0] != b"host"]
            self.headers[:] = [(b"host", found[1]), *hosts[1:], *others]  # two are refused all the same
        if self._came:
            self.scope["state"], self._came = {**self.app_state, CAME: self._came}, None
        super().on_headers_complete()
        self.headers = _TRAILERS  # where uvicorn puts what comes now: nobody reads it

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse(self, status: int, why: str) -> None:
        """End the connection because of what comes just now, and say why, unless that would stand within the answer to
        another, or behind that to the request whose body it is."""
        now, is_body = self.cycle, self._patience and not self._is_in_head
        has_begun = now and (now.response_started or self.pipeline if is_body else not now.response_complete)
        if not has_begun:
            own = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(why))]
            headers = *self.server_state.default_headers, *own, (b"connection", b"close")
            lines = [STATUS_LINE[status], *(_line(name, value) for name, value in headers), b"\r\n", why.encode()]
            self.transport.write(b"".join(lines))
        self._intake.drop()
        self.transport.close()

    def _refused_upgrade(self) -> tuple[int, str] | None:
        """Each word of what is said of another protocol is taken apart, some of it more than once."""
        if not self.parser.should_upgrade():
            return None
        said = [value for name, value in self.headers if name in _OF_UPGRADES or name.startswith(b"sec-websocket-")]
        if sum(map(len, said)) <= LONGEST_UPGRADE:
            return None
        return 431, f"The headers of an upgrade have more than {LONGEST_UPGRADE:,} bytes."

    def _should_upgrade(self) -> bool:
        self.headers = self.scope["headers"]  # type: ignore[assignment]
        return self.transport.is_closing() or super()._should_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Who asks for another protocol than WebSocket is answered in this one (RFC 9110, 7.8). The parser has stopped
        behind its head, and would take its body for further requests: it reads the head again, without the wish."""
        self._is_passed_over = False
        if self.parser.get_method() == b"CONNECT":
            self.send_400_response("CONNECT is not served here.")
            return
        (read,) = cast(BaseException, sys.exc_info()[1]).args  # bytes of the piece
        rest = self._piece[read:]
        version = self.parser.get_http_version().encode()
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in self.scope["headers"]:
            if name == b"connection":
                value = b"close" if b"close" in value.lower() else b"keep-alive"
            if name not in (b"upgrade", b"http2-settings"):
                head += [name, b": ", value, b"\r\n"]
        self.parser = HttpRequestParser(self)
        self._came = None
        self._again = b"".join((*head, b"\r\n", rest))

    def on_body(self, body: bytes) -> None:
        if self._is_passed_over:
            return
        self._overhead = max(0, self._overhead - len(body) * (1 + FRAMING))
        super().on_body(body)
        if len(self.cycle.body) > UNTAKEN:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        if self._is_passed_over:
            return
        if self._timer:
            self._stop_timer()
        self._patience = 0.0
        self._is_between = True
        cycle: RequestResponseCycle | None = self.cycle
        if isinstance(cycle, _Cycle) and cycle.is_awaited:
            self._end_in_turn(cycle)
        else:
            super().on_message_complete()

    def _end_in_turn(self, cycle: _Cycle) -> None:
        """What a request is started for is done when it is whole. One that somebody has waited for takes another turn:
        else all whose last bytes come together would be worked on in one round."""
        cycle.is_awaited = False
        turn, self._turn = self._turn, None
        if turn:
            self._scheduler.ended(turn)
        soon = partial(self.loop.call_soon, cycle.end)  # in this round it may be woken by what came before its end
        self._schedule(cycle, cycle.end, soon)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """No answer is made while the one before is not read."""
        if cycle.__class__ is RequestResponseCycle:
            cycle.__class__ = _Cycle  # uvicorn makes its own
        self._running = cycle
        if self.flow.write_paused:
            self._unstarted = cycle, app
            return
        self._schedule(cycle, partial(super()._start_asgi_task, cycle, app))

    def _schedule(
        self, cycle: RequestResponseCycle, start: Callable[[], object], later: Callable[[], object] | None = None
    ) -> None:
        """Have a request started when it is its principal's turn, by `later` where that is not now."""
        stranger = self._application.stranger(cast(Any, cycle.scope), self._stranger)
        key = self._callers.key(cycle.scope["headers"], stranger)
        if self._scheduler.lets_pass(key):
            start()
        else:
            then = later or start
            self._turn = self._scheduler.start(key, lambda: cycle.disconnected or then())

    def on_response_complete(self) -> None:
        """Who was answered before all was read has a moment to end it."""
        if self._known is self.cycle and not (
            self._turn or self.pipeline or self._is_full or self._patience or self.flow.read_paused
        ):
            self._rests()  # nothing else is to be done behind most that are known
            return
        turn, self._turn = self._turn, None
        if not self.transport.is_closing():
            self._goes_on()
        if turn:
            self._scheduler.ended(turn)
        if self._is_full and len(self.pipeline) <= MOST_PIPELINED:
            self._is_full = False
            self._intake.let_go(self)
        # Where the next one of a pipeline has begun to come, it is not what was answered.
        is_unread = self._patience and not self._is_in_head and self.cycle and self.cycle.response_complete
        if is_unread and not self.transport.is_closing():
            self._stop_timer()
            self._timer = self.loop.call_later(UNREAD_PATIENCE, self.transport.close)

    def _goes_on(self) -> None:
        """With the next request that waits, else until it was idle for too long. uvicorn does the same, but makes and
        cancels a timer for each request."""
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._rests()

    def _rests(self) -> None:
        self._idle_since = self.loop.time()
        if not self._patience:  # nothing more comes of what was answered: it is not kept until the next one
            self.cycle = self._known = self._running = self.scope = None  # type: ignore[assignment]
            self.url = b""
        if not self._keeping:
            self._keeping = self.loop.call_later(self.timeout_keep_alive, self._look)

    def _look(self) -> None:
        self._keeping = None
        if self.cycle and not self.cycle.response_complete:
            return  # when it is, this begins anew
        gone = 0.0 if self._patience else self.loop.time() - self._idle_since
        left = self.timeout_keep_alive - gone
        if left > 0:
            self._keeping = self.loop.call_later(left, self._look)
        else:
            self.timeout_keep_alive_handler()

    def _stop_keeping(self) -> None:
        if self._keeping:
            self._keeping.cancel()
            self._keeping = None

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


_malformed = re.compile(rb"%(?![0-9A-Fa-f]{2})")  # decoding them takes Python a thousandth of a millisecond each


def _refused_target(target: bytes) -> tuple[int, str] | None:
    """The status by which what a request is for is refused before it is decoded, where nobody knows who sends it."""
    if len(target) > LONGEST_TARGET or len(target.partition(b"?")[0]) > LONGEST_PATH:
        return 414, "The request's target is too long."
    if b"%" in target and _malformed.search(target):
        return 400, "The request's target has a percent sign that begins nothing."
    return None


class OperatorProtocol(HttpProtocol):
    """Of a connection to the operator's socket, which alone makes anybody the operator."""

    def peer(self, transport: asyncio.Transport) -> tuple[str, int] | None:
        return met(transport)


_absolute = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")


def _websocket(bodies: Bodies, turns: IntakeQueue, **given: Any) -> asyncio.Protocol:
    return frames.paced_socket()(bodies=bodies, turns=turns, **given)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the command's business."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, beside which nobody else can listen there; port 0 lets the system choose. Raises
    `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


# Whose share of the log it is, by logger: who needs no key to do wrong hides nobody else.
_who = {
    "uvicorn.error": "an HTTP client",
    tls.of_clients.name: "a TLS client",
    encrypted.log.name: "a TLS connection",
    frames.log.name: "a WebSocket client",
    unread.log.name: "a client whose connection was closed",
}


class _Bounded(logging.Filter):
    """What clients do wrong, told as often as helps: no key is needed to send what is no HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SystemClock()
        self.complaints = Complaints(self.clock)

    def filter(self, record: logging.LogRecord) -> bool:
        # What fails in here has a share of its own for each place: nobody hides one failure behind what is no HTTP, nor
        # behind another failure that clients can bring about. Nor is a client that does not read hidden behind others.
        is_failure = record.levelno >= logging.ERROR
        return self.complaints.takes(f"the HTTP server, {_failed_at(record)}" if is_failure else _who[record.name])


def _failed_at(record: logging.LogRecord) -> str:
    """Where in the code, so there are few of them."""
    error = record.exc_info[1] if record.exc_info else None
    if not error:
        return f"{record.filename}:{record.lineno}"
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    place = f" in {os.path.basename(last.tb_frame.f_code.co_filename)}:{last.tb_lineno}" if last else ""
    return f"{type(error).__name__}{place}"


@asynccontextmanager
async def serving(
    application: Application,
    listener: socket.socket,
    certificate: Certificate | None = None,
    protocol: Callable[..., HttpProtocol] = HttpProtocol,
    gives_way: GivesWay | None = None,
) -> AsyncGenerator[None]:
    """Serve inside the block, over TLS where there is a certificate; requests under way get a moment to end.
    `gives_way`: other processes accept from this listener, too."""
    async with making(application, protocol, [] if certificate or gives_way else [listener]) as made:
        if certificate:
            async with tls.accepting(listener, made, certificate, application.connections, SystemClock(), gives_way):
                yield
        elif gives_way:
            async with accepting(listener, made, gives_way):
                yield
        else:
            yield


@asynccontextmanager
async def making(
    application: Application, protocol: Callable[..., HttpProtocol], listeners: list[socket.socket]
) -> AsyncGenerator[Callable[..., asyncio.BaseProtocol]]:
    """The same for connections to these listeners, and for those whose protocols are made by what this yields."""

    def http(**given: Any) -> LittleReads:
        return LittleReads(protocol(application, **given))

    config = uvicorn.Config(
        application,
        http=cast("type[asyncio.Protocol]", http),
        loop="none",
        lifespan="off",
        ws=cast("type[asyncio.Protocol]", partial(_websocket, application.bodies, application.connections.turns)),
        ws_max_size=application.body_limit,
        ws_per_message_deflate=False,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=LAST_WORDS,
    )
    logs, bounded = [logging.getLogger(name) for name in _who], _Bounded()
    for log in logs:
        log.addFilter(bounded)
    server = _Server(config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=listeners), name="http")
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.001)
        yield partial(http, config=config, server_state=server.server_state, app_state={})
    finally:
        server.should_exit = True
        await task
        for log in logs:
            log.removeFilter(bounded)
        bounded.complaints.close()
