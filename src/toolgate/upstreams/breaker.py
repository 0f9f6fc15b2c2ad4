"""The circuit breaker: a server that fails again and again is left alone for a while.

The rules this file keeps: what counts is the transport (it did not start, died over a call, could not be reached), not
what a server says, nor that it is slow; after the pause one call is let through, and what becomes of it decides. Lists
are let through then, too, and decide nothing by their success: a server that dies over each call may list its tools.
"""

from __future__ import annotations

from collections import OrderedDict

from toolgate.model import Fault
from toolgate.ports import Clock

FAILURES = 5  # in a row, before it opens
PAUSE = 30.0  # seconds for which it is open
MOST_KEPT = 256  # scopes of one server whose failures are remembered


class Breaker:
    """One server's, as one scope has it. `name` is how the server is configured."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.reason = ""  # of the last failure
        self.failures = 0  # in a row
        self._name = name
        self._clock = clock
        self._until: float | None = None  # when one try may be made; None while it is closed
        self._is_tried = False

    @property
    def is_open(self) -> bool:
        """Whether everything is refused."""
        return self._until is not None and self._clock.now() < self._until

    @property
    def remaining(self) -> float:
        """Seconds until a try is let through."""
        return max(0.0, self._until - self._clock.now()) if self._until is not None else 0.0

    def admit(self, is_call: bool) -> bool:
        """Whether this is the one try on which it depends; `withdraw` when it is over. Raises `Fault` CIRCUIT_OPEN."""
        if self._until is None:
            return False
        if self.is_open or (is_call and self._is_tried):
            raise Fault("CIRCUIT_OPEN", f"Circuit breaker open for {self._name}", reach="not_sent", hint=self.hint())
        self._is_tried = self._is_tried or is_call
        return is_call

    def hint(self) -> str:
        """When it is tried again, and why it is not now."""
        seconds = f"{self.remaining:.0f} s"
        when = f"it is tried again in {seconds}" if self.remaining else "it is being tried again now"
        return f"{when}; it last failed with: {self.reason}"

    def failed(self, reason: str) -> None:
        self.failures += 1
        self.reason = reason
        if self.failures >= FAILURES:
            self._until = self._clock.now() + PAUSE
            self._is_tried = False

    def answered(self) -> None:
        self.failures = 0
        self._until = None
        self._is_tried = False

    def withdraw(self) -> None:
        """The try is over, and may have told nothing: another one may be made."""
        self._is_tried = False


class Breakers:
    """Those of one server, by scope. One that has nothing to remember is not kept."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._kept: OrderedDict[str, Breaker] = OrderedDict()

    def of(self, scope: str) -> Breaker:
        return self._kept.get(scope) or Breaker(self._name, self._clock)

    def keep(self, scope: str, breaker: Breaker) -> None:
        """The berth of this scope is forgotten."""
        self._kept.pop(scope, None)
        if breaker.failures:
            self._kept[scope] = breaker
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)

    def reset(self) -> None:
        self._kept.clear()
