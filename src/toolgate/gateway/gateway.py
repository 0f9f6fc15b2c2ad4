"""The gateway: a call's whole story, from a client's name for a tool to the outcome in that client's names.

    handle: plan, or resolve → policy_run.before → its server, or ourselves → policy_run.after → surface.leave

The rule this file keeps: every round of a call, a retry too, goes this whole way; what asks on the way keeps the rest
of it around what comes later (`exchange.then`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Raw
from msgspec.structs import replace

from toolgate.core import mcp, names
from toolgate.core.concurrency import BySize
from toolgate.core.events import Events
from toolgate.core.exchange import Retry, resumed, then
from toolgate.core.fault import Fault, Reach
from toolgate.core.model import Ask, Asker, Call, Client, Done, Event, NeedInput, Outcome, Principal, Resumption
from toolgate.core.notes import Notes
from toolgate.core.services import Swap
from toolgate.eras import tasks
from toolgate.gateway import memos
from toolgate.gateway.audience import Audience
from toolgate.gateway.closed import missed
from toolgate.gateway.lists import Lists
from toolgate.gateway.memos import CallMemo
from toolgate.gateway.own_work import OwnWork
from toolgate.gateway.recheck import Rechecks, may_still_have
from toolgate.gateway.reload import Reloading
from toolgate.gateway.resolve import Resolver
from toolgate.gateway.round import Round
from toolgate.gateway.route_view import RouteViews
from toolgate.gateway.send import send_again
from toolgate.gateway.snapshot import Route, Snapshot, removed
from toolgate.gateway.subscriptions import Subscriptions
from toolgate.policy import scrub
from toolgate.policy.access import looked_through
from toolgate.policy.base import Wait
from toolgate.policy.chain import PolicyDeps
from toolgate.policy.faults import with_schema
from toolgate.policy.large_results import aside
from toolgate.policy.run import Hooks
from toolgate.surfaces import who_asks
from toolgate.surfaces.controls.base import find_server
from toolgate.surfaces.controls.context import GatewayInfo
from toolgate.surfaces.handles import Handles
from toolgate.upstreams.base import Upstream

Phase = Literal["serving", "draining", "ending"]
"""Calls are taken; those under way may end, and no new one is taken; what is left is given up."""


class Gateway:
    """What all frontends call: one request, list or watch of a client on a route, in that client's names."""

    def __init__(
        self,
        snapshot: Snapshot,
        events: Events,
        handles: Handles,
        gateway_info: GatewayInfo,
        editor: Reloading,
        policy_deps: PolicyDeps,
        own_work: OwnWork,
    ) -> None:
        clock, access, redactor = policy_deps.clock, policy_deps.access, policy_deps.redactor
        self.access, self.redactor = access, redactor
        self.snapshot, self.events, self.gateway_info = snapshot, events, gateway_info
        self.workspace = own_work.workspace
        self.phase: Phase = "serving"
        self._handles, self._clock = handles, clock
        self._views = RouteViews(gateway_info, editor, policy_deps, own_work, self._current, events.tell, self.handle)
        self.in_turns = BySize(1)  # what is done in a thread: large lists and results, completions, many templates
        self._resolver = Resolver(access, handles, policy_deps.overflow.source, self._current, self.in_turns)
        self.lists = Lists(
            access, clock, redactor, handles, self._views.activated, self._resolver.makers.as_known, self._current
        )
        self._audience = Audience(access, events)
        self.rechecks = Rechecks(self._resolver.enter, self._current)
        now = (self._current, access)
        self.subscriptions = Subscriptions(self.rechecks.entered, self._resolver.placed, clock, redactor, *now)

    def know_by(self, is_known: Callable[[Principal], bool]) -> None:
        """Whether who was let in once would be let in still, wherever calls go on for long."""
        self._views.is_known = is_known

    def _current(self) -> Snapshot:
        return self.snapshot

    # A call.

    async def handle(self, call: Call, route: Route) -> Outcome:
        """One round of a call that a client made on this route. Raises `Fault`."""
        if self.phase != "serving" and not (call.resumption and call.resumption.live):
            raise shutting_down("not_sent")
        round = self.begin(call, route)
        if not round:
            try:
                route, entered, hooks = await self.rechecks.entered(call, route.path)
            except Fault as fault:
                return self._refused(call, route, missed(call, fault, route))
            round = self._begun(call, entered, hooks, route)
        return await self.rest(round)

    def begin(self, call: Call, route: Route) -> Round | None:
        """The same as far as nothing has to be waited for: `rest` goes on, or `finish`. None, and nothing is done,
        where its plan does not tell what it is for."""
        try:
            rules, version = self.access.rules(call.client.principal), self.snapshot.catalog.version
            is_served = self.phase == "serving" and self.snapshot.routes.get(route.path) is route
            plan = route.plans.find(call, rules, version) if is_served else None
            if not plan:
                return None
            hooks = route.hooks if call.resumption else plan.hooks
            round = self._begun(call, plan.enter(call), hooks, route)
        except Fault:
            return None
        round.plan = plan
        return round

    def begin_like(
        self, memo: CallMemo, arguments: Raw, headers: Mapping[str, str] | None, notes: Notes, route: Route
    ) -> Round | None:
        """The same of a call that is like another but for these, where what was found for that one holds still."""
        rules = self.access.rules(memo.entered.client.principal)
        if self.phase != "serving" or not memo.holds(route, self.snapshot.catalog.version, rules):
            return None
        return self._begun(memo, memo.call(arguments, headers, notes), memo.plan.hooks, route)

    def memo(self, round: Round) -> CallMemo | None:
        """What other calls may have in common with one that was begun."""
        return memos.memo(round, self.snapshot.catalog.version, self.access.rules(round.came.client.principal))

    async def rest(self, round: Round) -> Outcome:
        """What comes of a round that was begun. Raises `Fault`."""
        try:
            outcome = await self._through(round)
        except Fault as fault:
            return self._failed(round, fault)
        call, route = round.came, round.route
        left, refused = partial(self._left, call, route), partial(self._refused, call, route)
        return then(outcome, left, refused, shown=partial(self.shown, route))

    def finish(self, round: Round, done: Done) -> Outcome:
        """The same at once, of what its server has answered. Raises `Fault`."""
        assert round.begun
        round.begun.over(None)
        try:
            outcome = round.after(done)
        except Fault as fault:
            round.ended(fault)
            return self._failed(round, fault)
        try:
            return self._left(round.came, round.route, outcome)
        except Fault as fault:
            return self._refused(round.came, round.route, fault)

    def _failed(self, round: Round, fault: Fault) -> Outcome:
        placed = self._resolver.placed(fault, round.came, round.made.target)
        return self._refused(round.came, round.route, placed)

    def _left(self, call: Call, route: Route, last: Outcome) -> Outcome:
        """The last outcome of a call that was entered, in its client's names. A result of a tool has none that could be
        others where it has no `resource`, and no letter escaped in which one might be written."""
        if isinstance(last, Done):
            body: Any = last.body  # a view where it is large: that is looked at piece by piece
            if last.is_cut:
                return last
            if call.method == mcp.CALL and not (call.asked or last.is_foreign or isinstance(body, memoryview)):
                said = bytes(body)
                if said.find(b"resource") < 0 and said.find(b"\\u00") < 0:
                    return last
        return self._handles.leave(call, last, route.path, route.surface, route.print_of(call.server))

    def _refused(self, call: Call, route: Route, fault: Fault) -> Outcome:
        """What a client hears of a fault of its call: what its surface makes of it, else the fault is raised."""
        if (words := fault.words) and (words.is_own or self.access.has_whole(call.client.principal, fault.server)):
            fault = fault.told()
        shown = scrub.fault(with_schema(fault, call), self.redactor)
        if fault.code == "INSUFFICIENT_SCOPE":
            raise shown  # its client's frontend answers, whatever tool it came through: another token may help
        known = self._resolver.known(route, call.client, self.access.rules(call.client.principal))
        return route.surface.refuse(call, shown, known)

    def _begun(self, by: Call | CallMemo, entered: Call, hooks: Sequence[Hooks], route: Route) -> Round:
        """A round through the policies to its server, of a call as its client has made it, or by a memo, and as it
        was entered."""
        snapshot, version = self.snapshot, self.snapshot.catalog.version
        round = _Round(
            entered, hooks, self._clock, route=route, snapshot=snapshot, version=version, gateway=self, by=by
        )
        try:
            call = round.decision = round.begin()
            if not isinstance(call, Call):
                return round
            if isinstance(by, CallMemo) and (call is entered or memos.is_same(call, entered)):
                round.begun = by.line.begin(call)
            elif not call.resumption and (upstream := route.upstreams.get(call.server)):
                round.begun = upstream.begin(call)
        except Fault as fault:
            round.fault = fault.with_traceback(None)
        except BaseException as error:
            round.ended(error)
            raise
        return round

    async def _through(self, round: Round) -> Outcome:
        """The rest of that, and back through the policies."""
        decision, round.decision = round.decision, None  # a question would hold the round that asks it
        try:
            if not decision:
                raise round.failed_with()
            if isinstance(decision, Wait):
                decision = await round.before(decision)
            if isinstance(decision, Call):
                round.may_wait()
                outcome = await self._invoke(decision, round)
            else:
                outcome = decision
        except BaseException as error:
            round.ended(error)
            raise
        if isinstance(outcome, NeedInput):
            round.ended(outcome)
            if not isinstance(decision, Call) and isinstance(outcome.resume, Retry):
                return outcome  # its next round goes through all of this itself
        return then(outcome, round.after, round.failed, round.ended)

    async def again(self, made: Call, path: str) -> Outcome:
        """The next round of a call whose client was asked something by a policy: of what its name means by then."""
        route = self.route(path)
        try:
            route, entered, hooks = await self.rechecks.entered(made, path)
        except Fault as fault:
            raise missed(made, fault, route) from None
        return await self._through(self._begun(made, entered, hooks, route))

    async def _invoke(self, call: Call, round: Round) -> Outcome:
        resumption, route = call.resumption, round.route
        if resumption and resumption.asker.kind == "upstream" and not _has_asked(resumption, call.server, route):
            # A name that means another server than on the round before: the policies have judged the wrong one, or the
            # answers are for what was configured by that name then.
            raise Fault("INVALID_STATE", "requestState belongs to another server", reach="not_sent")
        if resumption and resumption.live:
            return await self._looked_at(call, await resumed(resumption, resumption.live), route)
        if call.server == names.OWN:
            return await self._looked_at(call, await self._views.upstream(route, self._clock).invoke(call), route)
        if call.task and not (call.tool_info and call.tool_info.task_support):
            raise tasks.not_as_task(call.shown)
        upstream = route.upstreams.get(call.server) or removed(call.server)
        begun, round.begun = round.begun, None  # who may look at the call once more would hold its result, too
        try:
            if round.fault:
                raise round.failed_with()
            outcome = await (begun.outcome() if begun else upstream.invoke(call))
        except Fault as fault:
            outcome = await send_again(call, upstream, fault, self._current)
        if call.method == mcp.TASK_RESULT:
            await may_still_have(round, call, outcome)
        if call.reference:
            outcome = await looked_through(self.in_turns.of(0), self.access, call, outcome)
        return await self._looked_at(call, outcome, route) if scrub.is_large(outcome) else outcome

    async def _looked_at(self, call: Call, outcome: Outcome, route: Route) -> Outcome:
        scrubber, leave = self.snapshot.scrubber(call.server, route), partial(self._left, call, route)
        return await aside(call, outcome, scrubber, self.snapshot.truncate, leave, self.in_turns)

    def shown(self, route: Route, asker: Asker, asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
        """The questions of a server as its client may see them."""
        is_alone = route.is_transparent or len(self.snapshot.config.servers) == 1
        return who_asks.shown(asker, self.snapshot.scrubber(asker.name).asks(asks), is_alone)

    # What is told without a call.

    def concerns(self, event: Event, route: Route, client: Client) -> bool:
        """Whether a client is to hear of an event."""
        return self._audience.concerns(event, route, client)

    async def set_level(self, level: str, route: Route, client: Client) -> None:
        """A client wants logs of this level of `mcp.LOG_LEVELS`: see `Upstream.set_level`."""
        await self._tell_all(route, client, lambda upstream: upstream.set_level(level, client))

    async def roots_changed(self, path: str, client: Client) -> None:
        """A client's roots are others now: its own servers are told."""
        await self._tell_all(self.route(path), client, lambda upstream: upstream.roots_changed(client))

    async def _tell_all(
        self, route: Route, client: Client, tell: Callable[[Upstream], Coroutine[Any, Any, None]]
    ) -> None:
        async with asyncio.TaskGroup() as together:
            for upstream in self.lists.told(route, client):
                together.create_task(tell(upstream))

    # Who comes in where, and goes.

    def route(self, path: str) -> Route:
        """What is served at a path now. Raises `Fault` where that was removed."""
        return self.snapshot.route(path)

    def check_let_in(self, route: Route, principal: Principal) -> None:
        """Raises `Fault` where somebody may know of nothing at this path."""
        route.check_let_in(self.access.rules(principal))

    def server_id(self, name: str) -> str:
        """The id of a server by any spelling of its name. Raises `Fault`."""
        return find_server(name, {id: upstream.name for id, upstream in self.snapshot.upstreams.items()})

    def passed_on(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Those headers of a client that some server is to get; each gets its own ones of them."""
        return {name: headers[name] for name in self.snapshot.passed_on if name in headers}

    async def leave(self, client: Client) -> None:
        """A client's session is over. Which connections end with it each upstream decides: it says which scopes have
        ended, and the catalog forgets those. All of them do, though the one that waits here is cancelled."""
        self._views.forget(client)
        if leaving := [ending for each in self.snapshot.upstreams.values() if (ending := each.leave(client))]:
            await asyncio.shield(asyncio.gather(*leaving))

    # Another configuration, and the end.

    def adopt(self, snapshot: Snapshot, use_access: Swap) -> None:
        """Serve another configuration from now on; `use_access` has its permissions hold. Rounds under way keep the one
        that they began with; what clients watch of a server that was changed is asked for anew. The catalog, which
        takes over next, tells of servers that came or are others: who hears of them is on the new routes by then."""
        before, self.snapshot = self.snapshot, snapshot
        self.lists.forget()
        self._audience.adopt(before, snapshot, use_access)
        self.subscriptions.renew()

    def forget_plans(self) -> None:
        """What policies have to do with calls is something else from now on."""
        for route in self.snapshot.routes.values():
            route.plans.forget()

    async def keep_package(self, command: Sequence[str], principal: Principal) -> str:
        """See `Installing.keep`."""
        return await self._views.installing.keep(command, principal)

    async def tokens(self) -> Mapping[str, Any]:
        """What the models of all clients have loaded of tools: see `token_meter`."""
        return await self._views.tokens()

    def given_up(self) -> Fault | None:
        """What is told to a client whose call was cancelled because the gateway ends; None if that was not why."""
        return shutting_down("sent_unknown") if self.phase == "ending" else None

    async def close(self) -> None:
        await self._views.close()
        await self.subscriptions.close()


class _Round(Round, kw_only=True):
    """`by` is the call as its client has made it, or the memo that it is like."""

    gateway: Gateway
    by: Call | CallMemo

    @property
    def made(self) -> Call:
        if isinstance(self.by, CallMemo):
            self.by = self.by.made(self.came)
        return self.by

    async def anew(self) -> tuple[Call, Sequence[Hooks]] | None:
        return await self.gateway.rechecks.anew(self.made, self.came, self.route, self.snapshot, self.version)

    async def again(self, call: Call, /) -> Outcome:
        return await self.gateway.again(replace(self.made, resumption=call.resumption), self.route.path)


def _has_asked(resumption: Resumption, server: str, route: Route) -> bool:
    """Whether it is this server that has asked. What runs still gets the answers itself, whatever it was by."""
    asker = resumption.asker
    return asker.name == server and (resumption.live is not None or asker.print == route.print_of(server))


def shutting_down(reach: Reach) -> Fault:
    """What is told to clients that call while the gateway ends, and to those whose calls do not end in time."""
    hint = "call again after the restart" if reach == "not_sent" else "it may have run: check before you call again"
    return Fault("SHUTTING_DOWN", "The gateway is shutting down", reach=reach, hint=hint)
