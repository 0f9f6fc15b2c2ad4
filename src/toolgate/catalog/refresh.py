"""When lists are looked at again that their servers say are others now: soon, once, and not without end.

The rule this file keeps: a server that says so again and again is looked at ever more seldom: down to each 1.6 s where
its lists do change each time, down to each 30 s where they do not (some say so each time that they list).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Raw

from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock

DEBOUNCE = 0.05  # seconds in which a server may change a list several times before it is looked at again
LONGEST_DEBOUNCE = 30.0  # the same for one that says so again and again though nothing has changed
MOST_IN_VAIN = 10  # times that are counted
MOST_CHANGES = 5  # the same of those that were not in vain

Whose = tuple[str, str]  # server id, scope
Items = list[tuple[str, Raw]]
Look = Callable[[], Coroutine[Any, Any, None]]


class Refresh:
    """What is to be looked at again, and who does that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[Whose, dict[str, Items | None]] = {}
        self._repeats: dict[Whose, tuple[int, float]] = {}  # how often in a row, and when last
        self._under_way = BackgroundTasks()
        self._is_closed = False

    @property
    def left(self) -> list[object]:
        """What is to be looked at, and who looks."""
        return [*self._before, *self._under_way]

    def before(self, whose: Whose, compare: Look) -> dict[str, Items | None]:
        """What changed lists were, by kind, until `compare` looks at them: that is soon, and takes it (`take`)."""
        if whose not in self._before:
            self._before[whose] = {}
            self.later(min(DEBOUNCE * 2 ** self._repeated(whose), LONGEST_DEBOUNCE), compare)
        return self._before[whose]

    def take(self, whose: Whose) -> dict[str, Items | None] | None:
        """None where that was forgotten meanwhile."""
        return self._before.pop(whose, None)

    def looked(self, whose: Whose, is_other: bool) -> None:
        """Something has changed indeed, or nothing has."""
        most = MOST_CHANGES if is_other else MOST_IN_VAIN
        self._repeats[whose] = min(self._repeated(whose) + 1, most), self._clock.now()

    def _repeated(self, whose: Whose) -> int:
        times, last = self._repeats.get(whose, (0, 0.0))
        return times if self._clock.now() - last <= 2 * LONGEST_DEBOUNCE else 0

    def soon(self, look: Look) -> None:
        self.later(DEBOUNCE, look)

    def later(self, seconds: float, look: Look) -> None:
        self._clock.call_later(seconds, lambda: self.now(look))

    def now(self, look: Look) -> None:
        if not self._is_closed:  # else it is the timer of a list that changed at the end
            self._under_way.start(look(), "refresh a list")

    def forget(self, whose: Whose) -> None:
        self._before.pop(whose, None)
        self._repeats.pop(whose, None)

    def known_of(self, server: str) -> set[Whose]:
        return {whose for whose in (*self._before, *self._repeats) if whose[0] == server}

    async def close(self) -> None:
        self._is_closed = True
        await self._under_way.close()
