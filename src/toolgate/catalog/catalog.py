"""What all upstreams offer: one list for each list of each server, kept raw, fetched when first needed.

The rules this file keeps: a list is fetched once however many wait for it; one server's failure or slowness is data
beside the others' items; a failed list is never kept; clients hear of a change only where there is one. And what was
known once is known: a server that is not up is not started because its list is old, and a list that cannot be had anew
is shown as it was for a while (`grace`), with the fault beside it. What is compared and given out are lists as they are
shown; `ServerList.own` is what the server itself has said, and that is what the store keeps. It keeps, too, why a list
could not be had: after a restart the first merged list shows that at once, of a server that was repaired meanwhile the
old fault, and clients hear when its list is there.

What holds, by how the server is now, of a list that its server has not taken back (then it is asked for again):

| the server is | in its time | past its time |
|---|---|---|
| up | holds; one from before it was started is asked for again | is asked for again |
| failed | holds | is asked for again, which starts the server; beside other servers' lists nobody waits for that |
| not started, starting or stopped | holds | holds |

When a server comes up, whatever for, its lists are looked at again (`opened`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.auth.access import Rules
from toolgate.catalog import overlays
from toolgate.catalog.base import ServerList
from toolgate.catalog.cache import CatalogCache, Place
from toolgate.catalog.loaded import LoadedTools
from toolgate.catalog.overlays import Overlays
from toolgate.catalog.permitted import is_long, permitted
from toolgate.catalog.pins import Pins, ReadTools
from toolgate.catalog.refresh import Refresh
from toolgate.catalog.reviews import Reviews
from toolgate.catalog.views import CatalogView, Wanted
from toolgate.config import CatalogLimits
from toolgate.core import crowds, jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.complaints import Complaints
from toolgate.core.events import every_list
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Event, EventSink
from toolgate.core.redaction import excerpt
from toolgate.core.steps import InSteps
from toolgate.state.base import Store
from toolgate.upstreams.base import About, Items, Upstream
from toolgate.upstreams.bounds import LITTLE, Bounds, longest_of

log = logging.getLogger(__name__)

MOST_WARNINGS = 100  # of one server; what a server lists may change without end
PACE = 4 * 1024 * 1024  # bytes a second at which a list is read again and again, at most
MOMENT = 0.001  # seconds that nobody waits for
REGAINED = 0.01  # seconds in each one, of those for which a list that comes, but slowly, may keep others waiting
AGAIN = 5.0  # seconds after which a list that failed is asked for again beside others
MOST_OF_SCOPES = 32 * 1024 * 1024  # bytes of a server's lists for clients with connections of their own, together
UP = frozenset({"ready", "busy"})
ASLEEP = frozenset({"configured", "starting", "stopped"})  # states in which nobody is asked because of age alone


class Slot:
    """One list of one server for one scope: what is known of it, and whether it is being fetched."""

    def __init__(self, server_list: ServerList | None = None) -> None:
        self.server_list = server_list
        self.lost: ServerList | None = None  # what it was, since it is not shown any more
        self.is_checked = False  # it was listed since the server was last started
        self.is_outdated = False  # the server has said that it is another now; the next look tells clients
        self.is_missed = False  # clients were shown a list without it
        self.failing: float | None = None  # since when it cannot be had anew
        self.fault: Fault | None = None  # of the last attempt
        self.ended = 0.0  # when that was over
        self.fetch: asyncio.Task[ServerList] | None = None
        self.began = 0.0  # the fetch
        self.in_vain = 0.0  # seconds that fetches have taken since one brought a list
        self.taken = 0.0  # seconds that those which brought one had taken by then: see `REGAINED`
        self.rested = 0.0  # when it may be fetched again: what is large takes as long as it is
        self.has_changed = False  # while it was being fetched


class Catalog:
    """`tell` lets clients know. `prints` says, by server id, what a server's shared lists are kept under in the store;
    those of servers without one are not kept there. `pins` say which tools are in quarantine; `scrubbed` takes secrets
    out of a list."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        clock: Clock,
        bounds: Bounds,
        tell: EventSink,
        store: Store,
        prints: Mapping[str, str],
        pins: Pins | None = None,
        scrubbed: Callable[[str, Items], Items] = lambda server, items: items,
        complaints: Complaints | None = None,
    ) -> None:
        self._scrubbed = scrubbed
        self._complaints = complaints or Complaints(clock)
        self._upstreams = upstreams
        self._pins = pins
        self._reviews = Reviews(pins, bounds, clock, self._fetching) if pins else None
        self._clock = clock
        self._bounds = bounds
        self.version = 0
        """Advances with whatever a plan may depend on (`gateway.plan`): any list, and whether it is of now."""
        self._tell = tell
        self._cache = CatalogCache(store, clock, prints)
        self._refresh = Refresh(clock)
        self.loaded = LoadedTools()
        self._loaded: set[str] = set()  # servers whose records have been read
        self._slots: dict[Place, Slot] = {}
        self._abouts: dict[str, About] = {}  # by server; of shared connections
        self.overlays: Mapping[str, Overlays] = {}
        self._warned: dict[str, set[str]] = {}  # by server: of what overlays say in vain
        self._readers: dict[tuple[str, str], Client] = {}  # by server and scope: on whose behalf to look again

    @property
    def limits(self) -> CatalogLimits:
        return self._bounds.limits

    def use(self, upstreams: Mapping[str, Upstream], prints: Mapping[str, str]) -> None:
        """Serve these from now on. What is known of servers that stay the same objects stays."""
        before, self._upstreams = self._upstreams, upstreams
        self.version += 1
        others = [id for id in {**before, **upstreams} if before.get(id) is not upstreams.get(id)]
        for id in others:
            self._drop(id)
        self._cache.prints = prints
        for id in others:
            self._tell(every_list(id))

    def look_at_pins(self) -> None:
        """Somebody has approved of tools: they are shown, and clients hear of it."""
        if self._pins:
            self._pins.read_again()
        self.show(self.overlays)

    def show(self, changes: Mapping[str, Overlays]) -> None:
        """What operators change of servers' tools, by server id. Clients hear of the lists that are others by it."""
        self.overlays = changes
        self.version += 1
        for place, slot in list(self._slots.items()):
            before = slot.server_list
            if before and self._is_long(place, before) and (place[1] or not slot.fetch):
                slot.lost, slot.server_list = before, None
                if not slot.fetch:
                    self._fetches(place, slot, self._looked_at(place, slot, before))
                continue
            slot.server_list = self._shown(place, before) if before else None
            if before and slot.server_list and _items(slot.server_list) != _items(before):
                self._tell_of(place)

    def _shown(self, place: Place, server_list: ServerList) -> ServerList:
        server, scope, kind = place
        if kind != "tools":
            return server_list
        reader = self._readers.get((server, scope))
        whose = reader.principal.counted_as if reader else ""
        held = None
        if self._pins and self._pins.holds(server):
            held = self._pins.judge(server, scope, server_list.own, whose)
        elif self._reviews:
            self._reviews.add((server, scope), server_list.own, whose)
        shown = overlays.apply(server_list, self.overlays.get(server, {}), held)
        warned = self._warned.setdefault(server, set())
        for warning in shown.warnings:
            if warning not in warned and len(warned) < MOST_WARNINGS:
                log.warning("Overlays of the tools of %s: %.500s", server, warning)
                warned.add(warning)
        return shown

    def hides(self, server: str) -> bool:
        """Whether some of a server's tools may be hidden, so that without its list nobody knows which."""
        return bool(self.overlays.get(server)) or (self._pins is not None and self._pins.holds(server))

    def is_held(self, server: str) -> bool:
        """Whether what a server changes is held back until it is approved."""
        return server in self._upstreams and self._pins is not None and self._pins.holds(server)

    def is_live(self, server: str, kind: str, client: Client, or_stopped: bool = False) -> bool:
        """Whether a list is its server's own word of now: the server is up, and was listed since it came up.
        `or_stopped`: or it was listed when it was last up, by this gateway."""
        upstream = self._upstreams.get(server)
        slot = self._slot_of(server, kind, client)
        if not upstream or not slot or not slot.server_list or not slot.is_checked or slot.is_outdated:
            return False
        return or_stopped or upstream.live_scope(client) is not None

    # What is known.

    def known(self, server: str, kind: str, client: Client) -> ServerList | None:
        """The list as it is in memory, whatever its age, unless its server has taken it back."""
        slot = self._slot_of(server, kind, client)
        return slot.server_list if slot and not slot.is_outdated else None

    def latest(self, server: str, kind: str, client: Client) -> ServerList | None:
        """The same, also where its server has taken it back and the next one is not there yet."""
        slot = self._slot_of(server, kind, client)
        return slot.server_list if slot else None

    def remembered(self, client: Client) -> Callable[[str, str], ServerList | None]:
        """What lists were last, also those that their servers have taken back, or that were lost."""

        def server_list(server: str, kind: str) -> ServerList | None:
            slot = self._slot_of(server, kind, client)
            return (slot.server_list or slot.lost) if slot else None

        return server_list

    async def view(
        self,
        servers: Mapping[str, str],
        wanted: Sequence[Wanted],
        client: Client,
        patience: float | None = None,
        activated: Collection[str] = (),
        rules: Rules | None = None,
        anew: bool = False,
        first: float | None = None,
        has_some: bool = False,
    ) -> CatalogView:
        """A view in which all `wanted` is there, failed, or pending after `patience` seconds (None: no limit). What
        has failed or is pending may be there as it was. `anew`: nothing is good as it is known. `first`: where
        anything is there by then, nobody waits for longer than so many seconds of fetching. `has_some`: something is
        there beside what is wanted."""
        faults: dict[Wanted, Fault] = {item: _gone(item[0]) for item in wanted if item[0] not in self._upstreams}
        there = [item for item in wanted if item not in faults]
        stale = [item for item in there if anew or not self._holds(self._place(item, client))]
        failed = self._still_failed(stale, client) if len({server for server, _ in wanted}) > 1 else {}
        fetches = {item: self._fetch(self._place(item, client), client) for item in stale if item not in failed}
        has_some = has_some or any(self.known(*item, client) for item in there)
        if fetches:
            await self._finish([self._place(item, client) for item in fetches], patience, first, has_some)
            await crowds.turn(client.principal.counted_as)
        found = {item: _result(item[0], fetch) for item, fetch in fetches.items()} | failed
        faults |= {item: each for item, each in found.items() if isinstance(each, Fault)}
        pending = [item for item, each in found.items() if each is None]
        server_lists = {
            item: each if isinstance(each, ServerList) else self._as_it_was(item, client)
            for item, each in found.items()
        }

        def server_list(server: str, kind: str) -> ServerList | None:
            return server_lists.get((server, kind)) or self.known(server, kind, client)

        found_view = CatalogView(servers, server_list, faults, pending, activated, self.remembered(client))
        for item in wanted if rules else ():
            await self._judge(item, server_list(*item), rules)
        return found_view.for_whom(rules)

    async def judge(self, wanted: Iterable[Wanted], client: Client, rules: Rules | None) -> bool:
        """Have these lists, as far as they are known, judged for a client: long ones in a thread. Whether any was to
        be."""
        is_any = False
        for item in wanted if rules else ():
            slot = self._slots.get(self._place(item, client)) if item[0] in self._upstreams else None
            is_any |= await self._judge(item, slot and slot.server_list, rules)
        return is_any

    async def _judge(self, item: Wanted, whole: ServerList | None, rules: Rules | None) -> bool:
        if not whole or not rules or not is_long(whole, rules):
            return False  # what is little is judged when it is looked at
        await self._bounds.looked_at(item[0], whole.size, partial(permitted, whole, *item, rules))
        return True

    def _still_failed(self, stale: Sequence[Wanted], client: Client) -> dict[Wanted, Fault]:
        """Those whose servers were not to be had: beside others nobody waits for them again. After a while they are
        asked again all the same, and clients hear of it if they are there then."""
        failed: dict[Wanted, Fault] = {}
        for item in stale:
            place = self._place(item, client)
            slot = self._slots.get(place)
            if (
                slot
                and slot.fault
                and slot.fault.code != "SIGN_IN_REQUIRED"
                and self._upstreams[item[0]].status().state not in UP
            ):
                failed[item] = slot.fault
                if self._clock.now() - slot.ended >= AGAIN:
                    self._fetch(place, client)
        return failed

    def _as_it_was(self, item: Wanted, client: Client) -> ServerList | None:
        """The last list of a list that is not there now. Where there is none, clients will want to hear of it."""
        slot = self._slot_of(*item, client)
        if slot and not slot.server_list:
            slot.is_missed = True
        return slot.server_list if slot else None

    async def about(self, server: str, client: Client) -> About:
        """What a server says of itself; of one that is not up, what it said last. Raises `Fault`."""
        upstream = self._upstreams.get(server)
        if not upstream:
            raise _gone(server)
        if upstream.scope(client):
            return await upstream.about(client)
        self._load(server)
        known = self._abouts.get(server)
        if known and upstream.status().state not in UP:
            return known
        about = await upstream.about(client)
        if self._upstreams.get(server) is upstream:
            self._abouts[server] = about
            self._cache.save_about(server, about)
        return about

    async def introduced(
        self, servers: Collection[str], client: Client, patience: float | None
    ) -> dict[str, About | None]:
        """What servers say of themselves; None for those that do not within `patience`. Where nothing is known of
        several, they are asked for their tools meanwhile: who is told of them wants those next."""
        if len(servers) > 1:
            unknown = [(id, "tools") for id in servers if not self._is_introduced(id, client)]
            there = [item for item in unknown if item[0] in self._upstreams]
            stale = [item for item in there if not self._holds(self._place(item, client))]
            failed = self._still_failed(stale, client)
            places = [self._place(item, client) for item in stale if item not in failed]
            for place in places:
                self._fetch(place, client)
            await self._finish(places, patience, None, False)
            await crowds.turn(client.principal.counted_as)
            servers = [id for id in servers if (id, "tools") not in unknown or self.known(id, "tools", client)]
        async with asyncio.TaskGroup() as together:
            asked = {id: together.create_task(self._introduced(id, client, patience)) for id in servers}
        return {id: each.result() for id, each in asked.items()}

    def _is_introduced(self, server: str, client: Client) -> bool:
        upstream = self._upstreams.get(server)
        if not upstream:
            return False
        if upstream.scope(client):
            return self.known(server, "tools", client) is not None
        self._load(server)
        return server in self._abouts

    async def _introduced(self, server: str, client: Client, patience: float | None) -> About | None:
        try:
            async with self._clock.timeout(patience):
                return await self.about(server, client)
        except TimeoutError:
            return None
        except Fault:
            return About()

    def _slot_of(self, server: str, kind: str, client: Client) -> Slot | None:
        upstream = self._upstreams.get(server)
        if not upstream:
            return None
        place = (server, upstream.scope(client), kind)
        return self._slots.get(place) or self._slot(place)

    def _slot(self, place: Place) -> Slot | None:
        slot = self._slots.get(place)
        if slot or place[1] or place[0] in self._loaded:
            return slot
        self._load(place[0])
        return self._slots.get(place)

    def _load(self, server: str) -> None:
        """Read what the store knows of a server, when it is first needed."""
        if server in self._loaded:
            return
        self._loaded.add(server)
        self.version += 1
        server_lists, faults, about = self._cache.load(server)
        for kind, fault in faults.items():
            self._slots.setdefault((server, "", kind), Slot()).fault = fault
        for kind, server_list in server_lists.items():
            self._know((server, "", kind), server_list)
        if about:
            self._abouts.setdefault(server, about)
            for kind in mcp.LIST_OF_KIND:  # what it does not have at all it need not be started for
                if not mcp.may_have(kind, about.capabilities):
                    self._slots.setdefault((server, "", kind), Slot(ServerList({}, self._clock.now())))

    def _know(self, place: Place, kept: ServerList) -> None:
        """What the store has."""
        if place in self._slots:
            return
        slot = self._slots[place] = Slot()
        if self._is_long(place, kept):
            self._fetches(place, slot, self._looked_at(place, slot, kept))
        else:
            slot.server_list = self._shown(place, kept)

    def _is_long(self, place: Place, server_list: ServerList) -> bool:
        """Whether pins, which may hold some of it back, have so much to read first that they do so in a thread."""
        server, _, kind = place
        pins = self._pins if kind == "tools" else None
        return pins is not None and pins.holds(server) and pins.unread(server, server_list.own) > LITTLE

    async def _looked_at(self, place: Place, slot: Slot, kept: ServerList) -> ServerList:
        """The list that is known, once pins have read it. Nothing of it is shown before."""
        assert self._pins
        server, before = place[0], slot.lost
        read = await self._bounds.looked_through(server, kept.size, self._pins.read(server, kept.own))
        if read:
            self._pins.was_read(server, read)
        self.version += 1
        slot.server_list, slot.lost = self._shown(place, kept), None
        if slot.is_missed or (before and _items(before) != _items(slot.server_list)):
            self._tell_of(place)
        slot.is_missed = False
        return slot.server_list

    def _holds(self, place: Place) -> bool:
        """Whether a list is good as it is: see the table above."""
        slot = self._slot(place)
        if not slot or not slot.server_list or slot.is_outdated:
            return False
        is_in_time = self._clock.now() < self._until(slot.server_list)
        if is_in_time and slot.is_checked:
            return True
        state = self._upstreams[place[0]].status().state
        return state in ASLEEP or (is_in_time and state == "failed")

    def held_until(self, wanted: Iterable[Wanted], client: Client) -> float:
        """The time to which all of these, which hold, go on to hold whatever becomes of their servers, while `version`
        stays: when one comes up, that advances it."""
        slots = [self._slots.get(self._place(item, client)) for item in wanted]
        there = [slot.server_list for slot in slots if slot and slot.server_list and not slot.is_outdated]
        return min(map(self._until, there), default=math.inf) if len(there) == len(slots) else 0.0

    def _until(self, server_list: ServerList) -> float:
        return server_list.fetched + self.limits.ttl if server_list.until is None else server_list.until

    def _place(self, wanted: Wanted, client: Client) -> Place:
        server, kind = wanted
        return server, self._upstreams[server].scope(client), kind

    # What changes.

    def changed(self, server: str, scope: str, kinds: Iterable[str]) -> None:
        """A server says that these lists are no longer what they were. Soon they are looked at again, once."""
        if server not in self._upstreams:
            return
        before = self._refresh.before((server, scope), lambda: self._compare(server, scope))
        self.version += 1
        for kind in kinds:
            slot = self._slot((server, scope, kind))
            before.setdefault(kind, _items(slot.server_list) if slot and slot.server_list else None)
            if slot:
                slot.is_outdated, slot.is_missed, slot.has_changed = True, False, bool(slot.fetch)

    def opened(self, server: str, scope: str) -> None:
        """A server is up, perhaps another than before: what is known of it is looked at again, of its lists soon."""
        if server not in self._upstreams:
            return
        if not scope:
            self._refresh.now(lambda: self._learn(server))
        places = self._places(server, scope)
        self.version += 1
        for place in places:
            self._slots[place].is_checked = False
        if places:
            self._refresh.soon(lambda: self._check(server, scope))

    def forget(self, server: str, scope: str) -> None:
        """A scope has ended: nobody will ask for its lists again, and no fetch under way must bring it back."""
        self.version += 1
        for place in self._places(server, scope):
            slot = self._slots.pop(place)
            if slot.fetch:
                slot.fetch.cancel()
        self._readers.pop((server, scope), None)
        self._refresh.forget((server, scope))

    async def close(self) -> None:
        await self._refresh.close()
        fetching = self._fetching()
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        if self._reviews:
            await self._reviews.close()
        await self._cache.close()

    def _fetching(self) -> list[asyncio.Task[ServerList]]:
        return [slot.fetch for slot in self._slots.values() if slot.fetch]

    async def reviewed(self) -> None:
        """Wait until all tools that were listed are compared with their pins."""
        if self._reviews:
            await self._reviews.done()

    def _drop(self, server: str) -> None:
        """Know nothing of a server that is gone, or is now another."""
        known = {place[:2] for place in self._slots} | self._readers.keys() | self._refresh.known_of(server)
        for _, scope in [each for each in known if each[0] == server]:
            self.forget(server, scope)
        self._cache.forget(server)
        self._loaded.discard(server)
        self._abouts.pop(server, None)
        self._warned.pop(server, None)

    def _places(self, server: str, scope: str) -> list[Place]:
        return [(server, scope, kind) for kind in mcp.LIST_OF_KIND if (server, scope, kind) in self._slots]

    async def _compare(self, server: str, scope: str) -> None:
        """Tell of the lists that are not what they were."""
        before = self._refresh.take((server, scope))
        if before is None:
            return  # this scope has ended
        changed = [kind for kind, items in before.items() if await self._is_other((server, scope, kind), items)]
        self._refresh.looked((server, scope), bool(changed))
        if changed:
            self._tell(Event(server, "list_changed", scope, tuple(changed)))

    async def _is_other(self, place: Place, before: list[tuple[str, Raw]] | None) -> bool:
        """Whether a list differs from before. One that nobody has read, or that cannot be read now, may be anything."""
        slot = self._slots.get(place)
        if slot and slot.fetch and slot.has_changed:  # what that brings may be of before
            await asyncio.wait([slot.fetch])
        reader = self._readers.get(place[:2])
        if before is None or not reader:
            return True
        slot = self._slots.get(place)
        known = slot.server_list if slot and not slot.is_outdated else None
        try:
            server_list = known or await asyncio.shield(self._fetch(place, reader))
        except Fault as fault:
            log.info("%s reported changed %s but could not list them: %s", place[0], place[2], fault.message)
            return True
        return _items(server_list) != before

    async def _learn(self, server: str) -> None:
        """Remember what it says of itself, unless it is gone again."""
        upstream = self._upstreams.get(server)
        if upstream and upstream.status().state in UP:
            try:
                await self.about(server, Client())
            except Fault as fault:
                log.info("%s is running but could not describe itself: %s", server, fault.message)

    async def _check(self, server: str, scope: str) -> None:
        """List anew what was listed before this server was started, unless it is gone again."""
        reader = self._readers.get((server, scope), None if scope else Client())
        for place in self._places(server, scope):
            upstream = self._upstreams.get(server)
            slot = self._slots.get(place)
            if not upstream or not slot or slot.is_checked or not reader or upstream.status().state not in UP:
                continue
            try:
                await asyncio.shield(self._fetch(place, reader))
            except Fault as fault:
                log.info("%s is running but could not list its %s: %s", server, place[2], fault.message)

    # Fetching.

    def _fetch(self, place: Place, client: Client) -> asyncio.Task[ServerList]:
        slot = self._slots.setdefault(place, Slot())
        return slot.fetch or self._fetches(place, slot, self._read(place, slot, client))

    def _fetches(self, place: Place, slot: Slot, work: Coroutine[Any, Any, ServerList]) -> asyncio.Task[ServerList]:
        slot.began = self._clock.now()
        slot.fetch = asyncio.get_running_loop().create_task(work, name=f"list {place}")
        slot.fetch.add_done_callback(lambda done: self._fetched(place, slot, done))
        return slot.fetch

    async def _read(self, place: Place, slot: Slot, client: Client) -> ServerList:
        server, scope, kind = place
        if (rest := slot.rested - self._clock.now()) > MOMENT:
            await self._clock.sleep(rest)
        upstream = self._upstreams.get(server)
        if not upstream:
            raise _gone(server)
        try:
            items = await upstream.list(kind, client)
            size = sum(map(len, items.raw))
            slot.rested = self._clock.now() + max(size, items.size) / PACE
            steps = self._taken(items, kind, server)
            longest = longest_of(items.raw)
            items, own, nameless, read = await self._bounds.looked_through(server, size, steps, longest)
        except Fault:
            raise
        except Exception as error:  # the rescue: one server's list must not spoil the others'
            raise Fault("SERVER_FAILED", str(error), server=server) from error
        if nameless and self._complaints.takes(server):
            shown, key = excerpt(bytes(nameless[0]), server=server), mcp.KINDS[kind].key
            log.warning(
                "%s listed items without a %s in its %s: %d, such as %r", server, key, kind, len(nameless), shown
            )
        now = self._clock.now()
        until = None if items.ttl is None else now + items.ttl
        at = upstream.scope(client)
        self._readers[server, at] = client
        if self._reviews and kind == "tools":
            await self._reviews.made_room((server, at))
        if read and self._pins:
            self._pins.was_read(server, read)
        server_list = self._shown(place, ServerList(own, now, until, items.is_public, ignored=items.ignored))
        if not slot.has_changed:  # else it is out of date already, and good for this one answer only
            if at != scope:  # which was found out on the way
                place, slot = (server, at, kind), self._slots.setdefault((server, at, kind), Slot())
            self._keep(place, slot, server_list)
        return server_list

    def _taken(
        self, items: Items, kind: str, server: str
    ) -> InSteps[tuple[Items, dict[str, Raw], list[Raw], ReadTools | None]]:
        """A list without secrets, its items by name, those without one, and what pins want to know of tools. It may go
        on in any thread. No item holds the message that it came in."""
        items = self._scrubbed(server, msgspec.structs.replace(items, raw=tuple(Raw(bytes(raw)) for raw in items.raw)))
        own, nameless = _keyed(items.raw, kind)
        yield
        read = (
            (yield from self._pins.read(server, own))
            if self._pins and kind == "tools" and self._pins.holds(server)
            else None
        )
        return items, own, nameless, read

    def _keep(self, place: Place, slot: Slot, server_list: ServerList) -> None:
        if slot.fault:
            self._cache.drop_fault(place)
        before = None if slot.is_outdated else slot.server_list or slot.lost
        self.version += 1
        is_news = slot.is_missed or (before and _items(before) != _items(server_list))
        slot.server_list, slot.is_checked, slot.failing, slot.fault = server_list, True, None, None
        slot.lost = None
        slot.is_outdated = slot.is_missed = False
        self._cache.save(place, server_list)
        if place[1]:
            self._make_room(place)
        if is_news:
            self._tell_of(place)

    def _make_room(self, place: Place) -> None:
        """Of one server's lists, which may be others for each client: those of who was listed longest ago are
        forgotten, and fetched again when somebody asks for them."""
        kept, fetched = dict[str, list[Slot]](), dict[str, float]()
        for (server, scope, _), slot in self._slots.items():
            if server == place[0] and scope and (known := slot.server_list or slot.lost):
                kept.setdefault(scope, []).append(slot)
                fetched[scope] = max(fetched.get(scope, 0.0), known.fetched)
        left = sum(_size(slot) for slots in kept.values() for slot in slots)
        for scope in sorted(fetched, key=fetched.__getitem__):
            if left > MOST_OF_SCOPES and scope != place[1]:
                left -= sum(map(_size, kept[scope]))
                if not any(self._slots[each].fetch for each in self._places(place[0], scope)):
                    self.forget(place[0], scope)
                for slot in kept[scope]:  # what is being fetched of it goes on
                    slot.server_list = slot.lost = None

    def _fetched(self, place: Place, slot: Slot, done: asyncio.Task[ServerList]) -> None:
        slot.fetch, slot.has_changed = None, False
        if not slot.server_list and place[1] and self._slots.get(place) is slot:
            del self._slots[place]  # clients with connections of their own may have any number of them
        error = None if done.cancelled() else done.exception()
        if error:
            error.__traceback__ = error.__context__ = None  # they hold what was read of the list
        now = self._clock.now()
        took, lately = now - slot.began, self._taken_lately(slot)
        slot.fault, slot.ended = (error if isinstance(error, Fault) else None), now
        if slot.fault and not slot.server_list:
            self._cache.save_fault(place, slot.fault)
        slot.in_vain = slot.in_vain + took if error else 0.0
        slot.taken = lately if error else min(lately + took, 2 * self.limits.list_timeout)
        if error and slot.server_list:
            slot.failing = self._clock.now() if slot.failing is None else slot.failing
            if self._clock.now() - slot.failing >= self.limits.grace:
                self._lose(place, slot)

    def _lose(self, place: Place, slot: Slot) -> None:
        """A list has failed for so long that it is no longer shown."""
        self.version += 1
        slot.lost, slot.server_list, slot.failing, slot.is_missed = slot.server_list, None, None, True
        self._cache.drop(place)
        self._tell_of(place)

    def _tell_of(self, place: Place) -> None:
        server, scope, kind = place
        self._tell(Event(server, "list_changed", scope, (kind,)))

    async def _finish(
        self, places: Sequence[Place], patience: float | None, first: float | None, has_some: bool
    ) -> None:
        """Wait for what is fetched: see `view`. `has_some`: something is known already. A list that has taken all of
        `list_timeout` is late until it is there: beside others it is waited for `first_wait` of each fetch, and not at
        all where it is there as it was."""
        began = self._clock.now()
        fetches, late = dict[asyncio.Task[ServerList], float](), dict[asyncio.Task[ServerList], float]()
        unknown = dict[asyncio.Task[ServerList], float]()  # of the late ones
        for slot in [self._slots[place] for place in places]:
            if slot.fetch:
                taken = slot.in_vain + self._taken_lately(slot) + began - slot.began
                is_late = patience is not None and taken >= self.limits.list_timeout
                (late if is_late else fetches)[slot.fetch] = slot.began
                if is_late and not slot.server_list:
                    unknown[slot.fetch] = slot.began
        await self._wait_until(unknown, began, patience, self.limits.first_wait)
        await self._wait_until(fetches, began, patience, first)
        awaited = [*fetches, *late]
        while not has_some and not any(map(_is_there, awaited)):
            rest = [fetch for fetch in awaited if not fetch.done()]
            left = None if patience is None else began + patience - self._clock.now()
            if not rest or (left is not None and left < MOMENT):
                break
            await self._wait(rest, left, is_one_enough=True)

    def _taken_lately(self, slot: Slot) -> float:
        """Seconds that fetches of a list have taken: a server that takes it back each time has others wait as well."""
        return max(0.0, slot.taken - REGAINED * (self._clock.now() - slot.ended))

    async def _wait_until(
        self,
        fetches: Mapping[asyncio.Task[ServerList], float],
        began: float,
        patience: float | None,
        first: float | None,
    ) -> None:
        """All of these are there, or `patience` seconds since `began` are over, or `first` since the last began."""
        ends = [] if patience is None else [began + patience]
        if first is not None:
            ends.append(max(fetches.values(), default=began) + first)
        await self._wait(fetches, min(ends) - self._clock.now() if ends else None)

    async def _wait(
        self, fetches: Iterable[asyncio.Task[ServerList]], seconds: float | None, is_one_enough: bool = False
    ) -> None:
        awaited = [fetch for fetch in fetches if not fetch.done()]
        if not awaited or (seconds is not None and seconds <= 0):
            return
        try:
            async with self._clock.timeout(seconds):
                if is_one_enough:
                    await crowds.over(*awaited)
                else:
                    for fetch in awaited:
                        await crowds.over(fetch)
        except TimeoutError:
            pass


def _is_there(fetch: asyncio.Task[ServerList]) -> bool:
    return fetch.done() and not fetch.cancelled() and not fetch.exception()


def _result(server: str, fetch: asyncio.Task[ServerList]) -> ServerList | Fault | None:
    """None: it is not there yet."""
    if not fetch.done():
        return None
    if fetch.cancelled():
        return Fault("SESSION_ERROR", f"{server} is no longer configured", reach="not_sent")
    error = fetch.exception()
    return error if isinstance(error, Fault) else fetch.result()


def unlisted() -> Fault:
    """Without its list nobody knows what a server's overlays hide (`Catalog.hides`)."""
    return Fault("SERVER_FAILED", "The server's tools are unknown, and some may be hidden", reach="not_sent")


def _gone(server: str) -> Fault:
    return Fault("SERVER_NOT_FOUND", f"Server not found: {server} is no longer configured", reach="not_sent")


def _size(slot: Slot) -> int:
    known = slot.server_list or slot.lost
    return known.size if known else 0


def _items(server_list: ServerList) -> list[tuple[str, Raw]]:
    return list(server_list.items.items())


_NAMED: Mapping[str, jsonrpc.Decoder[Any]] = {
    kind: jsonrpc.Decoder(msgspec.defstruct("_Named", [("name", str)], rename={"name": known.key}))
    for kind, known in mcp.KINDS.items()
}


def _keyed(items: Iterable[Raw], kind: str) -> tuple[dict[str, Raw], list[Raw]]:
    """The items by name, and those that have none: they are left out, and must not spoil the others."""
    found: dict[str, Raw] = {}
    nameless: list[Raw] = []
    read = _NAMED[kind].decode
    for item in items:
        try:
            found[read(item).name] = item
        except jsonrpc.UNREADABLE:
            nameless.append(item)
    return found, nameless
