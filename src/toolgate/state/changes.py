"""What other processes have changed in the store: the command line makes a key, decides, approves, and a gateway that
runs hears of it soon.

The rule this file keeps: news say that a subject is another now, and nothing else; who hears them reads the store.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable

from toolgate.core.clock import Clock
from toolgate.state.base import NEWS, NotKept, Store, Subject

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between looks


def tell(store: Store, subject: Subject) -> Awaitable[None]:
    """Say that a subject was changed. To be awaited after what has changed."""
    return store.put(NEWS, subject, os.urandom(8))


class StoreChanges:
    """`listen` before `follow`. What was said before this was made is old: read the store after."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known = dict(store.items(NEWS))
        self._listeners: dict[str, list[Callable[[], object]]] = {}

    def listen(self, subject: Subject, then: Callable[[], object]) -> None:
        self._listeners.setdefault(subject, []).append(then)

    async def follow(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(LOOK)
            seen, unread = self._store.items(NEWS), set[str]()
            for subject, listeners in self._listeners.items():
                if subject in seen and seen[subject] != self._known.get(subject):  # what cannot be read is no news
                    for listener in listeners:
                        try:
                            listener()
                        except NotKept:
                            unread.add(subject)  # it is news still, until it can be read
                        except Exception:  # the rescue: the others hear of it, and of all that comes
                            log.exception("what has changed in the store (%s) was not taken up", subject)
            self._known |= {subject: value for subject, value in seen.items() if subject not in unread}
