"""What registries say of packages, looked up for several callers at once.

The rules this file keeps: no principal's lookups keep those of others waiting; of one package there is one at a time,
whoever asks; and a lookup keeps its turn until it has ended, also where nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolgate.core.clock import Clock
from toolgate.core.concurrency import Shared
from toolgate.provision.entries import Package
from toolgate.provision.packages import Facts, Unknown

AT_ONCE = 4
MOST_WAITING = 8  # of one principal
KEPT = 60.0  # seconds for which an answer is good, also one that there is none
MOST_KEPT = 200

Look = Callable[[Package], Awaitable[Facts]]
"""Raises `Unknown`."""


class Lookups:
    def __init__(self, look: Look, clock: Clock) -> None:
        self._look, self._clock = look, clock
        self._turns = Shared(AT_ONCE, most=MOST_WAITING, what="lookups of packages")
        self._flying: dict[str, asyncio.Task[Facts | str]] = {}
        self._known: dict[str, tuple[float, Facts | str]] = {}

    async def close(self) -> None:
        flying = list(self._flying.values())
        for each in flying:
            each.cancel()
        await asyncio.gather(*flying, return_exceptions=True)

    async def facts(self, package: Package, whose: str, is_fresh: bool = False) -> Facts:
        """`whose` it is: see `Principal.counted_as`; `is_fresh`: not as it was said before. Raises `Unknown`, and
        `Fault` where too many of this principal wait."""
        key = _key(package)
        found = None if is_fresh else self._kept(key)
        if found is None:
            await self._turns.turn(whose)
            flight = self._flying.get(key) or self._begun(key, package, is_fresh)
            flight.add_done_callback(lambda _: self._turns.give_back(whose))
            found = await asyncio.shield(flight)
        if isinstance(found, str):
            raise Unknown(found)
        return found

    def _kept(self, key: str) -> Facts | str | None:
        """What was found a short time ago, or why nothing was."""
        when, found = self._known.get(key, (0.0, None))
        return found if found is not None and self._clock.now() - when < KEPT else None

    def _begun(self, key: str, package: Package, is_fresh: bool) -> asyncio.Task[Facts | str]:
        flight = self._flying[key] = asyncio.ensure_future(self._noted(key, package, is_fresh))
        flight.add_done_callback(lambda _: self._flying.pop(key))
        return flight

    async def _noted(self, key: str, package: Package, is_fresh: bool) -> Facts | str:
        if not is_fresh and (found := self._kept(key)) is not None:
            return found  # it came while this waited for its turn
        try:
            found = await self._look(package)
        except Unknown as why:
            found = str(why)
        self._known.pop(key, None)
        self._known[key] = (self._clock.now(), found)
        while len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]
        return found


def _key(package: Package) -> str:
    return f"{package.kind} {package.name} {package.version}"
