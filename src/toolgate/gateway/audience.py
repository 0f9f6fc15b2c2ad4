"""Who hears of what: which events concern a client, and who is told that its lists are others now.

The rule this file keeps: what a client may do now decides, whatever it has asked to be told of before; and who may not
know of a server does not hear that something has happened to it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from toolgate.auth.access import OPERATOR, Access, Rules
from toolgate.core.events import Events, every_list
from toolgate.core.model import Client, Event
from toolgate.core.services import Swap
from toolgate.gateway.snapshot import Route, Snapshot


class Audience:
    """Of all clients, by what they may do."""

    def __init__(self, access: Access, events: Events) -> None:
        self._access = access
        self._events = events

    def concerns(self, event: Event, route: Route, client: Client) -> bool:
        """Whether an event is of a server and a connection that this client may know of."""
        if not event.server:  # of the gateway itself
            is_its = event.clients is None or client.principal.client in event.clients
            return is_its and event.whose in (None, client.identity)
        if event.server not in route.upstreams or not self._may_hear(event, client):
            return False
        if not event.is_for(client):
            return False
        return route.upstreams[event.server].scope(client) == event.scope

    def _may_hear(self, event: Event, client: Client) -> bool:
        rules = self._access.rules(client.principal)
        if rules is None:
            return True
        if event.kind == "updated":
            return rules.verdict(event.server, "resources", event.uri) != "off"
        return rules.sees(event.server)

    def adopt(self, before: Snapshot, now: Snapshot, use_access: Swap) -> None:
        """Go by what clients may do in another configuration. They hear that their lists are others: by that, or for
        reasons that no event of one server brings to its clients."""
        was_open, known = self._access.is_open, self._access.clients
        use_access()
        is_open, clients = self._access.is_open, self._access.clients
        servers, everybodys = _unheard(before, now), every_list()
        is_shown_otherwise = not now.config.lists_as(before.config)
        if is_open != was_open or is_shown_otherwise or (is_open and servers):
            self._events.tell(everybodys)
            return
        told = {id for id in {**known, **clients} if _sees_others(known.get(id), clients.get(id), servers)}
        if told or servers:
            self._events.tell(msgspec.structs.replace(everybodys, clients=frozenset((*told, OPERATOR))))


def _unheard(before: Snapshot, now: Snapshot) -> Collection[str]:
    """The servers of which clients hear by no event of theirs: they are gone, or who would hear of them has a
    connection of its own."""
    fresh = [id for id, upstream in now.upstreams.items() if before.upstreams.get(id) is not upstream]
    gone = before.upstreams.keys() - now.upstreams.keys()
    return {*gone, *(id for id in fresh if now.servers[id].scope != "shared")}


def _sees_others(before: Rules | None, now: Rules | None, servers: Collection[str]) -> bool:
    if not before or not now or (before.print, before.surface) != (now.print, now.surface):
        return True
    return any(now.sees(server) for server in servers)
