"""Which sessions had to do with which tasks."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import EncodedResult, Object, ToolContext
from toolgate.workspace import sessions, tasks
from toolgate.workspace.sessions import SessionId
from toolgate.workspace.tasks import TaskId
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

Action = Literal["worked_on", "discovered", "mentioned", "closed"]

MOST_SHOWN = 1000  # links of a task or a session, the newest


def link(connection: Connection, task_id: str, session: str, action: Action, now: str) -> None:
    connection.execute(
        "INSERT INTO task_session (task_id, session_id, action, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (task_id, session_id, action) DO NOTHING",
        (task_id, session, action, now),
    )


class LinkTaskToSession(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId
    session_id: SessionId | None = None
    action: Annotated[Action, Meta(description="What the session did with the task")] = "worked_on"


async def link_task_to_session(given: LinkTaskToSession, workspace: Workspace, context: ToolContext) -> Object:
    caller, now = await workspace.caller(context, given.session_id), workspace.now()

    def work(connection: Connection) -> str:
        tasks.find(connection, given.task_id)
        session = caller.session(connection, given.session_id, now)
        if session is None:
            raise tasks.refused("`session_id` is missing, and your session is not known; pass its id")
        link(connection, given.task_id, session, given.action, now)
        return session

    session = await workspace.transact(work, "tasks", whose=context.client.principal.counted_as)
    if given.session_id:
        workspace.bind(context, session)
    shown = sessions.shown_id(caller.principal, session)
    return {"linked": True, "task_id": given.task_id, "session_id": shown, "action": given.action}


class GetSessionTasks(msgspec.Struct, forbid_unknown_fields=True):
    session_id: SessionId


async def get_session_tasks(given: GetSessionTasks, workspace: Workspace, context: ToolContext) -> EncodedResult:
    principal = sessions.whose(context.client.principal)

    def work(connection: Connection) -> Object:
        known = sessions.find(connection, principal, given.session_id)
        session = known.id if known else given.session_id
        if known is None and sessions.get(connection, session):  # somebody else's, which is not found
            return {"session_id": session, "tasks": []}
        columns = ", ".join(f"task.{name}" for name in tasks.BRIEF)
        sql = (
            f"SELECT l.action, l.created_at, {columns} FROM task_session l JOIN task ON task.id = l.task_id"
            " WHERE l.session_id = ? ORDER BY l.created_at DESC, task.id, l.action LIMIT ?"
        )
        found = [
            {"task": tasks.brief_of(row), "action": action, "link_created_at": created_at}
            for action, created_at, *row in connection.execute(sql, (session, MOST_SHOWN)).fetchall()
        ]
        return {"session_id": known.shown_id if known else session, **_fitting("tasks", found)}

    return await workspace.answered(context, work)


class GetTaskSessions(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId


_OF_SESSION = ("session_id", "action", "link_created_at", "title", "source", "status")


async def get_task_sessions(given: GetTaskSessions, workspace: Workspace, context: ToolContext) -> EncodedResult:
    principal = sessions.whose(context.client.principal)  # what others call theirs is their own affair

    def work(connection: Connection) -> Object:
        tasks.find(connection, given.task_id)
        sql = (
            "SELECT l.session_id, l.action, l.created_at, s.title, s.source, s.status FROM task_session l"
            " LEFT JOIN session_record s ON s.id = l.session_id AND s.principal = ?"
            " WHERE l.task_id = ? ORDER BY l.created_at DESC, l.session_id, l.action LIMIT ?"
        )
        found = connection.execute(sql, (principal, given.task_id, MOST_SHOWN)).fetchall()
        rows = [(sessions.shown_id(principal, id), *rest) for id, *rest in found]
        shown: list[dict[str, Any]] = [dict(zip(_OF_SESSION, row, strict=True)) for row in rows]
        return {"task_id": given.task_id, **_fitting("sessions", shown)}

    return await workspace.answered(context, work)


def _fitting(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """A member of an answer, with as many as have room; where that is not all, it says so."""
    shown = [*itertools.takewhile(tasks.AnswerSize().takes, found)]
    return {name: shown} | ({"truncated": True} if len(shown) < len(found) else {})


TOOLS = (
    Tool(
        "link_task_to_session",
        "Link a task to a session.",
        LinkTaskToSession,
        link_task_to_session,
        changes=True,
    ),
    Tool("get_session_tasks", "Get the tasks of a session.", GetSessionTasks, get_session_tasks),
    Tool("get_task_sessions", "Get the sessions that touched a task.", GetTaskSessions, get_task_sessions),
)
