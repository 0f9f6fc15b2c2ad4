"""A minimal HTTP/1.1 client with kept connections: just what calling one server needs, at a few microseconds a request.

The rules this file keeps: one request at a time on a connection; a connection that has been idle longer than its
server may keep it is not used again, since a request lost on it could not be told from one that ran; nor is one that
may have vanished with another that did not answer.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

import httptools  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from toolgate import __version__
from toolgate.auth.safe_net import Dial
from toolgate.core import encrypted, sse
from toolgate.core.bodies import FREE, Body
from toolgate.core.clock import Clock, Timer
from toolgate.core.encrypted import EncryptedConnection
from toolgate.core.inflow import Intake, IntakeQueue
from toolgate.core.outflow import SHORT
from toolgate.upstreams.links.places import Places, Tenant

IDLE = 4.0  # seconds; common servers close after 5
LONGEST_IDLE = 60.0  # seconds, for servers that promise more
CONNECT_TIMEOUT = 10.0
_CHALLENGE = b"www-authenticate"
PIECE = 2 * 1024  # bytes of an answer that are taken in one go, in chunks of one byte, or in events of nothing
MOST_LINES = 200  # headers of an answer
MOST_BESIDE = 256 * 1024  # bytes in a row that bring no body: of status and headers, or chunk lines, or trailers
MOST_UNNEEDED = 32  # connections that a server keeps open behind the answers it owed
MOST_HEADS, LONGEST_HEAD = 16, 512  # that are known again, of one server, and bytes of each
IN_CHUNKS = -1
_END = b"\r\n\r\n"
_OK = b"HTTP/1.1 200 "
JSON = b"application/json"
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

# A stream may be silent for hours; a machine that vanished is noticed after a minute of that.
_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class ResponseReader(Protocol):
    """Who reads one response."""

    def head(self, status: int, headers: dict[bytes, bytes]) -> None: ...

    def body(self, chunk: bytes) -> None:
        """Raises `sse.TooLong` where it takes no more. Then nobody reads on, and it is told nothing else."""
        ...

    def complete(self) -> None: ...

    def lost(self, reason: str) -> None:
        """The connection broke before the response was whole."""
        ...


class WholeReader:
    """One that takes a response in one go where it is of 200, and its body has at most `FREE` bytes."""

    def whole(self, head: KnownHead, body: bytes) -> None:
        raise NotImplementedError


class Target:
    """A URL, taken apart once. Raises `ValueError` for one that is no http(s) URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an http(s) URL: {url!r}")
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.tls else 80)
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.authority = parts.netloc.rpartition("@")[2]

    @property
    def origin(self) -> tuple[bool, str, int]:
        return self.tls, self.host, self.port

    def prefix(self, accept: str, headers: Mapping[str, str]) -> bytes:
        """The head of every request to it, without its first word and its own headers."""
        lines = [
            f" {self.path} HTTP/1.1",
            f"Host: {self.authority}",
            f"User-Agent: toolgate/{__version__}",
            f"Accept: {accept}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        head = "\r\n".join(lines).encode("latin-1", "replace")
        return without_ours(head) if any(name.lower() == "user-agent" for name in headers) else head


def without_ours(head: bytes) -> bytes:
    """The head of a request which says by another header what program sends it."""
    return head.replace(f"User-Agent: toolgate/{__version__}\r\n".encode(), b"", 1)


class KnownHead(msgspec.Struct, frozen=True):
    """What the head of an answer means that came whole before: the very same bytes mean it again."""

    headers: dict[bytes, bytes]
    keep: float
    length: int  # bytes of the body, or `IN_CHUNKS`
    is_json: bool
    session: bytes | None  # that it names


class Wire(asyncio.Protocol, Tenant):
    """One connection."""

    _is_at_head = False  # nothing has come of the answer yet
    _head = b""  # of the answer that comes, where it came in one piece
    _lines = 0  # of the head
    _known: KnownHead | None = None  # what it means, where the parser is given another one

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._reply: ResponseReader | None = None
        self._headers: dict[bytes, bytes] = {}
        self._until_close = False
        self._beside = 0  # bytes that have come since there was any body
        self._is_in_head = True
        self.intake = Intake(self._take, None, PIECE, pool.turns, pool.whose)
        self.data_received = self.intake.put
        self._held_for: Body | None = None  # that has no room now
        self._unsent = b""  # of the request
        self._waiting: asyncio.Task[None] | None = None
        self.sent = 0.0
        self.idle_since = 0.0
        self.keep = IDLE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = self.intake.transport = transport  # type: ignore[assignment]
        self.is_closing = transport.is_closing

    def send(self, head: bytes, body: bytes, reply: ResponseReader) -> None:
        assert self._transport
        self._reply = reply
        self._beside = 0
        self._is_at_head = True
        if len(body) <= SHORT:
            self._unsent += head + body
            self._pool.turns.outflow.put(self)
        else:
            self._transport.writelines((head, body))

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        if unsent and self._transport and not self.is_closing():
            self._transport.write(unsent)

    def close(self) -> None:
        self._reply = None
        self.intake.drop()
        self._waits_no_more()
        if self._transport:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """Close it, and wait for nobody to read what was written."""
        self._reply = None
        self.intake.drop()
        self._waits_no_more()
        if self._transport:
            self._transport.abort()

    def keeps(self, body: Body, size: int) -> None:
        """So much is kept of what comes; more is read when there is room for that."""
        if not body.has(size) and body is not self._held_for:
            self._waits_no_more()
            self._held_for = body
            self.intake.hold(body)
            self._waiting = asyncio.get_running_loop().create_task(self._read_on(body))

    async def _read_on(self, body: Body) -> None:
        await body.room()
        self._waiting = None
        self._waits_no_more()

    def _waits_no_more(self) -> None:
        """For room: there is some, or all of the answer is here, and the next may be another client's."""
        if self._waiting:
            self._waiting.cancel()
            self._waiting = None
        if self._held_for:
            self.intake.let_go(self._held_for)
            self._held_for = None

    @property
    def reply(self) -> ResponseReader | None:
        """Who reads what comes now."""
        return self._reply

    @property
    def is_needless(self) -> bool:
        """Whether nobody waits for anything that may still come."""
        return self._reply is not None and self._pool.is_needless(self._reply)

    def give_up(self) -> None:
        """Nobody needs the rest."""
        self._break("the rest of its answer is no longer needed")

    # What the event loop and the parser call.

    def _take(self, data: bytes) -> None:
        reply = self._reply
        if not reply:
            self.close()  # nobody asked: whatever it says, the next request must not take it for its answer
            return
        if self._is_at_head:
            self._is_at_head = False
            end = data.find(_END, 0, LONGEST_HEAD) + 4
            head = data[:end]
            known = self._pool.known_heads.get(head)
            if known and known.length == len(data) - end:
                self.keep = known.keep
                if known.length <= FREE and not self._held_for and isinstance(reply, WholeReader):
                    self._reply = None
                    self._pool.give_back(self)
                    reply.whole(known, data[end:])
                else:
                    self._take_whole(reply, known, data[end:])
                return
            if known and known.length == IN_CHUNKS:
                self._known, data = known, _CHUNKED + data[end:]
            elif head.startswith(_OK) and head.endswith(_END):
                self._head = head
        self._feed(data)

    def _take_whole(self, reply: ResponseReader, head: KnownHead, body: bytes) -> None:
        """A whole answer, of which the parser is told nothing."""
        self._headers, self._beside = head.headers, 0
        try:
            reply.head(200, head.headers)
            reply.body(body)
        except sse.TooLong:
            self.abort()
        else:
            self._whole(may_stay=True)

    def _remember(self, head: bytes) -> None:
        """The answer with this head came whole, and the connection stays. Where a length says how long a body is, the
        next with these bytes is read as this one was; where it comes in chunks, the parser, which calls for each
        header, is given a shorter head."""
        said, coding = self._headers.get(b"content-length", b""), self._headers.get(b"transfer-encoding")
        length = int(said) if said.isdigit() and not coding else IN_CHUNKS if coding == b"chunked" and not said else 0
        if length:
            found = self._headers
            is_json, session = found.get(b"content-type") == JSON, found.get(b"mcp-session-id")
            self._pool.remember(head, KnownHead(found, self.keep, length, is_json, session))

    def _feed(self, data: bytes) -> None:
        self._beside += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"the answer is not valid HTTP: {error.__context__ or error}")  # of our own callbacks
            return
        if self._beside > MOST_BESIDE:
            self._break(f"its answer has more than {MOST_BESIDE} bytes of headers and chunk sizes")

    def connection_lost(self, exc: Exception | None) -> None:
        self.intake.finish(lambda: self._ended(exc))

    def _ended(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        if self._reply and self._until_close and exc is None:
            self.on_message_complete()
        else:
            self._break(str(exc) if exc else "the connection was closed")
        self._headers, self._head, self._known = {}, b"", None
        self.intake.forget()
        vars(self).pop("_parser", None)  # these hold this one, which holds them, until the garbage is collected

    def _break(self, reason: str) -> None:
        reply = self._reply
        self.abort()
        if reply:
            reply.lost(reason)

    def on_message_begin(self) -> None:
        self._headers, self._lines = {}, 0
        self._is_in_head = True
        if not self._reply:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # and not behind the body
            name = name.lower()
            self._lines += 1
            if self._lines > MOST_LINES:
                raise ValueError(f"it has more than {MOST_LINES} headers")
            if name == _CHALLENGE and name in self._headers:  # one for each scheme
                value = self._headers[name] + b", " + value
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 100:
            raise ValueError(f"{status:03} is no status")
        if status < 200:
            return
        if self._known:
            self._headers, self._known = self._known.headers, None
        self._is_in_head = False
        self._until_close = b"content-length" not in self._headers and b"transfer-encoding" not in self._headers
        self.keep = _kept(said) if (said := self._headers.get(b"keep-alive")) else IDLE
        if self._reply:
            self._reply.head(status, self._headers)

    def on_body(self, chunk: bytes) -> None:
        self._beside = 0
        if self._reply:
            try:
                self._reply.body(chunk)
            except sse.TooLong:
                self.abort()

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._whole(may_stay=not self._until_close and self._parser.should_keep_alive())

    def _whole(self, may_stay: bool) -> None:
        """All of the answer is here."""
        reply, self._reply = self._reply, None
        head, self._head = self._head, b""
        if may_stay and head:
            self._remember(head)
        self._waits_no_more()
        if self.intake.is_busy:
            self.intake.free()
        if not reply:
            return
        if may_stay:
            self._pool.give_back(self)
        else:
            self.abort()  # whether or not all was read of what it was sent
        reply.complete()


def _notice_its_end(connection: socket.socket | None) -> None:
    if connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _kept(said: bytes) -> float:
    """How long the server keeps an idle connection, with a second's margin; `Keep-Alive: timeout=N` says."""
    for part in said.split(b","):
        name, _, value = part.strip().partition(b"=")
        if name.lower() == b"timeout" and value.isdigit() and len(value) < 6:
            return min(max(0.0, int(value) - 1.0), LONGEST_IDLE)
    return IDLE


class ConnectionPool:
    """Connections to one server. Grows with what is in flight; idle ones are used newest first. `dial` may raise
    `Fault` too. `turns` and `places` are those of all servers; this one takes turns by its id, and waits `patience`
    seconds for a place. `is_needless`: a reply that has all that anybody waits for; a server has only so many."""

    def __init__(
        self,
        target: Target,
        clock: Clock,
        dial: Dial,
        turns: IntakeQueue,
        places: Places,
        server: str,
        patience: float,
        is_needless: Callable[[ResponseReader], bool] = lambda reply: False,
    ) -> None:
        self.target = target
        self.turns = turns
        self.is_needless = is_needless
        self._places = places
        self._patience = patience
        self._server = server
        self._dial = dial
        self._clock = clock
        self.known_heads: dict[bytes, KnownHead] = {}
        self._idle: list[Wire] = []
        self._all: set[Wire] = set()
        self._next_look = 2 * MOST_UNNEEDED  # at what is open; with so many connections
        self._drains = False
        self._timer: Timer | None = None
        self._tls: ssl.SSLContext | None = None

    def __len__(self) -> int:
        return len(self._all)

    def whose(self) -> str:
        return self._server

    async def take(self, whose: str) -> Wire:
        """A connection to send on, in a place of this principal (`Places.take`). Raises `OSError`, `TimeoutError`, or
        `Fault` where there is no place."""
        await self._places.take(whose, self._patience)
        return self.take_now(whose, has_place=True) or await self._connected(whose)

    def take_now(self, whose: str, has_place: bool = False) -> Wire | None:
        """An idle connection, where nothing has to be waited for. `has_place`: one was taken."""
        now = self._clock.now()
        while self._idle:
            wire = self._idle[-1]
            if now - wire.idle_since >= wire.keep or wire.is_closing():
                self._idle.pop().close()
                continue
            if has_place:
                self._places.used(wire, whose)
            elif not self._places.take_now(whose, wire):
                return None
            wire.sent = now
            return self._idle.pop()
        return None

    async def connect(self, whose: str) -> Wire:
        """A connection of its own, for what may take long. Raises as `take` does."""
        await self._places.take(whose, self._patience)
        return await self._connected(whose)

    async def _connected(self, whose: str) -> Wire:
        """One that has its place already."""
        try:
            wire = await self._reached()
        except BaseException:
            self._places.give_back(whose)
            raise
        self._all.add(wire)
        self._places.used(wire, whose)
        wire.sent = self._clock.now()
        return wire

    async def _reached(self) -> Wire:
        self._places.make_room()
        if len(self._all) >= self._next_look:
            self._give_up_unneeded()
        target = self.target
        if target.tls and not self._tls:
            self._tls = encrypted.to_servers()
        loop, wire = asyncio.get_running_loop(), Wire(self)
        async with self._clock.timeout(CONNECT_TIMEOUT):
            connection = await self._dial(target.host, target.port)
            if self._tls:
                whole = EncryptedConnection(self.turns, self._server, wire, self._tls, CONNECT_TIMEOUT, target.host)
                await whole.shake_hands(connection)
            else:
                await loop.create_connection(lambda: wire, sock=connection)
        if wire.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        _notice_its_end(connection)
        return wire

    def _give_up_unneeded(self) -> None:
        """All but the newest of those that nobody needs; whoever is many is not looked at for each connection."""
        unneeded = [*self._idle, *(wire for wire in self._all if wire.is_needless)]
        for wire in sorted(unneeded, key=lambda wire: wire.sent)[:-MOST_UNNEEDED]:
            self._all.discard(wire)
            wire.give_up()
        self._next_look = 2 * max(MOST_UNNEEDED, len(self._all))

    def give_back(self, wire: Wire) -> None:
        if self._drains:
            wire.close()
            return
        wire.idle_since = self._clock.now()
        self._idle.append(wire)
        self._places.rests(wire)
        if not self._timer:
            self._timer = self._clock.call_later(IDLE, self._prune)

    def remember(self, head: bytes, meaning: KnownHead) -> None:
        if len(self.known_heads) >= MOST_HEADS:
            self.known_heads.clear()
        self.known_heads[head] = meaning

    def forget(self, wire: Wire) -> None:
        self._all.discard(wire)
        self._places.gone(wire)
        if wire in self._idle:
            self._idle.remove(wire)

    def abandon(self, wire: Wire) -> None:
        """Nobody waits any more for the answer on this one. If that is because the server vanished, then so have
        those that were idle when the request was sent."""
        wire.abort()
        number = bisect_left(self._idle, wire.sent, key=lambda idle: idle.idle_since)  # the longest idle come first
        stale, self._idle = self._idle[:number], self._idle[number:] if number else self._idle
        for idle in stale:
            idle.close()

    def drain(self) -> None:
        """Close what is idle now, and all else when it is."""
        self._drains = True
        for wire in self._idle:
            wire.close()

    def close(self) -> None:
        self.drain()
        if self._timer:
            self._timer.cancel()
        for wire in list(self._all):
            wire.close()

    def _prune(self) -> None:
        """Close what has been idle for too long to be used again."""
        now = self._clock.now()
        for wire in self._idle:
            if now - wire.idle_since >= wire.keep:
                wire.close()
        self._timer = self._clock.call_later(IDLE, self._prune) if self._idle else None
