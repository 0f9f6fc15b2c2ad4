"""A server that speaks MCP: its connections by scope, opened once on first use, and opened again when lost."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolgate import asks
from toolgate.config import Server
from toolgate.eras import mirrors
from toolgate.model import Call, Client, Event, EventSink, Fault, Outcome
from toolgate.ports import About, Items, State, Status
from toolgate.upstreams.links import Ground, MakeLink
from toolgate.upstreams.mcp.connection import Connection
from toolgate.upstreams.mcp.hearing import Hearing, Wanted, Watched, hearing_of
from toolgate.upstreams.mcp.opening import open_connection
from toolgate.upstreams.mcp.tasks import Book
from toolgate.wire import jsonrpc, mcp

log = logging.getLogger(__name__)

IDLE = 300.0  # seconds after which a connection that serves one client only is closed
MOST_AWAY = 256  # scopes without a connection whose lists are kept, to be compared when their clients are back


class McpUpstream:
    """An `Upstream` that speaks MCP over a link. `make_link` makes one, `on_event` hears what is said unasked."""

    def __init__(self, server: Server, make_link: MakeLink, ground: Ground, on_event: EventSink) -> None:
        self.id = server.id
        self.name = server.name
        self._server = server
        self._make_link = make_link
        self._ground = ground
        self._clock = ground.clock
        self._on_event = on_event
        self._live: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._reopening: set[asyncio.Task[None]] = set()
        self._state: State = "configured"
        self._fault: Fault | None = None
        self._wanted: defaultdict[str, Wanted] = defaultdict(Wanted)  # by scope
        self._books: defaultdict[str, Book] = defaultdict(Book)  # by scope
        self._opened_before: dict[str, None] = {}  # scopes, the latest last
        self._last: dict[str, object] = {}  # what was known of the newest connection when it ended
        self._newest: Connection | None = None

    def __repr__(self) -> str:
        return f"<McpUpstream {self.id} {self._state} {list(self._live.values())}>"

    def scope(self, client: Client) -> str:
        server = self._server
        if server.scope == "shared":
            return ""
        told = hashlib.sha256(jsonrpc.canonical(asks.relayed_capabilities(client.capabilities))).hexdigest()[:8]
        session = client.session if server.scope == "session" else ""
        return f"{client.principal.id}/{session}/{told}"

    def status(self) -> Status:
        about = self._newest.link.describe() if self._newest and self._newest.link else self._last
        return Status(
            state=self._state,
            error=self._fault.message if self._fault else "",
            hint=self._fault.hint if self._fault else "",
            pid=about.get("pid") if self._state in ("ready", "starting") else None,  # type: ignore[arg-type]
            started=about.get("started"),  # type: ignore[arg-type]
            stderr=str(about.get("stderr", "")),
            revision=self._newest.dialect.revision if self._newest else "",
        )

    async def open(self) -> None:
        try:
            await self._connection(Client())
        except Fault:
            pass  # it stands in the status, and in the log

    async def about(self, client: Client) -> About:
        dialect = (await self._connection(client)).dialect
        return About(dialect.capabilities, dialect.instructions)

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
        connection = await self._connection(client)
        if mcp.LISTS[method].capability not in connection.dialect.capabilities:
            return Items()
        found = await connection.list(method, client)
        if method == "tools/list" and self._server.type == "http" and connection.dialect.mirrors_arguments:
            return msgspec.structs.replace(found, raw=tuple(tool for tool in found.raw if self._can_be_called(tool)))
        return found

    def _can_be_called(self, tool: Raw) -> bool:
        """Tools whose annotations break the rules are left out (streamable-http, "Schema Extension")."""
        try:
            mirrors.of_tool(tool)
        except mirrors.Invalid as why:
            log.warning("%s: a tool is left out: %s: %.200r", self.name, why, bytes(tool)[:200])
            return False
        return True

    async def invoke(self, call: Call) -> Outcome:
        connection = self._live.get(self.scope(call.client)) or await self._connection(call.client)
        return await connection.invoke(call)

    async def tasks(self, client: Client) -> Mapping[str, Raw]:
        scope = self.scope(client)
        if scope not in self._books or not self._books[scope].of(client.principal.id):
            return {}
        return await (await self._connection(client)).tasks_of(client.principal.id)

    async def watch(self, uri: str, client: Client, kind: str = "resources") -> None:
        connection = await self._connection(client)
        scope = self.scope(client)
        wanted = self._wanted[scope]
        began = self._clock.now()
        async with wanted.turn:
            if not wanted.watched[kind, uri] and connection.hearing:
                if wanted.fell_silent > began:  # those who wait in line do not each find that out for themselves
                    raise Fault(
                        "TIMEOUT", f"{self.name} does not answer who wants to hear of changes", reach="not_sent"
                    )
                await self._begin_watching(connection.hearing, (kind, uri), scope, wanted)
            wanted.watched[kind, uri] += 1
            wanted.client = client

    async def _begin_watching(self, hearing: Hearing, what: Watched, scope: str, wanted: Wanted) -> None:
        try:
            await hearing.watch(what)
        except Fault as fault:
            if fault.code == "TIMEOUT":
                wanted.fell_silent = self._clock.now()
            raise
        except asyncio.CancelledError:
            self._end_watching(what, scope, wanted)  # the server may have heard that much
            raise

    def unwatch(self, uri: str, client: Client, kind: str = "resources") -> None:
        scope = self.scope(client)
        wanted = self._wanted.get(scope)
        if not wanted:
            return  # all that was held for this client has ended
        wanted.watched[kind, uri] -= 1
        if wanted.watched[kind, uri] <= 0:
            del wanted.watched[kind, uri]
            self._end_watching((kind, uri), scope, wanted)

    def _end_watching(self, what: Watched, scope: str, wanted: Wanted) -> None:
        self._spawn(self._stop_watching(what, scope, wanted), self._closing)

    async def _stop_watching(self, what: Watched, scope: str, wanted: Wanted) -> None:
        async with wanted.turn:
            live = self._live.get(scope)
            if what in wanted.watched or not live or not live.hearing:
                return
            try:
                await live.hearing.unwatch(what)
            except Fault as fault:
                log.info("%s was not told that nobody watches %s: %s", self.name, what[1], fault.message)

    async def set_level(self, level: str, client: Client) -> None:
        live = self._live.get(self.scope(client))  # one that is opened later hears the level with its first call
        if live and live.hearing and live.wanted.raise_level(level):
            await live.hearing.set_level(level)

    async def roots_changed(self, client: Client) -> None:
        live = self._live.get(self.scope(client))
        if live and self._server.scope != "shared":
            await live.roots_changed()

    @property
    def calls(self) -> int:
        return 0

    async def stop(self) -> None:
        await self.close()

    async def drain(self, seconds: float) -> None:
        await self.close()

    async def leave(self, client: Client) -> None:
        if self._server.scope != "session" or not client.session:
            return
        theirs = f"{client.principal.id}/{client.session}/"  # whatever the client could do when each was opened
        known = {*self._opening, *self._live, *self._wanted, *self._opened_before}
        for scope in [scope for scope in known if scope.startswith(theirs)]:
            await self._close_scope(scope)
            self._forget(scope)

    async def close(self) -> None:
        under_way: list[asyncio.Task[Any]] = [*self._reopening, *self._opening.values()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in list(self._live.values())))
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._state = "stopped"

    # Connections.

    async def _connection(self, client: Client) -> Connection:
        """The connection that serves this client, opened where there is none. Raises `Fault`."""
        scope = self.scope(client)
        live = self._live.get(scope)
        if live:
            return live
        opening = self._opening.get(scope)
        if not opening:
            opening = asyncio.get_running_loop().create_task(self._open(scope, client), name=f"open {self.id}")
            self._opening[scope] = opening
            opening.add_done_callback(lambda done: self._opened(scope, done))
        return await asyncio.shield(opening)

    def _opened(self, scope: str, done: asyncio.Task[Connection]) -> None:
        self._opening.pop(scope, None)
        if scope not in self._opened_before:
            self._wanted.pop(scope, None)
            self._books.pop(scope, None)
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more

    async def _open(self, scope: str, client: Client) -> Connection:
        server = self._server
        if server.problem:
            self._state, self._fault = (
                "failed",
                Fault("SERVER_FAILED", server.problem, server=self.id, reach="not_sent"),
            )
            raise self._not_started(self._fault)
        self._state = "starting"
        connection = Connection(
            server,
            self._clock,
            self.invoke,
            self._on_event,
            self._connection_closed,
            server.scope != "shared",
            scope,
            self._books[scope],
        )
        self._newest = connection
        try:
            connection.link = await self._make_link(server, connection, self._ground)
            await open_connection(connection, server, client, self._clock)
            if connection.fault:  # it died on the threshold
                raise connection.fault
        except Fault as fault:
            await self._give_up(connection, fault)
            raise self._not_started(fault) from None
        except BaseException:
            await self._give_up(connection, Fault("SERVER_FAILED", f"{self.name} was stopped while it started"))
            raise
        self._live[scope] = connection
        self._wanted[scope].pauses.opened(self._clock.now())
        self._state, self._fault = "ready", None
        connection.hear(hearing_of(connection, client, self._clock), self._wanted[scope])
        self._on_event(Event(self.id, "opened", scope))  # it may offer something else than before
        self._opened_before.pop(scope, None)
        self._opened_before[scope] = None
        self._forget_the_longest_away()
        if server.scope != "shared":
            self._close_when_idle(scope, connection)
        return connection

    def _forget_the_longest_away(self) -> None:
        """A client can have many scopes: one for each set of capabilities that it declares."""
        away = [each for each in self._opened_before if each not in self._live and not self._wanted[each].watched]
        for scope in away[:-MOST_AWAY]:
            self._forget(scope)

    def _forget(self, scope: str) -> None:
        self._opened_before.pop(scope, None)
        self._wanted.pop(scope, None)
        self._books.pop(scope, None)
        self._on_event(Event(self.id, "scope_ended", scope))

    def _not_started(self, fault: Fault) -> Fault:
        """What a call is told; the status keeps the reason alone."""
        message = f"Server not started: {fault.message}"
        return Fault(fault.code, message, server=self.id, reach="not_sent", hint=fault.hint)

    async def _give_up(self, connection: Connection, fault: Fault) -> None:
        """Remember why it did not start; what it left on stderr is often the reason."""
        await connection.close()
        self._remember(connection)
        self._state, self._fault = "failed", fault
        log.warning("%s did not start: %s", self.name, fault.message)

    def _connection_closed(self, connection: Connection, fault: Fault) -> None:
        for scope, live in list(self._live.items()):
            if live is connection:
                del self._live[scope]
                self._state, self._fault = "failed", fault
                if not connection.is_closing:
                    log.warning("%s; the next call starts it again", fault.message)
                    self._reopen(scope)
        self._remember(connection)

    def _reopen(self, scope: str) -> None:
        """Whoever watches what this server has may never call it: it is started again for them."""
        wanted = self._wanted.get(scope)
        if wanted and wanted.watched:
            self._spawn(self._open_again(scope, wanted), self._reopening, name=f"hear {self.id} again")

    async def _open_again(self, scope: str, wanted: Wanted) -> None:
        while True:
            await self._clock.sleep(wanted.pauses.after_loss(self._clock.now()))
            is_wanted = wanted.watched and self._wanted.get(scope) is wanted
            if scope in self._live or not is_wanted or not wanted.client:
                return
            try:
                await self._connection(wanted.client)
                return
            except Fault as fault:
                log.info("%s is not there again: %s", self.name, fault.message)

    def _spawn(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]], name: str | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        among.add(task)
        task.add_done_callback(among.discard)

    def _remember(self, connection: Connection) -> None:
        if connection.link:
            self._last = connection.link.describe()
        if self._newest is connection:
            self._newest = None

    def _close_when_idle(self, scope: str, connection: Connection) -> None:
        """A connection that serves one client only is closed when that client has long asked for nothing."""

        def look() -> None:
            if self._live.get(scope) is not connection:
                return
            now = self._clock.now()
            is_needed = connection.in_flight or self._wanted[scope].watched or connection.book.runs(now)
            if not is_needed and now - connection.used >= IDLE:
                self._spawn(self._close_scope(scope), self._closing)
            else:
                self._clock.call_later(IDLE, look)

        self._clock.call_later(IDLE, look)

    async def _close_scope(self, scope: str) -> None:
        opening = self._opening.get(scope)
        if opening:
            opening.cancel()
            await asyncio.wait([opening])
        connection = self._live.pop(scope, None)
        self._wanted.pop(scope, None)
        self._books.pop(scope, None)
        if connection:
            await connection.close()
        self._state = "ready" if self._live else "stopped"
