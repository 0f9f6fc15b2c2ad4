"""Who may run code, and when.

The rules this file keeps: there is a bound to the runs at once, and to those of one principal that wait; principals
take turns; a run that waits for a person gives its turn back, and takes another one before it goes on.
"""

from __future__ import annotations

from collections import Counter

from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairLimit
from toolgate.core.fault import Fault
from toolgate.sandbox.limits import Limits


class Slots:
    """The runs at once, of all engines."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._running = FairLimit(limits.runs)
        self.resting: Counter[str] = Counter()  # runs that wait for a person, by principal

    def use(self, limits: Limits) -> None:
        self.limits = limits
        self._running.limit = limits.runs

    async def take(self, whose: str) -> Slot:
        """Raises `Fault` RATE_LIMITED where there is none in time."""
        if self._running.waiting_of(whose) >= self.limits.queued:
            raise _busy()
        try:
            async with self._clock.timeout(self.limits.patience):
                await self._running.turn(whose)
        except TimeoutError:
            raise _busy() from None
        return Slot(self, self._running, whose)


def _busy() -> Fault:
    hint = "other code is running; try again when some of it has ended"
    return Fault("RATE_LIMITED", "busy", reach="not_sent", hint=hint)


class Slot:
    """That of one run, until it leaves."""

    def __init__(self, slots: Slots, running: FairLimit, whose: str) -> None:
        self._slots = slots
        self._running = running
        self._whose = whose
        self._rests = False

    def rest(self) -> None:
        """Let others have it. Raises `Fault` RATE_LIMITED where enough runs of this principal rest."""
        most = self._slots.limits.waiting
        if self._slots.resting[self._whose] >= most:
            hint = "answer what is asked, or cancel a run that waits"
            raise Fault("RATE_LIMITED", f"{most} runs wait for a person already", reach="not_sent", hint=hint)
        self._slots.resting[self._whose] += 1
        self._rests = True
        self._running.give_back(self._whose)

    async def go_on(self) -> None:
        """With a turn again, however long that takes: others that run have their own end."""
        await self._running.turn(self._whose)
        self._woken()

    def leave(self) -> None:
        if self._rests:
            self._woken()
        else:
            self._running.give_back(self._whose)

    def _woken(self) -> None:
        self._rests = False
        self._slots.resting[self._whose] -= 1
        if self._slots.resting[self._whose] <= 0:
            del self._slots.resting[self._whose]
