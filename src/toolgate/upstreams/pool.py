"""How many servers are up at once: who wants to start takes a slot, and gives it back when all of it is gone.

The rules this file keeps: never more than `max_live` hold slots, whatever is still on its way out counted among them;
slots are given in the order that they were asked for; who gives way is the one that nobody has used for longest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from toolgate.config import PoolLimits
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault


class Holder(msgspec.Struct, frozen=True, eq=False):
    """What holds a slot: a server that is up for somebody. `used` says when it was last needed, by `Clock.now`;
    `is_idle` whether it is up and nobody needs it now; `give_way` begins to end it: `Pool.leave` follows when it is
    gone."""

    used: Callable[[], float]
    is_idle: Callable[[], bool]
    give_way: Callable[[], None]


class Pool:
    """One for the whole gateway. It does not wait for holders to become idle by looking: they say so (`rested`)."""

    def __init__(self, clock: Clock, limits: PoolLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or PoolLimits()
        self.is_short = False  # somebody waits, or there are more than may be
        self._holders: set[Holder] = set()
        self._leaving: set[Holder] = set()
        self._queue: deque[tuple[Holder, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._holders)

    def __repr__(self) -> str:
        return f"<Pool {len(self._holders)} of {self._limits.max_live}, {len(self._queue)} wait>"

    @property
    def limits(self) -> PoolLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: PoolLimits) -> None:
        """They may change at any time; where there are too many by then, the idle ones give way."""
        self._limits = limits
        self._serve()

    async def enter(self, holder: Holder, name: str, patience: float) -> None:
        """Take a slot; wait `patience` seconds for one. Raises `Fault`, not sent, where none comes free."""
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((holder, slot))
        self._serve()
        try:
            async with self._clock.timeout(patience):
                await slot
        except TimeoutError:
            self._get_up(holder, slot)
            raise self._is_full(name) from None
        except BaseException:
            self._get_up(holder, slot)
            raise

    def leave(self, holder: Holder) -> None:
        """It is gone. No matter where it held no slot."""
        self._holders.discard(holder)
        self._leaving.discard(holder)
        self._serve()

    def rested(self) -> None:
        """A holder is idle now; where `is_short`, it may have to make room."""
        self._serve()

    def _serve(self) -> None:
        while self._queue and len(self._holders) < self._limits.max_live:
            holder, slot = self._queue.popleft()
            if not slot.done():
                self._holders.add(holder)
                slot.set_result(None)
        missing = len(self._queue) + len(self._holders) - self._limits.max_live - len(self._leaving)
        if missing > 0:
            self._make_room(missing)
        self.is_short = bool(self._queue) or len(self._holders) > self._limits.max_live

    def _make_room(self, missing: int) -> None:
        idle = [holder for holder in self._holders - self._leaving if holder.is_idle()]
        for holder in sorted(idle, key=lambda holder: holder.used())[:missing]:
            self._leaving.add(holder)
            holder.give_way()

    def _get_up(self, holder: Holder, slot: asyncio.Future[None]) -> None:
        """Give up waiting; a slot that came at the same moment is given back."""
        if slot.done() and not slot.cancelled():
            self.leave(holder)
            return
        self._queue = deque(waiting for waiting in self._queue if waiting[1] is not slot)

    def _is_full(self, name: str) -> Fault:
        most = self._limits.max_live
        message = f"{name} cannot start: the pool is full: all {most} servers are in use (pool.max_live)"
        hint = f"try again when one of them is idle, or raise pool.max_live above {most}"
        return Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)
