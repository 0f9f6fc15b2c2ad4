"""The HTTP door: Streamable HTTP in both eras on one URL (spec: basic/transports; behaviour.md 001).

An ASGI application. A request passes the guards (host, origin, size), is decoded once, and goes by its era: a modern
one is answered alone and dies with its connection, a legacy one belongs to a session that outlives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from toolgate.config import Config
from toolgate.eras import headers as era_headers
from toolgate.eras import modern
from toolgate.frontends import face, streams
from toolgate.frontends.modern import ModernFace
from toolgate.frontends.pages import Pages
from toolgate.frontends.session import Session
from toolgate.frontends.sessions import Sessions
from toolgate.frontends.streams import Outbox, Receive, Response, Send
from toolgate.gateway import Gateway
from toolgate.model import Fault, Principal
from toolgate.ports import Clock
from toolgate.snapshot import Route
from toolgate.wire import jsonrpc, mcp
from toolgate.wire.jsonrpc import Malformed, Message

Scope = MutableMapping[str, Any]
Headers = Mapping[str, str]
Identify = Callable[[Headers, str], Principal]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LAST_WORD = 0.2  # seconds for subscriptions to end by themselves
OVERFLOW_READ = 64 * 1024 * 1024  # bytes of a body over the limit that are read nevertheless


def everyone_is_local(headers: Headers, address: str) -> Principal:
    """Who a client is where none are configured: an open gateway on loopback has one user."""
    return Principal("local", address)


class Refused(Exception):
    """An answer on the level of HTTP, with a JSON-RPC error in its body."""

    def __init__(self, status: int, message: str, rpc: int = jsonrpc.INVALID_REQUEST, id: bytes = b"null") -> None:
        super().__init__(message)
        self.status = status
        self.body = jsonrpc.error(id, rpc, message)
        self.headers: list[tuple[bytes, bytes]] = []


class HttpDoor:
    def __init__(
        self,
        gateway: Gateway,
        modern_face: ModernFace,
        pages: Pages,
        sessions: Sessions,
        config: Config,
        clock: Clock,
        identify: Identify = everyone_is_local,
    ) -> None:
        self._gateway = gateway
        self._modern = modern_face
        self._pages = pages
        self._sessions = sessions
        self._config = config
        self._clock = clock
        self._identify = identify
        self._methods = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        self._hosts = _served_hosts(config)
        self._modern_work: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"the HTTP door has no {scope['type']}")
        response = Response(send)
        try:
            headers, twice = era_headers.read(scope["headers"])
            self._guard(headers)
            route = self._gateway.snapshot.routes.get(scope["path"].rstrip("/"))
            if not route:
                raise Refused(404, f"Nothing is served at {scope['path']}; the endpoint is /mcp")
            method = self._methods.get(scope["method"])
            if not method:
                raise _not_allowed("POST, GET, DELETE")
            principal = self._identify(headers, (scope.get("client") or ("",))[0])
            await method(Request(headers, twice, receive, route, principal), response)
        except Refused as refused:
            await response.whole(refused.status, refused.body, refused.headers)

    def close(self) -> None:
        """End the requests of modern clients, subscriptions by a last word; those of legacy ones end with sessions."""
        self._modern.close()
        self._clock.call_later(LAST_WORD, lambda: [work.cancel() for work in list(self._modern_work)])

    # The guards.

    def _guard(self, headers: Headers) -> None:
        """Against pages that a browser was led to (DNS rebinding): the host and the origin must be known ones."""
        host = headers.get("host", "").lower()
        if self._hosts and host not in self._hosts and _hostname("//" + host) not in self._hosts:
            raise Refused(403, f"Host {host!r} is not served here; add it to http.allowed_hosts")
        origin = headers.get("origin")
        is_local = self._config.http.host in LOOPBACK and origin is not None and _hostname(origin) in LOOPBACK
        if origin is not None and origin not in self._config.http.allowed_origins and not is_local:
            raise Refused(403, f"Origin {origin!r} is not allowed; add it to http.allowed_origins")

    async def _read(self, request: Request) -> bytes:
        """The body. Some of what is over the limit is read too, and dropped: most clients send all before they listen,
        and would find a broken connection instead of the refusal."""
        limit = self._config.http.body_limit
        declared = request.headers.get("content-length", "")
        announced = int(declared[:20]) if declared.isdecimal() else 0
        if announced > limit and (announced > limit + OVERFLOW_READ or "expect" in request.headers):
            raise _too_large(limit, is_unread=True)
        chunks: list[bytes] = []
        size, more = 0, True
        while more and size <= limit + OVERFLOW_READ:
            part = await request.receive()
            if part["type"] == "http.disconnect":
                raise Refused(400, "The client went away")
            chunk, more = part.get("body", b""), part.get("more_body", False)
            size += len(chunk)
            if size <= limit:
                chunks.append(chunk)
            else:
                chunks.clear()
        if size > limit:
            raise _too_large(limit, is_unread=more)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    # POST.

    async def _post(self, request: Request, response: Response) -> None:
        data = await self._read(request)
        try:
            message = jsonrpc.decode(data)
        except Malformed as error:
            await response.whole(400, face.write_malformed(error))
            return
        if modern.speaks_modern(request.headers.get(era_headers.VERSION), message.params):
            await self._modern_post(request, response, message)
        else:
            await self._legacy_post(request, response, message)

    async def _modern_post(self, request: Request, response: Response, message: Message) -> None:
        if request.twice:
            raise Refused(400, f"Header mismatch: the header {request.twice} stands there twice", mcp.HEADER_MISMATCH)
        if message.is_response:
            raise Refused(400, "Invalid request: this revision has no responses of clients")
        if message.is_notification:
            await response.whole(202)
            return
        outbox = Outbox(can_stream=request.accepts_events, can_ask=False)
        work = asyncio.get_running_loop().create_task(
            self._modern.answer(message, request.headers, request.principal, request.route, outbox.note)
        )
        self._modern_work.add(work)
        work.add_done_callback(lambda _done: outbox.end())
        watch = Watch(request.receive, work)
        try:
            await streams.relay(response, outbox, self._clock, watch.start)
            await self._modern_end(response, message, work, watch)
        finally:
            work.cancel()
            self._modern_work.discard(work)
            watch.stop()

    async def _modern_end(self, response: Response, message: Message, work: asyncio.Task[Any], watch: Watch) -> None:
        id = bytes(message.id)
        if work.cancelled():  # the gateway ends, or the client is gone and nobody reads this
            error = Fault("SESSION_ERROR", "The request was cancelled", reach="sent_unknown")
        else:
            error = work.exception()
        if error:
            fault = face.rescued(error)
            code = modern.error_code(fault)
            await _finish(response, modern.HTTP_STATUS.get(code, 200), face.write_error(id, fault, code))
            return
        reply = work.result()
        try:
            await _finish(response, 200, jsonrpc.result(id, reply.body))
        except BaseException:
            self._modern.unsent(reply)
            raise
        if watch.has_left:
            self._modern.unsent(reply)
        else:
            self._modern.flushed(reply)

    async def _legacy_post(self, request: Request, response: Response, message: Message) -> None:
        if not message.is_request and era_headers.SESSION not in request.headers and not request.route.is_strict:
            await response.whole(202)  # it belongs to nothing, and is no reason to begin something
            return
        session = self._session(request, message)
        response.headers.append((b"mcp-session-id", session.id.encode()))
        if message.is_response or message.is_notification:
            (session.answered if message.is_response else session.notified)(message)
            await response.whole(202)
            return
        outbox = Outbox(can_stream=request.accepts_events, can_ask=request.accepts_events)
        work = session.answer(message, outbox)
        work.add_done_callback(lambda _done: outbox.end())
        await streams.relay(response, outbox, self._clock)
        if work.cancelled():
            body = jsonrpc.error(bytes(message.id), jsonrpc.INTERNAL_ERROR, "The request was cancelled")
        else:
            body = work.result()
        await _finish(response, 200, body)
        if session.is_to_end:
            self._sessions.end(session)

    def _session(self, request: Request, message: Message) -> Session:
        """The session of a legacy request: its own, or a new one on its first (behaviour.md 6.8)."""
        version = request.headers.get(era_headers.VERSION)
        if version is not None and version not in mcp.HANDSHAKE_REVISIONS and message.method != "initialize":
            raise Refused(400, f"Unsupported protocol version: {version}", id=bytes(message.id) or b"null")
        id = request.headers.get(era_headers.SESSION)
        if id is not None and message.method != "initialize":
            return self._known_session(request, id)
        if message.method != "initialize" and (request.route.is_strict or not self._config.sessions.implicit):
            raise Refused(400, "The first request must be initialize, and later ones carry Mcp-Session-Id")
        session = Session(
            self._gateway,
            self._pages,
            request.route,
            request.principal,
            self._clock,
            ask_time=self._config.parking.ttl,
            revision=version if version in mcp.HANDSHAKE_REVISIONS else mcp.REVISION_WITHOUT_HEADER,
        )
        self._sessions.add(session, implicit=message.method != "initialize")
        return session

    def _known_session(self, request: Request, id: str) -> Session:
        session = self._sessions.get(id, request.principal)
        if not session or session.route.path != request.route.path:
            raise Refused(404, "Session not found: initialize anew")
        return session

    # GET and DELETE: legacy only.

    async def _get(self, request: Request, response: Response) -> None:
        session = self._existing(request)
        if not request.accepts_events:
            raise Refused(406, "This stream is text/event-stream; accept it")
        outbox = Outbox(can_stream=True, can_ask=False)
        session.listen(outbox)
        leaving = asyncio.ensure_future(streams.gone(request.receive))
        leaving.add_done_callback(lambda _done: outbox.end())
        try:
            await response.comment()
            await streams.relay(response, outbox, self._clock)
            await response.end()
        finally:
            leaving.cancel()
            session.stop_listening(outbox)

    async def _delete(self, request: Request, response: Response) -> None:
        self._sessions.end(self._existing(request))
        await response.whole(204)

    def _existing(self, request: Request) -> Session:
        id = request.headers.get(era_headers.SESSION)
        if request.headers.get(era_headers.VERSION, "") >= mcp.MODERN:
            raise _not_allowed("POST")
        if id is None:
            raise Refused(400, "Mcp-Session-Id is missing")
        return self._known_session(request, id)


class Request:
    """One HTTP request that has passed the guards."""

    def __init__(
        self, headers: Headers, twice: str | None, receive: Receive, route: Route, principal: Principal
    ) -> None:
        self.headers = headers
        self.twice = twice  # a routing header that is repeated
        self.receive = receive
        self.route = route
        self.principal = principal

    @property
    def accepts_events(self) -> bool:
        return "text/event-stream" in self.headers.get("accept", "").lower()


class Watch:
    """Cancels the work of a client that goes away."""

    def __init__(self, receive: Receive, work: asyncio.Task[Any]) -> None:
        self._receive = receive
        self.has_left = False
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        if self._task:
            self._task.cancel()

    async def _watch(self) -> None:
        await streams.gone(self._receive)
        self.has_left = True
        self._work.cancel()


async def _finish(response: Response, status: int, body: bytes) -> None:
    """The last message: as it began, as a stream, or as a plain body."""
    if response.is_streaming:
        await response.event(body)
        await response.end()
    else:
        await response.whole(status, body)


def _served_hosts(config: Config) -> frozenset[str]:
    """The values of `Host` that are served, with or without their port; none where any is."""
    http = config.http
    if http.host not in LOOPBACK and not http.allowed_hosts:
        return frozenset()
    return LOOPBACK | {http.host} | {host.lower() for host in http.allowed_hosts}


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _too_large(limit: int, is_unread: bool) -> Refused:
    refused = Refused(413, f"Request body too large: the limit is {limit} bytes (http.body_limit)")
    if is_unread:
        refused.headers = [(b"connection", b"close")]
    return refused


def _not_allowed(methods: str) -> Refused:
    refused = Refused(405, f"Method not allowed; use {methods}")
    refused.headers = [(b"allow", methods.encode())]
    return refused
