"""Whether a server still knows our session, where a 404 does not say so by its words: a `ping` in the session tells.

The protocol has 404 for a session that is lost. A server may also say it of what one client asks for, and the session
is everybody's. The rule this file keeps: one ping at a time, for however many want to know; and only a refusal of the
ping itself shows that the session is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

from toolgate.core import jsonrpc, sse
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.upstreams.links.disowned import is_disowned
from toolgate.upstreams.links.http1 import ConnectionPool, ResponseReader, Wire
from toolgate.upstreams.links.refusals import is_rpc_error

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds in which a ping is refused, or the session counts as known
LONGEST_ANSWER = 64 * 1024  # bytes that are read of what is said to it

Post = Callable[[bytes, ResponseReader], Awaitable[Wire]]


class SessionCheck:
    """`post` sends a message in the session, and raises as a link's `send` does; `lost` is called where the ping is
    refused."""

    def __init__(self, clock: Clock, pool: ConnectionPool, post: Post, lost: Callable[[], object]) -> None:
        self._clock = clock
        self._pool = pool
        self._post = post
        self._lost = lost
        self._ids = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[Callable[[], None]] = []

    def before(self, tell: Callable[[], None], session: str) -> None:
        """Ping, unless that is under way, then call `tell`: what is sent again goes where it may be taken. `session` is
        its id, or a text in which it stands."""
        self._waiting.append(tell)
        if not self._task:
            self._task = asyncio.get_running_loop().create_task(self._check(session), name="check a session")

    def close(self) -> None:
        """Nobody wants to know any more."""
        self._waiting.clear()
        if self._task:
            self._task.cancel()

    async def _check(self, session: str) -> None:
        is_lost = await self._is_lost(session)
        self._task, waiting, self._waiting = None, self._waiting, []
        for tell in waiting:
            tell()
        if is_lost:
            self._lost()

    async def _is_lost(self, session: str) -> bool:
        id = f"session-check-{next(self._ids)}"  # a word, so that it is no other request's
        reply, wire = _Answer(), None
        try:
            async with self._clock.timeout(PATIENCE):
                wire = await self._post(jsonrpc.encode({"jsonrpc": "2.0", "id": id, "method": "ping"}), reply)
                await reply.over.wait()
        except (OSError, TimeoutError, Fault) as error:
            log.debug("no answer to a ping: %s", error)
        finally:
            if wire and not reply.over.is_set():
                self._pool.abandon(wire)
        body = bytes(reply.body_read)
        is_refused = reply.status == 404 and not is_rpc_error(body, to=id)
        return is_refused or is_disowned(reply.status, body, session)


class _Answer:
    """What is said to a ping."""

    def __init__(self) -> None:
        self.status = 0
        self.body_read = bytearray()
        self.over = asyncio.Event()

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def body(self, chunk: bytes) -> None:
        self.body_read += chunk
        if len(self.body_read) > LONGEST_ANSWER:
            self.complete()
            raise sse.TooLong(f"more than {LONGEST_ANSWER} bytes")

    def complete(self) -> None:
        self.over.set()

    def lost(self, reason: str) -> None:
        self.status = 0
        self.complete()
