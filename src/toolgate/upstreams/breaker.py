"""The circuit breaker: a server that fails again and again is left alone for a while, and then tried with one call.

The rules this file keeps: what counts is the transport (it did not start, died over a call, could not be reached), not
what a server says, nor that it is slow; failures of one principal's calls alone, which may lie in what it sends, stand
against no other; after a pause one call is let through, and what becomes of it decides for those
that wait for it. A pause is a quarter of the time for which the server has been failing, so that one that is back soon
is used soon, and one that stays away is tried rarely. Lists are let through after a pause, too, and decide nothing by
their success: a server that dies over each call may list its tools.
"""

from __future__ import annotations

from toolgate.core import crowds
from toolgate.core.clock import Clock
from toolgate.core.fairness import giving_way
from toolgate.core.fault import Fault, Words

FAILURES = 5  # in a row, before it opens
SHORTEST = 0.25  # seconds of the first pause
SHARE = 0.25  # of the time since it opened, for the next pause
LONGEST = 30.0  # seconds of a pause
SOON = 1.0  # seconds; a try that is due so soon is waited for, once one has failed
MOST_KEPT = 256  # scopes of one server whose failures are remembered


class Breaker:
    """One server's, as one scope has it. `name` is how the server is configured."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.reason = self._told = ""  # of the last failure: for anybody, and with the server's words
        self.failures = 0  # in a row
        self._whose: set[str] = set()  # calls these were: of one principal, or of two, or ("") of nobody's
        self._name = name
        self._clock = clock
        self._opened = 0.0  # when it did
        self._until: float | None = None  # when one try may be made; None while it is closed
        self._failed_tries = 0
        self._try = 0  # the number of the one that is being made, 0 where none is
        self._tries = 0  # that were ever made
        self._stopped: Fault | None = None
        self._news = crowds.Signal()  # set, and replaced, when a try is over

    @property
    def is_open(self) -> bool:
        """Whether it is a pause, for everybody."""
        return self.remaining > 0.0 and self._stands_against("")

    def _stands_against(self, whose: str) -> bool:
        """Whether what has failed says anything about calls of this principal."""
        return "" in self._whose or len(self._whose) > 1 or whose in self._whose

    @property
    def remaining(self) -> float:
        """Seconds until a try is let through."""
        return max(0.0, self._until - self._clock.now()) if self._until is not None else 0.0

    async def admit(self, is_call: bool, patience: float, whose: str = "") -> int:
        """The number of the try that this call is, to `withdraw` when it is over; 0 where it is none. Waits for at most
        one other try, and `patience` seconds. `whose` it is: see `failed`. Raises `Fault` CIRCUIT_OPEN, or what it was
        stopped with meanwhile."""
        if not self._stands_against(whose):
            return 0
        if self.remaining and not (is_call and self._failed_tries and self.remaining <= SOON):
            raise self._refusal()
        if not is_call:
            return 0
        try:
            async with self._clock.timeout(patience):
                return await self._admitted(whose)
        except TimeoutError:
            raise self._refusal() from None

    async def _admitted(self, whose: str) -> int:
        failed, stopped = self._failed_tries, self._stopped
        while self._until is not None:
            if self._failed_tries != failed:
                raise self._refusal()
            if self.remaining:
                await self._clock.sleep(self.remaining)
            elif self._try:
                await self._news.wait()
                await crowds.turn(whose)
            else:
                self._tries += 1
                self._try = self._tries
                return self._try
        if self._stopped and self._stopped is not stopped:
            raise self._stopped.at("", "")
        return 0

    def _refusal(self) -> Fault:
        words = Words(hint=self._hint(self._told)) if self._told != self.reason else None
        message = f"Circuit breaker open for {self._name}"
        return Fault("CIRCUIT_OPEN", message, reach="not_sent", hint=self.hint(), words=words)

    def hint(self) -> str:
        """When it is tried again, and why it is not now."""
        return self._hint(self.reason)

    def _hint(self, reason: str) -> str:
        remaining = self.remaining
        when = f"next try in {remaining:.2g} s" if remaining else "a try is in progress"
        return f"{when}; last failure: {reason}"

    def failed(self, fault: Fault, whose: str = "") -> None:
        """A failure: of this principal's call, or ("") of something that is not one principal's alone."""
        self.failures += 1
        if len(self._whose) < 2:
            self._whose.add(whose)
        self.reason, self._told = fault.message, fault.told().message
        if self.failures < FAILURES or self.remaining:  # in a pause: of a call that was under way before
            return
        now = self._clock.now()
        if self._until is None:
            self._opened = now
        else:
            self._failed_tries += 1
        self._until = now + min(max(SHORTEST, (now - self._opened) * SHARE), LONGEST)
        self._tell()

    def answered(self) -> None:
        self.failures = 0
        self._whose.clear()
        self._until = None
        self._failed_tries = 0
        self._tell()

    def stop(self, why: Fault) -> None:
        """The server is stopped on purpose: nothing is held against it, and calls that wait are told why."""
        self._stopped = why
        self.answered()

    def withdraw(self, number: int) -> None:
        """A try is over, and may have told nothing: another one may be made."""
        if number == self._try:
            self._tell()

    def _tell(self) -> None:
        self._try = 0
        self._news.set()
        self._news = crowds.Signal()


class Breakers:
    """Those of one server, by scope. One that has nothing to remember is not kept. `whose` scope it is: see
    `Principal.counted_as`; whoever has most that are kept loses one first."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._kept: dict[str, tuple[str, Breaker]] = {}

    def of(self, scope: str) -> Breaker:
        return self._kept[scope][1] if scope in self._kept else Breaker(self._name, self._clock)

    def keep(self, scope: str, whose: str, breaker: Breaker) -> None:
        """The session of this scope is forgotten."""
        self._kept.pop(scope, None)
        if breaker.failures:
            self._kept[scope] = whose, breaker
            for each in giving_way(self._kept, MOST_KEPT, lambda kept: self._kept[kept][0]):
                del self._kept[each]

    def reset(self) -> None:
        self._kept.clear()
