"""Which request is started next where several principals want the one event loop (docs/limits.md, "Fairness").

While one principal calls alone, no more than `MOST_ALONE` requests are started in a round of the loop, and fewer where
they take long, so that who comes is heard between them. Where another called within the same second, one request is
started in each round and principals take turns, so a principal that has hundreds of requests waiting delays only its
own; where another called within the same minute, it has so few under way that the other would not wait for long. The
rules this file keeps: requests of one principal start in the order that they came, and each of a batch is one; few that
were just started are under way at once, so that a round is short, and yet each principal can have one; and who is
refused again and again is heard more slowly, but not more slowly than it may call.

A request that waits here holds its connection: nothing more is read from it than its first 64 KiB. A batch has one
place, however many of its requests wait. So what waits is bounded by the number of connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from toolgate.core.clock import Clock, Timer
from toolgate.core.fairness import RoundRobin
from toolgate.core.model import Principal

MEMORY = 60.0  # seconds for which it is remembered that more than one principal calls
AT_ONCE = 1.0  # seconds within which two call at the same time
FRESH = 0.002  # seconds; a request that takes longer waits for something, and leaves the loop to others
MOST_FRESH = 2  # beyond which a principal that has a fresh request waits, where others call at the same time
MOST_ALONE = 16  # where they do not, in a round at most
LONG = 0.005  # seconds of a round, beyond which half as many are started in the next, down to one
TOLERATED = 20.0  # refusals, each second halves their count; a principal with more is heard more slowly
LONGEST = 0.1  # seconds at most for which it is not heard after a refusal
MOST_KNOWN = 4096  # credentials, and refused principals, that are remembered

Run = Callable[[], object]
TakeTurn = Callable[[], Awaitable[object]]


async def let_others_in(take_turn: TakeTurn) -> None:
    """What came meanwhile is read in the next round, behind us, and heard before this goes on."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await take_turn()


def _nobody() -> None:
    """Nobody waits for the end of this turn."""


def _nothing() -> None:
    """This turn has been taken."""


class Callers:
    """Which principal a request belongs to as far as its head says it: what guards have found before."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}  # by the value of Authorization

    def key(self, headers: Iterable[tuple[bytes, bytes]], stranger: str) -> str:
        """Whose turn a request takes; `stranger` where it shows nothing, or nothing that was let in before."""
        if self._known:
            for name, value in headers:
                if name == b"authorization":
                    return self._known.get(value, stranger)
        return stranger

    def learn(self, authorization: str, principal: Principal) -> bool:
        """This principal was let in by what it showed; whether that was not known."""
        shown = authorization.encode("latin-1")
        if shown in self._known or b"  " in shown:  # of what is shown with blanks there is no end
            return False
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[shown] = principal.counted_as
        return True

    def forget(self) -> None:
        """Who was let in before might not be now."""
        self._known.clear()


class _Refusals:
    """Those of one principal."""

    def __init__(self) -> None:
        self.count = 0.0  # of late
        self.at = 0.0
        self.until = 0.0  # it is not heard before


class Turn:
    """One request: it waits, is fresh for a moment, and then it is not."""

    started = 0.0
    is_fresh = False

    def __init__(self, key: str, run: Run) -> None:
        self.key = key
        self.run = run


class Scheduler:
    """Starts requests by principal (`Principal.counted_as`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_contended = False  # more than one principal calls, or one is refused again and again
        self._contended_at = 0.0
        self._last: str | None = None  # who called last
        self._queue: RoundRobin[Turn] = RoundRobin()
        self._begun = 0  # requests since a round ended that was watched; so many in this one at most
        self._alone = MOST_ALONE  # of a principal that calls alone; the end is watched from the half of it on
        self._is_watched = False  # the end of this round
        self._watched_since = 0.0
        self._most = MOST_ALONE
        self._started: deque[Turn] = deque()  # of late, the oldest first
        self._fresh: Counter[str] = Counter()  # of them, by principal
        self._refusals: dict[str, _Refusals] = {}
        self._looking: Timer | None = None
        self._calming: Timer | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._queue)

    def lets_pass(self, key: str) -> bool:
        """Whether this principal calls alone, and not too much at once, so that its request may be started now."""
        if key != self._last:
            if self._last is not None:
                self._contend()
            self._last = key
        if self._is_contended or self._queue.size or self._begun >= self._alone:
            return False
        self._begun += 1
        if self._begun >= self._alone >> 1:
            self._watch()
        return True

    def is_known(self, stranger: str, key: str) -> None:
        """Who called as this stranger is this principal: its next request is not another's."""
        if self._last == stranger:
            self._last = key

    def start(self, key: str, run: Run) -> Turn:
        """Call `run` when it is this principal's turn, which may be now. It must not raise."""
        turn = Turn(key, run)
        self._queue.put(key, turn)
        self._next()
        return turn

    async def turn(self, key: str) -> Callable[[], None]:
        """Until it is this principal's turn. Who tells at once when it is over, by what this returns, lets the next
        one start the sooner."""
        if self.lets_pass(key):
            return _nobody
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = self.start(key, lambda: come.done() or come.set_result(None))
        try:
            await come
        except BaseException:
            if not self._queue.remove(key, turn):
                self.ended(turn)
            raise
        return partial(self.ended, turn)

    def in_order(self, key: str) -> TakeTurn:
        """What the requests of one batch take their turns by: one after the other, so that a batch waits as one
        request does, however many are cancelled."""
        before = asyncio.Lock()

        async def take() -> None:
            async with before:
                await self.turn(key)

        return take

    def ended(self, turn: Turn) -> None:
        """This request is answered."""
        if turn.is_fresh:
            self._ages(turn)
            self._next()

    def refused(self, key: str, wait: float) -> None:
        """A call of this principal was refused, as the next would be for another `wait` seconds."""
        now = self._clock.now()
        if key not in self._refusals and len(self._refusals) >= MOST_KNOWN:
            self._refusals.clear()
        seen = self._refusals.setdefault(key, _Refusals())
        seen.count = seen.count * 0.5 ** (now - seen.at) + 1.0
        seen.at = now
        if seen.count > TOLERATED:
            seen.until = now + min(wait, LONGEST)
            self._contend()

    def close(self) -> None:
        """Keep nothing back any more."""
        self._is_contended = False
        for timer in (self._looking, self._calming):
            if timer:
                timer.cancel()
        while turn := self._queue.pop():
            turn.run()

    def _contend(self) -> None:
        self._is_contended = True
        self._contended_at = self._clock.now()
        if not self._calming:
            self._calming = self._clock.call_later(MEMORY, self._calm)

    def _calm(self) -> None:
        """After a while in which one principal called alone, it is again as if there were no other."""
        self._calming = None
        since = self._clock.now() - MEMORY
        self._refusals = {key: seen for key, seen in self._refusals.items() if seen.at > since}
        if self._queue or self._contended_at > since:
            self._calming = self._clock.call_later(MEMORY, self._calm)
        else:
            self._is_contended = False

    def _next(self) -> None:
        """Start one request, where others call at most one in a round of the loop, and in no round more than may be
        where one calls alone; where none may be started yet, look again later."""
        if not self._queue.size:
            return
        now = self._clock.now()
        self._most = MOST_FRESH if now < self._contended_at + AT_ONCE else MOST_ALONE
        if self._begun >= (1 if self._most == MOST_FRESH else self._alone):
            self._watch()
            return
        while self._started and (not self._started[0].is_fresh or self._started[0].started <= now - FRESH):
            self._ages(self._started.popleft())
        turn = self._queue.pop(lambda key: self._may(key, now))
        if not turn:
            if not self._looking:
                self._looking = self._clock.call_later(FRESH, self._look_again)
            return
        turn.started, turn.is_fresh = now, True
        self._started.append(turn)
        self._fresh[turn.key] += 1
        self._begun += 1
        self._watch()
        run, turn.run = turn.run, _nothing  # it may hold the request that has this turn: a reference cycle
        run()

    def _watch(self) -> None:
        """Go on in the next round: what a request has to do is done in a later one than its start, and is not known
        yet. That costs something, so rounds in which few are started are not told apart where nobody waits."""
        if not self._is_watched:
            self._is_watched = True
            self._watched_since = self._clock.now()
            asyncio.get_running_loop().call_soon(self._round_over)

    def _may(self, key: str, now: float) -> bool:
        if key in self._refusals and now < self._refusals[key].until:
            return False
        return key not in self._fresh or self._fresh.total() < self._most

    def _ages(self, turn: Turn) -> None:
        if turn.is_fresh:
            turn.is_fresh = False
            self._fresh[turn.key] -= 1
            if not self._fresh[turn.key]:
                del self._fresh[turn.key]

    def _round_over(self) -> None:
        is_long = self._clock.now() > self._watched_since + LONG
        self._alone = max(1, self._alone // 2) if is_long else min(MOST_ALONE, self._alone * 2)
        self._is_watched = False
        self._begun = 0
        self._next()

    def _look_again(self) -> None:
        self._looking = None
        self._next()
