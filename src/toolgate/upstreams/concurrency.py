"""How many calls may be in flight at once, on a connection or at a component. Principals that wait take turns, and the
calls of one of them wait in the order that they came."""

from __future__ import annotations

import asyncio

from toolgate.core.clock import Clock
from toolgate.core.fairness import RoundRobin
from toolgate.core.fault import Fault


class ConcurrencyLimit:
    """`limit` None is no limit; it may be lowered at any time, and holds from the next call on. `running` are in flight
    already."""

    def __init__(self, server: str, limit: int | None, clock: Clock, running: int = 0) -> None:
        self.limit = limit
        self._server = server
        self._clock = clock
        self._running = running
        self._queue: RoundRobin[asyncio.Future[None]] = RoundRobin()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._queue)

    def take_now(self) -> bool:
        """Whether there is a turn at once; it is taken."""
        if self.limit is not None and (self._running >= self.limit or self._queue):
            return False
        self._running += 1
        return True

    async def take(self, patience: float, whose: str = "") -> None:
        """`whose` call it is: see `Principal.counted_as`. Raises `Fault` TIMEOUT, not sent, where no turn comes within
        `patience` seconds."""
        if self.take_now():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(whose, turn)
        try:
            async with self._clock.timeout(patience):
                await turn
        except TimeoutError:
            self._leave(whose, turn)
            raise Fault("TIMEOUT", f"{self._server} was busy for too long", reach="not_sent") from None
        except BaseException:
            self._leave(whose, turn)
            raise

    def give_back(self) -> None:
        self._running -= 1
        while self.limit is not None and self._running < self.limit:  # without a limit, nobody waits
            turn = self._queue.pop()
            if not turn:
                return
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    def _leave(self, whose: str, turn: asyncio.Future[None]) -> None:
        """Give up waiting; a turn that came at the same moment is passed on."""
        if not self._queue.remove(whose, turn) and turn.done() and not turn.cancelled():
            self.give_back()
