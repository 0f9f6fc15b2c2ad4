"""What control tools work by: the part of the gateway that one client may see and steer on its route.

The rule this file keeps: a view shows the servers of its route and no other; as they were when it was made, or when
it has changed them, so that a tool that waits finds what it began with whoever edits the configuration meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from toolgate.auth.access import HARMLESS
from toolgate.catalog.base import ServerList, ServerSummary, View, summary
from toolgate.catalog.permitted import permitted
from toolgate.config import Server
from toolgate.core import jsonrpc, mcp, names
from toolgate.core.bodies import FREE, Kept
from toolgate.core.clock import Clock
from toolgate.core.concurrency import BySize, FairThreads, OneEach
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done, EventSink, Outcome, Principal
from toolgate.gateway import changes, stored, token_meter
from toolgate.gateway.activated import ActivatedTools
from toolgate.gateway.embedding import Embeddings
from toolgate.gateway.finder import Finder
from toolgate.gateway.importing import Importing
from toolgate.gateway.installing import Installing, Means, Wanted
from toolgate.gateway.observed import Definition, ObservedShapes
from toolgate.gateway.own_work import OF_SCRIPTS, OwnWork, own_server
from toolgate.gateway.reload import Check, Reloading
from toolgate.gateway.scripts import NO_TOOLS, ScriptCalls
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy.chain import PolicyDeps
from toolgate.policy.overflow import not_kept
from toolgate.sandbox.run import Ran, SandboxError
from toolgate.sandbox.stored import Script
from toolgate.search import Document, Hit
from toolgate.surfaces import controls
from toolgate.surfaces.controls import base, code, own
from toolgate.surfaces.controls.context import ControlContext, GatewayInfo, Importable
from toolgate.upstreams.base import Status
from toolgate.upstreams.inprocess.tools import EncodedResult, InProcessTools, Object, Result, ToolContext
from toolgate.upstreams.inprocess.upstream import InProcessUpstream
from toolgate.upstreams.providers.services import Providers

LARGE = 64 * 1024  # bytes of what came of code; more is written in a thread
MOST_WAITING = 1000  # answers with whole lists, of one principal; and principals of which one waits for room


class RouteViews:
    """Makes them, and keeps what outlasts each. `current` is the snapshot that is served now."""

    def __init__(
        self,
        gateway_info: GatewayInfo,
        editor: Reloading,
        policy_deps: PolicyDeps,
        own_work: OwnWork,
        current: Callable[[], Snapshot],
        tell: EventSink,
        handle: Callable[[Call, Route], Awaitable[Outcome]],
    ) -> None:
        self.workspace, self.sandbox, self.providers, scripts, provisioning = own_work
        self.installing = Installing(provisioning, policy_deps.audit)
        self.importing = Importing(provisioning, self.workspace.workspace)
        scripts.run = self._run_stored
        self.handle = handle
        self.is_known: Callable[[Principal], bool] = lambda _principal: True
        self.gateway_info = gateway_info
        self.editor = editor
        self.overflow = policy_deps.overflow
        self.clock = policy_deps.clock
        self.access = policy_deps.access
        self._checker = policy_deps.checker
        self.current = current
        self.embeddings = Embeddings(
            self.providers, policy_deps.store, policy_deps.clock, lambda: current().config.virtual_search.model
        )
        self.finder = Finder(self.embeddings)
        self.observed = ObservedShapes()
        self.in_turns = BySize(1)  # large results that code gets, and gives
        self.counting = FairThreads(1)  # tokens
        self.telling = OneEach(MOST_WAITING, most=MOST_WAITING, what="answers with whole lists")
        self._activated = ActivatedTools(tell)
        self.activated, self.activate = self._activated.of, self._activated.activate

    def of(self, route: Route, client: Client) -> RouteView:
        return RouteView(self, route, client)

    def upstream(self, route: Route, clock: Clock) -> InProcessUpstream:
        """The gateway itself as a server of tools in this process: control tools that work, and its own resources. It
        stands in no list of servers and takes no slot."""
        return InProcessUpstream(own_server(names.OWN), _OwnTools(views=self, route=route), clock)

    async def _run_stored(self, script: Script, context: ToolContext) -> EncodedResult:
        snapshot = self.current()
        if not stored.is_known(script, context.call):
            snapshot.catalog.changed(*OF_SCRIPTS)
            raise stored.changed(script)
        await stored.check(script, context.call, self._checker)
        view = self.of(snapshot.routes[stored.PATH], context.client)
        await view.judge()
        return await code.run_stored(script, context, view)

    def forget(self, client: Client) -> None:
        self._activated.forget(client)
        self.current().catalog.loaded.forget(client)

    async def tokens(self) -> Mapping[str, Any]:
        """What the models of clients have loaded of tools, and what all tools at once would have been."""
        snapshot = self.current()
        every = snapshot.catalog.loaded.all()[: token_meter.MOST]
        routes = [(loaded, snapshot.routes.get(loaded.client.path)) for loaded in every]
        given: list[token_meter.Given] = []
        for loaded, route in routes:
            if route:
                view = self.of(route, loaded.client)
                await view.judge()
                given.append(view.given)
                await asyncio.sleep(0)  # what a client may use takes a while where much is forbidden
        names_of = {id: server.name for id, server in snapshot.servers.items()}
        return await token_meter.of_all(given, names_of, self.counting)

    async def close(self) -> None:
        self.finder.close()
        await self.embeddings.close()


class _OwnTools(InProcessTools, frozen=True, kw_only=True):
    """Which there are is what the surface finds."""

    views: RouteViews
    route: Route

    async def answer(self, call: Call, exchange: Exchange) -> Result:
        view = self.views.of(self.route, call.client)
        await view.judge()
        result = await own.answer(ControlContext(call, exchange, view))
        return await view.metered(call, result) if isinstance(result, Mapping) else result


class _Summaries(Mapping[str, ServerSummary]):
    """What may be known of servers, made of each when it is asked for."""

    def __init__(self, seen: Mapping[str, str], known: Mapping[str, Server]) -> None:
        self._seen = seen
        self._known = known

    def __getitem__(self, id: str) -> ServerSummary:
        if id not in self._seen:
            raise KeyError(id)
        return summary(self._known[id])

    def __iter__(self) -> Iterator[str]:
        return (id for id in self._seen if id in self._known)

    def __contains__(self, id: object) -> bool:
        return id in self._seen and id in self._known

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_metered(call: Call) -> bool:
    control = controls.find(call.target) if call.method == mcp.CALL else None
    return control is not None and not control.changes and not control.runs_code


class RouteView:
    """A `GatewayView` of one client on one route."""

    def __init__(self, views: RouteViews, route: Route, client: Client) -> None:
        self.client = client
        self.gateway_info = views.gateway_info
        self._views = views
        self._route = route
        self._rules = views.access.rules(client.principal)
        self._size = 0  # bytes of what came of code
        self._came: Kept | None = None  # what that counts as
        self._look()

    def _look(self) -> None:
        """Go by the configuration as it is now. A route that is gone from it keeps what is left of its servers."""
        self._snapshot: Snapshot = self._views.current()
        self._route = self._snapshot.routes.get(self._route.path, self._route)

    @property
    def servers(self) -> Mapping[str, ServerSummary]:
        return _Summaries(self._seen, self._snapshot.servers)

    @property
    def configured(self) -> Mapping[str, ServerSummary]:
        seen = {id: name for id, name in self._seen.items() if id not in names.INTERNAL}
        return _Summaries(seen, self._snapshot.servers)

    @property
    def _seen(self) -> Mapping[str, str]:
        """Those of the route that the client may see."""
        return self._route.seen_by(self._rules)

    @property
    def is_whole(self) -> bool:
        return self._rules is None

    @property
    def names(self) -> Mapping[str, str]:
        seen = self._seen
        is_served = self._snapshot.routes.get(self._route.path) is self._route
        return seen if is_served else {id: name for id, name in seen.items() if id in self._snapshot.servers}

    @property
    def disabled(self) -> Mapping[str, str]:
        """Those that are configured and never started, for who may see everything, on a path of all servers."""
        if self._rules is not None or self._route.is_strict:
            return {}
        return {server.id: server.name for server in self._snapshot.config.servers if not server.enabled}

    def status(self, server: str, /) -> Status:
        return self._route.upstream(server).status(self._whose).told(to_others=not self._has_whole(server))

    async def judge(self) -> None:
        """Have all lists that are known judged for its client, so that none is while a tool looks at it."""
        wanted = ((server, kind) for server in self._seen for kind in mcp.LIST_OF_KIND)
        await self._snapshot.catalog.judge(wanted, self.client, self._rules)

    def known(self, server: str, kind: str, /) -> ServerList | None:
        whole = self._whole(server, kind)
        return permitted(whole, server, kind, self._rules) if whole and self._rules else whole

    def _whole(self, server: str, kind: str) -> ServerList | None:
        return self._snapshot.catalog.known(server, kind, self.client)

    async def lists(self, wanted: Sequence[tuple[str, str]], /) -> View:
        snapshot = self._snapshot
        return await snapshot.catalog.view(
            self._route.servers, wanted, self.client, snapshot.list_timeout, rules=self._rules
        )

    @property
    def profiles(self) -> Mapping[str, Sequence[str]]:
        return self._snapshot.config.bundles

    @property
    def search_mode(self) -> str:
        return self._snapshot.config.virtual_search.mode

    async def search(
        self,
        query: str,
        *,
        servers: Sequence[str],
        kinds: Sequence[str] = ("tools",),
        limit: int = 10,
        mode: str = "",
    ) -> Sequence[Hit]:
        mode = mode or ("semantic" if self.search_mode == "semantic" else "bm25")
        # How rare a word is, is counted among the tools of servers; the gateway's own stand beside them.
        hits: list[Hit] = []
        for ids in ([id for id in servers if id not in names.INTERNAL], [id for id in servers if id in names.INTERNAL]):
            hits += await self._found(query, ids, kinds, limit, mode)
        hits = sorted(hits, key=lambda hit: -hit.confidence)[:limit]  # each half is in that order
        left = self.servers  # some may be gone meanwhile
        return [hit for hit in hits if hit.document.server in left]

    async def _found(
        self, query: str, servers: Sequence[str], kinds: Sequence[str], limit: int, mode: str
    ) -> Sequence[Hit]:
        route, configs = self._route, self.servers
        scopes = {id: (configs[id], route.upstream(id).scope(self.client)) for id in servers if id in configs}
        may_find, whose = self._permitted(configs), self.client.principal.counted_as
        return await self._views.finder.find(query, scopes, self._latest, kinds, limit, mode, may_find, whose)

    def _latest(self, server: str, kind: str) -> ServerList | None:
        """A search waited for the lists; one that changes all the time may be out of date by then."""
        return self._snapshot.catalog.latest(server, kind, self.client)

    def _permitted(self, servers: Iterable[str]) -> Callable[[Document], bool] | None:
        """What of these servers' documents the client may find; None: all."""
        if self._rules is None:
            return None
        places = [(id, kind) for id in servers for kind in mcp.LIST_OF_KIND]
        server_lists = {
            place: permitted(whole, *place, self._rules) for place in places if (whole := self._latest(*place))
        }

        def is_permitted(document: Document) -> bool:
            server_list = server_lists.get((document.server, document.kind))
            return server_list is not None and document.name in server_list.items

        return is_permitted

    def kept(self, call: Call, /) -> Mapping[str, Any]:
        if call.about and self._views.access.judge(call.about) == "off":
            raise not_kept(call.target)
        return self._views.overflow.read(self.client, call.target)

    def named(self, server: str, kind: str, name: str, /) -> str:
        return self._route.surface.named(server, kind, name)

    def activate(self, tools: Sequence[str], /) -> None:
        if self.client.session:
            self._views.activate(self.client, tools)

    async def codex(self, tool: str, given: Mapping[str, Any], context: ToolContext, /) -> Mapping[str, Any]:
        caller = changes.caller(self._snapshot.config, self._views.access, self.client.principal)
        return await self._views.workspace.codex.answer(tool, given, context, caller)

    async def hook(self, given: Mapping[str, Any], context: ToolContext, /) -> Mapping[str, Any]:
        tasks, hooks = names.TASKS, self._views.workspace.hooks
        sees_tasks = tasks in self._seen and (
            self._rules is None or self._rules.verdict(tasks, "tools", "list_tasks", HARMLESS) == "allow"
        )
        return await hooks.call(given["hook_type"], given.get("params"), given.get("source", ""), context, sees_tasks)

    async def run(
        self,
        language: str,
        text: str,
        context: ToolContext,
        /,
        *,
        timeout: float | None = None,
        data: bytes = b"",
        is_own: bool = False,
        calls_tools: bool = True,
    ) -> Ran:
        views = self._views
        calls = ScriptCalls(context, self, language, self._handle, self.observe, views.in_turns)
        _rest(context.call)
        try:
            ran = await views.sandbox.run(
                *(language, text, calls.host() if calls_tools and not is_own else NO_TOOLS),
                whose=self.client.principal.counted_as,
                data=data or None,
                wall=timeout,
                is_own=is_own,
            )
        except SandboxError as error:
            self._size = len(error.logs)
            raise
        self._size = len(ran.value or b"") + len(ran.printed)
        self._came = Kept(views.sandbox.held.begun(self.client.principal.counted_as))
        self._came.body.has(self._size)
        return ran

    async def written(self, make: Callable[[], Object], /) -> EncodedResult:
        kept, self._came = self._came, None
        if not kept or self._size <= LARGE:
            return EncodedResult(jsonrpc.encode(make()), is_scrubbed=True)
        whose = self.client.principal.counted_as
        body = await self._views.in_turns.of(self._size).in_thread(whose, lambda: jsonrpc.encode(make()))
        if not kept.body.has(len(body)):
            await kept.body.room()
        return EncodedResult(body, kept, is_scrubbed=True)

    async def as_call(
        self, control: str, arguments: Mapping[str, Any], context: ToolContext, does: Callable[[Any], Any] | None, /
    ) -> EncodedResult:
        before = context.call
        _rest(before)
        made = Call(
            *(mcp.CALL, control, self.client, Raw(jsonrpc.encode(arguments))),
            passed_on=before.passed_on,
            asked=before,
            does=does,
            notes=before.notes,
            can_ask=before.can_ask,
            is_by_admin=before.is_by_admin,
            folder=before.folder,
        )
        done = await context.end_of(await self._handle(made), lambda _: None)
        kept = done.kept if isinstance(done, Done) else None
        return EncodedResult(bytes(done.body), kept, is_scrubbed=True)

    async def _handle(self, call: Call) -> Outcome:
        """A call that was made here goes the way of what is served at its path by then. Raises `Fault`, also where that
        by which its client was let in has expired since: code and batches may go on for hours."""
        principal, views = call.client.principal, self._views
        is_over = principal.expires is not None and views.clock.wall() >= principal.expires
        if is_over or not views.is_known(principal):
            text = "The key or token by which this was begun is no longer valid, so it makes no further calls"
            raise Fault("ACCESS_DENIED", text, reach="not_sent", hint="call again with a valid one")
        return await views.handle(call, views.current().route(self._route.path))

    @property
    def providers(self) -> Providers:
        return self._views.providers

    def observed(self, server: str, tool: str, /) -> bytes:
        seen, whose = self._views.observed, self.client.principal.counted_as
        definition = self._definition(server, tool) if seen.has(whose, server, tool) else None
        return seen.of(whose, server, tool, definition) if definition else b""

    def observe(self, server: str, tool: str, result: bytes) -> None:
        """Code of this client has had this result, as JSON."""
        if definition := self._definition(server, tool):
            self._views.observed.note(self.client.principal.counted_as, server, tool, definition, result)

    def _definition(self, server: str, tool: str) -> Definition | None:
        """By which server a tool is listed, and as what; None where the client does not see it."""
        known, config = self.known(server, "tools"), self._snapshot.servers.get(server)
        raw = known.items.get(tool) if known else None
        return (config, hashlib.sha256(raw).digest()) if raw is not None and config else None

    @property
    def given(self) -> token_meter.Given:
        """What its client's tokens are counted by."""
        known = ((id, self._whole(id, "tools"), self.known(id, "tools")) for id in self.servers)
        lists = {id: (whole, mine.items.keys()) for id, whole, mine in known if whole and mine}
        only = next(iter(self._route.servers)) if self._route.is_strict else ""
        return token_meter.Given(self._snapshot.catalog.loaded.find(self.client), lists, only)

    async def tokens(self) -> Mapping[str, Any]:
        names_of = {id: server.name for id, server in self.configured.items()}
        return await token_meter.of(self.given, names_of, self._views.counting, self.client.principal.counted_as)

    async def metered(self, call: Call, result: Object) -> Object:
        if not _is_metered(call):
            return result
        meter = await self._loaded(call, token_meter.size_of(result))
        return {**result, "_meta": {**result.get("_meta", {}), **meter}} if meter else result

    async def told(self, call: Call, size: int, tokens: int, write: Callable[[], bytes], /) -> EncodedResult:
        kept = await self._room(size) if size > FREE else None
        meter: Object = await self._loaded(call, tokens) if _is_metered(call) else {}
        body = write()
        return EncodedResult(jsonrpc.with_members(body, {"_meta": jsonrpc.encode(meter)}) if meter else body, kept)

    async def _room(self, size: int) -> Kept:
        """What a result of so many bytes counts as, when there is room for it. One of this client's waits there: what
        waits counts already. Raises `Fault` RATE_LIMITED where enough wait behind it."""
        telling, whose = self._views.telling, self.client.principal.counted_as
        await telling.turn(whose)
        try:
            kept = Kept(self._views.sandbox.held.begun(whose))
            if not kept.body.has(size):
                await kept.body.room()
            return kept
        finally:
            telling.give_back(whose)

    async def _loaded(self, call: Call, tokens: int) -> Object:
        """What a control tool says of tools is loaded, too; whoever asks for it is told with it how much that is."""
        self._snapshot.catalog.loaded.told(self.client, self._about(call), tokens)
        return {token_meter.KEY: await self.tokens()} if token_meter.KEY in call.meta else {}

    def _about(self, call: Call) -> str:
        """The server that a call of a control tool is about."""
        given = base.readable(controls.CONTROLS[call.target], call)
        named = (given.get(key) for key in ("server", "server_name", "server_id"))
        ids = (names.slug(each) for each in named if isinstance(each, str))
        return next((id for id in ids if id in self._seen), names.OWN)

    async def stop(self, server: str, /) -> None:
        if not self._has_whole(server):
            message = "Only clients that may use all of a server may stop it, because others use it too"
            raise Fault("ACCESS_DENIED", message, server=server, reach="not_sent", hint=_WHO_STOPS)
        upstream = self._route.upstream(server)
        if self._whose and upstream.works_for_others(self._whose):
            message = f"Calls or tasks of others are under way at {upstream.name}, so it was not stopped"
            raise Fault("ACCESS_DENIED", message, server=server, reach="not_sent", hint=_WHO_ENDS_CALLS)
        await upstream.stop(self._whose)

    @property
    def _whose(self) -> Client | None:
        """Whose connections it is about, where each client has its own; None: those of all, for administrators."""
        is_admin = self._rules is None or self._views.access.may_administer(self.client.principal)
        return None if is_admin else self.client

    def _has_whole(self, server: str) -> bool:
        return self._views.access.has_whole(self.client.principal, server)

    async def add(self, name: str, table: Mapping[str, Any], context: ToolContext, /) -> str:
        self._check_admin()
        changes.check_no_patterns(table)
        project = await self._views.workspace.workspace.project(context)
        of = {"project": project.id} if project else {}
        marked = {**table, **of, "by_operator": False}  # a model may have thought it up
        id = await self._views.editor.add(name, marked, self.client.principal, self._check_adds)
        self._look()
        return id

    async def remove(self, name: str, /) -> None:
        self._check_admin()
        await self._views.editor.remove(name, self.client.principal, self._check_admin)
        self._look()

    async def provision(self, intent: str, judges: bool, is_dry: bool, context: ToolContext, /) -> Mapping[str, Any]:
        editor, principal = self._views.editor, self.client.principal

        async def add(name: str, table: Mapping[str, Any], check: Check, added: Callable[[], None]) -> str:
            id = await editor.add(name, table, principal, check, added)
            self._look()
            return id

        async def remove(name: str, check: Check) -> None:
            await editor.remove(name, principal, check)
            self._look()

        async def tools(id: str) -> Sequence[str]:
            view = await self.lists([(id, "tools")])
            while (id, "tools") in view.pending:  # a package is fetched first; its own start timeout ends that
                view = await self.lists([(id, "tools")])
            found = view.server_list(id, "tools")
            if found is None:
                raise view.fault(id, "tools") or Fault("SERVER_FAILED", f"{id} lists no tools", server=id)
            return list(found.items)

        means = Means(lambda: self._views.current().config, principal, self._why_not_installed, add, remove, tools)
        return await self._views.installing.answer(Wanted(intent, judges, is_dry), means)

    async def importable(
        self, source: str, named: str, content: str | None, context: ToolContext, /
    ) -> Sequence[Importable]:
        self._check_adds()
        importing, is_asked = self._views.importing, self._views.access.judge(self._adding()) == "ask"
        if source == "from_project":
            return await importing.of_project(named, self._views.access.is_here(self.client.principal))
        if source == "github_url":
            return await importing.of_repository(named, content, is_asked)
        taken = {server.id: server.name for server in self._snapshot.config.servers}
        return await importing.of_search(named, taken, is_asked, self.client.principal.counted_as)

    def _adding(self) -> Call:
        return Call(mcp.CALL, "add_mcp_server", self.client, server=names.OWN)

    def _why_not_installed(self) -> str:
        """Why this client may have no server installed; empty where it may."""
        if not self._views.access.may_request_change(self.client.principal):
            return "only an administrator may change the servers of this gateway"
        if self._views.access.judge(self._adding()) == "off":
            return "`add_servers` is off for this client"
        return ""

    def _check_adds(self) -> None:
        """Raises `Fault` where this client may add no server, or may add none any more."""
        self._check_admin()
        if self._views.access.judge(self._adding()) == "off":
            raise Fault("ACCESS_DENIED", "Access denied: `add_servers` is off", reach="not_sent")

    def _check_admin(self) -> None:
        changes.check_may_request(self._views.access, self.client.principal)


def _rest(call: Call) -> None:
    """A call holds no place that limits calls, while others are made of it: these take their own."""
    for tell in call.reached.rests if call.reached else ():
        tell(True)


_WHO_ENDS_CALLS = "try again when they are over; only a client with admin = true may end them"
_WHO_STOPS = "only clients with full access to that server, or with admin = true, may do this"
