"""The store on disk: one SQLite file in the state folder, which several gateways share.

One thread writes: it takes what is queued into one transaction, as much as is done in `HOLD`. Points are read on a
connection of their own, on the thread that asks; tables are read in a few threads, each with its own. The rules this
file keeps: nobody waits for the disk who does not say so; that a disk takes nothing is said once, and the gateway goes
on without.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolgate.config.secrets import FILE as SECRETS
from toolgate.core.clock import Clock
from toolgate.state.base import NEWS, UNREAD, NotKept, Result, Subject, Work
from toolgate.state.holders import Holder, holders, is_any_locked
from toolgate.state.migrations import MIGRATIONS, Migration
from toolgate.state.opening import damaged, is_alone_with, open_file, reader

if TYPE_CHECKING:
    import sqlite3  # imported where it is used: most commands open no store, and it takes a while

log = logging.getLogger(__name__)

FILE = "toolgate.db"
BATCH = 1000  # writes in one transaction
HOLD = 0.02  # seconds after which a transaction takes no more: other processes wait, such as a command of the operator
GAP = 0.005  # seconds between two transactions of which the first was that long: those who wait look seldom
MOST_QUEUED = 20_000  # writes that wait for a disk that does not come on
PURGE = 60.0  # seconds between two looks for what is over
CACHE = 32 * 1024  # KiB of each of these at most: the indexes of 100,000 tasks are read whole for some lists
CHECK = "see `toolgate state check`"  # which names the file: clients may be told this
MOST_NAMED = 3  # programs that hold the file
READERS = 2  # threads that read tables: a long export holds up no short list

Written = TypeVar("Written")

_GET = "SELECT value FROM kept WHERE space = ? AND key = ? AND (expires IS NULL OR expires > ?)"
_ITEMS = "SELECT key, value FROM kept WHERE space = ? AND (expires IS NULL OR expires > ?) ORDER BY key"
_PUT = "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM kept WHERE space = ? AND key = ?"
_PURGE = "DELETE FROM kept WHERE expires <= ?"


class _Queued:
    """A write that waits for its turn."""

    def __init__(self, work: Callable[[sqlite3.Connection], Any], done: asyncio.Future[Any]) -> None:
        self.work = work
        self.done = done

    def tell(self, result: Any, error: Exception | None) -> None:
        """In the loop that waits for it."""
        if self.done.done():
            return
        if error:
            self.done.set_exception(error)
            self.done.exception()  # seen, where nobody waits for it
        else:
            self.done.set_result(result)


class _Refused:
    """What a piece of work on tables has raised, which undid it and nothing else."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class SqliteStore:
    """A `state.base.Store`. It is used in the event loop that it was made in."""

    def __init__(self, folder: Path, clock: Clock, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        """Opens it. Raises `Unusable`."""
        import sqlite3

        self._sqlite = sqlite3
        self._clock = clock
        self._file = folder / FILE
        self._loop = asyncio.get_running_loop()
        self._writer, self._reader = open_file(self._file, migrations)
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._is_closed = False
        self._problem = ""
        self._damaged = damaged(self._file)
        self._purged = 0.0
        self._tables = ThreadPoolExecutor(READERS, "toolgate tables")
        self._of_thread = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._thread = threading.Thread(target=self._write_what_comes, name="toolgate store", daemon=True)
        self._thread.start()

    # In the event loop.

    @property
    def problem(self) -> str:
        return self._problem or self._damaged

    def get(self, space: str, key: str) -> bytes | None:
        rows = self.read(_GET, (space, key, self._clock.wall()))
        return rows[0][0] if rows else None

    def items(self, space: str) -> Mapping[str, bytes]:
        rows = self.read(_ITEMS, (space, self._clock.wall()))
        return UNREAD if rows is None else dict(rows)

    def read(self, sql: str, values: Sequence[object] = ()) -> list[Any] | None:
        """The rows of a query that finds little; None where it cannot be read."""
        try:
            return self._reader.execute(sql, values).fetchall()
        except self._sqlite.Error as error:
            self._complain(error)
            return None

    async def query(self, work: Work[Result]) -> Result:
        self._check_tables()
        return await self._loop.run_in_executor(self._tables, self._look_up, work)

    async def transact(self, work: Work[Result], *tells: Subject) -> Result:
        self._check_tables()
        news = _news(tells)

        def whole(connection: sqlite3.Connection) -> Result | _Refused:
            connection.execute("SAVEPOINT work")
            try:
                result = work(connection)
                connection.executemany(_PUT, news)
            except self._sqlite.Error:
                raise  # the disk's: all that is written with it is undone, and done again alone
            except Exception as error:  # noqa: BLE001  the pump: whatever it raises is its caller's
                connection.execute("ROLLBACK TO work")
                return _Refused(error)
            finally:
                if connection.in_transaction:
                    connection.execute("RELEASE work")
            return result

        done = await self.write(whole)
        if isinstance(done, _Refused):
            raise done.error
        return done

    def _check_tables(self) -> None:
        """Raises `NotKept` where a fresh file would pass for one that was damaged, until the operator has decided."""
        if self._damaged:
            self._damaged = damaged(self._file)
        if self._damaged or self._is_closed:
            raise NotKept(self._damaged or "the store is closed")

    def put(self, space: str, key: str, value: bytes, ttl: float | None = None) -> Awaitable[None]:
        row = (space, key, value, self._end(ttl))
        return self.write(lambda connection: connection.execute(_PUT, row) and None)

    def delete(self, space: str, key: str, tells: Sequence[Subject] = ()) -> Awaitable[None]:
        news = _news(tells)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_DELETE, (space, key))
            connection.executemany(_PUT, news)

        return self.write(work)

    def compare_and_set(
        self,
        space: str,
        key: str,
        old: bytes | None,
        new: bytes | None,
        ttl: float | None = None,
        tells: Sequence[Subject] = (),
    ) -> Awaitable[bool]:
        expires, now, news = self._end(ttl), self._clock.wall(), _news(tells)

        def work(connection: sqlite3.Connection) -> bool:
            found = connection.execute(_GET, (space, key, now)).fetchone()
            if (found and found[0]) != old:
                return False
            if new is None:
                connection.execute(_DELETE, (space, key))
            else:
                connection.execute(_PUT, (space, key, new, expires))
            connection.executemany(_PUT, news)
            return True

        return self.write(work)

    def write(self, work: Callable[[sqlite3.Connection], Written]) -> Awaitable[Written]:
        """Do this within a transaction, which it shares with others; it may be done twice, if the first is undone."""
        done: asyncio.Future[Written] = self._loop.create_future()
        queued = _Queued(work, done)
        if self._is_closed or self._queue.qsize() >= MOST_QUEUED:
            queued.tell(None, NotKept("the store is closed" if self._is_closed else "too many queued writes"))
        else:
            self._queue.put(queued)
        return done

    def is_locked(self, beside: Iterable[Path] = ()) -> bool:
        """Whether another program keeps others from opening or writing it, or has locked a file `beside` it, at this
        moment."""
        with contextlib.suppress(OSError):
            # In a container, Linux does not tell of a lock whose taker has handed it on and ended.
            if not is_alone_with(self._file):
                return True
        return is_any_locked(self._file, (*self.locks(), *beside))

    def holders(self, among: Iterable[int] | None = None, beside: Iterable[Path] = ()) -> list[Holder]:
        """Which programs do so: see there."""
        return holders(self._file, among, (*self.locks(), *beside))

    def locks(self) -> list[Path]:
        """Files that gateways and commands lock for a moment each: whoever opens the store, or writes the secrets."""
        return [self._file.with_name(f"{name}.lock") for name in (self._file.name, SECRETS)]

    def written(self) -> int:
        """When anybody has written to it last, in nanoseconds of the file system."""
        with contextlib.suppress(OSError):
            return os.stat(f"{self._file}-wal").st_mtime_ns
        return 0

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._reader.close()
        for connection in list(self._readers):
            connection.interrupt()  # a search of what others have written may take seconds
        await asyncio.to_thread(self._tables.shutdown)
        for connection in self._readers:
            connection.close()
        written = self._loop.create_future()
        self._queue.put(_Queued(lambda _connection: None, written))
        self._queue.put(None)
        await asyncio.wait([written])
        self._thread.join()

    def _end(self, ttl: float | None) -> float | None:
        return None if ttl is None else self._clock.wall() + ttl

    # In the threads that read.

    def _look_up(self, work: Work[Result]) -> Result:
        if self._is_closed:
            raise NotKept("the store is closed")
        connection: sqlite3.Connection | None = getattr(self._of_thread, "connection", None)
        try:
            if connection is None:
                connection = self._of_thread.connection = reader(self._file)
                connection.execute(f"PRAGMA cache_size = -{CACHE}")
                self._readers.append(connection)
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")
        except self._sqlite.Error as error:
            raise NotKept(f"the store cannot be read: {error}; {CHECK}") from None

    # In the thread that writes.

    def _write_what_comes(self) -> None:
        is_last = False
        while not is_last:
            batch: list[_Queued] = []
            first = self._queue.get()
            while first:
                batch.append(first)
                if len(batch) == BATCH or self._queue.empty():
                    break
                first = self._queue.get()
            is_last = first is None
            while batch:
                done = self._commit(batch)
                batch = batch[done:]
                if batch:
                    time.sleep(GAP)
        self._writer.close()

    def _commit(self, batch: list[_Queued]) -> int:
        """The first of these in one transaction; how many those are. Where one spoils it, each gets its own."""
        results: list[Any] = []
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            over = self._clock.now() + HOLD
            for each in batch:
                results.append(each.work(self._writer))
                if self._clock.now() >= over:
                    break
            self._purge()
            self._writer.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  the pump: the writer is told, and the next are written
            self._undo()
            if len(batch) == 1 or self._code(error) == self._sqlite.SQLITE_BUSY:  # who holds the file holds up all
                self._tell(batch, [None] * len(batch), self._why(error))
            else:
                for each in batch:
                    self._commit([each])
            return len(batch)
        self._problem = ""
        self._tell(batch[: len(results)], results, None)
        return len(results)

    def _undo(self) -> None:
        if self._writer.in_transaction:
            with contextlib.suppress(self._sqlite.Error):
                self._writer.execute("ROLLBACK")

    def _why(self, error: Exception) -> Exception:
        if not isinstance(error, self._sqlite.OperationalError) and type(error) is not self._sqlite.DatabaseError:
            return error  # the work's own: the disk is well
        is_held = self._code(error) == self._sqlite.SQLITE_BUSY
        held_by = "; ".join(map(str, self.holders()[:MOST_NAMED])) if is_held else ""
        self._complain(error, held_by)
        advice = {
            self._sqlite.SQLITE_BUSY: "another program holds it: end that",
            self._sqlite.SQLITE_FULL: "make room on its disk",
        }
        return NotKept(f"the store cannot be written: {error}; {advice.get(self._code(error), CHECK)}", held_by)

    def _code(self, error: Exception) -> int:
        """SQLite's, without its details."""
        return getattr(error, "sqlite_errorcode", 0) & 0xFF

    def _purge(self) -> None:
        now = self._clock.wall()
        if now - self._purged >= PURGE:
            self._purged = now
            self._writer.execute(_PURGE, (now,))

    def _tell(self, batch: list[_Queued], results: list[Any], error: Exception | None) -> None:
        def tell() -> None:
            for each, result in zip(batch, results, strict=True):
                each.tell(result, error)

        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _complain(self, error: Exception, held_by: str = "") -> None:
        """Once, until it goes well again."""
        if not self._problem:
            why = f"{error}; {held_by}" if held_by else error
            log.warning("data is not kept for the next start: %s: %s", self._file, why)
        self._problem = f"the store cannot be read or written: {self._file}: {error}"


def _news(subjects: Sequence[Subject]) -> list[tuple[str, str, bytes, None]]:
    return [(NEWS, subject, os.urandom(8), None) for subject in subjects]
