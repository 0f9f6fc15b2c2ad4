"""A link over HTTP+SSE, the transport of 2024-11-05: one stream of events brings everything, messages go out as POSTs.

The rules this file keeps: the stream is the connection, and with it the link is over; messages go nowhere but to the
origin of the URL that was configured. Spec: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import asyncio
import logging
import re
from urllib.parse import urljoin

from toolgate.auth.oauth.base import Refusal
from toolgate.auth.oauth.credentials import UpstreamCredential
from toolgate.auth.safe_net import Dial
from toolgate.config import Server, masking
from toolgate.core import sse
from toolgate.core.bodies import Bodies
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.inflow import Intake, IntakeQueue
from toolgate.core.redaction import excerpt
from toolgate.upstreams.concurrency import busy
from toolgate.upstreams.links.base import AUTHORIZATION, LONGEST_MESSAGE, Headers, PipeLink, Receiver
from toolgate.upstreams.links.disowned import is_disowned
from toolgate.upstreams.links.http1 import ConnectionPool, ResponseReader, Target, Wire
from toolgate.upstreams.links.places import Places, of_server
from toolgate.upstreams.links.receipts import Receipts
from toolgate.upstreams.links.refusals import credentials_hint, fault, is_rpc_error, refused, said, unreachable
from toolgate.upstreams.links.session_check import SessionCheck
from toolgate.upstreams.links.streams import is_stream
from toolgate.upstreams.links.unended import Unended

log = logging.getLogger(__name__)

_visible = re.compile(r"[\x21-\x7e]{1,8192}")  # as servers take paths
MOST_TRIES = 3  # to open the stream: with what we have, for a token, and for one that allows more
LONGEST_ENDPOINT = 8192  # characters; what takes URLs apart keeps what it has read
_LONGEST_REFUSAL = 64 * 1024  # bytes that are read of it


class _Refused(Exception):
    """There is no stream for what was shown."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self.refusal = refusal


class SseLink(PipeLink):
    """`credential` is what the server is shown beside its configured headers, if anything; `unended` counts events that
    have begun, of all servers."""

    signs_of_life: int | None = None
    discovers = False

    def __init__(
        self,
        server: Server,
        receiver: Receiver,
        clock: Clock,
        dial: Dial,
        turns: IntakeQueue,
        places: Places,
        credential: UpstreamCredential | None = None,
        unended: Bodies | None = None,
    ) -> None:
        self._bodies = unended or Bodies()
        self._unended: Unended | None = None  # an event of the stream
        self._credential = credential
        self._server = server
        self._receiver = receiver
        self._clock = clock
        self._pool = ConnectionPool(
            Target(server.url), clock, dial, turns, places, server.id, server.timeout, self._is_needless
        )
        self._endpoint: asyncio.Future[Target] = asyncio.get_running_loop().create_future()
        self._where = ""  # messages go; it names the session
        self._prefix = b""
        self._receipts = Receipts(clock)
        self._check = SessionCheck(clock, self._pool, self._ping, self._lost_session)
        self._posts: dict[int, Wire] = {}
        self._stream: Wire | None = None
        self._is_over = False

    async def connect(self, patience: float) -> None:
        """Open the stream, and hear where messages go, within so many seconds. Raises `Fault`."""
        try:
            async with self._clock.timeout(patience):
                endpoint = await self._opened()
        except TimeoutError:
            self._end()
            what = f"{masking.url(self._server.url)} did not send its message endpoint within {patience:g} s"
            raise fault(self._server, what, "not_sent") from None
        except OSError as error:
            self._end()
            raise unreachable(self._server, error) from None
        except BaseException:
            self._end()
            raise
        self._where = endpoint.path
        self._prefix = b"POST" + endpoint.prefix("*/*", {"Content-Type": "application/json"} | self._told)

    async def _opened(self) -> Target:
        shown = await self._credential.shown() if self._credential else ""
        for last in range(MOST_TRIES):
            wire = self._stream = await self._pool.connect(self._receiver.whose(None))
            told = {"Cache-Control": "no-store"} | self._told | ({"Authorization": shown} if shown else {})
            head = self._pool.target.prefix("text/event-stream", told)
            may_ask = self._credential is not None and last < MOST_TRIES - 1
            wire.send(b"GET" + head + b"\r\n\r\n", b"", _Stream(self, self.counting(wire.intake), shown, may_ask))
            try:
                return await self._endpoint
            except _Refused as refused:
                assert self._credential
                shown = await self._credential.refused(refused.refusal)
                self._endpoint = asyncio.get_running_loop().create_future()
        raise AssertionError("the last try ends otherwise")

    def counting(self, intake: Intake) -> Unended:
        """What counts the event that the stream, which is read by this intake, has begun."""
        self._unended = Unended(self._bodies, self._server.id, intake)
        return self._unended

    @property
    def _told(self) -> dict[str, str]:
        return dict(self._server.headers)

    def send_now(self, data: bytes, headers: Headers, origin: int, whose: str) -> bool:
        return False

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        if self._is_over:
            raise fault(self._server, f"Server not started: {self._server.name} has ended", "not_sent", "SESSION_ERROR")
        if self._credential and (shown := await self._credential.shown()):
            headers = (*headers, (AUTHORIZATION, shown.encode()))
        receipt = _Receipt(self, origin)
        if origin is None:
            await self._receipts.expect(receipt)
        try:
            wire = await self._pool.take(of_server(self._server.id) if origin is None else self._receiver.whose(origin))
        except BaseException as error:
            self._receipts.note(receipt)
            if isinstance(error, (OSError, TimeoutError)):
                raise unreachable(self._server, error) from None
            raise
        if origin is not None:
            if not self._receiver.awaits(origin):
                self._pool.give_back(wire)
                raise busy(self._server.name)
            self._posts[origin] = wire
        wire.send(self._head(headers, len(data)), data, receipt)

    def _head(self, headers: Headers, length: int) -> bytes:
        lines = [self._prefix, *(name + b": " + value for name, value in headers), b"Content-Length: %d" % length]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    async def _ping(self, data: bytes, answer: ResponseReader) -> Wire:
        shown = await self._credential.shown() if self._credential else ""
        wire = await self._pool.take(of_server(self._server.id))
        wire.send(self._head(((AUTHORIZATION, shown.encode()),) if shown else (), len(data)), data, answer)
        return wire

    async def listen(self, headers: Headers) -> None:
        await self._receipts.all()

    def abandon(self, origin: int) -> bool:
        wire = self._posts.pop(origin, None)
        if wire:
            self._pool.abandon(wire)
        return False

    def describe(self) -> dict[str, object]:
        return {"url": self._server.url}

    async def close(self) -> None:
        self.over("was closed")

    def _end(self) -> None:
        self._is_over = True
        if self._unended:
            self._unended.ended()
        self._check.close()
        self._pool.close()
        self._receipts.close()

    # What the stream and the answers to POSTs call.

    def event(self, event: sse.Event) -> None:
        if event.event == "endpoint" and not self._endpoint.done():
            self._find(bytes(event.data).decode(errors="replace"))
        elif event.event == "message" and event.data:
            reading = self._receiver.received(event.data, None)
            if reading and self._stream:
                self._stream.intake.hold_until(reading)

    def _find(self, written: str) -> None:
        """A stream that names another origin would have our headers sent there."""
        url, told = self._server.url, masking.url(self._server.url)
        try:
            endpoint = Target(urljoin(url, written)) if len(written) <= LONGEST_ENDPOINT else None
        except ValueError:
            endpoint = None
        if endpoint and endpoint.origin == self._pool.target.origin and _visible.fullmatch(endpoint.path):
            self._endpoint.set_result(endpoint)
        else:
            given = excerpt(written, server=self._server.id)
            self.refused(f"gave the message endpoint {given!r}, which is not at {told}")

    def refused(self, what: str, hint: str = "") -> None:
        """There is no stream."""
        if not self._endpoint.done():
            self._endpoint.set_exception(fault(self._server, f"{self._server.name} {what}", "not_sent", hint=hint))

    def no_stream(self, status: int) -> None:
        self.refused(f"answered HTTP {status} without an event stream", credentials_hint(status, self._server))

    def challenged(self, refusal: Refusal) -> None:
        """There is no stream for what was shown."""
        if not self._endpoint.done():
            self._endpoint.set_exception(_Refused(refusal))

    def over(self, what: str) -> None:
        """The stream is, and with it everything."""
        was_open = self._endpoint.done() and not self._endpoint.cancelled() and not self._endpoint.exception()
        self.refused(what)
        if was_open and not self._is_over:
            self._end()
            self._receiver.closed(fault(self._server, f"{self._server.name} {what}", "sent_unknown"))

    def _is_needless(self, reply: ResponseReader) -> bool:
        """Whether a message was answered, or wants no answer, whatever becomes of its receipt."""
        return isinstance(reply, _Receipt) and (reply.origin is None or not self._receiver.awaits(reply.origin))

    def over_with(self, receipt: _Receipt) -> None:
        if receipt.origin is not None:
            self._posts.pop(receipt.origin, None)
        else:
            self._receipts.note(receipt)

    def not_taken(self, origin: int | None, status: int, body: bytes) -> None:
        """An HTTP error to a message. A JSON-RPC error in its body is the server's own answer. Where the server
        does not know our session, or rejected the credentials, only another stream helps."""
        is_unknown = is_disowned(status, body, self._where)
        wants_others = status == 401 and self._credential is not None
        if not is_unknown and origin is not None and is_rpc_error(body):
            self._receiver.received(body, origin)
            return
        if is_unknown or wants_others:
            message, words = f"{self._server.name} answered HTTP {status}", said(body, self._server.id)
            self._failed(origin, fault(self._server, message, "not_sent", "SESSION_ERROR", words=words))
            self.over("has lost the session" if is_unknown else "rejected the credentials")
            return
        refusal = refused(self._server, status, body, credentials_hint(status, self._server))
        if status == 404 and not self._is_over:
            self._check.before(lambda: self._failed(origin, refusal), self._where)
        else:
            self._failed(origin, refusal)

    def _failed(self, origin: int | None, fault: Fault) -> None:
        if origin is not None:
            self._receiver.failed(origin, fault)
        else:
            log.info("%s", fault.told().message)

    def _lost_session(self) -> None:
        self.over("has lost the session")

    def lost(self, origin: int | None, reason: str) -> None:
        if origin is not None:
            message = f"{self._server.name} broke the connection: {reason}"
            self._receiver.failed(origin, fault(self._server, message, "sent_unknown"))


class _Stream:
    """What comes by the stream."""

    def __init__(self, link: SseLink, unended: Unended, shown: str, may_ask: bool) -> None:
        self._link = link
        self._unended = unended
        self._shown = shown
        self._may_ask = may_ask
        self._was_refused = False
        self._events: sse.Reader | None = None

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        if is_stream(status, headers):
            self._events = sse.Reader(LONGEST_MESSAGE)
        elif self._may_ask and status in (401, 403):
            self._was_refused = True
            self._link.challenged(Refusal(status, headers.get(b"www-authenticate", b"").decode("latin-1"), self._shown))
        else:
            self._link.no_stream(status)

    def body(self, chunk: bytes) -> None:
        if not self._events:
            raise sse.TooLong("nobody reads more of a refusal than its head")
        try:
            for event in self._events.feed(chunk):
                self._link.event(event)
        except sse.TooLong as error:
            self._link.over(f"sent {error}")
            raise
        self._unended.keeps(self._events.kept)

    def complete(self) -> None:
        if not self._was_refused:
            self._link.over("ended its stream")

    def lost(self, reason: str) -> None:
        if not self._was_refused:
            self._link.over(f"broke its stream: {reason}")


class _Receipt:
    """The answer to a POST, which says only whether the message was taken."""

    def __init__(self, link: SseLink, origin: int | None) -> None:
        self._link = link
        self.origin = origin
        self._status = 0
        self._body = bytearray()  # in one piece: chunks may be of one byte

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status

    def body(self, chunk: bytes) -> None:
        self._body += chunk
        if len(self._body) > _LONGEST_REFUSAL:
            self.complete()
            raise sse.TooLong(f"more than {_LONGEST_REFUSAL} bytes")

    def complete(self) -> None:
        self._link.over_with(self)
        if self._status >= 300:
            self._link.not_taken(self.origin, self._status, bytes(self._body))

    def lost(self, reason: str) -> None:
        self._link.over_with(self)
        self._link.lost(self.origin, reason)
