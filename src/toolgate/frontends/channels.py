"""Streams of a session that outlast the connections that carry them (spec 2025-11-25: basic/transports).

A channel that is open gives its events ids, and what it says is kept for a while, so that a client whose connection
broke hears the rest on another. The rules this file keeps: an id names its channel; a message is on one channel only;
a channel goes on for who has the rights that it was begun with;
what is kept is bounded in bytes, events and time, for each session and for all together, the oldest goes first; what
was carried to its end is kept for a moment only; and nothing is kept before a stream begins.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from toolgate.core.clock import Clock, waited, wake
from toolgate.core.large import Joined
from toolgate.core.model import Principal
from toolgate.frontends import ways
from toolgate.frontends.unread import NOTES_KEPT
from toolgate.frontends.ways import Way

Kind: TypeAlias = Literal["c", "s"]  # a call's stream, or the session's own

MOST_EVENTS = 1000  # of a session
MOST_BYTES = 8 * 1024 * 1024  # of a session, with what keeping takes
MOST_TOGETHER = 32 * 1024 * 1024  # of all sessions
KEPT_FOR = 300.0  # seconds
CARRIED_FOR = 30.0  # seconds that a stream is kept whose end was sent, in case that it did not arrive
EVENT, CHANNEL = 250, 1000  # bytes that keeping takes, about, beside the message
MOST_PENDING_EVENTS = 100


class Rights(msgspec.Struct, frozen=True):
    """What somebody may do: who it is, as it has shown; and what the configuration says of that one, and of scopes."""

    principal: Principal = Principal()
    rules: str = ""  # see `Rules.print`
    steps: Mapping[str, Any] = {}  # up: the scopes that tools need beside the usual ones

    def cover(self, before: Rights) -> bool:
        """Whether these are, of the same one, no less than those were."""
        is_the_same = self.rules == before.rules and self.steps == before.steps
        return is_the_same and shows_no_less(self.principal, before.principal)


def shows_no_less(now: Principal, before: Principal) -> bool:
    """Whether somebody may know what was for the same one before: as the same configured client, with no fewer scopes.
    Who comes with a key has none, and needs none."""
    if now is before:
        return True
    has_scopes = now.scopes is None or (before.scopes is not None and before.scopes <= now.scopes)
    return now.client == before.client and has_scopes


class Item(NamedTuple):
    """A message on its way, with its event's id, which is empty before the channel is open."""

    id: str
    message: bytes | Joined


class Taken(Exception):
    """The channel is carried by another connection now, or by none."""


_NOBODYS = Rights()
_NOTHING: deque[Item] = deque(maxlen=0)  # on its way: nothing yet, or nobody carries it


class Channel:
    """Messages on their way to a client, for one reader at a time. `can_ask` as `session.Stream` has it; `rights` are
    those that it was begun with.

    The reader of the first turn need not ask for it; each later one takes it from the one before."""

    last: bytes | Joined = b""  # the message that it ended with
    error: Exception | None = None  # that made it so
    has_ended = False
    is_stream = False  # also where its answer comes at once
    kept = 0  # events in the archive
    name = ""
    _replay_buffer: ReplayBuffer | None = None
    _number = 0
    _waiting = 0  # bytes
    _turn = 1  # of the reader; 0 while there is none
    _turns = 1
    _reader: asyncio.Future[None] | None = None
    on_message: Callable[[], object] | None = None  # called for each that is put in

    def __init__(
        self, can_stream: bool, can_ask: bool, headers: Mapping[str, str] | None = None, rights: Rights = _NOBODYS
    ) -> None:
        self.headers: Mapping[str, str] = headers or {}
        self.rights = rights
        self.can_stream = can_stream
        self.can_ask = can_ask
        self._items: deque[Item] = _NOTHING  # until there is something

    def __repr__(self) -> str:
        return f"<Channel {self.name or 'not open'} {self._number} said, {len(self._items)} waiting>"

    @property
    def principal(self) -> Principal:
        return self.rights.principal

    @property
    def way(self) -> Way:
        return ways.EVENT if self.is_stream or self._replay_buffer else ways.BODY

    @property
    def is_carried(self) -> bool:
        return self._turn > 0

    @property
    def is_of_session(self) -> bool:
        return is_of_session(self.name)

    @property
    def has_items(self) -> bool:
        return bool(self._items)

    # What is said on it.

    def send(self, message: bytes) -> None:
        if self.can_stream and not self.has_ended:
            self._put(message)

    def note(self, message: bytes) -> None:
        """Send what may be lost: a client that reads too slowly goes without."""
        if self._waiting < NOTES_KEPT:
            self.send(message)

    def end(self, last: bytes | Joined = b"") -> None:
        """`last` is the answer, which an open channel says like all else."""
        if self.has_ended:
            return
        self.last = last
        if self._replay_buffer and last:
            self._put(last)
            self.last = b""
        self.has_ended = True
        self.headers = {}
        wake(self._reader)
        if self._replay_buffer:
            self._replay_buffer.settle(self)

    def failed(self, error: Exception) -> None:
        if not self._replay_buffer:  # else nobody looks at it any more, and it holds all that it came through
            self.error = error

    # Who carries it.

    def open(self, replay_buffer: ReplayBuffer, kind: Kind) -> str:
        """From now on it gives ids and is kept. Returns the id of its beginning."""
        self.name = replay_buffer.enter(self, kind)
        self._replay_buffer = replay_buffer
        waiting, self._items, self._waiting = self._items, deque(), 0
        for item in waiting:
            self._put(item.message)
        if self.has_ended and self.last:
            self._put(self.last)
        self.last, self.error = b"", None
        return f"{self.name}.0"

    def take(self, after: int) -> int:
        """Carry an open channel on from the event of this number. Returns the reader's turn; the one before has lost
        its own."""
        assert self._replay_buffer
        self._items = deque(self._replay_buffer.after(self.name, after))
        self._waiting = sum(len(item.message) for item in self._items)
        self._turns += 1
        self._turn = self._turns
        wake(self._reader)
        return self._turn

    def leave(self, turn: int) -> None:
        """The connection of this turn is gone. What is said meanwhile is kept."""
        if self._turn == turn:
            self._turn = 0
            self._items, self._waiting = _NOTHING, 0
            wake(self._reader)
            if self._replay_buffer:
                self._replay_buffer.settle(self)

    def carried(self, turn: int) -> None:
        """The connection of this turn has carried it to its end."""
        if self._turn == turn and self._replay_buffer:
            self._replay_buffer.carried(self)

    async def ready(self, clock: Clock, patience: float) -> None:
        """Until there is a message, or the end. Raises `TimeoutError` after `patience` seconds."""
        if self._items or self.has_ended:
            return
        self._reader = asyncio.get_running_loop().create_future()
        await waited(self._reader, clock, patience)

    async def get(self, clock: Clock, patience: float, turn: int) -> Item | None:
        """The next message, None at the end. Raises `TimeoutError` after `patience` seconds, `Taken` where the turn is
        over."""
        if self._turn == turn:
            await self.ready(clock, patience)
        if self._turn != turn:
            raise Taken
        if not self._items:
            return None
        item = self._items.popleft()
        self._waiting -= len(item.message)
        return item

    def _put(self, message: bytes | Joined) -> None:
        item = Item("", message)
        if self._replay_buffer:
            self._number += 1
            item = self._replay_buffer.keep(self, self._number, message)
        if self.is_carried:
            if self._items is _NOTHING:
                self._items = deque()
            self._items.append(item)
            self._waiting += len(message)
            wake(self._reader)
        if self.on_message:
            self.on_message()


class _Kept(NamedTuple):
    at: float
    channel: Channel
    number: int
    message: bytes | Joined


class ReplayBuffers:
    """Those of all sessions, which together are bounded. Nobody loses anything within a fair share: `MOST_TOGETHER` by
    the principals that have any."""

    def __init__(self, clock: Clock) -> None:
        self.bytes = 0
        self._clock = clock
        self._bytes: Counter[str] = Counter()  # by principal
        self._of: dict[str, set[ReplayBuffer | PendingEvents]] = {}  # by principal

    def open(self, whose: str) -> ReplayBuffer:
        """One for another session, which closes it. `whose` it is: see `Principal.counted_as`."""
        replay_buffer = ReplayBuffer(self._clock, self, whose)
        self._of.setdefault(whose, set()).add(replay_buffer)
        return replay_buffer

    def pending(self, whose: str) -> PendingEvents:
        """What another session cannot be told yet. It counts as what is kept of streams does."""
        pending_events = PendingEvents(self, whose)
        self._of.setdefault(whose, set()).add(pending_events)
        return pending_events

    def grew(self, whose: str, by: int) -> None:
        """One of this principal's is so many bytes larger, or smaller."""
        self.bytes += by
        self._bytes[whose] += by
        if by > 0 and self.bytes > MOST_TOGETHER:
            self._make_room()

    def closed(self, replay_buffer: ReplayBuffer | PendingEvents) -> None:
        whose = replay_buffer.whose
        self.grew(whose, -replay_buffer.bytes)
        self._of[whose].discard(replay_buffer)
        if not self._of[whose]:
            del self._of[whose], self._bytes[whose]

    def _make_room(self) -> None:
        """Who has most gives way first, and its largest session loses half, until there is some room again."""
        fair = MOST_TOGETHER // len(self._of)
        for whose, bytes in self._bytes.most_common():
            if bytes <= fair:
                return
            for replay_buffer in sorted(self._of[whose], key=lambda each: each.bytes, reverse=True):
                replay_buffer.shrink(replay_buffer.bytes // 2)
                if self.bytes <= MOST_TOGETHER * 15 // 16:
                    return


class ReplayBuffer:
    """What the open channels of one session have said of late. Made by `ReplayBuffers`."""

    def __init__(self, clock: Clock, together: ReplayBuffers, whose: str) -> None:
        self.bytes = 0  # with what keeping takes
        self.whose = whose
        self._clock = clock
        self._together = together
        self._names = itertools.count(1)
        self._channels: dict[str, Channel] = {}
        self._kept: deque[_Kept] = deque()  # the oldest first
        self._carried: dict[Channel, float] = {}  # to its end, and when
        self._is_closed = False

    def enter(self, channel: Channel, kind: Kind) -> str:
        name = f"{kind}{next(self._names)}"
        self._channels[name] = channel
        self._grow(CHANNEL)
        return name

    def keep(self, channel: Channel, number: int, message: bytes | Joined) -> Item:
        if not self._is_closed:
            self._kept.append(_Kept(self._clock.now(), channel, number, message))
            channel.kept += 1
            self._grow(len(message) + EVENT)
            self._trim()
        return Item(f"{channel.name}.{number}", message)

    def find(self, id: str, rights: Rights) -> tuple[Channel, int] | None:
        """The channel that this event was on, and its number there, for who has its rights."""
        name, _, number = id.partition(".")
        channel = self._channels.get(name)
        if not channel or not rights.cover(channel.rights):
            return None
        return (channel, int(number)) if number.isdecimal() and len(number) < 16 else None

    def after(self, name: str, number: int) -> list[Item]:
        return [
            Item(f"{name}.{kept.number}", kept.message)
            for kept in self._kept
            if kept.channel.name == name and kept.number > number
        ]

    def carried(self, channel: Channel) -> None:
        self._carried[channel] = self._clock.now()

    def expire(self) -> None:
        """Let go of what is too much, too old, or was carried to its end a while ago."""
        self._trim()
        since = self._clock.now() - CARRIED_FOR
        over = {channel for channel, at in self._carried.items() if at < since and not channel.is_carried}
        if over:
            kept, self._kept = self._kept, deque[_Kept]()
            for each in kept:
                if each.channel in over:
                    self._let_go(each)
                else:
                    self._kept.append(each)
            for channel in over:
                self.settle(channel)

    def shrink(self, bytes: int) -> None:
        """Let go of the oldest until there are no more than so many bytes, as far as events make them up."""
        while self._kept and self.bytes > bytes:
            self._let_go(self._kept.popleft())

    def settle(self, channel: Channel) -> None:
        """Forget a channel of which nothing is left, and on which nothing is to come."""
        is_over = channel.has_ended or channel.is_of_session
        if is_over and not channel.kept and not channel.is_carried and self._channels.pop(channel.name, None):
            self._carried.pop(channel, None)
            self._grow(-CHANNEL)

    def close(self) -> None:
        """The session is over: nobody comes for the rest, which would hold its channels, and these the rest."""
        self._is_closed = True
        self._together.closed(self)
        self._kept.clear()
        self._channels.clear()
        self._carried.clear()

    def _trim(self) -> None:
        since = self._clock.now() - KEPT_FOR
        while self._kept and (len(self._kept) > MOST_EVENTS or self.bytes > MOST_BYTES or self._kept[0].at < since):
            self._let_go(self._kept.popleft())

    def _let_go(self, kept: _Kept) -> None:
        kept.channel.kept -= 1
        self._grow(-len(kept.message) - EVENT)
        self.settle(kept.channel)

    def _grow(self, by: int) -> None:
        self.bytes += by
        if not self._is_closed:
            self._together.grew(self.whose, by)


def is_of_session(id: str) -> bool:
    """Whether an event's id is one of a session's own channel: such a channel can begin anew where it is forgotten."""
    return id.startswith("s")


class PendingEvents:
    """What a session could tell nobody yet, and whose it is. What is said twice is told once; beyond the bounds the
    oldest is lost. Made by `ReplayBuffers`."""

    def __init__(self, together: ReplayBuffers, whose: str) -> None:
        self.bytes = 0
        self.whose = whose
        self._together = together
        self._messages: deque[tuple[bytes, Principal]] = deque()
        self._is_closed = False

    def add(self, message: bytes, whose: Principal) -> None:
        if (message, whose) in self._messages or self._is_closed:
            return
        self._messages.append((message, whose))
        self._grow(len(message) + EVENT)
        if len(self._messages) > MOST_PENDING_EVENTS:
            self._forget_oldest()
        self.shrink(NOTES_KEPT)

    def shrink(self, bytes: int) -> None:
        """Let go of the oldest until there are no more than so many bytes."""
        while self.bytes > bytes:
            self._forget_oldest()

    def take(self, by: Principal) -> list[bytes]:
        """Those that this one may know."""
        taken = [each for each in self._messages if shows_no_less(by, each[1])]
        for each in taken:
            self._messages.remove(each)
            self._grow(-len(each[0]) - EVENT)
        return [message for message, _ in taken]

    def close(self) -> None:
        """The session is over."""
        self.shrink(0)
        self._is_closed = True
        self._together.closed(self)

    def _forget_oldest(self) -> None:
        self._grow(-len(self._messages.popleft()[0]) - EVENT)

    def _grow(self, by: int) -> None:
        self.bytes += by
        self._together.grew(self.whose, by)
