"""One list of one server, what one client may see, and what may be known of a server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolgate.config import Server, masking
from toolgate.core import jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.model import Hints


class Change(msgspec.Struct, frozen=True):
    """How a tool that an operator has changed leads back to its server's own. `renamed` are the server's names of
    parameters by those that callers know; `refused` is what no caller may give, as `same_parameter` spells it, but for
    `known`, the names that are listed; `defaults` and `fixed` are arguments by the server's names."""

    own: str
    renamed: Mapping[str, str] = {}
    refused: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    defaults: Mapping[str, Raw] = {}
    fixed: Mapping[str, Raw] = {}

    @property
    def touches_arguments(self) -> bool:
        return bool(self.renamed or self.refused or self.defaults or self.fixed)


class ServerList(msgspec.Struct, weakref=True):
    """One list of one server: its items by the names (or URIs) that they are shown under, raw. `until` is the time (of
    `Clock.now`) to which the server itself lets it be kept, None where it said nothing. `memo` keeps what is derived
    of it. Where overlays change a server's tools, `listed` is what it lists itself, `changes` lead back to that, by
    shown names, and `warnings` say what of the overlays is in vain. `held` are tools in quarantine, by the server's own
    names, and why; `whole` is the list as it would be shown with them, for calls that are to be refused for that.
    `ignored` says what its server listed that is left out, or cannot be used."""

    items: Mapping[str, Raw]
    fetched: float = 0.0
    until: float | None = None
    is_public: bool = False
    memo: dict[str, Any] = {}
    listed: Mapping[str, Raw] | None = None
    changes: Mapping[str, Change] = {}
    warnings: tuple[str, ...] = ()
    held: Mapping[str, str] = {}
    whole: ServerList | None = None
    ignored: tuple[str, ...] = ()

    @property
    def is_overlaid(self) -> bool:
        return self.listed is not None

    @property
    def size(self) -> int:
        """In bytes, with what is kept of it and not shown."""
        if "size" not in self.memo:
            kept = (self.items, self.own, (self.whole or self).items)
            sizes = {id(raw): len(raw) for items in kept for raw in items.values()}  # most stand in all of these
            self.memo["size"] = sum(sizes.values())
        return self.memo["size"]

    @property
    def own(self) -> Mapping[str, Raw]:
        """The items as their server lists them, by its own names."""
        return self.items if self.listed is None else self.listed


class _Everything(Mapping[str, Raw]):
    """Whatever is asked for."""

    def __getitem__(self, name: str) -> Raw:
        return jsonrpc.EMPTY_OBJECT

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def anything() -> ServerList:
    """A list that is not known, and must not be asked for: whatever is named may stand in it."""
    return ServerList(_Everything())


class View(Protocol):
    """What one client may see: the servers that its route permits, and what is known of them now."""

    @property
    def servers(self) -> Mapping[str, str]:
        """Their configured names by id, in the order of the configuration."""
        ...

    @property
    def activated(self) -> Collection[str]:
        """The tools, in the surface's names, that the client has found and wants to see."""
        ...

    @property
    def all_servers(self) -> Collection[str]:
        """Those of the route, whether or not this client may see them: for what a name must not come to mean."""
        ...

    def server_list(self, server: str, kind: str, /) -> ServerList | None:
        """One list of one server; None where it is not known."""
        ...

    def remembered(self, server: str, kind: str, /) -> ServerList | None:
        """One list of any of `all_servers`, with all that is on it, or as it was where it is not known any more."""
        ...

    @property
    def pending(self) -> Collection[tuple[str, str]]:
        """The (server, kind) that did not come in time, and are still being fetched."""
        ...

    def fault(self, server: str, kind: str, /) -> Fault | None:
        """Why it is not, where fetching it has failed."""
        ...

    @property
    def made(self) -> Mapping[str, bool]:
        """Which templates make the URI that the view is for, and which do not, as far as it was held against them."""
        ...

    def permits(self, kind: str, name: str, hints: Hints, /) -> bool:
        """Whether the client may use this of the gateway's own."""
        ...


class ServerSummary(msgspec.Struct, frozen=True):
    """What clients may know of a server's configuration. `told` is what of it may be shown to people, without
    secrets; `project` is the id of the project that it belongs to, if that is known."""

    id: str
    name: str
    type: str
    description: str
    criticality: str
    told: Mapping[str, Any] = {}
    project: str = ""


def summary(server: Server) -> ServerSummary:
    """`__rich_repr__` is what of a server's configuration may be shown."""
    told = {name: value for name, value in server.__rich_repr__() if name}
    if "args" in told:
        told["args"] = masking.arguments(server.args, server.private_args)
    return ServerSummary(
        server.id, server.name, server.type, server.description, server.criticality, told, server.project
    )
