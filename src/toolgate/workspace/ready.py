"""Which tasks can be worked on, and which wait for others.

Both lists have tasks with the status `open` only, and each of those is in one of them: it is blocked as long as a task
that it waits for is not closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import EncodedResult, ToolContext
from toolgate.workspace import tasks
from toolgate.workspace.tasks import BY_URGENCY, Limit, Place, Priority, TaskId, Type, in_line
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

MOST_BLOCKERS = 20  # that are shown of each task; of the others, how many there are
PIECE = 50  # tasks whose blockers are looked up at once: each may have a thousand

_OPEN_BLOCKERS = (
    "EXISTS (SELECT 1 FROM task_dependency d JOIN task blocker ON blocker.id = d.depends_on"
    " WHERE d.task_id = task.id AND d.dep_type = 'blocks' AND blocker.status <> 'closed')"
)


class ListReadyTasks(msgspec.Struct, forbid_unknown_fields=True):
    priority: Priority | None = None
    task_type: Type | None = None
    assignee: Annotated[str, Meta(max_length=tasks.LONGEST_NAME)] | None = None
    parent_task_id: TaskId | None = None
    limit: Limit | None = 10


async def list_ready_tasks(given: ListReadyTasks, workspace: Workspace, context: ToolContext) -> EncodedResult:
    project = await workspace.project(context)
    where = tasks.among(
        project.id if project else "",
        given.parent_task_id,
        status="open",
        priority=given.priority,
        type=given.task_type,
        assignee=given.assignee,
    )
    return await workspace.answered(context, lambda connection: _workable(connection, where, given.limit))


def workable(connection: Connection, project_id: str, limit: int, behind: Place | None) -> dict[str, Any]:
    """Open tasks of a project that nothing blocks, the most urgent first."""
    return _workable(connection, tasks.among(project_id, None, status="open"), limit, behind)


def _workable(
    connection: Connection, where: Sequence[tuple[str, object]], limit: int | None, behind: Place | None = None
) -> dict[str, Any]:
    where = [*where, (f"NOT {_OPEN_BLOCKERS}", None)]
    return tasks.listing(connection, where, BY_URGENCY, limit, behind=behind)


class ListBlockedTasks(msgspec.Struct, forbid_unknown_fields=True):
    parent_task_id: TaskId | None = None
    limit: Limit | None = 20


async def list_blocked_tasks(given: ListBlockedTasks, workspace: Workspace, context: ToolContext) -> EncodedResult:
    project = await workspace.project(context)
    where = tasks.among(project.id if project else "", given.parent_task_id, status="open")
    return await workspace.answered(context, lambda connection: _waiting(connection, where, given.limit))


def waiting(connection: Connection, project_id: str, limit: int, behind: Place | None) -> dict[str, Any]:
    """Open tasks of a project that wait for others, with what blocks each."""
    return _waiting(connection, tasks.among(project_id, None, status="open"), limit, behind)


def _waiting(
    connection: Connection, where: Sequence[tuple[str, object]], limit: int | None, behind: Place | None = None
) -> dict[str, Any]:
    where = [*where, (_OPEN_BLOCKERS, None)]
    return tasks.listing(connection, where, BY_URGENCY, limit, _with_blockers, PIECE, behind=behind)


def _with_blockers(connection: Connection, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blockers: dict[str, list[dict[str, Any]]] = {task["id"]: [] for task in found}
    more: dict[str, dict[str, int]] = {}
    ranked = (
        f"SELECT d.task_id AS waiting, task.id AS id, row_number() OVER (PARTITION BY d.task_id ORDER BY {BY_URGENCY})"
        " AS place, count(*) OVER (PARTITION BY d.task_id) AS total FROM task_dependency d"
        " JOIN task ON task.id = d.depends_on"
        f" WHERE d.task_id IN ({', '.join('?' * len(found))}) AND d.dep_type = 'blocks' AND task.status <> 'closed'"
    )
    sql = (
        f"SELECT r.waiting, r.total, task.id, task.title, task.status FROM ({ranked}) r JOIN task ON task.id = r.id"
        " WHERE r.place <= ? ORDER BY r.waiting, r.place"
    )
    for id, total, *row in connection.execute(sql, (*blockers, MOST_BLOCKERS)).fetchall():
        blockers[id].append(in_line(row))
        if total > MOST_BLOCKERS:
            more[id] = {"more_blockers": total - MOST_BLOCKERS}
    return [task | {"blockers": blockers[task["id"]]} | more.get(task["id"], {}) for task in found]


TOOLS = (
    Tool(
        "list_ready_tasks",
        "List open tasks that nothing blocks, the most urgent first. Each in brief: get_task shows one in full.",
        ListReadyTasks,
        list_ready_tasks,
    ),
    Tool(
        "list_blocked_tasks",
        "List open tasks that wait for others, with what blocks each.",
        ListBlockedTasks,
        list_blocked_tasks,
    ),
)
