"""What clients watch now, and that they go on watching it when its server is changed.

The rule this file keeps: a watch is ended at the server at which it stands, and nowhere else. The upstream of another
configuration holds a watch when it was asked for it anew and has answered.
"""

from __future__ import annotations

import logging

from toolgate.core.background import BackgroundTasks
from toolgate.core.model import Call, Fault
from toolgate.gateway.snapshot import Snapshot
from toolgate.upstreams.base import Upstream

log = logging.getLogger(__name__)


class Subscriptions:
    """Each is known by its call, which has its true target."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._unheld: dict[int, Upstream] = {}  # of these calls, servers that were not asked anew yet, or in vain
        self._renewing = BackgroundTasks()

    async def begin(self, call: Call, upstream: Upstream) -> None:
        """Raises `Fault`."""
        await upstream.watch(call.target, call.client, call.kind)
        self._calls[id(call)] = call

    def end(self, call: Call, upstream: Upstream | None) -> None:
        """`upstream` is that of its server now."""
        self._calls.pop(id(call), None)
        unheld = self._unheld.pop(id(call), None)
        if upstream and upstream is not unheld:
            upstream.unwatch(call.target, call.client, call.kind)

    def renew(self, before: Snapshot, now: Snapshot) -> None:
        """Ask for what is watched of servers that are others than before anew."""
        for call in list(self._calls.values()):
            upstream = now.upstreams.get(call.server)
            if upstream and upstream is not before.upstreams.get(call.server):
                self._unheld[id(call)] = upstream
                self._renewing.start(self._begin_again(call, upstream), f"watch {call.server} again")

    async def _begin_again(self, call: Call, upstream: Upstream) -> None:
        try:
            await upstream.watch(call.target, call.client, call.kind)
        except Fault as fault:
            log.warning("%s was changed; no more updates of %s: %s", upstream.name, call.target, fault.message)
            return
        if id(call) not in self._calls:  # its client has left before there was anything to end
            upstream.unwatch(call.target, call.client, call.kind)
        elif self._unheld.get(id(call)) is upstream:
            del self._unheld[id(call)]

    async def close(self) -> None:
        await self._renewing.close()
