"""The surface `bundles/{name}`: some tools of several servers, under their namespaced names.

The rule this file keeps: a bundle is a view. What it lists it resolves, as `aggregate` does; what it leaves out of its
servers' tools is not listed, and can be called all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Raw

from toolgate.catalog.base import View
from toolgate.core import names
from toolgate.surfaces.aggregate import Aggregate, exposed


class Bundle(Aggregate):
    """`patterns` are namespaced names, or the beginnings of some with `*` behind them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self._patterns = patterns

    def list(self, kind: str, view: View) -> Iterable[Raw]:
        return self._tools(view).values() if kind == "tools" else super().list(kind, view)

    def _tools(self, view: View) -> dict[str, Raw]:
        """In the order of the patterns, each tool once."""
        found: dict[str, Raw] = {}
        for pattern in self._patterns:
            for server in names.meant(pattern, view.servers):
                if server_list := view.server_list(server, "tools"):
                    for name, (own, raw) in exposed(server, "tools", server_list).items():
                        if name == pattern or names.matches(pattern, server, own):
                            found.setdefault(name, raw)
        return found


def servers(patterns: Sequence[str], ids: Iterable[str]) -> Sequence[str]:
    """Those that occur in a bundle, in its order."""
    known = tuple(ids)
    return tuple(dict.fromkeys(id for pattern in patterns for id in names.meant(pattern, known)))
