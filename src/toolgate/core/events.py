"""Fan-out of events: what servers say of themselves, told to everyone who listens.

A listener decides for itself what concerns its client; it must not wait, and is told nothing after it has stopped.
The rules this file keeps: of what is watched only who watches it is asked, and of what is one client's only that one;
where there are many, they are told in portions, in turns of servers; each hears all events of a server in their order,
but what still waits and is said again is told once; and a server that says more than is told is not read meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from time import perf_counter
from typing import Final, TypeAlias

from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.inflow import MOMENT
from toolgate.core.model import Client, Event

MOST_OF_ONE = 4096  # streams of one principal
PORTION = 32  # listeners that are told in one go, in a moment at most
MOST_WAITING = 64  # events of one server beyond which no more are read of it until half of them are told
MOST_PARTS = 64  # of a URI: of what happens to it hears who watches one of the first, or all of it
MOST_KEPT = 1024  # of one server; what it has said already, and is beyond that, is dropped

log = logging.getLogger(__name__)

_WATCHED: Final = {"updated": "resources", "task": "tasks"}  # what those watch whom such an event may concern
_SAID_AGAIN: Final = ("updated", "list_changed")  # these mean no more when they are told twice
_APART = ":/?#"  # what sets the parts of a URI apart
_apart = re.compile(f"[{_APART}]")


def every_list(server: str = "") -> Event:
    """All lists of a server, or of all servers, may be others now."""
    return Event(server, "list_changed", lists=tuple(mcp.LIST_OF_KIND))


def is_part(uri: str, whole: str) -> bool:
    """`file:///a/b` is of `file:///a`, `file:///ab` is not."""
    return _may_end(uri, len(whole)) and uri.startswith(whole)


def _may_end(uri: str, length: int) -> bool:
    return any(sign in _APART for sign in uri[length - 1 : length + 1])


class _Watchers:
    """Who watches what of one server, of one kind."""

    def __init__(self) -> None:
        self.of: dict[str, Counter[int]] = {}  # listeners by what they watch, under so many names
        self._lengths: Counter[int] = Counter()  # of all that is watched

    def add(self, target: str, number: int) -> None:
        if target not in self.of:
            self.of[target] = Counter()
            self._lengths[len(target)] += 1
        self.of[target][number] += 1

    def remove(self, target: str, number: int) -> None:
        theirs = self.of[target]
        theirs[number] -= 1
        if not theirs[number]:
            del theirs[number]
        if not theirs:
            del self.of[target]
            self._lengths[len(target)] -= 1
            if not self._lengths[len(target)]:
                del self._lengths[len(target)]

    def of_part(self, uri: str) -> Iterator[Counter[int]]:
        """Those who watch this, or what it is a part of."""
        lengths = {len(uri)}
        for sign in islice(_apart.finditer(uri), MOST_PARTS):
            lengths |= {sign.start(), sign.end()}
        for length in lengths & self._lengths.keys():
            if found := self.of.get(uri[:length]):
                yield found


_Concerned: TypeAlias = "list[Collection[int]]"
_Key: TypeAlias = tuple[str, str, str, str, "tuple[str, str] | None"]


class _Telling:
    """An event that waits. `before`: who came later hears nothing of it. `concerned`: None where it may be anybody."""

    numbers: deque[int] | None = None  # of the listeners that are still to be told, from when the first are

    def __init__(self, event: Event, before: int, concerned: _Concerned | None) -> None:
        self.event = event
        self.before = before
        self.concerned = concerned


class _Sender:
    """A server of whose events some wait."""

    waiting = 0
    room: asyncio.Future[None] | None = None  # while it is not to be read
    has_lost = False  # some of them


class Listening:
    """How one client is told: of what can be watched it hears what it watches, of what is one client's, its own."""

    __slots__ = ("_events", "_identity", "_number", "_whose")

    def __init__(self, events: Events, number: int, whose: str, identity: tuple[str, str]) -> None:
        self._events = events
        self._number = number
        self._whose = whose
        self._identity = identity
        events.tells(identity, number)

    def identify(self, identity: tuple[str, str]) -> None:
        """It is known by another one now: see `Client.identity`."""
        if identity != self._identity:
            self._leave()
            self._identity = identity
            self._events.tells(identity, self._number)

    def _leave(self) -> None:
        own = self._events.own.get(self._identity)
        if isinstance(own, dict):
            own.pop(self._number, None)
        if not own or own == self._number:
            self._events.own.pop(self._identity, None)

    def watch(self, server: str, kind: str, target: str) -> None:
        self._events.watchers.setdefault((server, kind), _Watchers()).add(target, self._number)

    def unwatch(self, server: str, kind: str, target: str) -> None:
        """End what `watch` began."""
        watchers = self._events.watchers[server, kind]
        watchers.remove(target, self._number)
        if not watchers.of:
            del self._events.watchers[server, kind]

    def stop(self) -> None:
        """Hear nothing more. What it watches it has to end itself."""
        self._leave()
        self._events.stop(self._number, self._whose)


class Events:
    """Everyone who listens, in the order that they came."""

    def __init__(self) -> None:
        self.watchers: dict[tuple[str, str], _Watchers] = {}  # by server and kind
        # Listeners by the client that they tell: nearly all have one, and there are thousands.
        self.own: dict[tuple[str, str], int | dict[int, None]] = {}
        self._listeners: dict[int, Callable[[Event], object]] = {}
        self._hear_all: dict[int, None] = {}  # of them
        self._number = 0
        self._counted: Counter[str] = Counter()  # of them, by principal
        self._waiting: dict[str, deque[_Telling]] = {}  # by server: first the one whose turn it is
        self._said: dict[_Key, _Telling] = {}  # the newest of each, while it waits
        self._senders: dict[str, _Sender] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def listen(self, listener: Callable[[Event], object]) -> Callable[[], None]:
        """Tell `listener` of every event from now on; call what is returned to stop that."""
        number = self._add(listener, "")
        self._hear_all[number] = None
        return lambda: self.stop(number, "")

    def listen_for(self, listener: Callable[[Event], object], client: Client, whose: str = "") -> Listening:
        """Tell `listener` of what may concern this client. `whose` it is where nothing else bounds how many there are:
        see `Principal.counted_as`. Raises `Fault` where these are too many."""
        if whose and self._counted[whose] >= MOST_OF_ONE:
            message = f"Too many subscriptions: a client may have {MOST_OF_ONE:,} streams in total"
            raise Fault("INVALID_REQUEST", message, reach="not_sent", hint="end streams that are no longer needed")
        return Listening(self, self._add(listener, whose), whose, client.identity)

    def _add(self, listener: Callable[[Event], object], whose: str) -> int:
        self._number += 1
        self._listeners[self._number] = listener
        self._counted[whose] += 1
        return self._number

    def tells(self, identity: tuple[str, str], number: int) -> None:
        """This listener is one of a client that is known by this identity."""
        own = self.own.setdefault(identity, number)
        if isinstance(own, dict):
            own[number] = None
        elif own != number:
            self.own[identity] = {own: None, number: None}

    def stop(self, number: int, whose: str) -> None:
        self._hear_all.pop(number, None)
        if self._listeners.pop(number, None):
            self._counted[whose] -= 1
            if not self._counted[whose]:
                del self._counted[whose]

    def tell(self, event: Event) -> asyncio.Future[None] | None:
        """Tell everyone whom it may concern: the first ones at once, unless others are being told of something still.
        What is returned is done when there is room for more of its server. Never raises."""
        concerned = self._concerned(event)
        if not self._is_heard(concerned):
            return None
        same = self._said.get(_key(event))
        if same and same.numbers is None and same.event == event:
            same.before, same.concerned = self._number, concerned
        else:
            self._put(_Telling(event, self._number, concerned))
        return self._room(event.server)

    def is_for_anybody(self, event: Event) -> bool:
        """What is not need not be looked at: a server may say it without end."""
        return self._is_heard(self._concerned(event))

    def _is_heard(self, concerned: _Concerned | None) -> bool:
        return concerned is None or bool(concerned or self._hear_all)

    def _concerned(self, event: Event) -> _Concerned | None:
        if kind := _WATCHED.get(event.kind):
            watchers = self.watchers.get((event.server, kind))
            return list(watchers.of_part(event.uri)) if watchers else []
        if event.whose:
            own = self.own.get(event.whose, {})
            return [own if isinstance(own, dict) else (own,)]
        return None

    def _put(self, telling: _Telling) -> None:
        event = telling.event
        sender = self._senders.setdefault(event.server, _Sender())
        if sender.waiting >= MOST_KEPT and event.kind != "list_changed":
            if not sender.has_lost:
                log.warning("%s sends events faster than they can be delivered; some are lost", event.server)
            sender.has_lost = True
            return
        sender.waiting += 1
        self._waiting.setdefault(event.server, deque()).append(telling)
        if event.kind in _SAID_AGAIN:
            self._said[_key(event)] = telling
        if len(self._waiting) == sender.waiting == 1:
            self._tell_some()

    def _room(self, server: str) -> asyncio.Future[None] | None:
        sender = self._senders.get(server)
        if sender and sender.waiting > MOST_WAITING and not sender.room:
            sender.room = asyncio.get_running_loop().create_future()
        return sender.room if sender else None

    def _tell_some(self) -> None:
        if self._waiting:
            self._tell_portion()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _tell_portion(self) -> None:
        server, queue = next(iter(self._waiting.items()))
        telling = queue[0]
        if telling.numbers is None:
            concerned = telling.concerned
            telling.numbers = deque(
                self._listeners if concerned is None else sorted({*self._hear_all}.union(*concerned))
            )
        until = perf_counter() + MOMENT
        for _ in range(min(PORTION, len(telling.numbers))):
            number = telling.numbers.popleft()
            if number <= telling.before and (listener := self._listeners.get(number)):
                self._tell_one(listener, telling.event)
            if perf_counter() > until:
                break
        del self._waiting[server]
        if not telling.numbers:
            queue.popleft()
        if queue:
            self._waiting[server] = queue
        if not telling.numbers:
            self._told(telling)

    def _tell_one(self, listener: Callable[[Event], object], event: Event) -> None:
        try:
            listener(event)
        except Exception:  # the pump: one listener's bug is not the others'
            log.exception("a listener failed to handle the event %r", event)

    def _told(self, telling: _Telling) -> None:
        event = telling.event
        if self._said.get(_key(event)) is telling:
            del self._said[_key(event)]
        sender = self._senders[event.server]
        sender.waiting -= 1
        if sender.room and sender.waiting <= MOST_WAITING // 2:
            sender.room.set_result(None)
            sender.room = None
        if not sender.waiting:
            del self._senders[event.server]


def _key(event: Event) -> _Key:
    """What it is about: events that are equal have the same."""
    return event.server, event.kind, event.scope, event.uri, event.whose
