"""How many servers are up at once: who wants to start takes a slot, and gives it back when all of it is gone.

The rules this file keeps: never more than `max_live` hold slots, whatever is still on its way out counted among them.
Slots are given to the principal that holds the fewest, and among equals in the order that they were asked for. What is
idle gives way to others of its principal, to a principal that holds fewer, or to one that holds less than a fair share.
What is needed gives way only where its principal holds more than a fair share, to one that holds less: the latest
first, so that nobody can end what another holds within its own. What everybody shares is of no principal's share; it
is given a slot first, and gives way only when it is idle. A share is `max_live` by the principals for whom something
was started or waits, be it their own or what everybody shares: each counts once, whatever it wants.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial

import msgspec

from toolgate.config import Config, PoolLimits
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.services import Swap, sets

SHARED = ""  # whose those are that all use


class Holder(msgspec.Struct, frozen=True, eq=False):
    """What holds a slot: a server that is up for somebody. `used` says when it was last needed, by `Clock.now`;
    `is_idle` whether it is up and nobody needs it now, `is_at_work` whether something would be lost with it;
    `give_way` begins to end it: `Pool.leave` follows when it is gone."""

    used: Callable[[], float]
    is_idle: Callable[[], bool]
    is_at_work: Callable[[], bool]
    give_way: Callable[[], None]


class Pool:
    """One for the whole gateway. It does not wait for holders to become idle by looking: they say so (`rested`)."""

    def __init__(self, clock: Clock, limits: PoolLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or PoolLimits()
        self.is_short = False  # somebody waits, or there are more than may be
        self._holders: dict[Holder, str] = {}  # by whose they are, the latest last
        self._leaving: set[Holder] = set()
        self._queue: dict[str, dict[Holder, asyncio.Future[None]]] = {}  # by whose
        self._askers: dict[Holder, str] = {}  # for whom each waits, or was started

    def __len__(self) -> int:
        return len(self._holders)

    def __repr__(self) -> str:
        return f"<Pool {len(self._holders)} of {self._limits.max_live}, {self._waiting} wait>"

    def prepared(self, config: Config) -> Swap:
        return sets(self, limits=config.pool)

    @property
    def limits(self) -> PoolLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: PoolLimits) -> None:
        """They may change at any time; where there are too many by then, the idle ones give way."""
        self._limits = limits
        self._serve()

    async def enter(self, holder: Holder, name: str, patience: float, whose: str = SHARED, asker: str = "") -> None:
        """Take a slot; wait `patience` seconds for one. `whose` it will be; where that is `SHARED`, `asker` is for
        whom it starts, empty for the gateway itself: see `Principal.counted_as`. Raises `Fault`, not sent, where none
        comes free."""
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._askers[holder] = whose if whose != SHARED else asker
        self._queue.setdefault(whose, {})[holder] = slot
        self._serve()
        try:
            async with self._clock.timeout(patience):
                await slot
        except TimeoutError:
            self._get_up(holder, whose, slot)
            raise self._is_full(name) from None
        except BaseException:
            self._get_up(holder, whose, slot)
            raise

    def leave(self, holder: Holder) -> None:
        """It is gone. No matter where it held no slot."""
        self._holders.pop(holder, None)
        self._askers.pop(holder, None)
        self._leaving.discard(holder)
        self._serve()

    def rested(self) -> None:
        """A holder is idle now; where `is_short`, it may have to make room."""
        self._serve()

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._queue.values()))

    def _serve(self) -> None:
        held = Counter(self._holders.values())
        while self._queue and len(self._holders) < self._limits.max_live:
            whose = min(self._queue, key=lambda each: _own(held, each))
            holder = next(iter(self._queue[whose]))
            slot = self._forget(whose, holder)
            if not slot.done():
                held[whose] += 1
                self._holders[holder] = whose
                slot.set_result(None)
            else:
                del self._askers[holder]
        if self._waiting + len(self._holders) > self._limits.max_live + len(self._leaving):
            self._make_room()
        self.is_short = bool(self._queue) or len(self._holders) > self._limits.max_live

    def _forget(self, whose: str, holder: Holder) -> asyncio.Future[None]:
        """It waits no more. Others of equal right are before the rest of its principal's."""
        theirs = self._queue.pop(whose)
        slot = theirs.pop(holder)
        if theirs:
            self._queue[whose] = theirs
        return slot

    def _make_room(self) -> None:
        """As much as is missing when all that leave are gone, for those whose turn is next."""
        stay = {holder: whose for holder, whose in self._holders.items() if holder not in self._leaving}
        shares, free = _FairShares(stay, partial(self._fair_share, stay)), self._limits.max_live - len(stay)
        if free <= 0 and not shares.may_give_way:
            return
        going = shares.longest_idle(-free)
        waiting = [(_own(shares.held, whose), turn, whose) for turn, whose in enumerate(self._queue)]
        heapq.heapify(waiting)
        left = {whose: len(theirs) for whose, theirs in self._queue.items()}
        while waiting and (free > 0 or shares.may_give_way):
            _, turn, whose = heapq.heappop(waiting)
            if free > 0:
                free -= 1
            elif holder := shares.gives_way(whose):
                going.append(holder)
            else:
                continue  # others may have idle ones of their own
            shares.held[whose] += 1
            left[whose] -= 1
            if left[whose]:
                heapq.heappush(waiting, (_own(shares.held, whose), turn, whose))
        for holder in going:
            self._leaving.add(holder)
            holder.give_way()

    def _fair_share(self, stay: Iterable[Holder]) -> int:
        """How many slots are one. What all share may wait for others than who holds the rest, whoever asked first."""
        shared = self._queue.get(SHARED, {})
        claimants = {*(self._askers[each] for each in (*stay, *shared)), *self._queue} - {SHARED}
        return max(1, self._limits.max_live // max(2 if shared else 1, len(claimants)))

    def _get_up(self, holder: Holder, whose: str, slot: asyncio.Future[None]) -> None:
        """Give up waiting; a slot that came at the same moment is given back."""
        if slot.done() and not slot.cancelled():
            self.leave(holder)
        elif holder in self._queue.get(whose, ()):
            self._forget(whose, holder)
            del self._askers[holder]

    def _is_full(self, name: str) -> Fault:
        most = self._limits.max_live
        message = f"{name} cannot start: the pool is full: all {most} servers are in use (pool.max_live)"
        hint = f"try again when one of them is idle, or raise pool.max_live above {most}"
        return Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)


def _own(held: Mapping[str, int], whose: str) -> int:
    """How many slots count as this principal's."""
    return held[whose] if whose != SHARED else 0


class _FairShares:
    """Who holds how much, and who gives way to whom. `stay` are those that hold a slot and keep it so far, the latest
    last; `fair` counts how many slots are a share, where it matters."""

    def __init__(self, stay: dict[Holder, str], fair: Callable[[], int]) -> None:
        self.held = Counter(stay.values())
        self.idle = sorted((holder for holder in stay if holder.is_idle()), key=lambda holder: holder.used())
        self._stay = dict(stay)
        self._count_fair = fair

    @cached_property
    def _fair(self) -> int:
        return self._count_fair()

    @property
    def may_give_way(self) -> bool:
        """Whether there is anything that may."""
        return bool(self.idle) or any(map(self._is_beyond, self.held))

    def _is_beyond(self, whose: str) -> bool:
        """Whether this principal holds more than a fair share."""
        return _own(self.held, whose) > 0 and self.held[whose] > self._fair

    def longest_idle(self, count: int) -> list[Holder]:
        """So many, if there are; they go."""
        return [self._goes(holder) for holder in self.idle[: max(0, count)]]

    def gives_way(self, whose: str) -> Holder | None:
        """Which goes so that this principal can have one more; None: it has to wait."""
        own = _own(self.held, whose)
        idle = [each for each in self.idle if self._stay[each] == whose or own < max(self._of(each), self._fair)]
        if idle:
            return self._goes(max(idle, key=self._beyond))
        greedy = [each for each in reversed(self._stay) if self._beyond(each)] if own < self._fair else []
        if not greedy:
            return None
        return self._goes(max(greedy, key=lambda each: (not each.is_at_work(), self._of(each))))

    def _of(self, holder: Holder) -> int:
        return self.held[self._stay[holder]]

    def _beyond(self, holder: Holder) -> int:
        """How much more than a fair share its principal holds."""
        return max(0, _own(self.held, self._stay[holder]) - self._fair)

    def _goes(self, holder: Holder) -> Holder:
        self.held[self._stay.pop(holder)] -= 1
        if holder in self.idle:
            self.idle.remove(holder)
        return holder
