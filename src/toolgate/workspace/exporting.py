"""The tasks of a project as lines, as its file has them, and what tells these from any others.

The rule this file keeps: what an import would refuse is not written, and the task is named that is too much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from toolgate.state.base import Connection
from toolgate.workspace import jsonl
from toolgate.workspace.jsonl import Dependency, Unreadable
from toolgate.workspace.pace import Pace
from toolgate.workspace.standing import rows
from toolgate.workspace.tasks import FIELDS


def hash_of(connection: Connection, project: str, pace: Pace) -> str:
    content = hashlib.sha256()
    for line in lines(connection, project, pace):
        content.update(line)
    return content.hexdigest()


def lines(connection: Connection, project: str, pace: Pace) -> Iterator[bytes]:
    """The lines, in order; a few at a time are in memory. Raises `Unreadable`."""
    count = size = waiting = 0
    tasks = connection.execute(f"SELECT {_ALL} FROM task WHERE project_id = ? ORDER BY id", (project,))
    waits = groupby(rows(connection.execute(DEPENDENCIES, (project,))), lambda row: row[0])
    of, them = next(waits, (None, iter(())))
    for row in rows(tasks):
        pace.step()
        dependencies: Sequence[Dependency] = ()
        if of == row[0]:
            dependencies = [Dependency(*rest) for _, *rest in pace.through(them)]
            of, them = next(waits, (None, iter(())))
        line = jsonl.line(row, dependencies)
        count, size, waiting = count + 1, size + len(line), waiting + len(dependencies)
        if why := _too_much(row, line, len(dependencies)) or _beyond(row[0], count, size, waiting):
            raise Unreadable(why)
        yield line


def _too_much(row: Sequence[Any], line: bytes, waits: int) -> str:
    """Why no file can have a task, empty where it can."""
    id = row[0]
    if len(line) > jsonl.LONGEST_LINE:
        return f"{id} is too long for a line of {jsonl.LONGEST_LINE:,} bytes: shorten its texts"
    if waits > jsonl.MOST_OF_ONE:
        return f"{id} has {waits:,} dependencies, of which a line can have {jsonl.MOST_OF_ONE:,}: remove some"
    for place in _TIMES:
        if row[place] and row[place] > _LATEST:
            return f"`{FIELDS[place]}` of {id} is after the year {jsonl.LAST_YEAR}: create another one, and delete this one"
    return ""


def _beyond(id: str, count: int, size: int, waiting: int) -> str:
    """Why a file can have no more, from this task on; empty where it can."""
    for much, most, what in (
        (count, jsonl.MOST, "have more than {:,} tasks"),
        (size, jsonl.LARGEST, "be larger than {:,} bytes"),
        (waiting, jsonl.MOST_DEPENDENCIES, "have more than {:,} dependencies"),
    ):
        if much > most:
            return f"with {id} it would {what.format(most)}: delete tasks that are done"
    return ""


_TIMES = [FIELDS.index(name) for name in ("created_at", "updated_at", "closed_at", "escalated_at")]
_LATEST = f"{jsonl.LAST_YEAR}-12-31T23:59:59.999999Z"
_ALL = ", ".join(FIELDS)
DEPENDENCIES = """
    SELECT w.task_id, w.depends_on, w.dep_type, w.created_at FROM task_dependency w JOIN task t ON t.id = w.task_id
    WHERE t.project_id = ? ORDER BY w.task_id, w.depends_on, w.dep_type
"""
