"""Fan-out of events: what servers say of themselves, told to everyone who listens.

A listener decides for itself what concerns its client; it must not wait, and is told nothing after it has stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from toolgate.core import mcp
from toolgate.core.model import Event, EventSink

log = logging.getLogger(__name__)


def every_list(server: str = "") -> Event:
    """All lists of a server, or of all servers, may be others now."""
    return Event(server, "list_changed", lists=tuple(mcp.LIST_OF_KIND))


class Events:
    """Everyone who listens, in the order that they came."""

    def __init__(self) -> None:
        self._listeners: dict[int, EventSink] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._listeners)

    def listen(self, listener: EventSink) -> Callable[[], None]:
        """Tell `listener` of every event from now on; call what is returned to stop that."""
        self._number += 1
        number = self._number
        self._listeners[number] = listener
        return lambda: self._listeners.pop(number, None) and None

    def tell(self, event: Event) -> None:
        """Tell everyone, at once. Never raises."""
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:  # the pump: one listener's bug is not the others'
                log.exception("a listener failed to handle the event %r", event)
