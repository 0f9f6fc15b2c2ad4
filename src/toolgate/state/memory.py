"""A store that lasts as long as its object: for tests, and where nothing can be written."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolgate.core.clock import Clock
from toolgate.state.base import NEWS, NotKept, Result, Subject, Work
from toolgate.state.migrations import MIGRATIONS

if TYPE_CHECKING:
    import sqlite3  # imported where tables are used: it takes a while

PURGE = 60.0  # seconds between two looks for what is over

Kept = tuple[bytes, float | None]  # a value, and when it is over


class MemoryStore:
    """A `Store`. Threads may share it, as processes may share a file. `problem` is why it stands for another."""

    def __init__(self, clock: Clock, problem: str = "") -> None:
        self.problem = problem
        self._clock = clock
        self._spaces: dict[str, dict[str, Kept]] = {}
        self._turn = threading.RLock()
        self._purged = clock.wall()
        self._is_closed = False
        self._tables: sqlite3.Connection | None = None

    def get(self, space: str, key: str) -> bytes | None:
        found = self._spaces.get(space, {}).get(key)
        return found[0] if found and self._lasts(found) else None

    def items(self, space: str) -> Mapping[str, bytes]:
        with self._turn:
            kept = sorted(self._spaces.get(space, {}).items())
        return {key: each[0] for key, each in kept if self._lasts(each)}

    def put(self, space: str, key: str, value: bytes, ttl: float | None = None) -> Awaitable[None]:
        return self._write(lambda: self._set(space, key, value, ttl))

    def delete(self, space: str, key: str, tells: Sequence[Subject] = ()) -> Awaitable[None]:
        def work() -> None:
            self._set(space, key, None, None)
            self._tell(tells)

        return self._write(work)

    def compare_and_set(
        self,
        space: str,
        key: str,
        old: bytes | None,
        new: bytes | None,
        ttl: float | None = None,
        tells: Sequence[Subject] = (),
    ) -> Awaitable[bool]:
        def work() -> bool:
            is_so = self.get(space, key) == old
            if is_so:
                self._set(space, key, new, ttl)
                self._tell(tells)
            return is_so

        return self._write(work)

    async def query(self, work: Work[Result]) -> Result:
        return await self.transact(work)

    async def transact(self, work: Work[Result], *tells: Subject) -> Result:
        with self._turn:
            connection = self._opened_tables()
            connection.execute("BEGIN")
            try:
                result = work(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            self._tell(tells)
        return result

    def _opened_tables(self) -> sqlite3.Connection:
        """Raises `NotKept` where this stands for a store on disk: what is not in here may be there."""
        if self.problem or self._is_closed:
            raise NotKept(self.problem or "the store is closed")
        if self._tables is None:
            import sqlite3

            self._tables = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            for step in MIGRATIONS:
                self._tables.executescript(step.sql)
        return self._tables

    async def close(self) -> None:
        self._is_closed = True
        if self._tables:
            self._tables.close()
            self._tables = None

    def _write(self, work: Callable[[], Result]) -> Awaitable[Result]:
        written: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            written.set_exception(NotKept("the store is closed"))
            written.exception()  # seen, where nobody waits for it
            return written
        with self._turn:
            written.set_result(work())
            self._purge()
        return written

    def _set(self, space: str, key: str, value: bytes | None, ttl: float | None) -> None:
        if value is None:
            self._spaces.get(space, {}).pop(key, None)
        else:
            self._spaces.setdefault(space, {})[key] = value, None if ttl is None else self._clock.wall() + ttl

    def _tell(self, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            self._set(NEWS, subject, os.urandom(8), None)

    def _purge(self) -> None:
        now = self._clock.wall()
        if now - self._purged < PURGE:
            return
        self._purged = now
        for space, kept in list(self._spaces.items()):
            lasting = {key: each for key, each in kept.items() if self._lasts(each)}
            self._spaces[space] = lasting
            if not lasting:
                del self._spaces[space]

    def _lasts(self, kept: Kept) -> bool:
        return kept[1] is None or self._clock.wall() < kept[1]
