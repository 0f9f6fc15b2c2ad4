"""Mistakes of ours, told in the log with their traceback, as often as helps: whoever can have one happen can repeat it.

The rule this file keeps: of each place in the code some are logged in a while, and then how many more there were.
"""

from __future__ import annotations

import logging
import time
from types import TracebackType

MOST = 20  # of one place
WHILE = 60.0  # seconds

_seen: dict[str, tuple[float, int]] = {}  # by place: when its while is over, and how many there were


log = logging.getLogger(__name__)


def takes(error: BaseException) -> bool:
    """Whether one more of its place is to be logged, which the caller does then."""
    place, now = _place(error), time.monotonic()
    end, count = _seen.get(place, (0.0, 0))
    if now >= end:
        if count > MOST:
            log.error("%d more internal errors like this were not logged: %s", count - MOST, place)
        end, count = now + WHILE, 0
    _seen[place] = end, count + 1
    if count == MOST:
        log.error("too many internal errors like this; not logged for the next %d s: %s", end - now, place)
    return count < MOST


def _place(error: BaseException) -> str:
    at: TracebackType | None = error.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    return f"{type(error).__name__} in {at.tb_frame.f_code.co_qualname}:{at.tb_lineno}" if at else type(error).__name__
