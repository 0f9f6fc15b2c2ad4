"""How one connection's server is asked to tell of changes of lists and of resources, and how much it logs.

A legacy server is asked for one thing after the other, a modern one for all at once on one stream
(`subscriptions/listen`). What is wanted outlives connections (`resubscribe`). The rule this file keeps: only what
somebody wants is asked for, once however many want it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Message
from toolgate.core.model import Client, Outcome
from toolgate.eras import modern, tasks
from toolgate.upstreams.mcp.requests import Requests
from toolgate.upstreams.mcp.resubscribe import Asked, Pauses, UpstreamSubscriptions, Wanted, Watched

log = logging.getLogger(__name__)

PACE = 4 * 1024 * 1024  # bytes a second of filters that one server is sent, at most
MOMENT = 0.01  # seconds of a pause that would be too short to matter
ANSWER = 10.0  # seconds in which a server is to acknowledge
_FILTERS = {"resources": "resourceSubscriptions", "tasks": "taskIds"}


class LegacySubscriptions:
    """One request for each resource, and one for the level. Changes of lists are told unasked."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._watched: set[Watched] = set()
        self._opening: asyncio.Task[None] | None = None
        requests.on_end.append(self._close)

    def open(self, wanted: Wanted) -> None:
        if wanted.level or wanted.watched:
            self._opening = asyncio.get_running_loop().create_task(self._open(wanted), name="hear")

    def _close(self) -> None:
        if self._opening:
            self._opening.cancel()

    async def _open(self, wanted: Wanted) -> None:
        if wanted.level:
            await self.set_level(wanted.level)
        for what in wanted.in_turns():
            try:
                await self.watch(what)
            except Fault as fault:
                log.info("%s no longer reports changes of %s: %s", self._requests.server.name, what[1], fault.message)

    def asked_by(self, what: Watched) -> Asked:
        return what

    async def watch(self, what: Watched) -> None:
        if not _can_watch(self._requests, what):
            raise _no_subscriptions()
        if what not in self._watched:
            await self._ask(mcp.SUBSCRIBE, {"uri": what[1]})
            self._watched.add(what)

    async def unwatch(self, gone: Collection[Watched]) -> None:
        for what in gone:
            self._watched.discard(what)
            await self._ask(mcp.UNSUBSCRIBE, {"uri": what[1]})

    async def set_level(self, level: str) -> None:
        if "logging" not in self._requests.dialect.capabilities:
            return
        try:
            await self._ask(mcp.SET_LEVEL, {"level": level})
        except Fault as fault:
            log.info("%s rejected the log level %s: %s", self._requests.server.name, level, fault.message)

    async def _ask(self, method: str, params: Mapping[str, str]) -> None:
        await self._requests.ask(method, jsonrpc.encode(params), self._requests.dialect.other(), ANSWER)


class _Honoured(msgspec.Struct):
    resourceSubscriptions: tuple[str, ...] = ()
    taskIds: tuple[str, ...] = ()


class _OfSubscription(msgspec.Struct):
    id: str | int | float = msgspec.field(name=mcp.SUBSCRIPTION_KEY, default=0)


class _Acknowledged(msgspec.Struct):
    notifications: _Honoured = msgspec.field(default_factory=_Honoured)
    meta: _OfSubscription = msgspec.field(name="_meta", default_factory=_OfSubscription)


class ModernSubscriptions:
    """One stream for everything; another set of resources is another stream, opened before the old one is closed."""

    def __init__(self, requests: Requests, client: Client, missed: Callable[[], None]) -> None:
        self._requests = requests
        self._client = client
        self._missed = missed
        self._clock = requests.clock
        self._watched: set[Watched] = set()
        self._current: asyncio.Task[Outcome] | None = None  # until the stream ends
        self._waiting: dict[int, asyncio.Future[frozenset[Watched]]] = {}  # for the acknowledgement, by request id
        self._turn = asyncio.Lock()
        self._rested = 0.0  # when the last filter has been paid for by a pause as long as it is large
        self._keeper: asyncio.Task[None] | None = None
        self._is_over = False
        requests.on_end.append(self._close)
        requests.handlers[mcp.ACKNOWLEDGED] = self._acknowledged

    def open(self, wanted: Wanted) -> None:
        self._watched |= set(wanted.watched)
        self._keep()

    def _close(self) -> None:
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
                        self._missed()
            except Fault as fault:
                log.info("%s does not report changes: %s", self._requests.server.name, fault.message)
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

    def asked_by(self, what: Watched) -> Asked:
        return ""  # all that is watched, so that nobody waits for what another asks of the server in vain

    async def watch(self, what: Watched) -> None:
        if not _can_watch(self._requests, what):
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

    async def unwatch(self, gone: Collection[Watched]) -> None:
        self._watched.difference_update(gone)
        await self._renew()

    async def set_level(self, level: str) -> None:
        """This era says the level with each request."""

    def _acknowledged(self, message: Message, origin: int | None) -> None:
        """The server says what of a stream it honours."""
        try:
            found = jsonrpc.read(message.params, type=_Acknowledged)
        except jsonrpc.UNREADABLE:
            return
        waiting = self._waiting.get(jsonrpc.number_of(found.meta.id) or 0)
        if waiting and not waiting.done():
            told = found.notifications
            uris = [("resources", uri) for uri in told.resourceSubscriptions]
            waiting.set_result(frozenset([*uris, *(("tasks", id) for id in told.taskIds)]))

    async def _renew(self) -> frozenset[Watched]:
        """Open a stream for what is wanted now, then close the one before. What of it the server honours."""
        async with self._turn:
            if (rest := self._rested - self._clock.now()) > MOMENT:
                await self._clock.sleep(rest)
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
        members, told = self._requests.dialect.listing(mcp.LISTEN, None, client)
        params = jsonrpc.encode({**members, "notifications": wanted})
        self._rested = self._clock.now() + len(params) / PACE
        id, exchange = await self._requests.begin(mcp.LISTEN, params, told)
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
            if _capability(self._requests, capability, "listChanged")
        }
        names = {_FILTERS[kind]: sorted(name for each, name in self._watched if each == kind) for kind in _FILTERS}
        return lists | {key: each for key, each in names.items() if each}


def subscriptions_of(requests: Requests, client: Client, missed: Callable[[], None]) -> UpstreamSubscriptions:
    """The subscriptions of a connection whose era is known. `client` is on whose behalf a modern server is asked;
    `missed` is called where a server could not tell of changes for a while."""
    if isinstance(requests.dialect, modern.ToServer):
        return ModernSubscriptions(requests, client, missed)
    return LegacySubscriptions(requests)


def _can_watch(requests: Requests, what: Watched) -> bool:
    if what[0] == "tasks":
        return isinstance(requests.dialect, modern.ToServer) and tasks.declares(requests.dialect.capabilities)
    return _capability(requests, "resources", "subscribe")


def _capability(requests: Requests, name: str, part: str) -> bool:
    found = requests.dialect.capabilities.get(name)
    return isinstance(found, Mapping) and bool(found.get(part))  # type: ignore[reportUnknownMemberType]


def _no_subscriptions() -> Fault:
    return Fault("METHOD_NOT_FOUND", "The server does not report changes of its resources", reach="not_sent")
