"""What clients watch now, and that they go on watching it when its server is changed.

The rules this file keeps: a watch is ended at the server at which it stands, and nowhere else. The upstream of another
configuration holds a watch when it was asked for it anew and has answered. No server is asked for one that its client
may not have, and one that holds such a one is told to end it, soon; it is asked for anew when the client may again. A
principal has as many as it may over all of its sessions and streams: it can begin as many of these as it likes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

import msgspec

from toolgate.auth.access import Access
from toolgate.core import crowds, names
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock
from toolgate.core.fairness import RoundRobin
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
_LOOKED_AT = 512  # in one step: whether anything is another
_ROOM = 4096  # bytes of these, which most URIs have room in

log = logging.getLogger(__name__)


class _Watch(msgspec.Struct, eq=False):
    """`at` is the server where it is to be, as it was looked at last; `is_held`: it was asked, and has agreed.
    `is_off`: its client may not have it, by the `rules` of that one (`Rules.print`; None: they were not asked yet)."""

    call: Call
    at: Upstream | None
    is_held: bool
    is_off: bool = False
    rules: str | None = None

    @property
    def whose(self) -> str:
        return self.call.client.principal.counted_as


class Subscriptions:
    """Each is known by its call, which has its true target. `entered` resolves a call at a path, `placed` names the
    place of a fault; `current` is the snapshot that is served now, `access` says of a call whether its client may
    make it."""

    def __init__(
        self,
        entered: Entered,
        placed: Callable[[Fault, Call, str], Fault],
        clock: Clock,
        redactor: Redactor,
        current: Callable[[], Snapshot],
        access: Access,
    ) -> None:
        self._entered = entered
        self._placed = placed
        self._clock = clock
        self._redactor = redactor
        self._current = current
        self._access = access
        self._watched_calls: dict[int, _Watch] = {}  # by the ids of their calls
        self._renewing = BackgroundTasks()
        self._is_renewing = self._is_due = False
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
        watch = self._watched_calls[id(call)] = _Watch(call, upstream, is_held=True)
        self._renew(watch)  # the server may have been changed meanwhile

    def unwatch(self, call: Call) -> None:
        """End what `watch` began, by what it returned."""
        if watch := self._watched_calls.pop(id(call), None):
            self._discount(call)
            if watch.is_held and watch.at and watch.at is self._current().upstreams.get(call.server):
                watch.at.unwatch(call.target, call.client, call.kind)

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

    def renew(self) -> None:
        """Ask for what is watched of servers that are others than before anew, and for what was off; and end what is
        off now. In turns of principals: it may be thousands of each, whose URIs take milliseconds to be judged. What
        happens meanwhile is judged when it is told (`Audience.concerns`)."""
        self._is_due = True
        if self._watched_calls and not self._is_renewing:
            self._is_renewing = True
            self._renewing.start(self._renew_all(), "renew subscriptions")

    async def _renew_all(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                stale = await self._stale()
                while watch := stale.pop():
                    await crowds.turn(watch.whose)
                    if self._watched_calls.get(id(watch.call)) is watch:
                        self._renew(watch)
        finally:
            self._is_renewing = False

    async def _stale(self) -> RoundRobin[_Watch]:
        """Those which the configuration of now may mean something for."""
        stale: RoundRobin[_Watch] = RoundRobin()
        for number, watch in enumerate(list(self._watched_calls.values()), 1):
            at = self._current().upstreams.get(watch.call.server)
            if at is not watch.at or self._rules(watch.call) != watch.rules:
                stale.put(watch.whose, watch)
            if not number % _LOOKED_AT:
                await asyncio.sleep(0)
        return stale

    def _rules(self, call: Call) -> str:
        rules = self._access.rules(call.client.principal)
        return rules.print if rules else ""

    def _renew(self, watch: _Watch) -> None:
        call, before, was_off = watch.call, watch.at, watch.is_off
        if watch.rules != (rules := self._rules(call)):
            watch.rules, watch.is_off = rules, self._is_off(call)
        watch.at = self._current().upstreams.get(call.server)
        if watch.at is not before:
            watch.is_held = False
        if not watch.at:
            return
        if watch.is_off and watch.is_held:
            watch.is_held = False
            watch.at.unwatch(call.target, call.client, call.kind)
        elif not watch.is_off and (was_off or watch.at is not before):
            if call.kind == "tasks" and not (before and before.print == watch.at.print):
                return  # the task is of another server, and so is its id
            self._renewing.start(self._begin_again(watch, watch.at), f"renew subscriptions at {call.server}")

    def _is_off(self, call: Call) -> bool:
        return self._access.judge(call) == "off"

    async def _begin_again(self, watch: _Watch, upstream: Upstream) -> None:
        """Until its client has left, or may not have it, or the server is another once more."""
        call, pauses = watch.call, Pauses()
        while self._is_to_begin(watch, upstream) and upstream is self._current().upstreams.get(call.server):
            if watch.rules != self._rules(call) and self._is_off(call):  # since a moment ago
                watch.is_off = True
                return
            try:
                await upstream.watch(call.target, call.client, call.kind)
            except Fault as fault:
                if fault.code not in RETRYABLE:
                    log.warning("%s was changed; no more updates of %s: %s", upstream.name, call.target, fault.message)
                    return
                log.info("%s was changed, and cannot tell of %s yet: %s", upstream.name, call.target, fault.message)
                await self._clock.sleep(pauses.after_loss(self._clock.now()))
                continue
            if self._is_to_begin(watch, upstream):
                watch.is_held = True
            else:  # its client has left before there was anything to end
                upstream.unwatch(call.target, call.client, call.kind)

    def _is_to_begin(self, watch: _Watch, upstream: Upstream) -> bool:
        is_wanted = watch.at is upstream and not watch.is_held and not watch.is_off
        return is_wanted and self._watched_calls.get(id(watch.call)) is watch

    async def close(self) -> None:
        await self._renewing.close()


def _bytes(uri: str) -> int:
    """What keeping it takes."""
    return len(uri) if uri.isascii() else 4 * len(uri)
