"""How many calls may be in flight at once, on a connection or at a component. Principals that wait take turns, for as
long as each call may wait.

The rule this file keeps: where there are several places, nobody has all of them while somebody else has called within
a minute, so that who calls now and then need not wait until a call of another ends, however long that takes.
"""

from __future__ import annotations

from collections import Counter

from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairLimit
from toolgate.core.fault import Fault

MEMORY = 60.0  # seconds for which it is remembered that somebody else calls


class ConcurrencyLimit(FairLimit):
    """`limit` and `running` are as `FairLimit` has them."""

    def __init__(self, server: str, limit: int | None, clock: Clock, running: int = 0) -> None:
        super().__init__(limit, running)
        self._server = server
        self._clock = clock
        self._held: Counter[str] = Counter()  # places, by principal
        self._called: dict[str, float] = {}  # when the last two principals did, the later one last

    async def take(self, patience: float, whose: str = "") -> None:
        """`whose` call it is: see `Principal.counted_as`. Raises `Fault` TIMEOUT, not sent, where no turn comes within
        `patience` seconds."""
        if self.take_now(whose):
            return
        try:
            async with self._clock.timeout(patience):
                await self.turn(whose)
        except TimeoutError:
            raise busy(self._server) from None

    def take_now(self, whose: str = "") -> bool:
        self._called.pop(whose, None)
        self._called[whose] = self._clock.now()
        if len(self._called) > 2:
            del self._called[next(iter(self._called))]
        return super().take_now(whose)

    def give_back(self, whose: str = "") -> None:
        self._held[whose] -= 1
        if self._held[whose] <= 0:
            del self._held[whose]
        super().give_back(whose)

    def _may(self, whose: str) -> bool:
        if self.limit is None or self.limit < 2 or self._held[whose] < self.limit - 1:
            return True
        since = self._clock.now() - MEMORY
        return not any(other != whose and at > since for other, at in self._called.items())

    def _took(self, whose: str) -> None:
        self._held[whose] += 1
        super()._took(whose)


def busy(server: str) -> Fault:
    """A call did not have its turn in time. `server` is a name, for people."""
    return Fault("TIMEOUT", f"{server} was busy for too long", reach="not_sent")
