"""Copies of the store's file: made while gateways write, looked at, and put in its place again.

The rules this file keeps: a copy is whole, or not there; what is put in place was looked at before, as a copy of our
own that nobody changes meanwhile; what was there is moved aside, never deleted; and no file is put in place under a
gateway that has it open, since that would go on by what it has read of the one before (keys of seals, grants, sign-ins)
and write that over it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from toolgate.config import ownership
from toolgate.config.edits import make_folder
from toolgate.state.migrations import MIGRATIONS
from toolgate.state.opening import alone

if TYPE_CHECKING:
    import sqlite3  # imported where it is used: most commands open no store, and it takes a while

CHUNK = 1024 * 1024  # bytes that are copied at once
PATIENCE = 2.0  # seconds for a gateway that is about to close the file
MOST_FAULTS = 10  # that the check of a file names
ENDS = ("", "-wal", "-shm", "-journal")


class Refused(Exception):
    """Nothing was done. `str()` says why, and what to do."""


class Checked(msgspec.Struct, omit_defaults=True):
    """What there is to say of the store's file. It is sound where there are no `problems`."""

    file: str
    version: int | None = None
    supported: int = len(MIGRATIONS)
    sizes: Mapping[str, int] = {}
    counts: Mapping[str, int] = {}
    problems: list[str] = []


class Restored(NamedTuple):
    """Where what was there before is now: the store that a backup took the place of, and damaged ones."""

    aside: tuple[Path, ...]


def back_up(file: Path, to: Path, force: bool = False) -> int:
    """Write a copy of the store, as it is at one time; gateways go on meanwhile. Its size in bytes. Raises
    `Refused`."""
    import sqlite3

    if not file.is_file():
        raise Refused(f"There is no store at {file}; the first gateway that runs with this configuration makes it")
    if to.exists() and not force:
        raise Refused(f"{to} exists: choose another name, or give --force")
    if not to.parent.is_dir():
        raise Refused(f"{file} cannot be copied to {to}: there is no folder {to.absolute().parent}")
    fresh = to.with_name(f".{to.name}.{secrets.token_hex(4)}")
    try:
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(_connected(file)) as source, contextlib.closing(sqlite3.connect(fresh)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without others beside it
            if faults := _faults(copy):
                raise Refused(f"{file} is damaged, and was not copied: {'; '.join(faults)}")
        _sync(fresh)
        os.replace(fresh, to)
        _sync(to.absolute().parent)
        return to.stat().st_size
    except (OSError, sqlite3.Error) as error:
        raise Refused(f"{file} cannot be copied to {to}: {error}") from None
    finally:
        for end in ENDS:
            Path(f"{fresh}{end}").unlink(missing_ok=True)


def restore(file: Path, backup: Path) -> Restored:
    """Put a backup in the store's place, which need not be there; and with it the operator has decided what becomes of
    damaged ones. Raises `Refused`."""
    import sqlite3

    try:
        make_folder(file.parent)
        for end in (*ENDS, ".lock"):
            ownership.check_file(Path(f"{file}{end}"))
        with _copied(backup, file.parent) as copy:
            if why := _no_store(copy):
                raise Refused(f"{backup} was not restored: {why}")
            with alone(file), _unused(file):
                aside = [_move_aside(file, f"{file.name}.before-restore")] if _is_any(file) else []
                aside += [_move_aside(each, f"{file.name}.was-damaged") for each in damaged_files(file)]
                os.rename(copy, file)
                _sync(file.parent)
        return Restored(tuple(aside))
    except ownership.NotOurs as error:
        raise Refused(f"{error.filename} {error.why}") from None
    except (OSError, sqlite3.Error) as error:
        raise Refused(f"{backup} cannot be restored: {error}") from None


def damaged_files(file: Path) -> list[Path]:
    """What was moved aside since it was damaged, without what belongs to it."""
    return [path for path in sorted(file.parent.glob(f"{file.name}.damaged-[0-9]*")) if path.name[-1].isdecimal()]


def check(file: Path) -> Checked:
    """Look at the store's file, and at whose it is; gateways go on meanwhile. Raises `Refused` where there is none."""
    import sqlite3

    if not os.path.lexists(file):
        raise Refused(f"There is no store at {file}; the first gateway that runs with this configuration makes it")
    sizes = {path.name: path.stat().st_size for end in ENDS if (path := Path(f"{file}{end}")).exists()}
    checked = Checked(str(file), sizes=sizes, problems=_problems_of_owner(file))
    checked.problems += [
        f"an earlier store was damaged: {path}; restore a backup (`toolgate state restore`), or remove it"
        for path in damaged_files(file)
    ]
    try:
        with contextlib.closing(_connected(file)) as connection:
            [version] = connection.execute("PRAGMA user_version").fetchone()
            checked.version = version
            checked.problems += _faults(connection)
            if version > len(MIGRATIONS):
                checked.problems.append(f"it is from a newer toolgate: version {version}, not {len(MIGRATIONS)}")
            elif _schema(connection) != _schema_of(version):
                checked.problems.append(
                    f"its tables are not those of version {version}: no released toolgate made them"
                )
            names = [name for [name] in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            quoted = {name: '"' + name.replace('"', '""') + '"' for name in sorted(names)}
            checked.counts = {
                name: connection.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for name, each in quoted.items()
            }
    except (OSError, sqlite3.Error) as error:
        checked.problems.append(f"it cannot be read: {error}")
    return checked


def _problems_of_owner(file: Path) -> list[str]:
    problems: list[str] = []
    for path in (file.parent, *(Path(f"{file}{end}") for end in (*ENDS, ".lock"))):
        try:
            (ownership.check if path == file.parent else ownership.check_file)(path)
            if path.exists() and path.stat().st_mode & 0o077:
                problems.append(f"{path} can be read by other users: chmod go-rwx")
        except ownership.NotOurs as error:
            problems.append(f"{error.filename} {error.why}")
        except OSError as error:
            problems.append(f"{path} cannot be checked: {error.strerror}")
    return problems


def _connected(file: Path) -> sqlite3.Connection:
    """To one that is there, and not to be written."""
    import sqlite3

    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=PATIENCE, isolation_level=None
    )
    connection.execute("PRAGMA query_only = ON")
    return connection


def _faults(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute(f"PRAGMA integrity_check({MOST_FAULTS})").fetchall()
    return [] if found == [("ok",)] else [f"it is damaged: {row[0]}" for row in found]


@contextlib.contextmanager
def _copied(backup: Path, folder: Path) -> Generator[Path]:
    """A copy beside the store, removed at the end where it still is: what is looked at is what is put in place."""
    copy = folder / f".restoring.{secrets.token_hex(4)}"
    try:
        target = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(target, "wb") as to, ownership.open_anyones(backup) as source:
            while chunk := source.read(CHUNK):
                to.write(chunk)
            to.flush()
            os.fsync(to.fileno())
        yield copy
    finally:
        for end in ENDS:
            Path(f"{copy}{end}").unlink(missing_ok=True)


def _no_store(copy: Path) -> str:
    """Why a file cannot be the store; empty where it can. Its tables must be ours to the letter: what else is in them,
    such as a trigger, would act in our name."""
    import sqlite3

    try:
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = ON")
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                return f"it is from a newer toolgate (version {version}; this one supports {len(MIGRATIONS)})"
            if version < 1 or _schema(connection) != _schema_of(version):
                return "it is not a store of toolgate"
            return "; ".join(_faults(connection))
    except sqlite3.DatabaseError as error:
        return f"it is not a store of toolgate, or damaged ({error})"


def _schema(connection: sqlite3.Connection) -> set[Any]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall())


def _schema_of(version: int) -> set[Any]:
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        for step in MIGRATIONS[:version]:
            fresh.executescript(step.sql)
        return _schema(fresh)


@contextlib.contextmanager
def _unused(file: Path) -> Generator[None]:
    """Inside the block nobody else has the file open, and all that was written is in it. Raises `Refused`. A file that
    is no database is used by nobody."""
    import sqlite3

    if not file.exists():
        yield
        return
    uri = f"{file.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA journal_mode = DELETE")  # which SQLite does for one alone
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            raise Refused(
                f"{file} is in use: end the gateways and agents that use it (`toolgate status` names one), and restore "
                "again"
            ) from None
        except sqlite3.DatabaseError:
            pass  # it is damaged
        yield


def _move_aside(file: Path, name: str) -> Path:
    """A store and what belongs to it; where it is then."""
    aside = next(path for number in range(1, 10_000) if not _is_any(path := file.with_name(f"{name}-{number}")))
    for end in ENDS:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{file}{end}", f"{aside}{end}")
    return aside


def _is_any(file: Path) -> bool:
    """Whether a store is there, or what belongs to one: a log alone would be taken for that of the next file."""
    return any(os.path.lexists(f"{file}{end}") for end in ENDS)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
