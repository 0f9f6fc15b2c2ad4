"""The gateway: a call's whole story, from a client's name for a tool to the outcome in that client's names.

    handle: catalog → surface.enter → policies before → upstream.invoke → policies after → surface.leave

The rule this file keeps: every leg of a call, a retry too, goes through the same policies; what asks on the way keeps
them around what comes later (`Then`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from toolgate import asks, controls, greeting, overlays, permitted, traits
from toolgate.access import OPERATOR, Access, Rules
from toolgate.catalog import CatalogView
from toolgate.controls import own
from toolgate.controls.base import find_server
from toolgate.eras import mirrors, tasks
from toolgate.events import Events
from toolgate.exchange import Retry, Then, raised
from toolgate.model import (
    Call,
    Client,
    Done,
    Event,
    Fault,
    Listing,
    NeedInput,
    Outcome,
    Principal,
    Required,
    Resumption,
)
from toolgate.policy import scrub
from toolgate.policy.base import Policy, Wait
from toolgate.policy.quarantine import quarantined
from toolgate.policy.scrub import Scrubber
from toolgate.ports import About, Clock, Editor, House, Shelf, Upstream
from toolgate.realm import Realms
from toolgate.redaction import Redactor
from toolgate.snapshot import Route, Snapshot
from toolgate.spills import Spills
from toolgate.surfaces.handles import Handles
from toolgate.upstreams.stopping import was_stopped
from toolgate.wire import jsonrpc, mcp, names

log = logging.getLogger(__name__)

GREETING = 0.5  # seconds that a client's first words wait for servers to start; some clients wait for a second only


class Gateway:
    """What all doors call: one request, list or watch of a client on a route, in that client's names."""

    def __init__(
        self,
        snapshot: Snapshot,
        events: Events,
        handles: Handles,
        house: House,
        editor: Editor,
        spills: Spills,
        access: Access,
        clock: Clock,
        redactor: Redactor,
    ) -> None:
        self.snapshot = snapshot
        self.access = access
        self.redactor = redactor
        self.events = events
        self._handles = handles
        self._clock = clock
        self._realms = Realms(house, editor, spills, access, lambda: self.snapshot, events.tell)
        self._watches: dict[int, Call] = {}  # what clients watch now, to be asked for anew of a changed server
        self._unheld: dict[int, Upstream] = {}  # of these calls, servers that were not asked anew yet, or in vain
        self._rewatching: set[asyncio.Task[None]] = set()

    def route(self, path: str) -> Route:
        """What is served at a path now. Raises `Fault` where that was removed."""
        return self.snapshot.route(path)

    def server_id(self, name: str) -> str:
        """The id of a server by any spelling of its name. Raises `Fault`."""
        return find_server(name, {id: upstream.name for id, upstream in self.snapshot.upstreams.items()})

    @property
    def scrubber(self) -> Scrubber:
        """What takes secrets out of what servers say."""
        return self.snapshot.scrubber

    def passed_on(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Those headers of a client that some server is to get; each gets its own ones of them."""
        return {name: headers[name] for name in self.snapshot.passed_on if name in headers}

    def adopt(self, snapshot: Snapshot) -> None:
        """Serve another configuration from now on. Calls under way keep the one that they began with; what clients
        watch of a server that was changed is asked for anew. The catalog, which takes over next, tells of servers that
        came or are others now: whoever hears of them is on the new routes by then."""
        before, self.snapshot = self.snapshot, snapshot
        was_open, known = self.access.is_open, self.access.clients
        self.access.use(snapshot.config)
        self._tell_who_sees_others(before, was_open, known)
        for call in list(self._watches.values()):
            upstream = snapshot.upstreams.get(call.server)
            if upstream and upstream is not before.upstreams.get(call.server):
                self._unheld[id(call)] = upstream
                again = asyncio.get_running_loop().create_task(self._watch_again(call, upstream), name="watch again")
                self._rewatching.add(again)
                again.add_done_callback(self._rewatching.discard)

    def _tell_who_sees_others(self, before: Snapshot, was_open: bool, known: Mapping[str, Rules]) -> None:
        """Clients hear that their lists are others now: by what they may do, or for reasons that no event of one server
        brings to its clients."""
        servers, everybodys = _news(before, self.snapshot), Event("", "list_changed", lists=tuple(mcp.LIST_OF_KIND))
        is_open, now = self.access.is_open, self.access.clients
        is_shown_otherwise = any(getattr(before.config, part) != getattr(self.snapshot.config, part) for part in _SHOWN)
        if is_open != was_open or is_shown_otherwise or (is_open and servers):
            return self.events.tell(everybodys)
        told = {id for id in {**known, **now} if _sees_others(known.get(id), now.get(id), servers)}
        if told or servers:
            self.events.tell(msgspec.structs.replace(everybodys, clients=frozenset((*told, OPERATOR))))

    async def _watch_again(self, call: Call, upstream: Upstream) -> None:
        try:
            await upstream.watch(call.target, call.client, call.kind)
        except Fault as fault:
            log.warning("%s was changed, and tells no more of %s: %s", upstream.name, call.target, fault.message)
            return
        if id(call) not in self._watches:  # its client has left before there was anything to end
            upstream.unwatch(call.target, call.client, call.kind)
        elif self._unheld.get(id(call)) is upstream:
            del self._unheld[id(call)]

    async def close(self) -> None:
        self._realms.close()
        for task in self._rewatching:
            task.cancel()
        await asyncio.gather(*self._rewatching, return_exceptions=True)

    async def handle(self, call: Call, route: Route) -> Outcome:
        """One leg of a call that a client made on this route. Raises `Fault`."""
        entered = call

        def refused(fault: Fault) -> Outcome:
            shown = scrub.fault(fault, self.redactor)
            if fault.code == "INSUFFICIENT_SCOPE":
                raise shown  # its client's door answers, whatever tool it came through: another token may mend it
            rules = self.access.rules(call.client.principal)
            return route.surface.refuse(entered, shown, self._known(route, call.client, rules))

        try:
            entered = await self._enter(call, route)
            outcome = await self._handled(entered, route, call.target)
        except Fault as fault:
            return refused(fault)
        return _then(outcome, lambda last: self._handles.leave(entered, last, route.path, route.surface), refused)

    def _known(self, route: Route, client: Client, rules: Rules | None) -> CatalogView:
        """What is known now of those of a route's servers that a client may see."""
        catalog = self.snapshot.catalog
        view = CatalogView(route.servers, lambda server, kind: catalog.known(server, kind, client), {}, ())
        return view.for_whom(rules)

    def _shelves(self, client: Client) -> Callable[[str, str], Shelf | None]:
        catalog = self.snapshot.catalog
        return lambda server, kind: catalog.known(server, kind, client)

    def servers(self, route: Route, client: Client) -> Mapping[str, str]:
        """The configured names, by id, of those of a route's servers that a client may know of."""
        rules = self.access.rules(client.principal)
        return route.servers if rules is None else rules.servers(route.servers)

    def check_let_in(self, route: Route, principal: Principal) -> None:
        """Raises `Fault` where a path is that of one server, which this client may not know of."""
        rules = self.access.rules(principal)
        if rules is not None and route.is_strict and not rules.servers(route.servers):
            raise Fault("ACCESS_DENIED", "Access denied: this client may not use that", reach="not_sent")

    async def _handled(self, call: Call, route: Route, written: str) -> Outcome:
        try:
            return await self._through(call, route)
        except Fault as fault:
            raise self._placed(fault, call, written) from None

    def _placed(self, fault: Fault, call: Call, written: str) -> Fault:
        """The fault with its place. What a client may not see has the name that it has `written` itself, if any."""
        shown = "" if call.kind == "tasks" else call.shown
        rules = self.access.rules(call.client.principal)
        if rules is None or fault.code != "ACCESS_DENIED" or fault.server:
            return fault.at(call.server, shown)
        server = call.server if rules.sees(call.server) else ""
        return fault.at(server, "" if not shown else shown if call.asked else written)

    async def _enter(self, call: Call, route: Route) -> Call:
        """The call with its true target. What that takes of the catalog is fetched."""
        if call.kind == "tasks":
            return self._handles.enter(call, route.path)
        rules = self.access.rules(call.client.principal)
        if rules is not None and route.is_strict:
            self.check_let_in(route, call.client.principal)
        view = self._known(route, call.client, rules)
        needs = list(route.surface.needs(call, view))
        if any(view.shelf(*need) is None for need in needs):
            # A bare name may be any server's: those that do not come up in time cannot be meant.
            patience = self.snapshot.list_timeout if len(needs) > 1 else None
            view = await self.snapshot.catalog.view(route.servers, needs, call.client, patience, rules=rules)
        try:
            return self._by_own_name(_entered(route, call, view), view)
        except Fault as fault:
            if rules is not None and fault.code in _NOT_FOUND and (denied := self._denied(call, route, rules)):
                return denied
            raise

    def _by_own_name(self, entered: Call, view: CatalogView) -> Call:
        if entered.method != mcp.CALL or entered.server == names.OWN:
            return entered
        shelf = view.shelf(entered.server, "tools")
        if shelf is None and self.snapshot.catalog.hides(entered.server):
            raise (view.fault(entered.server, "tools") or _unlisted()).at(entered.server, entered.target)
        return _by_own_names(entered, shelf) if shelf and shelf.is_overlaid else _with_traits(entered, shelf)

    def _denied(self, call: Call, route: Route, rules: Rules) -> Call | None:
        """What a call would be for somebody who may see everything, if its own client may not, so that it is refused by
        the policies as any other. No server is asked for that; and of one that the client may not see, any name is
        refused alike, so that nobody learns which it has."""
        known = self._shelves(call.client)

        def seen(server: str, kind: str) -> Shelf | None:
            return known(server, kind) if rules.sees(server) else None

        def seen_or_anything(server: str, kind: str) -> Shelf | None:
            return seen(server, kind) or permitted.anything()

        found = self._found(call, route, seen)
        if isinstance(found, Fault):
            found = self._found(call, route, known if found.code in _NOT_FOUND else seen_or_anything)
        return found if isinstance(found, Call) and self.access.judge(found) == "off" else None

    def _found(self, call: Call, route: Route, shelves: Callable[[str, str], Shelf | None]) -> Call | Fault:
        try:
            entered = route.surface.enter(call, CatalogView(route.servers, shelves, {}, ()))
        except Fault as fault:
            return fault
        return _as_permitted(entered, shelves(entered.server, "tools"))

    async def list(self, kind: str, route: Route, client: Client) -> Listing:
        """One list of everything on this route. Raises `Fault` only where no server at all has answered."""
        self.check_let_in(route, client.principal)
        rules = self.access.rules(client.principal)
        shown = route.surface.shown(kind, self.servers(route, client))
        wanted = [(server, kind) for server in shown]
        activated = self._realms.activated(client)
        snapshot = self.snapshot
        view = await snapshot.catalog.view(route.servers, wanted, client, snapshot.list_timeout, activated, rules)
        failures = [
            (route.upstreams[server].name, self.redactor.text(fault.message))
            for server in shown
            if (fault := view.fault(server, kind))
        ]
        shelves = [shelf for server in shown if (shelf := view.shelf(server, kind))]
        if failures and len(failures) == len(shown) and not shelves:
            raise _all_failed(kind, failures)
        pending = tuple(route.upstreams[server].name for server, _ in wanted if (server, kind) in view.pending)
        is_whole = not failures and not pending and len(shelves) == len(shown)
        now = self._clock.now()
        return Listing(
            kind,
            tuple(route.surface.list(kind, view)),
            (*failures, *((server, self.redactor.text(why)) for server, why in route.surface.faults(kind, view))),
            pending,
            ttl=max(0.0, min((shelf.until or 0.0 for shelf in shelves), default=now) - now) if is_whole else 0.0,
            is_public=is_whole and rules is None and all(shelf.is_public for shelf in shelves),
        )

    async def about(self, route: Route, client: Client) -> About:
        """What the servers of a route say of themselves, together. Those that are not up soon may offer anything."""
        self.check_let_in(route, client.principal)
        if about := route.surface.about():
            return about
        servers, catalog = self._upstreams(route, client), self.snapshot.catalog
        asked = [asyncio.ensure_future(catalog.about(server.id, client)) for server in servers]
        if asked:
            try:
                async with self._clock.timeout(GREETING):
                    await asyncio.wait(asked)
            except TimeoutError:
                pass
        about = greeting.merged({server.name: _told(each) for server, each in zip(servers, asked, strict=True)})
        return msgspec.structs.replace(about, instructions=self.redactor.text(about.instructions))

    def _upstreams(self, route: Route, client: Client) -> Sequence[Upstream]:
        return [route.upstreams[id] for id in self.servers(route, client)]

    async def tasks(self, route: Route, client: Client) -> Listing:
        """The tasks that this principal has made, of all servers on this route."""
        self.check_let_in(route, client.principal)
        servers = self._upstreams(route, client)
        async with asyncio.TaskGroup() as together:
            asked = [together.create_task(_or_fault(server.tasks(client))) for server in servers]
        answers = [(server, each.result()) for server, each in zip(servers, asked, strict=True)]
        items = [
            Raw(tasks.with_id(raw, self._handles.write(server.id, id, route.path, client), lambda raw: raw))
            for server, answer in answers
            if not isinstance(answer, Fault)
            for id, raw in answer.items()
        ]
        failures = [
            (server.name, self.redactor.text(answer.message)) for server, answer in answers if isinstance(answer, Fault)
        ]
        return Listing("tasks", tuple(items), tuple(failures))

    def told_of_task(self, event: Event, route: Route, client: Client) -> bytes:
        """The parameters of a notification on a task, in this client's names."""
        return self._handles.shown(event, route.path, client, route.surface)

    async def watch(self, uri: str, route: Route, client: Client, method: str = mcp.SUBSCRIBE) -> Call:
        """Have a server tell when a resource or a task (`mcp.TASK_GET`) changes; the call by which it is known further
        on. Raises `Fault`."""
        try:
            call = await self._watched(Call(method, uri, client), route)
        except Fault as fault:
            raise scrub.fault(fault, self.redactor) from None
        self._watches[id(call)] = call
        return call

    async def _watched(self, call: Call, route: Route) -> Call:
        uri = call.target
        call = await self._enter(call, route)
        try:
            call = await self._let_watch(call, route)
        except Fault as fault:
            raise self._placed(fault, call, uri) from None
        if call.server == names.OWN:
            raise Fault("METHOD_NOT_FOUND", "The gateway does not tell of changes of its own resources")
        try:
            await route.upstream(call.server).watch(call.target, call.client, call.kind)
        except Fault as fault:
            raise fault.at(call.server, call.target) from None
        return call

    async def _let_watch(self, call: Call, route: Route) -> Call:
        passed: list[tuple[Policy, Call]] = []
        try:
            decision = await self._judged(call, route, passed)
            if not isinstance(decision, Call):
                raise Fault("ACCESS_DENIED", "A subscription cannot ask, so it is refused")
        except BaseException as error:
            _ended(passed, call, error)
            raise
        _ended(passed, decision, Done(b"{}"))
        return decision

    def unwatch(self, call: Call) -> None:
        """End what `watch` began, by what it returned."""
        self._watches.pop(id(call), None)
        unheld = self._unheld.pop(id(call), None)
        upstream = self.snapshot.upstreams.get(call.server)
        if upstream and upstream is not unheld:
            upstream.unwatch(call.target, call.client, call.kind)

    def concerns(self, event: Event, route: Route, client: Client) -> bool:
        """Whether an event is of a server and a connection that this client may know of."""
        if not event.server:  # of the gateway itself
            is_its = event.clients is None or client.principal.client in event.clients
            return is_its and event.whose in (None, client.identity)
        if event.server not in route.upstreams or not self._may_hear(event, client):
            return False
        if event.whose is not None and event.whose != client.identity:
            return False
        return route.upstreams[event.server].scope(client) == event.scope

    def _may_hear(self, event: Event, client: Client) -> bool:
        """By what the client may do now, whatever it has asked to be told of before."""
        rules = self.access.rules(client.principal)
        if rules is None:
            return True
        if event.kind == "updated":
            return rules.verdict(event.server, "resources", event.uri) != "off"
        return rules.sees(event.server)

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
            for upstream in self._upstreams(route, client):
                together.create_task(tell(upstream))

    async def leave(self, client: Client) -> None:
        """A client's session is over."""
        self._realms.forget(client)
        for upstream in self.snapshot.upstreams.values():
            if scope := upstream.scope(client):
                self.snapshot.catalog.forget(upstream.id, scope)
            await upstream.leave(client)

    async def _through(self, call: Call, route: Route) -> Outcome:
        """A leg through the policies and back. Each that lets it go on is told how it ended."""
        passed: list[tuple[Policy, Call]] = []
        try:
            decision = await self._judged(call, route, passed)
            if isinstance(decision, Call):
                call = decision
                outcome = await self._invoke(call, route)
            else:
                outcome = decision
        except BaseException as error:
            _ended(passed, call, error)
            raise
        if isinstance(outcome, NeedInput):
            _ended(passed, call, outcome)
            if not isinstance(decision, Call) and isinstance(outcome.resume, Retry):
                return outcome  # its next leg goes through all of this itself
        return _then(outcome, lambda last: _left(passed, call, last), lambda fault: _failed(passed, call, fault))

    async def _judged(self, call: Call, route: Route, passed: list[tuple[Policy, Call]]) -> Call | Outcome:
        """The call as its policies let it go on, or what one of them says instead."""
        policies = route.policies
        depth = _depth(call.resumption, policies)
        for index, policy in enumerate(policies):
            decision = policy.before(call, index < depth)
            while isinstance(decision, Wait):
                await decision.until()
                decision = policy.before(call, index < depth)
            if isinstance(decision, Required):
                _refuse_if_unanswerable(call, decision)
                again = Retry(
                    f"policy:{policy.name}", call, decision, lambda next: self._through(next, route), self._clock
                )
                return NeedInput(decision.asks, again)
            if not isinstance(decision, Call):
                return decision
            call = decision
            passed.append((policy, call))
        return call

    async def _invoke(self, call: Call, route: Route) -> Outcome:
        resumption = call.resumption
        if resumption and resumption.asker.startswith("upstream:") and resumption.asker != f"upstream:{call.server}":
            # A bare name that means another server than on the leg before: the policies have judged the wrong one.
            raise Fault("INVALID_STATE", "requestState belongs to another server", reach="not_sent")
        if resumption and resumption.live:
            return await _resume(resumption)
        if call.server == names.OWN:
            return Done(jsonrpc.encode(await own.answer(call, self._realms.of(route, call.client))))
        if call.task and not (call.traits and call.traits.task_support):
            raise tasks.not_as_task(call.shown)
        upstream = route.upstream(call.server)
        try:
            return await upstream.invoke(call)
        except Fault as fault:
            if fault.rpc == mcp.HEADER_MISMATCH and fault.upstream and call.kind == "tools":
                again = await self._looked_up_again(call, upstream)
                if call.traits and again.traits and again.traits.mirrors == call.traits.mirrors:
                    raise  # no other headers to send: for whatever else it said so, it may have executed the call
                call = again
            elif not self._may_be_sent_again(call, fault):
                raise
            return await _again(upstream, call, fault)

    async def _looked_up_again(self, call: Call, upstream: Upstream) -> Call:
        """A server that misses a header has changed its tool since it was listed (spec: "Client Behavior")."""
        catalog = self.snapshot.catalog
        catalog.changed(call.server, upstream.scope(call.client), ("tools",))
        view = await catalog.view({call.server: upstream.name}, [(call.server, "tools")], call.client)
        found = traits.of(view.shelf(call.server, "tools"), call.target)
        if found and found.held:
            raise quarantined(call, found.held)
        if not found and catalog.hides(call.server):
            raise _unlisted()
        return msgspec.structs.replace(call, traits=found)

    def _may_be_sent_again(self, call: Call, fault: Fault) -> bool:
        """The one safe retry (behaviour.md 6.4): nothing was sent, or sending it twice does no harm."""
        if fault.code == "SESSION_ERROR":
            return fault.reach == "not_sent"
        if fault.code != "SERVER_FAILED" or fault.reach != "sent_unknown" or was_stopped(fault):
            return False
        if call.method != mcp.CALL or not call.traits:
            return call.method != mcp.CALL
        hints = call.traits.hints
        if hints.destructiveHint and not hints.idempotentHint:
            return False
        return hints.is_harmless_twice or (hints.say_nothing and _insists(call) and self._is_vital(call.server))

    def _is_vital(self, server: str) -> bool:
        found = self.snapshot.servers.get(server)
        return found is not None and found.criticality == "vital"


def _news(before: Snapshot, now: Snapshot) -> Collection[str]:
    """The servers of which clients hear by no event of theirs: they are gone, or who would hear of them has a
    connection of its own."""
    fresh = [id for id, upstream in now.upstreams.items() if before.upstreams.get(id) is not upstream]
    gone = before.upstreams.keys() - now.upstreams.keys()
    return {*gone, *(id for id in fresh if now.servers[id].scope != "shared")}


_SHOWN = ("surface", "virtual_search", "bundles")  # parts of a configuration that say what of all servers is listed


def _insists(call: Call) -> bool:
    control = controls.CONTROLS.get(call.via)
    return control is not None and control.insists


async def _again(upstream: Upstream, call: Call, before: Fault) -> Outcome:
    """A call that is sent again. If that fails without being sent, the call has got as far as it had before."""
    try:
        return await upstream.invoke(call)
    except Fault as fault:
        if fault.reach == "not_sent" and before.reach == "sent_unknown":
            raise before from None
        raise


def _entered(route: Route, call: Call, view: CatalogView) -> Call:
    """The call with its true target. What is in quarantine is found too: a policy says why it cannot be called."""
    try:
        return route.surface.enter(call, view)
    except Fault as fault:
        if fault.code == "TOOL_NOT_FOUND":
            with contextlib.suppress(Fault):
                return route.surface.enter(call, view.with_held())
        raise fault.at("", call.target) from None


def _with_traits(call: Call, shelf: Shelf | None) -> Call:
    """The call with what its tool says of itself. Raises `Fault` where the client's headers do not match."""
    found = traits.of(shelf, call.target)
    if found and found.mirrors and call.headers is not None:
        mirrors.check(found.mirrors, call.arguments, call.headers)
    return msgspec.structs.replace(call, traits=found) if found else call


def _by_own_names(call: Call, shelf: Shelf) -> Call:
    """The same for a server whose tools an operator has changed: the call is held against what its client was shown,
    and goes on as the server knows it."""
    if shelf.whole and call.target not in shelf.items:
        shelf = shelf.whole
    change = overlays.find(shelf, call)
    if call.headers is not None:
        mirrors.check(traits.mirrors_shown(shelf, call.target), call.arguments, call.headers)
    own = overlays.enter(call, change)
    return msgspec.structs.replace(own, traits=traits.of(shelf, own.target))


def _as_permitted(call: Call, shelf: Shelf | None) -> Call:
    """The call as far as permissions go by it."""
    if call.method != mcp.CALL or not shelf or call.server == names.OWN:
        return call
    own = shelf.changes[call.target].own if call.target in shelf.changes else call.target
    return msgspec.structs.replace(call, target=own, traits=traits.of(shelf, own))


def _sees_others(before: Rules | None, now: Rules | None, servers: Collection[str]) -> bool:
    if not before or not now or (before.print, before.surface) != (now.print, now.surface):
        return True
    return any(now.sees(server) for server in servers)


_NOT_FOUND = frozenset({"SERVER_NOT_FOUND", *(kind.missing for kind in mcp.KINDS.values())})


def _unlisted() -> Fault:
    """Without its list nobody knows what a server's overlays hide."""
    return Fault("SERVER_FAILED", "The server's tools are not known, and some may be hidden", reach="not_sent")


Answered = TypeVar("Answered")


async def _or_fault(answer: Awaitable[Answered]) -> Answered | Fault:
    """What one of several says, so that its failure does not end the others."""
    try:
        return await answer
    except Fault as fault:
        return fault


async def _resume(resumption: Resumption) -> Outcome:
    """Go on with work that waited. Questions that were left unanswered are asked again."""
    live = resumption.live
    assert live
    for key, answer in resumption.answers.items():
        live.answer(key, answer)
    asks = live.open_asks()
    return NeedInput(asks, live) if asks else await live.next()


def _depth(resumption: Resumption | None, policies: Sequence[Policy]) -> int:
    """How many of the policies the call had passed when it was asked something: those in front of whoever asked."""
    if not resumption:
        return 0
    askers = [f"policy:{policy.name}" for policy in policies]
    return askers.index(resumption.asker) if resumption.asker in askers else len(askers)


def _then(outcome: Outcome, then: Callable[[Outcome], Outcome], rescue: Callable[[Fault], Outcome] = raised) -> Outcome:
    """`then` applied to the last outcome: now, or when the questions before it are answered; `rescue` to the fault that
    it may turn out to be."""
    if isinstance(outcome, NeedInput):
        return NeedInput(outcome.asks, Then(outcome.resume, lambda later: _then(later, then, rescue), rescue))
    try:
        return then(outcome)
    except Fault as fault:
        return rescue(fault)


def _refuse_if_unanswerable(call: Call, required: Required) -> None:
    """A policy may ask only what the client has declared; where it must ask and cannot, the call is over."""
    for ask in required.asks:
        if not asks.is_answerable(ask, call.client.capabilities):
            capability = mcp.ASKS[ask.method].capability
            message = f"The call needs {capability}, which its client did not declare"
            raise Fault(
                "MISSING_CAPABILITY", message, reach="not_sent", extra={"requiredCapabilities": {capability: {}}}
            )


def _left(passed: Sequence[tuple[Policy, Call]], call: Call, outcome: Outcome) -> Outcome:
    try:
        for policy, _ in reversed(passed):
            outcome = policy.after(call, outcome)
    except Fault:
        raise  # on its way to `_failed`
    except BaseException as error:
        _ended(passed, call, error)
        raise
    _ended(passed, call, outcome)
    return outcome


def _failed(passed: Sequence[tuple[Policy, Call]], call: Call, fault: Fault) -> Outcome:
    _ended(passed, call, fault)
    raise fault


def _ended(passed: Sequence[tuple[Policy, Call]], call: Call, ending: Outcome | BaseException) -> None:
    for policy, went in reversed(passed):
        policy.ended(went, call, ending)


def _told(asked: asyncio.Future[About]) -> About | None:
    """What a server said; None for one that is not up yet. One that failed offers nothing."""
    if not asked.done():
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return None
    if asked.cancelled() or asked.exception():
        return About()
    return asked.result()


def _all_failed(kind: str, failures: Sequence[tuple[str, str]]) -> Fault:
    shown = "; ".join(f"{server}: {why}" for server, why in failures)
    extra = {"failures": [{"server_id": server, "error": why} for server, why in failures]}
    return Fault("SERVER_FAILED", f"No server could list its {kind}: {shown}", extra=extra)
