"""What clients watch now, and that they go on watching it when its server is changed.

The rules this file keeps: a watch is ended at the server at which it stands, and nowhere else. The upstream of another
configuration holds a watch when it was asked for it anew and has answered. No server holds one that its client may not
have, nor is it asked for; it is asked for anew when the client may again. A principal has as many as it may over all
of its sessions and streams: it can begin as many of these as it likes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from toolgate.config.access import Verdict
from toolgate.core import names
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.fault import RETRYABLE, Fault
from toolgate.core.model import Call, Client, Done, Principal
from toolgate.core.redaction import Redactor
from toolgate.gateway.closed import missed
from toolgate.gateway.recheck import Entered
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy import scrub
from toolgate.policy.run import PolicyRun
from toolgate.upstreams.base import Upstream
from toolgate.upstreams.mcp.resubscribe import Pauses

MOST_OF_ONE = 4096  # subscriptions of one principal
MOST_BYTES = 4 * 1024 * 1024  # of their URIs
_ROOM = 4096  # bytes of these, which most URIs have room in

log = logging.getLogger(__name__)


class Subscriptions:
    """Each is known by its call, which has its true target. `entered` resolves a call at a path, `placed` names the
    place of a fault; `current` is the snapshot that is served now, `judge` says of a call whether its client may
    make it."""

    def __init__(
        self,
        entered: Entered,
        placed: Callable[[Fault, Call, str], Fault],
        clock: Clock,
        redactor: Redactor,
        current: Callable[[], Snapshot],
        judge: Callable[[Call], Verdict],
    ) -> None:
        self._entered = entered
        self._placed = placed
        self._clock = clock
        self._redactor = redactor
        self._current = current
        self._judge = judge
        self._calls: dict[int, Call] = {}
        self._unheld: dict[int, Upstream] = {}  # of these calls, servers that were not asked anew yet, or in vain
        self._off: set[int] = set()  # of these, those that their clients may not have now
        self._renewing = BackgroundTasks()
        self._counted: Counter[str] = Counter()  # by principal (`Principal.counted_as`)
        self._bytes: Counter[str] = Counter()

    async def watch(self, uri: str, route: Route, client: Client, method: str) -> Call:
        """Have a server tell when what is watched by this method (`mcp.WATCH_FILTERS`) changes; the call by which it is
        known further on. Raises `Fault`."""
        try:
            return await self._watched(Call(method, uri, client), route)
        except Fault as fault:
            raise scrub.fault(fault, self._redactor) from None

    async def _watched(self, call: Call, route: Route) -> Call:
        try:
            route, entered, _ = await self._entered(call, route.path)
        except Fault as fault:
            raise missed(call, fault, route) from None
        try:
            return await self._let_watch(entered, route)
        except Fault as fault:
            raise self._placed(fault, entered, call.target) from None

    async def _let_watch(self, call: Call, route: Route) -> Call:
        policy_run = PolicyRun(call, route.hooks, self._clock)
        try:
            decision = await policy_run.before()
            if not isinstance(decision, Call):
                raise Fault("ACCESS_DENIED", "A subscription cannot ask the user, so it was refused")
            if decision.server == names.OWN:
                raise Fault("METHOD_NOT_FOUND", "The gateway does not report changes of its own resources")
            await self._begin(decision, route.upstream(decision.server))
        except BaseException as error:
            policy_run.ended(error)
            raise
        policy_run.ended(Done(b"{}"))
        return decision

    async def _begin(self, call: Call, upstream: Upstream) -> None:
        self._count(call)
        if call.reached:
            call.reached.is_sent = True  # or may be, with those of others
        try:
            await upstream.watch(call.target, call.client, call.kind)
        except BaseException:
            self._discount(call)
            raise
        self._calls[id(call)] = call
        self._renew(call, upstream)  # the server may have been changed meanwhile

    def unwatch(self, call: Call) -> None:
        """End what `watch` began, by what it returned."""
        upstream = self._current().upstreams.get(call.server)
        if self._calls.pop(id(call), None):
            self._discount(call)
        self._off.discard(id(call))
        unheld = self._unheld.pop(id(call), None)
        if upstream and upstream is not unheld:
            upstream.unwatch(call.target, call.client, call.kind)

    def is_full(self, principal: Principal) -> bool:
        """Whether it has as many as it may, whatever it would watch."""
        who = principal.counted_as
        return self._counted[who] >= MOST_OF_ONE or self._bytes[who] > MOST_BYTES - _ROOM

    def _count(self, call: Call) -> None:
        """Raises `Fault` where its principal has as many as it may."""
        who, size = call.client.principal.counted_as, _bytes(call.target)
        if self.is_full(call.client.principal) or self._bytes[who] + size > MOST_BYTES:
            message = (
                f"Too many subscriptions: all sessions and streams of a client together may have {MOST_OF_ONE:,}, "
                f"and {MOST_BYTES // 1024**2} MiB of URIs"
            )
            hint = "unsubscribe from some, or end sessions that are no longer needed"
            raise Fault("INVALID_REQUEST", message, reach="not_sent", hint=hint)
        self._counted[who] += 1
        self._bytes[who] += size

    def _discount(self, call: Call) -> None:
        who = call.client.principal.counted_as
        self._counted[who] -= 1
        self._bytes[who] -= _bytes(call.target)
        if not self._counted[who]:
            del self._counted[who], self._bytes[who]

    def renew(self, before: Snapshot) -> None:
        """Ask for what is watched of servers that are others than before anew, and for what was off; and end what is
        off now."""
        for call in list(self._calls.values()):
            self._renew(call, before.upstreams.get(call.server))

    def _renew(self, call: Call, before: Upstream | None) -> None:
        upstream = self._current().upstreams.get(call.server)
        if not upstream:
            return
        was_off, is_off = id(call) in self._off, self._judge(call) == "off"
        if is_off and upstream is before is not self._unheld.get(id(call)):
            upstream.unwatch(call.target, call.client, call.kind)
        if is_off:
            self._off.add(id(call))
            self._unheld[id(call)] = upstream
        elif was_off or upstream is not before:
            self._off.discard(id(call))
            self._unheld[id(call)] = upstream
            if call.kind == "tasks" and not (before and before.print == upstream.print):
                return  # the task is of another server, and so is its id
            self._renewing.start(self._begin_again(call, upstream), f"renew subscriptions at {call.server}")

    async def _begin_again(self, call: Call, upstream: Upstream) -> None:
        """Until its client has left, or may not have it, or the server is another once more."""
        pauses = Pauses()
        while self._is_to_begin(call, upstream) and upstream is self._current().upstreams.get(call.server):
            try:
                await upstream.watch(call.target, call.client, call.kind)
            except Fault as fault:
                if fault.code not in RETRYABLE:
                    log.warning("%s was changed; no more updates of %s: %s", upstream.name, call.target, fault.message)
                    return
                log.info("%s was changed, and cannot tell of %s yet: %s", upstream.name, call.target, fault.message)
                await self._clock.sleep(pauses.after_loss(self._clock.now()))
                continue
            if self._is_to_begin(call, upstream):
                del self._unheld[id(call)]
            else:  # its client has left before there was anything to end
                upstream.unwatch(call.target, call.client, call.kind)

    def _is_to_begin(self, call: Call, upstream: Upstream) -> bool:
        return self._unheld.get(id(call)) is upstream and id(call) not in self._off

    async def close(self) -> None:
        await self._renewing.close()


def _bytes(uri: str) -> int:
    """What keeping it takes."""
    return len(uri) if uri.isascii() else 4 * len(uri)
