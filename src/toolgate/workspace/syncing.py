"""A project's tasks as a file in its folder, for git: exported, imported, and told how it stands.

The rules this file keeps: the file is whole at every moment, whatever ends us; one process at a time reads and writes
it, and none writes over lines that it has not read; nothing that the store has is lost by an import, but that of two
versions of a task the one that was changed last is kept, in every clone the same; and files are ours, reached through
no link.

What this store has last read or written of a file is noted in the store. The note beside the file is for people: it
travels with clones, in which the store is another.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from toolgate.config import ownership
from toolgate.core import jsonrpc, surrogates
from toolgate.core.fault import Fault
from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import Object, ToolContext
from toolgate.workspace import jsonl, tasks
from toolgate.workspace.circles import circular
from toolgate.workspace.jsonl import Dependency, Reading, Unreadable
from toolgate.workspace.projects import FILE, Project
from toolgate.workspace.tasks import FIELDS, Task, row_of, task_of
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

SPACE = "task files"  # of the store: what was last read or written of each
TRIES = 50  # to be alone with a file, a tenth of a second apart
CHUNK = 1024 * 1024  # bytes that are hashed at once
LINES = 500  # between two reports of progress
MOST_REFUSED = 100  # that are named in the result of an import
NOTHING = hashlib.sha256().hexdigest()  # where there is no file
LONGEST_NOTE = 64 * 1024  # bytes of the note beside a file


class Progress(Protocol):
    def __call__(self, done: float, total: float | None = None, message: str = "") -> object: ...


def _silent(done: float, total: float | None = None, message: str = "") -> None:
    pass


class _Known(msgspec.Struct):
    """What this store knows of a file: the hash of what it has last read or written of it, and by which mark its tasks
    were in it as they are; why that went wrong since, if it did. `elsewhere`: ids of tasks that stand in the file only,
    since tasks of other projects have them here."""

    hash: str = ""
    mark: tuple[Any, ...] = ()
    exported: str = ""
    problem: str = ""
    elsewhere: list[str] = []


class _Note(msgspec.Struct):
    """`tasks_meta.json`: the SHA-256 of the file as it was written, and when."""

    content_hash: str
    last_exported: str


class Imported(msgspec.Struct, omit_defaults=True):
    """What became of a file's lines. `refused` says of what was not taken in why; `kept`: newer here than in the file;
    `missing`: whether the file lacks what is here."""

    tasks: int
    created: int
    updated: int
    unchanged: int
    kept: int
    dependencies_added: int
    refused: list[str] = []
    unknown_keys: dict[str, int] = {}
    missing: bool = False


class TaskFile(NamedTuple):
    """An open folder, and the file of tasks in it."""

    project: Project
    path: Path
    folder: int
    key: str

    def read(self) -> BinaryIO:
        file = ownership.open_in(self.folder, self.path)
        if os.fstat(file.fileno()).st_size > jsonl.LARGEST:
            file.close()
            raise Unreadable(f"it is larger than {jsonl.LARGEST:,} bytes")
        return file

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.stem}_meta.json")


@asynccontextmanager
async def opened(workspace: Workspace, project: Project) -> AsyncGenerator[TaskFile]:
    """The file of a project, for one process at a time. Raises `Fault`."""
    within = Path(workspace.config.jsonl)
    path = project.folder / within
    try:
        folder = ownership.open_folder(project.folder, within.parent.parts)
    except OSError as error:
        raise _unusable(path.parent, error) from None
    try:
        for _ in range(TRIES):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await workspace.clock.sleep(0.1)
        else:
            raise Fault("TIMEOUT", f"another gateway is still reading or writing {path}", reach="not_sent")
        yield TaskFile(project, path, folder, hashlib.sha256(os.fsencode(path)).hexdigest())
    except OSError as error:
        raise _unusable(path, error) from None
    finally:
        os.close(folder)


def _unusable(path: Path, error: OSError) -> Fault:
    if isinstance(error, ownership.NotOurs):
        why = error.why
    elif error.errno in (errno.ELOOP, errno.ENOTDIR):
        why = "is a link or not a folder; links are not followed"
    else:
        why = f"cannot be used: {error.strerror}"
    return tasks.refused(f"{error.filename if isinstance(error, ownership.NotOurs) else path} {why}")


async def synced(
    workspace: Workspace, project: Project, imports: bool, exports: bool, tell: Progress = _silent
) -> dict[str, Any]:
    """What is asked for, done, and told by direction. An export imports first what others have written into the file
    since. Raises `Fault`."""
    async with opened(workspace, project) as file:
        known = _known(workspace, file)
        try:
            in_thread = _reporting(tell)
            found = await asyncio.to_thread(_hash, file)
            done: dict[str, Any] = {}
            if imports and not found:
                done["import"] = {"tasks": 0, "skipped": "there is no file"}
            elif imports or found not in ("", known.hash):
                done["import"] = msgspec.to_builtins(await _import(workspace, file, known, in_thread))
            if exports:
                done["export"] = await _export(workspace, file, known, in_thread)
            known.problem = ""
        except Unreadable as error:
            known.problem = f"{file.path}: {error}"
            raise tasks.refused(f"{known.problem}. Nothing was imported or written") from None
        except OSError as error:
            known.problem = _unusable(file.path, error).message
            raise
        finally:
            await workspace.store.put(SPACE, file.key, jsonrpc.encode(known))
    return {"file": str(file.path), **done}


async def automatically(workspace: Workspace, project: Project) -> None:
    """Import what others have written into the file; and write what has changed here, where anything has. Raises
    `Fault`."""
    async with opened(workspace, project) as file:
        known = _known(workspace, file)
        found = await asyncio.to_thread(_hash, file)
        mark = await workspace.query(lambda connection: _mark(connection, project.id))
        is_new, is_stale = found not in ("", known.hash), mark != known.mark and (found or mark[0])
    if not is_new and not is_stale:
        return
    done = await synced(workspace, project, imports=is_new, exports=False)
    if is_stale and not (is_new and not done["import"].get("missing")):
        await synced(workspace, project, imports=False, exports=True)


async def status(workspace: Workspace, project: Project) -> dict[str, Any]:
    """How a file stands to the tasks: `synced` where it is what an export would write now."""
    async with opened(workspace, project) as file:
        known = _known(workspace, file)
        found = await asyncio.to_thread(_hash, file)
        note = await asyncio.to_thread(_read_note, file)
        wanted, problem = "", known.problem
        try:
            wanted = await workspace.query(lambda connection: _hash_of_export(connection, project.id))
            await asyncio.to_thread(_look_for_markers, file)
        except Unreadable as error:
            problem = f"{file.path}: {error}"
    is_synced = (found or NOTHING) == wanted and not problem
    word = "unusable" if problem else "synced" if is_synced else "out_of_date" if found else "never_exported"
    said = {"status": word, "last_exported": note and note.last_exported, "hash": found or None, "synced": is_synced}
    return {**said, "file": str(file.path), **({"problem": problem} if problem else {})}


def _known(workspace: Workspace, file: TaskFile) -> _Known:
    try:
        return msgspec.json.decode(workspace.store.get(SPACE, file.key) or b"{}", type=_Known)
    except jsonrpc.UNREADABLE:
        return _Known()


def _reporting(tell: Progress) -> Progress:
    """The same from a thread."""
    loop = asyncio.get_running_loop()
    return lambda done, total=None, message="": loop.call_soon_threadsafe(tell, done, total, message)


# In threads: the file.


def _hash(file: TaskFile) -> str:
    """Of what stands there; empty where there is no file."""
    found = hashlib.sha256()
    try:
        with file.read() as opened:
            while chunk := opened.read(CHUNK):
                found.update(chunk)
    except FileNotFoundError:
        return ""
    return found.hexdigest()


def _look_for_markers(file: TaskFile) -> None:
    """Raises `Unreadable`."""
    with contextlib.suppress(FileNotFoundError), file.read() as opened:
        jsonl.look_for_markers(_lines(opened, hashlib.sha256()))


def _lines(file: BinaryIO, found: Any) -> Iterator[bytes]:
    while line := file.readline(jsonl.LONGEST_LINE + 2):
        found.update(line)
        yield line


def _storable(lines: Iterator[bytes], refused: list[str]) -> Iterator[bytes]:
    """Without lone surrogates: no table takes half a character."""
    for number, line in enumerate(lines, 1):
        whole = surrogates.replaced(line)
        if whole != line:
            refused.append(f"line {number}: lone surrogates in it were replaced by U+FFFD")
        yield whole


def _read_note(file: TaskFile) -> _Note | None:
    try:
        with ownership.open_in(file.folder, file.note) as opened:
            return msgspec.json.decode(opened.read(LONGEST_NOTE), type=_Note)
    except (OSError, *jsonrpc.UNREADABLE):
        return None


@contextlib.contextmanager
def _replacing(folder: int, name: str, is_wanted: Callable[[], bool] = lambda: True) -> Generator[BinaryIO]:
    """What is written in the block stands under that name when the block is left, whole and on the disk, where it
    `is_wanted` then; what a process has left that was ended while it wrote is swept up. To be used by one process at a
    time."""
    for left in os.listdir(folder):
        if left.startswith(f".{name}.") and left.endswith(".part"):
            os.unlink(left, dir_fd=folder)
    fresh = f".{name}.{secrets.token_hex(4)}.part"
    try:
        with open(
            os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder), "wb"
        ) as file:
            yield file
            if not is_wanted():
                return
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)


# Export.


async def _export(workspace: Workspace, file: TaskFile, known: _Known, tell: Progress) -> dict[str, Any]:
    """Write the file, where what stands there is something else. What it says is in `known` then."""

    if known.elsewhere:
        known.problem = (
            f"{file.path} was not written: tasks of other projects have ids of tasks in it, which would be lost "
            f"({tasks.listed(known.elsewhere)})"
        )
        raise tasks.refused(
            known.problem, "delete those of the other project, or give these other ids; then sync again"
        )

    def work(connection: Connection) -> tuple[str, int, tuple[Any, ...], bool]:
        mark, content = _mark(connection, file.project.id), hashlib.sha256()
        before = _hash(file)

        def is_another() -> bool:
            if _hash(file) != before:
                raise _Overtaken
            return content.hexdigest() != (before or NOTHING)

        with _replacing(file.folder, file.path.name, is_another) as fresh:
            for number, line in enumerate(_exported(connection, file.project.id), 1):
                fresh.write(line)
                content.update(line)
                if number % LINES == 0:
                    tell(number, mark[0], "exported")
        found = content.hexdigest()
        return found, mark[0], mark, found != (before or NOTHING)

    try:
        known.hash, count, known.mark, is_written = await workspace.query(work)
    except _Overtaken:
        raise tasks.refused(f"{file.path} was changed meanwhile: sync it again") from None
    if is_written:
        known.exported = workspace.now()
        note = _Note(known.hash, known.exported)
        await asyncio.to_thread(_write_note, file, note)
    return {"tasks": count, "written": is_written, "hash": known.hash, "last_exported": known.exported or None}


class _Overtaken(Exception):
    """Somebody else has written the file."""


def _write_note(file: TaskFile, note: _Note) -> None:
    with _replacing(file.folder, file.note.name) as fresh:
        fresh.write(jsonrpc.encode(note) + b"\n")


def _hash_of_export(connection: Connection, project: str) -> str:
    content = hashlib.sha256()
    for line in _exported(connection, project):
        content.update(line)
    return content.hexdigest()


def _exported(connection: Connection, project: str) -> Iterator[bytes]:
    """The lines, in order; a few at a time are in memory. Raises `Unreadable`."""
    tasks = connection.execute(f"SELECT {_ALL} FROM task WHERE project_id = ? ORDER BY id", (project,))
    waits = groupby(_rows(connection.execute(_DEPENDENCIES, (project,))), lambda row: row[0])
    of, them = next(waits, (None, iter(())))
    for row in _rows(tasks):
        dependencies: Sequence[Dependency] = ()
        if of == row[0]:
            dependencies = [Dependency(*rest) for _, *rest in them]
            of, them = next(waits, (None, iter(())))
        line = jsonl.line(row, dependencies)
        if len(line) > jsonl.LONGEST_LINE:
            raise Unreadable(f"{row[0]} is too long for a line of {jsonl.LONGEST_LINE:,} bytes: shorten its texts")
        yield line


_ALL = ", ".join(FIELDS)
_DEPENDENCIES = """
    SELECT w.task_id, w.depends_on, w.dep_type, w.created_at FROM task_dependency w JOIN task t ON t.id = w.task_id
    WHERE t.project_id = ? ORDER BY w.task_id, w.depends_on, w.dep_type
"""
# Each change of a task has another time, down to the microsecond; the sum tells it from any other.
_MARK = (
    "SELECT COUNT(*), MAX(updated_at), SUM(CAST(SUBSTR(updated_at, 21, 6) AS INTEGER)) FROM task WHERE project_id = ?"
)
_MARK_OF_DEPENDENCIES = """
    SELECT COUNT(*), MAX(w.created_at) FROM task_dependency w JOIN task t ON t.id = w.task_id WHERE t.project_id = ?
"""


def _mark(connection: Connection, project: str) -> tuple[Any, ...]:
    """Another one as soon as any task of the project is."""
    tasks = connection.execute(_MARK, (project,)).fetchone()
    return (*tasks, *connection.execute(_MARK_OF_DEPENDENCIES, (project,)).fetchone())


def _rows(found: Any) -> Iterator[tuple[Any, ...]]:
    while (row := found.fetchone()) is not None:
        yield row


# Import.


class _Changes(NamedTuple):
    """What an import is to do, and what it has found."""

    tasks: list[list[Any]]
    dependencies: list[tuple[str, str, str, str]]
    imported: Imported
    elsewhere: list[str]
    hash: str


async def _import(workspace: Workspace, file: TaskFile, known: _Known, tell: Progress) -> Imported:
    """In one transaction. Raises `Unreadable`, and nothing is changed then."""
    changes = await workspace.query(lambda connection: _compared(connection, file, tell))
    left_out: dict[str, list[str]] = {}

    def work(connection: Connection) -> tuple[Any, ...]:
        left_out.update(_apply(connection, changes, file.project.id))
        return _mark(connection, file.project.id)

    if changes.tasks or changes.dependencies:
        tell(changes.imported.tasks, changes.imported.tasks, "writing")
        mark = await workspace.transact(work, "tasks")
    else:
        mark = await workspace.query(lambda connection: _mark(connection, file.project.id))
    known.hash, known.elsewhere = changes.hash, changes.elsewhere
    found = changes.imported
    found.dependencies_added -= len(left_out.get("dependencies", ()))
    found.missing = found.missing or any(left_out.values())
    found.refused = _few([*found.refused, *(said for each in left_out.values() for said in each)])
    if not found.missing:
        known.mark = mark
    return found


def _few(said: list[str]) -> list[str]:
    left = len(said) - MOST_REFUSED
    return [*said[:MOST_REFUSED], f"and {left:,} more"] if left > 0 else said


def _compared(connection: Connection, file: TaskFile, tell: Progress) -> _Changes:
    """The file beside the store."""
    project, reading, content = file.project.id, Reading(), hashlib.sha256()
    here = dict(_rows(connection.execute("SELECT id, updated_at FROM task WHERE project_id = ?", (project,))))
    waits = {row[:3] for row in _rows(connection.execute(_DEPENDENCIES, (project,)))}
    same = (
        {hashlib.blake2b(line, digest_size=16).digest() for line in _exported(connection, project)}
        if here
        else set[bytes]()
    )
    refused: list[str] = []
    elsewhere: dict[str, None] = {}
    wanted: dict[str, Task] = {}  # those that are new, or newer than here
    kept, seen = set[str](), set[str]()
    dependencies: dict[tuple[str, str, str], str] = {}
    stated: set[tuple[str, str, str]] = set()
    lines = unchanged = 0

    def others() -> Iterator[bytes]:
        """Those that do not stand here in the same words."""
        nonlocal lines, unchanged
        for lines, line in enumerate(_lines(opened, content), 1):
            if lines % LINES == 0:
                tell(lines, None, "read")
            is_same = bool(same) and hashlib.blake2b(line, digest_size=16).digest() in same
            unchanged += is_same
            yield b"\n" if is_same else line

    with file.read() as opened:
        for entry in reading.entries(_storable(others(), refused)):
            task = msgspec.structs.replace(entry.task, project_id=project)
            if task.id not in here and task.id not in seen and _is_elsewhere(connection, task.id):
                refused.append(f"{task.id}: a task of another project has this id")
                elsewhere[task.id] = None
                continue
            seen.add(task.id)
            for each in entry.dependencies:
                key = (task.id, each.depends_on, each.dep_type)
                stated.add(key)
                if key not in waits:
                    dependencies[key] = min(dependencies.get(key, each.created_at), each.created_at)
            before = wanted.get(task.id)
            if not before and task.updated_at == here.get(task.id):
                before = task_of(connection.execute(_ONE, (task.id,)).fetchone())
            if _age(task) > _age(before) if before else task.updated_at > here.get(task.id, ""):
                wanted[task.id] = task
            elif task.id not in wanted:
                kept.add(task.id)
    created = sum(id not in here for id in wanted)
    rows = [(*key, at) for key, at in sorted(dependencies.items())]
    imported = Imported(
        tasks=len(seen) + unchanged,
        created=created,
        updated=len(wanted) - created,
        unchanged=unchanged,
        kept=len(kept - wanted.keys()),
        dependencies_added=len(rows),
        refused=refused,
        unknown_keys=dict(sorted(reading.unknown.items())),
        missing=unchanged + len(here.keys() & seen) < len(here) or bool(kept),
    )
    changed = [row_of(each) for _, each in sorted(wanted.items())]
    return _Changes(changed, rows, imported, list(elsewhere)[: tasks.MOST_NAMED + 1], content.hexdigest())


_ONE = f"SELECT {_ALL} FROM task WHERE id = ?"


def _age(task: Task) -> tuple[str, bytes]:
    """Of two versions of a task the one with the greater age is kept: what was changed last, and of what was changed at
    the same time the same one everywhere."""
    return task.updated_at, jsonl.line(row_of(task), ())


def _is_elsewhere(connection: Connection, id: str) -> bool:
    return connection.execute("SELECT 1 FROM task WHERE id = ?", (id,)).fetchone() is not None


def _apply(connection: Connection, changes: _Changes, project: str) -> dict[str, list[str]]:
    """What was left out, of parents and of dependencies, since a task would be in a circle by it."""
    connection.executemany(_UPSERT, changes.tasks)
    parents: list[str] = []
    if any(row[_PARENT] for row in changes.tasks):
        found = connection.execute("SELECT id, parent_task_id FROM task WHERE project_id = ?", (project,))
        above = {id: (parent,) for id, parent in _rows(found) if parent}
        for id, parent in sorted(circular(above)):
            connection.execute("UPDATE task SET parent_task_id = NULL WHERE id = ?", (id,))
            parents.append(f"{id} would be part of itself through {parent}: left without a parent")
    new = {(id, depends_on) for id, depends_on, type, _ in changes.dependencies if type == "blocks"}
    waits: dict[str, list[str]] = {}
    for id, depends_on in (*new, *_rows(connection.execute(_BLOCKS))) if new else ():
        waits.setdefault(id, []).append(depends_on)
    circles = new & circular(waits)
    rows = [row for row in changes.dependencies if row[2] != "blocks" or row[:2] not in circles]
    connection.executemany("INSERT INTO task_dependency VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
    dependencies = [f"{id} would wait for itself through {depends_on}: left out" for id, depends_on in sorted(circles)]
    return {"parents": parents, "dependencies": dependencies}


_PARENT = FIELDS.index("parent_task_id")
_BLOCKS = "SELECT task_id, depends_on FROM task_dependency WHERE dep_type = 'blocks'"


_UPSERT = (
    f"INSERT INTO task ({_ALL}) VALUES ({', '.join('?' * len(FIELDS))}) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in FIELDS if name not in ("id", "project_id"))
    + " WHERE task.project_id = excluded.project_id AND task.updated_at <= excluded.updated_at"
)


# The tools.


class SyncTasks(msgspec.Struct, forbid_unknown_fields=True):
    direction: Annotated[
        Literal["import", "export", "both"],
        Meta(description="`import` reads the file, `export` writes it; `both` (default) does that in this order"),
    ] = "both"


async def sync_tasks(given: SyncTasks, workspace: Workspace, context: ToolContext) -> Object:
    project = await workspace.project(context)
    if not project:
        raise tasks.refused(
            "This call is in no project: its tasks are in the store only, without a file",
            f'make one: {FILE} with {{"id": "...", "name": "..."}} in the folder of the project',
        )
    imports, exports = given.direction != "export", given.direction != "import"
    return {"direction": given.direction, **await synced(workspace, project, imports, exports, context.progress)}


class GetSyncStatus(msgspec.Struct, forbid_unknown_fields=True):
    pass


async def get_sync_status(given: GetSyncStatus, workspace: Workspace, context: ToolContext) -> Object:
    project = await workspace.project(context)
    if not project:
        return {"status": "no_project", "last_exported": None, "hash": None, "synced": False}
    return await status(workspace, project)


TOOLS = (
    Tool(
        "sync_tasks",
        "Import/export tasks to JSONL: the project's file for git. Nothing here is lost by it; of two versions of a "
        "task the one that was changed last is kept.",
        SyncTasks,
        sync_tasks,
        changes=True,
    ),
    Tool(
        "get_sync_status",
        "Get sync status: whether the project's file of tasks is as the tasks are.",
        GetSyncStatus,
        get_sync_status,
    ),
)
