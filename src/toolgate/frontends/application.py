"""What a server serves: an ASGI application, and what its connections and the application both work with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from typing import Any

from toolgate.core.bodies import FREE_OF_MANY, Bodies
from toolgate.core.clock import Clock
from toolgate.frontends.connections import Connections
from toolgate.frontends.known_heads import KnownHeads
from toolgate.frontends.scheduling import Callers, Scheduler
from toolgate.frontends.streams import Receive, Send


def _begins_none(_slot: Any) -> bool:
    return False


class Application(ABC):
    """`body_limit` in bytes. A connection asks `callers` whose a request is before `scheduler` has it started, and the
    application tells them; it counts as one of `connections`, and keeps what has not ended in `bodies`. What heads mean
    that it has let in it puts into `known_heads`, where a connection has told it a request's own. `begin` says whether
    such a request, which is as `slots.Slot` has it, could be begun at once; else nothing is done."""

    def __init__(self, clock: Clock, body_limit: int) -> None:
        self.body_limit = body_limit
        self.scheduler = Scheduler(clock)
        self.callers = Callers()
        self.bodies = Bodies(free=FREE_OF_MANY)
        self.connections = Connections()
        self.known_heads: KnownHeads[Any] = KnownHeads(body_limit)
        self.begin: Callable[[Any], bool] = _begins_none

    def stranger(self, scope: MutableMapping[str, Any], key: str) -> str:
        """Whose turn a request takes that shows nothing; `key` is that of who has connected."""
        return key

    @abstractmethod
    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or one WebSocket."""
