"""Opening the file of the store: its folder, its version, who may read it; and what becomes of one that is damaged.

The rules this file keeps: a file that is none of ours, or damaged, is moved aside, never deleted; one of a newer
toolgate is left alone, and one of an older toolgate is copied before it is changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolgate.config import ownership
from toolgate.config.edits import make_folder
from toolgate.state.migrations import Migration

if TYPE_CHECKING:
    import sqlite3  # imported where it is used: most commands open no store, and it takes a while

log = logging.getLogger(__name__)

BUSY = 5.0  # seconds that one gateway waits for another's transaction, or for it to open the file
TRIES = 250  # to be alone with the file, in that time


class Unusable(Exception):
    """The store cannot be opened. `str()` says why, and how to fix it."""


def open_file(file: Path, migrations: Sequence[Migration]) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """A connection that writes, and one that reads. Raises `Unusable`."""
    import sqlite3

    try:
        make_folder(file.parent)
        for end in ("", "-wal", "-shm", ".lock"):
            ownership.check_file(Path(f"{file}{end}"))
        with alone(file):
            return _writer(file, migrations), reader(file)
    except ownership.NotOurs as error:
        raise Unusable(f"{error.filename} {error.why}, or set another folder as `state`") from None
    except (OSError, sqlite3.Error) as error:
        raise Unusable(f"{file} cannot be used ({error}); set another folder as `state`") from None


def _writer(file: Path, migrations: Sequence[Migration]) -> sqlite3.Connection:
    import sqlite3

    try:
        return _migrated(file, migrations)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise
        _move_aside(file, error)
        return _migrated(file, migrations)


def reader(file: Path) -> sqlite3.Connection:
    """Another connection that reads, to a file that is open."""
    reader = _connected(file)
    reader.execute("PRAGMA query_only = ON")
    return reader


@contextlib.contextmanager
def alone(file: Path) -> Generator[None]:
    """One process at a time makes the file, moves it aside or takes it to the next version. One that does not get on
    with it is not waited for."""
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(BUSY / TRIES)
        yield
    finally:
        os.close(lock)


def is_alone_with(file: Path) -> bool:
    """Whether one that wants to be alone with the file would not have to wait now."""
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def _migrated(file: Path, migrations: Sequence[Migration]) -> sqlite3.Connection:
    steps = sorted(migrations, key=lambda step: step.number)
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"migrations are not numbered in a row: {[step.number for step in steps]}")
    connection = _connected(file)
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version > len(steps):
            raise Unusable(
                f"{file} is from a newer toolgate (version {version}; this one supports {len(steps)}); "
                "use the newer one, or set another folder as `state`"
            )
        connection.execute("PRAGMA page_size = 16384")  # of a new file: lists are long
        connection.execute("PRAGMA journal_mode = WAL")
        if version < len(steps):
            _upgrade(connection, file, version, steps[version:])
    except BaseException:
        connection.close()
        raise
    return connection


def _upgrade(connection: sqlite3.Connection, file: Path, version: int, steps: Sequence[Migration]) -> None:
    """All steps or none: else neither toolgate could use the file."""
    import sqlite3

    kept = _keep_before(connection, file, version) if version else None
    try:
        whole = "".join(f"{step.sql};" for step in steps)
        connection.executescript(f"BEGIN IMMEDIATE; {whole} PRAGMA user_version = {steps[-1].number}; COMMIT;")
    except sqlite3.OperationalError as error:
        if not kept:
            raise
        raise Unusable(
            f"{file} cannot be upgraded from version {version} ({error}), and was not changed; "
            "use the toolgate that made it, or set another folder as `state`"
        ) from None
    if kept:
        log.info("%s was upgraded from version %d; a copy of that is kept as %s", file, version, kept.name)


def _keep_before(connection: sqlite3.Connection, file: Path, version: int) -> Path:
    """A copy for the toolgate that is upgraded from: it cannot read the file any more."""
    import sqlite3

    kept, fresh = Path(f"{file}.version-{version}"), Path(f"{file}.version-{version}.new")
    fresh.unlink(missing_ok=True)
    _make(fresh)
    with contextlib.closing(sqlite3.connect(fresh)) as copy:
        connection.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without others beside it
    os.replace(fresh, kept)
    return kept


def _connected(file: Path) -> sqlite3.Connection:
    import sqlite3

    _make(file)
    connection = sqlite3.connect(file, timeout=BUSY, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = NORMAL")  # what is written outlives this process; a power cut may take it
    return connection


def _make(file: Path) -> None:
    """Make it private before SQLite makes it; what SQLite puts beside it is as private. One that is there is not even
    opened: closing it would end all locks that this process has on it, and with them what keeps gateways apart."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def damaged(file: Path) -> str:
    """Whether there was another file before this one, whose content is missing now; empty where there was none."""
    aside = next(iter(sorted(file.parent.glob(f"{file.name}.damaged-[0-9]*"))), None)
    if not aside:
        return ""
    return (
        f"an earlier store was damaged; put a backup in its place with `toolgate state restore`, "
        f"or remove {aside} to go on without what was in it"
    )


def _move_aside(file: Path, error: Exception) -> None:
    aside = next(path for number in range(1, 1000) if not (path := Path(f"{file}.damaged-{number}")).exists())
    for end in ("", "-wal", "-shm"):
        if os.path.exists(f"{file}{end}"):
            os.rename(f"{file}{end}", f"{aside}{end}")
    log.warning("%s was damaged (%s); moved it to %s and started a new one", file, error, aside.name)
