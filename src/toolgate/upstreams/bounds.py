"""How long a list of a server may be, and how what servers say is looked at.

The rules this file keeps: what the configuration says at present holds for the connections that are there already; what
is more than little is looked at in a thread, one at a time, in turns of servers or of principals: it may be anything.
What servers say of themselves and what they answer to calls have turns of their own: no call waits for lists. A thread
costs more than a usual list of some dozens of items, which is begun without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec import Raw

from toolgate.config import CatalogLimits, Config
from toolgate.core.concurrency import BySize
from toolgate.core.fault import Fault
from toolgate.core.services import Swap, sets
from toolgate.core.steps import InSteps, Unfinished, at_once, in_slices

LITTLE = 4 * 1024  # bytes
FEW = 32 * 1024  # bytes of many little things, which may take long together only
MOMENT = 0.002  # seconds of them, before the rest is for a thread
SLICE = 0.02  # seconds of one list or answer, where others wait

Result = TypeVar("Result")


class Looks:
    """At what servers say, in turns: `whose` is a server's id, or see `Principal.counted_as`."""

    def __init__(self) -> None:
        self._turns = BySize(1)

    async def looked_at(self, whose: str, size: int, look: Callable[[], Result], little: int = LITTLE) -> Result:
        """What `look` finds in so many bytes of a server. Raises what it raises. Up to `little` it takes no longer than
        what is little."""
        return look() if size <= little else await self._turns.of(size).in_thread(whose, look)

    async def looked_through(self, whose: str, size: int, steps: InSteps[Result], longest: int | None = None) -> Result:
        """The same of what may take long: one item is looked at in each step, or what is little together. The `longest`
        has so many bytes."""

        if size <= LITTLE:
            return at_once(steps)
        is_begun_here = longest is not None and longest <= LITTLE and size <= FEW
        if is_begun_here and not isinstance(found := in_slices(steps, MOMENT)(), Unfinished):
            return found
        return await self._turns.of(size).in_thread(whose, in_slices(steps, SLICE))


class Bounds(Looks):
    """Of lists, and looks at them. `answers`: looks at what servers answer to calls."""

    def __init__(self, limits: CatalogLimits | None = None) -> None:
        super().__init__()
        self.limits = limits or CatalogLimits()
        self.answers = Looks()

    def prepared(self, config: Config) -> Swap:
        return sets(self, limits=config.catalog)


def longest_of(items: Iterable[Raw]) -> int:
    return max(map(len, items), default=0)


def little_together(items: Iterable[Raw]) -> Iterator[list[Raw]]:
    """A few at a time, which are looked at in one step: together they are little, or it is one."""
    few, size = list[Raw](), 0
    for item in items:
        size += len(item)
        if size > LITTLE and few:
            yield few
            few, size = [], len(item)
        few.append(item)
    if few:
        yield few


def too_many_items(server: str, kind: str, most: int) -> Fault:
    return too_long(server, kind, f"{most:,} items (catalog.items)")


def too_many_bytes(server: str, kind: str, most: int) -> Fault:
    return too_long(server, kind, f"{most:,} bytes (catalog.bytes)")


def too_long(server: str, kind: str, most: str) -> Fault:
    message = f"The server's list of {kind} is too long: it has more than {most}"
    return Fault("UPSTREAM_ERROR", message, server=server)
