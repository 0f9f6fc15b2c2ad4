"""What clients watch now, and that they go on watching it when its server is changed.

The rule this file keeps: a watch is ended at the server at which it stands, and nowhere else. The upstream of another
configuration holds a watch when it was asked for it anew and has answered. A principal has as many as it may over all
of its sessions and streams: it can begin as many of these as it likes.
"""

from __future__ import annotations

import logging
from collections import Counter

from toolgate.core.background import BackgroundTasks
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.gateway.snapshot import Snapshot
from toolgate.upstreams.base import Upstream

MOST_OF_ONE = 4096  # subscriptions of one principal
MOST_BYTES = 4 * 1024 * 1024  # of their URIs

log = logging.getLogger(__name__)


class Subscriptions:
    """Each is known by its call, which has its true target."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._unheld: dict[int, Upstream] = {}  # of these calls, servers that were not asked anew yet, or in vain
        self._renewing = BackgroundTasks()
        self._counted: Counter[str] = Counter()  # by principal (`Principal.counted_as`)
        self._bytes: Counter[str] = Counter()

    async def begin(self, call: Call, upstream: Upstream) -> None:
        """Raises `Fault`."""
        self._count(call)
        if call.reached:
            call.reached.is_sent = True  # or may be, with those of others
        try:
            await upstream.watch(call.target, call.client, call.kind)
        except BaseException:
            self._discount(call)
            raise
        self._calls[id(call)] = call

    def end(self, call: Call, upstream: Upstream | None) -> None:
        """`upstream` is that of its server now."""
        if self._calls.pop(id(call), None):
            self._discount(call)
        unheld = self._unheld.pop(id(call), None)
        if upstream and upstream is not unheld:
            upstream.unwatch(call.target, call.client, call.kind)

    def _count(self, call: Call) -> None:
        """Raises `Fault` where its principal has as many as it may."""
        who, size = call.client.principal.counted_as, _bytes(call.target)
        if self._counted[who] >= MOST_OF_ONE or self._bytes[who] + size > MOST_BYTES:
            message = (
                f"Too many subscriptions: all sessions and streams of a client together may have {MOST_OF_ONE:,}, "
                f"and {MOST_BYTES // 1024**2} MiB of URIs"
            )
            hint = "unsubscribe from some, or end sessions that are not needed any more"
            raise Fault("INVALID_REQUEST", message, reach="not_sent", hint=hint)
        self._counted[who] += 1
        self._bytes[who] += size

    def _discount(self, call: Call) -> None:
        who = call.client.principal.counted_as
        self._counted[who] -= 1
        self._bytes[who] -= _bytes(call.target)
        if not self._counted[who]:
            del self._counted[who], self._bytes[who]

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


def _bytes(uri: str) -> int:
    """What keeping it takes."""
    return len(uri) if uri.isascii() else 4 * len(uri)
