"""Lists that are shown as they are, and looked at for pins a moment later, when nobody waits for a list any more.

The rules this file keeps: of a list that may hold something back nothing is shown before it was looked at (that is no
matter of this file); every list that was shown is looked at, those of a server in their order, since the first is what
is pinned; servers take turns; and who lists faster than it is looked at waits for that itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Raw

from toolgate.catalog.pins import Pins
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock, Timer
from toolgate.upstreams.bounds import Bounds, longest_of

log = logging.getLogger(__name__)

AFTER = 0.05  # seconds after a list was shown: by then it has been answered with
PATIENCE = 1.0  # seconds that lists which are being fetched are let go first
LAST = 5.0  # seconds for what is left at the end: servers decide how much that is
MOST_WAITING = 1000  # scopes
MOST_OF_ONE = 2  # lists of one scope

Scope = tuple[str, str]
"""A server's id, and the scope of its lists."""


class _Shown(NamedTuple):
    """A list of tools, and whose it is: see `Pins.judge`."""

    tools: Mapping[str, Raw]
    whose: str


class Reviews:
    """`fetching`: the lists that are being fetched now."""

    def __init__(
        self, pins: Pins, bounds: Bounds, clock: Clock, fetching: Callable[[], Collection[asyncio.Task[Any]]]
    ) -> None:
        self._pins = pins
        self._bounds = bounds
        self._clock = clock
        self._fetching = fetching
        self._waiting: dict[Scope, list[_Shown]] = {}  # first the one whose turn it is
        self._looking = asyncio.Lock()
        self._timer: Timer | None = None
        self._work = BackgroundTasks()

    def add(self, scope: Scope, tools: Mapping[str, Raw], whose: str) -> None:
        """Look at this list later."""
        if not self._waiting:
            self._timer = self._clock.call_later(AFTER, self._begin)
        theirs = self._waiting.setdefault(scope, [])
        if not theirs or theirs[-1].tools is not tools:
            theirs.append(_Shown(tools, whose))

    async def made_room(self, scope: Scope) -> None:
        """Wait until there is room for another list of this scope."""
        if len(self._waiting) > MOST_WAITING:
            await self.done()
        while len(self._waiting.get(scope, ())) >= MOST_OF_ONE:
            await self._look()

    async def done(self) -> None:
        """Wait until all that there is was looked at."""
        while self._waiting:
            await self._look()

    async def close(self) -> None:
        """What was shown is pinned, as far as there is time."""
        if self._timer:
            self._timer.cancel()
        await self._work.close()
        with suppress(TimeoutError):
            async with self._clock.timeout(LAST):
                await self.done()

    def _begin(self) -> None:
        self._work.start(self._later(), "look at lists for pins")

    async def _later(self) -> None:
        began = self._clock.now()
        while self._waiting:
            left = began + PATIENCE - self._clock.now()
            if left > 0 and (fetching := self._fetching()):
                await asyncio.wait(fetching, timeout=left)
            else:
                await self._look()
                await asyncio.sleep(0)

    async def _look(self) -> None:
        """At the list that came first."""
        async with self._looking:
            if not self._waiting:
                return
            (server, scope), theirs = next(iter(self._waiting.items()))
            shown = theirs[0]
            try:
                size, longest = sum(map(len, shown.tools.values())), longest_of(shown.tools.values())
                steps = self._pins.read(server, shown.tools)
                read = await self._bounds.looked_through(server, size, steps, longest)
                if read:
                    self._pins.was_read(server, read)
                self._pins.judge(server, scope, shown.tools, shown.whose)
            except Exception:  # the rescue: one server's list must not keep the others' from being looked at
                log.exception("Tools of %s could not be compared with their pins", server)
            theirs.pop(0)
            del self._waiting[server, scope]
            if theirs:
                self._waiting[server, scope] = theirs  # behind all others
