"""A link over Streamable HTTP: every message is a POST, and what comes back on it belongs to that request.

Spec: basic/transports of 2025-03-26 to 2026-07-28. The session id, where a server gives one, is the link's business;
revision and routing headers are the era's, and come with each message.
"""

from __future__ import annotations

import logging
from urllib.parse import urljoin

from toolgate import __version__
from toolgate.config import Server
from toolgate.model import Fault
from toolgate.ports import Clock
from toolgate.upstreams.links.base import Headers, Receiver
from toolgate.upstreams.links.http1 import Pool, Target, Wire
from toolgate.wire import jsonrpc, sse

log = logging.getLogger(__name__)

LONGEST_BODY = 256 * 1024 * 1024
_LINE = b"\r\n"


class HttpLink:
    signs_of_life: int | None = None

    def __init__(self, server: Server, receiver: Receiver, clock: Clock) -> None:
        self._server = server
        self._receiver = receiver
        self._clock = clock
        self._pool = Pool(Target(server.url), clock)
        self._session: bytes | None = None
        self._is_forgotten = False  # by the server: our session
        self._prefix = _prefix(self._pool.target, server)
        self._streams: dict[int, Wire] = {}
        self._closed = False

    def describe(self) -> dict[str, object]:
        return {"url": self._server.url}

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        try:
            wire = await self._pool.take()
        except (OSError, TimeoutError) as error:
            raise self._fault(
                "SERVER_FAILED", f"Cannot reach {self._server.url}: {error or 'no answer'}", "not_sent"
            ) from None
        if origin is not None:
            self._streams[origin] = wire
        wire.send(self._head(b"POST", headers, len(data)), data, _Reply(self, origin))

    def abandon(self, origin: int | None) -> bool:
        wire = self._streams.pop(origin, None) if origin is not None else None
        if wire:
            wire.close()
        return True

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._session and not self._is_forgotten:
            await self._end_session()
        self._pool.close()
        self._receiver.closed(Fault("SERVER_FAILED", f"{self._server.name} was closed", server=self._server.id))

    async def _end_session(self) -> None:
        """Tell the server; whether it hears is its own business (it may answer 405)."""
        try:
            wire = await self._pool.take()
            wire.send(self._head(b"DELETE", (), 0), b"", _Reply(self, None))
        except (OSError, TimeoutError):
            log.debug("%s could not be told that its session is over", self._server.name)

    def _head(self, method: bytes, headers: Headers, length: int) -> bytes:
        lines = [method + self._prefix]
        lines += [name + b": " + value for name, value in headers]
        if self._session:
            lines.append(b"Mcp-Session-Id: " + self._session)
        lines.append(b"Content-Length: %d" % length)
        return _LINE.join(lines) + _LINE + _LINE

    # What replies call.

    def learn_session(self, session: bytes | None) -> None:
        if session and self._session is None:
            self._session = session

    def done(self, origin: int | None) -> None:
        if origin is not None:
            self._streams.pop(origin, None)

    def received(self, data: bytes, origin: int | None) -> None:
        self._receiver.received(data, origin)

    def refused(self, origin: int | None, status: int, body: bytes, location: str = "") -> None:
        """An HTTP error. A JSON-RPC error in its body is the server's own answer."""
        if status == 404 and self._session:
            message = f"{self._server.name} no longer knows our session"
            if not self._is_forgotten:
                self._is_forgotten = True
                self._pool.drain()
                self._receiver.retired(self._fault("SERVER_FAILED", message, "sent_unknown"))
            if origin is not None:
                self._receiver.failed(origin, self._fault("SESSION_ERROR", message, "not_sent"))
        elif origin is not None and _is_rpc_error(body):
            self._receiver.received(body, origin)
        else:
            reach = "sent_unknown" if status >= 500 else "not_sent"
            hint = "check the credentials in its headers" if status in (401, 403) else ""
            if status < 400 and location:
                hint = f"it has moved: write {urljoin(self._server.url, location)} into its configuration"
            self.broke(
                origin,
                f"answered HTTP {status}: {_shown(body)}",
                reach,
                hint,
            )

    def broke(self, origin: int | None, what: str, reach: str = "sent_unknown", hint: str = "") -> None:
        """The server did this instead of answering. No matter where it has answered."""
        message = f"{self._server.name} {what}"
        if origin is not None:
            self._receiver.failed(origin, self._fault("SERVER_FAILED", message, reach, hint))
        else:
            log.info("%s", message)

    def _fault(self, code: str, message: str, reach: str, hint: str = "") -> Fault:
        return Fault(code, message, server=self._server.id, reach=reach, hint=hint)  # type: ignore[arg-type]


def _prefix(target: Target, server: Server) -> bytes:
    lines = [
        f" {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        f"User-Agent: toolgate/{__version__}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        *(f"{name}: {value}" for name, value in server.headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1", "replace")


def _shown(body: bytes) -> str:
    return body[:200].decode(errors="replace")


def _is_rpc_error(body: bytes) -> bool:
    try:
        return bool(jsonrpc.decode(body).error)
    except jsonrpc.Malformed:
        return False


class _Reply:
    """One response: a JSON body, a stream of events, or an error."""

    def __init__(self, link: HttpLink, origin: int | None) -> None:
        self._link = link
        self._origin = origin
        self._status = 0
        self._chunks: list[bytes] = []
        self._size = 0
        self._location = ""
        self._events: sse.Reader | None = None

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status
        self._location = headers.get(b"location", b"").decode("latin-1")
        self._link.learn_session(headers.get(b"mcp-session-id"))
        if status < 300 and headers.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
            self._events = sse.Reader(LONGEST_BODY)

    def body(self, chunk: bytes) -> None:
        if self._events:
            self._feed(self._events, chunk)
            return
        self._size += len(chunk)
        if self._size <= LONGEST_BODY:
            self._chunks.append(chunk)

    def _feed(self, events: sse.Reader, chunk: bytes) -> None:
        try:
            for event in events.feed(chunk):
                if event.data and event.event == "message":
                    self._link.received(event.data, self._origin)
        except sse.TooLong as error:
            self._link.broke(self._origin, f"sent {error}", "executed")
            self._link.abandon(self._origin)

    def complete(self) -> None:
        self._link.done(self._origin)
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        if self._status >= 300:
            self._link.refused(self._origin, self._status, body, self._location)
        elif self._events:
            self._link.broke(self._origin, "ended its stream without an answer")
        elif self._size > LONGEST_BODY:
            self._link.broke(self._origin, f"sent an answer of over {LONGEST_BODY} bytes", "executed")
        else:
            if body:
                self._link.received(body, self._origin)
            if self._origin is not None:
                self._link.broke(self._origin, f"sent HTTP {self._status} with no answer in it: {_shown(body)}")

    def lost(self, reason: str) -> None:
        self._link.done(self._origin)
        self._link.broke(self._origin, f"broke the connection: {reason}")
