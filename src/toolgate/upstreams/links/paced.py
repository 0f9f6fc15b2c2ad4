"""A connection of `websockets` that is read a piece at a time: in 256 KiB there are 131,072 empty frames, which take a
second, and pings are answered where they are read.

The rule this file keeps: nothing is taken while the queue of messages is full, or while its peer does not read what it
is sent, answers to its pings among that.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

from toolgate.core.inflow import Intake

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PIECE = 1024  # bytes that are taken in one go: 512 frames at most, in 4 ms
FAREWELL = 0.02  # seconds in which what has come is taken when the connection is lost


@cache
def paced_connection() -> type[ClientConnection]:
    """The class of such connections. `websockets` is imported for it."""
    from websockets.asyncio.client import ClientConnection

    class PacedConnection(ClientConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._intake = Intake(transport, super().data_received, PIECE)
            super().connection_made(self._intake.transport)

        def data_received(self, data: bytes) -> None:
            self._intake.put(data)

        def connection_lost(self, exc: Exception | None) -> None:
            self._intake.finish(FAREWELL)
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._intake.hold(self)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._intake.let_go(self)

    return PacedConnection
