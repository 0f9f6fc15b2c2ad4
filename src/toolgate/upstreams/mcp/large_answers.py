"""Large answers on one connection, which are read in a thread, a piece at a time: others would wait for that.

The rules this file keeps: an answer that is being read has come, whatever becomes of its connection meanwhile; and the
end of a connection is told when all is read that came before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

LARGE = 256 * 1024  # bytes that take up to 3 ms, each time that somebody looks at all of them


class LargeAnswers:
    def __init__(self) -> None:
        self.answered: Counter[int] = Counter()  # requests whose answers are being read, as far as that is known
        self._reading = 0
        self._then: list[Callable[[], object]] = []

    def begin(self, origin: int | None) -> None:
        """`origin`: it came on this request's own stream."""
        self._reading += 1
        if origin is not None:
            self.answered[origin] += 1

    def end(self, origin: int | None) -> None:
        self._reading -= 1
        if origin is not None:
            self.answered[origin] -= 1
            self.answered += Counter()  # without what is none
        if not self._reading:
            then, self._then = self._then, []
            for tell in then:
                tell()

    def waits(self, then: Callable[[], object]) -> bool:
        """Whether this is to be called only when nothing is being read any more."""
        if self._reading:
            self._then.append(then)
        return self._reading > 0
