"""Mistakes of ours, told in the log with their traceback, as often as helps: a client that can have one happen can do
it again.

The rule this file keeps: each place in the code is paced as what one server does wrong (`complaints`).
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from weakref import WeakKeyDictionary

from toolgate.core.clock import SystemClock
from toolgate.core.complaints import Complaints

_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Complaints] = WeakKeyDictionary()
"""Their timers are those of one event loop; a program may run one after the other."""


def takes(error: BaseException) -> bool:
    """Whether one more of its place is to be logged, which the caller does then. In the event loop."""
    at: TracebackType | None = error.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    place = f" in {at.tb_frame.f_code.co_qualname}:{at.tb_lineno}" if at else ""
    loop = asyncio.get_running_loop()
    if loop not in _of_loops:
        _of_loops[loop] = Complaints(SystemClock())
    return _of_loops[loop].takes(f"{type(error).__name__}{place}")
