"""The whole gateway put together: the one place where rooms are wired to each other, and closed in order."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from toolgate import __version__
from toolgate import snapshot as snapshots
from toolgate.config import Config
from toolgate.events import Events
from toolgate.frontends.guards import Identify, everyone_is_local
from toolgate.frontends.http import HttpDoor
from toolgate.frontends.inside import Inside
from toolgate.frontends.modern import ModernFace
from toolgate.frontends.pages import Pages
from toolgate.frontends.sessions import Sessions
from toolgate.frontends.stdio import StdioDoor
from toolgate.gateway import Gateway
from toolgate.model import Event
from toolgate.parking import Parking
from toolgate.policy.base import Policy
from toolgate.ports import Clock, House, Store, SystemClock
from toolgate.seal import Seal
from toolgate.store.keys import sealing_keys
from toolgate.store.memory import MemoryStore
from toolgate.surfaces.handles import Handles
from toolgate.upstreams.links import Ground, MakeLink
from toolgate.upstreams.supervisor import Supervisor


class App:
    """A running gateway. Made by `running`, which also ends it."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        environ: Mapping[str, str],
        policies: Sequence[Policy],
        identify: Identify,
        links: Mapping[str, MakeLink],
        store: Store,
        keys: Sequence[bytes],
    ) -> None:
        self.config = config
        self.clock = clock
        self.events = Events()
        self.supervisor = Supervisor(clock, environ)
        ground = Ground(clock, self.supervisor)
        snapshot = snapshots.build(config, ground, self._changed, self.events.tell, policies, links, store)
        house = House(clock.wall, clock.wall(), __version__, os.getpid(), source=config.source)
        self.gateway = Gateway(snapshot, self.events, Handles(Seal("task", keys)), house, self, clock)
        self.parking = Parking(clock, config.parking.ttl, config.parking.per_principal, config.parking.max, store)
        pages = Pages(Seal("cursor", keys), config.catalog.page_size)
        self.modern = ModernFace(
            self.gateway, self.parking, Seal("requestState", keys), pages, clock, node=secrets.token_hex(8)
        )
        self._inside = Inside(self.gateway, self.modern, pages, config, clock)
        self.sessions = Sessions(clock, config.sessions.idle, config.sessions.max)
        self.http = HttpDoor(self._inside, self.sessions, identify)

    def stdio(
        self, write: Callable[[bytes], None], path: str = "/mcp", backlog: Callable[[], int] = lambda: 0
    ) -> StdioDoor:
        return StdioDoor(self._inside, path, write, backlog)

    async def open(self) -> None:
        """Start what is to be there before anybody asks."""
        eager = [server.id for server in self.config.servers if server.enabled and server.start == "eager"]
        await asyncio.gather(*(self.gateway.snapshot.upstreams[id].open() for id in eager))

    async def close(self) -> None:
        """Clients first, then what they wait for, then the processes; each whatever becomes of the others."""
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(self.supervisor.close)
            last_first.push_async_callback(self._close_upstreams)
            last_first.push_async_callback(self.gateway.snapshot.catalog.close)
            last_first.push_async_callback(self.gateway.close)
            last_first.callback(self.parking.close)
            last_first.callback(self.modern.close)
            last_first.push_async_callback(self.sessions.close)
            last_first.callback(self.http.end)

    async def _close_upstreams(self) -> None:
        async with asyncio.TaskGroup() as together:
            for upstream in self.gateway.snapshot.upstreams.values():
                together.create_task(upstream.close())

    async def add(self, name: str, table: Mapping[str, Any], /) -> str:
        raise NotImplementedError

    async def remove(self, name: str, /) -> None:
        raise NotImplementedError

    def _changed(self, event: Event) -> None:
        """A server says something on its own account. Of changed lists the catalog tells, once it has looked."""
        if event.kind == "list_changed":
            self.gateway.snapshot.catalog.changed(event.server, event.scope, event.lists)
        elif event.kind == "opened":
            self.gateway.snapshot.catalog.opened(event.server, event.scope)
        elif event.kind == "scope_ended":
            self.gateway.snapshot.catalog.forget(event.server, event.scope)
        else:
            self.events.tell(event)


@asynccontextmanager
async def running(
    config: Config,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    policies: Sequence[Policy] = (),
    identify: Identify = everyone_is_local,
    links: Mapping[str, MakeLink] | None = None,
    store: Store | None = None,
) -> AsyncGenerator[App]:
    """A gateway for this configuration, ended with all that it started when the block is left.

    Injected here, for tests and embedding: time, environment, policies, who a client is, links by server id, and the
    store, which is its opener's to close; without one all is forgotten at the end.
    """
    gateway_environ = os.environ if environ is None else environ
    clock = clock or SystemClock()
    store = store or MemoryStore(clock)
    keys = await sealing_keys(store, clock)
    app = App(config, clock, gateway_environ, policies, identify, links or {}, store, keys)
    try:
        await app.open()
        yield app
    finally:
        await app.close()
