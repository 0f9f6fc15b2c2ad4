"""Tasks: what one is, and how it is read from its table and written there (behaviour.md, "004 task registry").

The rule this file keeps: a task is read and written as a whole, and the time of its last change only grows, so that of
two versions of it the later one is the one that was written last.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from toolgate.core import jsonrpc, plain
from toolgate.core.fault import Fault
from toolgate.state.base import Connection
from toolgate.state.letters import CHUNK, chunks, letters, note

Status = Literal["open", "in_progress", "closed", "failed", "escalated"]
Type = Literal["task", "bug", "feature", "epic", "chore"]

# Characters. What stands in an index is short: PostgreSQL takes rows of 2700 bytes there.
LONGEST_TITLE = 500
LONGEST_NAME = 100  # an assignee, a label, a workflow
LONGEST_TEXT = 16 * 1024
LONGEST_DESCRIPTION = 64 * 1024
MOST_LABELS = 100
LONGEST_LABELS = 1000  # all of a task's together
MOST_COMMITS = 1000
MOST_LISTED = 10_000  # tasks, where no limit is wanted: a longer list would hold up others while it is written
MOST_BYTES = 1024 * 1024  # of what an answer shows, as JSON
MOST_ABOVE = 100  # parents of parents: deeper trees are not made
MOST_BELOW = 10_000  # tasks below one that gets another parent
MOST_NAMED = 10  # ids, in a message

Priority = Annotated[int, Meta(ge=0, le=3, description="0 critical, 1 high, 2 medium, 3 low")]

Limit = Annotated[
    int,
    Meta(description="The maximum number; null: as many as fit into an answer, at most 10,000", ge=1, le=MOST_LISTED),
]
TaskId = Annotated[str, Meta(description="The id of a task, such as gt-1a2b3c", min_length=1, max_length=64)]


class Task(msgspec.Struct, kw_only=True):
    """A row of the table `task`, its columns in their order; what is JSON in the table is a list here."""

    id: str
    project_id: str = ""
    title: str
    status: Status = "open"
    priority: int = 2
    type: Type = "task"
    created_at: str
    updated_at: str
    description: str | None = None
    parent_task_id: str | None = None
    created_in_session_id: str | None = None
    closed_in_session_id: str | None = None
    closed_commit_sha: str | None = None
    closed_at: str | None = None
    assignee: str | None = None
    labels: list[str] = []
    closed_reason: str | None = None
    validation_status: str | None = None
    validation_feedback: str | None = None
    test_strategy: str | None = None
    complexity_score: int | None = None
    estimated_subtasks: int | None = None
    expansion_context: str | None = None
    validation_criteria: str | None = None
    use_external_validator: bool = False
    validation_fail_count: int = 0
    validation_override_reason: str | None = None
    workflow_name: str | None = None
    verification: str | None = None
    sequence_order: int | None = None
    commits: list[str] = []
    escalated_at: str | None = None
    escalation_reason: str | None = None


FIELDS = Task.__struct_fields__
BRIEF = ("id", "title", "status", "priority", "type", "parent_task_id", "created_at", "updated_at")
NEWEST_FIRST = "task.created_at DESC, task.id DESC"
BY_URGENCY = "task.priority, task.created_at, task.id"
_BEHIND = {  # what stands behind a place in each order
    NEWEST_FIRST: ("(task.created_at, task.id) < (?, ?)", ("created_at", "id")),
    BY_URGENCY: ("(task.priority, task.created_at, task.id) > (?, ?, ?)", ("priority", "created_at", "id")),
}
_AS_JSON = ("labels", "commits")


def shown(task: Task) -> dict[str, Any]:
    """A task as tools show it and files have it: all 33 fields, in their order."""
    return {**msgspec.to_builtins(task), "project_id": task.project_id or None}


def row_of(task: Task) -> list[Any]:
    values = msgspec.structs.asdict(task)
    return [msgspec.json.encode(values[name]).decode() if name in _AS_JSON else values[name] for name in FIELDS]


def task_of(row: tuple[Any, ...]) -> Task:
    values: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
    values |= {name: plain.read(values[name]) for name in _AS_JSON}
    values["use_external_validator"] = bool(values["use_external_validator"])
    return Task(**values)


def brief_of(row: Sequence[Any]) -> dict[str, Any]:
    """A row of the columns `BRIEF` as lists show it."""
    return dict(zip(BRIEF, row, strict=True))


def refused(message: str, hint: str = "") -> Fault:
    """What cannot be done as the tasks are."""
    return Fault("INVALID_ARGS", f"Invalid arguments: {message}", reach="not_sent", hint=hint)


def put(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Write tasks, each a row of `FIELDS`. One that is there already stays in its project."""
    bits = {row[_ID]: (letters(row[_TITLE]), letters(row[_LABELS])) for row in rows}
    connection.executemany(_PUT, [(*row, *bits[row[_ID]]) for row in rows])
    note(connection, bits)


_ID, _TITLE, _LABELS = map(FIELDS.index, ("id", "title", "labels"))
_COLUMNS = (*FIELDS, "title_letters", "label_letters")
_ALL = ", ".join(FIELDS)
_BRIEF = ", ".join(f"task.{name}" for name in BRIEF)
_PUT = (
    f"INSERT INTO task ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
    " ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in ("id", "project_id"))
)


def find(connection: Connection, id: str) -> Task:
    """Raises `Fault` where there is none."""
    row = connection.execute(f"SELECT {_ALL} FROM task WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise Fault("RESOURCE_NOT_FOUND", f"Task not found: {id}", reach="not_sent", hint="list_tasks shows them")
    return task_of(row)


def insert(connection: Connection, task: Task) -> Task:
    """With an id that no other has."""
    while True:
        made = msgspec.structs.replace(task, id=f"gt-{secrets.token_hex(3)}")
        if not connection.execute("SELECT 1 FROM task WHERE id = ?", (made.id,)).fetchone():
            put(connection, [row_of(made)])
            return made


def save(connection: Connection, task: Task, at: str) -> Task:
    """Write a task that is there, as it is from then on."""
    changed = msgspec.structs.replace(task, updated_at=at)
    put(connection, [row_of(changed)])
    return changed


def later(now: str, before: str) -> str:
    """The time of a change, behind the change before, even if that was made by a clock which is ahead of ours."""
    if now > before:
        return now
    try:
        moved = datetime.fromisoformat(before).astimezone(UTC) + timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return now
    return moved.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class AnswerSize:
    """How much of `MOST_BYTES` is left for what an answer shows."""

    def __init__(self) -> None:
        self._left = MOST_BYTES

    def takes(self, shown: Any) -> bool:
        """Whether this has room as well. After the first that has none, nothing has."""
        self._left -= len(jsonrpc.encode(shown)) + 1 if self._left >= 0 else 0
        return self._left >= 0


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Of a task, in any order of lists: where it stood when it was shown, whatever became of it."""

    priority: Priority
    created_at: str
    id: str


Widened = Callable[[Connection, list[dict[str, Any]]], list[dict[str, Any]]]
"""What lists show of tasks beside their brief form."""


def listing(
    connection: Connection,
    where: Sequence[tuple[str, object]],
    order: str,
    limit: int | None,
    widened: Widened = lambda _connection, found: found,
    piece: int = CHUNK,
    places: Sequence[int] | None = None,
    behind: Place | None = None,
) -> dict[str, Any]:
    """The answer of a list: tasks for which all of these conditions hold, each SQL with the value for its `?`, as many
    as have room, and whether there are more. Which ones is found in an index alone, as far as it goes, or among those
    at these `places` (`letters.places`); and then only those are read that are shown, some at a time (`piece`). With
    `behind`, the list begins after that place in its order."""
    most = MOST_LISTED if limit is None else limit
    conditions = " AND ".join(sql for sql, _ in where)
    values = [value for sql, value in where if "?" in sql]
    if behind:
        condition, names = _BEHIND[order]
        conditions += f" AND {condition}"
        values += [getattr(behind, name) for name in names]
    source = "task WHERE"
    if places is not None:  # a CROSS JOIN begins with its first table
        at = ", ".join(map(str, places or [-1]))
        source = f"task_place p CROSS JOIN task WHERE p.place IN ({at}) AND task.id = p.task_id AND"
    sql = f"SELECT task.id FROM {source} {conditions} ORDER BY {order} LIMIT ?"
    ids = [id for [id] in connection.execute(sql, (*values, most + 1)).fetchall()]
    room, shown = AnswerSize(), list[dict[str, Any]]()
    for chunk in chunks(ids[:most], piece):
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT {_BRIEF} FROM task WHERE task.id IN ({marks}) ORDER BY {order}"
        found = widened(connection, [brief_of(row) for row in connection.execute(sql, chunk).fetchall()])
        fitting = [*itertools.takewhile(room.takes, found)]
        shown += fitting
        if len(fitting) < len(found):
            return {"tasks": shown, "count": len(shown), "has_more": True, "hint": _NO_ROOM}
    return {"tasks": shown, "count": len(shown), "has_more": len(ids) > most}


_NO_ROOM = (
    "an answer has no room for more tasks; filter them (by parent_task_id, say), or use list_tasks with title_like"
)


def among(
    project_id: str, parent_task_id: str | None, by_text: bool = False, **fields: object
) -> list[tuple[str, object]]:
    """The conditions of a list: tasks of a project, or below one task, wherever that is, whose columns are so. None
    stands for any. `by_text`: a condition on what only `task_by_text` has is to follow, so that no index is wanted that
    begins with something else (what `IS TRUE` uses none)."""
    place = ("task.parent_task_id = ?", parent_task_id) if parent_task_id else ("task.project_id = ?", project_id)
    conditions = {name: f"task.{name} = ?" for name in fields}
    conditions |= {name: f"(task.{name} = ?) IS TRUE" for name in _LEADING if by_text}
    return [place, *((conditions[name], value) for name, value in fields.items() if value is not None)]


_LEADING = ("status", "assignee")  # columns that an index begins with, behind the project


def children(connection: Connection, id: str, are_open: bool = False) -> list[str]:
    """The oldest few: all, or those that are not closed."""
    condition = " AND status <> 'closed'" if are_open else ""
    sql = f"SELECT id FROM task WHERE parent_task_id = ?{condition} ORDER BY created_at, id LIMIT ?"
    return [child for [child] in connection.execute(sql, (id, MOST_NAMED + 1)).fetchall()]


def listed(ids: Sequence[str]) -> str:
    """As a message names them."""
    return ", ".join(ids[:MOST_NAMED]) + (" and more" if len(ids) > MOST_NAMED else "")


def check_parent(connection: Connection, id: str, parent: str) -> None:
    """Raises `Fault` where this cannot be the parent of a task, or of one that is not there yet: there is none, the
    task is above it, or the tree would be too deep."""
    find(connection, parent)
    above: str | None = parent
    for count in range(1, MOST_ABOVE + 1):
        if above == id:
            way = "itself" if parent == id else f"{parent}, which is below it"
            raise refused(f"{id} cannot be a child of {way}")
        row = connection.execute("SELECT parent_task_id FROM task WHERE id = ?", (above,)).fetchone()
        above = row[0] if row else None
        if above is None:
            _check_levels(connection, id, count)
            return
    raise refused(f"{_deep()}; choose a parent higher up")


def _deep() -> str:
    return f"a task has at most {MOST_ABOVE} others above it"


def _check_levels(connection: Connection, id: str, above: int) -> None:
    """Raises `Fault` where so many tasks above this one are too many for those below it."""
    level, count = [id] if id else [], 0
    for levels in range(MOST_ABOVE + 1):
        below: list[str] = []
        for chunk in chunks(level):
            sql = f"SELECT id FROM task WHERE parent_task_id IN ({', '.join('?' * len(chunk))}) LIMIT ?"
            below += [each for [each] in connection.execute(sql, (*chunk, MOST_BELOW + 1)).fetchall()]
            if count + len(below) > MOST_BELOW:
                raise refused(f"{id} has more than {MOST_BELOW:,} tasks below it; give its children another parent")
        if not below:
            if levels + above > MOST_ABOVE:
                has = f"{id} has {levels} {'level' if levels == 1 else 'levels'} of tasks below it"
                would = f"would have {above} {'task' if above == 1 else 'tasks'} above it"
                raise refused(f"{has} and {would}, and {_deep()}", hint="choose a parent higher up")
            return
        level, count = below, count + len(below)
    raise refused(f"{id} has more than {MOST_ABOVE} levels of tasks below it; give its children another parent")


def in_line(row: Sequence[Any]) -> dict[str, Any]:
    """A task that another one names."""
    return dict(zip(("id", "title", "status"), row, strict=True))
