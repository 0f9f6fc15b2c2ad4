"""A client's WebSocket on a socket: frames are taken a piece at a time, and little is kept of a message without end.

In 256 KiB there are 43,690 empty frames, which take half a second, and pings are answered where they are read. The
rules this file keeps: nothing is taken while messages wait to be heard, or answers to be read; what is kept of a
message that is still to end is a body (`bodies`), and has the same time to end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from toolgate.core.bodies import Bodies, Body
from toolgate.core.fault import let_go
from toolgate.core.inflow import Intake, IntakeQueue, PacedProtocol
from toolgate.frontends.connections import STATE, Connection

if TYPE_CHECKING:
    from websockets.frames import Frame

MOST_FRAMES = 8192  # that one message is sent in
PATIENCE = 120.0  # seconds for the rest of a message
NO_TEXT, TOO_BIG = 1007, 1009

log = logging.getLogger(__name__)


class _Unfinished:
    """A message that is still to end. More of it is read when there is room for that, and all of it has its time."""

    def __init__(self, bodies: Bodies, connection: Connection, intake: Intake, abort: Callable[[], None]) -> None:
        self._bodies = bodies
        self._connection = connection
        self._intake = intake
        self._abort = abort
        self._loop = asyncio.get_running_loop()
        self._body: Body | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def has(self, size: int) -> None:
        """So many bytes of it have come, with what is kept of a frame."""
        if size > self._bodies.free:
            self._keep(size)
        elif self._body:
            self.ended()

    def _keep(self, size: int) -> None:
        if not self._body:
            self._body = self._bodies.begun(self._connection.backlog.key)
            self._timer = self._loop.call_later(PATIENCE, self._abort)
        if not self._body.has(size) and not self._waiting:
            self._intake.hold(self._body)
            self._waiting = self._loop.create_task(self._read_on(self._body))

    async def _read_on(self, body: Body) -> None:
        await body.room()
        self._waiting = None
        self._intake.let_go(body)

    def ended(self) -> None:
        if self._waiting:
            self._waiting.cancel()
        if self._timer:
            self._timer.cancel()
        if self._body:
            self._intake.let_go(self._body)
            self._body.ended()
        self._body = self._timer = self._waiting = None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_NO_OPENING = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"  # it has a body


@cache
def paced_socket() -> Callable[..., asyncio.Protocol]:
    """The class of such connections. `websockets` is imported for it."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class PacedSocket(PacedProtocol, WebSocketsSansIOProtocol):
        _size = 0  # bytes of the message that is still to end, in frames that have come whole

        def __init__(self, bodies: Bodies, turns: IntakeQueue, **given: Any) -> None:
            super().__init__(**given)
            self.turns = turns
            self._bodies = bodies
            self._connection: Connection = self.app_state[STATE]

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.client, self.server = self._connection.client, self._connection.server  # type: ignore[assignment]
            self.scheme = "wss" if self._connection.is_encrypted else "ws"
            self._unfinished = _Unfinished(self._bodies, self._connection, self.intake, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self.intake.drop()
            self._unfinished.ended()
            self._connection.closed()
            super().connection_lost(exc)
            self.intake.forget()  # else they hold each other, as the library's parser and what it has read do
            self.frames = []
            self.conn.reader.buffer.clear()
            self.conn.parser.close()
            for error in filter(None, (self.conn.parser_exc, self.conn.handshake_exc)):
                let_go(error)

        def whose(self) -> str:
            return self._connection.backlog.key

        def pause_writing(self) -> None:
            super().pause_writing()
            self._connection.backlog.full()

        def resume_writing(self) -> None:
            self._connection.backlog.drained()
            super().resume_writing()

        async def send(self, message: Any) -> None:
            await super().send(message)
            if message["type"] == "websocket.accept":  # what it was opened with is needed no more, and may be large
                self.request.headers.clear()
                self.scope["headers"] = []
            if self.initial_response and self.close_sent:
                self.handshake_complete = True  # a refusal is an answer, too: uvicorn logs an error else

        # What has been taken out of a frame is not left in it: the library's parser keeps the last one.

        def handle_cont(self, event: Frame) -> None:
            self._size += len(event.data)
            super().handle_cont(event)
            event.data = b""
            if len(self.frames) == MOST_FRAMES + 1:
                self.conn.fail(TOO_BIG, "too many frames")
                self.handle_parser_exception()

        def handle_text(self, event: Frame) -> None:
            self._size = len(event.data)
            super().handle_text(event)
            event.data = b""

        def handle_bytes(self, event: Frame) -> None:
            self._size = len(event.data)
            super().handle_bytes(event)
            event.data = b""

        def send_receive_event_to_app(self) -> None:
            self._size = 0
            if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(b"".join(self.frames)):
                self.frames = []
                self._refuse_letters()
                return
            super().send_receive_event_to_app()

        def _refuse_letters(self) -> None:
            """Here, since `uvicorn` logs an error for it, with a traceback and without an address."""
            address = self.client[0] if self.client else "a client"
            log.info("%s sent text that is not UTF-8: its WebSocket is closed", address)
            self.conn.send_close(NO_TEXT)
            self.handle_parser_exception()

        def take(self, piece: bytes) -> None:
            super().take(piece)
            if self.conn.handshake_exc and not self.handshake_initiated:  # no opening, and uvicorn answers none
                self.intake.drop()
                self.transport.write(b"".join(self.conn.data_to_send()) or _NO_OPENING)
                self.transport.close()
                return
            self._unfinished.has(self._size + len(self.conn.reader.buffer))

    return PacedSocket
