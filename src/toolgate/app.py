"""The whole gateway put together: the one place where rooms are wired to each other, and closed in order."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from toolgate import __version__
from toolgate.auth.access import Access
from toolgate.auth.admission import Admission, Identify, everybody
from toolgate.auth.authenticator import Authenticator
from toolgate.auth.keys import owners
from toolgate.auth.oauth.credentials import OAuth
from toolgate.auth.resource import reached_at
from toolgate.auth.safe_net import SafeNet, is_here
from toolgate.auth.seal import Seal
from toolgate.catalog.catalog import Catalog
from toolgate.catalog.pins import Pins, trouble
from toolgate.catalog.served import Served
from toolgate.config import Config, Server, learn_secrets
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock, SystemClock
from toolgate.core.complaints import Complaints
from toolgate.core.events import Events, every_list
from toolgate.core.model import Event, Principal
from toolgate.core.redaction import quiet_logs
from toolgate.core.services import Service, Swap
from toolgate.frontends.channels import ReplayBuffers
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.http import HttpFrontend
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.pages import Pages
from toolgate.frontends.sessions import Sessions
from toolgate.frontends.stdio import StdioFrontend
from toolgate.frontends.workers.role import ALONE, Role
from toolgate.gateway import snapshot as snapshots
from toolgate.gateway.notices import Notices
from toolgate.gateway.own_work import OF_SCRIPTS, MakeWorkspace, own_work
from toolgate.gateway.reload import Reloading
from toolgate.gateway.snapshot import Snapshot
from toolgate.policy import chain, scrub
from toolgate.policy.approvals import Approvals
from toolgate.policy.base import Policy
from toolgate.policy.overflow import OverflowStore, at_once
from toolgate.sandbox.services import ENGINES, MakeEngine
from toolgate.state.audit import Trail, nowhere
from toolgate.state.base import Store
from toolgate.state.changes import StoreChanges
from toolgate.state.keys import SealingKeys, sealing_keys
from toolgate.state.memory import MemoryStore
from toolgate.state.parking import Parking
from toolgate.state.settings import Settings, project_at
from toolgate.surfaces.controls.context import GatewayInfo
from toolgate.surfaces.handles import Handles
from toolgate.telemetry import otlp
from toolgate.telemetry.recorder import Recorder
from toolgate.upstreams.base import Items, Upstream
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.kept_tasks import KeptTasks
from toolgate.upstreams.known_eras import Eras
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.process import boxes, lockers
from toolgate.upstreams.process.supervisor import Supervisor
from toolgate.workspace.services import WorkspaceServices

log = logging.getLogger(__name__)

DRAIN = 30.0  # seconds for what is under way on a server that is configured no more
LAST_ANSWERS = 2.0  # seconds for the answers to calls that were given up


class Given(msgspec.Struct, frozen=True):
    """What a gateway is made of that is not its own: see `running`. `keys` are those of seals."""

    config: Config
    clock: Clock
    environ: Mapping[str, str]
    policies: Sequence[Policy]
    identify: Identify | None
    links: Mapping[str, MakeLink]
    settings: Settings
    store: Store
    keys: SealingKeys
    audit: Trail
    make_workspace: MakeWorkspace
    engines: Mapping[str, MakeEngine]
    role: Role = ALONE


class App:
    """A running gateway. Made by `running`, which also ends it. Each step of its making uses what those before it have
    made."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self.clock, self.audit, self.redactor = given.clock, given.audit, given.audit.redactor
        self.port: int | None = None  # where it listens, if it does
        self.events, self._background, self._to_the_end = Events(), BackgroundTasks(), BackgroundTasks()
        self._replaced: dict[Upstream, asyncio.Event] = {}  # by others of another configuration, until all is gone
        self._complaints = Complaints(given.clock)
        self._store_changes = StoreChanges(given.store, given.clock)  # before anything is read that it tells of
        files = (given.config, given.settings, given.store)
        self._reloading = Reloading(*files, self._prepared, given.audit, given.clock, self._background)
        self._reach_servers()
        self._set_policies()
        self._keep_lists()
        self._open_gateway()
        self._open_frontends()
        self._let_clients_in()
        self._follow_changes()

    def _reach_servers(self) -> None:
        """By their processes and over the network, and as whom."""
        config, clock, store = self._given.config, self.clock, self._given.store
        self.supervisor = Supervisor(clock, self._given.environ)
        self._boxes = boxes.Boxes(config, self.supervisor, clock)
        net = SafeNet(config.guard.allow_hosts, own=self._is_own)
        self.sign_ins = OAuth(store, self._given.keys, clock, net, self.redactor, self._reached_at, self._signed_in)
        pool, bounds, kept = Pool(clock, config.pool), Bounds(config.catalog), (Eras(store), KeptTasks(store, clock))
        deps = (clock, self.supervisor, pool, net, self.sign_ins, *kept, self._complaints, bounds)
        self._link_deps = LinkDeps(*deps, launch=self._given.role.launch or self._boxes.launch)

    def _is_own(self, address: str, port: int) -> bool:
        """Where it listens; or another one of this configuration, which a command may run beside."""
        return port == (self.port or self._given.config.http.port) and is_here(self._given.config.http.host, address)

    def _reached_at(self) -> str:
        return reached_at(self.gateway.snapshot.config, self.port)

    def _signed_in(self, server: str, principal: str) -> None:
        self.events.tell(every_list())  # whose these are, each client knows

    def _set_policies(self) -> None:
        """What the rules around a call go by."""
        config, clock, store = self._given.config, self.clock, self._given.store
        self._overflow = OverflowStore(clock, at_once(config))
        self._notices = Notices(config, clock, self.supervisor, self._link_deps.outside, self.redactor)
        kept = (self._overflow, self.redactor, Access(config), self.audit, self._given.role.make_meters(clock))
        self._policy_deps = chain.PolicyDeps(clock, store, *kept, Approvals(store, clock, self._notices.waits))

    def _keep_lists(self) -> None:
        """What servers offer, and what of that is trusted."""
        config, clock, store = self._given.config, self.clock, self._given.store
        self._pins = Pins(store, clock, config.source, self.audit.note_of_server, self._complaints)
        self._pins.prepared(config)()
        kept = (self._pins, self._scrubbed, self._complaints)
        self._catalog = Catalog({}, clock, self._link_deps.bounds, self.events.tell, store, {}, *kept)
        self._pins.on_change = lambda: self._catalog.show(self._catalog.overlays)

    def _open_gateway(self) -> None:
        """With the first snapshot."""
        given, links = self._given, self._link_deps
        self._own_work = own_work(given.config, given.store, given.make_workspace, given.engines, links, self.redactor)
        self.workspace, self.sandbox, self.providers, _, self.provisioning = self._own_work
        snapshot = self._build(self._given.config, None)
        snapshot.take_over()
        self.sign_ins.prepared(snapshot.config)()
        told = (self.events, Handles(Seal("task", given.keys)), self._info(), self._reloading)
        self.gateway = given.role.make_gateway(snapshot, *told, self._policy_deps, self._own_work)

    def _info(self) -> GatewayInfo:
        wall, source = self.clock.wall, self._given.config.source
        told = (os.getpid(), lambda: self.port, self._what_is_wrong, self.sandbox.described, self.sign_ins.credentials)
        return GatewayInfo(wall, wall(), __version__, *told, source, project_at(source))

    def _open_frontends(self) -> None:
        """What those for all kinds of clients share."""
        config, clock, keys = self._given.config, self.clock, self._given.keys
        parking, seal, node = config.parking, Seal("requestState", keys), secrets.token_hex(8)
        self.parking = Parking(clock, parking.ttl, parking.per_principal, parking.max, self._given.store)
        self._pages = Pages(Seal("cursor", keys), config.catalog.page_size)
        self.modern = ModernResponses(self.gateway, self.parking, seal, self._pages, clock, node, self.sign_ins.settled)
        shared = (self.gateway, self.modern, self._pages, config, clock, self._reloading, self.sign_ins)
        self._frontend_deps = FrontendDeps(*shared, ReplayBuffers(clock), self._policy_deps)
        self.sessions = Sessions(clock, config.sessions.idle, config.sessions.max)
        self._frontends: list[StdioFrontend] = []

    def _let_clients_in(self) -> None:
        """Over HTTP, those that are known."""
        config, identify = self._given.config, self._given.identify
        self._authenticator = Authenticator(config, self._given.store, self.clock, self._is_own)
        self._admission = Admission(config, self._authenticator, self.audit)
        self._is_known = self._admission.knows if identify is None else everybody
        who = (identify or self._admission, self._authenticator.resource)
        self.http = HttpFrontend(self._frontend_deps, self.sessions, *who)
        self._authenticator.on_withdrawn = self._expel_unknown
        self._authenticator.on_ended = lambda: self.http.end_unknown_streams(self._is_known)
        self.gateway.know_by(self._is_known)
        self._policy_deps.meters.on_refused = self.http.scheduler.refused

    def _follow_changes(self) -> None:
        """Of the store, by whichever process; and of what is served, for the audit."""
        store, whence, grants = self._given.store, self._given.settings.whence, self._policy_deps.approvals.lasting
        self._served = Served(store, self.audit, self.clock, whence, lambda: owners(store), grants)
        self._store_changes.listen("pins", self._catalog.look_at_pins)
        self._store_changes.listen("keys", self._look_at_keys)

    def stdio(
        self,
        write: Callable[[bytes], None],
        path: str = "/mcp",
        backlog: Callable[[], int] = lambda: 0,
        principal: Principal | None = None,
    ) -> StdioFrontend:
        frontend = StdioFrontend(self._frontend_deps, path, write, backlog, principal)
        self._frontends.append(frontend)
        return frontend

    def open(self) -> None:
        """Begin to start what is to be there before anybody asks. Nobody waits here until it is: one server that hangs
        must not make the gateway mute."""
        if self._given.role.is_owner:
            self._open_owned()
        if self._given.settings.has_files:
            self._background.start(self._reloading.follow_files(), "follow the configuration file")
        self._background.start(self._store_changes.follow(), "follow changes of the store")
        self._background.start(self._given.keys.follow(), "follow the keys of seals")
        may_change = self._given.settings.has_files or not self._given.role.is_owner
        if may_change or not self.gateway.snapshot.config.is_open:
            self._background.start(self._authenticator.follow(), "follow the issuer's keys")

    def _open_owned(self) -> None:
        """What there is once, however many processes serve."""
        self._given.role.serves(self.gateway.snapshot.config)
        if any(each.command and each.id not in self._given.links for each in self.gateway.snapshot.servers.values()):
            self.supervisor.prepare()
        locked = lockers.follow(self._given.store, self.supervisor, self.clock, self.audit.file)
        self._to_the_end.start(locked, "end what locks the store")
        self.sandbox.take_turns(self.http.scheduler.turn)
        self._start(self.gateway.snapshot, {})
        self._policy_deps.recorder.traffic.on_change = self.gateway.forget_plans
        self._served.note(self.gateway.snapshot.config)
        if self._given.settings.has_files:
            self._background.start(self._boxes.tidy(self._servers), "remove packages that no server uses")
        self.workspace.start(self._background, self._store_changes)
        self._store_changes.listen("scripts", self._look_at_scripts)
        self._store_changes.listen("sign-ins", self.sign_ins.vault.look)

    def _servers(self) -> Sequence[Server]:
        return self.gateway.snapshot.config.servers

    async def drain(self, hurry: asyncio.Event | None = None) -> None:
        """Take no new calls, give those under way their time (`drain`) or until `hurry` is set, and then fail what is
        left. All of it is logged."""
        seconds, began = self.gateway.snapshot.config.drain, self.clock.now()
        self.gateway.phase = "draining"
        log.info("shutting down; calls in progress: %d (waiting up to %g s)", len(self._under_way()), seconds)
        waits = [asyncio.ensure_future(self._all_ended()), asyncio.ensure_future((hurry or asyncio.Event()).wait())]
        try:
            async with self.clock.timeout(seconds):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        finally:
            for wait in waits:
                wait.cancel()
        self.gateway.phase = "ending"
        left = self._under_way()
        for work in left:
            work.cancel()
        try:
            async with self.clock.timeout(LAST_ANSWERS):  # a client may not read its own
                await self._all_ended()
        except TimeoutError:
            pass
        log.info("drained after %.1f s; calls cancelled: %d", self.clock.now() - began, len(left))

    async def _all_ended(self) -> None:
        while under_way := self._under_way():
            await asyncio.wait(under_way)

    def _under_way(self) -> list[asyncio.Task[Any]]:
        """What works for clients now, whatever carries it."""
        pipes = [work for frontend in self._frontends if not frontend.closed.is_set() for work in frontend.under_way()]
        return [*self.http.under_way(), *self.sessions.under_way(), *pipes]

    async def close(self) -> None:
        """Clients first, then what they wait for, then the processes; each whatever becomes of the others."""
        async with AsyncExitStack() as last_first:
            last_first.callback(self._complaints.close)
            last_first.push_async_callback(self.supervisor.close)
            last_first.push_async_callback(self._to_the_end.close)  # the others may wait for the store
            last_first.push_async_callback(self.sign_ins.close)
            last_first.push_async_callback(self._close_upstreams)
            last_first.push_async_callback(self._pins.close)
            last_first.push_async_callback(self._catalog.close)
            last_first.callback(self._policy_deps.checker.close)
            last_first.push_async_callback(self.gateway.close)
            last_first.push_async_callback(self.workspace.close)
            last_first.push_async_callback(self.sandbox.close)
            last_first.push_async_callback(self.provisioning.close)
            last_first.callback(self._authenticator.close)
            last_first.push_async_callback(self._background.close)
            last_first.push_async_callback(self._notices.close)
            last_first.callback(self._overflow.close)
            last_first.callback(self.parking.close)
            last_first.callback(self.modern.close)
            last_first.push_async_callback(self.sessions.close)
            last_first.callback(self.http.end)

    async def _close_upstreams(self) -> None:
        async with asyncio.TaskGroup() as together:
            for upstream in (*self.gateway.snapshot.upstreams.values(), *self._replaced):
                together.create_task(upstream.close())

    def _look_at_scripts(self) -> None:
        """Some were approved or removed, or code can be run in another language. Where there are none, there is no
        server of them."""
        if (OF_SCRIPTS[0] in self.gateway.snapshot.upstreams) != self._own_work.scripts.are_some:
            self._prepared(self.gateway.snapshot.config)()
        self._catalog.changed(*OF_SCRIPTS)

    def _look_at_keys(self) -> None:
        self._authenticator.look()
        self._served.note(self.gateway.snapshot.config)
        self._expel_unknown()

    def _expel_unknown(self) -> None:
        for frontend in (self.http, *self._frontends):
            frontend.expel_unknown(self._is_known)

    @property
    def recorder(self) -> Recorder:
        return self._policy_deps.recorder

    # Another configuration, for whatever reason: the one path.

    @property
    def problem(self) -> str:
        return self._reloading.problem

    def _what_is_wrong(self) -> str:
        return self.problem or self.audit.problem or self._given.role.problem()

    def telling(self) -> AbstractAsyncContextManager[None]:
        """While it lasts, collectors are sent what the configuration wants them to have."""
        return otlp.opened(self._given.config, __version__, self._policy_deps.recorder)

    async def reload(self) -> None:
        await self._reloading.reload_anyway()

    def reload_soon(self) -> None:
        self._reloading.reload_soon()

    def _scrubbed(self, server: str, items: Items) -> Items:
        """As the catalog keeps them, and pins are compared: what is configured for others changes nothing of it."""
        scrubber = scrub.Scrubber(self.redactor.listed(server), self.gateway.snapshot.config.guard.scrub)
        return msgspec.structs.replace(items, raw=scrubber.items(items.raw))

    def _build(self, config: Config, before: Snapshot | None) -> Snapshot:
        learn_secrets(config, self.redactor)
        ours = (self._link_deps, self._changed, self._given.policies, self._given.links, self._policy_deps)
        return snapshots.build(config, self._catalog, *ours, self._own_work, before)

    @property
    def _services(self) -> Sequence[Service]:
        """What goes by the configuration, beside the snapshot, in the order in which it takes up another one."""
        links = self._link_deps
        above = (self._pins, self._notices, self._admission, self.sign_ins, self._pages, self._overflow)
        own = (self.workspace, self.sandbox, self.providers, self.provisioning)
        return (*above, *own, links.pool, links.outside, links.bounds, self._boxes)

    def _prepared(self, config: Config, changed: str = "") -> Callable[[], Snapshot]:
        """All that another configuration takes; nothing is changed yet. What it returns has it served."""
        snapshot = self._build(config, self.gateway.snapshot)
        use_access = self._policy_deps.access.prepared(config)
        swaps = [service.prepared(config) for service in self._services]
        return lambda: self._serve(snapshot, use_access, swaps, changed)

    def _serve(self, snapshot: Snapshot, use_access: Swap, swaps: Sequence[Swap], changed: str) -> Snapshot:
        """Each server that is not the same any more gets a while for what is under way."""
        before, config = self.gateway.snapshot, snapshot.config
        self.gateway.adopt(snapshot, use_access)
        for swap in swaps:
            swap()
        self.redactor.keep(snapshot.servers)
        snapshot.take_over()
        self._expel_unknown()
        self.http.end_moved(before.config.clients, config.clients)
        for id, upstream in before.upstreams.items():
            if snapshot.upstreams.get(id) is not upstream:
                self._replaced[upstream] = asyncio.Event()
                self._background.start(self._drain(upstream), f"drain {id}")
        for id, upstream in snapshot.upstreams.items():
            if before.upstreams.get(id) is upstream:
                upstream.use(snapshot.servers[id])
            else:
                upstream.succeed(ended for each, ended in self._replaced.items() if each.id == id)
        self._start(snapshot, before.upstreams)
        self._look_at_scripts()
        self.audit.notes_changes = self.audit.notes_changes or config.audit.enabled is not False
        self._served.note(config, changed)  # an edit that ends the audit is its last line
        self.audit.use(config)
        self._given.role.serves(config)
        return snapshot

    async def _drain(self, upstream: Upstream) -> None:
        try:
            await upstream.drain(DRAIN, lambda: self.gateway.snapshot.upstreams.get(upstream.id))
        finally:
            self._replaced[upstream].set()
        del self._replaced[upstream]

    def _start(self, snapshot: Snapshot, before: Mapping[str, Upstream]) -> None:
        """Have opened what is to be up before anybody asks, and was not there before."""
        if not self._given.role.is_owner:
            return
        for id, server in snapshot.servers.items():
            upstream = snapshot.upstreams[id]
            if server.is_eager and before.get(id) is not upstream:
                self._background.start(upstream.open(), f"start {id}")

    def _changed(self, event: Event) -> asyncio.Future[None] | None:
        """A server says something on its own account. Of changed lists the catalog tells, once it has looked."""
        if event.kind == "list_changed":
            self._catalog.changed(event.server, event.scope, event.lists)
        elif event.kind == "opened":
            self._catalog.opened(event.server, event.scope)
        elif event.kind == "scope_ended":
            self._catalog.forget(event.server, event.scope)
        elif self.events.is_for_anybody(event):
            return self.events.tell(self.gateway.snapshot.scrubber(event.server).event(event))
        return None


@asynccontextmanager
async def running(
    config: Config,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    policies: Sequence[Policy] = (),
    identify: Identify | None = None,
    links: Mapping[str, MakeLink] | None = None,
    settings: Settings | None = None,
    store: Store | None = None,
    audit: Trail | None = None,
    spool: Path | None = None,
    engines: Mapping[str, MakeEngine] = ENGINES,
    role: Role = ALONE,
) -> AsyncGenerator[App]:
    """A gateway for this configuration, ended with all that it started when the block is left.

    Injected here, for tests and embedding: time, environment, policies, who a client is, links by server id, the files
    that the configuration came from (without them, what is added is kept in memory), the store and the audit, which are
    their openers' to close (without a store all is forgotten at the end, and without an audit nothing is noted);
    the folder in which `toolgate hook` puts what it is told; what runs code, by language; and its `role`, where several
    processes serve one configuration.
    """
    gateway_environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    settings = settings or Settings(lambda: config, gateway_environ)
    store = store or MemoryStore(clock)
    keys = await sealing_keys(store, clock, makes=role.is_owner)
    if why := await trouble(config, store):
        log.warning("unpinned tools are quarantined: %s", why)
    audit = audit or nowhere(clock)
    workspace = partial(WorkspaceServices, store, config, gateway_environ, links or {}, Path.cwd(), spool)
    given = (config, clock, gateway_environ, policies, identify, links or {}, settings, store, keys, audit)
    app = App(Given(*given, workspace, engines, role))
    async with app.telling():
        with quiet_logs(app.redactor):
            try:
                app.open()
                yield app
            finally:
                await app.close()
                log.info("ended")
