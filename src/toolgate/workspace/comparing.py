"""A project's file of tasks beside the store: what an import is to do, found before it does anything.

The rules this file keeps: the file is read in pieces, and none of its texts is kept, only where they stand; what is
kept of each task and dependency is numbers, which cost little room, and no time when Python looks for garbage; and
whatever the file says, others have their turn after some milliseconds.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple, Protocol

import msgspec

from toolgate.core import surrogates
from toolgate.state.base import Connection
from toolgate.workspace import jsonl, standing, tasks
from toolgate.workspace.circles import by_place, groups
from toolgate.workspace.jsonl import Dependency, Entry, Reading
from toolgate.workspace.pace import Pace
from toolgate.workspace.standing import Mark
from toolgate.workspace.tasks import FIELDS, Task, row_of, task_of

LINES = 500  # between two reports of progress
PIECE, LARGEST_PIECE = 50, 64 * 1024  # lines and bytes that are compared at once
MOST_REFUSED = 100  # that are named in the result of an import

Dates = dict[tuple[str, str], str]  # of the dependencies of a task: when each was added


class Progress(Protocol):
    def __call__(self, done: float, total: float | None = None, message: str = "") -> object: ...


class Refused:
    """What was not taken in, and why: the first in words, and how many more."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self.count = 0

    def add(self, words: str, *what: object) -> None:
        self.count += 1
        if self.count <= MOST_REFUSED:
            self._said.append(words.format(*what))

    def listed(self) -> list[str]:
        more = self.count - len(self._said)
        return [*self._said, f"and {more:,} more"] if more else self._said


class Place(msgspec.Struct, array_like=True, gc=False):
    """Where the version of a task stands that is wanted, and what tells it from others."""

    offset: int
    updated_at: str
    age: bytes
    digest: bytes


class _Stored(NamedTuple):
    """What the store has of a task."""

    project: str
    updated_at: str
    digest: bytes  # of its line
    dates: Dates


class Names:
    """A number for each id."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, id: str) -> int:
        if (found := self._numbers.get(id)) is None:
            found = self._numbers[id] = len(self.all)
            self.all.append(id)
        return found


_TYPES = ("blocks", "discovered-from", "related")


class Waits:
    """Dependencies, each with the earliest date that it has in the file."""

    def __init__(self, names: Names) -> None:
        self.dates: dict[int, str] = {}
        self._names = names

    def add(self, id: int, dependency: Dependency) -> None:
        key = id << 33 | self._names.number(dependency.depends_on) << 2 | _TYPES.index(dependency.dep_type)
        self.dates[key] = min(self.dates.get(key, dependency.created_at), dependency.created_at)

    def row(self, key: int) -> tuple[str, str, str, str]:
        """As the table has it."""
        id, depends_on = ends(key)
        return self._names.all[id], self._names.all[depends_on], _TYPES[key & 3], self.dates[key]


def ends(key: int) -> tuple[int, int]:
    return key >> 33, key >> 2 & 0x7FFFFFFF


class Changes(NamedTuple):
    """What an import is to do, and what was found of it. `tasks` and `waits` are numbers in the order in which they are
    to be written, `orphans` tasks that are to be written without their parent. `missing`: the file lacks what is here.
    `mark` is that of the tasks as they were then."""

    names: Names
    places: dict[int, Place | None]
    tasks: array[int]
    orphans: set[int]
    dependencies: Waits
    waits: array[int]
    found: int
    unchanged: int
    kept: int
    refused: Refused
    unknown_keys: dict[str, int]
    missing: bool
    elsewhere: list[str]
    hash: str
    mark: Mark


class Comparison:
    """Of one file, with what the connection reads."""

    def __init__(self, connection: Connection, project: str, tell: Progress, pace: Pace) -> None:
        self._connection = connection
        self._project = project
        self._tell = tell
        self._pace = pace
        self._names = Names()
        self._places: dict[int, Place | None] = {}  # of all tasks of the file; None where what is here is not older
        self._parents: dict[int, int] = {}
        self._new, self._dated = Waits(self._names), Waits(self._names)
        self._kept = set[int]()
        self._refused = Refused()
        self._elsewhere: dict[str, None] = {}
        self._unchanged = self._are_here = 0
        self._is_lacking = False

    def of(self, opened: BinaryIO) -> Changes:
        """Raises `Unreadable`, and `Stopped`."""
        reading, content = Reading(), hashlib.sha256()
        number = offset = 0
        for piece in _pieces(jsonl.lines(opened, content)):
            ids = [jsonl.id_of(line) for line in piece]
            found = self._stored(ids)
            for line, told in zip(piece, ids, strict=True):
                number += 1
                self._pace.step()
                if number % LINES == 0:
                    self._tell(number, None, "read")
                self._line(reading, number, offset, line, found, told)
                offset += len(line)
        reading.finish()
        order, orphans = self._parents_first()
        waits, is_whole = self._blockers_first()
        here = "SELECT COUNT(*) FROM task WHERE project_id = ?"
        [count] = self._connection.execute(here, (self._project,)).fetchone()
        kept = sum(self._places[number] is None for number in self._pace.through(self._kept))
        for key, date in self._pace.through(self._dated.dates.items()):
            self._new.dates[key] = date
            waits.append(key)
        return Changes(
            names=self._names,
            places=self._places,
            tasks=order,
            orphans=orphans,
            dependencies=self._new,
            waits=waits,
            found=len(self._places),
            unchanged=self._unchanged,
            kept=kept,
            refused=self._refused,
            unknown_keys=dict(sorted(reading.unknown.items())),
            missing=self._are_here < count or bool(self._kept) or self._is_lacking or not is_whole or bool(orphans),
            elsewhere=list(self._elsewhere)[: tasks.MOST_NAMED + 1],
            hash=content.hexdigest(),
            mark=standing.mark(self._connection, self._project),
        )

    def _line(
        self, reading: Reading, number: int, offset: int, line: bytes, found: dict[str, _Stored], told: str
    ) -> None:
        """`found` is what is here of the ids that are seen at first sight, of which `told` is this line's."""
        stored = found.get(told)
        if stored and stored.project == self._project and stored.digest == _digest(line):
            self._unchanged += 1
            self._seen(told, stored)
            return
        if (entry := _entry(reading, number, line, self._refused)) is None:
            return
        id = entry.task.id
        stored = found.get(id) if id == told else self._stored((id,)).get(id)
        if stored and stored.project != self._project:
            self._refused.add("{}: a task of another project has this id", id)
            if len(self._elsewhere) <= tasks.MOST_NAMED:
                self._elsewhere[id] = None
            return
        known = self._seen(id, stored)
        self._depends(known, entry.dependencies, stored.dates if stored else {})
        task = msgspec.structs.replace(entry.task, project_id=self._project)
        place = Place(offset, task.updated_at, _age(task), _digest(line))
        if not self._is_newer(place, self._places[known], id, stored):
            if self._places[known] is None:
                self._kept.add(known)
            return
        self._places[known] = place
        self._parents.pop(known, None)
        if task.parent_task_id:
            self._parents[known] = self._names.number(task.parent_task_id)

    def _seen(self, id: str, stored: _Stored | None) -> int:
        number = self._names.number(id)
        if number not in self._places:
            self._places[number] = None
            self._are_here += stored is not None
        return number

    def _is_newer(self, place: Place, best: Place | None, id: str, stored: _Stored | None) -> bool:
        """Than the best so far, in the file or here. Of what was changed at the same time the same one is kept
        everywhere."""
        if best:
            return (place.updated_at, place.age) > (best.updated_at, best.age)
        if stored and place.updated_at == stored.updated_at:
            return place.age > _age(task_of(self._connection.execute(_ONE, (id,)).fetchone()))
        return not stored or place.updated_at > stored.updated_at

    def _depends(self, id: int, dependencies: Iterable[Dependency], known: Dates) -> None:
        as_old = 0  # of those that are known: none of these is older here
        for each in self._pace.through(dependencies):
            before = known.get((each.depends_on, each.dep_type))
            as_old += before is not None and each.created_at <= before
            if before is None:
                self._new.add(id, each)
            elif each.created_at < before:  # of two that were added apart the older is kept everywhere
                self._dated.add(id, each)
        self._is_lacking = self._is_lacking or as_old < len(known)

    def _stored(self, ids: Iterable[str]) -> dict[str, _Stored]:
        found: dict[str, _Stored] = {}
        for chunk in tasks.chunks({id for id in ids if id}):
            marks = ", ".join("?" * len(chunk))
            waits: dict[str, list[Dependency]] = {}
            sql = f"SELECT task_id, depends_on, dep_type, created_at FROM task_dependency WHERE task_id IN ({marks})"
            rows = standing.rows(self._connection.execute(f"{sql} ORDER BY task_id, depends_on, dep_type", chunk))
            for id, *rest in self._pace.through(rows):
                waits.setdefault(id, []).append(Dependency(*rest))
            for row in standing.rows(self._connection.execute(f"SELECT {_ALL} FROM task WHERE id IN ({marks})", chunk)):
                self._pace.step()
                of = waits.get(row[0], [])
                dates = {(each.depends_on, each.dep_type): each.created_at for each in of}
                found[row[0]] = _Stored(row[_PROJECT], row[_CHANGED], _digest(jsonl.line(row, of)), dates)
        return found

    def _parents_first(self) -> tuple[array[int], set[int]]:
        """The wanted tasks, each behind its parent; and those of them that would be part of themselves, or deeper than
        trees are made."""
        parents, names = self._parents, self._names.all
        if parents:
            sql = "SELECT id, parent_task_id FROM task WHERE project_id = ? AND parent_task_id IS NOT NULL"
            for id, parent in self._pace.through(standing.rows(self._connection.execute(sql, (self._project,)))):
                if not self._places.get(number := self._names.number(id)):
                    parents[number] = self._names.number(parent)
        order, orphans, depths = array("q"), set[int](), dict[int, int]()
        for start, place in self._pace.through(self._places.items()):
            path: dict[int, None] = {}
            node: int | None = start if place else None
            while node is not None and node not in depths and node not in path:
                self._pace.step()
                path[node] = None
                node = parents.get(node)
            is_in_circle = False
            for each in self._pace.through(path if node in path else ()):
                is_in_circle = is_in_circle or each == node
                if is_in_circle and self._places.get(each):
                    orphans.add(each)
                    self._refused.add(_PART, names[each], names[parents[each]])
            depth = depths.get(node, 0) if node is not None else 0
            for each in self._pace.through(reversed(path)):
                if depth > tasks.MOST_ABOVE and each not in orphans and self._places.get(each):
                    orphans.add(each)
                    self._refused.add(_DEEP, names[each], names[parents[each]], tasks.MOST_ABOVE)
                depth = 1 if each in orphans else depth + 1
                depths[each] = depth
                if self._places.get(each):
                    order.append(each)
        return order, orphans

    def _blockers_first(self) -> tuple[array[int], bool]:
        """The new dependencies but those by which, with all that is here, a task would wait for itself; and whether
        these are all. What a task waits for comes before it: so nothing waits yet for a task whose dependencies are
        added."""
        new = array("q", self._pace.through(self._new.dates))
        starts, goals = array("q"), array("q")
        for key in self._pace.through(new):
            if key & 3 == 0:
                start, goal = ends(key)
                starts.append(start)
                goals.append(goal)
        for id, depends_on in self._pace.through(standing.rows(self._connection.execute(_BLOCKS))) if starts else ():
            starts.append(self._names.number(id))
            goals.append(self._names.number(depends_on))
        names = self._names.all
        group, order = groups(len(names), starts, goals, self._pace)
        rank = array("q", [0]) * len(names)
        for place, node in self._pace.through(enumerate(order)):
            rank[node] = place
        found, ranks = array("q"), array("q")
        for key in self._pace.through(new):
            start, goal = ends(key)
            if key & 3 == 0 and group[start] == group[goal]:
                self._refused.add(CIRCLE, names[start], names[goal])
            else:
                found.append(key)
                ranks.append(rank[start])
        return by_place(found, ranks, len(names), self._pace)[1], len(found) == len(new)


_ALL = ", ".join(FIELDS)
_ONE = f"SELECT {_ALL} FROM task WHERE id = ?"
_BLOCKS = "SELECT task_id, depends_on FROM task_dependency WHERE dep_type = 'blocks'"
_PROJECT, _CHANGED = map(FIELDS.index, ("project_id", "updated_at"))
CIRCLE = "{} would wait for itself through {}: left out"
_PART = "{} would be part of itself through {}: left without a parent"
_DEEP = "{} would be in {}, with more than {} above it: left without a parent"


def reread(opened: BinaryIO, place: Place) -> Task | None:
    """The task that stood there; None where something else stands there now."""
    opened.seek(place.offset)
    line = opened.readline(jsonl.LONGEST_LINE + 2)
    entry = _entry(Reading(), 1, line, Refused()) if _digest(line) == place.digest else None
    return entry and entry.task


def _pieces(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    length = 0
    for line in lines:
        piece.append(line)
        length += len(line)
        if len(piece) == PIECE or length >= LARGEST_PIECE:
            yield piece
            piece, length = [], 0
    yield piece


def _entry(reading: Reading, number: int, line: bytes, refused: Refused) -> Entry | None:
    """Without lone surrogates: no table takes half a character."""
    whole = surrogates.replaced(line)
    if whole != line:
        refused.add("line {}: lone surrogates in it were replaced by U+FFFD", number)
    return reading.entry(number, whole)


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()


def _age(task: Task) -> bytes:
    """What tells versions apart that were changed at the same time."""
    return _digest(jsonl.line(row_of(task), ()))
