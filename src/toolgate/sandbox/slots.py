"""Who may run code, and when.

The rules this file keeps: there is a bound to the runs at once, and to those of one principal that wait; principals
take turns, and none of them takes the last place; a run that waits for a person gives its place back, and takes another
one before it goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from toolgate.core.bodies import Bodies, Body
from toolgate.core.clock import Clock
from toolgate.core.concurrency import SOON, Shared
from toolgate.core.fault import Fault
from toolgate.sandbox.limits import Limits

TakeTurn: TypeAlias = Callable[[str], Awaitable[Callable[[], None]]]
"""Waits for a principal's turn, among all who have something done in the event loop. What it returns ends the turn."""


def _over() -> None:
    """Nobody waits for that."""


async def at_once(_whose: str) -> Callable[[], None]:
    """Nobody else has anything done."""
    return _over


class Slots:
    """The runs at once, of all engines, and what they hold. `take_turn` is for their calls, `held` has what waits to
    run, what runs have said and are told, and what has come of them until its client has it."""

    def __init__(self, limits: Limits, clock: Clock, held: Bodies | None = None) -> None:
        self.limits = limits
        self.take_turn: TakeTurn = at_once
        self.held = held or Bodies()
        self._clock = clock
        self._running = Shared(limits.runs)
        self._resting = Shared(limits.resting)
        self.resting: Counter[str] = Counter()  # runs that wait for a person, by principal

    def use(self, limits: Limits) -> None:
        self.limits = limits
        self._running.limit, self._resting.limit = limits.runs, limits.resting

    async def take(self, whose: str, size: int = 0) -> Slot:
        """`size` is how many bytes the run has before it begins. Raises `Fault` RATE_LIMITED where there is no place in
        time, or enough waits already."""
        body = self.held.begun(whose)
        try:
            if self._running.waiting_of(whose) >= self.limits.queued or not body.has(size):
                raise _busy()
            async with self._clock.timeout(self.limits.patience):
                await self._running.turn(whose)
        except TimeoutError:
            body.ended()
            raise _busy() from None
        except BaseException:
            body.ended()
            raise
        return Slot(self, whose, body, size)

    def rest(self, whose: str) -> bool:
        """Let others have the place of a run; whether it may wait for a person."""
        if self.resting[whose] >= self.limits.waiting or not self._resting.take_now(whose):
            return False
        self.resting[whose] += 1
        self._running.give_back(whose)
        return True

    def woken(self, whose: str) -> None:
        self._resting.give_back(whose)
        self.resting[whose] -= 1
        if self.resting[whose] <= 0:
            del self.resting[whose]

    async def go_on(self, whose: str) -> None:
        await self._running.turn(whose)

    def leave(self, whose: str) -> None:
        self._running.give_back(whose)


def _busy() -> Fault:
    hint = f"other code is running; try again in {SOON:g} s"
    return Fault("RATE_LIMITED", "busy", reach="not_sent", hint=hint, extra={"retryAfter": SOON})


class Slot:
    """That of one run, until it leaves."""

    def __init__(self, slots: Slots, whose: str, body: Body, size: int) -> None:
        self._slots = slots
        self._whose = whose
        self._body = body
        self._before = size
        self._rests = False

    async def turn(self) -> Callable[[], None]:
        """Until the host may do something for this run. What it returns ends the turn."""
        return await self._slots.take_turn(self._whose)

    def begins(self, size: int) -> None:
        """So many bytes it has before it begins, as it turns out."""
        self._before = size
        self._body.has(size)

    def holds(self, size: int) -> bool:
        """So many bytes are kept for the run by now. Whether it may have more; if not, `room` says when."""
        return self._body.has(self._before + size)

    async def room(self) -> None:
        await self._body.room()

    def rest(self) -> None:
        """Let others have it. Raises `Fault` RATE_LIMITED where enough runs rest, of this principal or of all."""
        if not self._slots.rest(self._whose):
            message = f"{self._slots.resting[self._whose]} runs wait for a person already"
            hint = "answer what is asked, or cancel a run that waits"
            raise Fault("RATE_LIMITED", message, reach="not_sent", hint=hint)
        self._rests = True

    async def go_on(self) -> None:
        """With a turn again, however long that takes: others that run have their own end."""
        await self._slots.go_on(self._whose)
        self._woken()

    def leave(self) -> None:
        self._body.ended()
        if self._rests:
            self._woken()
        else:
            self._slots.leave(self._whose)

    def _woken(self) -> None:
        self._rests = False
        self._slots.woken(self._whose)
