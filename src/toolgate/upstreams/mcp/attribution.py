"""Whose question is it? The one place where a server's question finds the call that it belongs to.

The rule this file keeps: a question never reaches a principal or a session other than the one whose call caused it
(architecture.md, "Whose question is it?").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from toolgate.core import mcp
from toolgate.core.exchange import Exchange
from toolgate.core.model import Call, Client
from toolgate.eras.calls import Headers


class Unsent(NamedTuple):
    """A message that waits. `was_sent`: something of its call had been before."""

    id: int
    data: bytes
    headers: Headers
    was_sent: bool


class OpenRequest(msgspec.Struct):
    """A request of ours that waits for its answer; `call` is None for the gateway's own (lists, probes)."""

    exchange: Exchange
    call: Call | None
    is_long: bool = False  # it goes on until somebody ends it
    seen: int | None = None  # the server's signs of life before it
    is_sent: bool = False
    unsent: Unsent | None = None  # what is to be sent when its carrier takes it
    is_held: bool = False  # whoever has begun it keeps the connection up until it is over

    def forgotten(self) -> OpenRequest:
        """The same, with no more of its call than whose it is: it is over, and may have been large."""
        if not self.call:
            return self
        client = Client(self.call.client.principal, self.call.client.session)
        return msgspec.structs.replace(self, call=Call(self.call.method, "", client))


class OpenRequests(dict[int, OpenRequest]):
    """Requests of one connection by their ids, the newest last. Those that may have made the server ask are kept by
    whose they are, too: there may be thousands, and for each a message that belongs to somebody."""

    def __init__(self, requests: Mapping[int, OpenRequest] | None = None) -> None:
        super().__init__()
        self._calls: _ByClient = {}
        self._results: _ByClient = {}
        for id, request in (requests or {}).items():
            self.put(id, request)

    def put(self, id: int, request: OpenRequest) -> None:
        self[id] = request
        if (kind := self._kind(request)) is not None and request.call:
            whose = request.call.client.identity
            if whose in kind:
                kind[whose][id] = request
            else:
                kind[whose] = {id: request}

    def take(self, id: int) -> OpenRequest | None:
        request = self.pop(id, None)
        if request and (kind := self._kind(request)) is not None and request.call:
            whose = request.call.client.identity
            if len(kind[whose]) > 1:
                del kind[whose][id]
            else:
                del kind[whose]
        return request

    def _kind(self, request: OpenRequest) -> _ByClient | None:
        if not request.call or request.call.method in mcp.TASK_LOOKS:
            return None
        return self._results if request.call.method == mcp.TASK_RESULT else self._calls

    @property
    def askers(self) -> _ByClient:
        """Those that may have made the server ask without saying for which task, by whose they are. Looking at a task
        makes it ask nothing, and a task says that it asks (2025-11-25: basic/utilities/tasks), unless nobody else can
        have."""
        return self._calls or self._results

    def that_ask(self) -> dict[int, OpenRequest]:
        """The same by their ids, the newest last."""
        asking = {id for each in self.askers.values() for id in each}
        return {id: request for id, request in self.items() if id in asking}

    def waiting_for(self, task: str) -> OpenRequest | None:
        """The request that waits for this task's result: on it the task asks (spec as above)."""
        found = (request for each in self._results.values() for request in each.values())
        return next((request for request in found if request.call and request.call.target == task), None)

    def tasks_waited_for(self) -> set[str]:
        """The tasks whose results somebody waits for."""
        found = [request for each in self._results.values() for request in each.values()]
        return {request.call.target for request in found if request.call}


def owner_of(origin: int | None, in_flight: OpenRequests, given_up: OpenRequests) -> OpenRequest | None:
    """The request that a question belongs to, or None where that is not certain.

    With `origin`, the question came on that request's own stream. Without, on a pipe that all share: then it belongs
    to the newest call in flight, provided that all of them are of one principal and session, and so are those that
    were given up a moment ago: the server may not have heard of that when it asked.
    """
    if origin is not None:
        return in_flight.get(origin)
    live, gone = in_flight.askers, given_up.askers
    if len(live) != 1 or (gone and live.keys() != gone.keys()):
        return None
    (calls,) = live.values()
    return calls[next(reversed(calls))]


def is_certain(requests: Iterable[OpenRequest]) -> bool:
    """Whether a question that is of one of these is of one client, whichever it is."""
    first = None
    for call in [request.call for request in requests if request.call]:  # for each message, perhaps of thousands
        first = first or call.client
        if call.client is not first and call.client.identity != first.identity:
            return False
    return first is not None


def heir_of(call: Call, in_flight: OpenRequests) -> OpenRequest | None:
    """Who takes over a question when the call that it was put to has ended: the same client's newest other call."""
    same = in_flight.askers.get(call.client.identity)
    return same[next(reversed(same))] if same else None


_ByClient: TypeAlias = dict[tuple[str, str], dict[int, OpenRequest]]
"""By `Client.identity`, then by the ids of the requests, the newest last."""
