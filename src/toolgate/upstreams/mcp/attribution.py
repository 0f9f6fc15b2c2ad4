"""Whose question is it? The one place where a server's question finds the call that it belongs to.

The rule this file keeps: a question never reaches a principal or a session other than the one whose call caused it
(architecture.md, "Whose question is it?").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import NamedTuple, TypeAlias

import msgspec

from toolgate.core import mcp
from toolgate.core.clock import Clock
from toolgate.core.exchange import Exchange
from toolgate.core.model import Call, Client
from toolgate.eras.calls import Headers

MOST_RUNNING = 16 * 1024  # tasks of one connection that are known to run; with more, nobody knows whose they are
LOOKED_AT = 8  # of the tasks of others, when it matters whether they are over
LEAST_KNOWN = 64  # requests that are over, until which they may be kept by their ids


Identity: TypeAlias = tuple[str, str]
"""See `Client.identity`."""


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


class Askers:
    """Those of a connection's requests that may have made its server ask without saying for which task, by whose they
    are: all calls; or, where there is none, those that wait for a task's result, since a task says that it asks
    (2025-11-25: basic/utilities/tasks). Looking at a task makes it ask nothing.

    There may be thousands of them, and a message of the server for each: what is known is kept. It is brought up to
    date when somebody wants to know, since most calls begin and end without that.
    """

    def __init__(self, requests: dict[int, OpenRequest]) -> None:
        self._requests = requests  # the newest last; an id is never used again
        self._known: set[int] = set()  # ids, also of some that are over
        self._calls: _Ids = {}
        self._results: _Ids = {}

    def whose(self) -> list[Identity]:
        """By `Client.identity`; two of them where there are more."""
        self._update()
        return self._whose(self._calls) or self._whose(self._results)

    def newest(self, whose: Identity) -> OpenRequest | None:
        ids = self._of(whose)
        return self._requests[ids[-1]] if ids else None

    def all(self, whose: Identity) -> list[OpenRequest]:
        return [self._requests[id] for id in self._of(whose) if id in self._requests]

    def by_id(self) -> dict[int, OpenRequest]:
        self._update()
        groups = self._calls if self._whose(self._calls) else self._results
        asking = {id for ids in groups.values() for id in ids}
        return {id: request for id, request in self._requests.items() if id in asking}

    def waiting_for(self, task: str) -> OpenRequest | None:
        """The request that waits for this task's result: on it the task asks (spec as above)."""
        return next((each for each in self._that_wait() if each.call and each.call.target == task), None)

    def tasks_waited_for(self) -> set[str]:
        """The tasks whose results somebody waits for."""
        return {each.call.target for each in self._that_wait() if each.call}

    def _that_wait(self) -> Iterator[OpenRequest]:
        self._update()
        ids = (id for ids in self._results.values() for id in ids)
        return (self._requests[id] for id in ids if id in self._requests)

    def _of(self, whose: Identity) -> list[int]:
        self._update()
        ids = (self._calls if self._whose(self._calls) else self._results).get(whose, [])
        return ids if self._is_any_left(ids) else []

    def _update(self) -> None:
        if len(self._known) > 2 * len(self._requests) + LEAST_KNOWN:
            self._known, self._calls, self._results = set(), {}, {}
        for id in reversed([*takewhile(lambda id: id not in self._known, reversed(self._requests))]):
            self._known.add(id)
            call = self._requests[id].call
            if call and call.method not in mcp.TASK_LOOKS:
                groups = self._results if call.method == mcp.TASK_RESULT else self._calls
                groups.setdefault(call.client.identity, []).append(id)

    def _whose(self, groups: _Ids) -> list[Identity]:
        left, gone = list[Identity](), list[Identity]()
        for whose, ids in groups.items():
            (left if self._is_any_left(ids) else gone).append(whose)
            if len(left) > 1:
                break
        for whose in gone:
            del groups[whose]
        return left

    def _is_any_left(self, ids: list[int]) -> bool:
        """Those at the end that are over are forgotten."""
        while ids and ids[-1] not in self._requests:
            ids.pop()
        return bool(ids)


class RunningTasks:
    """Whose tasks a server may be at work on. What it says without a word of a task may be of any of these: by the
    specification (2025-11-25: basic/utilities/tasks) it says which, but its libraries let it say nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clients: dict[str, Client] = {}  # by id
        self._lost: set[str] = set()
        self._until: dict[Identity, dict[str, float]] = {}  # the ids of each client
        self._uncounted_until = 0.0

    def add(self, id: str, client: Client, lasts: float) -> None:
        """It runs for `lasts` seconds at most."""
        self.over(id)
        until = self._clock.now() + lasts
        if len(self._clients) >= MOST_RUNNING:
            self._uncounted_until = max(self._uncounted_until, until)
            return
        self._clients[id] = Client(client.principal, client.session)
        self._until.setdefault(client.identity, {})[id] = until

    def over(self, id: str) -> None:
        """It has ended, whether well or not."""
        client = self._clients.pop(id, None)
        if client:
            self._lost.discard(id)
            theirs = self._until[client.identity]
            del theirs[id]
            if not theirs:
                del self._until[client.identity]

    def lost(self, id: str) -> None:
        """It was cancelled, or its server does not know it any more: the work for it may go on all the same, as long as
        it could have, and nobody will hear of its end."""
        if id in self._clients:
            self._lost.add(id)

    def to_look_at(self, id: str) -> Client | None:
        """Whose it is, where its server can tell what has become of it."""
        return None if id in self._lost else self._clients.get(id)

    def of_others(self, whose: Identity) -> list[str] | None:
        """Some tasks of clients that are not this one; None: there are none. Empty: there may be some, of which nothing
        is known."""
        if not self._until and not self._uncounted_until:
            return None
        now = self._clock.now()
        for client in [each for each in islice(self._until, 2) if each != whose]:
            for id, until in [*islice(self._until[client].items(), LOOKED_AT)]:
                if until <= now:
                    self.over(id)
        others = next((ids for client, ids in self._until.items() if client != whose), None)
        if others is not None:
            return [*islice(others, LOOKED_AT)]
        return [] if now < self._uncounted_until else None


def owner_of(
    origin: int | None,
    in_flight: Mapping[int, OpenRequest],
    askers: Askers,
    given_up: Askers,
    running: RunningTasks,
) -> OpenRequest | None:
    """The request that a question belongs to, or None where that is not certain. `askers` are of those in flight.

    With `origin`, the question came on that request's own stream. Without, on a pipe that all share: then it belongs
    to the newest call in flight, provided that all of them are of one principal and session, and so are those that
    were given up a moment ago, since the server may not have heard of that when it asked, and the tasks that run.
    """
    if origin is not None:
        return in_flight.get(origin)
    live, gone = askers.whose(), given_up.whose()
    is_certain = len(live) == 1 and gone in ([], live) and running.of_others(live[0]) is None
    return askers.newest(live[0]) if is_certain else None


def is_certain(requests: Iterable[OpenRequest]) -> bool:
    """Whether a question that is of one of these is of one client, whichever it is."""
    first = None
    for call in [request.call for request in requests if request.call]:  # for each message, perhaps of thousands
        first = first or call.client
        if call.client is not first and call.client.identity != first.identity:
            return False
    return first is not None


def heir_of(call: Call, askers: Askers) -> OpenRequest | None:
    """Who takes over a question when the call that it was put to has ended: the same client's newest other call."""
    return askers.newest(call.client.identity)


_Ids: TypeAlias = dict[Identity, list[int]]
"""Of requests, by `Client.identity`, the newest last."""
