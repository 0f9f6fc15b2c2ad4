"""What a server is asked to tell on its own account: changes of lists and of resources, and how much it logs.

A legacy server is asked for one thing after the other, a modern one for all at once on one stream
(`subscriptions/listen`). What is wanted outlives connections: `Wanted` is kept by the upstream, a
`UpstreamSubscriptions` belongs to one connection. The rule this file keeps: only what somebody wants is asked for, once
however many want it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.exchange import Exchange
from toolgate.core.jsonrpc import Members
from toolgate.core.model import Client, Fault, Outcome
from toolgate.eras import tasks
from toolgate.upstreams.links.base import Headers
from toolgate.upstreams.mcp.dialects import Dialect, Modern

log = logging.getLogger(__name__)

PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0)  # seconds before a stream that ended is opened again
ANSWER = 10.0  # seconds in which a server is to acknowledge


Watched = tuple[str, str]  # "resources" and a URI, or "tasks" and an id
_FILTERS = {"resources": "resourceSubscriptions", "tasks": "taskIds"}


class Pauses:
    """How long to wait before what was lost is opened again: longer each time, until it has held for a while."""

    def __init__(self) -> None:
        self.losses = 0
        self._opened = 0.0

    def opened(self, now: float) -> None:
        self._opened = now

    def after_loss(self, now: float) -> float:
        """Seconds to wait before what was lost at this time is opened again."""
        self.losses = self.losses + 1 if now - self._opened < PAUSES[-1] else 1
        return PAUSES[min(self.losses, len(PAUSES)) - 1]


class Wanted:
    """What clients of one scope want: resources and tasks, counted, and the most talkative log level."""

    def __init__(self) -> None:
        self.watched: Counter[Watched] = Counter()
        self.level: str | None = None
        self.turn = asyncio.Lock()  # of whoever changes what is wanted, and tells the server
        self.client: Client | None = None  # the last who wanted something
        self.pauses = Pauses()  # between connections of this scope that were lost
        self.fell_silent = float("-inf")  # when the server last left a request to tell of something unanswered

    def raise_level(self, level: str) -> bool:
        """Whether `level` is more than was wanted so far."""
        if self.level is not None and mcp.LOG_LEVELS.index(self.level) <= mcp.LOG_LEVELS.index(level):
            return False
        self.level = level
        return True


class Speaker(Protocol):
    """What the subscriptions at a server need of their connection."""

    @property
    def dialect(self) -> Dialect: ...

    async def ask_server(
        self, method: str, params: Members | bytes, headers: Headers, timeout: float | None = None
    ) -> Raw: ...

    async def begin(self, method: str, params: bytes, headers: Headers) -> tuple[int, Exchange]:
        """A request whose answer is its end; it has no time limit."""
        ...

    def missed(self) -> None:
        """For a while the server could not tell of changes."""
        ...


class UpstreamSubscriptions(Protocol):
    """How one connection's server is asked to tell, and told to stop."""

    def open(self, wanted: Wanted) -> None:
        """Begin to ask for all that is wanted; what fails is logged."""
        ...

    def close(self) -> None:
        """The connection is over."""
        ...

    async def watch(self, what: Watched) -> None:
        """Returns when the server has agreed. Raises `Fault` where it does not."""
        ...

    async def unwatch(self, what: Watched) -> None:
        """Raises `Fault` where the server could not be told."""
        ...

    async def set_level(self, level: str) -> None:
        """A level of `mcp.LOG_LEVELS`. A server that does not take it is logged."""
        ...

    def acknowledged(self, params: Raw) -> None:
        """The server says what of a stream it honours (`mcp.ACKNOWLEDGED`)."""
        ...


class LegacySubscriptions:
    """One request for each resource, and one for the level. Changes of lists are told unasked."""

    def __init__(self, connection: Speaker) -> None:
        self._connection = connection
        self._watched: set[Watched] = set()
        self._opening: asyncio.Task[None] | None = None

    def open(self, wanted: Wanted) -> None:
        if wanted.level or wanted.watched:
            self._opening = asyncio.get_running_loop().create_task(self._open(wanted), name="hear")

    def close(self) -> None:
        if self._opening:
            self._opening.cancel()

    async def _open(self, wanted: Wanted) -> None:
        if wanted.level:
            await self.set_level(wanted.level)
        for what in list(wanted.watched):
            try:
                await self.watch(what)
            except Fault as fault:
                log.info("%s no longer reports changes of %s: %s", self._connection, what[1], fault.message)

    async def watch(self, what: Watched) -> None:
        if not _can_watch(self._connection, what):
            raise _no_subscriptions()
        if what not in self._watched:
            await self._ask(mcp.SUBSCRIBE, {"uri": what[1]})
            self._watched.add(what)

    async def unwatch(self, what: Watched) -> None:
        self._watched.discard(what)
        await self._ask(mcp.UNSUBSCRIBE, {"uri": what[1]})

    async def set_level(self, level: str) -> None:
        if "logging" not in self._connection.dialect.capabilities:
            return
        try:
            await self._ask(mcp.SET_LEVEL, {"level": level})
        except Fault as fault:
            log.info("%s rejected the log level %s: %s", self._connection, level, fault.message)

    def acknowledged(self, params: Raw) -> None:
        """This era acknowledges by answering."""

    async def _ask(self, method: str, params: Mapping[str, str]) -> None:
        await self._connection.ask_server(method, jsonrpc.encode(params), self._connection.dialect.other(), ANSWER)


class _Honoured(msgspec.Struct):
    resourceSubscriptions: tuple[str, ...] = ()
    taskIds: tuple[str, ...] = ()


class _OfSubscription(msgspec.Struct):
    id: int = msgspec.field(name=mcp.SUBSCRIPTION_KEY, default=0)


class _Acknowledged(msgspec.Struct):
    notifications: _Honoured = msgspec.field(default_factory=_Honoured)
    meta: _OfSubscription = msgspec.field(name="_meta", default_factory=_OfSubscription)


class ModernSubscriptions:
    """One stream for everything; another set of resources is another stream, opened before the old one is closed."""

    def __init__(self, connection: Speaker, client: Client, clock: Clock) -> None:
        self._connection = connection
        self._client = client
        self._clock = clock
        self._watched: set[Watched] = set()
        self._current: asyncio.Task[Outcome] | None = None  # until the stream ends
        self._waiting: dict[int, asyncio.Future[frozenset[Watched]]] = {}  # for the acknowledgement, by request id
        self._turn = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._is_over = False

    def open(self, wanted: Wanted) -> None:
        self._watched |= set(wanted.watched)
        self._keep()

    def close(self) -> None:
        self._is_over = True
        for task in (self._keeper, self._current):
            if task:
                task.cancel()

    def _keep(self) -> None:
        """While anything is wanted there is somebody who opens a stream again that has ended."""
        if self._filter() and not self._is_over and (not self._keeper or self._keeper.done()):
            self._keeper = asyncio.get_running_loop().create_task(self._keep_open(), name="hear")

    async def _keep_open(self) -> None:
        pauses = Pauses()
        while self._filter():
            try:
                if not self._current:
                    await self._renew()
                    if pauses.losses:
                        self._connection.missed()
            except Fault as fault:
                log.info("%s does not report changes: %s", self._connection, fault.message)
                if fault.rpc == jsonrpc.METHOD_NOT_FOUND:
                    return
            current = self._current
            pauses.opened(self._clock.now())
            if current:
                await asyncio.wait((current,))
            if self._current is not current:
                continue  # another one has taken its place
            self._current = None
            await self._clock.sleep(pauses.after_loss(self._clock.now()))

    async def watch(self, what: Watched) -> None:
        if not _can_watch(self._connection, what):
            raise _no_subscriptions()
        if what in self._watched and self._current:
            return
        self._watched.add(what)
        try:
            honoured = await self._renew()
        except Fault as fault:  # the server's own words may be on what others watch: it is one stream
            self._watched.discard(what)
            raise Fault(fault.code, "The server does not report changes at present", reach=fault.reach) from None
        except BaseException:
            self._watched.discard(what)
            raise
        if what not in honoured:
            self._watched.discard(what)
            raise Fault("RESOURCE_NOT_FOUND", f"The server does not report changes of {what[1]}", reach="executed")

    async def unwatch(self, what: Watched) -> None:
        self._watched.discard(what)
        await self._renew()

    async def set_level(self, level: str) -> None:
        """This era says the level with each request."""

    def acknowledged(self, params: Raw) -> None:
        try:
            found = jsonrpc.read(params, type=_Acknowledged)
        except jsonrpc.UNREADABLE:
            return
        waiting = self._waiting.get(found.meta.id)
        if waiting and not waiting.done():
            told = found.notifications
            uris = [("resources", uri) for uri in told.resourceSubscriptions]
            waiting.set_result(frozenset([*uris, *(("tasks", id) for id in told.taskIds)]))

    async def _renew(self) -> frozenset[Watched]:
        """Open a stream for what is wanted now, then close the one before. What of it the server honours."""
        async with self._turn:
            wanted = self._filter()
            before, honoured = self._current, frozenset[Watched]()
            self._current, honoured = await self._listen(wanted) if wanted else (None, honoured)
            self._keep()
            if before:
                before.cancel()
            return honoured

    async def _listen(self, wanted: Mapping[str, Any]) -> tuple[asyncio.Task[Outcome], frozenset[Watched]]:
        client = self._client
        if "taskIds" in wanted:  # clients that declared the extension ask for that
            client = msgspec.structs.replace(client, capabilities={**client.capabilities, **tasks.EXTENSION})
        members, told = self._connection.dialect.listing(mcp.LISTEN, None, client)
        params = jsonrpc.encode({**members, "notifications": wanted})
        id, exchange = await self._connection.begin(mcp.LISTEN, params, told)
        waiting = self._waiting[id] = asyncio.get_running_loop().create_future()
        ending = asyncio.get_running_loop().create_task(exchange.next(), name=f"hear {id}")
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with self._clock.timeout(ANSWER):
                await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                ending.result()
                raise Fault("UPSTREAM_ERROR", "The server ended the subscription before it started")
            return ending, waiting.result()
        except TimeoutError:
            ending.cancel()
            raise Fault("TIMEOUT", "The server did not acknowledge the subscription") from None
        except BaseException:
            ending.cancel()
            raise
        finally:
            del self._waiting[id]

    def _filter(self) -> dict[str, Any]:
        lists = {
            key: True
            for key, (capability, _) in mcp.LIST_FILTERS.items()
            if _capability(self._connection, capability, "listChanged")
        }
        names = {_FILTERS[kind]: sorted(name for each, name in self._watched if each == kind) for kind in _FILTERS}
        return lists | {key: each for key, each in names.items() if each}


def subscriptions_of(connection: Speaker, client: Client, clock: Clock) -> UpstreamSubscriptions:
    """The subscriptions of a connection whose era is known. `client` is on whose behalf a modern server is asked."""
    if isinstance(connection.dialect, Modern):
        return ModernSubscriptions(connection, client, clock)
    return LegacySubscriptions(connection)


def _can_watch(connection: Speaker, what: Watched) -> bool:
    if what[0] == "tasks":
        return isinstance(connection.dialect, Modern) and tasks.declares(connection.dialect.capabilities)
    return _capability(connection, "resources", "subscribe")


def _capability(connection: Speaker, name: str, part: str) -> bool:
    found = connection.dialect.capabilities.get(name)
    return isinstance(found, Mapping) and bool(found.get(part))  # type: ignore[reportUnknownMemberType]


def _no_subscriptions() -> Fault:
    return Fault("METHOD_NOT_FOUND", "The server does not report changes of its resources", reach="not_sent")
