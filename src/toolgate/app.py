"""The whole gateway put together: the one place where rooms are wired to each other, and closed in order."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from toolgate import snapshot as snapshots
from toolgate.config import Config
from toolgate.frontends.http import HttpDoor, Identify, everyone_is_local
from toolgate.frontends.modern import ModernFace
from toolgate.frontends.session import Sessions
from toolgate.frontends.stdio import StdioDoor
from toolgate.gateway import Gateway
from toolgate.model import Event
from toolgate.parking import Parking
from toolgate.policy.base import Policy
from toolgate.ports import Clock, SystemClock
from toolgate.seal import Seal
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
    ) -> None:
        self.config = config
        self.clock = clock
        self._listeners: list[Callable[[Event], None]] = []
        self.supervisor = Supervisor(clock, environ)
        snapshot = snapshots.build(config, Ground(clock, self.supervisor), self._event, policies, links)
        self.gateway = Gateway(snapshot, clock)
        self.parking = Parking(clock, config.parking.ttl, config.parking.per_principal, config.parking.max)
        self.modern = ModernFace(self.gateway, self.parking, Seal("requestState"), clock, node=secrets.token_hex(8))
        self.sessions = Sessions(clock, config.sessions.idle, config.sessions.max)
        self.http = HttpDoor(self.gateway, self.modern, self.sessions, config, clock, identify)
        self._listeners.append(self.http.on_event)

    def stdio(self, write: Callable[[bytes], None], path: str = "/mcp") -> StdioDoor:
        door = StdioDoor(self.gateway, self.modern, self.gateway.snapshot.routes[path], self.config, self.clock, write)
        self._listeners.append(door.on_event)
        return door

    async def open(self) -> None:
        """Start what is to be there before anybody asks."""
        for server in self.config.servers:
            if server.enabled and server.start == "eager":
                await self.gateway.snapshot.upstreams[server.id].open()

    async def close(self) -> None:
        """Clients first, then what they wait for, then the processes."""
        await self.sessions.close()
        self.parking.close()
        await self.gateway.snapshot.catalog.close()
        for upstream in self.gateway.snapshot.upstreams.values():
            await upstream.close()
        await self.supervisor.close()

    def _event(self, event: Event) -> None:
        if event.kind == "list_changed":
            self.gateway.snapshot.catalog.changed(event.server, event.lists)
        for listener in self._listeners:
            listener(event)


@asynccontextmanager
async def running(
    config: Config,
    *,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    policies: Sequence[Policy] = (),
    identify: Identify = everyone_is_local,
    links: Mapping[str, MakeLink] | None = None,
) -> AsyncGenerator[App]:
    """A gateway for this configuration, ended with all that it started when the block is left.

    What is injected here is for tests and embedding: time, environment, rules, who a client is, and links by server id.
    """
    gateway_environ = os.environ if environ is None else environ
    app = App(config, clock or SystemClock(), gateway_environ, policies, identify, links or {})
    try:
        await app.open()
        yield app
    finally:
        await app.close()
