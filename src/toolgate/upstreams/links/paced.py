"""A connection of `websockets` that is read a piece at a time: in 256 KiB there are 131,072 empty frames, which take a
second, and pings are answered where they are read.

The rule this file keeps: nothing is taken while the queue of messages is full, or while its peer does not read what it
is sent, answers to its pings among that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from toolgate.core.inflow import IntakeQueue, PacedProtocol

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


@cache
def paced_connection() -> Callable[..., ClientConnection]:
    """The class of such connections, made with the turns that they take and the id of the server that they are of.
    `websockets` is imported for it."""
    from websockets.asyncio.client import ClientConnection

    class PacedConnection(PacedProtocol, ClientConnection):
        def __init__(self, turns: IntakeQueue, server: str, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            self.turns = turns
            self._server = server

        def whose(self) -> str:
            return self._server

        def take(self, piece: bytes) -> None:
            """Of what was refused, as a message that is too long, nobody reads on until the server closes."""
            super().take(piece)
            if self.protocol.parser_exc:
                self.intake.drop()
                self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self.intake.finish(partial(super().connection_lost, exc))

    return PacedConnection
