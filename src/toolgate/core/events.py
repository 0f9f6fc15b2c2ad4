"""Fan-out of events: what servers say of themselves, told to everyone who listens.

A listener decides for itself what concerns its client; it must not wait, and is told nothing after it has stopped.
Where there are many, they are told in portions, and others are heard in between; each hears all events in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable

from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Event, EventSink

MOST_OF_ONE = 4096  # streams of one principal
PORTION = 32  # listeners that are told in one go
MOST_WAITING = 64  # events beyond which no more wait: a sender of more waits until all are told

log = logging.getLogger(__name__)


def every_list(server: str = "") -> Event:
    """All lists of a server, or of all servers, may be others now."""
    return Event(server, "list_changed", lists=tuple(mcp.LIST_OF_KIND))


class Events:
    """Everyone who listens, in the order that they came."""

    def __init__(self) -> None:
        self._listeners: dict[int, EventSink] = {}
        self._number = 0
        self._counted: Counter[str] = Counter()  # of them, by principal
        self._waiting: deque[tuple[Event, deque[int]]] = deque()  # and who is to be told of each

    def __len__(self) -> int:
        return len(self._listeners)

    def listen(self, listener: EventSink, whose: str = "") -> Callable[[], None]:
        """Tell `listener` of every event from now on; call what is returned to stop that. `whose` it is where nothing
        else bounds how many there are: see `Principal.counted_as`. Raises `Fault` where these are too many."""
        if whose and self._counted[whose] >= MOST_OF_ONE:
            message = f"Too many subscriptions: a client may have {MOST_OF_ONE:,} streams in total"
            raise Fault("INVALID_REQUEST", message, reach="not_sent", hint="end streams that are no longer needed")
        self._number += 1
        number = self._number
        self._listeners[number] = listener
        self._counted[whose] += 1
        return lambda: self._stop(number, whose)

    def _stop(self, number: int, whose: str) -> None:
        if self._listeners.pop(number, None):
            self._counted[whose] -= 1
            if not self._counted[whose]:
                del self._counted[whose]

    def tell(self, event: Event) -> None:
        """Tell everyone: the first ones at once, unless others are being told of something still. Never raises."""
        self._waiting.append((event, deque(self._listeners)))
        if len(self._waiting) == 1:
            self._tell_some()
        while len(self._waiting) > MOST_WAITING:
            self._tell_portion()

    def _tell_some(self) -> None:
        if self._waiting:
            self._tell_portion()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _tell_portion(self) -> None:
        event, numbers = self._waiting[0]
        portion = [numbers.popleft() for _ in range(min(PORTION, len(numbers)))]
        if not numbers:
            self._waiting.popleft()
        for number in portion:
            try:
                if listener := self._listeners.get(number):
                    listener(event)
            except Exception:  # the pump: one listener's bug is not the others'
                log.exception("a listener failed to handle the event %r", event)
