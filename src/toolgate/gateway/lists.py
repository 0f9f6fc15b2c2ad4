"""What a client is told of what there is at a path: lists, instructions and capabilities, its tasks.

The rule this file keeps: one server's failure or slowness is data beside what the others offer, and a client is told of
nothing that its permissions leave out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from toolgate.auth.access import Access, Rules
from toolgate.catalog import server_info
from toolgate.catalog.base import ServerList
from toolgate.catalog.views import CatalogView
from toolgate.core import names, surrogates
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault
from toolgate.core.listing import Listing
from toolgate.core.model import Call, Client, Done, Event, Made
from toolgate.core.redaction import Redactor
from toolgate.gateway.known_listings import Key, KnownListing, KnownListings, key_of
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy import scrub
from toolgate.policy.scopes import Scopes
from toolgate.surfaces.aggregate import exposed
from toolgate.surfaces.handles import Handles, about_made
from toolgate.surfaces.single import Single
from toolgate.upstreams.base import About, Upstream

LARGE = 256 * 1024  # bytes of a list


class Lists:
    """`activated` are the tools that a client has found and wants to see; `as_known` is a call with what its tool says
    of itself now; `current` is the snapshot that is served."""

    def __init__(
        self,
        access: Access,
        clock: Clock,
        redactor: Redactor,
        handles: Handles,
        activated: Callable[[Client], Collection[str]],
        as_known: Callable[[Call], Call],
        current: Callable[[], Snapshot],
    ) -> None:
        self._access = access
        self._clock = clock
        self._redactor = redactor
        self._handles = handles
        self._activated = activated
        self._as_known = as_known
        self._current = current
        self._known = KnownListings()
        self._introductions = server_info.Introductions()
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # principals for their tasks

    def forget(self) -> None:
        """Another configuration is served: what was shown by the old one is not shown again."""
        self._known.clear()
        self._introductions.forget()

    async def view(self, kind: str, route: Route, client: Client, hears: bool = False) -> Listing:
        """One list of everything on this route. `hears`: this client hears later of what is not there yet
        (`list_changed`), so that it need not wait long for that. Raises `Fault` only where no server at all has
        answered."""
        rules = self._access.rules(client.principal)
        route.check_let_in(rules)
        catalog, activated = self._current().catalog, tuple(self._activated(client))
        key = key_of(kind, route, client, rules, activated)
        listing = self._known.find(key, route, catalog.version, self._clock.now())
        if not listing:
            listing = await self._looked_up(key, kind, route, client, rules, hears)
        if kind == "tools":
            catalog.loaded.listed(client, listing.items)
        return listing

    async def _looked_up(
        self, key: Key, kind: str, route: Route, client: Client, rules: Rules | None, hears: bool
    ) -> Listing:
        shown = route.surface.shown(kind, route.seen_by(rules))
        wanted = [(server, kind) for server in shown]
        snapshot = self._current()
        catalog, version = snapshot.catalog, snapshot.catalog.version
        first = snapshot.config.catalog.first_wait if hears else None
        view = await catalog.view(
            route.servers, wanted, client, snapshot.list_timeout, self._activated(client), rules, first=first
        )
        failures = [
            (route.upstreams[server].name, self._told(server, fault))
            for server in shown
            if (fault := view.fault(server, kind))
        ]
        server_lists = [server_list for server in shown if (server_list := view.server_list(server, kind))]
        if failures and len(failures) == len(shown) and not server_lists:
            raise _all_failed(kind, failures)
        shown_before = self._known.made_of(key, route, server_lists)
        if shown_before:
            items, joined, digests = shown_before.items, shown_before.joined, shown_before.digests
        else:
            items, joined, digests = await self._shown(kind, route, shown, view, server_lists), None, bytearray()
        pending = tuple(route.upstreams[server].name for server, _ in wanted if (server, kind) in view.pending)
        is_whole = not failures and not pending and len(server_lists) == len(shown)
        now = self._clock.now()
        fresh_until = min((server_list.until or 0.0 for server_list in server_lists), default=0.0)
        listing = Listing(
            kind,
            items,
            (*failures, *((server, self._redactor.text(why)) for server, why in route.surface.faults(kind, view))),
            pending,
            ttl=max(0.0, fresh_until - now) if is_whole else 0.0,
            is_public=is_whole
            and self.is_same_for_all(route)
            and all(server_list.is_public for server_list in server_lists),
            joined=joined,
            digests=digests,
        )
        holds = is_whole and not listing.failures and version == catalog.version
        until = catalog.held_until(wanted, client) if holds else 0.0
        return self._known.keep(key, KnownListing(route, listing, tuple(server_lists), version, until, fresh_until))

    async def _shown(
        self, kind: str, route: Route, shown: Collection[str], view: CatalogView, server_lists: Sequence[ServerList]
    ) -> tuple[Raw, ...]:
        if not isinstance(route.surface, Single) and any(each.size > LARGE for each in server_lists):
            for server, server_list in view.hold(kind, shown).items():  # a list gets this surface's names once
                await asyncio.to_thread(exposed, server, kind, server_list)
        return tuple(route.surface.list(kind, view))

    def is_same_for_all(self, route: Route) -> bool:
        """Whether an answer at this path cannot depend on who asks: nobody is known, and no server there is told."""
        snapshot = self._current()
        servers = [snapshot.servers[id] for id in route.servers if id in snapshot.servers]
        return snapshot.config.is_open and all(
            server.scope == "shared" and not server.forward_headers for server in servers
        )

    async def about(self, route: Route, client: Client) -> About:
        """What a client is told of a route at first. Of several servers that is what the gateway serves, with the
        instructions of those that are known or soon up; nobody is waited for longer, and those whose tools nobody knows
        are asked for them meanwhile. At a server's own path that server says it, within `catalog.list_timeout`."""
        route.check_let_in(self._access.rules(client.principal))
        served, catalog = route.surface.about(), self._current().catalog
        if served and served.instructions:
            return served
        servers = {server.id: server.name for server in self.upstreams(route, client)}
        patience = server_info.PATIENCE if served else self._current().list_timeout
        said = await catalog.introduced(servers, client, patience)
        known, whose = self._introductions, client.principal.counted_as
        told = {
            servers[id]: await known.of(id, about, self._redactor.of(id), whose) for id, about in said.items() if about
        }
        if not served:
            return server_info.alone(next((each.about for each in told.values()), None))
        return server_info.merged(served, told, len(servers) > 1)

    def upstreams(self, route: Route, client: Client) -> Sequence[Upstream]:
        """Those that may tell of themselves: not the gateway's own."""
        seen = route.seen_by(self._access.rules(client.principal))
        return [route.upstreams[id] for id in seen if id not in names.INTERNAL or route.is_strict]

    def told(self, route: Route, client: Client) -> Sequence[Upstream]:
        """Those that hear what a client tells of itself: the gateway's own too, whatever is shown at its path."""
        served = self._current().upstreams
        own = [served[id] for id in names.INTERNAL if id in served]
        return [*(each for each in self.upstreams(route, client) if each not in own), *own]

    async def tasks(self, route: Route, client: Client) -> Listing:
        """The tasks that this principal has made, of all servers on this route. However often it asks, one list of them
        is made at a time: each asks servers a thousand times, and keeps what they say."""
        async with self._asking.setdefault(client.principal.counted_as, asyncio.Lock()):
            route = self._current().route(route.path)  # it may have waited for long
            route.check_let_in(self._access.rules(client.principal))
            return await self._tasks(route, client)

    async def _tasks(self, route: Route, client: Client) -> Listing:
        servers = self.upstreams(route, client)
        async with asyncio.TaskGroup() as together:
            asked = [together.create_task(_or_fault(server.tasks(client))) for server in servers]
        answers = [(server, each.result()) for server, each in zip(servers, asked, strict=True)]
        items = [
            self._listed(raw, server, id, made, route, client)
            for server, answer in answers
            if not isinstance(answer, Fault)
            for id, (raw, made) in answer.items()
            if self._may_know(server.id, made, route, client)
        ]
        failures = [
            (server.name, self._told(server.id, answer)) for server, answer in answers if isinstance(answer, Fault)
        ]
        return Listing("tasks", tuple(items), tuple(failures))

    def _told(self, server: str, fault: Fault) -> str:
        """Why a server's part of a list is not there, as every client can read it: others' items stand beside it."""
        return surrogates.shown(self._redactor.of(server).text(fault.message))

    def told_of_task(self, event: Event, made: Made, route: Route, client: Client) -> bytes:
        """The parameters of a notification on a task, in this client's names; empty where it may no more use what has
        made the task."""
        if not self._may_know(event.server, made, route, client):
            return b""
        event = msgspec.structs.replace(event, params=self._of_task(event.params, event.server, route))
        return self._handles.shown(event, made, route.path, client, route.surface)

    def _listed(self, said: Raw, server: Upstream, id: str, made: Made, route: Route, client: Client) -> Raw:
        known_as = self._handles.write(server.id, id, made, route.path, client, server.print)
        return Raw(self._handles.listed(self._of_task(said, server.id, route), server.id, known_as, route.surface))

    def _of_task(self, said: Raw, server: str, route: Route) -> Raw:
        """What a server says of a task, without secrets and what is the gateway's to say."""
        told = Done(said) if route.is_transparent else scrub.unsigned(Done(said), is_of_task=True)
        return self._current().scrubber(server, route).raw(Raw(told.body))

    def _may_know(self, server: str, made: Made, route: Route, client: Client) -> bool:
        """Whether a client may still use what has made a task of its own, with the scopes that it has shown."""
        about = self._as_known(about_made(server, made, client))
        step_ups = (each for each in route.policies if isinstance(each, Scopes))
        return self._access.judge(about) != "off" and all(each.lets_know(about) for each in step_ups)


Answered = TypeVar("Answered")


async def _or_fault(answer: Awaitable[Answered]) -> Answered | Fault:
    """What one of several says, so that its failure does not end the others."""
    try:
        return await answer
    except Fault as fault:
        return fault


def _all_failed(kind: str, failures: Sequence[tuple[str, str]]) -> Fault:
    shown = "; ".join(f"{server}: {why}" for server, why in failures)
    extra = {"failures": [{"server_id": server, "error": why} for server, why in failures]}
    return Fault("SERVER_FAILED", f"No server could list its {kind}: {shown}", extra=extra)
