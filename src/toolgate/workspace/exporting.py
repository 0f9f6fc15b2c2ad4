"""The tasks of a project as lines, as its file has them, and what tells these from any others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby

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
        if len(line) > jsonl.LONGEST_LINE:
            raise Unreadable(f"{row[0]} is too long for a line of {jsonl.LONGEST_LINE:,} bytes: shorten its texts")
        yield line


_ALL = ", ".join(FIELDS)
DEPENDENCIES = """
    SELECT w.task_id, w.depends_on, w.dep_type, w.created_at FROM task_dependency w JOIN task t ON t.id = w.task_id
    WHERE t.project_id = ? ORDER BY w.task_id, w.depends_on, w.dep_type
"""
