"""A connection of `websockets` that is read a piece at a time: in 256 KiB there are 131,072 empty frames, which take a
second, and pings are answered where they are read.

The rule this file keeps: nothing is taken while the queue of messages is full, or while its peer does not read what it
is sent, answers to its pings among that.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from toolgate.core.inflow import PacedProtocol

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

FAREWELL = 0.02  # seconds in which what has come is taken when the connection is lost


@cache
def paced_connection() -> type[ClientConnection]:
    """The class of such connections. `websockets` is imported for it."""
    from websockets.asyncio.client import ClientConnection

    class PacedConnection(PacedProtocol, ClientConnection):
        def connection_lost(self, exc: Exception | None) -> None:
            self.intake.finish(FAREWELL)
            super().connection_lost(exc)

    return PacedConnection
