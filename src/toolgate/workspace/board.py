"""The board: the tasks of a project by what can be done with them, and which projects have tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from toolgate.state.base import Connection
from toolgate.workspace import ready, tasks
from toolgate.workspace.tasks import Place

Column: TypeAlias = Literal["ready", "blocked", "in_progress", "escalated", "failed", "closed"]
TITLES: Mapping[Column, str] = {
    "ready": "Ready",
    "blocked": "Blocked",
    "in_progress": "In progress",
    "escalated": "Escalated",
    "failed": "Failed",
    "closed": "Recently closed",
}
MOST_PROJECTS = 200
MOST_CLOSED = 10


def columns(connection: Connection, project_id: str, most: int) -> dict[Column, dict[str, Any]]:
    """Up to so many tasks of each column, as lists show them, and whether there are more; of what is closed a few."""
    few = min(most, MOST_CLOSED)
    return {name: column(connection, project_id, name, few if name == "closed" else most) for name in TITLES}


def column(
    connection: Connection, project_id: str, name: Column, most: int, behind: Place | None = None
) -> dict[str, Any]:
    """Up to so many tasks of one column, from its beginning or behind a place, and whether there are more."""
    if name == "ready":
        return ready.workable(connection, project_id, most, behind)
    if name == "blocked":
        return ready.waiting(connection, project_id, most, behind)
    where = tasks.among(project_id, None, status=name)
    return tasks.listing(connection, where, tasks.NEWEST_FIRST, most, behind=behind)


def projects(connection: Connection) -> list[str]:
    """The ids of projects that have tasks, in order; empty is that of tasks that belong to none."""
    found: list[str] = []
    sql, values = "SELECT min(project_id) FROM task", list[str]()
    while len(found) < MOST_PROJECTS:  # each is one look into an index
        [id] = connection.execute(sql, values).fetchone()
        if id is None:
            break
        found.append(id)
        sql, values = "SELECT min(project_id) FROM task WHERE project_id > ?", [id]
    return found
