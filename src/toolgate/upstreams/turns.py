"""How many calls may be in flight at once, on a connection or at a component. They wait in the order that they came."""

from __future__ import annotations

import asyncio
from collections import deque

from toolgate.model import Fault
from toolgate.ports import Clock


class Turns:
    """`limit` None is no limit; it may be lowered at any time, and holds from the next call on."""

    def __init__(self, server: str, limit: int | None, clock: Clock) -> None:
        self.limit = limit
        self._server = server
        self._clock = clock
        self._running = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._queue)

    async def take(self, patience: float) -> None:
        """Raises `Fault` TIMEOUT, not sent, where no turn comes within `patience` seconds."""
        if self.limit is None or (self._running < self.limit and not self._queue):
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with self._clock.timeout(patience):
                await turn
        except TimeoutError:
            self._leave(turn)
            raise Fault("TIMEOUT", f"{self._server} was busy for too long", reach="not_sent") from None
        except BaseException:
            self._leave(turn)
            raise

    def give_back(self) -> None:
        self._running -= 1
        while self._queue and (self.limit is None or self._running < self.limit):
            turn = self._queue.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    def _leave(self, turn: asyncio.Future[None]) -> None:
        """Give up waiting; a turn that came at the same moment is passed on."""
        if turn in self._queue:
            self._queue.remove(turn)
        elif turn.done() and not turn.cancelled():
            self.give_back()
