"""Tasks: what one is, and the tools that make, find and change them (behaviour.md, "004 task registry")."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from toolgate.core.fault import Fault
from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import Object, ToolContext
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

Status = Literal["open", "in_progress", "closed", "failed", "escalated"]
Type = Literal["task", "bug", "feature", "epic", "chore"]
Priority = Annotated[int, Meta(ge=0, le=3, description="0 critical, 1 high, 2 medium, 3 low")]
TaskId = Annotated[str, Meta(description="The id of a task, such as gt-1a2b3c", max_length=64)]


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
_AS_JSON = ("labels", "commits")


def shown(task: Task) -> dict[str, Any]:
    """A task as tools show it and files have it: all 33 fields, in their order."""
    return {**msgspec.to_builtins(task), "project_id": task.project_id or None}


def row_of(task: Task) -> list[Any]:
    values = msgspec.structs.asdict(task)
    return [msgspec.json.encode(values[name]).decode() if name in _AS_JSON else values[name] for name in FIELDS]


def task_of(row: tuple[Any, ...]) -> Task:
    values: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
    values |= {name: msgspec.json.decode(values[name]) for name in _AS_JSON}
    values["use_external_validator"] = bool(values["use_external_validator"])
    return Task(**values)


_ALL = ", ".join(FIELDS)
_INSERT = f"INSERT INTO task ({_ALL}) VALUES ({', '.join('?' * len(FIELDS))}) ON CONFLICT (id) DO NOTHING"


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
            connection.execute(_INSERT, row_of(made))
            return made


# The tools.


class CreateTask(msgspec.Struct, forbid_unknown_fields=True):
    title: Annotated[str, Meta(description="What is to be done, in one line", min_length=1, max_length=1000)]
    priority: Priority = 2
    task_type: Annotated[Type, Meta(description="What kind of task it is")] = "task"


async def create_task(given: CreateTask, workspace: Workspace, context: ToolContext) -> Object:
    project, now = await workspace.project(context), workspace.now()
    task = Task(
        id="",
        project_id=project.id if project else "",
        title=given.title,
        priority=given.priority,
        type=given.task_type,
        created_at=now,
        updated_at=now,
    )
    return shown(await workspace.transact(lambda connection: insert(connection, task), "tasks"))


class GetTask(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId


async def get_task(given: GetTask, workspace: Workspace, context: ToolContext) -> Object:
    return shown(await workspace.query(lambda connection: find(connection, given.task_id)))


TOOLS = (
    Tool("create_task", "Create a new task in the current project.", CreateTask, create_task, changes=True),
    Tool("get_task", "Get task details with dependencies.", GetTask, get_task),
)
