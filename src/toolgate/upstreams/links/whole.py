"""Requests over HTTP to one server, each answered as a whole: for kinds of servers that speak no MCP.

The rules this file keeps: a request ends with its answer, with the client, or when nobody waits for it any more, and
its connection with it; of an answer no more is kept than is allowed; how far a request got is told truthfully.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import msgspec

from toolgate.auth.safe_net import Dial
from toolgate.core import sse
from toolgate.core.bodies import FREE, Kept
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault, Reach, Words
from toolgate.core.inflow import IntakeQueue
from toolgate.core.redaction import LONGEST_QUOTED
from toolgate.upstreams import diagnosis
from toolgate.upstreams.links.base import LONGEST_MESSAGE
from toolgate.upstreams.links.http1 import ConnectionPool, Target, Wire
from toolgate.upstreams.links.places import Places, of_server

MOST_OF_A_REFUSAL = LONGEST_QUOTED + 1  # bytes that are kept of an answer that is none: the last says that it is cut


class WholeAnswer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    location: str = ""
    kept: Kept | None = None  # as what a result counts


class Lost(Exception):
    """No answer came; `str()` says why. `is_meant`: the server was stopped on purpose."""

    def __init__(self, reason: str, reach: Reach, is_meant: bool = False, words: Words | None = None) -> None:
        super().__init__(reason)
        self.words = words
        self.reach: Reach = reach
        self.is_meant = is_meant


class _Reply:
    """One answer on its way."""

    def __init__(self, most: int, wire: Wire, kept: Kept | None) -> None:
        self.answer: asyncio.Future[WholeAnswer] = asyncio.get_running_loop().create_future()
        self._most = most
        self._wire = wire
        self._kept = kept
        self._counted = 0  # bytes
        self._status = 0
        self._location = ""
        self._body = bytearray()

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status
        self._location = headers.get(b"location", b"").decode("latin-1")

    def body(self, chunk: bytes) -> None:
        self._body += chunk
        has_succeeded = 200 <= self._status < 300
        most = self._most if has_succeeded else MOST_OF_A_REFUSAL
        if len(self._body) > most:
            if has_succeeded:
                self.fail(Lost(f"its answer has more than {most} bytes", "executed"))
            del self._body[most:]
            self.complete()
            raise sse.TooLong(f"more than {most} bytes")
        if self._kept and len(self._body) - self._counted > FREE:
            self._counted = len(self._body)
            self._wire.keeps(self._kept.body, self._counted)

    def complete(self) -> None:
        if not self.answer.done():
            self.answer.set_result(WholeAnswer(self._status, bytes(self._body), self._location, self._kept))

    def lost(self, reason: str) -> None:
        self.fail(Lost(f"the connection broke before the answer was complete ({reason})", "sent_unknown"))

    def fail(self, why: Lost) -> None:
        if not self.answer.done():
            self.answer.set_exception(why)


class HttpClient:
    """Raises `ValueError` for what is no URL. `headers` go with each request. `turns` and `places` are those of all
    servers, which `server` takes by its id; for a place it waits `patience` seconds."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        clock: Clock,
        dial: Dial,
        turns: IntakeQueue,
        places: Places,
        server: str,
        patience: float,
    ) -> None:
        self.url = url
        self._headers = headers
        self._server = server
        self._pool = ConnectionPool(Target(url), clock, dial, turns, places, server, patience)
        self._waiting: set[_Reply] = set()
        self.answered = 0  # requests
        self._end = ""  # why it was closed

    def __str__(self) -> str:
        """Where it leads, for people: without what may be secret."""
        target = self._pool.target
        return f"{'https' if target.tls else 'http'}://{target.authority}{target.path.partition('?')[0]}"

    def head(self, method: str, path: str = "", has_body: bool = False) -> bytes:
        """The head of a request, as `ask` takes it. `path` stands behind the URL, in front of its query."""
        address, question, query = self.url.partition("?")
        target = Target(address.rstrip("/") + path + question + query) if path else self._pool.target
        told = {"Content-Type": "application/json", **self._headers} if has_body else self._headers
        return method.encode() + target.prefix("application/json", told) + b"\r\n"

    async def ask(
        self,
        head: bytes,
        body: bytes | None = None,
        whose: str = "",
        most: int | None = None,
        kept: Kept | None = None,
    ) -> WholeAnswer:
        """Send one request, for this principal. Where it is nobody's, it goes over a connection of its own, which
        cannot be out of date. `most` bytes of the answer are read, else as many as a message may have. Raises `Lost`,
        or `Fault` where no further connection can be had."""
        try:
            wire = await (self._pool.take(whose) if whose else self._pool.connect(of_server(self._server)))
        except (OSError, UnicodeError) as error:  # UnicodeError: of a name that cannot be one of a host
            if diagnosis.is_our_lack(error):
                raise Fault("RATE_LIMITED", f"Cannot reach {self}: {_reason(error)}", reach="not_sent") from None
            raise Lost(f"Cannot reach {self}: {_reason(error)}", "not_sent") from None
        if self._end:
            wire.close()
            raise Lost(self._end, "not_sent")
        reply = _Reply(LONGEST_MESSAGE if most is None else most, wire, kept)
        self._waiting.add(reply)
        length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
        wire.send(head + length + b"\r\n", body or b"", reply)
        try:
            answer = await reply.answer
            self.answered += 1
            return answer
        except (asyncio.CancelledError, Lost):
            self._pool.abandon(wire)
            raise
        finally:
            self._waiting.discard(reply)

    def serves(self, answered: int) -> bool:
        """Whether requests are under way, or any was answered since so many had been."""
        return bool(self._waiting) or self.answered != answered

    def close(self, reason: str, is_meant: bool = False) -> None:
        """End it with all that is under way."""
        self._end = reason
        for reply in list(self._waiting):
            reply.fail(Lost(reason, "sent_unknown", is_meant))
        self._pool.close()


def _reason(error: OSError | UnicodeError) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number and number > 0:
        return os.strerror(number)
    return str(error) or "no answer"
