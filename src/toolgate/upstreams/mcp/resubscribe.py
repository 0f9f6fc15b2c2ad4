"""What the clients of one scope watch at a server: counted, asked for once, and asked for anew when it was lost.

What is wanted is kept here and outlives connections; how a server is asked is `subscriptions`'s. The rule this file
keeps: a principal stands in a line of its own, and waits for others only where the server is asked for the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any, Protocol, TypeAlias
from weakref import WeakValueDictionary

from toolgate.core import mcp
from toolgate.core.clock import Clock
from toolgate.core.fairness import RoundRobin
from toolgate.core.fault import Fault
from toolgate.core.model import Client

log = logging.getLogger(__name__)

PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0)  # seconds before a stream that ended is opened again
_NOBODY = ""  # in whose line the server is told of what nobody wants any more

Watched = tuple[str, str]  # "resources" and a URI, or "tasks" and an id

Asked: TypeAlias = str | Watched
"""What a server is asked for by one request: one thing, or all at once (empty)."""


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
        self.whose: dict[str, Counter[Watched]] = {}  # the same, by `Principal.counted_as`
        self.level: str | None = None
        self.client: Client | None = None  # the last who wanted something
        self.pauses = Pauses()  # between connections of this scope that were lost

    def add(self, what: Watched, client: Client) -> None:
        self.watched[what] += 1
        self.whose.setdefault(client.principal.counted_as, Counter())[what] += 1
        self.client = client

    def remove(self, what: Watched, whose: str) -> bool:
        """Whether nobody wants it any more, who had wanted it."""
        theirs = self.whose.get(whose, Counter())
        if not theirs[what]:
            return False
        for counts in (self.watched, theirs):
            counts[what] -= 1
            if counts[what] <= 0:
                del counts[what]
        if not theirs:
            self.whose.pop(whose, None)
        return what not in self.watched

    def in_turns(self) -> Iterator[Watched]:
        """All that is wanted now, each once. Principals take turns."""
        turns: RoundRobin[Watched] = RoundRobin()
        for whose, theirs in self.whose.items():
            for what in theirs:
                turns.put(whose, what)
        rest = set(self.watched)
        while what := turns.pop():
            if what in rest:
                rest.remove(what)
                yield what

    def raise_level(self, level: str) -> bool:
        """Whether `level` is more than was wanted so far."""
        if self.level is not None and mcp.LOG_LEVELS.index(self.level) <= mcp.LOG_LEVELS.index(level):
            return False
        self.level = level
        return True


class UpstreamSubscriptions(Protocol):
    """How one connection's server is asked to tell, and told to stop."""

    def open(self, wanted: Wanted) -> None:
        """Begin to ask for all that is wanted; what fails is logged."""
        ...

    def asked_by(self, what: Watched) -> Asked:
        """What requests for this one ask for: they go one after the other."""
        ...

    async def watch(self, what: Watched) -> None:
        """Returns when the server has agreed. Raises `Fault` where it does not."""
        ...

    async def unwatch(self, gone: Collection[Watched]) -> None:
        """What is asked for together. Raises `Fault` where the server could not be told."""
        ...

    async def set_level(self, level: str) -> None:
        """A level of `mcp.LOG_LEVELS`. A server that does not take it is logged."""
        ...


class _Line(asyncio.Lock):
    """Of those who have a server asked for something, one after the other."""

    fell_silent = float("-inf")  # when the server last left a request of this line unanswered


class Resubscriber:
    """What one scope watches. `name` is the server's, for people. `live` is of the connection that is up, if one is;
    `open` opens one; `on_rest` is told that nobody may need it any more."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        live: Callable[[], UpstreamSubscriptions | None],
        open: Callable[[Client], Awaitable[None]],
        on_rest: Callable[[], None],
    ) -> None:
        self.wanted = Wanted()
        self.work: set[asyncio.Task[None]] = set()
        self._by_principal: WeakValueDictionary[str, _Line] = WeakValueDictionary()  # while anybody stands in it
        self._by_request: WeakValueDictionary[Asked, _Line] = WeakValueDictionary()
        self._leaving: set[Watched] = set()  # what the server is to be told to stop telling of, unless it is wanted
        self._name = name
        self._clock = clock
        self._live = live
        self._open = open
        self._on_rest = on_rest
        self._is_over = False

    async def begin(self, subscriptions: UpstreamSubscriptions | None, what: Watched, client: Client) -> None:
        """Have the server tell of this, over its connection of now. Raises `Fault`."""
        wanted = self.wanted
        began = self._clock.now()
        own = self._by_principal.setdefault(client.principal.counted_as, _Line())
        async with own:
            asked = self._line(subscriptions, what)
            async with asked:
                if not wanted.watched[what] and subscriptions:
                    if max(own.fell_silent, asked.fell_silent) > began:  # not each of a line finds that out for itself
                        message = f"{self._name} does not answer subscription requests"
                        raise Fault("TIMEOUT", message, reach="not_sent")
                    await self._ask(subscriptions, what, (own, asked))
                wanted.add(what, client)

    def _line(self, subscriptions: UpstreamSubscriptions | None, what: Watched) -> _Line:
        return self._by_request.setdefault(subscriptions.asked_by(what) if subscriptions else what, _Line())

    async def _ask(self, subscriptions: UpstreamSubscriptions, what: Watched, lines: Iterable[_Line]) -> None:
        try:
            await subscriptions.watch(what)
        except Fault as fault:
            if fault.code == "TIMEOUT":
                for line in lines:
                    line.fell_silent = self._clock.now()
            raise
        except asyncio.CancelledError:
            self._leave(what)  # the server may have heard that much
            raise

    def end(self, what: Watched, whose: str) -> None:
        """A client of this principal (`Principal.counted_as`) wants that no more."""
        if self.wanted.remove(what, whose):
            self._leave(what)

    def _leave(self, what: Watched) -> None:
        if what not in self._leaving:
            self._leaving.add(what)
            self._spawn(self._tell_to_stop(what))

    async def _tell_to_stop(self, what: Watched) -> None:
        async with self._by_principal.setdefault(_NOBODY, _Line()):
            live = self._live()
            async with self._line(live, what):
                gone = self._gone_with(what, live)
                if not gone or not live or live is not self._live():
                    return
                try:
                    await live.unwatch(gone)
                except Fault as fault:
                    log.info("could not unsubscribe at %s from %s: %s", self._name, what[1], fault.message)
        self._on_rest()

    def _gone_with(self, what: Watched, live: UpstreamSubscriptions | None) -> list[Watched]:
        """All that the server can be told of together with this one; nothing where that was done meanwhile."""
        if what not in self._leaving:
            return []
        is_told_alone = not live or live.asked_by(what) == what
        together = [what] if is_told_alone else list(self._leaving)
        self._leaving.difference_update(together)
        return [each for each in together if each not in self.wanted.watched]

    def lost(self) -> None:
        """Whoever watches what this server has may never call it: it is started again for them."""
        if self.wanted.watched and not self._is_over:
            self._spawn(self._open_again(), f"hear {self._name} again")

    async def _open_again(self) -> None:
        wanted = self.wanted
        while True:
            await self._clock.sleep(wanted.pauses.after_loss(self._clock.now()))
            if self._live() or not wanted.watched or not wanted.client:
                return
            try:
                await self._open(wanted.client)
                return
            except Fault as fault:
                log.info("cannot reconnect to %s: %s", self._name, fault.message)

    def give_up(self) -> None:
        """Nobody is told of anything any more, and nothing is opened for that."""
        self._is_over = True
        for task in self.work:
            task.cancel()

    async def close(self) -> None:
        """The same, when it is done."""
        self.give_up()
        await asyncio.gather(*self.work, return_exceptions=True)

    def takes_over(self, other: Wanted) -> None:
        """What clients of another connection wanted, which is not opened again."""
        self.wanted.watched += other.watched
        for whose, theirs in other.whose.items():
            self.wanted.whose.setdefault(whose, Counter()).update(theirs)
        self.wanted.client = self.wanted.client or other.client
        if live := self._live():
            live.open(self.wanted)
        else:
            self.lost()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.work.add(task)
        task.add_done_callback(self.work.discard)
