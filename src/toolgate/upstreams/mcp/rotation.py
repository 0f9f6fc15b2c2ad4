"""Turns of clients at a server that does not say whose its questions are: while the calls of one client alone are under
way, that is clear.

The rules this file keeps: a turn is a client's, and all its calls go on in it as long as nobody else waits; principals
that wait take turns; a principal keeps others waiting for so many seconds only. Then its calls go on beside those of
the next, and what the server asks meanwhile is put to nobody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TypeAlias

from toolgate.core.clock import Clock, Timer
from toolgate.core.fairness import RoundRobin
from toolgate.core.model import Client

TURN = 15.0  # seconds for which a principal may keep others waiting
REGAINED = 0.1  # seconds of these, in each one in which it keeps nobody waiting
QUIET = 300.0  # seconds without a question, after which nobody waits for a turn any more
MOST_REMEMBERED = 1024  # principals that have kept others waiting

Identity: TypeAlias = tuple[str, str]
Holder: TypeAlias = tuple[Identity, str]
"""A client (`Client.identity`), and as whom its principal is counted."""


class _Waiting:
    def __init__(self, id: int, holder: Holder) -> None:
        self.id = id
        self.holder = holder
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Rotation:
    """Calls are known by their ids."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: RoundRobin[_Waiting] = RoundRobin()
        self._waiting: Counter[Identity] = Counter()
        self._holders: dict[Holder, set[int]] = {}
        self._held: dict[int, Holder] = {}
        self._kept_waiting: dict[str, tuple[float, float]] = {}  # by principal, the seconds, and as of when
        self._waited_since: float | None = None  # where nobody is charged with that yet
        self._timer: Timer | None = None
        self._is_to_settle = False
        self._ends = clock.now() + QUIET

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def waiting_of(self, whose: str) -> int:
        """Those of one principal (`Principal.counted_as`)."""
        return self._queue.count(whose)

    @property
    def is_over(self) -> bool:
        return not self._queue and self._clock.now() >= self._ends

    def asked(self) -> None:
        """The server has asked something."""
        self._ends = self._clock.now() + QUIET

    def hold(self, id: int, client: Client) -> None:
        """This call is under way already, or was given up and may still make the server ask."""
        self._hold(id, _holder(client))

    async def take(self, id: int, client: Client) -> None:
        """Wait for the turn of this call; `over` is to follow."""
        waiting = _Waiting(id, _holder(client))
        identity, whose = waiting.holder
        self._queue.put(whose, waiting)
        self._waiting[identity] += 1
        self._settle()
        try:
            await waiting.turn
        except BaseException:
            if self._queue.remove(whose, waiting):
                self._waits_no_more(waiting)
                self._settle()
            self.over(id)  # its turn may have come at the same moment
            raise

    def over(self, id: int) -> None:
        """No question that comes from now on is of this call."""
        holder = self._held.pop(id, None)
        if holder:
            self._charge()
            self._holders[holder].discard(id)
            if not self._holders[holder]:
                del self._holders[holder]
            if self._queue and not self._is_to_settle:  # once for the thousands that may be over in this round
                self._is_to_settle = True
                asyncio.get_running_loop().call_soon(self._settle)

    def end(self) -> None:
        """The connection is over: nobody waits any more."""
        self._held.clear()
        self._holders.clear()
        self._settle()

    def _hold(self, id: int, holder: Holder) -> None:
        self._held[id] = holder
        self._holders.setdefault(holder, set()).add(id)

    def _waits_no_more(self, waiting: _Waiting) -> None:
        identity = waiting.holder[0]
        self._waiting[identity] -= 1
        if not self._waiting[identity]:
            del self._waiting[identity]

    def _settle(self) -> None:
        """Give turns to those who may have them now; for the others the time of those who have one runs."""
        self._charge()
        self._is_to_settle = False
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._queue:
            if not self._may_go_on():
                left = {holder: self._left(holder[1]) for holder in self._holders}
                overdue = [holder for holder, seconds in left.items() if seconds <= 0]
                if not overdue:
                    self._waited_since = self._clock.now()
                    self._timer = self._clock.call_later(min(left.values()), self._settle)
                    return
                for holder in overdue:
                    for id in self._holders.pop(holder):
                        del self._held[id]
                continue
            waiting = self._queue.pop()
            assert waiting
            self._waits_no_more(waiting)
            if not waiting.turn.done():
                self._hold(waiting.id, waiting.holder)
                waiting.turn.set_result(None)

    def _may_go_on(self) -> bool:
        """Whether all that are under way, and all that wait, are of one client; or nothing is under way."""
        identities = {identity for identity, _ in self._holders}
        return not identities or (len(identities) == 1 and self._waiting.keys() == identities)

    # How long principals keep others waiting.

    def _left(self, whose: str) -> float:
        return TURN - self._kept(whose, self._clock.now())

    def _kept(self, whose: str, now: float) -> float:
        seconds, at = self._kept_waiting.get(whose, (0.0, now))
        return max(0.0, seconds - (now - at) * REGAINED)

    def _charge(self) -> None:
        since, self._waited_since = self._waited_since, None
        now = self._clock.now()
        if since is None or since == now:
            return
        for whose in {whose for _, whose in self._holders}:
            seconds = self._kept(whose, since) + now - since
            self._kept_waiting.pop(whose, None)
            self._kept_waiting[whose] = seconds, now
        while len(self._kept_waiting) > MOST_REMEMBERED:
            del self._kept_waiting[next(iter(self._kept_waiting))]


def _holder(client: Client) -> Holder:
    return client.identity, client.principal.counted_as
