"""The surface `components`: tool components under their bare names (seed 003), and all else by its namespaced name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec import Raw

from toolgate.catalog.base import ServerList, View
from toolgate.core import mcp, names
from toolgate.core.model import Call
from toolgate.surfaces import bare, controls
from toolgate.surfaces.aggregate import Aggregate, exposed
from toolgate.surfaces.bare import NOTHING_TAKEN, Taken


class Components(Aggregate):
    """`servers` are those that are components. A name that two of them have is listed by neither, and one of the
    gateway's own tools, or of another server's, by none: it would get what is meant for them. Each can be called by its
    namespaced name, under which the latter are listed."""

    def __init__(self, servers: Collection[str], hidden: Collection[str] = (), taken: Taken = NOTHING_TAKEN) -> None:
        super().__init__(hidden, taken)
        self._servers = servers
        self._of_gateway = taken.tools - frozenset(map(names.slug, controls.ALIASES))

    def shown(self, kind: str, servers: Collection[str]) -> Collection[str]:
        return (
            [server for server in servers if server in self._servers]
            if kind == "tools"
            else super().shown(kind, servers)
        )

    def list(self, kind: str, view: View) -> Iterable[Raw]:
        if kind != "tools":
            return super().list(kind, view)
        owners = Counter(name for server_list in self._remembered(view) for name in bare.known(server_list))
        return [raw for each in self._server_lists(view) for raw in self._tools(*each, owners)]

    def _tools(self, server: str, server_list: ServerList, owners: Mapping[str, int]) -> Iterable[Raw]:
        of_others = self._of_others(server_list)
        named = dict(exposed(server, "tools", server_list).values()) if of_others else {}
        for name, raw in server_list.items.items():
            if name in of_others:
                yield named[name]
            elif owners[name] == 1:
                yield raw

    def faults(self, kind: str, view: View) -> Iterable[tuple[str, str]]:
        seen: dict[str, str] = {}
        for server in view.servers if kind == "tools" else ():
            server_list = view.server_list(server, "tools") if server in self._servers else None
            if server_list is None:
                continue
            of_others = self._of_others(server_list)
            for name in server_list.items:
                if whose := of_others.get(name):
                    called = names.join_name(server, name)
                    yield server, f"{server} has a tool with the name of {whose}, {name}: it is listed as {called}"
                elif seen.setdefault(name, server) != server:
                    yield server, f"{seen[name]} and {server} both have a tool named {name}: rename one of the two"

    def claims(self, call: Call, view: View) -> bool:
        return self._is_bare(call, view) or super().claims(call, view)

    def undecided(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        if call.method != mcp.CALL or self.claims(call, view):
            return ()
        own = ((server, "tools") for server in view.servers if server in self._servers)
        return [each for each in own if view.server_list(*each) is None and not view.fault(*each)]

    def needs(self, call: Call, view: View) -> Iterable[tuple[str, str]]:
        """Components first: where one of them has the name, no other server is asked for it."""
        if super().claims(call, view) or call.method != mcp.CALL:
            return super().needs(call, view)
        if self.claims(call, view):
            return ()
        own = [(server, "tools") for server in view.servers if server in self._servers]
        return own if any(view.server_list(*each) is None for each in own) else super().needs(call, view)

    def enter(self, call: Call, view: View) -> Call:
        if call.method != mcp.CALL or super().claims(call, view):
            return super().enter(call, view)
        may_be = () if self._whose(call.target) else view.all_servers
        owners = bare.owners(call, [server for server in may_be if server in self._servers], view)
        is_only = len(owners) == len(bare.visible(call, owners, view)) == 1
        return call.at(owners[0], call.target) if is_only else super().enter(call, view)

    def _is_bare(self, call: Call, view: View) -> bool:
        if call.method != mcp.CALL or self._whose(call.target):
            return False
        return any(call.target in server_list.items for _, server_list in self._server_lists(view))

    def _remembered(self, view: View) -> Iterable[ServerList]:
        own = [server for server in view.all_servers if server in self._servers]
        return (server_list for server in own if (server_list := view.remembered(server, "tools")))

    def _server_lists(self, view: View) -> Iterable[tuple[str, ServerList]]:
        return (
            (server, server_list)
            for server in view.servers
            if server in self._servers and (server_list := view.server_list(server, "tools"))
        )

    def _of_others(self, server_list: ServerList) -> Mapping[str, str]:
        """Its names by which others are meant, and who. Looked for once for each list and configuration."""
        memo: tuple[Taken, Mapping[str, str]] | None = server_list.memo.get("of_others")
        if memo is None or memo[0] is not self._taken:
            found = {name: whose for name in server_list.items if (whose := self._whose(name))}
            memo = server_list.memo["of_others"] = (self._taken, found)
        return memo[1]

    def _whose(self, name: str) -> str:
        """Who else is meant by a name, in whatever spelling, or by how it looks; empty where nobody is."""
        if names.is_one_of(self._of_gateway, name):
            return "a tool of the gateway"
        return "a server's tools" if names.says_whose(name, self._taken.servers) else ""
