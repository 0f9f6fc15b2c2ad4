"""The surface `bundles/{name}`: some tools of several servers, under their namespaced names.

The rule this file keeps: a bundle is a view. What it lists it resolves, as `aggregate` does; what it leaves out of its
servers' tools is not listed, and can be called all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Raw

from toolgate.catalog.base import View
from toolgate.config import Config
from toolgate.core import names
from toolgate.surfaces.aggregate import Aggregate, exposed
from toolgate.surfaces.bare import NOTHING_TAKEN, Taken

PATH = "/mcp/bundles/"  # in front of a bundle's name

log = logging.getLogger(__name__)


class Bundle(Aggregate):
    """`patterns` are namespaced names, or the beginnings of some with `*` behind them."""

    def __init__(self, patterns: Sequence[str], taken: Taken = NOTHING_TAKEN) -> None:
        super().__init__(taken=taken)
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


def surfaces(config: Config, taken: Taken) -> Mapping[str, Bundle]:
    """Those that are configured, by name; with a word to the operator on patterns that match nothing."""
    for name, patterns in config.bundles.items():
        for pattern in patterns:
            if not names.meant(pattern, [server.id for server in config.servers]):
                log.warning("bundles.%s: %s matches no server's tools: begin it with SERVER__", name, pattern)
    return {name: Bundle(patterns, taken) for name, patterns in config.bundles.items()}


def servers(patterns: Sequence[str], ids: Iterable[str]) -> Sequence[str]:
    """Those that occur in a bundle, in its order."""
    known = tuple(ids)
    return tuple(dict.fromkeys(id for pattern in patterns for id in names.meant(pattern, known)))
