"""A link: the duplex pipe of messages to one MCP server, whatever carries it.

A link knows bytes and requests, not what they mean. `origin` is the id of the request on whose own stream
something happened; None where the carrier cannot tell (stdio), or where it belongs to no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from toolgate.core.bodies import Body
from toolgate.core.fault import Fault
from toolgate.core.large import Whole

AUTHORIZATION = b"Authorization"
LONGEST_MESSAGE = 32 * 1024 * 1024  # bytes; what is longer is not read: each look at so many takes 20 ms

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


def _uncounted(_origin: int) -> None:
    """Nobody minds how large an answer is."""


class Receiver(msgspec.Struct, frozen=True):
    """Whom a link tells of what comes; none of these functions may raise. `principal` is whom the connection is for;
    empty where all share it. The numbers are the ids of requests.

    whose     whose places and turns a request takes, or with None the connection itself: see `Principal.counted_as`,
              and `places.of_server`
    received  one message, or what should be one, and the request on whose own stream it came; before what it returns is
              done, nothing more is to be read there: a large one that others wait behind is being read, or clients are
              being told of what the server has said before
    awaits    whether an answer to this request is still waited for
    failed    no answer to this request will come; the link itself lives on
    retired   nothing more can be sent; what is under way may still be answered
    closed    the link is over
    counts    as what the answer to this request counts while it is read; None where it does not
    refused   a request that came in no session was refused as HTTP servers refuse what is of no revision of theirs, too
    """

    principal: str
    whose: Callable[[int | None], str]
    received: Callable[[Whole, int | None], asyncio.Future[None] | None]
    awaits: Callable[[int], bool]
    failed: Callable[[int, Fault], None]
    retired: Callable[[Fault], None]
    closed: Callable[[Fault], None]
    counts: Callable[[int], Body | None] = _uncounted
    refused: Callable[[int], None] = _uncounted


class Link(Protocol):
    """What carries messages to one server and back; made by a row of `kinds.LINKS`, owned by its `Requests`."""

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None:
        """Send one message; `origin` is its id where it is a request, which is not sent where nobody awaits its answer
        any more by then. Raises `Fault` with the reach `not_sent`."""
        ...

    def send_now(self, data: bytes, headers: Headers, origin: int, whose: str) -> bool:
        """Send a request whose answer is awaited, if nothing has to be waited for; whether it is sent. `whose` it is:
        see `Receiver.whose`. Raises as `send` does."""
        ...

    def accepted(self) -> None:
        """The server has just answered `initialize` with a result: the session that it named, if any, is ours."""
        ...

    async def listen(self, headers: Headers) -> None:
        """The handshake is done. Return when the server has taken its last message, so that no request overtakes that;
        then hear what the server says on its own account, where that has to be asked for, with these headers. What
        breaks from here on may be taken up again."""
        ...

    async def fall_back(self) -> Link | None:
        """Another link to the same server, where it refused all that came over this one as no request of its kind."""
        ...

    @property
    def discovers(self) -> bool:
        """False where what is reached this way is of the handshake era, and need not be asked."""
        ...

    @property
    def signs_of_life(self) -> int | None:
        """How often anything came from a process that may be slow to start, its stderr included; None where a request
        is answered or refused at once."""
        ...

    def abandon(self, origin: int) -> bool:
        """Stop waiting for an answer. True where that alone tells the server (its stream was closed)."""
        ...

    def replace(self, why: str) -> None:
        """End a process that lives and says nothing; `why` is told behind its name. Else nothing is done: what is
        reached over the network answers to its own pings and time limits."""
        ...

    def describe(self) -> dict[str, object]:
        """What a status shows: pid, stderr, url."""
        ...

    async def close(self) -> None:
        """End it for good, and what carries it: a process, its connections."""
        ...


class PipeLink:
    """What links have in common that carry everything both ways on one connection."""

    def send_now(self, data: bytes, headers: Headers, origin: int, whose: str) -> bool:
        return False

    def accepted(self) -> None:
        """The connection is the session."""

    async def listen(self, headers: Headers) -> None:
        """Messages arrive in the order in which they were sent, and all that the server says comes unasked."""

    async def fall_back(self) -> Link | None:
        return None

    def abandon(self, origin: int) -> bool:
        return False

    def replace(self, why: str) -> None:
        """Nothing here is ours to end but the connection."""
