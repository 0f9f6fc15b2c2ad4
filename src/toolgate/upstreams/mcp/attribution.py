"""Whose question is it? The one place where a server's question finds the call that it belongs to.

The rule this file keeps: a question never reaches a principal or a session other than the one whose call caused it
(architecture.md, "Whose question is it?").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

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


def owner_of(
    origin: int | None, in_flight: Mapping[int, OpenRequest], given_up: Iterable[OpenRequest] = ()
) -> OpenRequest | None:
    """The request that a question belongs to, or None where that is not certain.

    With `origin`, the question came on that request's own stream. Without, on a pipe that all share: then it belongs
    to the newest call in flight, provided that all of them are of one principal and session, and so are those that
    were given up a moment ago: the server may not have heard of that when it asked.
    """
    if origin is not None:
        return in_flight.get(origin)
    calls = askers(in_flight.values())
    return calls[-1] if calls and is_certain((*calls, *askers(given_up))) else None


def askers(requests: Iterable[OpenRequest]) -> list[OpenRequest]:
    """Those that may have made the server ask without saying for which task. Looking at a task makes it ask nothing,
    and a task says that it asks (2025-11-25: basic/utilities/tasks), unless nobody else can have."""
    asking = [request for request in requests if request.call and request.call.method not in mcp.TASK_LOOKS]
    calls = [request for request in asking if request.call and request.call.method != mcp.TASK_RESULT]
    return calls or asking


def that_ask(requests: Mapping[int, OpenRequest]) -> dict[int, OpenRequest]:
    """The same with their numbers. There may be thousands: none is compared with the others."""
    asking = set(map(id, askers(requests.values())))
    return {number: request for number, request in requests.items() if id(request) in asking}


def waiting_for(task: str, in_flight: Mapping[int, OpenRequest]) -> OpenRequest | None:
    """The request that waits for this task's result: on it the task asks (spec 2025-11-25: basic/utilities/tasks)."""
    found = (request for request in in_flight.values() if request.call and request.call.method == mcp.TASK_RESULT)
    return next((request for request in found if request.call and request.call.target == task), None)


def tasks_waited_for(in_flight: Iterable[OpenRequest]) -> set[str]:
    """The tasks whose results somebody waits for."""
    return {request.call.target for request in in_flight if request.call and request.call.method == mcp.TASK_RESULT}


def is_certain(requests: Iterable[OpenRequest]) -> bool:
    """Whether a question that is of one of these is of one client, whichever it is."""
    first = None
    for call in [request.call for request in requests if request.call]:  # for each message, perhaps of thousands
        first = first or call.client
        if call.client is not first and call.client.identity != first.identity:
            return False
    return first is not None


def heir_of(call: Call, in_flight: Mapping[int, OpenRequest]) -> OpenRequest | None:
    """Who takes over a question when the call that it was put to has ended: the same client's newest other call."""
    calls = askers(in_flight.values())
    same = [each for each in calls if each.call and each.call.client.identity == call.client.identity]
    return same[-1] if same else None
