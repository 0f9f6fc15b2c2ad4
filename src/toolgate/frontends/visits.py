"""Who is inside now: each request under way, and each connection that lasts, with what it showed when it came in.

The rules this file keeps: who would not be let in any more does not stay, whatever it has begun; and what lasts, a
stream or a WebSocket, ends when what it was let in by expires. A call under way then may end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from toolgate.auth.refusals import Unauthorized
from toolgate.model import Principal
from toolgate.ports import Clock, Timer

Known = Callable[[Principal], bool]


class Visit:
    """One of them, worked at by the current task."""

    def __init__(self, principal: Principal, clock: Clock) -> None:
        self.principal = principal
        self.is_expelled = False
        self._clock = clock
        self._task = asyncio.current_task()
        self._timer: Timer | None = None

    def lasts(self) -> None:
        """It ends only when somebody ends it."""
        if self.principal.expires is not None and not self._timer:
            left = max(0.0, self.principal.expires - self._clock.wall())
            self._timer = self._clock.call_later(left, self.expel)

    def expel(self) -> None:
        if self._task and not self.is_expelled:
            self.is_expelled = True
            self._task.cancel()

    def over(self) -> None:
        if self._timer:
            self._timer.cancel()

    def forget_expulsion(self) -> None:
        """The task goes on, to say the last word."""
        if self._task:
            self._task.uncancel()


class Visits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._inside: set[Visit] = set()

    def __len__(self) -> int:
        return len(self._inside)

    @contextmanager
    def of(self, principal: Principal) -> Generator[Visit]:
        """Raises `Unauthorized` in the middle of it, where that becomes so."""
        visit = Visit(principal, self._clock)
        self._inside.add(visit)
        try:
            yield visit
        except asyncio.CancelledError:
            if not visit.is_expelled:
                raise
            visit.forget_expulsion()
            raise Unauthorized("What was shown is good no longer", 'Bearer error="invalid_token"') from None
        finally:
            self._inside.discard(visit)
            visit.over()

    def expel_unknown(self, is_known: Known) -> None:
        for visit in list(self._inside):
            if not is_known(visit.principal):
                visit.expel()
