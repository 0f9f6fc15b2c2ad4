"""The meters of several processes, in memory that they share: what one charges or takes, all see.

The rules this file keeps: whoever looks at meters and then charges them holds a lock meanwhile, which the kernel takes
from a process that ends, and for which nobody waits long that one has which stands still; each process counts what runs
there by itself, so that this can be forgotten when it has ended, and so that nobody waits for the end of a call; and
nothing outside can choose which meters stand beside each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import secrets
import time
from collections.abc import Iterator
from typing import Any

from toolgate.config import Config
from toolgate.core.clock import Clock
from toolgate.core.model import Call
from toolgate.policy.base import Passed
from toolgate.policy.limits import Limits, Meter, Metered, Meters

BUCKETS, WAYS = 4096, 16  # a meter has one bucket; there are so many places in it
PLACES = BUCKETS * WAYS
SALT = DIGEST = 16  # bytes
MOST_KNOWN = 4096  # places that are remembered
_FREE = (0, 0)
_TURNS, _PAUSES, _PAUSE = 50, 100, 0.0005  # others have theirs; then so many waits of so many seconds for the lock
_WITHOUT = 1.0  # seconds in which nobody waits for it again


class Table:
    """The memory: `columns` processes share `file`, and this one has the column `own`."""

    def __init__(self, file: int, columns: int, own: int) -> None:
        self._file = file
        self._own = own
        self._depth = 0
        self._is_locked = False
        self._without_until = 0.0
        self._memory = mmap.mmap(file, size_of(columns))
        view = memoryview(self._memory)
        self._salt = bytes(view[:SALT])
        self._digests = view[SALT : SALT + PLACES * DIGEST].cast("Q")  # two numbers each: quick to compare
        rest = view[SALT + PLACES * DIGEST :]
        self.filled = rest[: PLACES * 8].cast("d")
        counts = rest[PLACES * 8 :].cast("I")
        self._columns = [counts[column * PLACES : (column + 1) * PLACES] for column in range(columns)]
        self._connections = counts[columns * PLACES :]  # and one; 0: of a process that accepts none
        self._known: dict[object, tuple[int, int, int]] = {}  # where it was, in `_digests`, and what stood there

    def __enter__(self) -> None:
        if not self._depth:
            self._is_locked = self._lock()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth and self._is_locked:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _lock(self) -> bool:
        """Whether it has it. Who does not goes on without: better a limit that is off by one than a gateway that stands
        still, and does not end who makes it."""
        for tried in range(_TURNS + _PAUSES):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() < self._without_until:
                    return False
            if tried < _TURNS:
                os.sched_yield()
            else:
                time.sleep(_PAUSE)
        self._without_until = time.monotonic() + _WITHOUT
        return False

    def find(self, key: object) -> int | None:
        """The place of a meter, if it has one. Each call comes here some twenty times."""
        if known := self._known.get(key):
            at, first, second = known
            if self._digests[at] == first and self._digests[at + 1] == second:
                return at // 2
        digest = self._digest(key)
        for place in _bucket(digest):
            if self._at(place) == digest:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[key] = 2 * place, *digest
                return place
        return None

    def place(self, key: object) -> int:
        """The same; where it has none it gets one, if need be that of the meter which is soonest as good as new."""
        if (found := self.find(key)) is not None:
            return found
        digest = self._digest(key)
        taken = min(_bucket(digest), key=self._worth)
        self._digests[2 * taken], self._digests[2 * taken + 1] = digest
        self.filled[taken] = 0.0
        for column in self._columns:
            column[taken] = 0
        return taken

    def _worth(self, place: int) -> tuple[bool, int, float]:
        return self._at(place) != _FREE, self.running(place), self.filled[place]

    def running(self, place: int) -> int:
        found = 0
        for column in self._columns:  # for each call: a generator would take three times as long
            found += column[place]
        return found

    def count_here(self, place: int, more: int) -> None:
        """So many more of that run in this process, or fewer."""
        own = self._columns[self._own]
        own[place] = max(0, own[place] + more)

    def all_here(self) -> Iterator[int]:
        return (count for count in self._columns[self._own] if count)

    def has_more(self, connections: int) -> bool:
        """Whether this process, which has so many, has more than another that accepts some, too."""
        self._connections[self._own] = connections + 1
        return any(0 < others <= connections for others in self._connections)

    def forget(self, column: int) -> None:
        """What ran in a process that has ended."""
        self._connections[column] = 0
        with self:
            self._columns[column][:] = memoryview(bytes(PLACES * 4)).cast("I")

    def _at(self, place: int) -> tuple[int, int]:
        return self._digests[2 * place], self._digests[2 * place + 1]

    def _digest(self, key: object) -> tuple[int, int]:
        told = repr(key).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(told, digest_size=DIGEST, key=self._salt).digest()
        return int.from_bytes(digest[:8]), int.from_bytes(digest[8:])


def size_of(columns: int) -> int:
    return SALT + PLACES * (DIGEST + 8 + 4 * columns) + 4 * columns


def made(columns: int) -> int:
    """A file for so many processes, which only those have that inherit it."""
    file = os.memfd_create("toolgate meters", os.MFD_CLOEXEC)
    os.ftruncate(file, size_of(columns))
    os.pwrite(file, secrets.token_bytes(SALT), 0)
    return file


def _bucket(digest: tuple[int, int]) -> range:
    start = digest[0] % BUCKETS * WAYS
    return range(start, start + WAYS)


class _Filled(dict[object, float]):
    """When meters of one kind are as good as new, as `Meter` has it."""

    def __init__(self, table: Table, kind: str) -> None:
        super().__init__()
        self._table = table
        self._kind = kind

    def get(self, key: object, default: Any = None) -> Any:
        place = self._table.find((self._kind, key))
        return default if place is None else self._table.filled[place]

    def __getitem__(self, key: object) -> float:
        return self.get(key, 0.0)

    def __setitem__(self, key: object, filled: float) -> None:
        self._table.filled[self._table.place((self._kind, key))] = filled


class _Running(dict[object, int]):
    """How many calls run by key, in all processes."""

    def __init__(self, table: Table, kind: str) -> None:
        super().__init__()
        self._table = table
        self._kind = kind

    def get(self, key: object, default: Any = None) -> Any:
        place = self._table.find((self._kind, key))
        return default if place is None else self._table.running(place)

    def __getitem__(self, key: object) -> int:
        return self.get(key, 0)

    def __bool__(self) -> bool:
        return any(self._table.all_here())


class _SharedMeter(Meter):
    def __init__(self, table: Table, kind: str) -> None:
        super().__init__()
        self.filled = _Filled(table, kind)
        self.running = _Running(table, kind)
        self._table = table
        self._kind = kind

    def count(self, key: object, more: int) -> None:
        """Fewer without the lock: a meter that was taken away meanwhile counts nothing of them."""
        place = self._table.place((self._kind, key)) if more > 0 else self._table.find((self._kind, key))
        if place is not None:
            self._table.count_here(place, more)


class SharedMeters(Meters):
    def __init__(self, table: Table, clock: Clock) -> None:
        super().__init__(clock)
        self.together = self.table = table

    def _made(self, kind: str) -> Meter:
        return _SharedMeter(self.table, kind)

    def limits(self, config: Config) -> Limits:
        return _SharedLimits(config, self)


class _SharedLimits(Limits):
    def __init__(self, config: Config, meters: SharedMeters) -> None:
        super().__init__(config, meters)
        self._together = meters.table

    def _entered(self, call: Call, limits: list[Metered], was_passed: bool) -> Call | Passed:
        with self._together:
            return super()._entered(call, limits, was_passed)
