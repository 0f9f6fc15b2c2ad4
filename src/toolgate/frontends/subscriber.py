"""What one client hears without a call: a legacy session, or one `subscriptions/listen` of a modern client.

The rule this file keeps: a client hears only what it asked for, of servers that it may know of, in its own names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Raw

from toolgate.gateway import Gateway
from toolgate.model import Call, Client, Event, Fault
from toolgate.snapshot import Route
from toolgate.wire import jsonrpc, mcp

Say = Callable[[str, Raw], None]
"""Gets a notification's method and its parameters."""

MOST_WATCHED = 1024  # resources of one client


class Subscriber:
    """`lists` are the notifications of changed lists that the client wants; `client` may become another."""

    def __init__(self, gateway: Gateway, route: Route, client: Client, say: Say, lists: Collection[str]) -> None:
        self.client = client
        self._gateway = gateway
        self._route = route
        self._say = say
        self._lists = lists
        self._watched: dict[str, Call] = {}  # by the client's own name for it
        self._stop = gateway.events.listen(self._hear)

    async def watch(self, uri: str) -> None:
        """Hear when this resource changes. Raises `Fault`."""
        if uri in self._watched:
            return
        if len(self._watched) >= MOST_WATCHED:
            raise Fault("INVALID_REQUEST", f"More than {MOST_WATCHED} resources are watched; unsubscribe from some")
        call = await self._gateway.watch(uri, self._route, self.client)
        if uri in self._watched:  # the same was asked twice at once
            await self._gateway.unwatch(call)
        self._watched.setdefault(uri, call)

    async def unwatch(self, uri: str) -> None:
        call = self._watched.pop(uri, None)
        if call:
            await self._gateway.unwatch(call)

    async def close(self) -> None:
        self._stop()
        for uri in list(self._watched):
            await self.unwatch(uri)

    def _hear(self, event: Event) -> None:
        if not self._gateway.concerns(event, self._route, self.client):
            return
        if event.kind == "list_changed":
            for method in self._lists:
                if set(event.lists) & set(mcp.LIST_CHANGED[method]):
                    self._say(method, jsonrpc.EMPTY_OBJECT)
        elif event.kind == "updated" and self._watches(event):
            uri = self._route.surface.expose(event.server, event.uri)
            params = jsonrpc.with_members(event.params, {"uri": jsonrpc.encode(uri)})
            self._say(mcp.UPDATED, Raw(params))
        elif event.kind == "elicited":
            self._say(mcp.ELICITED, event.params)
        elif event.kind == "log":
            self._say(mcp.LOGGED, event.params)

    def _watches(self, event: Event) -> bool:
        """A server may tell of a part of what was asked for (spec 2025-11-25: server/resources, "Subscriptions")."""
        return any(
            call.server == event.server and (event.uri == call.target or event.uri.startswith(call.target))
            for call in self._watched.values()
        )
