"""The gateway of a worker: of all calls it handles those for which nothing has to be shared with other processes.

The rule this file keeps: what is not surely so is the owner's. A worker starts no program, opens no session of a
handshake, asks nobody, and holds nothing that a later request could need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from toolgate.config import Config, Server
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Event
from toolgate.core.notes import Notes
from toolgate.eras import tasks
from toolgate.frontends.workers.role import Role
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.memos import CallMemo
from toolgate.gateway.round import Round
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy.limits import Meters
from toolgate.upstreams.base import Upstream
from toolgate.upstreams.process.supervisor import Launch

AGAIN = 30.0  # seconds after which a server is asked again that could not be spoken to
_SHARED = frozenset({"approval", "truncate"})  # policies that keep something for a later request


def for_worker(config: Config) -> Config:
    """A configuration as a worker takes it: a handshake begins a session, which is the owner's; and what is counted
    the owner tells."""
    servers = tuple(
        msgspec.structs.replace(each, era="modern") if each.type == "http" and each.era == "auto" else each
        for each in config.servers
    )
    telemetry = msgspec.structs.replace(config.telemetry, usage=config.telemetry.counts, metrics=False)
    return msgspec.structs.replace(config, servers=servers, telemetry=telemetry)


def _is_local(server: Server) -> bool:
    is_alone = server.scope == "shared" and server.concurrency is None and not server.auth
    return server.enabled and server.type == "http" and server.era == "modern" and is_alone and not server.problem


async def _refuse_to_launch(server: Server, _holder: str) -> Launch:
    raise Fault("SERVER_FAILED", "A worker starts no programs", server=server.id, reach="not_sent")


class LocalGateway(Gateway):
    """`is_watched`: somebody looks at calls as they end, so that all are the owner's. `is_apart`: so they are where it
    does not read the owner's store."""

    is_watched = is_apart = False
    _seen: Snapshot | None = None
    _servers: Mapping[str, Upstream] = {}  # those that it may call, of the snapshot it has seen
    _resting: Mapping[str, float] = {}  # servers that could not be spoken to, and until when none is asked again

    def begin(self, call: Call, route: Route) -> Round | None:
        if self.is_watched or self.is_apart or call.resumption or tasks.declares(call.client.capabilities):
            return None
        plan = route.plans.find(call, self.access.rules(call.client.principal), self.snapshot.catalog.version)
        if (
            not plan
            or plan.server not in self.callable_here()
            or not _SHARED.isdisjoint(each.name for each in plan.hooks)
        ):
            return None
        return super().begin(call, route)

    def begin_like(
        self, memo: CallMemo, arguments: Raw, headers: Mapping[str, str] | None, notes: Notes, route: Route
    ) -> Round | None:
        if self.is_watched or self.is_apart:  # which may have begun since the memo was made
            return None
        return super().begin_like(memo, arguments, headers, notes, route)

    def callable_here(self) -> Mapping[str, Upstream]:
        """The servers of what is served now that a worker may call."""
        if self._seen is not self.snapshot:
            self._seen, self._resting = self.snapshot, {}
            ours = [each.id for each in self.snapshot.config.servers if _is_local(each)]
            self._servers = {id: self.snapshot.upstreams[id] for id in ours}
        return self._servers

    def lists_changed(self, event: Event) -> None:
        """The owner has found that a server's lists are others now."""
        if event.server in self.callable_here():
            self.snapshot.catalog.changed(event.server, event.scope, event.lists)

    async def learn(self, call: Call, route: Route) -> bool:
        """Find out what a call is for, so that the next one of that name may be handled here; whether it may. Raises
        `Fault`."""
        if self.phase != "serving" or self.is_apart:
            return False
        snapshot, ours, now = self.snapshot, self.callable_here(), self._clock.now()
        rules = self.access.rules(call.client.principal)
        _, needs = await self._resolver.needed(call, route, rules)
        if not needs or any(server not in ours or now < self._resting.get(server, now) for server, _ in needs):
            return False
        if not all(snapshot.catalog.is_live(*need, call.client) for need in needs):
            snapshot.catalog.look_at_pins()  # what the owner has trusted meanwhile
            patience = snapshot.list_timeout
            await snapshot.catalog.view(route.servers, needs, call.client, patience, rules=rules, anew=True)
        if not all(snapshot.catalog.is_live(*need, call.client) for need in needs):
            self._resting = {**self._resting, **{server: now + AGAIN for server, _ in needs}}
            return False
        await self._resolver.enter(call, route)
        return True


def role_of_worker(make_meters: Callable[[Clock], Meters]) -> Role:
    """What one does: `make_meters` makes those that all share."""
    return Role(LocalGateway, _refuse_to_launch, make_meters)
