"""Which tasks can be worked on, and which wait for others.

Both lists have tasks with the status `open` only, and each of those is in one of them: it is blocked as long as a task
that it waits for is not closed.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import Object, ToolContext
from toolgate.workspace import tasks
from toolgate.workspace.tasks import Limit, Priority, TaskId, Type, in_line
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

_OPEN_BLOCKERS = (
    "EXISTS (SELECT 1 FROM task_dependency d JOIN task blocker ON blocker.id = d.depends_on"
    " WHERE d.task_id = task.id AND d.dep_type = 'blocks' AND blocker.status <> 'closed')"
)
_BY_URGENCY = "task.priority, task.created_at, task.id"


class ListReadyTasks(msgspec.Struct, forbid_unknown_fields=True):
    priority: Priority | None = None
    task_type: Type | None = None
    assignee: Annotated[str, Meta(max_length=tasks.LONGEST_NAME)] | None = None
    parent_task_id: TaskId | None = None
    limit: Limit | None = 10


async def list_ready_tasks(given: ListReadyTasks, workspace: Workspace, context: ToolContext) -> Object:
    project = await workspace.project(context)
    where = tasks.among(
        project.id if project else "",
        given.parent_task_id,
        status="open",
        priority=given.priority,
        type=given.task_type,
        assignee=given.assignee,
    )
    where.append((f"NOT {_OPEN_BLOCKERS}", None))
    found, more = await workspace.query(lambda connection: tasks.briefs(connection, where, _BY_URGENCY, given.limit))
    return {"tasks": found, "count": len(found), "has_more": more}


class ListBlockedTasks(msgspec.Struct, forbid_unknown_fields=True):
    parent_task_id: TaskId | None = None
    limit: Limit | None = 20


async def list_blocked_tasks(given: ListBlockedTasks, workspace: Workspace, context: ToolContext) -> Object:
    project = await workspace.project(context)
    where = tasks.among(project.id if project else "", given.parent_task_id, status="open")
    where.append((_OPEN_BLOCKERS, None))

    def work(connection: Connection) -> tuple[list[dict[str, Any]], bool]:
        found, more = tasks.briefs(connection, where, _BY_URGENCY, given.limit)
        return _with_blockers(connection, found), more

    found, more = await workspace.query(work)
    return {"tasks": found, "count": len(found), "has_more": more}


def _with_blockers(connection: Connection, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    blockers: dict[str, list[dict[str, Any]]] = {task["id"]: [] for task in found}
    for chunk in tasks.chunks(blockers):
        sql = (
            "SELECT d.task_id, task.id, task.title, task.status FROM task_dependency d"
            " JOIN task ON task.id = d.depends_on"
            f" WHERE d.task_id IN ({', '.join('?' * len(chunk))}) AND d.dep_type = 'blocks' AND task.status <> 'closed'"
            f" ORDER BY {_BY_URGENCY}"
        )
        for id, *row in connection.execute(sql, chunk).fetchall():
            blockers[id].append(in_line(row))
    return [task | {"blockers": blockers[task["id"]]} for task in found]


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
