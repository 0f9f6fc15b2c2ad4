"""What all upstreams offer: one shelf for each list of each server, kept raw, fetched when first needed.

The rules this file keeps: a shelf is fetched once however many wait for it; one server's failure or slowness is
data beside the others' items; a failed list is never kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw

from toolgate.model import Client, Event, EventSink, Fault
from toolgate.ports import Clock, Shelf, Upstream
from toolgate.wire import jsonrpc, mcp

log = logging.getLogger(__name__)

Wanted = tuple[str, str]  # (server id, kind of list)
Place = tuple[str, str, str]  # server id, scope, kind

_KEY_OF_KIND = {method.kind: method.key for method in mcp.LISTS.values()}


class CatalogView:
    """A `View` for one client. `pending` holds what did not come in time, and is still being fetched."""

    def __init__(
        self,
        servers: Sequence[str],
        shelves: Callable[[str, str], Shelf | None],
        faults: Mapping[Wanted, Fault],
        pending: Iterable[Wanted],
    ) -> None:
        self.servers = servers
        self.shelf = shelves
        self.pending = frozenset(pending)
        self._faults = faults

    def fault(self, server: str, kind: str) -> Fault | None:
        return self._faults.get((server, kind))


class Catalog:
    """`ttl` in seconds is a backstop; servers say themselves when a list has changed. `tell` lets clients know."""

    def __init__(self, upstreams: Mapping[str, Upstream], clock: Clock, ttl: float, tell: EventSink) -> None:
        self._upstreams = upstreams
        self._clock = clock
        self._ttl = ttl
        self._tell = tell
        self._shelves: dict[Place, Shelf] = {}
        self._fetching: dict[Place, asyncio.Task[Shelf]] = {}
        self._changed: set[Place] = set()  # while they were being fetched

    def known(self, server: str, kind: str, client: Client) -> Shelf | None:
        """The shelf as it is in memory, whatever its age."""
        return self._shelves.get((server, self._upstreams[server].scope(client), kind))

    async def view(
        self, servers: Sequence[str], wanted: Sequence[Wanted], client: Client, patience: float | None = None
    ) -> CatalogView:
        """A view in which all `wanted` is there, failed, or pending after `patience` seconds (None: no limit)."""
        stale = [item for item in wanted if not self._is_fresh(self._place(item, client))]
        faults: dict[Wanted, Fault] = {}
        pending: list[Wanted] = []
        fetched: dict[Wanted, Shelf] = {}
        if stale:
            fetches = {item: self._fetch(self._place(item, client), client) for item in stale}
            await _finish(fetches.values(), self._clock, patience)
            for item, fetch in fetches.items():
                if not fetch.done():
                    pending.append(item)
                    fetch.add_done_callback(lambda done, item=item: self._announce(item, done))
                elif fetch.cancelled():
                    faults[item] = Fault("SESSION_ERROR", f"{item[0]} is no longer asked", reach="not_sent")
                elif error := fetch.exception():
                    faults[item] = error if isinstance(error, Fault) else Fault("SERVER_FAILED", str(error))
                else:
                    fetched[item] = fetch.result()

        def shelf(server: str, kind: str) -> Shelf | None:
            return fetched.get((server, kind)) or self.known(server, kind, client)

        return CatalogView(servers, shelf, faults, pending)

    def changed(self, server: str, kinds: Iterable[str]) -> None:
        """A server says that these lists are no longer what they were."""
        for place in [*self._shelves, *self._fetching]:
            if place[0] == server and place[2] in kinds:
                self._shelves.pop(place, None)
                if place in self._fetching:
                    self._changed.add(place)

    def forget(self, server: str, scope: str) -> None:
        """A scope has ended: nobody will ask for its shelves again, and no fetch under way must bring it back."""
        for place in [place for place in self._shelves if place[:2] == (server, scope)]:
            del self._shelves[place]
        for place, fetch in self._fetching.items():
            if place[:2] == (server, scope):
                fetch.cancel()

    async def close(self) -> None:
        fetches = list(self._fetching.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    def _place(self, wanted: Wanted, client: Client) -> Place:
        server, kind = wanted
        return server, self._upstreams[server].scope(client), kind

    def _is_fresh(self, place: Place) -> bool:
        shelf = self._shelves.get(place)
        return shelf is not None and self._clock.now() - shelf.fetched < self._ttl

    def _fetch(self, place: Place, client: Client) -> asyncio.Task[Shelf]:
        running = self._fetching.get(place)
        if not running:
            running = asyncio.get_running_loop().create_task(self._read(place, client), name=f"list {place}")
            self._fetching[place] = running
            running.add_done_callback(lambda done: self._fetched(place, done))
        return running

    async def _read(self, place: Place, client: Client) -> Shelf:
        server, _, kind = place
        items = await self._upstreams[server].list(kind, client)
        shelf = Shelf(_keyed(items, kind, server), self._clock.now())
        if place not in self._changed:  # else it is out of date already, and good for this one answer only
            self._shelves[place] = shelf
        self._changed.discard(place)
        return shelf

    def _fetched(self, place: Place, done: asyncio.Task[Shelf]) -> None:
        self._fetching.pop(place, None)
        self._changed.discard(place)
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more

    def _announce(self, wanted: Wanted, done: asyncio.Task[Shelf]) -> None:
        """What was pending has come: whoever saw the list without it may look again."""
        if not done.cancelled() and not done.exception():
            self._tell(Event(wanted[0], "list_changed", (wanted[1],)))


async def _finish(tasks: Iterable[asyncio.Task[Shelf]], clock: Clock, patience: float | None) -> None:
    try:
        async with clock.timeout(patience):
            await asyncio.wait(tasks)
    except TimeoutError:
        pass


def _keyed(items: Iterable[Raw], kind: str, server: str) -> dict[str, Raw]:
    """The items by name. One that is out of shape is left out and logged: it must not spoil the others."""
    key = _KEY_OF_KIND[kind]
    found: dict[str, Raw] = {}
    for item in items:
        try:
            name = msgspec.json.decode(jsonrpc.members(item)[key], type=str)
        except (KeyError, *jsonrpc.UNREADABLE):
            log.warning("%s lists something without %s in its %s: %.200r", server, key, kind, bytes(item)[:200])
            continue
        found[name] = item
    return found
