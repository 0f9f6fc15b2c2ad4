"""Who is inside now: each request under way, and each connection that lasts, with what it showed when it came in.

The rules this file keeps: who would not be let in any more does not stay, whatever it has begun; and what lasts, a
stream or a WebSocket, ends when what it was let in by expires. A call under way then may end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from toolgate.auth.refusals import Unauthorized
from toolgate.core.clock import Clock, Timer
from toolgate.core.model import Principal

Known = Callable[[Principal], bool]


class ActiveRequest:
    """One of them, worked at by the current task. Raises `Unauthorized` in the middle of it, where it is expelled."""

    def __init__(self, principal: Principal, clock: Clock, all: set[ActiveRequest]) -> None:
        self.principal = principal
        self.is_expelled = False
        self._clock = clock
        self._all = all
        self._task = asyncio.current_task()
        self._timer: Timer | None = None

    def __enter__(self) -> ActiveRequest:
        self._all.add(self)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._all.discard(self)
        if self._timer:
            self._timer.cancel()
        if self._task and self.is_expelled and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()  # it goes on, to say the last word
            raise Unauthorized("The key or token is no longer valid", 'Bearer error="invalid_token"') from None

    def lasts(self) -> None:
        """It ends only when somebody ends it."""
        if self.principal.expires is not None and not self._timer:
            left = max(0.0, self.principal.expires - self._clock.wall())
            self._timer = self._clock.call_later(left, self.expel)

    def expel(self) -> None:
        if self._task and not self.is_expelled:
            self.is_expelled = True
            self._task.cancel()


class ActiveRequests:
    """Each is one for as long as `with ActiveRequest(principal, clock, active_requests.all)` lasts."""

    def __init__(self) -> None:
        self.all: set[ActiveRequest] = set()

    def expel_unknown(self, is_known: Known) -> None:
        for active_request in list(self.all):
            if not is_known(active_request.principal):
                active_request.expel()
