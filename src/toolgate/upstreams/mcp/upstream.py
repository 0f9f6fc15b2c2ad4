"""A server that speaks MCP: its berths by scope, each with a connection that is opened when needed, again when lost.

The rule this file keeps: nothing that a client can make many of is kept without bound.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.complaints import Complaints
from toolgate.core.mcp import Era
from toolgate.core.model import Call, Client, Event, EventSink, Fault, Made, Outcome
from toolgate.core.redaction import excerpt
from toolgate.eras import mirrors
from toolgate.upstreams.base import About, Items, State, Status
from toolgate.upstreams.breaker import Breakers
from toolgate.upstreams.links import Ground, MakeLink
from toolgate.upstreams.mcp.berth import Berth, Terms
from toolgate.upstreams.mcp.connection import Connection
from toolgate.upstreams.mcp.speaking import Speaking
from toolgate.upstreams.stopping import stopped

log = logging.getLogger(__name__)

MOST_AWAY = 256  # scopes without a connection that are remembered, to be compared when their clients are back

# A server with several berths is shown as the most lively of them; among equals, as the one that changed last.
_LIVELINESS: Mapping[State, int] = {"configured": 0, "stopped": 1, "failed": 1, "starting": 2, "ready": 3, "busy": 4}


Place: TypeAlias = tuple[str, Era | None]
"""A scope, and the era of its second berth; None for the first."""

Found = TypeVar("Found")
Work: TypeAlias = Callable[[Connection], Awaitable[Found]]


class McpUpstream:
    """An `Upstream` that speaks MCP over a link. `make_link` makes one, `on_event` hears what is said unasked."""

    def __init__(self, server: Server, make_link: MakeLink, ground: Ground, on_event: EventSink) -> None:
        self.id = server.id
        self.name = server.name
        self._server = server = _own(server)
        self._clock = ground.clock
        self._complaints = ground.complaints or Complaints(ground.clock)
        self._on_event = on_event
        self._speaking = Speaking(server, ground.eras)
        self._terms = Terms(
            server,
            self._speaking,
            ground,
            make_link,
            self.invoke,
            on_event,
            self._found_out,
            self._opened,
            self._rested,
        )
        self._berths: dict[Place, Berth] = {}  # the latest opened last
        self._breakers = Breakers(server.name, ground.clock)
        self._latest: Berth | None = None  # that did not start, and is kept for its reason only
        self._unused = Status()  # where there is no berth
        self._rest = asyncio.Event()  # set each time that a berth comes to rest
        self._is_over = False

    def __repr__(self) -> str:
        return f"<McpUpstream {self.id} {list(self._berths.values())}>"

    def scope(self, client: Client) -> str:
        server = self._server
        if server.scope == "shared":
            return ""
        if server.scope == "principal":
            return f"{client.principal.id}/"
        theirs = f"{client.principal.id}/{client.session}/"
        if self._speaking.hears_each_time(client):
            return theirs
        told = jsonrpc.canonical(asks.relayed_capabilities(client.capabilities))
        return theirs + hashlib.sha256(told).hexdigest()[:8]

    @property
    def calls(self) -> int:
        return sum(berth.calls for berth in self._berths.values())

    def status(self) -> Status:
        shown = [*self._berths.values(), *([self._latest] if self._latest else [])]
        if not shown:
            return self._unused
        found = max(shown, key=lambda berth: (_LIVELINESS[berth.state], berth.condition.since)).status()
        return msgspec.structs.replace(found, calls=self.calls)

    def is_up(self, client: Client) -> bool:
        berth = self._found(client)
        return berth is not None and berth.live is not None

    async def open(self) -> None:
        try:
            await self._use(Client(), _nothing)
        except Fault:
            pass  # it stands in the status, and in the log

    async def about(self, client: Client) -> About:
        if self._place(client).known is None:
            await self._use(client, _nothing)
        return self._place(client).about or About()

    async def list(self, kind: str, client: Client) -> Items:
        try:
            return await self._list(mcp.LIST_OF_KIND[kind], client)
        except Fault as fault:
            if fault.upstream and fault.upstream.code == jsonrpc.METHOD_NOT_FOUND:
                return Items()
            if fault.code != "SESSION_ERROR":
                raise
            return await self._list(mcp.LIST_OF_KIND[kind], client)  # the connection had ended; now there is another

    async def _list(self, method: str, client: Client) -> Items:
        async def read(connection: Connection) -> Items:
            if mcp.LISTS[method].capability not in connection.dialect.capabilities:
                return Items()
            found = await connection.list(method, client)
            if method == "tools/list" and self._server.type == "http" and connection.dialect.mirrors_arguments:
                return msgspec.structs.replace(
                    found, raw=tuple(tool for tool in found.raw if self._can_be_called(tool))
                )
            return found

        known = self._place(client).known
        if known and mcp.LISTS[method].capability not in known.capabilities:
            return Items()
        return await self._use(client, read)

    def _can_be_called(self, tool: Raw) -> bool:
        """Tools whose annotations break the rules are left out (streamable-http, "Schema Extension")."""
        try:
            mirrors.of_tool(tool)
        except mirrors.Invalid as why:
            if self._complaints.takes(self.id):
                log.warning("%s: a tool is left out: %s: %r", self.name, why, excerpt(bytes(tool)))
            return False
        return True

    async def invoke(self, call: Call) -> Outcome:
        berth = self._place(call.client)
        if berth.era is not None and not berth.beside:  # as nearly always: see `_use`
            return await berth.use(call.client, lambda connection: connection.invoke(call), is_call=True)
        return await self._use(call.client, lambda connection: connection.invoke(call), is_call=True)

    async def tasks(self, client: Client) -> Mapping[str, tuple[Raw, Made]]:
        berth = self._found(client)
        if not berth or not berth.book.of(client.principal.id):
            return {}
        return await berth.use(client, lambda connection: connection.tasks_of(client.principal.id))

    async def watch(self, uri: str, client: Client, kind: str = "resources") -> None:
        if self._place(client).era is None:
            await self._use(client, _nothing)
        await self._place(client).watching.begin((kind, uri), client)

    def unwatch(self, uri: str, client: Client, kind: str = "resources") -> None:
        berth = self._found(client)
        if berth and not berth.watching.wanted.watched[kind, uri]:  # then, it was not known yet that there are two
            berth = self._berths.get((self.scope(client), None))
        if berth:  # else all that was held for this client has ended
            berth.watching.end((kind, uri))

    async def set_level(self, level: str, client: Client) -> None:
        live = self._live(client)  # one that is opened later hears the level with its first call
        if live and live.hearing and live.wanted.raise_level(level):
            await live.hearing.set_level(level)

    async def roots_changed(self, client: Client) -> None:
        live = self._live(client)
        if live and self._server.scope == "session":
            await live.roots_changed()

    async def leave(self, client: Client) -> None:
        if self._server.scope != "session" or not client.session:
            return
        theirs = f"{client.principal.id}/{client.session}/"  # whatever the client could do when each was opened
        for place, berth in [each for each in self._berths.items() if each[0][0].startswith(theirs)]:
            await berth.close()
            self._forget(place)

    async def stop(self) -> None:
        await asyncio.gather(*(berth.stop() for berth in self._berths.values()))
        self._breakers.reset()
        self._latest, self._unused = None, Status("stopped", stopped_by="close")

    async def drain(self, seconds: float) -> None:
        try:
            async with self._clock.timeout(seconds):
                while any(berth.is_at_work for berth in self._berths.values()):
                    self._rest.clear()
                    await self._rest.wait()
        except TimeoutError:
            log.info("%s is closed with %d calls under way", self.name, self.calls)
        await self.close()

    async def close(self) -> None:
        self._is_over = True
        await asyncio.gather(*(berth.close() for berth in self._berths.values()))
        await self.stop()

    # Berths.

    async def _use(self, client: Client, work: Work[Found], is_call: bool = False) -> Found:
        """Do something with the connection that is for this client, in its era. Raises `Fault`."""
        berth = self._place(client)
        if berth.beside:
            try:
                return await berth.use(client, work, is_call)
            except Fault:
                if not berth.is_refused:
                    raise
            return await self._use(client, work, is_call)
        if berth.era is not None:  # it stays as it is when it is opened again, unless the server has changed
            return await berth.use(client, work, is_call)

        async def in_its_era(connection: Connection) -> Found:
            if not self._speaking.suits(client, berth.era):  # it was opened for a client of the other
                raise _Other
            return await work(connection)

        try:
            return await berth.use(client, in_its_era, is_call)
        except _Other:
            return await self._use(client, work, is_call)

    def _place(self, client: Client) -> Berth:
        """Where this client's connection is, or will be, as far as is known of the server. Raises `Fault` where all is
        over."""
        if self._is_over:
            raise stopped(self.id, self.name, "not_sent")
        scope = self.scope(client)
        first = self._berths.get((scope, None))
        if not first:
            first = self._berths[scope, None] = Berth(self._terms, scope, self._breakers.of(scope))
        if self._speaking.suits(client, first.era):
            return first
        place = (first.scope, client.era)
        second = self._berths.get(place)
        if second and second.is_refused:
            self._speaking.found(mcp.other_era(second.beside or "modern"), refused=True)
            self._drop(second)
            return first
        if not second:
            second = self._berths[place] = Berth(self._terms, first.scope, first.breaker, client.era)
            first.has_other = second.has_other = True
        return second

    def _found(self, client: Client) -> Berth | None:
        """Where this client's connection is, if there is anything."""
        scope = self.scope(client)
        first = self._berths.get((scope, None))
        if first and first.has_other and not self._speaking.suits(client, first.era):
            return self._berths.get((scope, client.era), first)
        return first

    def _live(self, client: Client) -> Connection | None:
        berth = self._found(client)
        return berth.live if berth else None

    def _found_out(self, berth: Berth, client: Client) -> None:
        """A berth is about to be up: if its server hears only once what a client can do, it is for that alone."""
        scope = self.scope(client)
        if scope != berth.scope and not berth.beside and (scope, None) not in self._berths:
            self._berths.pop((berth.scope, None), None)
            berth.scope = scope
            self._berths[scope, None] = berth

    def _opened(self, berth: Berth) -> None:
        if self._berths.pop(_place_of(berth), None):
            self._berths[_place_of(berth)] = berth
        self._forget_the_longest_away()

    def _forget_the_longest_away(self) -> None:
        """A client can have many scopes: one for each session, and each set of capabilities that it declares there."""
        away = [place for place, berth in self._berths.items() if berth.is_away]
        for place in away[:-MOST_AWAY]:
            self._forget(place)

    def _rested(self, berth: Berth) -> None:
        self._rest.set()
        if berth.scope and berth.is_blank and not berth.beside and self._berths.get(_place_of(berth)) is berth:
            if berth.condition.fault:
                self._latest = berth
            self._drop(berth)

    def _forget(self, place: Place) -> None:
        if berth := self._berths.get(place):
            self._drop(berth)
        if (place[0], None) not in self._berths:
            self._on_event(Event(self.id, "scope_ended", place[0]))

    def _drop(self, berth: Berth) -> None:
        del self._berths[_place_of(berth)]
        if not berth.beside:
            self._breakers.keep(berth.scope, berth.breaker)
        for there in self._berths.values():
            if there.scope == berth.scope:
                there.has_other = False


def _own(server: Server) -> Server:
    """Where each principal signs in for itself, none uses the connection of another."""
    if (
        server.auth
        and server.auth.grant == "authorization_code"
        and not server.auth.shared
        and server.scope == "shared"
    ):
        return msgspec.structs.replace(server, scope="principal")
    return server


def _place_of(berth: Berth) -> Place:
    return berth.scope, berth.beside


class _Other(Exception):
    """A connection is in another era than its client, and the server may speak that, too."""


async def _nothing(_connection: Connection) -> None:
    """That it is open is all that is wanted."""
