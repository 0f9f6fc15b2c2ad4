"""What a server has begun to send on a connection and not ended: a line, an event, a message over WebSocket.

The rule this file keeps: while connections to one server have begun as much as may be kept of it, the oldest alone is
read on.
"""

from __future__ import annotations

import asyncio

from toolgate.core.bodies import FREE, Bodies, Body
from toolgate.core.inflow import Intake


class Unended:
    """That of one connection, which is read by this intake. `bodies` counts all, under `key`."""

    def __init__(self, bodies: Bodies, key: str, intake: Intake) -> None:
        self.size = 0  # bytes that count
        self._bodies = bodies
        self._key = key
        self._intake = intake
        self._body: Body | None = None
        self._room: asyncio.Future[None] | None = None  # until it may be read on

    def keeps(self, size: int) -> None:
        """So many bytes have come of what has begun; as many as are `FREE` do not count."""
        self.size = size if size > FREE else 0
        if not self.size:
            self.ended()
            return
        self._body = self._body or self._bodies.begun(self._key)
        if not self._body.has(size) and (not self._room or self._room.done()):
            self._room = asyncio.ensure_future(self._body.room())
            self._intake.hold_until(self._room)

    def ended(self) -> None:
        if self._body:
            self._body.ended()
            self._body = None
