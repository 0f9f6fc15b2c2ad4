"""When a connection has been idle for long enough."""

from __future__ import annotations

from collections.abc import Callable

from toolgate.core.clock import Clock, Timer

MOMENT = 0.001  # seconds; what is due so soon is due
SHORTEST_LOOK = 1.0  # seconds between two looks at one that is busy, however short its time


class IdleTimer:
    """`patience` says for how many seconds it may be idle, `since` since when it is (by `Clock.now`), None while it is
    not; both may change at any time. `on_idle` is called once, when it has been so for long enough."""

    def __init__(
        self,
        clock: Clock,
        patience: Callable[[], float],
        since: Callable[[], float | None],
        on_idle: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._patience = patience
        self._since = since
        self._on_idle = on_idle
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._clock.call_later(self._patience(), self._look)

    def cancel(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Else it is looked at again when it may have been."""
        since = self._since()
        if since is None:
            self._timer = self._clock.call_later(max(self._patience(), SHORTEST_LOOK), self._look)
            return
        rest = self._patience() - (self._clock.now() - since)
        if rest > MOMENT:
            self._timer = self._clock.call_later(rest, self._look)
        else:
            self._on_idle()
