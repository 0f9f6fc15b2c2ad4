"""How long a list of a server may be, and how what servers say of themselves is looked at.

The rules this file keeps: what the configuration says at present holds for the connections that are there already; what
is more than little is looked at in a thread, one at a time, in turns of servers: it may be anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from toolgate.config import CatalogLimits, Config
from toolgate.core.concurrency import FairLimit, Unfinished
from toolgate.core.fault import Fault
from toolgate.core.services import Swap, sets

LITTLE = 4 * 1024  # bytes
SLICE = 0.02  # seconds of one list, where lists of other servers wait

Result = TypeVar("Result")
InSteps: TypeAlias = Generator[None, None, Result]
"""Work that others may come between."""


class Bounds:
    def __init__(self, limits: CatalogLimits | None = None) -> None:
        self.limits = limits or CatalogLimits()
        self._turns = FairLimit(1)

    def prepared(self, config: Config) -> Swap:
        return sets(self, limits=config.catalog)

    async def looked_at(self, server: str, size: int, look: Callable[[], Result]) -> Result:
        """What `look` finds in so many bytes of a server. Raises what it raises."""
        return look() if size <= LITTLE else await self._turns.in_thread(server, look)

    async def looked_through(self, server: str, size: int, steps: InSteps[Result]) -> Result:
        """The same of what may take long: one item is looked at in each step."""

        def go_on() -> Result | Unfinished:
            until = time.perf_counter() + SLICE
            try:
                while True:
                    next(steps)
                    if time.perf_counter() > until:
                        return Unfinished.MORE
            except StopIteration as end:
                return end.value

        return at_once(steps) if size <= LITTLE else await self._turns.in_thread(server, go_on)


def at_once(steps: InSteps[Result]) -> Result:
    """All of it, here."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def too_long(server: str, kind: str, most: str) -> Fault:
    message = f"The server's list of {kind} is too long: it has more than {most}"
    return Fault("UPSTREAM_ERROR", message, server=server)
