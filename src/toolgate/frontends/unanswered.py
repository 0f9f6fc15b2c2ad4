"""How much is kept of large requests until they are answered: their arguments may be of megabytes each, and a call may
take hours.

The rule this file keeps: each principal can have one of any size under way, whatever others have; beyond that there is
a budget for each principal, and one for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from toolgate.core.fault import Fault

LARGE = 64 * 1024  # bytes of a request, up to which it counts for nothing
MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one principal's requests
MOST = 256 * 1024 * 1024  # of all


class Unanswered:
    """Those of all frontends."""

    def __init__(self) -> None:
        self._by: Counter[str] = Counter()  # bytes, by principal

    def begun(self, whose: str, size: int) -> Callable[[], None]:
        """A request of more than `LARGE` bytes: what to call when it is answered. `whose` it is: see
        `Principal.counted_as`. Raises `Fault` RATE_LIMITED where there is no room."""
        own = self._by[whose]
        if own and (own + size > MOST_OF_ONE or self._by.total() + size > MOST):
            raise Fault(
                "RATE_LIMITED",
                f"Too much is under way: large requests of one client may have {MOST_OF_ONE:,} bytes until they "
                f"are answered, and those of all clients {MOST:,}",
                reach="not_sent",
                hint="wait for earlier calls to be answered",
                extra={"retryAfter": 1.0},
            )
        self._by[whose] += size
        return lambda: self._answered(whose, size)

    def _answered(self, whose: str, size: int) -> None:
        self._by[whose] -= size
        if not self._by[whose]:
            del self._by[whose]
