"""What one client hears without a call: a legacy session, or one `subscriptions/listen` of a modern client.

The rule this file keeps: a client hears only what it asked for, of servers that it may know of, in its own names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.events import is_part
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Event, Made
from toolgate.eras import naming
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.snapshot import Route

log = logging.getLogger(__name__)

Say = Callable[[str, Raw], None]
"""Gets a notification's method and its parameters."""

MOST_WATCHED = 1024  # resources of one client


class Subscriber:
    """`wants` are the notifications that the client wants, besides those of what it watches; `client` may become
    another. Raises `Fault` where its principal has too many."""

    __slots__ = ("_client", "_coming", "_gateway", "_listening", "_path", "_say", "_wants", "_watched")

    def __init__(self, gateway: Gateway, path: str, client: Client, say: Say, wants: Collection[str]) -> None:
        self._client = client
        self._gateway = gateway
        self._path = path
        self._say = say
        self._wants = wants
        self._watched: dict[tuple[str, str], Call] = {}  # by kind and the client's own name
        self._coming = 0  # that are being asked for
        whose = client.principal.counted_as if client.era == "modern" else ""  # sessions are counted as such
        self._listening = gateway.events.listen_for(self._hear, client, whose)

    @property
    def client(self) -> Client:
        return self._client

    @client.setter
    def client(self, client: Client) -> None:
        self._client = client
        self._listening.identify(client.identity)

    async def watch(self, name: str, method: str, client: Client) -> None:
        """Hear when what the client knows by this name changes, by a method of `mcp.WATCH_FILTERS`, asked for as who it
        has shown to be then. Raises `Fault`."""
        what = mcp.METHODS[method].kind, name
        if what in self._watched:
            return
        if len(self._watched) + self._coming >= MOST_WATCHED:
            raise Fault("INVALID_REQUEST", f"More than {MOST_WATCHED} subscriptions; unsubscribe from some")
        self._coming += 1
        try:
            call = await self._gateway.subscriptions.watch(name, self._gateway.route(self._path), client, method)
        finally:
            self._coming -= 1
        if what in self._watched:  # the same was asked twice at once
            self._gateway.subscriptions.unwatch(call)
        else:
            self._watched[what] = call
            self._listening.watch(call.server, call.kind, call.target)

    async def watch_all(self, asked: Sequence[str], method: str) -> list[str]:
        """Watch each of these, and return what can be: what a server does not tell of is left out, and so is what is
        more than may be. Each is a look at all that there is, so they are looked up one after the other, and others are
        heard in between; servers are asked together."""
        watched: set[str] = set()
        async with asyncio.TaskGroup() as together:
            for name in asked:
                if self._gateway.subscriptions.is_full(self.client.principal):
                    break
                together.create_task(self._try_to_watch(name, method, watched))
                await asyncio.sleep(0)
        return [name for name in asked if name in watched]

    async def _try_to_watch(self, name: str, method: str, watched: set[str]) -> None:
        try:
            await self.watch(name, method, self.client)
        except Fault as fault:
            log.debug("cannot subscribe to %s: %s", name, fault.message)
        else:
            watched.add(name)

    def unwatch(self, name: str, method: str) -> None:
        """End what `watch` began. `method` is of the same kind."""
        self._end((mcp.METHODS[method].kind, name))

    def close(self) -> None:
        self._listening.stop()
        for what in list(self._watched):
            self._end(what)
        self._say = _unheard  # its listener holds this, too: a reference cycle

    def _end(self, what: tuple[str, str]) -> None:
        call = self._watched.pop(what, None)
        if call:
            self._listening.unwatch(call.server, call.kind, call.target)
            self._gateway.subscriptions.unwatch(call)

    def _hear(self, event: Event) -> None:
        route = self._gateway.snapshot.routes.get(self._path)  # as it is now: another configuration has another
        if not route:
            return
        named = list(self._names_of(event, route)) if event.kind == "updated" else []
        if event.kind == "updated" and not named:
            return  # before anything is judged: most listeners watch something else
        if not self._gateway.concerns(event, route, self.client):
            return
        if event.kind == "list_changed":
            for method, lists in mcp.LIST_CHANGED.items():
                if method in self._wants and set(event.lists) & set(lists):
                    self._say(method, jsonrpc.EMPTY_OBJECT)
        elif event.kind == "updated":
            for uri in named:
                self._say(mcp.UPDATED, Raw(jsonrpc.with_members(event.params, {"uri": jsonrpc.encode(uri)})))
        elif event.kind in ("task_status", "task"):
            made = event.made if event.kind == "task_status" else self._watched_as(event)
            told = self._gateway.lists.told_of_task(event, made, route, self.client) if made else b""
            if told:
                told = naming.write(mcp.TASK_GET, told, self.client.revision)
                self._say(mcp.TASK_CHANGED if event.kind == "task" else mcp.TASK_STATUS, Raw(told))
        elif (method := _PASSED_ON.get(event.kind)) and method in self._wants:
            self._say(method, event.params)

    def _watched_as(self, event: Event) -> Made | None:
        """What a task was made by that the client watches."""
        watched = (call.about for _, call in self._watched_at(event.server, "tasks") if call.target == event.uri)
        return next((about.made for about in watched if about), None)

    def _watched_at(self, server: str, kind: str) -> Iterator[tuple[str, Call]]:
        """What the client watches of a server, with its own names."""
        return ((name, call) for (of, name), call in self._watched.items() if call.server == server and of == kind)

    def _names_of(self, event: Event, route: Route) -> Iterable[str]:
        """By which names the client asked for what has changed. A server may tell of a part of that (spec 2025-11-25:
        server/resources, "Subscriptions"), which then has the surface's name."""
        watched = [(name, call.target) for name, call in self._watched_at(event.server, "resources")]
        whole = [name for name, target in watched if target == event.uri]
        if whole or not any(is_part(event.uri, target) for _, target in watched):
            return whole
        return [route.surface.expose(event.server, event.uri)]


def _unheard(_method: str, _params: Raw) -> None: ...


_PASSED_ON = {"elicited": mcp.ELICITED, "log": mcp.LOGGED}
