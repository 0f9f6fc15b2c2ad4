"""Places for connections to servers over HTTP: how many there may be at once, and whose they are.

The rules this file keeps: each takes a file, and all together an eighth of those that the process may open. Whoever
holds fewer than are free gets another, so that as many as somebody holds are left to others; who holds more waits, and
those that wait take turns. What is idle, or needed by nobody any more, is closed where a place is missing.
"""

from __future__ import annotations

import asyncio
import functools
import math
import resource
from collections import Counter
from typing import TypeAlias

from toolgate.core.clock import Clock, Timer
from toolgate.core.fairness import RoundRobin
from toolgate.core.fault import Fault

SHARE = 1 / 8  # of the files that the process may open; the connections of clients have three quarters
LEAST, MOST = 8, 4096
SOON = 1.0  # seconds between two looks at what is needed, and after which who got no place may try again

Waiting: TypeAlias = tuple[str, asyncio.Future[None]]  # whose it will be


@functools.cache  # each call passes it, and the limit is raised before the first
def most_connections() -> int:
    """How many there may be at once."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if files == resource.RLIM_INFINITY else min(max(LEAST, math.floor(files * SHARE)), MOST)


def of_server(id: str) -> str:
    """Whose a place is that the gateway takes on its own account: for its messages, and for what all clients share."""
    return f"\0{id}"


class Tenant:
    """What has a place: a connection."""

    sent = 0.0  # when it was last used, by `Clock.now`

    @property
    def is_needless(self) -> bool:
        """Whether nobody waits for anything that may still come."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Nobody needs the rest."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close it, and wait for nobody to read what was written."""
        raise NotImplementedError


class Places:
    """Those of all servers. One that was taken is used by a wire until that rests or is gone, or is given back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken: Counter[str] = Counter()  # how many, by whose they are
        self._count = 0
        self._used: dict[Tenant, str] = {}  # whose each is
        self._idle: dict[Tenant, None] = {}  # the longest idle first
        self._queue: RoundRobin[Waiting] = RoundRobin()
        self._next_look: Timer | None = None

    async def take(self, whose: str, patience: float) -> None:
        """`whose` it is: see `Principal.counted_as`, and `of_server`. Raises `Fault` RATE_LIMITED, not sent, where none
        comes free within `patience` seconds."""
        if self.take_now(whose):
            return
        self._look()
        waiting = whose, asyncio.get_running_loop().create_future()
        self._queue.put(whose, waiting)
        try:
            async with self._clock.timeout(patience):
                await waiting[1]
        except TimeoutError:
            self._leave(waiting)
            raise self._refusal() from None
        except BaseException:
            self._leave(waiting)
            raise

    def take_now(self, whose: str, wire: Tenant | None = None) -> bool:
        """The same where nothing has to be waited for, for a wire if it is there already; whether it is taken."""
        # Here and below without the methods of `Counter`: each call passes this.
        taken, count = self._taken.get(whose, 0), self._count
        if taken >= most_connections() - count or (self._queue.size and self._queue.count(whose)):
            return False
        self._count = count + 1
        self._taken[whose] = taken + 1
        if wire:
            self._idle.pop(wire, None)
            self._used[wire] = whose
        return True

    def give_back(self, whose: str) -> None:
        self._count -= 1
        left = self._taken.pop(whose) - 1
        if left:
            self._taken[whose] = left
        while self._queue.size and (waiting := self._queue.pop(self._may)):
            if not waiting[1].done():
                self._takes(waiting[0])
                waiting[1].set_result(None)

    def make_room(self) -> None:
        """For a connection that has a place: each that is idle takes a file, too."""
        while self._idle and self._count + len(self._idle) > most_connections():
            wire = next(iter(self._idle))
            del self._idle[wire]
            wire.abort()

    def used(self, wire: Tenant, whose: str) -> None:
        """The place that was taken is this one's from now on."""
        self._idle.pop(wire, None)
        self._used[wire] = whose

    def rests(self, wire: Tenant) -> None:
        self._idle[wire] = None
        whose = self._used.pop(wire, None)
        if whose is None:
            return
        if self._queue.size or self._taken[whose] < 2:
            self.give_back(whose)
        else:
            self._count -= 1
            self._taken[whose] -= 1

    def gone(self, wire: Tenant) -> None:
        """Its file is closed."""
        self.rests(wire)
        del self._idle[wire]

    def _may(self, whose: str) -> bool:
        return self._taken[whose] < most_connections() - self._count

    def _takes(self, whose: str) -> None:
        self._count += 1
        self._taken[whose] += 1

    def _leave(self, waiting: Waiting) -> None:
        """Give up waiting; a place that came at the same moment is passed on."""
        whose, place = waiting
        if not self._queue.remove(whose, waiting) and place.done() and not place.cancelled():
            self.give_back(whose)

    def _look(self) -> None:
        """Give up what nobody needs: now, and from time to time for as long as somebody waits."""
        if self._next_look:
            return
        now = self._clock.now()
        for wire in list(self._used):
            if wire.is_needless and now - wire.sent >= SOON:
                wire.give_up()
        self._next_look = self._clock.call_later(SOON, self._look_again)

    def _look_again(self) -> None:
        self._next_look = None
        if self._queue:
            self._look()

    def _refusal(self) -> Fault:
        message = "Too many connections to servers at once: this client could not get another one"
        hint = "wait until earlier calls are answered, then try again; the operator may raise the limit of open files"
        return Fault("RATE_LIMITED", message, reach="not_sent", hint=hint, extra={"retryAfter": SOON})
