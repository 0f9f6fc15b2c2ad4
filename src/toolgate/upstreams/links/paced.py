"""A connection of `websockets` that is read a piece at a time: in 256 KiB there are 131,072 empty frames, which take a
second, and pings are answered where they are read.

The rules this file keeps: nothing is taken while the queue of messages is full, or while its peer does not read what it
is sent, answers to its pings among that; a peer that reads nothing of that for long is given up, since it cannot be
sent a ping either; and a message that has begun counts with those of its server's other connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from toolgate.core.bodies import FREE, Bodies
from toolgate.core.fault import let_go
from toolgate.core.inflow import IntakeQueue, PacedProtocol
from toolgate.upstreams.links.unended import Unended

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.protocol import Event


@cache
def paced_connection() -> Callable[..., ClientConnection]:
    """The class of such connections, made with the turns that they take, what counts the messages that have begun, and
    the id of the server that they are of. `websockets` is imported for it."""
    from websockets.asyncio.client import ClientConnection
    from websockets.frames import Frame

    class PacedConnection(PacedProtocol, ClientConnection):
        def __init__(
            self, turns: IntakeQueue, begun: Bodies, server: str, *args: Any, unread: float | None = None, **given: Any
        ) -> None:
            """`unread`: seconds for which its peer may read nothing while something waits for it; None: any time."""
            super().__init__(*args, **given)
            self.turns = turns
            self._server = server
            self._begun = begun
            self._unread = unread
            self._look: asyncio.TimerHandle | None = None

        def whose(self) -> str:
            return self._server

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._unended = Unended(self._begun, self._server, self.intake)

        def take(self, piece: bytes) -> None:
            """Of what was refused, as a message that is too long, nobody reads on until the server closes."""
            super().take(piece)
            if self.protocol.parser_exc:
                self.intake.drop()
                self.transport.abort()
            size = len(self.protocol.reader.buffer) + (self.protocol.current_size or 0)
            if self._unended.size or size > FREE:
                self._unended.keeps(size)

        def process_event(self, event: Event) -> None:
            """The library's parser keeps a frame until the next one comes: what is in it goes on in another."""
            if isinstance(event, Frame):
                event, theirs = Frame(event.opcode, event.data, event.fin), event
                theirs.data = b""
            super().process_event(event)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._look_again()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._look_no_more()

        def _look_again(self) -> None:
            if self._unread is not None:
                size = self.transport.get_write_buffer_size()
                self._look = self.loop.call_later(self._unread, self._look_at, size)

        def _look_no_more(self) -> None:
            if self._look:
                self._look.cancel()
                self._look = None

        def _look_at(self, before: int) -> None:
            """What waits is no less than it was: nothing is added while it waits, but for a message."""
            if self.transport.get_write_buffer_size() < before:
                self._look_again()
                return
            self.set_connection_exc(TimeoutError("it does not read what it is sent"))
            self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._look_no_more()
            self.intake.finish(partial(self._lost, exc))

        def _lost(self, exc: Exception | None) -> None:
            self._unended.ended()
            super().connection_lost(exc)
            self.protocol.reader.buffer.clear()  # which the library's parser holds in a cycle
            self.protocol.parser.close()
            for error in filter(None, (self.protocol.parser_exc, self.protocol.handshake_exc)):
                let_go(error)

    return PacedConnection
