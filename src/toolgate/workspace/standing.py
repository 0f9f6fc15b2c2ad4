"""How the tasks of a project stand in the store: a mark that is another one as soon as any of them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from toolgate.state.base import Connection

Mark: TypeAlias = tuple[Any, ...]

# Each change of a task has another time, down to the microsecond; the sum tells it from any other.
_MARK = (
    "SELECT COUNT(*), MAX(updated_at), SUM(CAST(SUBSTR(updated_at, 21, 6) AS INTEGER)) FROM task WHERE project_id = ?"
)
_MARK_OF_DEPENDENCIES = """
    SELECT COUNT(*), MAX(w.created_at) FROM task_dependency w JOIN task t ON t.id = w.task_id WHERE t.project_id = ?
"""


def mark(connection: Connection, project: str) -> Mark:
    """Another one as soon as any task of the project is: how many they are, their latest change, the sum of the
    microseconds of their changes; how many dependencies they have, and the time of the latest."""
    tasks = connection.execute(_MARK, (project,)).fetchone()
    return (*tasks, *connection.execute(_MARK_OF_DEPENDENCIES, (project,)).fetchone())


def moved(mark: Mark, written: Sequence[tuple[str, str]], added: Sequence[str]) -> Mark:
    """What a mark is after such changes alone: each written task with the times of its change before, empty for a new
    one, and of this one; and the times of added dependencies."""
    count, latest, fractions, waits, latest_of_waits = mark
    return (
        count + sum(not before for before, _ in written),
        max([latest or "", *(after for _, after in written)]) or None,
        (fractions or 0) + sum(_fraction(after) - _fraction(before) for before, after in written),
        waits + len(added),
        max([latest_of_waits or "", *added]) or None,
    )


def _fraction(at: str) -> int:
    return int(at[20:26]) if at[20:26].isdecimal() else 0


def rows(found: Any) -> Iterator[tuple[Any, ...]]:
    while (row := found.fetchone()) is not None:
        yield row
