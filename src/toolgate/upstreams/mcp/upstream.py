"""A server that speaks MCP: its sessions by scope, each with a connection that is opened when needed, again when lost.

The rule this file keeps: nothing that a client can make many of is kept without bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.concurrency import FairLimit
from toolgate.core.exchange import Exchange, run
from toolgate.core.fairness import giving_way
from toolgate.core.fault import Fault
from toolgate.core.mcp import Era
from toolgate.core.model import Call, Client, Event, EventSink, Made, Outcome
from toolgate.upstreams.base import About, Begun, Items, Line, State, Status, Upstream, rechecked
from toolgate.upstreams.breaker import Breakers
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.upstreams.mcp.attribution import OpenRequest
from toolgate.upstreams.mcp.era_choice import EraChoice
from toolgate.upstreams.mcp.paging import read_list
from toolgate.upstreams.mcp.requests import Written
from toolgate.upstreams.mcp.upstream_session import Connection, UpstreamDeps, UpstreamSession
from toolgate.upstreams.predecessors import Predecessors
from toolgate.upstreams.stopping import stopped

log = logging.getLogger(__name__)

LOOK = 1.0  # seconds, while it drains, between looks for tasks: they end without a word
LISTED_AT_ONCE = 8  # lists, on all its connections: each may have megabytes, and is held until it has been read
MOST_AWAY = 256  # scopes without a connection that are remembered, to be compared when their clients are back

# A server with several sessions is shown as the most lively of them; among equals, as the one that changed last.
_LIVELINESS: Mapping[State, int] = {"configured": 0, "stopped": 1, "failed": 1, "starting": 2, "ready": 3, "busy": 4}


Place: TypeAlias = tuple[str, Era | None]
"""A scope, and the era of its second session; None for the first."""

Found = TypeVar("Found")
Work: TypeAlias = Callable[[Connection], Awaitable[Found]]


class McpUpstream:
    """An `Upstream` that speaks MCP over a link. `make_link` makes one, `on_event` hears what is said unasked."""

    def __init__(self, make_link: MakeLink, server: Server, link_deps: LinkDeps, on_event: EventSink) -> None:
        self.id = server.id
        self.name = server.name
        self.print = server.print
        self._server = server = _own(server)
        self._clock = link_deps.clock
        self._pool = link_deps.pool
        self._on_event = on_event
        self._eras = EraChoice(server, link_deps.eras)
        self._bounds = link_deps.bounds
        self._predecessors = Predecessors()
        told = (self._found_out, self._opened, self._rested, self._predecessors.gone)
        self._deps = UpstreamDeps(server, self._eras, link_deps, make_link, self._invoke_again, on_event, *told)
        self._sessions: dict[Place, UpstreamSession] = {}  # the latest opened last
        self._breakers = Breakers(server.name, link_deps.clock)
        self._listing = FairLimit(LISTED_AT_ONCE)
        self._latest: UpstreamSession | None = None  # that did not start, and is kept for its reason only
        self._unused = Status()  # where there is no session
        self._rest: asyncio.Event | None = None  # while it drains: set each time that a session comes to rest
        self._successor: Callable[[], Upstream | None] = lambda: None  # since it drains
        self.ways: WeakKeyDictionary[Connection, _Way] = WeakKeyDictionary()
        self._is_over = False

    def __repr__(self) -> str:
        return f"<McpUpstream {self.id} {list(self._sessions.values())}>"

    def scope(self, client: Client) -> str:
        server = self._server
        if server.scope == "shared":
            return ""
        if server.scope == "principal":
            return f"{client.principal.id}/"
        theirs = f"{client.principal.id}/{client.session}/"
        if self._eras.hears_each_time(client):
            return theirs
        told = jsonrpc.canonical(asks.relayed_capabilities(client.capabilities))
        return theirs + hashlib.sha256(told).hexdigest()[:8]

    @property
    def calls(self) -> int:
        return sum(session.calls for session in self._sessions.values())

    def works_for_others(self, whose: Client) -> bool:
        return any(session.works_for_others(whose.principal) for session in self._of(whose))

    def status(self, whose: Client | None = None) -> Status:
        shown = self._of(whose)
        if not shown:
            return self._unused if whose is None or self._server.scope == "shared" else Status()
        found = max(shown, key=lambda session: (_LIVELINESS[session.state], session.condition.since)).status()
        return msgspec.structs.replace(found, calls=sum(session.calls for session in shown))

    def _of(self, whose: Client | None) -> list[UpstreamSession]:
        """The sessions that serve this client alone, whatever it can; all where clients share them."""
        every = [*self._sessions.values(), *([self._latest] if self._latest else [])]
        if whose is None or self._server.scope == "shared":
            return every
        if self._server.scope == "principal":
            return [each for each in every if each.scope == self.scope(whose)]
        return [each for each in every if each.scope.startswith(f"{whose.principal.id}/{whose.session}/")]

    def live_scope(self, client: Client) -> str | None:
        session = self._sessions.get(("" if self._server.scope == "shared" else self.scope(client), None))
        session = self._found(client) if session and session.has_other else session
        return session.scope if session and session.live else None

    async def open(self) -> None:
        with contextlib.suppress(Fault):  # it stands in the status, and in the log
            await self._use(Client(), _nothing)

    async def about(self, client: Client) -> About:
        if self._place(client).known is None:
            await self._use(client, _nothing)
        return self._place(client).about or About()

    async def list(self, kind: str, client: Client) -> Items:
        try:
            return await self._list(kind, client)
        except Fault as fault:
            session = self._found(client)
            known = session and session.known
            is_declared = known is None or mcp.LISTS[mcp.LIST_OF_KIND[kind]].capability in known.capabilities
            if fault.upstream and (fault.upstream.code == jsonrpc.METHOD_NOT_FOUND or not is_declared):
                return Items()
            if fault.code != "SESSION_ERROR":
                raise
            return await self._list(kind, client)  # the connection had ended; now there is another

    async def _list(self, kind: str, client: Client) -> Items:
        method = mcp.LIST_OF_KIND[kind]

        async def read(connection: Connection) -> Items:
            if not mcp.may_have(kind, connection.requests.dialect.capabilities):
                return Items()
            reading = partial(read_list, connection.requests, method, kind, client, self._bounds)
            return await self._listing.during(client.principal.counted_as, reading)

        if (known := self._place(client).known) and not mcp.may_have(kind, known.capabilities):
            return Items()
        return await self._use(client, read)

    async def invoke(self, call: Call) -> Outcome:
        if begun := self.begin(call):
            return await begun.outcome()
        return await self._use(call.client, partial(_round, call), call)

    def begin(self, call: Call) -> Begun | None:
        session = self._place(call.client)
        connection = session.live
        info = call.tool_info
        is_more = call.task or call.about or call.log_level or (info and info.task_support == "required")
        if not connection or session.breaker.failures or is_more or connection.questions.asks_first:
            return None
        session.leases += 1
        try:
            request = connection.requests.begin_call(call)
        except BaseException as error:
            self.over(session, connection, call, error)
            raise
        if not request:
            session.leases -= 1
            return None
        return _McpBegun(request.exchange, request.is_sent, request, call, self, session, connection)

    async def _invoke_again(self, call: Call) -> Outcome:
        """With what its client has answered, which may have taken long: the server may have been edited meanwhile."""
        call, successor = await rechecked(call), self._successor()
        return await (successor if successor and successor.print == self.print else self).invoke(call)

    async def tasks(self, client: Client) -> Mapping[str, tuple[Raw, Made]]:
        session = self._found(client)
        principal = client.principal.id
        if not session or not session.task_owners.of(principal):
            return {}

        async def read(connection: Connection) -> Mapping[str, tuple[Raw, Made]]:
            return await connection.tasks.look(principal, self._bounds.limits.bytes)

        return await self._use(client, read, at=session)

    async def watch(self, uri: str, client: Client, kind: str = "resources") -> None:
        def begin(connection: Connection) -> Awaitable[None]:
            if kind == "tasks":
                connection.tasks.check(uri, client)
            return session.resubscriber.begin(connection.subscriptions, (kind, uri), client)

        if self._place(client).era is None:
            await self._use(client, _nothing)
        session = self._place(client)
        await self._use(client, begin, at=session)

    def unwatch(self, uri: str, client: Client, kind: str = "resources") -> None:
        session = self._found(client)
        if session and not session.resubscriber.wanted.watched[kind, uri]:  # it was not known then that there are two
            session = self._sessions.get((self.scope(client), None))
        if session:  # else all that was held for this client has ended
            session.resubscriber.end((kind, uri), client.principal.counted_as)

    async def set_level(self, level: str, client: Client) -> None:
        if live := self._live(client):  # one that is opened later hears the level with its first call
            await live.raise_level(level)

    async def roots_changed(self, client: Client) -> None:
        live = self._live(client)
        if live and self._server.scope == "session" and live.requests.dialect.hears_of_roots:
            await live.requests.tell(jsonrpc.notification(mcp.ROOTS_CHANGED))

    def leave(self, client: Client) -> Awaitable[None] | None:
        if self._server.scope != "session" or not client.session:
            return None
        theirs = f"{client.principal.id}/{client.session}/"  # whatever the client could do when each was opened
        left = {place: session for place, session in self._sessions.items() if place[0].startswith(theirs)}
        return self._left(left) if left else None

    async def _left(self, sessions: Mapping[Place, UpstreamSession]) -> None:
        for place, session in sessions.items():
            await session.close()
            self._forget(place)

    async def stop(self, whose: Client | None = None) -> None:
        theirs = self._of(whose)
        await asyncio.gather(*(session.stop() for session in theirs if session is not self._latest))
        for session in theirs if whose else ():
            session.resubscriber.lost()  # others may watch what is there
        if self._latest in theirs:
            self._latest = None
        if whose is None or self._server.scope == "shared":
            self._breakers.reset()
            self._latest, self._unused = None, Status("stopped", stopped_by="close")

    async def close(self) -> None:
        self._is_over = True
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        await self.stop()

    # Sessions.

    async def _use(
        self, client: Client, work: Work[Found], call: Call | None = None, at: UpstreamSession | None = None
    ) -> Found:
        """Do something with the connection that is for this client, or (`at`) with that of one session; it is opened
        where it must be. Raises `Fault`. `call` is what the work is, where it is one: where it has waited, anything may
        have changed, and the server may be another program than the one that the call was judged by.

        A call that is answered, be it by an error, shows that the server is well.
        """
        if self._is_over:
            raise stopped(self.id, self.name, "not_sent")
        session = at or self._place(client)
        is_new = session.era is None  # else it stays as it is when it is opened again, unless the server has changed
        connection: Connection | None = None
        number = 0
        session.leases += 1
        try:
            may_wait = not session.live or session.breaker.failures
            if session.breaker.failures:
                number = await session.breaker.admit(call is not None, self._server.timeout, client.blamed_as)
            connection = session.live or await session.open(client)
            if call and may_wait:
                work = cast("Work[Found]", partial(_round, await rechecked(call)))
            if at or not is_new or self._eras.suits(client, session.era):
                found = await work(connection)
                if call and session.breaker.failures:
                    session.breaker.answered()
                return found
        except Fault as fault:
            if connection:
                session.judge(connection, fault, call is not None, client.blamed_as)
            if at or not session.is_refused:
                raise
        finally:
            session.leases -= 1
            if number:
                session.breaker.withdraw(number)
            self._rested(session)
        return await self._use(client, work, call)  # in the session of its era

    def _place(self, client: Client) -> UpstreamSession:
        """Where this client's connection is, or will be, as far as is known of the server."""
        scope = "" if self._server.scope == "shared" else self.scope(client)
        first = self._sessions.get((scope, None))
        if not first:
            first = self._sessions[scope, None] = UpstreamSession(self._deps, scope, client, self._breakers.of(scope))
        era, revision = first.era, client.revision
        if not era or (revision and revision.era == era) or self._eras.suits(client, era):
            return first
        place = (first.scope, client.era)
        second = self._sessions.get(place)
        if second and second.is_refused:
            self._eras.found(mcp.other_era(second.beside or "modern"), refused=True)
            self._drop(second)
            first.resubscriber.takes_over(second.resubscriber.wanted)
            return first
        if not second:
            second = self._sessions[place] = UpstreamSession(self._deps, first.scope, client, first.breaker, client.era)
            first.has_other = second.has_other = True
        return second

    def _found(self, client: Client) -> UpstreamSession | None:
        """Where this client's connection is, if there is anything."""
        scope = self.scope(client)
        first = self._sessions.get((scope, None))
        if first and first.has_other and not self._eras.suits(client, first.era):
            return self._sessions.get((scope, client.era), first)
        return first

    def _live(self, client: Client) -> Connection | None:
        session = self._found(client)
        return session.live if session else None

    def _found_out(self, session: UpstreamSession, client: Client) -> None:
        """A session is about to be up: if its server hears only once what a client can do, it is for that alone."""
        scope = self.scope(client)
        if scope != session.scope and not session.beside and (scope, None) not in self._sessions:
            self._sessions.pop((session.scope, None), None)
            session.scope = scope
            self._sessions[scope, None] = session

    def _opened(self, session: UpstreamSession) -> None:
        if self._sessions.pop(_place_of(session), None):
            self._sessions[_place_of(session)] = session
        self._forget_the_longest_away()

    def _forget_the_longest_away(self) -> None:
        """A client can have many scopes: one for each session, and each set of capabilities that it declares there. Who
        has most of those that are away loses one first."""
        away = [place for place, session in self._sessions.items() if session.is_away]
        for place in giving_way(away, MOST_AWAY, lambda place: self._sessions[place].whose):
            self._forget(place)

    def over(self, session: UpstreamSession, connection: Connection, call: Call, error: BaseException | None) -> None:
        """A round that was begun is over."""
        if isinstance(error, Fault):
            session.judge(connection, error, True, call.client.blamed_as)
        elif error is None and session.breaker.failures:
            session.breaker.answered()
        session.leases -= 1
        if not session.leases:
            self._rested(session)

    def _rested(self, session: UpstreamSession) -> None:
        """Somebody is done with its connection: maybe nobody needs it any more."""
        if session.leases:
            return
        if session.live:
            session.live.requests.used = self._clock.now()
            if self._server.lifecycle == "ephemeral":
                session.end_after_use()
            elif self._pool.is_short:
                self._pool.rested()
        if self._rest:
            self._rest.set()
        is_blank = session.scope and not session.beside and session.is_blank
        if is_blank and self._sessions.get(_place_of(session)) is session:
            if session.condition.fault:
                self._latest = session
            self._drop(session)

    def _forget(self, place: Place) -> None:
        if session := self._sessions.get(place):
            self._drop(session)
        if (place[0], None) not in self._sessions:
            self._on_event(Event(self.id, "scope_ended", place[0]))

    def _drop(self, session: UpstreamSession) -> None:
        del self._sessions[_place_of(session)]
        session.resubscriber.give_up()
        if not session.beside:
            self._breakers.keep(session.scope, session.whose, session.breaker)
        for there in self._sessions.values():
            if there.scope == session.scope:
                there.has_other = False

    # Another configuration.

    def use(self, server: Server) -> None:
        """All parts of it look at one object: what holds at once is set there, and counts for the next call."""
        self._server.take(server)

    def succeed(self, ends: Iterable[asyncio.Event]) -> None:
        if self._server.command:
            self._predecessors.add(ends)

    async def drain(self, seconds: float, successor: Callable[[], Upstream | None] = lambda: None) -> None:
        self._rest, self._successor = asyncio.Event(), successor
        try:
            async with self._clock.timeout(seconds):
                while any(session.loses_work for session in self._sessions.values()):
                    self._rest.clear()
                    with contextlib.suppress(TimeoutError):
                        async with self._clock.timeout(LOOK):
                            await self._rest.wait()
        except TimeoutError:
            log.info("closing %s with %d calls in progress", self.name, self.calls)
        await self.close()


def _own(server: Server) -> Server:
    """One of its own, in which it sets what changes (`use`). Where each principal signs in for itself, none uses the
    connection of another."""
    if (
        server.auth
        and server.auth.grant == "authorization_code"
        and not server.auth.shared
        and server.scope == "shared"
    ):
        return msgspec.structs.replace(server, scope="principal")
    return msgspec.structs.replace(server)


def _place_of(session: UpstreamSession) -> Place:
    return session.scope, session.beside


class _McpBegun(Begun):
    request: OpenRequest
    call: Call
    upstream: McpUpstream
    session: UpstreamSession
    connection: Connection

    async def outcome(self) -> Outcome:
        try:
            if self.request.unsent:
                await self.connection.requests.send(self.request)
            outcome = await self.exchange.next()
        except BaseException as error:
            self.over(error)
            raise
        self.over(None)
        return outcome

    def over(self, error: BaseException | None) -> None:
        session = self.session
        if error or session.breaker.failures or session.leases == 1:
            self.upstream.over(session, self.connection, self.call, error)
        else:
            session.leases -= 1

    def line(self) -> Line | None:
        upstream, session, connection = self.upstream, self.session, self.connection
        if not (written := connection.requests.written(self.call)):
            return None
        way = upstream.ways.get(connection)
        if not way:
            way = upstream.ways[connection] = _Way(upstream, session, connection)
        return _McpLine(way, written)


class _Way:
    """To a server over a connection, until that has ended: who keeps it then keeps nothing else."""

    def __init__(self, upstream: McpUpstream, session: UpstreamSession, connection: Connection) -> None:
        self.by: tuple[McpUpstream, UpstreamSession, Connection] | None = upstream, session, connection
        connection.requests.on_end.append(self._end)

    def _end(self) -> None:
        self.by = None


class _McpLine(Line):
    """Over a connection that was there. Where it is there still, it is still the one that is for this client."""

    def __init__(self, way: _Way, written: Written) -> None:
        self._way = way
        self._written = written

    def is_up(self) -> bool:
        if not (by := self._way.by):
            return False
        _, session, connection = by
        return session.live is connection and not session.breaker.failures and not connection.questions.asks_first

    def begin(self, call: Call) -> Begun | None:
        if not (by := self._way.by):
            return None
        upstream, session, connection = by
        session.leases += 1
        try:
            request = connection.requests.begin_written(call, self._written)
        except BaseException as error:
            upstream.over(session, connection, call, error)
            raise
        if not request:
            session.leases -= 1
            return None
        return _McpBegun(request.exchange, request.is_sent, request, call, upstream, session, connection)


def _round(call: Call, connection: Connection) -> Awaitable[Outcome]:
    if call.about and call.method in mcp.TASKS:
        connection.tasks.check(call.target, call.client)
    is_task = call.task or (call.tool_info and call.tool_info.task_support == "required")
    make = connection.tasks.call if is_task else connection.requests.call
    if connection.questions.asks_first and call.method not in mcp.TASKS:
        make = partial(_after_questions, connection, make)
    return make(call) if not call.log_level or call.asked_in else _at_level(call, connection, make)


async def _after_questions(connection: Connection, make: Callable[[Call], Awaitable[Outcome]], call: Call) -> Outcome:
    """What the server wants to know first is asked before."""

    async def work(whole: Exchange) -> Outcome:
        connection.questions.calls += 1
        try:
            await connection.questions.put_first(whole, call)
            return await make(await rechecked(call))
        finally:
            connection.questions.calls -= 1
            connection.requests.on_rest()

    return await run(connection.requests.asker, connection.requests.clock, None, work).next()


async def _at_level(call: Call, connection: Connection, make: Callable[[Call], Awaitable[Outcome]]) -> Outcome:
    await connection.raise_level(call.log_level or "")
    return await make(call)


async def _nothing(_connection: Connection) -> None:
    """Only opens the connection."""
