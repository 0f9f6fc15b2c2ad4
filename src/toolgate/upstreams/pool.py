"""How many servers are up at once: who wants to start takes a seat, and gives it back when all of it is gone.

The rules this file keeps: never more than `max_live` hold seats, whatever is still on its way out counted among them;
seats are given in the order that they were asked for; who gives way is the one that nobody has used for longest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from toolgate.config import PoolLimits
from toolgate.core.clock import Clock
from toolgate.core.model import Fault


class Guest(Protocol):
    """What holds a seat: a server that is up for somebody."""

    @property
    def used(self) -> float:
        """When it was last needed, by `Clock.now`."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether it is up and nobody needs it now."""
        ...

    def give_way(self) -> None:
        """Begin to end; `Pool.leave` follows when it is gone."""
        ...


class Pool:
    """One for the whole gateway. It does not wait for guests to become idle by looking: they say so (`rested`)."""

    def __init__(self, clock: Clock, limits: PoolLimits | None = None) -> None:
        self._clock = clock
        self._limits = limits or PoolLimits()
        self._guests: set[Guest] = set()
        self._leaving: set[Guest] = set()
        self._queue: deque[tuple[Guest, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._guests)

    def __repr__(self) -> str:
        return f"<Pool {len(self._guests)} of {self._limits.max_live}, {len(self._queue)} wait>"

    @property
    def limits(self) -> PoolLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: PoolLimits) -> None:
        """They may change at any time; where there are too many by then, the idle ones give way."""
        self._limits = limits
        self._serve()

    async def enter(self, guest: Guest, name: str, patience: float) -> None:
        """Take a seat; wait `patience` seconds for one. Raises `Fault`, not sent, where none comes free."""
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((guest, seat))
        self._serve()
        try:
            async with self._clock.timeout(patience):
                await seat
        except TimeoutError:
            self._get_up(guest, seat)
            raise self._is_full(name) from None
        except BaseException:
            self._get_up(guest, seat)
            raise

    def leave(self, guest: Guest) -> None:
        """It is gone. No matter where it held no seat."""
        self._guests.discard(guest)
        self._leaving.discard(guest)
        self._serve()

    def rested(self) -> None:
        """A guest is idle now: it may have to make room."""
        if self._queue or len(self._guests) > self._limits.max_live:
            self._serve()

    def _serve(self) -> None:
        while self._queue and len(self._guests) < self._limits.max_live:
            guest, seat = self._queue.popleft()
            if not seat.done():
                self._guests.add(guest)
                seat.set_result(None)
        missing = len(self._queue) + len(self._guests) - self._limits.max_live - len(self._leaving)
        if missing > 0:
            self._make_room(missing)

    def _make_room(self, missing: int) -> None:
        idle = [guest for guest in self._guests - self._leaving if guest.is_idle]
        for guest in sorted(idle, key=lambda guest: guest.used)[:missing]:
            self._leaving.add(guest)
            guest.give_way()

    def _get_up(self, guest: Guest, seat: asyncio.Future[None]) -> None:
        """Give up waiting; a seat that came at the same moment is given back."""
        if seat.done() and not seat.cancelled():
            self.leave(guest)
            return
        self._queue = deque(waiting for waiting in self._queue if waiting[1] is not seat)

    def _is_full(self, name: str) -> Fault:
        most = self._limits.max_live
        message = f"{name} cannot start: the pool is full, {most} servers are up and all are needed (pool.max_live)"
        hint = f"try again when one of them is idle, or raise pool.max_live above {most}"
        return Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)
