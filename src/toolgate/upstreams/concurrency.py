"""How many calls may be in flight at once, on a connection or at a component. Principals that wait take turns, for as
long as each call may wait."""

from __future__ import annotations

from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairLimit
from toolgate.core.fault import Fault


class ConcurrencyLimit(FairLimit):
    """`limit` and `running` are as `FairLimit` has them."""

    def __init__(self, server: str, limit: int | None, clock: Clock, running: int = 0) -> None:
        super().__init__(limit, running)
        self._server = server
        self._clock = clock

    async def take(self, patience: float, whose: str = "") -> None:
        """`whose` call it is: see `Principal.counted_as`. Raises `Fault` TIMEOUT, not sent, where no turn comes within
        `patience` seconds."""
        if self.take_now():
            return
        try:
            async with self._clock.timeout(patience):
                await self.turn(whose)
        except TimeoutError:
            raise busy(self._server) from None


def busy(server: str) -> Fault:
    """A call did not have its turn in time. `server` is a name, for people."""
    return Fault("TIMEOUT", f"{server} was busy for too long", reach="not_sent")
