"""The whole gateway put together: the one place where rooms are wired to each other, and closed in order."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from toolgate import __version__
from toolgate import snapshot as snapshots
from toolgate.access import Access
from toolgate.audit import Trail, is_on, nowhere
from toolgate.auth.doorkeeper import Doorkeeper
from toolgate.auth.oauth.credentials import OAuth
from toolgate.auth.refusals import Unauthorized
from toolgate.catalog import Catalog
from toolgate.config import Config, ConfigError, secrets_of, showing
from toolgate.events import Events
from toolgate.frontends.guards import Headers, Identify, everyone_is_local
from toolgate.frontends.http import HttpDoor
from toolgate.frontends.inside import Inside
from toolgate.frontends.modern import ModernFace
from toolgate.frontends.pages import Pages
from toolgate.frontends.sessions import Sessions
from toolgate.frontends.stdio import StdioDoor
from toolgate.gateway import Gateway
from toolgate.model import Event, Fault, Principal
from toolgate.news import News
from toolgate.outside import Outside
from toolgate.parking import Parking
from toolgate.pins import Pins
from toolgate.policy import chain
from toolgate.policy.base import Policy
from toolgate.policy.limits import Meters
from toolgate.ports import Clock, House, Items, Store, SystemClock, Upstream
from toolgate.redaction import quiet_logs
from toolgate.seal import Seal
from toolgate.settings import Settings, project_at
from toolgate.snapshot import Snapshot
from toolgate.store.keys import sealing_keys
from toolgate.store.memory import MemoryStore
from toolgate.surfaces.handles import Handles
from toolgate.upstreams.links import Ground, MakeLink
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.supervisor import Supervisor
from toolgate.wire import mcp
from toolgate.wire.names import slug

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between looks at the files
NOBODY = Principal("")  # who works inside this process
DRAIN = 30.0  # seconds for what is under way on a server that is configured no more


class App:
    """A running gateway. Made by `running`, which also ends it."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        environ: Mapping[str, str],
        policies: Sequence[Policy],
        identify: Identify | None,
        links: Mapping[str, MakeLink],
        settings: Settings,
        store: Store,
        keys: Sequence[bytes],
        audit: Trail,
    ) -> None:
        self.clock = clock
        self.audit = audit
        self.problem = ""  # why the configuration as it stands now is not served
        self._settings = settings
        self._opened = config
        self._policies = policies
        self._links = links
        self._turn = asyncio.Lock()
        self._work: set[asyncio.Task[None]] = set()
        self.events = Events()
        self.supervisor = Supervisor(clock, environ)
        outside = Outside(config.guard.allow_hosts)
        self.sign_ins = OAuth(store, keys, clock, outside, audit.redactor, self._reached_at, self._signed_in)
        self._ground = Ground(clock, self.supervisor, Pool(clock, config.pool), outside, self.sign_ins)
        self._spills = chain.make_spills(config, clock)
        self.redactor = audit.redactor
        self._common = chain.Common(clock, store, self._spills, self.redactor, Access(config), audit, Meters(clock))
        self._news = News(store, clock)
        self._pins = Pins(store, clock, config.source, audit.note_of_strangers)
        self._pins.use(config)
        self._news.listen("pins", self._approved)
        self._catalog = Catalog({}, clock, config.catalog, self.events.tell, store, {}, self._pins, self._scrubbed)
        snapshot = self._build(config, None)
        snapshot.take_over()
        self.sign_ins.knows(snapshot.servers)
        house = House(
            clock.wall,
            clock.wall(),
            __version__,
            os.getpid(),
            lambda: self.port,
            lambda: self.problem or audit.problem,
            config.source,
            project_at(config.source),
        )
        self.gateway = Gateway(
            snapshot,
            self.events,
            Handles(Seal("task", keys)),
            house,
            self,
            self._spills,
            self._common.access,
            clock,
            self.redactor,
        )
        self.parking = Parking(clock, config.parking.ttl, config.parking.per_principal, config.parking.max, store)
        self._pages = Pages(Seal("cursor", keys), config.catalog.page_size)
        self.modern = ModernFace(
            self.gateway,
            self.parking,
            Seal("requestState", keys),
            self._pages,
            clock,
            node=secrets.token_hex(8),
            credentials=self.sign_ins,
        )
        self.port: int | None = None  # where it listens, if it does
        self._inside = Inside(self.gateway, self.modern, self._pages, config, clock, self, self.sign_ins)
        self.sessions = Sessions(clock, config.sessions.idle, config.sessions.max)
        self._keeper = Doorkeeper(config, store, clock)
        self._judges_itself = identify is None
        self.http = HttpDoor(self._inside, self.sessions, identify or self._identify, self._keeper.resource)
        self._news.listen("keys", self._look_at_keys)

    def stdio(
        self,
        write: Callable[[bytes], None],
        path: str = "/mcp",
        backlog: Callable[[], int] = lambda: 0,
        principal: Principal | None = None,
    ) -> StdioDoor:
        return StdioDoor(self._inside, path, write, backlog, principal)

    async def open(self) -> None:
        """Start what is to be there before anybody asks."""
        await self._start(self.gateway.snapshot, {})
        if self._settings.has_files:
            self._spawn(self._follow_files())
        if self._settings.has_files or not self._opened.is_open:
            self._spawn(self._news.follow())

    async def close(self) -> None:
        """Clients first, then what they wait for, then the processes; each whatever becomes of the others."""
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self.supervisor.close)
            last_first.push_async_callback(self.sign_ins.close)
            last_first.push_async_callback(self._close_upstreams)
            last_first.push_async_callback(self._catalog.close)
            last_first.push_async_callback(self.gateway.close)
            last_first.push_async_callback(self._stop_work)
            last_first.callback(self._spills.close)
            last_first.callback(self.parking.close)
            last_first.callback(self.modern.close)
            last_first.push_async_callback(self.sessions.close)
            last_first.callback(self.http.end)

    async def _close_upstreams(self) -> None:
        async with asyncio.TaskGroup() as together:
            for upstream in self.gateway.snapshot.upstreams.values():
                together.create_task(upstream.close())

    # Signing in at servers.

    def _reached_at(self) -> str:
        """The URL that browsers reach the gateway by, without a path; empty where they cannot."""
        config = self.gateway.snapshot.config
        host = config.http.host
        if self.port is None:
            return ""
        return config.auth.audience.rstrip("/") or f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def _signed_in(self, server: str, _principal: str) -> None:
        """What a user may see of a server is another now; whose lists these are, each client knows itself."""
        log.debug("somebody has signed in at %s", server)
        self.events.tell(Event("", "list_changed", lists=tuple(mcp.LIST_OF_KIND)))

    # Who a client is.

    async def _identify(self, headers: Headers, address: str, path: str) -> Principal:
        is_open = self.gateway.snapshot.config.is_open
        try:
            return await (everyone_is_local if is_open else self._keeper)(headers, address, path)
        except Unauthorized as refused:
            if "authorization" in headers:  # who shows nothing learns what to show, and is no event
                self.audit.note_of_strangers("login", decision="deny", reason=str(refused), address=address, path=path)
            raise

    def _look_at_keys(self) -> None:
        self._keeper.look()
        self._see_who_is_in()

    def _see_who_is_in(self) -> None:
        """Whoever would not be let in any more leaves."""
        if self._judges_itself:
            self.http.expel_unknown(self._is_known)

    def _is_known(self, principal: Principal) -> bool:
        return not principal.via if self.gateway.snapshot.config.is_open else self._keeper.knows(principal)

    # Another configuration, whoever wants it: the one path.

    async def reload(self) -> None:
        """Serve the configuration as it stands now. Raises `ConfigError`, and goes on with the old one, where it is not
        to be understood."""
        async with self._turn:
            try:
                config = await asyncio.to_thread(self._settings.read)
            except ConfigError as error:
                self.problem = str(error)
                raise
            self._serve(config)

    async def add(self, name: str, table: Mapping[str, Any], by: Principal = NOBODY, /) -> str:
        """Add a server, and have it listed. Its id. Raises `Fault`."""
        async with self._turn:
            self._serve(await asyncio.to_thread(self._settings.add, name, table))
            added = next(each for each in self.gateway.snapshot.config.servers if each.id == slug(name))
        shown = showing.server(added, masked=True)
        self.audit.note("servers.add", by, name=name, by_operator=added.by_operator, config=shown)
        return slug(name)

    async def remove(self, name: str, by: Principal = NOBODY, /) -> None:
        async with self._turn:
            self._serve(await asyncio.to_thread(self._settings.remove, name))
        self.audit.note("servers.remove", by, name=name)

    def _scrubbed(self, items: Items) -> Items:
        return msgspec.structs.replace(items, raw=self.gateway.scrubber.items(items.raw))

    def _build(self, config: Config, before: Snapshot | None) -> Snapshot:
        self.redactor.learn(secrets_of(config))
        return snapshots.build(
            config, self._catalog, self._ground, self._changed, self._policies, self._links, self._common, before
        )

    def _serve(self, config: Config) -> None:
        """New world first, then swap, then the end of the old one: each server that is not the same any more gets a
        while for what is under way."""
        before = self.gateway.snapshot
        snapshot = self._build(config, before)
        self.audit.is_on = is_on(config)
        self.gateway.adopt(snapshot)
        self._pins.use(config)
        snapshot.take_over()
        self._keeper.use(config)
        self._see_who_is_in()
        self.problem = ""
        self._ground.pool.limits = config.pool
        self._ground.outside.allowed = config.guard.allow_hosts
        self._catalog.limits = config.catalog
        self._pages.size = config.catalog.page_size
        self._spills.at_once = chain.at_once(config)
        _warn_of_what_waits(self._opened, before.config, config)
        for id, upstream in before.upstreams.items():
            if snapshot.upstreams.get(id) is not upstream:
                self._spawn(upstream.drain(DRAIN))
        self._spawn(self._start(snapshot, before.upstreams))

    async def _start(self, snapshot: Snapshot, before: Mapping[str, Upstream]) -> None:
        """Open what is to be up before anybody asks, and was not there before."""
        eager = [id for id, server in snapshot.servers.items() if server.start == "eager"]
        opened = (snapshot.upstreams[id] for id in eager)
        await asyncio.gather(*(upstream.open() for upstream in opened if before.get(upstream.id) is not upstream))

    async def read_again(self) -> None:
        try:
            await self.reload()
        except ConfigError as error:
            message = f"The configuration is not understood; the old one is served on: {error}"
            raise Fault("INVALID_ARGS", message, reach="not_sent") from None

    def reload_soon(self) -> None:
        """The same, for who cannot wait: what is wrong stands in the log."""
        self._spawn(self._reload_or_say())

    async def _reload_or_say(self) -> None:
        try:
            await self.reload()
        except ConfigError as error:
            log.error(
                "the configuration was changed, and is not to be understood; the old one is served on:\n%s", error
            )
        else:
            log.info("the configuration was changed, and is served: %s", ", ".join(self._served()) or "no servers")

    def _served(self) -> list[str]:
        return [upstream.name for upstream in self.gateway.snapshot.upstreams.values()]

    async def _follow_files(self) -> None:
        """Serve what stands in the files whenever that is another than was read, and the same for a moment."""
        last = self._settings.known
        while True:
            await self.clock.sleep(LOOK)
            seen = self._settings.seen()
            if seen == last != self._settings.known:
                await self._reload_or_say()
            last = seen

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """The rescue of what nobody waits for."""
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("work of the gateway itself has failed", exc_info=error)

    async def _stop_work(self) -> None:
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _approved(self) -> None:
        """Somebody has approved of tools: they are shown, and clients hear of it."""
        self._pins.read_again()
        self._catalog.show(self._catalog.overlays)

    def _changed(self, event: Event) -> None:
        """A server says something on its own account. Of changed lists the catalog tells, once it has looked."""
        if event.kind == "list_changed":
            self._catalog.changed(event.server, event.scope, event.lists)
        elif event.kind == "opened":
            self._catalog.opened(event.server, event.scope)
        elif event.kind == "scope_ended":
            self._catalog.forget(event.server, event.scope)
        else:
            self.events.tell(self.gateway.scrubber.event(event))


def _warn_of_what_waits(opened: Config, before: Config, now: Config) -> None:
    """The doors, the store and the audit stand as they were opened."""
    for part in ("http", "sessions", "parking", "state"):
        if getattr(now, part) not in (getattr(opened, part), getattr(before, part)):
            log.warning("`%s` was changed; that takes effect when toolgate is started again", part)
    if now.audit.path not in (opened.audit.path, before.audit.path):
        log.warning("`audit.path` was changed; that takes effect when toolgate is started again")


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
) -> AsyncGenerator[App]:
    """A gateway for this configuration, ended with all that it started when the block is left.

    Injected here, for tests and embedding: time, environment, policies, who a client is, links by server id, the files
    that the configuration came from (without them, what is added is kept in memory), the store and the audit, which are
    their openers' to close (without a store all is forgotten at the end, and without an audit nothing is noted).
    """
    gateway_environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    settings = settings or Settings(lambda: config, gateway_environ)
    store = store or MemoryStore(clock)
    keys = await sealing_keys(store, clock)
    audit = audit or nowhere(clock)
    app = App(config, clock, gateway_environ, policies, identify, links or {}, settings, store, keys, audit)
    with quiet_logs(app.redactor):
        try:
            await app.open()
            yield app
        finally:
            await app.close()
