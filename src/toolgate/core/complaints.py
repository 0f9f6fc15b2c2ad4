"""What servers do wrong, told in the log as often as helps: a server that does nothing else fills no disk by it.

The rule this file keeps: of each server some lines in a while are logged, whatever it does and however often it is
started; how many there were besides is said when the while is over, or when the gateway ends.
"""

from __future__ import annotations

import logging

from toolgate.core.clock import Clock, Timer

log = logging.getLogger(__name__)

MOST = 20  # lines of one server
WHILE = 60.0  # seconds


class _Window:
    def __init__(self, end: float) -> None:
        self.end = end
        self.count = 0
        self.timer: Timer | None = None


class Complaints:
    """Who is about to log what a server does wrong asks `takes` first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}  # by server

    def takes(self, server: str) -> bool:
        """Whether one more line of this server is to be logged."""
        now = self._clock.now()
        window = self._windows.get(server)
        if window is None or now >= window.end:
            self._over(server)
            window = self._windows[server] = _Window(now + WHILE)
        window.count += 1
        if window.count > MOST and not window.timer:
            log.warning("%s: too many lines like this; not logged for the next %d s", server, window.end - now)
            window.timer = self._clock.call_later(window.end - now, lambda: self._over(server))
        return window.count <= MOST

    def _over(self, server: str) -> None:
        window = self._windows.pop(server, None)
        if window and window.timer:
            window.timer.cancel()
            log.warning("%s: %d more lines like this were not logged", server, window.count - MOST)

    def close(self) -> None:
        for server in list(self._windows):
            self._over(server)
