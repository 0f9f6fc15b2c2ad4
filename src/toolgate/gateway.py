"""The gateway: a call's whole story, from a client's name for a tool to the outcome in that client's names.

    handle: catalog → surface.enter → policies before → upstream.invoke → policies after → surface.leave

The rule this file keeps: every leg of a call, a retry too, goes through the same rules; what asks on the way keeps
them around what comes later (`Then`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from toolgate import asks
from toolgate.catalog import CatalogView
from toolgate.exchange import Retry, Then
from toolgate.model import Call, Client, Fault, Listing, NeedInput, Outcome, Required, Resumption
from toolgate.policy.base import Policy
from toolgate.ports import Clock
from toolgate.snapshot import Route, Snapshot
from toolgate.wire import jsonrpc, mcp


class Gateway:
    def __init__(self, snapshot: Snapshot, clock: Clock) -> None:
        self.snapshot = snapshot
        self._clock = clock

    async def handle(self, call: Call, route: Route) -> Outcome:
        """One leg of a call that a client made on this route. Raises `Fault`."""
        catalog = self.snapshot.catalog
        view = CatalogView(route.servers, lambda server, kind: catalog.known(server, kind, call.client), {}, ())
        needs = list(route.surface.needs(call, view))
        if any(view.shelf(*need) is None for need in needs):
            # A bare name may be any server's: those that do not come up in time cannot be meant.
            patience = self.snapshot.list_timeout if len(needs) > 1 else None
            view = await catalog.view(route.servers, needs, call.client, patience)
        try:
            entered = route.surface.enter(call, view)
        except Fault as fault:
            raise fault.at("", call.target) from None
        try:
            outcome = await self._through(entered, route.policies)
        except Fault as fault:
            raise fault.at(entered.server, entered.target) from None
        return _then(outcome, lambda last: route.surface.leave(entered, last))

    async def list(self, kind: str, route: Route, client: Client) -> Listing:
        """One list of everything on this route. Raises `Fault` only where no server at all has answered."""
        wanted = [(server, kind) for server in route.servers]
        view = await self.snapshot.catalog.view(route.servers, wanted, client, self.snapshot.list_timeout)
        failures = tuple(
            (self.snapshot.upstreams[server].name, fault.message)
            for server in route.servers
            if (fault := view.fault(server, kind))
        )
        if failures and len(failures) == len(route.servers):
            raise _all_failed(kind, failures)
        pending = tuple(self.snapshot.upstreams[server].name for server, _ in wanted if (server, kind) in view.pending)
        return Listing(kind, tuple(route.surface.list(kind, view)), failures, pending)

    async def leave(self, client: Client) -> None:
        """A client's session is over."""
        for upstream in self.snapshot.upstreams.values():
            if scope := upstream.scope(client):
                self.snapshot.catalog.forget(upstream.id, scope)
            await upstream.leave(client)

    async def _through(self, call: Call, policies: Sequence[Policy]) -> Outcome:
        passed: list[Policy] = []
        depth = _depth(call.resumption, policies)
        for index, policy in enumerate(policies):
            decision = policy.before(call, index < depth)
            if isinstance(decision, Required):
                _refuse_if_unanswerable(call, decision)
                again = Retry(
                    f"policy:{policy.name}", call, decision, lambda next: self._through(next, policies), self._clock
                )
                return NeedInput(decision.asks, again)
            if not isinstance(decision, Call):
                return _after(call, decision, passed)
            call = decision
            passed.append(policy)
        outcome = await self._invoke(call)
        return _then(outcome, lambda last: _after(call, last, passed)) if passed else outcome

    async def _invoke(self, call: Call) -> Outcome:
        resumption = call.resumption
        if resumption and resumption.asker.startswith("upstream:") and resumption.asker != f"upstream:{call.server}":
            # A bare name that means another server than on the leg before: the rules have judged the wrong one.
            raise Fault("INVALID_STATE", "requestState belongs to another server", reach="not_sent")
        if resumption and resumption.live:
            return await _resume(resumption)
        upstream = self.snapshot.upstreams[call.server]
        try:
            return await upstream.invoke(call)
        except Fault as fault:
            if not self._may_be_sent_again(call, fault):
                raise
            return await upstream.invoke(call)

    def _may_be_sent_again(self, call: Call, fault: Fault) -> bool:
        """The one safe retry (behaviour.md 6.4): nothing was sent, or sending it twice does no harm."""
        if fault.code == "SESSION_ERROR":
            return fault.reach == "not_sent"
        if fault.code != "SERVER_FAILED" or fault.reach != "sent_unknown":
            return False
        return call.method != "tools/call" or self._is_harmless(call)

    def _is_harmless(self, call: Call) -> bool:
        shelf = self.snapshot.catalog.known(call.server, "tools", call.client)
        raw = shelf.items.get(call.target) if shelf else None
        if raw is None:
            return False
        try:
            hints = msgspec.json.decode(raw, type=_Tool).annotations
        except jsonrpc.UNREADABLE:
            return False
        return hints.readOnlyHint or hints.idempotentHint


class _Hints(msgspec.Struct):
    readOnlyHint: bool = False
    idempotentHint: bool = False


class _Tool(msgspec.Struct):
    annotations: _Hints = msgspec.field(default_factory=_Hints)


async def _resume(resumption: Resumption) -> Outcome:
    """Go on with work that waited. Questions that were left unanswered are asked again."""
    live = resumption.live
    assert live
    for key, answer in resumption.answers.items():
        live.answer(key, answer)
    asks = live.open_asks()
    return NeedInput(asks, live) if asks else await live.next()


def _depth(resumption: Resumption | None, policies: Sequence[Policy]) -> int:
    """How many of the rules the call had passed when it was asked something: those in front of whoever asked."""
    if not resumption:
        return 0
    askers = [f"policy:{policy.name}" for policy in policies]
    return askers.index(resumption.asker) if resumption.asker in askers else len(askers)


def _then(outcome: Outcome, then: Callable[[Outcome], Outcome]) -> Outcome:
    """`then` applied to the last outcome: now, or when the questions before it are answered."""
    if isinstance(outcome, NeedInput):
        return NeedInput(outcome.asks, Then(outcome.resume, lambda later: _then(later, then)))
    return then(outcome)


def _refuse_if_unanswerable(call: Call, required: Required) -> None:
    """A rule may ask only what the client has declared; where it must ask and cannot, the call is over."""
    for ask in required.asks:
        if not asks.is_answerable(ask, call.client.capabilities):
            capability = mcp.ASKS[ask.method].capability
            message = f"The call needs {capability}, which its client did not declare"
            raise Fault(
                "MISSING_CAPABILITY", message, reach="not_sent", extra={"requiredCapabilities": {capability: {}}}
            )


def _after(call: Call, outcome: Outcome, passed: Sequence[Policy]) -> Outcome:
    for policy in reversed(passed):
        outcome = policy.after(call, outcome)
    return outcome


def _all_failed(kind: str, failures: Sequence[tuple[str, str]]) -> Fault:
    shown = "; ".join(f"{server}: {why}" for server, why in failures)
    extra = {"failures": [{"server_id": server, "error": why} for server, why in failures]}
    return Fault("SERVER_FAILED", f"No server could list its {kind}: {shown}", extra=extra)
