"""Connections that go both ways over the network: WebSocket, and the transport of 2024-11-05 (HTTP with SSE).

Both are thin carriers of a `Conversation`. The rules this file keeps: a connection ends what was begun on it; its id,
where it has one, cannot be guessed and is its principal's alone; a client that does not read is cut off; and one that
has many keeps nobody out who has fewer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from toolgate.core import sse
from toolgate.core.clock import Clock
from toolgate.core.fairness import Shares
from toolgate.core.model import Principal
from toolgate.frontends.channels import shows_no_less
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.duplex import Conversation
from toolgate.frontends.guards import SHORT, Refused, Request, as_text, connection_of, looked_through
from toolgate.frontends.scheduling import Scheduler
from toolgate.frontends.sessions import new_session
from toolgate.frontends.streams import QUIET, Outbox, Response, Send, gone, relay, until_any
from toolgate.frontends.unread import FREE, Backlog
from toolgate.frontends.ways import Way

SUBPROTOCOL = "mcp"
SESSION = "session_id"  # the parameter that names the connection which a POST belongs to
MOST_WAITING = 64 * 1024 * 1024  # bytes that may wait for a client before it is cut off
PATIENCE = 60.0  # seconds that a client of a WebSocket may take to read one message

# Why a WebSocket was closed (RFC 6455, section 7.4.1).
GOING_AWAY, NO_BINARY, TOO_BIG = 1001, 1003, 1009


class Pipe:
    """One connection: a conversation, and what waits to go out."""

    def __init__(
        self,
        deps: FrontendDeps,
        principal: Principal,
        path: str,
        way: Way,
        backlog: Backlog | None,
        scheduler: Scheduler,
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.principal = principal
        self.path = path
        self.backlog = backlog
        self.outbox = Outbox(can_stream=True, can_ask=True, backlog=backlog)
        self.is_cut_off = asyncio.Event()
        session = new_session(deps, path, principal)
        in_order = partial(scheduler.in_order, principal.counted_as)
        self.conversation = Conversation(deps, session, way, self._write, self._backlog, self.outbox.end, in_order)

    def _write(self, message: bytes) -> None:
        self.outbox.send(message)
        if self.outbox.waiting > MOST_WAITING:
            self.is_cut_off.set()

    def _backlog(self) -> int:
        return self.outbox.waiting

    def writing(self, size: int) -> AbstractContextManager[None]:
        return self.backlog.writing(size) if self.backlog and size > FREE else nullcontext()

    async def cut_off(self) -> None:
        """Until the client has left too much unread."""
        await self.is_cut_off.wait()


class Pipes:
    """All such connections."""

    def __init__(self, deps: FrontendDeps, scheduler: Scheduler) -> None:
        self._deps = deps
        self._scheduler = scheduler
        self._config = deps.config
        self._clock = deps.clock
        self._open: dict[str, Pipe] = {}
        self._shares: Shares[Pipe] = Shares()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        self._is_closed = True
        for pipe in self._open.values():
            pipe.outbox.end()

    def under_way(self) -> list[asyncio.Task[Any]]:
        return [work for pipe in self._open.values() for work in pipe.conversation.under_way()]

    def find(self, request: Request) -> Conversation:
        """The conversation that a POST belongs to. Raises `Refused`."""
        id = request.asks_for(SESSION)
        if not id:
            raise Refused(
                400, f"This is the transport of 2024-11-05: open its stream with GET, which returns the {SESSION}"
            )
        pipe = self._open.get(id)
        is_found = pipe and request.principal.may_act_as(pipe.principal) and pipe.path == request.route.path
        if not pipe or not is_found or not shows_no_less(pipe.principal, request.principal):
            raise Refused(404, "Session not found: open the stream again")  # its answers are heard by who opened it
        pipe.conversation.session.is_shown(request.principal)
        return pipe.conversation

    async def stream(self, request: Request, way: Way, response: Response) -> None:
        """HTTP with SSE: the stream, which first names the place to post to."""
        with self._opened(request, way) as pipe:
            try:
                place = f"{request.scope['path']}?{SESSION}={pipe.id}"
                await response.begin(sse.event(place.encode(), name=b"endpoint"))
                await until_any(relay(response, pipe.outbox, self._clock), gone(request.receive), pipe.cut_off())
                await response.end()
            finally:
                await pipe.conversation.close()

    async def websocket(self, request: Request, way: Way, send: Send) -> None:
        with self._opened(request, way) as pipe:
            offered = request.scope.get("subprotocols", ())
            chosen = SUBPROTOCOL if SUBPROTOCOL in offered else None
            socket = _Socket(request, send, pipe, self._config.http.body_limit, self._clock, self._scheduler)
            try:
                await send({"type": "websocket.accept", "subprotocol": chosen})
                await until_any(socket.hear(), socket.speak(), pipe.cut_off())
            finally:
                await pipe.conversation.close()
        if not socket.is_gone and not pipe.is_cut_off.is_set():
            await send({"type": "websocket.close", "code": socket.code})

    @contextmanager
    def _opened(self, request: Request, way: Way) -> Generator[Pipe]:
        if self._is_closed or not self._makes_room_for(request.principal):
            raise Refused(503, "Too many connections")
        connection = connection_of(request.scope)
        backlog = connection.backlog if connection else None
        pipe = Pipe(self._deps, request.principal, request.route.path, way, backlog, self._scheduler)
        self._open[pipe.id] = pipe
        self._shares.put(pipe.principal.counted_as, pipe.id, pipe)
        try:
            yield pipe
        finally:
            self._forget(pipe)
            pipe.outbox.drop()  # a conversation is garbage of which little is found: it would keep what waits

    def _makes_room_for(self, principal: Principal) -> bool:
        """Where all are taken, who has the most loses the oldest to one who has fewer even with the one that comes."""
        if len(self._open) < self._config.sessions.max:
            return True
        if self._shares.most() <= self._shares.count(principal.counted_as) + 1:
            return False
        oldest = next(self._shares.greatest())
        self._forget(oldest)
        oldest.is_cut_off.set()
        return True

    def _forget(self, pipe: Pipe) -> None:
        if self._open.pop(pipe.id, None):
            self._shares.remove(pipe.principal.counted_as, pipe.id)


class _Socket:
    """Both directions of one WebSocket: a message is a text frame."""

    def __init__(
        self, request: Request, send: Send, pipe: Pipe, limit: int, clock: Clock, scheduler: Scheduler
    ) -> None:
        self._scheduler = scheduler
        self.code = GOING_AWAY
        self.is_gone = False
        self._receive = request.receive
        self._send = send
        self._pipe = pipe
        self._limit = limit
        self._clock = clock

    async def hear(self) -> None:
        while (data := self._read(await self._receive())) is not None:
            turn = partial(self._scheduler.turn, self._pipe.principal.counted_as)
            await turn()
            conversation = self._pipe.conversation
            if len(data) <= SHORT:
                conversation.received(data)
            elif (looked := await looked_through(data, most := conversation.most_values, turn)).has_more:
                conversation.refuse_as_too_many(data, most)
            else:
                await conversation.received_large(await as_text(data, turn), looked.is_shallow, turn)
            del data  # it may be large, and the next one may be long in coming

    def _read(self, frame: Mapping[str, Any]) -> bytes | None:
        """A message; None where there is none, and the connection ends."""
        if frame["type"] == "websocket.disconnect":
            self.is_gone = True
            return None
        text: str | None = frame.get("text")
        if text is None:
            self.code = NO_BINARY
            return None
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > self._limit:
            self.code = TOO_BIG
            return None
        return data

    async def speak(self) -> None:
        while True:
            try:
                message = await self._pipe.outbox.get(self._clock, QUIET)
            except TimeoutError:
                continue  # the server below looks whether the client lives
            if message is None:
                return
            try:
                async with self._clock.timeout(PATIENCE):
                    with self._pipe.writing(len(message)):
                        await self._send({"type": "websocket.send", "text": message.decode()})
            except TimeoutError:
                self._pipe.is_cut_off.set()
                return
            del message  # it may be large, and the next one may be long in coming
