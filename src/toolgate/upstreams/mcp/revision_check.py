"""Whether an HTTP server still speaks the revision in which it is spoken to, where it refuses a request: a ping tells.

A server without sessions may be another program from one request to the next, and need not say so. The rule this file
keeps: only a refusal of the ping itself shows it. The request that was refused is told so, and is not sent again: it
may have been for what is in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from toolgate.core.fault import Fault
from toolgate.upstreams.mcp.requests import Requests

PATIENCE = 5.0  # seconds in which the ping is refused, or the server counts as the same
BETWEEN = 10.0  # seconds from one ping to the next


class RevisionCheck:
    """Of one connection, once it is open. `lost` is called, once, where the ping is refused."""

    def __init__(self, requests: Requests, lost: Callable[[], None]) -> None:
        self._requests = requests
        self._lost = lost
        self._next = float("-inf")  # when the server may be asked again
        self._id: int | None = None  # of the ping that is under way
        requests.on_refused.append(self._refused)

    def _refused(self, origin: int) -> None:
        if origin == self._id:
            self._lost()
        elif self._requests.clock.now() >= self._next:
            self._next = self._requests.clock.now() + BETWEEN
            self._requests.spawn(self._ping())

    async def _ping(self) -> None:
        with contextlib.suppress(Fault, TimeoutError):
            async with self._requests.clock.timeout(PATIENCE):
                self._id, exchange = await self._requests.begin(*self._requests.dialect.ping())
                await exchange.next()
        self._id = None
