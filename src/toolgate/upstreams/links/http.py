"""A link over Streamable HTTP: every message is a POST, and what comes back on it belongs to that request.

Spec: basic/transports of 2025-03-26 to 2026-07-28. The session id, where a server gives one, is the link's business;
revision and routing headers are the era's, and come with each message. Once somebody listens, streams are followed
(`streams`): the one of what the server says by itself, and those of requests that broke before their answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import msgspec

from toolgate.auth.oauth.base import Refusal
from toolgate.auth.oauth.credentials import UpstreamCredential
from toolgate.auth.safe_net import Dial
from toolgate.config import Server
from toolgate.core import internal_errors, jsonrpc, sse
from toolgate.core.bodies import FREE, Bodies
from toolgate.core.clock import Clock, Timer
from toolgate.core.complaints import Complaints
from toolgate.core.fault import Fault, Reach, Words
from toolgate.core.inflow import IntakeQueue
from toolgate.core.large import Gathering, Whole
from toolgate.upstreams.concurrency import busy
from toolgate.upstreams.links.base import AUTHORIZATION, LONGEST_MESSAGE, Headers, Link, Receiver
from toolgate.upstreams.links.disowned import is_disowned
from toolgate.upstreams.links.http1 import (
    CONNECT_TIMEOUT,
    JSON,
    ConnectionPool,
    KnownHead,
    Target,
    WholeReader,
    Wire,
    without_ours,
)
from toolgate.upstreams.links.http1 import ResponseReader as Reader
from toolgate.upstreams.links.places import Places, of_server
from toolgate.upstreams.links.receipts import Receipts
from toolgate.upstreams.links.refusals import (
    credentials_hint,
    fault,
    is_rpc_error,
    moved_hint,
    refused,
    said,
    unreachable,
)
from toolgate.upstreams.links.session_check import SessionCheck
from toolgate.upstreams.links.sse import SseLink
from toolgate.upstreams.links.streams import LONGEST_ID, Cursor, Following, is_stream

log = logging.getLogger(__name__)

FALL_BACK_PATIENCE = 10.0  # seconds in which an older server says where messages go
LONGEST_BODY = LONGEST_MESSAGE
LONGEST_UNAWAITED = 1024 * 1024  # bytes of what can be no answer that is waited for: a note has no more
SOON = 1.0  # seconds from what came on no request's own stream until what that may have answered is let go of
_LINE = b"\r\n"
_NO_SUCH_ENDPOINT = frozenset({400, 404, 405})  # what servers of the transport of 2024-11-05 say to a POST
MOST_TRIES = 2  # times that a message is sent again with other credentials: for a token, and for one that allows more


class Attempt(msgspec.Struct, frozen=True):
    """A message on its way, with what it shows."""

    data: bytes
    headers: Headers
    shown: str
    tries: int = 0


class HttpLink:
    """`credential` is what the server is shown beside its configured headers, if anything; `unended` counts what all
    servers have begun to send, for the older transport."""

    signs_of_life: int | None = None
    discovers = True

    def __init__(
        self,
        server: Server,
        receiver: Receiver,
        clock: Clock,
        dial: Dial,
        turns: IntakeQueue,
        places: Places,
        credential: UpstreamCredential | None = None,
        complaints: Complaints | None = None,
        unended: Bodies | None = None,
    ) -> None:
        self._unended = unended
        self._server = server
        self._receiver = receiver
        self._complaints = complaints
        self.awaits = receiver.awaits
        self._clock = clock
        self._dial = dial
        self._turns = turns
        self._places = places
        self._credential = credential
        self._trying: dict[asyncio.Task[None], int | None] = {}  # messages that wait for other credentials
        self._pool = ConnectionPool(
            Target(server.url), clock, dial, turns, places, server.id, server.timeout, self._is_needless
        )
        self._receipts = Receipts(clock)
        self._check = SessionCheck(clock, self._pool, partial(self._in_session, b"POST"), self._forgotten)
        self._session: bytes | None = None
        self._named: bytes | None = None  # the session that the newest answer to a request named
        self._is_forgotten = False  # by the server: our session
        target, told = self._pool.target, server.headers
        self._prefix = target.prefix(
            "application/json, text/event-stream", {"Content-Type": "application/json", **told}
        )
        self._get_prefix = target.prefix("text/event-stream", told)
        self._last_head: tuple[Headers, bytes | None, bytes] = (), None, b""  # of a POST: what it was made of, and it
        self._streams: dict[int, Wire | Following] = {}
        self._next_look: Timer | None = None  # at which of these are for nobody any more
        self._listening: Following | None = None
        self._opening = asyncio.Lock()
        self._listener: Headers | None = None  # the headers of its GETs; None where nobody listens
        self._was_understood = False
        self._refusals: set[int] = set()
        self._closed = False

    def describe(self) -> dict[str, object]:
        return {"url": self._server.url}

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        if self._credential:
            await self._try(Attempt(data, headers, await self._credential.shown()), origin)
            return
        await self._send(data, headers, origin, _Reply(self, origin))

    def send_now(self, data: bytes, headers: Headers, origin: int, whose: str) -> bool:
        wire = None if self._credential else self._pool.take_now(whose)
        if not wire:
            return False
        self._streams[origin] = wire
        self._write(wire, data, headers, _Reply(self, origin))
        return True

    async def _try(self, attempt: Attempt, origin: int | None) -> None:
        headers = (*attempt.headers, *_authorization(attempt.shown))
        await self._send(attempt.data, headers, origin, _Judged(self, origin, attempt))

    async def _send(self, data: bytes, headers: Headers, origin: int | None, reply: _Reply) -> None:
        if origin is None:
            wire = await self._taken_for_message(reply)
        else:
            wire = await self._taken(self._receiver.whose(origin))
            if not self._receiver.awaits(origin):
                self._pool.give_back(wire)
                raise busy(self._server.name)
            self._streams[origin] = wire
        self._write(wire, data, headers, reply)

    def _write(self, wire: Wire, data: bytes, headers: Headers, reply: _Reply) -> None:
        told, session, head = self._last_head  # of a POST, without its length: many in a row have the same
        if not head or told is not headers or session is not self._session:
            head = self._head(b"POST" + self._prefix, headers)[: -len(_LINE)]
            self._last_head = headers, self._session, head
        reply.wire = wire
        wire.send(b"%bContent-Length: %d\r\n\r\n" % (head, len(data)), data, reply)

    async def _taken_for_message(self, reply: _Reply) -> Wire:
        await self._receipts.expect(reply)
        try:
            return await self._taken(of_server(self._server.id))
        except BaseException:
            self._receipts.note(reply)
            raise

    async def _taken(self, whose: str) -> Wire:
        try:
            return await self._pool.take(whose)
        except (OSError, TimeoutError) as error:
            raise unreachable(self._server, error) from None

    def accepted(self) -> None:
        self._session = self._named

    async def listen(self, headers: Headers) -> None:
        await self._receipts.all()
        while self._trying:
            await asyncio.wait(self._trying)
            await self._receipts.all()
        self._listener = headers

        def over(status: int) -> None:
            log.debug("%s offers no stream for its own messages: HTTP %d", self._server.name, status)
            if status == 404 and listening.was_accepted and self._session:
                self._forgotten()

        listening = self._listening = self._follow(None, lambda: not self._is_forgotten, over, Cursor())

    def _follow(
        self, origin: int | None, is_wanted: Callable[[], bool], over: Callable[[int], None], cursor: Cursor
    ) -> Following:
        def hear(data: Whole) -> asyncio.Future[None] | None:
            return self.received(data, origin)

        def keeps(size: int) -> None:
            self.keeps(origin, size)

        ask = partial(self._get, self._receiver.whose(origin))
        longest = LONGEST_UNAWAITED if origin is None else LONGEST_BODY
        return Following(self._clock, ask, hear, is_wanted, over, cursor, longest, keeps)

    async def fall_back(self) -> Link | None:
        """The transport of 2024-11-05 at the same URL, as its revisions say (basic/transports, "Backwards
        Compatibility")."""
        if self._was_understood or not self._refusals or not self._refusals <= _NO_SUCH_ENDPOINT:
            return None
        server, receiver, clock = self._server, self._receiver, self._clock
        other = SseLink(server, receiver, clock, self._dial, self._turns, self._places, self._credential, self._unended)
        try:
            await other.connect(min(FALL_BACK_PATIENCE, server.start_timeout))
        except Fault as refused:
            log.debug("%s", refused.message)
            return None
        self._closed = True
        self._pool.close()
        return other

    def replace(self, why: str) -> None:
        """Each request has its own connection."""

    def abandon(self, origin: int) -> bool:
        for task in [task for task, of in self._trying.items() if of == origin]:
            task.cancel()
        stream = self._streams.pop(origin, None)
        if isinstance(stream, Wire):
            self._pool.abandon(stream)
        elif stream:
            stream.close()
        return True

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._check.close()
        if self._next_look:
            self._next_look.cancel()
        for task in self._trying:
            task.cancel()
        await asyncio.gather(*self._trying, return_exceptions=True)
        await asyncio.gather(*(stream.closed() for stream in self._followed()))
        if self._session and not self._is_forgotten:
            await self._end_session()
        self._pool.close()
        self._receiver.closed(fault(self._server, f"{self._server.name} was closed", "sent_unknown"))

    async def _end_session(self) -> None:
        """Tell the server; whether it hears is its own business (it may answer 405)."""
        try:
            async with self._clock.timeout(CONNECT_TIMEOUT):
                await self._in_session(b"DELETE", b"", _Reply(self, None))
        except (OSError, TimeoutError, Fault):
            log.debug("could not tell %s that its session has ended", self._server.name)

    async def _in_session(self, verb: bytes, data: bytes, reply: Reader) -> Wire:
        """Send what is the link's own business. Raises as `ConnectionPool.take` does."""
        shown = _authorization(await self._credential.shown()) if self._credential else ()
        start, length = (verb + self._prefix, len(data)) if data else (verb + self._get_prefix, None)
        wire = await self._pool.take(of_server(self._server.id))
        wire.send(self._head(start, (*(self._listener or ()), *shown), length), data, reply)
        return wire

    def _followed(self) -> list[Following]:
        streams = [stream for stream in self._streams.values() if isinstance(stream, Following)]
        return [*streams, self._listening] if self._listening else streams

    def _head(self, start: bytes, headers: Headers, length: int | None = None) -> bytes:
        """`length` is that of the body, None where there is none."""
        lines = [without_ours(start) if any(name == b"user-agent" for name, _ in headers) else start]
        lines += [name + b": " + value for name, value in headers]
        if self._session:
            lines.append(b"Mcp-Session-Id: " + self._session)
        if length is not None:
            lines.append(b"Content-Length: %d" % length)
        return _LINE.join(lines) + _LINE + _LINE

    async def _get(self, whose: str, headers: Headers, reply: Reader) -> Wire:
        """Ask for a stream, on a connection of its own: one in each round of the event loop, since a server may end a
        thousand streams at once."""
        async with self._opening:
            await asyncio.sleep(0)
        shown = _authorization(await self._credential.shown()) if self._credential else ()
        wire = await self._pool.connect(whose)
        wire.send(self._head(b"GET" + self._get_prefix, (*(self._listener or ()), *headers, *shown)), b"", reply)
        return wire

    def try_again(self, origin: int | None, attempt: Attempt, refusal: Refusal) -> None:
        """A server was shown too little: what else there is is shown, if there is anything."""

        async def work() -> None:
            assert self._credential
            try:
                shown = await self._credential.refused(refusal)
                await self._try(msgspec.structs.replace(attempt, shown=shown, tries=attempt.tries + 1), origin)
                return
            except Fault as error:
                failed = error
            except Exception as error:  # the rescue: the call that waits hears that none comes
                if internal_errors.takes(error):
                    log.error("a sign-in at %s failed because of an internal error", self._server.name, exc_info=error)
                failed = fault(self._server, f"Internal error: {type(error).__name__}", "not_sent", "INTERNAL")
            if origin is not None:
                self._receiver.failed(origin, failed)
            else:
                log.info("%s", failed.code)

        task = asyncio.get_running_loop().create_task(work(), name=f"credentials for {self._server.id}")
        self._trying[task] = origin
        task.add_done_callback(lambda done: self._trying.pop(done, None))

    # What replies call.

    def _is_needless(self, reply: Reader) -> bool:
        """Whether a reply has all that it is for."""
        return isinstance(reply, _Reply) and (reply.origin is None or not self.awaits(reply.origin))

    def answered_in(self, session: bytes | None) -> None:
        """The session that a successful answer to a request named. An id without end would go with each request."""
        if session and len(session) > LONGEST_ID:
            if not self._complaints or self._complaints.takes(self._server.id):
                log.warning("%s sent a session id of %d characters; ignored", self._server.name, len(session))
            session = None
        self._named = session

    def done(self, reply: _Reply) -> None:
        if reply.origin is not None:
            self._streams.pop(reply.origin, None)
        else:
            self._receipts.note(reply)

    def received(self, data: Whole, origin: int | None) -> asyncio.Future[None] | None:
        self._was_understood = True
        until = self._receiver.received(data, origin)
        if self._streams and not self._next_look and (origin is None or not self.awaits(origin)):
            self._look_soon()
        return until

    def _look_soon(self) -> None:
        if not self._closed:
            self._next_look = self._clock.call_later(SOON, self._let_go_of_answered)

    def _let_go_of_answered(self) -> None:
        """What came may have been the answer to a request on whose own stream a message has begun, which would be kept
        for nobody; or on whose stream its server goes on. One that is about to end has until the next look: its
        connection is used again. A server may say much that is no answer, and each look is at all that is under way."""
        self._next_look = None
        for origin in [origin for origin in self._streams if not self.awaits(origin)]:
            stream = self._streams[origin]
            reply = stream.reply if isinstance(stream, Wire) else None
            if not isinstance(reply, _Reply) or reply.is_late or reply.kept > LONGEST_UNAWAITED:
                self.abandon(origin)
            else:
                reply.is_late = True
                if not self._next_look:
                    self._look_soon()

    def answered(self, origin: int, session: bytes | None, body: bytes) -> None:
        """A request was answered with 200, and all of that is here."""
        came_over = self._streams.pop(origin, None)
        if session or self._named:
            self.answered_in(session)
        if body:
            self._was_understood = True
            self._receiver.received(body, origin)
        if self.awaits(origin):
            self.broke_without(origin, 200, body, came_over)

    def broke_without(self, origin: int, status: int, body: Whole, came_over: Wire | Following | None) -> None:
        """A request's own response has ended, and the answer was not in it. What is in it may be that to another."""
        out_of_step(came_over)
        words = said(body, self._server.id, is_own=False)
        self.broke(origin, f"sent HTTP {status} with no answer in it", words=words)

    def keeps(self, origin: int | None, size: int) -> None:
        """So much is kept of what comes on a request's own stream."""
        stream = self._streams.get(origin) if origin is not None else None
        wire = stream.wire if isinstance(stream, Following) else stream
        if wire and origin is not None and (body := self._receiver.counts(origin)):
            wire.keeps(body, size)

    def broke_off(self, origin: int | None, cursor: Cursor, what: str) -> None:
        """A request's stream ended, maybe before its answer came."""
        may_go_on = self._listener is not None and cursor.last is not None and not self._closed
        if origin is None or not may_go_on or not self._receiver.awaits(origin):
            self.broke(origin, what)
            return

        def over(status: int) -> None:
            self._streams.pop(origin, None)
            self._tell(status, lambda: self.broke(origin, f"{what} and did not resume it: HTTP {status}"))

        self._streams[origin] = self._follow(origin, lambda: self._receiver.awaits(origin), over, cursor)

    def refused(
        self, origin: int | None, status: int, body: bytes, location: str = "", wire: Wire | None = None
    ) -> None:
        """An HTTP error. A JSON-RPC error in its body is the server's own answer, unless it is that to another."""
        if origin is not None and not self._session and status in _NO_SUCH_ENDPOINT:
            self._receiver.refused(origin)
        is_anothers = origin is not None and answers_another(body, origin)
        if is_anothers:
            out_of_step(wire)
        is_404 = status == 404 and self._session is not None
        if self._session and is_disowned(status, body, self._session.decode("latin-1")):
            message = self._forgotten()
            if origin is not None:
                self._receiver.failed(origin, fault(self._server, message, "not_sent", "SESSION_ERROR"))
        elif origin is not None and not is_anothers and is_rpc_error(body, to=origin if is_404 else None):
            self.received(body, origin)
        else:
            self._refusals.add(status)
            hint = credentials_hint(status, self._server) or moved_hint(
                status, self._server.url, location, self._server.id
            )
            refusal = refused(self._server, status, body, hint, is_own=not is_anothers)
            self._tell(status, lambda: self._failed(origin, refusal))

    def _tell(self, status: int, tell: Callable[[], None]) -> None:
        """Tell of a refusal; of one that may mean that the session is lost, when that is clear."""
        if status == 404 and self._session and not (self._is_forgotten or self._closed):
            self._check.before(tell, self._session.decode("latin-1"))
        else:
            tell()

    def broke(self, origin: int | None, what: str, reach: Reach = "sent_unknown", words: Words | None = None) -> None:
        """The server did this instead of answering. No matter where it has answered."""
        self._failed(origin, fault(self._server, f"{self._server.name} {what}", reach, words=words))

    def _failed(self, origin: int | None, fault: Fault) -> None:
        if origin is not None:
            self._receiver.failed(origin, fault)
        else:
            log.info("%s", fault.told().message)

    def _forgotten(self) -> str:
        """The server has lost the session: nothing can be sent in it, and there is nothing to hear."""
        message = f"{self._server.name} has lost the session"
        if not self._is_forgotten:
            self._is_forgotten = True
            self._pool.drain()
            if self._listening:
                self._listening.close()
            self._receiver.retired(fault(self._server, message, "sent_unknown"))
        return message


_TOKENS = 32  # up to the id, and to what shows that it is an answer


def out_of_step(came_over: Wire | Following | None) -> None:
    """The answer to one request came as that to another: the next request on this connection would be told that of the
    one before, and so on."""
    if isinstance(came_over, Wire) and not came_over.reply:
        came_over.close()


def answers_another(body: Whole, origin: int) -> bool:
    """Whether this says so in its beginning: by the id of an earlier request. Servers that do not know to what they
    answer write all sorts of things there."""
    id, is_answer = jsonrpc.salvaged(bytes(body[: jsonrpc.SALVAGED + 1]), tokens=_TOKENS)
    return is_answer and id.isdigit() and 0 < int(id) < origin


def _is_request(data: bytes) -> bool:
    try:
        return jsonrpc.decode(data).is_request
    except jsonrpc.Malformed:
        return False


class _Reply(WholeReader):
    """One response: a JSON body, a stream of events, or an error."""

    wire: Wire | None = None  # that it comes over
    _status = 0
    _body = b""
    _more: Gathering | None = None  # once there are several chunks
    _size = 0
    _counted = 0  # bytes of it
    _location = b""
    _events: sse.Reader | None = None
    _cursor: Cursor | None = None  # where there are events
    is_late = False  # it was still under way some time after its request was answered

    def __init__(self, link: HttpLink, origin: int | None) -> None:
        self.origin = origin
        self._link = link

    @property
    def kept(self) -> int:
        """Bytes of what has not come whole."""
        return self._events.kept if self._events else self._size

    @property
    def _longest(self) -> int:
        is_awaited = self.origin is not None and self._link.awaits(self.origin)
        return LONGEST_BODY if is_awaited else LONGEST_UNAWAITED

    def whole(self, head: KnownHead, body: bytes) -> None:
        if self.origin is not None and head.is_json:
            self._link.answered(self.origin, head.session, body)
        else:
            self.head(200, head.headers)
            self.body(body)
            self.complete()

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status
        if status >= 300:
            self._location = headers.get(b"location", b"")
        elif self.origin is not None:
            self._link.answered_in(headers.get(b"mcp-session-id"))
        if headers.get(b"content-type") != JSON and is_stream(status, headers):
            self._cursor = Cursor()

    def body(self, chunk: bytes) -> None:
        if self._cursor:
            self._stream(self._cursor, chunk)
            return
        self._size += len(chunk)
        if self._size > LONGEST_UNAWAITED and self._status >= 300:
            self.complete()  # with what is read of a refusal, where all others wait
            raise sse.TooLong(f"a refusal of more than {LONGEST_UNAWAITED} bytes")
        if self._size > LONGEST_UNAWAITED and self._size > (longest := self._longest):
            self._body, self._more, self._size = b"", None, 0
            self._too_long(f"an answer of more than {longest} bytes", "executed")
        elif self._size == len(chunk):
            self._body = chunk
        else:
            if self._more is None:
                self._more, self._body = Gathering(self._body), b""
            self._more.add(chunk)
        if self._size - self._counted > FREE:
            self._count(self._size)

    def _count(self, size: int) -> None:
        """So much is kept of what is still to end."""
        self._link.keeps(self.origin, size)
        self._counted = size

    def _heard(self, origin: int, status: int, body: Whole) -> None:
        """What came on a request's own response, which is at its end."""
        if len(body) > FREE and answers_another(body, origin):  # it is read elsewhere, and later
            out_of_step(self.wire)
        if body:
            self._link.received(body, origin)
        if self._link.awaits(origin):
            self._link.broke_without(origin, status, body, self.wire)

    def _received(self, data: Whole) -> None:
        """A request is on the stream of what it belongs to, or on that for which it is listened. On the answer to what
        wants none (a notification, or an answer of ours) it would be of no call, and each answer could bring more."""
        if self.origin is None and _is_request(bytes(data)):
            log.info("ignored a request in the answer to a notification")
            return
        until = self._link.received(data, self.origin)
        if until and self.wire:
            self.wire.intake.hold_until(until)

    def _stream(self, cursor: Cursor, chunk: bytes) -> None:
        events = self._events
        if not events:
            if len(chunk) <= FREE and (data := sse.alone(chunk)):
                self._received(data)
                return
            events = self._events = sse.Reader(self._longest, in_file=self.origin is not None)
        try:
            for event in events.feed(chunk):
                cursor.note(event)
                if event.data and event.event == "message":
                    self._received(event.data)
            events.limit = self._longest
        except sse.TooLong as error:
            self._too_long(str(error))
        if events.kept - self._counted > FREE:
            self._count(events.kept)

    def _too_long(self, what: str, reach: Reach = "sent_unknown") -> NoReturn:
        """Nobody waits for the rest."""
        self._link.done(self)
        self._link.broke(self.origin, f"sent {what}", reach)
        raise sse.TooLong(what)

    def complete(self) -> None:
        self._link.done(self)
        body = self._more.taken() if self._more else self._body
        self._body, self._more = b"", None
        if self._status >= 300:
            self._link.refused(self.origin, self._status, bytes(body), self._location.decode("latin-1"), self.wire)
        elif self._cursor:
            if self.origin is not None and self._link.awaits(self.origin):
                out_of_step(self.wire)
            self._link.broke_off(self.origin, self._cursor, "ended its stream without an answer")
        else:
            if self.origin is not None:
                self._heard(self.origin, self._status, body)
            elif body:
                self._received(body)

    def lost(self, reason: str) -> None:
        self._link.done(self)
        what = f"broke the connection: {reason}"
        if self._cursor:
            self._link.broke_off(self.origin, self._cursor, what)
        else:
            self._link.broke(self.origin, what)


class _Judged(_Reply):
    """A response to a message that shows who sends it: what it shows may be too little."""

    def __init__(self, link: HttpLink, origin: int | None, attempt: Attempt) -> None:
        super().__init__(link, origin)
        self._attempt = attempt
        self._refusal: Refusal | None = None

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        super().head(status, headers)
        challenge = headers.get(b"www-authenticate", b"").decode("latin-1")
        if self._attempt.tries < MOST_TRIES and (
            status == 401 or (status == 403 and "insufficient_scope" in challenge)
        ):
            self._refusal = Refusal(status, challenge, self._attempt.shown)

    def complete(self) -> None:
        if self._refusal:
            self._link.done(self)
            self._link.try_again(self.origin, self._attempt, self._refusal)
        else:
            super().complete()


def _authorization(shown: str) -> Headers:
    return ((AUTHORIZATION, shown.encode()),) if shown else ()
