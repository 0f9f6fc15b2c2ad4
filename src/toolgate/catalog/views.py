"""What one client may see of the catalog: a view, which is filtered before anything else looks at it.

The rule this file keeps: what works on a view (a surface, search, a control tool) needs to know nothing of
permissions. The part of a list that is permitted is made once for all clients who have the same rules; where that is
all of it, it is that very list, so that nothing is kept twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from toolgate.auth.access import Rules
from toolgate.catalog.base import ServerList
from toolgate.catalog.permitted import permitted
from toolgate.core import names
from toolgate.core.fault import Fault
from toolgate.core.model import Hints

Wanted = tuple[str, str]  # (server id, kind of list)


class CatalogView:
    """A `View` for one client. `pending` holds what did not come in time, and is still being fetched; `remembered` are
    lists that are not good any more, but may be again."""

    made: Mapping[str, bool] = {}
    _held: Mapping[Wanted, ServerList] = {}

    def __init__(
        self,
        servers: Mapping[str, str],
        server_lists: Callable[[str, str], ServerList | None],
        faults: Mapping[Wanted, Fault],
        pending: Iterable[Wanted],
        activated: Collection[str] = (),
        remembered: Callable[[str, str], ServerList | None] | None = None,
    ) -> None:
        self.servers = self.all_servers = servers
        self.remembered = remembered or server_lists
        self.activated = activated
        self.pending = frozenset(pending)
        self._server_lists = server_lists
        self._faults = faults

    def server_list(self, server: str, kind: str) -> ServerList | None:
        return self._held.get((server, kind)) or self._server_lists(server, kind)

    def hold(self, kind: str, servers: Collection[str]) -> Mapping[str, ServerList]:
        """These lists, which stay in the view as they are now, whatever changes; those that are there."""
        self._held = {(server, kind): each for server in servers if (each := self.server_list(server, kind))}
        return {server: each for (server, _), each in self._held.items()}

    def fault(self, server: str, kind: str) -> Fault | None:
        found = self._faults.get((server, kind))
        return found and found.told()

    def fault_for_others(self, server: str, kind: str) -> Fault | None:
        """The same for who may not read the server's stderr."""
        found = self._faults.get((server, kind))
        if found and found.words:
            found = found.at("", "")
            found.words = None
        return found

    def permits(self, kind: str, name: str, hints: Hints) -> bool:
        return True

    def for_whom(self, rules: Rules | None) -> CatalogView:
        """What a client sees of it; None: all."""
        return self if rules is None else PermittedView(self, rules)

    def with_held(self) -> CatalogView:
        """The same view, but what is in quarantine stands in it."""

        def server_list(server: str, kind: str) -> ServerList | None:
            found = self.server_list(server, kind)
            return (found and found.whole) or found

        return CatalogView(self.servers, server_list, self._faults, self.pending, self.activated, self.remembered)


class PermittedView(CatalogView):
    """The part of a view that the rules of its client permit."""

    def __init__(self, whole: CatalogView, rules: Rules) -> None:
        self.servers = rules.servers(whole.servers)
        self.all_servers, self.remembered = whole.all_servers, whole.remembered
        self.activated = whole.activated
        self.pending = whole.pending

        def server_list(server: str, kind: str) -> ServerList | None:
            found = whole.server_list(server, kind)
            return found and permitted(found, server, kind, rules)

        self._server_lists = server_list  # no method: what holds itself is let go of late
        self._view = whole
        self._rules = rules

    def fault(self, server: str, kind: str) -> Fault | None:
        return (self._view.fault if self._rules.has_whole(server) else self._view.fault_for_others)(server, kind)

    def permits(self, kind: str, name: str, hints: Hints) -> bool:
        return self._rules.verdict(names.OWN, kind, name, hints) != "off"

    def with_held(self) -> CatalogView:
        return self._view.with_held().for_whom(self._rules)
