"""What is written to many connections in one round of the event loop, which goes out together at its end.

A write of its own for each wakes its reader at once, who then takes a core from the gateway, or has it send a signal to
another one, while the next is worked at: a third of a short call. The rules this file keeps: what waits here goes
before anything else that is written to its connection, or ends it; and no more waits than `MOST` messages of those that
are short.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

MOST = 16  # messages, beyond which they go out before the round has ended
SHORT = 16 * 1024  # bytes of a message that may wait


class Outgoing(Protocol):
    """A connection for which something waits."""

    def flush(self) -> None:
        """Write it now, if it waits still. Does not raise."""
        ...


class Outflow:
    """Of one round after the other."""

    def __init__(self) -> None:
        self._due: list[Outgoing] = []

    def put(self, outgoing: Outgoing) -> None:
        """It is told at the end of this round, or before, but not before this returns."""
        if len(self._due) >= MOST:
            self._end()
        due = self._due
        if not due:
            asyncio.get_running_loop().call_soon(self._end)
        due.append(outgoing)

    def _end(self) -> None:
        due, self._due = self._due, []
        for outgoing in due:
            outgoing.flush()
