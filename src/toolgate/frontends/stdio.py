"""The stdio door: one client, one message a line, both eras (spec: basic/transports/stdio).

A request whose `_meta` is modern is answered alone; all others belong to the one session of this connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from toolgate.config import Config
from toolgate.eras import calls, modern
from toolgate.frontends import face
from toolgate.frontends.modern import ModernFace
from toolgate.frontends.pages import Pages
from toolgate.frontends.session import Session
from toolgate.frontends.streams import NOTES_KEPT
from toolgate.gateway import Gateway
from toolgate.model import Principal
from toolgate.ports import Clock
from toolgate.snapshot import Route
from toolgate.wire import jsonrpc
from toolgate.wire.jsonrpc import Malformed, Message
from toolgate.wire.lines import Lines

log = logging.getLogger(__name__)

LAST_WORDS = 3.0  # seconds for answers under way when the client has closed its end


class StdioDoor(asyncio.Protocol):
    """Reads a pipe as its protocol; `write` gets each message that goes out, with its newline, and `backlog` tells how
    many bytes the client has not taken yet."""

    can_ask = True

    def __init__(
        self,
        gateway: Gateway,
        modern_face: ModernFace,
        pages: Pages,
        route: Route,
        config: Config,
        clock: Clock,
        write: Callable[[bytes], None],
        backlog: Callable[[], int],
    ) -> None:
        self.closed = asyncio.Event()
        self._modern = modern_face
        self._route = route
        self._limit = config.http.body_limit
        self._principal = Principal("local")
        self._session = Session(gateway, pages, route, self._principal, clock, ask_time=config.parking.ttl)
        self._session.listen(self)
        self._write = write
        self._backlog = backlog
        self._lines = Lines()
        self._clock = clock
        self._in_flight: dict[str | int | float, asyncio.Task[None]] = {}
        self._answers: set[asyncio.Task[bytes]] = set()  # the session's

    def send(self, message: bytes) -> None:
        self._write(jsonrpc.one_line(message) + b"\n")

    def note(self, message: bytes) -> None:
        if self._backlog() < NOTES_KEPT:
            self.send(message)

    def end(self) -> None:
        """Standard output ends with the process."""

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if len(line) > self._limit:
                self._refuse_as_too_large()
            elif line.strip():
                self._received(line)
        if self._lines.pending > self._limit:
            self._lines.drop()
            self._refuse_as_too_large()

    def eof_received(self) -> None:
        if self._lines.pending:
            self.data_received(b"\n")  # the last line may lack its end
        self.closed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.eof_received()

    async def finished(self) -> None:
        """Until the client has closed its end, and what it asked before is answered or has had its time."""
        await self.closed.wait()
        under_way = [*self._in_flight.values(), *self._answers]
        if not under_way:
            return
        try:
            async with self._clock.timeout(LAST_WORDS):
                await asyncio.wait(under_way)
        except TimeoutError:
            log.info("%d requests are given up: the client is gone", len(under_way))

    async def close(self) -> None:
        for task in list(self._in_flight.values()):
            task.cancel()
        await asyncio.gather(*self._in_flight.values(), return_exceptions=True)
        await self._session.close()

    def _refuse_as_too_large(self) -> None:
        message = f"Message too large: the limit is {self._limit} bytes (http.body_limit)"
        self.send(jsonrpc.error(b"null", jsonrpc.INVALID_REQUEST, message))

    def _received(self, line: bytes) -> None:
        try:
            message = jsonrpc.decode(line)
        except Malformed as error:
            self.send(face.write_malformed(error))
            return
        if message.is_response:
            self._session.answered(message)
        elif message.is_notification:
            self._notified(message)
        elif modern.speaks_modern(None, message.params):
            self._start(message)
        else:
            work = self._session.answer(message, self)
            self._answers.add(work)
            work.add_done_callback(self._answered)

    def _answered(self, done: asyncio.Task[bytes]) -> None:
        self._answers.discard(done)
        if not done.cancelled():
            self.send(done.result())

    def _notified(self, message: Message) -> None:
        self._session.notified(message)
        key = calls.read_cancelled(message)
        if key in self._in_flight:
            self._in_flight[key].cancel()

    def _start(self, message: Message) -> None:
        key = jsonrpc.id_key(message.id)
        if key in self._in_flight:
            self.send(face.write_reused(message))
            return
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self._in_flight[key] = task
        task.add_done_callback(lambda _done: self._in_flight.pop(key, None))

    async def _answer(self, message: Message) -> None:
        try:
            reply = await self._modern.answer(message, None, self._principal, self._route, self.note)
        except Exception as error:  # noqa: BLE001  the rescue: see face.rescued
            self.send(face.write_failed(bytes(message.id), error, modern.error_code))
            return
        self.send(jsonrpc.result(bytes(message.id), reply.body))
        self._modern.flushed(reply)
