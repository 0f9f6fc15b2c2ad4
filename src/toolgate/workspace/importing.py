"""A project's file of tasks, taken into the store: compared as a whole, then written in pieces.

The rules this file keeps: nothing that the store has is lost by an import, but that of two versions of a task the one
that was changed last is kept, in every clone the same. Other writes wait for a piece or two, never for all. And
whatever ends us between two pieces, or is changed there, after each of them no task is newly part of itself or waits
for itself, and the same import, begun again, does what is left: who calls notes that the file was read after all of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import msgspec

from toolgate.state.base import Connection
from toolgate.workspace import comparing, standing, tasks
from toolgate.workspace.circles import MOST_LOOKED_AT, changed, circular, waits_within
from toolgate.workspace.comparing import CIRCLE, Changes, Comparison, Progress
from toolgate.workspace.pace import Pace, paced
from toolgate.workspace.standing import Mark
from toolgate.workspace.task_file import TaskFile
from toolgate.workspace.tasks import FIELDS, row_of
from toolgate.workspace.workspace import Workspace

PIECE = 100  # tasks or dependencies that are written in one transaction
LARGEST_PIECE = 128 * 1024  # bytes of them
MOST_WALKED = 2_000  # tasks that are looked at in one transaction, over all that waits for a task, before it ends
EDGES_OF_ONE = 10  # dependencies that are looked at for each task that may be
MOST_WALKED_IN_ALL = 2_000_000  # in one import: some ten seconds
PAUSE = 0.002  # seconds from one piece to the next, in which other processes write

Row = Sequence[Any]  # of the table `task`
Wait = tuple[str, str, str, str]  # a row of the table `task_dependency`


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


class FileRead(NamedTuple):
    """What was done with a file; its hash as it was read; by which mark the tasks are what it says, None where they are
    not; and ids of tasks that stand in the file only, since tasks of other projects have them here."""

    imported: Imported
    hash: str
    mark: Mark | None
    elsewhere: list[str]


async def imported(workspace: Workspace, file: TaskFile, tell: Progress) -> FileRead:
    """Raises `Unreadable`, and nothing is changed then; and `Fault`, where the file changes meanwhile. A caller that is
    cancelled leaves what was written."""
    project = file.project.id
    opened = await file.in_thread(file.read, unwanted=lambda opened: opened.close())
    try:
        changes = await paced(
            lambda pace: workspace.query(lambda connection: Comparison(connection, project, tell, pace).of(opened))
        )
        work = _Writing(workspace, project, file, opened, changes, tell)
        if changes.tasks or changes.waits:
            await work.run()
            await workspace.transact(lambda connection: None, "tasks")
    finally:
        file.disk.afterwards(file.project.folder, opened.close)
    is_missing = changes.missing or work.is_missing
    found = Imported(
        tasks=changes.found,
        created=work.created,
        updated=work.written - work.created,
        unchanged=changes.unchanged,
        kept=changes.kept + work.kept,
        dependencies_added=work.added,
        refused=changes.refused.listed(),
        unknown_keys=changes.unknown_keys,
        missing=is_missing,
    )
    mark = await workspace.query(lambda connection: standing.mark(connection, project))
    is_all = mark == work.mark and not is_missing
    return FileRead(found, changes.hash, mark if is_all else None, changes.elsewhere)


# Writing, in pieces.


class _Put(NamedTuple):
    """What became of a piece's tasks: when those that were written were changed before, and are now; which wait until
    others are written; how many are newer here; and which were left without a parent, each with that."""

    written: list[tuple[str, str]]
    put_off: list[str]
    kept: int
    orphans: list[tuple[str, str]]


class _Added(NamedTuple):
    """What became of a piece's dependencies, of which so many were looked at; which were left out, in words; and how
    many tasks were looked at for that."""

    looked_at: int
    times: list[str]
    left_out: list[str]
    walked: int


class _Writing:
    """The pieces of one import, and what they have come to. `mark` is that of the tasks if nobody else changes them."""

    def __init__(
        self, workspace: Workspace, project: str, file: TaskFile, opened: BinaryIO, changes: Changes, tell: Progress
    ) -> None:
        self.written = self.created = self.kept = self.added = 0
        self.is_missing = False
        self.mark = changes.mark
        self._workspace = workspace
        self._project = project
        self._file = file
        self._opened = opened
        self._changes = changes
        self._tell = tell

    async def run(self) -> None:
        put_off = await self._put(self._changes.tasks, is_last=False)
        await self._put(put_off, is_last=True)
        await self._add_dependencies()

    async def _put(self, wanted: array[int], is_last: bool) -> array[int]:
        """Those that others made part of themselves meanwhile are put off, and in the end left without a parent."""
        put_off, total, at = array("q"), len(self._changes.tasks), 0
        while at < len(wanted):
            rows = await paced(lambda pace, at=at: self._file.in_thread(partial(self._piece, wanted, at, pace), pace))
            at += len(rows)
            done = await self._workspace.transact(partial(_put, project=self._project, wanted=rows, is_last=is_last))
            put_off.extend(map(self._changes.names.number, done.put_off))
            for orphan in done.orphans:
                self._changes.refused.add(_PART, *orphan)
            self.written += len(done.written)
            self.created += sum(not before for before, _ in done.written)
            self.kept += done.kept
            self.is_missing = self.is_missing or bool(done.kept or done.orphans)
            self.mark = standing.moved(self.mark, done.written, ())
            self._tell(self.written, total, "written")
            await self._rest(is_last=at == total)
        return put_off

    def _piece(self, wanted: array[int], at: int, pace: Pace) -> list[Row]:
        """In a thread: the next rows, read from the file again."""
        rows: list[Row] = []
        length = 0
        while at + len(rows) < len(wanted) and len(rows) < PIECE and length < LARGEST_PIECE:
            pace.step()
            number = wanted[at + len(rows)]
            place = self._changes.places[number]
            task = place and comparing.reread(self._opened, place)
            if task is None:
                raise tasks.refused(f"{self._file.path} was changed meanwhile: sync it again")
            task.project_id = self._project
            if number in self._changes.orphans:
                task.parent_task_id = None
            rows.append(row_of(task))
            length += sum(len(value) for value in rows[-1] if isinstance(value, str))
        return rows

    async def _add_dependencies(self) -> None:
        keys, row = self._changes.waits, self._changes.dependencies.row
        looked_at, left = 0, MOST_WALKED_IN_ALL
        while looked_at < len(keys):
            piece = [row(key) for key in keys[looked_at : looked_at + PIECE]]
            added = await self._workspace.transact(partial(_add, wanted=piece, most=left))
            looked_at += added.looked_at
            left -= added.walked
            for why in added.left_out:
                self._changes.refused.add("{}", why)
            self.is_missing = self.is_missing or bool(added.left_out)
            self.added += len(added.times)
            self.mark = standing.moved(self.mark, (), added.times)
            self._tell(looked_at, len(keys), "dependencies written")
            await self._rest(is_last=looked_at == len(keys))

    async def _rest(self, is_last: bool) -> None:
        if not is_last:
            await self._workspace.clock.sleep(PAUSE)


def _put(connection: Connection, project: str, wanted: Sequence[Row], is_last: bool) -> _Put:
    """Write those that are not older than here, but none by which a task would be part of itself as all is now: at the
    last those are written without a parent."""
    rows, before = _newer(connection, project, wanted)
    put_off = set[str]()
    orphans: list[tuple[str, str]] = []
    while circles := _in_circles(connection, [row for row in rows if row[_ID] not in put_off]):
        put_off |= circles
    fresh: list[Row] = [row for row in rows if row[_ID] not in put_off]
    if is_last:
        orphans = [(row[_ID], row[_PARENT]) for row in rows if row[_ID] in put_off]
        fresh = [[*row[:_PARENT], None, *row[_PARENT + 1 :]] if row[_ID] in put_off else row for row in rows]
    tasks.put(connection, fresh)
    written = [(before.get(row[_ID], ""), row[_CHANGED]) for row in fresh]
    left = [] if is_last else [row[_ID] for row in rows if row[_ID] in put_off]
    return _Put(written, left, len(wanted) - len(rows), orphans)


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


_ID, _PARENT, _CHANGED = map(FIELDS.index, ("id", "parent_task_id", "updated_at"))


_PART = "{} would be part of itself through {}: left without a parent"


def _add(connection: Connection, wanted: Sequence[Wait], most: int) -> _Added:
    """Add those by which no task waits for itself as all is now, until that takes too long. Only where something waits
    for a task already can it come to wait for itself. `most`: tasks that may be looked at in the whole import."""
    awaited: set[str] = set()
    for chunk in tasks.chunks({row[0] for row in wanted}):
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT DISTINCT depends_on FROM task_dependency WHERE depends_on IN ({marks}) AND dep_type = 'blocks'"
        awaited |= {id for [id] in connection.execute(sql, chunk).fetchall()}
    times: list[str] = []
    left_out: list[str] = []
    walked, looked_at = 0, len(wanted)
    for number, row in enumerate(wanted):
        if found := connection.execute(_IS_THERE, row[:3]).fetchone():
            if row[3] < found[0]:
                connection.execute(_DATE, (row[3], *row[:3]))
            continue
        if row[2] == "blocks":
            if row[0] in awaited:
                if walked >= MOST_WALKED:
                    looked_at = number
                    break
                why, steps = _refused(connection, *row[:2], min(MOST_LOOKED_AT, most - walked))
                walked += steps
                if why:
                    left_out.append(why)
                    continue
            awaited.add(row[1])
        times.append(row[3])
        connection.execute("INSERT INTO task_dependency VALUES (?, ?, ?, ?)", row)
    if any(dep_type == "blocks" for _, _, dep_type, _ in wanted[:looked_at]):
        changed(connection)
    return _Added(looked_at, times, left_out, walked)


_IS_THERE = "SELECT created_at FROM task_dependency WHERE task_id = ? AND depends_on = ? AND dep_type = ?"
_DATE = "UPDATE task_dependency SET created_at = ? WHERE task_id = ? AND depends_on = ? AND dep_type = ?"


def _refused(connection: Connection, id: str, depends_on: str, most: int) -> tuple[str, int]:
    """Why a task cannot wait for another, empty where it can; and how many tasks were looked at."""
    seen: dict[str, set[str]] = {}
    found = waits_within(connection, depends_on, id, most * EDGES_OF_ONE, seen)
    if found is None:
        why = f"{id} does not wait for {depends_on}: too many tasks wait for each other there to check for a cycle"
    else:
        why = CIRCLE.format(id, depends_on) if found else ""
    return why, sum(map(len, seen.values()))
