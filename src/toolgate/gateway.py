"""The gateway: a call's whole story, from a client's name for a tool to the outcome in that client's names.

    handle: catalog → surface.enter → policies before → upstream.invoke → policies after → surface.leave

The rule this file keeps: every leg of a call, a retry too, goes through the same policies; what asks on the way keeps
them around what comes later (`Then`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from toolgate import asks
from toolgate.catalog import CatalogView
from toolgate.eras import mirrors, tasks
from toolgate.events import Events
from toolgate.exchange import Retry, Then
from toolgate.model import Call, Client, Event, Fault, Listing, Mirror, NeedInput, Outcome, Required, Resumption
from toolgate.policy.base import Policy
from toolgate.ports import About, Clock, Shelf, Upstream
from toolgate.snapshot import Route, Snapshot
from toolgate.surfaces.handles import Handles
from toolgate.wire import jsonrpc, mcp

GREETING = 0.5  # seconds that a client's first words wait for servers to start; some clients wait for a second only


class Gateway:
    """What all doors call: one request, list or watch of a client on a route, in that client's names."""

    def __init__(self, snapshot: Snapshot, events: Events, handles: Handles, clock: Clock) -> None:
        self.snapshot = snapshot
        self.events = events
        self._handles = handles
        self._clock = clock

    async def handle(self, call: Call, route: Route) -> Outcome:
        """One leg of a call that a client made on this route. Raises `Fault`."""
        entered = await self._enter(call, route)
        try:
            outcome = await self._through(entered, route.policies)
        except Fault as fault:
            raise fault.at(entered.server, "" if entered.kind == "tasks" else entered.target) from None
        return _then(outcome, lambda last: self._handles.leave(entered, last, route.path, route.surface))

    async def _enter(self, call: Call, route: Route) -> Call:
        """The call with its true target. What that takes of the catalog is fetched."""
        if call.kind == "tasks":
            return self._handles.enter(call, route.path)
        catalog = self.snapshot.catalog
        view = CatalogView(route.servers, lambda server, kind: catalog.known(server, kind, call.client), {}, ())
        needs = list(route.surface.needs(call, view))
        if any(view.shelf(*need) is None for need in needs):
            # A bare name may be any server's: those that do not come up in time cannot be meant.
            patience = self.snapshot.list_timeout if len(needs) > 1 else None
            view = await catalog.view(route.servers, needs, call.client, patience)
        try:
            entered = _with_task_support(route.surface.enter(call, view), view)
        except Fault as fault:
            raise fault.at("", call.target) from None
        return self._with_mirrors(entered) if call.kind == "tools" else entered

    def _with_mirrors(self, call: Call) -> Call:
        """The call with those arguments known that headers repeat. Raises `Fault` where the client's do not match."""
        shelf = self.snapshot.catalog.known(call.server, "tools", call.client)
        mirrored = _mirrors(shelf, call.target) if shelf else ()
        if not mirrored:
            return call
        if call.headers is not None:
            mirrors.check(mirrored, call.arguments, call.headers)
        return msgspec.structs.replace(call, mirrors=mirrored)

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
        shelves = [shelf for server in route.servers if (shelf := view.shelf(server, kind))]
        is_whole = len(shelves) == len(route.servers)
        now = self._clock.now()
        return Listing(
            kind,
            tuple(route.surface.list(kind, view)),
            failures,
            pending,
            ttl=max(0.0, min((shelf.until or 0.0 for shelf in shelves), default=now) - now) if is_whole else 0.0,
            is_public=is_whole and all(shelf.is_public for shelf in shelves),
        )

    async def about(self, route: Route, client: Client) -> About:
        """What the servers of a route say of themselves, together. Those that are not up soon may offer anything."""
        servers = [self.snapshot.upstreams[server] for server in route.servers]
        asked = [asyncio.ensure_future(server.about(client)) for server in servers]
        if asked:
            try:
                async with self._clock.timeout(GREETING):
                    await asyncio.wait(asked)
            except TimeoutError:
                pass
        return _merged({server.name: _told(each) for server, each in zip(servers, asked, strict=True)})

    async def tasks(self, route: Route, client: Client) -> Listing:
        """The tasks that this principal has made, of all servers on this route."""
        items: list[Raw] = []
        failures: list[tuple[str, str]] = []
        for server in route.servers:
            upstream = self.snapshot.upstreams[server]
            try:
                found = await upstream.tasks(client)
            except Fault as fault:
                failures.append((upstream.name, fault.message))
                continue
            items += [
                Raw(tasks.with_id(raw, self._handles.write(server, id, route.path, client), lambda raw: raw))
                for id, raw in found.items()
            ]
        return Listing("tasks", tuple(items), tuple(failures))

    def told_of_task(self, event: Event, route: Route, client: Client) -> bytes:
        """The parameters of a notification on a task, in this client's names."""
        return self._handles.shown(event, route.path, client, route.surface)

    async def watch(self, uri: str, route: Route, client: Client, method: str = mcp.SUBSCRIBE) -> Call:
        """Have a server tell when a resource or a task (`mcp.TASK_GET`) changes; the call by which it is known further
        on. Raises `Fault`."""
        call = await self._enter(Call(method, uri, client), route)
        for policy in route.policies:
            decision = policy.before(call, False)
            if not isinstance(decision, Call):
                raise Fault("ACCESS_DENIED", "A subscription cannot ask, so it is refused", server=call.server)
            call = decision
        try:
            await self.snapshot.upstreams[call.server].watch(call.target, client, call.kind)
        except Fault as fault:
            raise fault.at(call.server, call.target) from None
        return call

    def unwatch(self, call: Call) -> None:
        """End what `watch` began, by what it returned."""
        self.snapshot.upstreams[call.server].unwatch(call.target, call.client, call.kind)

    def concerns(self, event: Event, route: Route, client: Client) -> bool:
        """Whether an event is of a server and a connection that this client may know of."""
        if event.server not in route.servers:
            return False
        if event.whose is not None and event.whose != client.identity:
            return False
        return self.snapshot.upstreams[event.server].scope(client) == event.scope

    async def set_level(self, level: str, route: Route, client: Client) -> None:
        """A client wants logs of this level of `mcp.LOG_LEVELS`: see `Upstream.set_level`."""
        await self._tell_all(route, lambda upstream: upstream.set_level(level, client))

    async def roots_changed(self, route: Route, client: Client) -> None:
        """A client's roots are others now: its own servers are told."""
        await self._tell_all(route, lambda upstream: upstream.roots_changed(client))

    async def _tell_all(self, route: Route, tell: Callable[[Upstream], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.TaskGroup() as together:
            for server in route.servers:
                together.create_task(tell(self.snapshot.upstreams[server]))

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
            # A bare name that means another server than on the leg before: the policies have judged the wrong one.
            raise Fault("INVALID_STATE", "requestState belongs to another server", reach="not_sent")
        if resumption and resumption.live:
            return await _resume(resumption)
        if call.task and not call.task_support:
            raise tasks.not_as_task(call.target)
        upstream = self.snapshot.upstreams[call.server]
        try:
            return await upstream.invoke(call)
        except Fault as fault:
            if fault.rpc == mcp.HEADER_MISMATCH and fault.upstream and call.kind == "tools":
                again = await self._looked_up_again(call)
                if again.mirrors == call.mirrors:
                    raise  # no other headers to send: for whatever else it said so, it may have executed the call
                call = again
            elif not self._may_be_sent_again(call, fault):
                raise
            return await upstream.invoke(call)

    async def _looked_up_again(self, call: Call) -> Call:
        """A server that misses a header has changed its tool since it was listed (spec: "Client Behavior")."""
        catalog = self.snapshot.catalog
        catalog.changed(call.server, self.snapshot.upstreams[call.server].scope(call.client), ("tools",))
        view = await catalog.view([call.server], [(call.server, "tools")], call.client)
        shelf = view.shelf(call.server, "tools")
        return msgspec.structs.replace(call, mirrors=_mirrors(shelf, call.target) if shelf else ())

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


_TASK_SUPPORT = ("optional", "required")


class _Execution(msgspec.Struct):
    taskSupport: str = ""


class _Executed(msgspec.Struct):
    execution: _Execution = msgspec.field(default_factory=_Execution)


def _with_task_support(call: Call, view: CatalogView) -> Call:
    """The call with what its tool says of tasks; found once for each list."""
    shelf = view.shelf(call.server, "tools") if call.method == "tools/call" else None
    if not shelf:
        return call
    if "tasks" not in shelf.memo:
        shelf.memo["tasks"] = {
            name: said for name, raw in shelf.items.items() if (said := _task_support(raw)) in _TASK_SUPPORT
        }
    said = shelf.memo["tasks"].get(call.target)
    return msgspec.structs.replace(call, task_support=said) if said else call


def _task_support(raw: Raw) -> str:
    if b"taskSupport" not in memoryview(raw).tobytes():
        return ""
    try:
        return msgspec.json.decode(raw, type=_Executed).execution.taskSupport
    except jsonrpc.UNREADABLE:
        return ""


def _mirrors(shelf: Shelf, tool: str) -> tuple[Mirror, ...]:
    """The arguments of a tool that headers repeat; looked for once for each shelf."""
    known: dict[str, tuple[Mirror, ...]] = shelf.memo.setdefault("mirrors", {})
    if tool not in known:
        raw = shelf.items.get(tool)
        try:
            known[tool] = mirrors.of_tool(raw) if raw else ()
        except mirrors.Invalid:
            known[tool] = ()
    return known[tool]


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
    """How many of the policies the call had passed when it was asked something: those in front of whoever asked."""
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
    """A policy may ask only what the client has declared; where it must ask and cannot, the call is over."""
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


def _told(asked: asyncio.Future[About]) -> About | None:
    """What a server said; None for one that is not up yet. One that failed offers nothing."""
    if not asked.done():
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return None
    if asked.cancelled() or asked.exception():
        return About()
    return asked.result()


# All that a client may be told of; what a server that is not up yet may turn out to offer.
_RELAYED: Mapping[str, tuple[str, ...]] = {
    "tools": ("listChanged",),
    "resources": ("listChanged", "subscribe"),
    "prompts": ("listChanged",),
    "logging": (),
    "completions": (),
}


def _merged(told: Mapping[str, About | None]) -> About:
    """The capabilities that any of them has, as far as we relay them, and their instructions under their names."""
    offered = [about.capabilities if about else _RELAYED for about in told.values()]
    capabilities: dict[str, Any] = {}
    for name, parts in _RELAYED.items():
        found = [each[name] for each in offered if name in each]
        if found or name == "tools":
            capabilities[name] = {part: True for part in parts if part == "listChanged" or _any_has(found, part)}
    capabilities |= tasks.relayed([about.capabilities if about else tasks.MAYBE for about in told.values()])
    pages = [
        each for about in told.values() if about and (each := asks.extension(about.capabilities, mcp.UI_EXTENSION))
    ]
    if pages:
        capabilities["extensions"] = {**capabilities.get("extensions", {}), mcp.UI_EXTENSION: pages[0]}
    instructions = {name: about.instructions for name, about in told.items() if about and about.instructions}
    if len(told) == 1:
        return About(capabilities, "".join(instructions.values()))
    return About(capabilities, "\n\n".join(f"# {name}\n{text}" for name, text in instructions.items()))


def _any_has(found: Sequence[Any], part: str) -> bool:
    return any(part in each and (isinstance(each, tuple) or each[part]) for each in found)


def _all_failed(kind: str, failures: Sequence[tuple[str, str]]) -> Fault:
    shown = "; ".join(f"{server}: {why}" for server, why in failures)
    extra = {"failures": [{"server_id": server, "error": why} for server, why in failures]}
    return Fault("SERVER_FAILED", f"No server could list its {kind}: {shown}", extra=extra)
