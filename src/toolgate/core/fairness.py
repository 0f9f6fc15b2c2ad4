"""A queue whose places are taken in turn: whoever has much in it waits behind its own, and not before others. And who
has the most of what there is only so much of."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
Id = TypeVar("Id", bound=Hashable)


HALF_LIFE = 1.0  # seconds in which half of what was used is forgotten
SLICE = 0.05  # seconds: who has used less than that more than another has used the same
AMONG = 64  # of those whose turn comes next, the one who has used least is looked for
_MANY = 1024  # that have used something, before those are forgotten who have used next to nothing


class RoundRobin(Generic[Item]):
    """Items by key. Keys take turns; of one key, what came first goes first. A key that comes anew has the next turn,
    but never two such keys in a row, so that everybody's turn comes. `size` is how many items there are, for who looks
    in each call."""

    def __init__(self) -> None:
        self.size = 0
        self._queues: dict[str, deque[Item]] = {}
        self._turns: deque[str] = deque()  # each key that has items, the next one first
        self._is_open = True  # for a key that comes anew: the turn before was none of these
        self._newcomer: str | None = None

    def __len__(self) -> int:
        return self.size

    def put(self, key: str, item: Item) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
            if self._is_open:
                self._is_open, self._newcomer = False, key
                self._turns.appendleft(key)
            else:
                self._turns.append(key)
        queue.append(item)
        self.size += 1

    def count(self, key: str) -> int:
        return len(self._queues.get(key, ()))

    def pop(self, may: Callable[[str], bool] | None = None) -> Item | None:
        """The next item; of keys that `may` allows, where it is given. None where there is none."""
        turns = self._turns
        for _ in range(len(turns)):
            key = turns[0]
            if may is None or may(key):
                item = self._queues[key].popleft()
                self._is_open, self._newcomer = key != self._newcomer, None
                turns.rotate(-1)
                self._took(key)
                return item
            turns.rotate(-1)
        return None

    def remove(self, key: str, item: Item) -> bool:
        """Take one out that waits no more; whether it was there."""
        queue = self._queues.get(key)
        if not queue:
            return False
        if queue[-1] == item:  # those that end together end from the last one on
            queue.pop()
        else:
            try:
                queue.remove(item)
            except ValueError:
                return False
        self._took(key)
        return True

    def _took(self, key: str) -> None:
        self.size -= 1
        if not self._queues[key]:
            del self._queues[key]
            self._turns.remove(key)


class ByUse(RoundRobin[Item]):
    """The same where a turn may last long: every second one is of the key that has used the least lately, so that who
    wants little waits for what goes on at the moment, and for little more. A key may have several names, one in a line,
    and has used as much as they have together."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._now = now
        self._used: dict[str, tuple[float, float]] = {}  # seconds, and when that was
        self._is_of_least = True  # the next turn

    def used(self, key: str, seconds: float) -> None:
        now = self._now()
        for name in key.split("\n"):
            self._used[name] = self._use_of(name, now) + seconds, now
        if len(self._used) > _MANY:
            self._used = {name: use for name, use in self._used.items() if self._use_of(name, now) > 0.001}

    def pop(self, may: Callable[[str], bool] | None = None) -> Item | None:
        if self._used and self._is_of_least:
            now = self._now()
            allowed = [key for key in itertools.islice(self._turns, AMONG) if may is None or may(key)]
            if allowed:
                key = min(allowed, key=lambda key: self._slices(key, now))
                self._turns.remove(key)
                self._turns.appendleft(key)
        item = super().pop(may)
        self._is_of_least = self._is_of_least is (item is None)
        return item

    def _slices(self, key: str, now: float) -> int:
        return int(sum(self._use_of(name, now) for name in key.split("\n")) / SLICE)

    def _use_of(self, name: str, now: float) -> float:
        seconds, then = self._used.get(name, (0.0, now))
        return seconds * 0.5 ** ((now - then) / HALF_LIFE)


class Shares(Generic[Item]):
    """Items by key and id. Which key has the most is known without a look at all: who asks may be who makes it much."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Hashable, Item]] = {}
        self._sized: dict[int, dict[str, None]] = {}  # the keys that have so many

    def put(self, key: str, id: Hashable, item: Item) -> None:
        theirs = self._of.setdefault(key, {})
        theirs[id] = item
        self._resized(key, len(theirs) - 1, len(theirs))

    def used(self, key: str, id: Hashable) -> None:
        """Let this one be the last of its key."""
        theirs = self._of[key]
        theirs[id] = theirs.pop(id)

    def remove(self, key: str, id: Hashable) -> None:
        theirs = self._of[key]
        del theirs[id]
        if not theirs:
            del self._of[key]
        self._resized(key, len(theirs) + 1, len(theirs))

    def of(self, key: str) -> Iterator[Item]:
        """Those of a key, what came first goes first."""
        return iter(self._of.get(key, {}).values())

    def count(self, key: str) -> int:
        return len(self._of.get(key, ()))

    def most(self) -> int:
        return max(self._sized, default=0)

    def greatest(self) -> Iterator[Item]:
        """The items of the key that has the most, or of those keys; of each of them, what came first goes first."""
        for key in self._sized.get(self.most(), ()):
            yield from self._of[key].values()

    def _resized(self, key: str, was: int, now: int) -> None:
        if was:
            del self._sized[was][key]
            if not self._sized[was]:
                del self._sized[was]
        if now:
            self._sized.setdefault(now, {})[key] = None


def giving_way(ids: Iterable[Id], most: int, whose: Callable[[Id], str]) -> list[Id]:
    """Those to let go of, so that `most` are left: each of whoever has most by then, what came first goes first."""
    known = tuple(ids)
    shares: Shares[Id] = Shares()
    for id in known if len(known) > most else ():
        shares.put(whose(id), id, id)
    gone: list[Id] = []
    for _ in known[most:]:
        gone.append(next(shares.greatest()))
        shares.remove(whose(gone[-1]), gone[-1])
    return gone
