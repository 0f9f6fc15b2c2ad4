"""Which templates of resources make the URI of a call.

The rule this file keeps: any template of any server may make a URI that is written without its server's name, and
servers choose how many there are; it is held against them in a thread, in turns, where others would wait for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolgate.catalog.base import ServerList
from toolgate.catalog.catalog import Catalog
from toolgate.catalog.views import CatalogView, Wanted
from toolgate.core.concurrency import BySize
from toolgate.core.model import Call
from toolgate.core.steps import in_slices
from toolgate.gateway.snapshot import Route
from toolgate.surfaces import uris

KIND = "resourceTemplates"
FEW = 2 * 1024 * 1024  # bytes of templates times characters of a URI: to hold it against these takes 20 ms at most
SLICE = 0.05  # seconds of a turn


class Templates:
    def __init__(self, catalog: Catalog, in_turns: BySize) -> None:
        self._catalog = catalog
        self._in_turns = in_turns

    async def hold(self, call: Call, route: Route, view: CatalogView, needs: Sequence[Wanted]) -> None:
        """Have the view say which templates make the call's URI, where these are many and it `needs` them; also of
        those that come meanwhile."""
        if not any(kind == KIND for _, kind in needs):
            return
        held: dict[int, ServerList] = {}
        while True:
            fresh = {id(each): each for each in self._lists(call, route, view) if id(each) not in held}
            size = sum(each.size for each in fresh.values())
            if size * len(call.target) <= FEW:
                return
            held |= fresh
            steps = uris.made_by([each.items for each in fresh.values()], call.target)
            turns, whose = self._in_turns.of(size), call.client.principal.counted_as
            view.made = {**view.made, **await turns.in_thread(whose, in_slices(steps, SLICE))}

    def _lists(self, call: Call, route: Route, view: CatalogView) -> Iterator[ServerList]:
        """All of them by which the call is resolved."""
        for server in route.servers:
            seen = view.server_list(server, KIND) if server in view.servers else None
            remembered, known = view.remembered(server, KIND), self._catalog.known(server, KIND, call.client)
            yield from (each for each in (seen, remembered, known) if each)
