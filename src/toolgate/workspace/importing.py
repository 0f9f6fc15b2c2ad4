"""A project's file of tasks, taken into the store: compared as a whole, then written in pieces.

The rules this file keeps: nothing that the store has is lost by an import, but that of two versions of a task the one
that was changed last is kept, in every clone the same. Other writes wait for a piece or two, never for all. And
whatever ends us between two pieces, or is changed there, after each of them no task is newly part of itself or waits
for itself, and the same import, begun again, does what is left: who calls notes that the file was read after all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from toolgate.core import surrogates
from toolgate.core.fault import Fault
from toolgate.state.base import Connection
from toolgate.workspace import exporting, jsonl, task_file, tasks
from toolgate.workspace.circles import changed, circular, groups, waits
from toolgate.workspace.exporting import Mark
from toolgate.workspace.jsonl import Reading
from toolgate.workspace.task_file import TaskFile
from toolgate.workspace.tasks import FIELDS, Task, row_of, task_of
from toolgate.workspace.workspace import Workspace

LINES = 500  # between two reports of progress
MOST_REFUSED = 100  # that are named in the result of an import
PIECE = 100  # tasks or dependencies that are written in one transaction
LARGEST_PIECE = 128 * 1024  # bytes of them
MOST_WALKS = 20  # in one transaction, over all that waits for a task
PAUSE = 0.002  # seconds from one piece to the next, in which other processes write
ROUNDS = 10  # in which what was put off is tried again, before it is looked at as a whole

Row = Sequence[Any]  # of the table `task`
Packed = bytes  # such a row: a hundred thousand lists would hold up all threads whenever Python collects its garbage
Waits = tuple[str, str, str, str]  # a row of the table `task_dependency`


class Progress(Protocol):
    def __call__(self, done: float, total: float | None = None, message: str = "") -> object: ...


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


class _Changes(NamedTuple):
    """What an import is to do, and what it has found. `mark` is that of the tasks as they were then."""

    tasks: list[Packed]
    dependencies: list[Waits]
    imported: Imported
    elsewhere: list[str]
    hash: str
    mark: Mark


class FileRead(NamedTuple):
    """What was done with a file; its hash as it was read; by which mark the tasks are what it says, None where they are
    not; and ids of tasks that stand in the file only, since tasks of other projects have them here."""

    imported: Imported
    hash: str
    mark: Mark | None
    elsewhere: list[str]


async def imported(workspace: Workspace, file: TaskFile, tell: Progress) -> FileRead:
    """Raises `Unreadable`, and nothing is changed then."""
    changes = await workspace.query(lambda connection: _compared(connection, file, tell))
    found, project = changes.imported, file.project.id
    work = _Writing(workspace, project, changes, tell)
    if changes.tasks or changes.dependencies:
        await work.run()
        await workspace.transact(lambda connection: None, "tasks")

    def at_the_end(connection: Connection) -> Mark | None:
        found.created = sum(not before for before, _ in work.written)
        found.updated = len(work.written) - found.created
        found.kept += work.kept
        found.dependencies_added = len(work.added)
        found.missing = found.missing or bool(work.left_out or work.kept)
        found.refused = _few([*found.refused, *work.left_out])
        mark = exporting.mark(connection, project)
        return mark if mark == exporting.moved(changes.mark, work.written, work.added) else None

    mark = await workspace.query(at_the_end)
    return FileRead(found, changes.hash, None if found.missing else mark, changes.elsewhere)


def _few(said: list[str]) -> list[str]:
    left = len(said) - MOST_REFUSED
    return [*said[:MOST_REFUSED], f"and {left:,} more"] if left > 0 else said


# The file beside the store.


def _compared(connection: Connection, file: TaskFile, tell: Progress) -> _Changes:
    project, reading, content = file.project.id, Reading(), hashlib.sha256()
    here = dict(exporting.rows(connection.execute("SELECT id, updated_at FROM task WHERE project_id = ?", (project,))))
    known = {row[:3]: row[3] for row in exporting.rows(connection.execute(exporting.DEPENDENCIES, (project,)))}
    same = (
        {hashlib.blake2b(line, digest_size=16).digest() for line in exporting.lines(connection, project)}
        if here
        else set[bytes]()
    )
    refused: list[str] = []
    elsewhere: dict[str, None] = {}
    wanted: dict[str, Packed] = {}  # those that are new, or newer than here
    kept, seen = set[str](), set[str]()
    dependencies: dict[tuple[str, str, str], str] = {}
    is_here = set[tuple[str, str, str]]()  # of those that are known: the file has them, and none that is younger
    lines = unchanged = 0

    def others() -> Iterator[bytes]:
        """Those that do not stand here in the same words."""
        nonlocal lines, unchanged
        for lines, line in enumerate(task_file.lines(opened, content), 1):
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
                if each.created_at <= known.get(key, ""):
                    is_here.add(key)
                if each.created_at < known.get(key, "~"):  # of two that were added apart the older is kept everywhere
                    dependencies[key] = min(dependencies.get(key, each.created_at), each.created_at)
            before = None
            if task.id in wanted:
                before = task_of(_row(wanted[task.id]))
            elif task.updated_at == here.get(task.id):
                before = task_of(connection.execute(_ONE, (task.id,)).fetchone())
            if _age(task) > _age(before) if before else task.updated_at > here.get(task.id, ""):
                wanted[task.id] = _packed(row_of(task))
            elif task.id not in wanted:
                kept.add(task.id)
    dated = [(*key, at) for key, at in dependencies.items() if key in known]
    rows, circles = _without_circles(connection, [(*key, at) for key, at in dependencies.items() if key not in known])
    imported = Imported(
        tasks=len(seen) + unchanged,
        created=0,
        updated=0,
        unchanged=unchanged,
        kept=len(kept - wanted.keys()),
        dependencies_added=0,
        refused=refused + circles,
        unknown_keys=dict(sorted(reading.unknown.items())),
        missing=unchanged + len(here.keys() & seen) < len(here)
        or bool(kept)
        or bool(circles)
        or any(key[0] in seen and key not in is_here for key in known),
    )
    mark = exporting.mark(connection, project)
    named = list(elsewhere)[: tasks.MOST_NAMED + 1]
    return _Changes([wanted[id] for id in sorted(wanted)], rows + dated, imported, named, content.hexdigest(), mark)


_ALL = ", ".join(FIELDS)
_ONE = f"SELECT {_ALL} FROM task WHERE id = ?"


def _packed(row: Row) -> Packed:
    return msgspec.json.encode(row)


def _row(packed: Packed) -> tuple[Any, ...]:
    return msgspec.json.decode(packed, type=tuple[Any, ...])


def _storable(lines: Iterator[bytes], refused: list[str]) -> Iterator[bytes]:
    """Without lone surrogates: no table takes half a character."""
    for number, line in enumerate(lines, 1):
        whole = surrogates.replaced(line)
        if whole != line:
            refused.append(f"line {number}: lone surrogates in it were replaced by U+FFFD")
        yield whole


def _age(task: Task) -> tuple[str, bytes]:
    """Of two versions of a task the one with the greater age is kept: what was changed last, and of what was changed at
    the same time the same one everywhere."""
    return task.updated_at, jsonl.line(row_of(task), ())


def _is_elsewhere(connection: Connection, id: str) -> bool:
    return connection.execute("SELECT 1 FROM task WHERE id = ?", (id,)).fetchone() is not None


def _without_circles(connection: Connection, new: Sequence[Waits]) -> tuple[list[Waits], list[str]]:
    """These dependencies but those by which, with all that is here, a task would wait for itself; and those, in words.
    What a task waits for comes before it: so nothing waits yet for a task whose dependencies are added."""
    blocking = [row[:2] for row in new if row[2] == "blocks"]
    edges: dict[str, list[str]] = {}
    for id, depends_on in (*blocking, *exporting.rows(connection.execute(_BLOCKS))) if blocking else ():
        edges.setdefault(id, []).append(depends_on)
    group = groups(edges)
    circles = {(id, depends_on) for id, depends_on in blocking if group[id] == group[depends_on]}
    of_task: dict[str, list[Waits]] = {}
    for row in new:
        if row[2] != "blocks" or row[:2] not in circles:
            of_task.setdefault(row[0], []).append(row)
    rows = [row for id in (*(of_task.keys() - group.keys()), *group) for row in of_task.get(id, ())]
    return rows, [_circle(*edge) for edge in sorted(circles)]


_BLOCKS = "SELECT task_id, depends_on FROM task_dependency WHERE dep_type = 'blocks'"


def _circle(id: str, depends_on: str) -> str:
    return f"{id} would wait for itself through {depends_on}: left out"


# Writing, in pieces.


class _Put(NamedTuple):
    """What became of a piece's tasks: when those that were written were changed before, and are now; which wait until
    others are written; and how many are newer here."""

    written: list[tuple[str, str]]
    put_off: list[Row]
    kept: int


class _Added(NamedTuple):
    """What became of a piece's dependencies, of which so many were looked at."""

    looked_at: int
    times: list[str]
    left_out: list[str]


class _Writing:
    """The pieces of one import, and what they have come to: when the tasks that were written were changed before, and
    are now; and the times of the dependencies that were added."""

    def __init__(self, workspace: Workspace, project: str, changes: _Changes, tell: Progress) -> None:
        self.written: list[tuple[str, str]] = []
        self.kept = 0
        self.added: list[str] = []
        self.left_out: list[str] = []
        self._workspace = workspace
        self._project = project
        self._changes = changes
        self._tell = tell

    async def run(self) -> None:
        waiting, total = self._changes.tasks, len(self._changes.tasks)
        put_off: list[Packed] = []
        for _ in range(ROUNDS):
            put_off = []
            for piece in _pieces(waiting):
                done = await self._workspace.transact(partial(_put, project=self._project, wanted=piece))
                put_off += map(_packed, done.put_off)
                self._count(done)
                self._tell(len(self.written), total, "written")
                await self._rest(is_last=len(piece) == len(waiting))
            if len(put_off) in (0, len(waiting)):
                break
            waiting = put_off
        if put_off:
            work = partial(_put_as_a_whole, project=self._project, wanted=[*map(_row, put_off)])
            done, parents = await self._workspace.transact(work)
            self._count(done)
            self.left_out += parents
        await self._add_dependencies()

    async def _add_dependencies(self) -> None:
        rows = self._changes.dependencies
        looked_at = 0
        while looked_at < len(rows):
            work = partial(_add, wanted=rows[looked_at : looked_at + PIECE])
            added = await self._workspace.transact(work)
            looked_at += added.looked_at
            self.left_out += added.left_out
            self.added += added.times
            self._tell(looked_at, len(rows), "dependencies written")
            await self._rest(is_last=looked_at == len(rows))

    def _count(self, done: _Put) -> None:
        self.written += done.written
        self.kept += done.kept

    async def _rest(self, is_last: bool) -> None:
        if not is_last:
            await self._workspace.clock.sleep(PAUSE)


def _pieces(all: Iterable[Packed]) -> Iterator[list[Row]]:
    piece: list[Row] = []
    length = 0
    for packed in all:
        piece.append(_row(packed))
        length += len(packed)
        if len(piece) == PIECE or length >= LARGEST_PIECE:
            yield piece
            piece, length = [], 0
    if piece:
        yield piece


def _put(connection: Connection, project: str, wanted: Sequence[Row]) -> _Put:
    """Write those that are not older than here, but none by which a task would be part of itself as all is now."""
    rows, before = _newer(connection, project, wanted)
    put_off = set[str]()
    while circles := _in_circles(connection, [row for row in rows if row[_ID] not in put_off]):
        put_off |= circles
    fresh = [row for row in rows if row[_ID] not in put_off]
    connection.executemany(_UPSERT, [*map(tasks.stored, fresh)])
    written = [(before.get(row[_ID], ""), row[_CHANGED]) for row in fresh]
    return _Put(written, [row for row in rows if row[_ID] in put_off], len(wanted) - len(rows))


def _newer(connection: Connection, project: str, wanted: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """Those of these that are not older than here; and when what is here was changed."""
    here: dict[str, tuple[str, str]] = {}
    for chunk in tasks.chunks(row[_ID] for row in wanted):
        sql = f"SELECT id, project_id, updated_at FROM task WHERE id IN ({', '.join('?' * len(chunk))})"
        here |= {id: (of, at) for id, of, at in connection.execute(sql, chunk).fetchall()}
    none = (project, "")
    rows = [
        row for row in wanted if here.get(row[_ID], none)[0] == project and here.get(row[_ID], none)[1] <= row[_CHANGED]
    ]
    return rows, {id: at for id, (_, at) in here.items()}


def _in_circles(connection: Connection, rows: Sequence[Row]) -> set[str]:
    """Which of these would be part of themselves. Where so many are above them that it would take long, all of them
    are said to be."""
    above: dict[str, tuple[str]] = {row[_ID]: (row[_PARENT],) for row in rows if row[_PARENT]}
    new = {row[_ID] for row in rows}
    seen = set(new)
    level = {parent for [parent] in above.values()} - seen
    for _ in range(tasks.MOST_ABOVE):
        if not level:
            return {id for id, _ in circular(above)} & new
        seen |= level
        found: dict[str, tuple[str]] = {}
        for chunk in tasks.chunks(level):
            marks = ", ".join("?" * len(chunk))
            sql = f"SELECT id, parent_task_id FROM task WHERE id IN ({marks}) AND parent_task_id IS NOT NULL"
            found |= {id: (parent,) for id, parent in connection.execute(sql, chunk).fetchall()}
        above |= found
        level = {parent for [parent] in found.values()} - seen
    return new


def _put_as_a_whole(connection: Connection, project: str, wanted: Sequence[Row]) -> tuple[_Put, list[str]]:
    """Write the rest, and take its parent from each task that is part of itself then; and those, in words."""
    rows, before = _newer(connection, project, wanted)
    connection.executemany(_UPSERT, [*map(tasks.stored, rows)])
    found = connection.execute("SELECT id, parent_task_id FROM task WHERE project_id = ?", (project,))
    above = {id: (parent,) for id, parent in exporting.rows(found) if parent}
    left_out: list[str] = []
    for id, parent in sorted(circular(above)):
        connection.execute("UPDATE task SET parent_task_id = NULL WHERE id = ?", (id,))
        left_out.append(f"{id} would be part of itself through {parent}: left without a parent")
    return _Put([(before.get(row[_ID], ""), row[_CHANGED]) for row in rows], [], len(wanted) - len(rows)), left_out


_ID, _PARENT, _CHANGED = map(FIELDS.index, ("id", "parent_task_id", "updated_at"))
_UPSERT = f"{tasks.INSERT} ON CONFLICT (id) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in tasks.COLUMNS if name not in ("id", "project_id")
)


def _add(connection: Connection, wanted: Sequence[Waits]) -> _Added:
    """Add those by which no task waits for itself as all is now, until that takes too long. Only where something waits
    for a task already can it come to wait for itself."""
    awaited: set[str] = set()
    for chunk in tasks.chunks({row[0] for row in wanted}):
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT DISTINCT depends_on FROM task_dependency WHERE depends_on IN ({marks}) AND dep_type = 'blocks'"
        awaited |= {id for [id] in connection.execute(sql, chunk).fetchall()}
    rows: list[Waits] = []
    left_out: list[str] = []
    walks = 0
    for number, row in enumerate(wanted):
        if found := connection.execute(_IS_THERE, row[:3]).fetchone():
            if row[3] < found[0]:
                connection.execute(_DATE, (row[3], *row[:3]))
            continue
        if row[2] == "blocks":
            if row[0] in awaited:
                if walks == MOST_WALKS:
                    return _added(connection, number, rows, left_out)
                walks += 1
                if why := _refused(connection, *row[:2]):
                    left_out.append(why)
                    continue
            awaited.add(row[1])
        rows.append(row)
        connection.execute("INSERT INTO task_dependency VALUES (?, ?, ?, ?)", row)
    return _added(connection, len(wanted), rows, left_out)


def _added(connection: Connection, looked_at: int, rows: Sequence[Waits], left_out: list[str]) -> _Added:
    if any(dep_type == "blocks" for _, _, dep_type, _ in rows):
        changed(connection)
    return _Added(looked_at, [at for *_, at in rows], left_out)


_IS_THERE = "SELECT created_at FROM task_dependency WHERE task_id = ? AND depends_on = ? AND dep_type = ?"
_DATE = "UPDATE task_dependency SET created_at = ? WHERE task_id = ? AND depends_on = ? AND dep_type = ?"


def _refused(connection: Connection, id: str, depends_on: str) -> str:
    """Why a task cannot wait for another; empty where it can."""
    try:
        return _circle(id, depends_on) if waits(connection, depends_on, id) else ""
    except Fault as fault:
        return f"{id} does not wait for {depends_on}: {fault.message}"
