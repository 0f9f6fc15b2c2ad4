"""Lines of the audit that others can bring about as often as they like.

The rules this file keeps: in a minute, so many lines of one kind that one of them brings about are noted as they are;
of the others the last one is, when the minute ends, with how many there were and since when. While that goes on, each
further minute has such a line alone. Nobody's lines are held back by another's, as long as few enough are told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from toolgate.core.clock import Clock, Timer

MOST = 60  # lines of a kind
MOST_OF_SERVER = 600
MOST_KINDS = 64  # of one, that are told apart
MOST_STRANGERS = 256  # that are told apart; all further ones are one
MINUTE = 60.0

Write: TypeAlias = Callable[[int, str], None]
"""Note a line, with how many before it were not noted, and the time of the first of these."""


class _Window:
    """What one brings about of one kind. `last` writes the last line that is held back."""

    __slots__ = ("held_back", "is_over", "last", "since", "taken")

    def __init__(self, is_over: bool = False) -> None:
        self.is_over = is_over  # it was too much in the minute before
        self.taken = self.held_back = 0
        self.since = ""
        self.last: Write | None = None


class Pacing:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = -1.0
        self._windows: dict[str, dict[str, _Window]] = {}  # by who brings it about, and by kind
        self._timer: Timer | None = None

    def put(self, write: Write, time: str, by: str, kind: str) -> bool:
        """Have a line written that anybody can bring about: now, or as one of many. Whether it was now."""
        if by not in self._windows and len(self._windows) >= MOST_STRANGERS:
            by = ""
        return self._put(write, time, by, kind, MOST)

    def put_of_server(self, write: Write, time: str, server: str, kind: str) -> None:
        """The same of a server: there are as many as the operator wants."""
        self._put(write, time, f"server {server}", kind, MOST_OF_SERVER)

    def _put(self, write: Write, time: str, by: str, kind: str, most: int) -> bool:
        if self._clock.now() // MINUTE != self._minute:
            self._turn()
        kinds = self._windows.setdefault(by, {})
        if kind not in kinds and len(kinds) >= MOST_KINDS:
            kind = ""
        window = kinds.setdefault(kind, _Window())
        if window.taken < most and not window.is_over:
            window.taken += 1
            write(0, "")
            return True
        window.held_back += 1
        window.since = window.since or time
        window.last = write
        if not self._timer:
            self._timer = self._clock.call_later(MINUTE - self._clock.now() % MINUTE, self._turn)
        return False

    def _turn(self) -> None:
        """Another minute: what was too much in this one is so in the next, too, until it ends."""
        before = self._windows
        self.close()
        self._minute = self._clock.now() // MINUTE
        for by, kinds in before.items():
            over = {kind: _Window(is_over=True) for kind, window in kinds.items() if window.held_back}
            if over:
                self._windows[by] = over

    def close(self) -> None:
        """Write what is held back."""
        windows, self._windows = self._windows, {}
        if self._timer:
            self._timer.cancel()
            self._timer = None
        for kinds in windows.values():
            for window in kinds.values():
                if window.last:
                    window.last(window.held_back - 1, window.since)
