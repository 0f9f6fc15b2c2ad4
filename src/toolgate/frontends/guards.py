"""What every request passes before it is heard, whatever it wants: its host, origin, path, size and client.

The rule this file keeps: what is refused is refused on the level of HTTP, with a JSON-RPC error in its body.
"""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Mapping, MutableMapping
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl

import msgspec

from toolgate.auth.access import THE_OPERATOR, WHO_ADMINISTERS
from toolgate.auth.admission import Admission, Headers, Identify
from toolgate.auth.page_sign_in import PageSignIn
from toolgate.auth.refusals import Unauthorized, is_over
from toolgate.auth.safe_net import LOOPBACK
from toolgate.config import Config
from toolgate.config.shapes import LEAST_VALUES
from toolgate.core import counting, jsonrpc, names, surrogates
from toolgate.core.bodies import Bodies, Body
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.eras import headers as era_headers
from toolgate.eras import modern
from toolgate.frontends.active_requests import ActiveRequest
from toolgate.frontends.connections import OF_LINE, STATE, Connection
from toolgate.frontends.cors import Cors
from toolgate.frontends.forwarding import Forwarding
from toolgate.frontends.known_heads import KnownHeads, Parted, is_plain
from toolgate.frontends.peers import Operator
from toolgate.frontends.scheduling import Callers, Scheduler, TakeTurn
from toolgate.frontends.streams import HeaderList, Receive
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.snapshot import Route
from toolgate.surfaces import bundle

Scope = MutableMapping[str, Any]


LONGEST_BEGINNING = 64 * 1024  # bytes of a body over the limit in which its id is looked for
OVERFLOW_READ = 64 * 1024 * 1024  # bytes of a body over the limit that are read nevertheless
LARGE = 1024 * 1024  # bytes of a body
LARGE_HEAD = 8 * 1024  # bytes of memory
MOST_FIELDS = 1000  # of a form
SHORT = 2 * LEAST_VALUES  # bytes, in which there are fewer values than any limit allows
COLLECTED = 256 * 1024 * 1024  # bytes of such bodies after which garbage is looked for
SSE = "/sse"  # behind the path of an endpoint: the transport of 2024-11-05; alone it is that of ENDPOINT
ENDPOINT = "/mcp"  # where a client has the surface that is configured for it
SERVERS = ENDPOINT + "/servers/"  # before the id of one


class Refused(Exception):
    """An answer on the level of HTTP, with a JSON-RPC error in its body."""

    def __init__(
        self,
        status: int,
        message: str,
        rpc: int = jsonrpc.INVALID_REQUEST,
        id: bytes = b"null",
        data: Any = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = jsonrpc.error(id, rpc, message, data)
        self.headers: list[tuple[bytes, bytes]] = []


class Request(msgspec.Struct, eq=False):
    """One HTTP request, or opening of a WebSocket, that has passed the guards."""

    scope: Scope
    receive: Receive
    route: Route
    principal: Principal
    headers: Headers
    accepts_events: bool = False
    accepts_events_only: bool = False
    twice: str | None = None  # a routing header that is repeated
    is_sse: bool = False  # of the transport of 2024-11-05
    active_request: ActiveRequest | None = None
    came: Parted | None = None  # where it came whole, in one piece
    body: bytes = b""  # where its head was known; else it is to be read
    cors: HeaderList = ()  # what all answers have, where a web page asks
    asked: Any = None  # of the last one with this head: see `modern.Asked`
    is_modern: bool = False  # its head says so
    usual: HeaderList = ()  # of the responses to those with this head, in its session
    named: str | None = None  # that session, once it is looked for; empty: none, or of no revision that we know
    is_shallow: bool = False  # it is known that its body is not nested too deep
    is_whole: bool = False  # its head says all that there is to know of it, at any time

    @property
    def own_path(self) -> str:
        """As its client wrote it: what a token for it is for."""
        return str(self.scope["path"]).rstrip("/")

    def asks_for(self, name: str) -> str:
        """A parameter of the query; empty where it is not there."""
        query: str = self.scope.get("query_string", b"").decode("latin-1")
        return parse_qs(query).get(name, [""])[0]


class Guards:
    """The checks of one frontend. The size of a body is that of `http.body_limit`, in bytes."""

    def __init__(
        self,
        gateway: Gateway,
        config: Config,
        identify: Identify,
        callers: Callers,
        bodies: Bodies,
        scheduler: Scheduler,
        known_heads: KnownHeads[Request],
        clock: Clock,
    ) -> None:
        self._callers = callers
        self._known_heads = known_heads
        self._clock = clock
        self._scheduler = scheduler
        self._gateway = gateway
        self._config = config
        self._identify = identify
        self._hosts = _served_hosts(config)
        self.allowed_origins = config.http.allowed_origins
        self.cors = Cors(self.allowed_origins) if self.allowed_origins else None
        self.forwarding = Forwarding(config.http.trusted_proxies)
        self._bodies = bodies
        self._read = 0  # bytes of large bodies since garbage was last looked for

    def seen(self, scope: Scope) -> Scope:
        """A request as it came to the first of the operator's own proxies. Whatever they say, the host that we are
        called by must be one of ours: else a page that a browser was led to could name another. Raises `Refused`."""
        told = self.forwarding.told(scope)
        if not told:
            return scope
        if told.is_unclear:
            raise Refused(400, "Forwarded and X-Forwarded-… name different clients: have the proxy remove one of them")
        changed = dict(scope)
        if told.address:
            changed["client"] = told.address, 0
        if told.scheme:
            changed["scheme"] = told.scheme
        if told.host:
            self._check_host(era_headers.read(scope["headers"])[0])
            changed["headers"] = [
                (name, told.host.encode("latin-1") if name == b"host" else value) for name, value in scope["headers"]
            ]
        return changed

    async def admit(
        self, scope: Scope, receive: Receive, connection: Connection | None, came: Parted | None = None
    ) -> Request:
        """Who a client is comes first: to who is nobody, all paths are alike. `connection` is what it came on, where
        that is known, and `came` what it was there. Raises `Refused`."""
        if came and connection and (known := self.known(came)):
            self.came_on(connection, known.principal)
            return msgspec.structs.replace(known, receive=receive, body=came.body)
        headers, twice = self.check(scope)
        path: str = scope["path"].rstrip("/")
        principal = await self._who(scope, headers, path, connection)
        route, is_sse = self._find(path, principal)
        if not route:
            self._refuse_hidden(path, principal)
            raise Refused(404, f"Not found: {scope['path']}; the endpoint is /mcp")
        if route.is_strict:
            self._check_let_in(route, principal)
        accepted = _accepted(headers.get("accept", ""))
        cors = self.cors.headers(scope) if self.cors else ()
        return Request(scope, receive, route, principal, headers, *accepted, twice, is_sse, None, came, cors=cors)

    def lets_in(self, request: Request) -> bool:
        """Whether what is served at this path is still any business of this client."""
        try:
            self._check_let_in(request.route, request.principal)
        except Refused:
            return False
        return True

    def _check_let_in(self, route: Route, principal: Principal) -> None:
        try:
            self._gateway.check_let_in(route, principal)
        except Fault as fault:
            raise Refused(403, fault.message, data=fault.data()) from None

    def _refuse_hidden(self, path: str, principal: Principal) -> None:
        """Where nothing is served: the refusal of a server that this client could not see if there were one, so that
        nobody learns which there are."""
        rules = self._gateway.access.rules(principal)
        place = path.removesuffix(SSE)
        if rules and place.startswith(SERVERS) and not rules.sees(names.slug(place.removeprefix(SERVERS))):
            fault = Fault("ACCESS_DENIED", "Access denied: this client may not use that", reach="not_sent")
            raise Refused(403, fault.message, data=fault.data())

    async def admit_admin(self, scope: Scope, receive: Receive, path: str) -> Request:
        """A request that steers the gateway itself; a token must be for this path. Raises `Refused`."""
        headers, _ = self.check(scope)
        principal = await self._who(scope, headers, path, connection_of(scope))
        self.check_administrator(principal)
        return Request(scope, receive, self._gateway.route("/mcp"), principal, headers)

    def check_administrator(self, principal: Principal) -> None:
        """Raises `Refused` for who is none, or is none any more."""
        if not self.is_administrator(principal):
            raise Refused(403, f"Only an administrator may do that: {WHO_ADMINISTERS}; web pages may not")

    async def administrator(self, key: str, scope: Scope, path: str) -> Principal:
        """Who has typed that key into a page of our own; a token must be for this path. Raises `Refused`,
        `Unauthorized`."""
        address, _ = scope.get("client") or ("", 0)
        principal = await self._identify({"authorization": f"Bearer {key}"}, address, path)
        if not self.is_administrator(principal):
            raise Refused(403, f"Only an administrator may do that: {WHO_ADMINISTERS}")
        return principal

    @property
    def page_sign_in(self) -> PageSignIn | None:
        """None where somebody else says who a client is, who embeds the gateway."""
        return self._identify.page_sign_in if isinstance(self._identify, Admission) else None

    def is_administrator(self, principal: Principal) -> bool:
        """Whether who was let in once would be let in still, and may steer the gateway."""
        is_known = not isinstance(self._identify, Admission) or self._identify.knows(principal)
        return is_known and self._gateway.access.may_administer(principal)

    def admit_page(self, scope: Scope) -> Headers:
        """The headers of a request for a page of our own, whose forms come back from there only. Raises `Refused`."""
        headers, twice = era_headers.read(scope["headers"])
        if twice:
            _refuse_two(twice)
        self._check_host(headers)
        origin = headers.get("origin")
        if origin is not None and not _is_of(origin, headers):
            raise Refused(403, f"Origin {origin!r} is not the origin of this page")
        return headers

    def _find(self, path: str, principal: Principal) -> tuple[Route | None, bool]:
        """What is served at a path to this client, and whether by the transport of 2024-11-05."""
        snapshot = self._gateway.snapshot
        is_sse = path not in snapshot.routes and path.endswith(SSE)
        if is_sse:
            path = path.removesuffix(SSE) or ENDPOINT
        rules = self._gateway.access.rules(principal)
        if rules and path == ENDPOINT:
            path = endpoint(rules.surface)
        found = snapshot.routes.get(path)
        if rules and found and path.startswith(bundle.PATH) and not found.seen_by(rules):
            return None, is_sse  # nobody learns which there are
        return found, is_sse

    async def _who(self, scope: Scope, headers: Headers, path: str, connection: Connection | None) -> Principal:
        if "authorization" in headers and [name for name, _ in scope["headers"]].count(b"authorization") > 1:
            raise Refused(400, "duplicate Authorization header")
        client = scope.get("client") or ("",)
        if isinstance(client, Operator):
            return THE_OPERATOR
        try:
            principal = await self._identify(headers, client[0], path)
        except Unauthorized as unauthorized:
            raise refused(unauthorized) from None
        if connection:
            self.came_on(connection, principal)
        shown = headers.get("authorization") if principal.via else None  # a program of its own may go by another header
        if shown and self._callers.learn(shown, principal) and connection:
            self._scheduler.is_known(Principal(address=client[0]).counted_as, principal.counted_as)
        return principal

    def came_on(self, connection: Connection, principal: Principal) -> None:
        """A connection has brought a request of somebody who was let in."""
        if connection.principal is not principal:
            connection.admitted(principal)

    def known(self, came: Parted) -> Request | None:
        """What the head of a request means, where it is known and the time is not over of what was shown in it."""
        known = self._known_heads.by_head.get(came.head)
        expires = known and known.principal.expires
        if not known or (expires is not None and self._clock.wall() >= expires):
            return None
        if came.varying:
            return msgspec.structs.replace(known, headers={**known.headers, **came.varying})
        return known

    def remember(self, request: Request, came: Parted, body: bytes) -> None:
        """What the head of a request means, which was let in and read. What somebody else decides, who embeds the
        gateway, may be decided otherwise the next time."""
        is_decided_here = isinstance(self._identify, Admission)
        if is_decided_here and came.body == body and is_plain(request.scope["http_version"], request.scope["headers"]):
            is_modern = modern.speaks_modern(request.headers.get(era_headers.VERSION), jsonrpc.NOTHING)
            scope = {key: each for key, each in request.scope.items() if key != "state"}  # which has all of this one
            is_whole = not (request.accepts_events_only or request.twice or request.principal.expires is not None)
            own = {"active_request": None, "came": None, "is_modern": is_modern, "is_whole": is_whole}
            known = msgspec.structs.replace(request, scope=scope, receive=_nothing, **own)
            self._known_heads.learn(came, known, request.principal.counted_as)

    def check(self, scope: Scope) -> tuple[Headers, str | None]:
        """The headers of a request, as `era_headers.read` has them; against pages that a browser was led to (DNS
        rebinding), the host and the origin must be known ones. Raises `Refused`."""
        headers, twice = era_headers.read(scope["headers"])
        if twice:
            _refuse_two(twice)
        self._check_host(headers)
        origin = headers.get("origin")
        if origin is not None and not self._takes_page(origin, scope, headers):
            raise Refused(403, f"Origin {origin!r} is not allowed; add it to http.allowed_origins")
        return headers, twice

    def _takes_page(self, origin: str, scope: Scope, headers: Headers) -> bool:
        """Whether requests of a page are heard. One of another web server on this machine can only send some, and reads
        nothing, but of a WebSocket it would: browsers do not ask whether it may."""
        if origin in self.allowed_origins:
            return True
        is_local = self._config.http.host in LOOPBACK and _is_page_of_loopback(origin)
        return is_local and (scope["type"] != "websocket" or _is_of(origin, headers))

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        if self._hosts and host not in self._hosts and _hostname(host) not in self._hosts:
            raise Refused(403, f"Host {host!r} is not allowed; add it to http.allowed_hosts")

    async def read(self, request: Request) -> bytes:
        """The body. Some of what is over the limit is read too, and dropped: most clients send all before they listen,
        and would find a broken connection instead of the refusal. Raises `Refused`, and `Unauthorized` where the time
        of what was shown with its head is over by then."""
        if self._gateway.access.is_open and not _is_json(request.headers.get("content-type", "")):
            raise Refused(415, "Content-Type must be application/json: any web page can send other types")
        limit = self._config.http.body_limit
        declared = request.headers.get("content-length", "")
        announced = int(declared[:20]) if declared.isdecimal() else 0
        if announced > limit and (announced > limit + OVERFLOW_READ or "expect" in request.headers):
            raise _too_large(limit, is_unread=True)
        first = await request.receive()
        body: bytes = first.get("body", b"")
        if first["type"] != "http.request" or first.get("more_body") or len(body) > min(SHORT, limit):
            body = await self._read_rest(request, first, limit)  # else it is all, as nearly always
        expires = request.principal.expires
        if expires is not None and self._clock.wall() >= expires:
            raise is_over()
        return body

    async def _read_rest(self, request: Request, first: MutableMapping[str, Any], limit: int) -> bytes:
        body, size, beginning = await self._whole(request, first, limit)
        if size > LARGE:
            self._collect_after(size)
        turn = partial(self._scheduler.turn, request.principal.counted_as)
        if size > SHORT:
            looked = await looked_through(body, most := self._gateway.snapshot.config.most_values, turn)
            if looked.has_more:
                why = f"Request body too large: {too_many_values(most)}"
                raise Refused(413, why, id=jsonrpc.salvaged(beginning)[0])
            request.is_shallow = looked.is_shallow
        return await as_text(body, turn)

    async def _whole(
        self, request: Request, first: MutableMapping[str, Any] | None, limit: int
    ) -> tuple[bytes, int, bytes]:
        """A body of which this has come first; its size and its beginning."""
        chunks: list[bytes] = []
        beginning = b""
        size, more, head = 0, True, 0  # it is kept as long as the body comes
        kept: Body | None = None
        try:
            while more and size <= limit + OVERFLOW_READ:
                part, first = first or await request.receive(), None
                if part["type"] == "http.disconnect":
                    raise Refused(400, "The client disconnected")
                chunk, more = part.get("body", b""), part.get("more_body", False)
                size += len(chunk)
                beginning = beginning or chunk[:LONGEST_BEGINNING]
                if size > limit:
                    chunks.clear()
                    if kept:
                        kept.ended()
                    continue
                chunks.append(chunk)
                if more:
                    if not kept:
                        kept = self._bodies.begun(request.principal.counted_as)
                        head = sum(len(name) + len(value) + OF_LINE for name, value in request.scope["headers"])
                        if head > LARGE_HEAD and not kept.has(head):  # not to be read on would not make it less
                            raise Refused(429, "Too many requests with a large head are not finished: end some first")
                    if not kept.has(size + head):
                        await kept.room()
            if size > limit:
                raise _too_large(limit, is_unread=more, id=jsonrpc.salvaged(beginning)[0])
            return chunks[0] if len(chunks) == 1 else b"".join(chunks), size, beginning
        finally:
            if kept:
                kept.ended()

    def _collect_after(self, size: int) -> None:
        """Should large bodies be left in cycles after all, they are collected by their bytes: Python counts objects."""
        self._read += size
        if self._read > COLLECTED:
            self._read = 0
            gc.collect()


async def read_form(receive: Receive, longest: int) -> Mapping[str, str]:
    """The body of a form of ours, as browsers send it; `longest` in bytes. Of fields of one name the last one counts.
    Raises `Refused`."""
    body, more = b"", True
    while more:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise Refused(400, "The client disconnected")
        body, more = body + part.get("body", b""), part.get("more_body", False)
        if len(body) > longest:
            raise Refused(413, f"Form too large: the limit is {longest} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise Refused(400, "Invalid form") from None


async def _nothing() -> MutableMapping[str, Any]:
    """Nothing comes."""
    return {"type": "http.disconnect"}


class Looked(NamedTuple):
    """`has_more` values than may be read; `is_shallow`: it is known that it is not nested too deep."""

    has_more: bool
    is_shallow: bool


async def looked_through(data: bytes, most: int, take_turn: TakeTurn) -> Looked:
    """What a message is like, before it is read. Of what is large others wait for no more than a part, and what comes
    out of several threads in one round of the loop is gone on with by turns."""
    if len(data) <= LARGE:
        return Looked(counting.has_more_values(data, most), is_shallow=False)
    looked = await asyncio.to_thread(_looked, data, most)
    await take_turn()
    return looked


def _looked(data: bytes, most: int) -> Looked:
    has_more = counting.has_more_values(data, most)
    return Looked(has_more, is_shallow=not has_more and not counting.is_deeper(data, jsonrpc.DEEPEST))


async def as_text(data: bytes, take_turn: TakeTurn) -> bytes:
    """JSON that keeps no lone surrogates where it is large. Each piece of it takes a turn of its sender."""
    pieces: list[bytes] = []
    for piece in surrogates.replacing(data) if len(data) > surrogates.EXACT else ():
        pieces.append(piece)
        await take_turn()
    return b"".join(pieces) or data


def too_many_values(most: int) -> str:
    return f"it has more than {most:,} JSON values (limits.values)"


def connection_of(scope: Scope) -> Connection | None:
    """That which a request came on, where a server of ours serves it."""
    state = scope.get("state")
    return state.get(STATE) if state else None


def endpoint(surface: str | None) -> str:
    """Where the endpoint leads a client with that surface of its own."""
    return f"{ENDPOINT}/{surface}" if surface else ENDPOINT


def refused(unauthorized: Unauthorized) -> Refused:
    found = Refused(unauthorized.status, unauthorized.message)
    if unauthorized.challenge:
        found.headers = [(b"www-authenticate", unauthorized.challenge.encode())]
    return found


def _served_hosts(config: Config) -> frozenset[str]:
    """The values of `Host` that are served, with or without their port; none where any is."""
    http = config.http
    if http.host not in LOOPBACK and not http.allowed_hosts:
        return frozenset()
    return LOOPBACK | {http.host} | {host.lower() for host in http.allowed_hosts}


@lru_cache(maxsize=64)  # a gateway is called by few names
def _hostname(host: str) -> str:
    """Of a `Host`, the host alone; empty for what has more in it than a host and a port: URL readers differ on that."""
    found = _host.fullmatch(host)
    return (found[1] or found[2]) if found else ""


_host = re.compile(r"(?:([a-z0-9._-]+)|\[([0-9a-f:.]+)\])(?::[0-9]*)?", re.IGNORECASE)


@lru_cache(maxsize=64)
def _is_page_of_loopback(origin: str) -> bool:
    """Whether it is a page of a web server on this machine, and not, for example, an extension of that name."""
    scheme, _, host = origin.partition("://")
    return scheme in ("http", "https") and _hostname(host) in LOOPBACK


def _is_of(origin: str, headers: Headers) -> bool:
    """Whether it is that of the very host and port that a request names as ours."""
    return origin.lower().partition("://")[2] == headers.get("host", "").lower()


def _refuse_two(twice: str) -> None:
    """Of what decides whether a request is let in there is one."""
    if twice in era_headers.ONCE:
        raise Refused(400, f"Duplicate {twice.title()} header")


@lru_cache(maxsize=64)
def _accepted(accept: str) -> tuple[bool, bool]:
    """Whether a client takes streams, and whether nothing else."""
    accepted = accept.lower()
    streams = "text/event-stream" in accepted
    return streams, streams and not any(each in accepted for each in ("application/json", "*/*", "application/*"))


@lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _too_large(limit: int, is_unread: bool, id: bytes = b"null") -> Refused:
    refused = Refused(413, f"Request body too large: the limit is {limit} bytes (http.body_limit)", id=id)
    if is_unread:
        refused.headers = [(b"connection", b"close")]
    return refused


def not_allowed(methods: str) -> Refused:
    refused = Refused(405, f"Method not allowed; use {methods}")
    refused.headers = [(b"allow", methods.encode())]
    return refused
