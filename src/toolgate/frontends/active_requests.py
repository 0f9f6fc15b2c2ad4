"""Who is inside now: each request under way, and each connection that lasts, with what it showed when it came in; and
how much is kept of requests until they are answered.

The rules this file keeps: who would not be let in any more does not stay, whatever it has begun; and what lasts, a
stream or a WebSocket, ends when what it was let in by expires. A call under way then may end. What lasts is told
nothing more from that moment on, and ends in turns: it may be thousands. Requests may be of megabytes each, and may
take hours: what one principal has under way is bounded, over all its connections, and so is what all have; but each
can have some, whatever others have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

import msgspec

from toolgate.auth.refusals import Unauthorized, has_moved, is_over
from toolgate.core import crowds
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault
from toolgate.core.model import Principal

EACH = 12 * 1024  # bytes that a request under way costs beside its own
FREE = 1024 * 1024  # bytes of one principal's requests, up to which it can begin another one, of any size
MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one principal's requests
MOST = 256 * 1024 * 1024  # of all
LOOK = 60.0  # seconds between two looks at most: wall clocks are set, and timers stand still while a machine sleeps

Known = Callable[[Principal], bool]


class ActiveRequest(msgspec.Struct, eq=False):
    """One of them, worked at by the current task. Raises `Unauthorized` in the middle of it, where it is expelled and
    its turn to end has come."""

    principal: Principal
    _clock: Clock
    _all: dict[ActiveRequest, None]
    is_expelled: bool = False
    lasts_at: str | None = None  # the path where it was opened, if it ends only when somebody ends it
    task: asyncio.Task[object] | None = None
    _timer: Timer | None = None
    _why: Callable[[], Unauthorized] = is_over
    _silence: Callable[[], object] | None = None

    def __enter__(self) -> ActiveRequest:
        self.task = asyncio.current_task()
        self._all[self] = None
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._all.pop(self, None)
        if self._timer:
            self._timer.cancel()
        task, self.task = self.task, None  # what it does next is not of this request
        if task and self.is_expelled and isinstance(error, asyncio.CancelledError):
            task.uncancel()  # it goes on, to say the last word
            raise self._why() from None

    def lasts(self, path: str, silence: Callable[[], object] | None = None) -> None:
        """Until its principal's key or token is over. A stream, which says nothing more once `silence` was called, ends
        in its turn then."""
        self.lasts_at, self._silence = path, silence
        if self.principal.expires is not None and not self._timer:
            self._look_at(self.principal.expires)

    def _look_at(self, expires: float) -> None:
        left = max(0.0, expires - self._clock.wall())
        self._timer = self._clock.call_later(min(left, LOOK), lambda: self._may_be_over(expires))

    def _may_be_over(self, expires: float) -> None:
        if self._clock.wall() >= expires:
            self.expel()
        else:
            self._look_at(expires)

    def expel(self, why: Callable[[], Unauthorized] = is_over) -> None:
        if self.task and not self.is_expelled:
            self.is_expelled, self._why = True, why
            if self._silence:
                self._silence()
                crowds.in_turn(self._end, self.principal.counted_as)
            else:  # calls, which take turns where they wait, or a WebSocket, which may go on to make some
                self._end()

    def _end(self) -> None:
        if self.task:
            self.task.cancel()


class ActiveRequests:
    """Each is one for as long as `with ActiveRequest(principal, clock, active_requests.all)` lasts."""

    def __init__(self) -> None:
        self.all: dict[ActiveRequest, None] = {}  # the latest last

    def expel_unknown(self, is_known: Known, only_lasting: bool = False) -> None:
        """The latest end first: they may wait for what the others leave."""
        for active_request in reversed(list(self.all)):
            is_meant = active_request.lasts_at is not None or not only_lasting
            if is_meant and not is_known(active_request.principal):
                active_request.expel()

    def expel_moved(self, is_moved: Callable[[Principal, str], bool]) -> None:
        """End what lasts where its client is led no more."""
        for each in list(self.all):
            if each.lasts_at is not None and is_moved(each.principal, each.lasts_at):
                each.expel(has_moved)


Enter = Callable[[Principal], ActiveRequest]


class Unanswered:
    """How much is kept of the requests of all frontends."""

    def __init__(self) -> None:
        self._by: dict[str, int] = {}  # bytes, by principal
        self._all = 0

    def begun(self, whose: str, size: int, requests: int = 1) -> int:
        """So many requests in so many bytes: what is to be given back to `answered`. `whose` they are: see
        `Principal.counted_as`. Raises `Fault` RATE_LIMITED where there is no room."""
        size += EACH * requests
        own = self._by.get(whose, 0)
        if own >= FREE and (own + size > MOST_OF_ONE or self._all + size > MOST):
            raise _too_much()
        self._by[whose] = own + size
        self._all += size
        return size

    def answered(self, whose: str, size: int) -> None:
        """What was `begun` is over."""
        self._all -= size
        self._by[whose] -= size
        if not self._by[whose]:
            del self._by[whose]


def _too_much() -> Fault:
    return Fault(
        "RATE_LIMITED",
        f"Too many requests are in progress: those of one client may have {MOST_OF_ONE:,} bytes in total, "
        f"and those of all clients {MOST:,}; each counts {EACH:,} more than its size",
        reach="not_sent",
        hint="wait for earlier calls to be answered",
        extra={"retryAfter": 1.0},
    )
