"""Everything that is built from one configuration, so that it can be swapped as a whole: upstreams, catalog, routes.

`build_routes` is the one place where paths get their surfaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from toolgate import surfaces
from toolgate.auth.access import Rules
from toolgate.catalog.catalog import Catalog
from toolgate.config import Config, Server
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, EventSink
from toolgate.core.redaction import Redactor
from toolgate.gateway.changes import Changes
from toolgate.gateway.own_work import OwnWork, own_server
from toolgate.gateway.plan import Plans
from toolgate.policy import chain, truncate
from toolgate.policy.base import Policy
from toolgate.policy.chain import PolicyDeps
from toolgate.policy.run import Hooks, compiled
from toolgate.policy.scrub import Scrubber
from toolgate.policy.truncate import Truncate
from toolgate.surfaces import bundle
from toolgate.surfaces.base import Surface
from toolgate.surfaces.single import Single
from toolgate.upstreams.base import Upstream
from toolgate.upstreams.kinds import upstream_of
from toolgate.upstreams.known_eras import print_of
from toolgate.upstreams.links import LinkDeps, MakeLink


class Route(msgspec.Struct, frozen=True):
    """An endpoint path: what is shown there, of which servers, by which policies. `own_policies` judge calls of the
    gateway's own: what changes its servers asks first, which calls of servers need not pay for. `is_strict`: no
    implicit sessions. `is_transparent`: what we do not know of the protocol is its one server's to say."""

    path: str
    surface: Surface
    upstreams: Mapping[str, Upstream]
    policies: tuple[Policy, ...] = ()
    own_policies: tuple[Policy, ...] = ()  # none: the same
    hooks: tuple[Hooks, ...] = ()  # of both, compiled
    own_hooks: tuple[Hooks, ...] = ()
    is_strict: bool = False
    is_transparent: bool = False
    servers: Mapping[str, str] = {}  # their configured names by id, in the order of the configuration
    plans: Plans = msgspec.field(default_factory=Plans)

    def __post_init__(self) -> None:
        servers = {id: upstream.name for id, upstream in self.upstreams.items()}
        msgspec.structs.force_setattr(self, "servers", servers)
        msgspec.structs.force_setattr(self, "plans", Plans(self.upstreams))
        msgspec.structs.force_setattr(self, "hooks", compiled(self.policies))
        msgspec.structs.force_setattr(self, "own_hooks", compiled(self.own_policies or self.policies))

    def upstream(self, server: str) -> Upstream:
        """Raises `Fault` for one that is not here: a task's server, or a resumed call's, may be removed meanwhile."""
        return self.upstreams.get(server) or removed(server)

    def print_of(self, server: str) -> str:
        """`Upstream.print` of what is served by this id here; empty where nothing is."""
        return found.print if (found := self.upstreams.get(server)) else ""

    def judged_by(self, call: Call) -> tuple[Hooks, ...]:
        """The hooks for any round of a call whose true target is known."""
        return self.own_hooks if call.server == names.OWN else self.hooks

    def seen_by(self, rules: Rules | None) -> Mapping[str, str]:
        """Its `servers`, as far as a client of these rules may know of them."""
        return self.servers if rules is None else rules.servers(self.servers)

    def check_let_in(self, rules: Rules | None) -> None:
        """Raises `Fault` where the path is that of one server, of which a client of these rules may not know."""
        if rules is not None and self.is_strict and not rules.servers(self.servers):
            raise Fault("ACCESS_DENIED", "Access denied: this client may not use that", reach="not_sent")


def removed(server: str) -> NoReturn:
    raise Fault("SERVER_NOT_FOUND", f"Server not found: {server} is no longer configured", reach="not_sent")


class Snapshot(msgspec.Struct, frozen=True):
    config: Config
    upstreams: Mapping[str, Upstream]
    catalog: Catalog
    routes: Mapping[str, Route]
    servers: Mapping[str, Server]  # those that are enabled, by id
    redactor: Redactor
    truncate: Truncate | None
    passed_on: frozenset[str] = frozenset()  # headers of clients that some server is to get

    @property
    def list_timeout(self) -> float:
        return self.config.catalog.list_timeout

    def scrubber(self, server: str, route: Route | None = None) -> Scrubber:
        """What a server says goes through it; with `route`, a result that is for a client there."""
        return Scrubber(self.redactor.of(server), self.config.guard.scrub, bool(route and not route.is_transparent))

    def route(self, path: str) -> Route:
        """What is served at a path. Raises `Fault` where that was removed."""
        found = self.routes.get(path)
        if not found:
            raise Fault("SERVER_NOT_FOUND", f"{path} is no longer served", reach="not_sent")
        return found

    def take_over(self) -> None:
        """Have the catalog know these servers, and no others, from now on."""
        self.catalog.use(self.upstreams, prints(self.config))
        self.catalog.show({id: server.tools for id, server in self.servers.items() if server.tools})


def build(
    config: Config,
    catalog: Catalog,
    link_deps: LinkDeps,
    on_change: EventSink,
    policies: Sequence[Policy],
    links: Mapping[str, MakeLink],
    policy_deps: PolicyDeps,
    own: OwnWork,
    before: Snapshot | None = None,
) -> Snapshot:
    """`on_change` hears what servers say of themselves, `policies` come before those of the configuration, `links` are
    other links than the usual ones, by server id; `own` has the gateway's own servers. Of the snapshot `before`,
    servers that are to run as they did are carried over. The catalog is not told yet: see `Snapshot.take_over`."""
    servers = {server.id: server for server in config.servers if server.enabled}
    internal = own.servers
    servers |= {id: own_server(id) for id in internal}
    upstreams = {
        id: _carried(server, before) or upstream_of(server, link_deps, on_change, links.get(id), internal.get(id))
        for id, server in servers.items()
    }
    return Snapshot(
        config=config,
        upstreams=upstreams,
        catalog=catalog,
        routes=build_routes(config, upstreams, tuple(policies), policy_deps, own),
        servers=servers,
        redactor=policy_deps.redactor,
        truncate=truncate.of(config, policy_deps.overflow),
        passed_on=frozenset(name for server in servers.values() for name in server.forward_headers),
    )


def _carried(server: Server, before: Snapshot | None) -> Upstream | None:
    if not before or server.id not in before.servers or not server.runs_as(before.servers[server.id]):
        return None
    return before.upstreams[server.id]


def prints(config: Config) -> Mapping[str, str]:
    """By server id, a hash of what its lists depend on, for those whose lists are worth keeping."""
    return {server.id: print_of(server) for server in config.servers if server.type != "registry"}


def build_routes(
    config: Config, upstreams: Mapping[str, Upstream], first: tuple[Policy, ...], policy_deps: PolicyDeps, own: OwnWork
) -> Mapping[str, Route]:
    """What is served at each path. A server's own goes by its id, its configured name and the name in snake_case."""
    policies = first + chain.build(config, policy_deps)
    of_own = first + chain.build(config, policy_deps, changes=Changes(config, policy_deps.access, own.workspace.codex))
    transparent = first + chain.build(config, policy_deps, is_transparent=True)
    toolsets = surfaces.toolset_surfaces(config, own.workspace.internal, own.offers(config))
    routes = {
        f"/mcp/{name}": Route(f"/mcp/{name}", each, upstreams, policies, of_own) for name, each in toolsets.items()
    }
    routes["/mcp"] = Route("/mcp", toolsets[config.surface], upstreams, policies, of_own)
    for id, upstream in upstreams.items():
        route = Route(
            f"/mcp/servers/{id}", Single(id), {id: upstream}, transparent, is_strict=True, is_transparent=True
        )
        for spelling in (upstream.name, id.replace("-", "_"), id):
            routes[f"/mcp/servers/{spelling}"] = route
    for name, patterns in config.bundles.items():
        shown = {id: upstreams[id] for id in bundle.servers(patterns, upstreams)}
        path = bundle.PATH + name
        routes[path] = Route(path, toolsets[f"bundles/{name}"], shown, policies, of_own)
    return routes
