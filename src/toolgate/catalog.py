"""What all upstreams offer: one shelf for each list of each server, kept raw, fetched when first needed.

The rules this file keeps: a shelf is fetched once however many wait for it; one server's failure or slowness is
data beside the others' items; a failed list is never kept; clients hear of a change only where there is one. What is
kept, compared and given out are lists as they are shown; `Shelf.own` is what the server itself has said.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from toolgate import overlays
from toolgate.model import Client, Event, EventSink, Fault
from toolgate.overlays import Overlays
from toolgate.ports import Clock, Shelf, Upstream
from toolgate.wire import jsonrpc, mcp

log = logging.getLogger(__name__)

Wanted = tuple[str, str]  # (server id, kind of list)
Place = tuple[str, str, str]  # server id, scope, kind

DEBOUNCE = 0.05  # seconds in which a server may change a list several times before it is looked at again
MOST_WARNINGS = 100  # of one server; what a server lists may change without end
LONGEST_DEBOUNCE = 30.0  # the same for one that says so again and again though nothing has changed

_KEY_OF_KIND = {method.kind: method.key for method in mcp.LISTS.values()}


class CatalogView:
    """A `View` for one client. `pending` holds what did not come in time, and is still being fetched."""

    def __init__(
        self,
        servers: Sequence[str],
        shelves: Callable[[str, str], Shelf | None],
        faults: Mapping[Wanted, Fault],
        pending: Iterable[Wanted],
        activated: Collection[str] = (),
    ) -> None:
        self.servers = servers
        self.activated = activated
        self.shelf = shelves
        self.pending = frozenset(pending)
        self._faults = faults

    def fault(self, server: str, kind: str) -> Fault | None:
        return self._faults.get((server, kind))


class Catalog:
    """`ttl` in seconds is a backstop for servers that give none; they say themselves when a list has changed. `tell`
    lets clients know."""

    def __init__(self, upstreams: Mapping[str, Upstream], clock: Clock, ttl: float, tell: EventSink) -> None:
        self._upstreams = upstreams
        self._clock = clock
        self._ttl = ttl
        self._tell = tell
        self.overlays: Mapping[str, Overlays] = {}
        self._warned: dict[str, set[str]] = {}  # by server: of what overlays say in vain
        self._shelves: dict[Place, Shelf] = {}
        self._fetching: dict[Place, asyncio.Task[Shelf]] = {}
        self._changed: set[Place] = set()  # while they were being fetched
        # What changed lists were until they are looked at again, by server and scope, then by kind.
        self._before: dict[tuple[str, str], dict[str, list[tuple[str, Raw]] | None]] = {}
        self._readers: dict[tuple[str, str], Client] = {}  # by server and scope: on whose behalf to look again
        self._looking: set[asyncio.Task[None]] = set()
        # How often in a row servers have said in vain that lists changed, and when last, by server and scope.
        self._vain: dict[tuple[str, str], tuple[int, float]] = {}

    def show(self, changes: Mapping[str, Overlays]) -> None:
        """What operators change of servers' tools, by server id. Clients hear of the lists that are others by it."""
        self.overlays = changes
        for place, shelf in list(self._shelves.items()):
            shown = self._shelves[place] = self._shown(place, shelf)
            if list(shown.items.items()) != list(shelf.items.items()):
                self._tell(Event(place[0], "list_changed", place[1], (place[2],)))

    def _shown(self, place: Place, shelf: Shelf) -> Shelf:
        server, _, kind = place
        if kind != "tools":
            return shelf
        shown = overlays.apply(shelf, self.overlays.get(server, {}))
        warned = self._warned.setdefault(server, set())
        for warning in shown.warnings:
            if warning not in warned and len(warned) < MOST_WARNINGS:
                log.warning("Overlays of the tools of %s: %.500s", server, warning)
                warned.add(warning)
        return shown

    def known(self, server: str, kind: str, client: Client) -> Shelf | None:
        """The shelf as it is in memory, whatever its age."""
        return self._shelves.get((server, self._upstreams[server].scope(client), kind))

    async def view(
        self,
        servers: Sequence[str],
        wanted: Sequence[Wanted],
        client: Client,
        patience: float | None = None,
        activated: Collection[str] = (),
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
                    fetch.add_done_callback(functools.partial(self._announce, self._place(item, client)))
                elif fetch.cancelled():
                    faults[item] = Fault("SESSION_ERROR", f"{item[0]} is no longer asked", reach="not_sent")
                elif error := fetch.exception():
                    faults[item] = error if isinstance(error, Fault) else Fault("SERVER_FAILED", str(error))
                else:
                    fetched[item] = fetch.result()

        def shelf(server: str, kind: str) -> Shelf | None:
            return fetched.get((server, kind)) or self.known(server, kind, client)

        return CatalogView(servers, shelf, faults, pending, activated)

    def changed(self, server: str, scope: str, kinds: Iterable[str]) -> None:
        """A server says that these lists are no longer what they were. Soon they are looked at again, once."""
        before = self._before.get((server, scope))
        if before is None:
            before = self._before[server, scope] = {}
            pause = min(DEBOUNCE * 2 ** self._in_vain(server, scope), LONGEST_DEBOUNCE)
            self._clock.call_later(pause, functools.partial(self._look_again, server, scope))
        for kind in kinds:
            place = (server, scope, kind)
            shelf = self._shelves.pop(place, None)
            if place in self._fetching:
                self._changed.add(place)
            before.setdefault(kind, list(shelf.items.items()) if shelf else None)

    def _look_again(self, server: str, scope: str) -> None:
        look = asyncio.get_running_loop().create_task(self._compare(server, scope), name=f"look again {server}")
        self._looking.add(look)
        look.add_done_callback(self._looking.discard)

    async def _compare(self, server: str, scope: str) -> None:
        """Tell of the lists that are not what they were."""
        before = self._before.pop((server, scope))
        changed = [kind for kind, items in before.items() if await self._is_other((server, scope, kind), items)]
        if changed:
            self._vain.pop((server, scope), None)
            self._tell(Event(server, "list_changed", scope, tuple(changed)))
        else:
            self._vain[server, scope] = min(self._in_vain(server, scope) + 1, 10), self._clock.now()

    def _in_vain(self, server: str, scope: str) -> int:
        """A server may say that its lists have changed each time that it lists them: without this that has no end."""
        times, last = self._vain.get((server, scope), (0, 0.0))
        return times if self._clock.now() - last <= 2 * LONGEST_DEBOUNCE else 0

    async def _is_other(self, place: Place, before: list[tuple[str, Raw]] | None) -> bool:
        """Whether a list differs from before. One that nobody has read, or that cannot be read now, may be anything."""
        reader = self._readers.get(place[:2])
        if before is None or not reader:
            return True
        try:
            shelf = self._shelves.get(place) or await asyncio.shield(self._fetch(place, reader))
        except Fault as fault:
            log.info("%s says that its %s have changed, but does not list them: %s", place[0], place[2], fault.message)
            return True
        return list(shelf.items.items()) != before

    def forget(self, server: str, scope: str) -> None:
        """A scope has ended: nobody will ask for its shelves again, and no fetch under way must bring it back."""
        for place in [place for place in self._shelves if place[:2] == (server, scope)]:
            del self._shelves[place]
        for place, fetch in self._fetching.items():
            if place[:2] == (server, scope):
                fetch.cancel()
        self._readers.pop((server, scope), None)
        self._vain.pop((server, scope), None)

    async def close(self) -> None:
        under_way: list[asyncio.Task[Any]] = [*self._looking, *self._fetching.values()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _place(self, wanted: Wanted, client: Client) -> Place:
        server, kind = wanted
        return server, self._upstreams[server].scope(client), kind

    def _is_fresh(self, place: Place) -> bool:
        shelf = self._shelves.get(place)
        if shelf is None:
            return False
        until = shelf.fetched + self._ttl if shelf.until is None else shelf.until
        return self._clock.now() < until

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
        now = self._clock.now()
        until = None if items.ttl is None else now + items.ttl
        self._readers[place[:2]] = client
        shelf = self._shown(place, Shelf(_keyed(items.raw, kind, server), now, until, items.is_public))
        if place not in self._changed:  # else it is out of date already, and good for this one answer only
            self._shelves[place] = shelf
        self._changed.discard(place)
        return shelf

    def _fetched(self, place: Place, done: asyncio.Task[Shelf]) -> None:
        self._fetching.pop(place, None)
        self._changed.discard(place)
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more

    def _announce(self, place: Place, done: asyncio.Task[Shelf]) -> None:
        """What was pending has come: whoever saw the list without it may look again."""
        if not done.cancelled() and not done.exception():
            self._tell(Event(place[0], "list_changed", place[1], (place[2],)))


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
