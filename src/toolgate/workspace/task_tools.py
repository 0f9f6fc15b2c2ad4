"""The tools that make, show, change, close, delete and list tasks (behaviour.md, "004 task registry").

The rules this file keeps: what is left out, or null, stays as it is, and an empty text takes a value away; a task that
is closed says when, why, by whom and at which commit, and one that is opened again says none of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from toolgate.state import letters
from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import EncodedResult, Object, ToolContext
from toolgate.workspace import deleting, dependencies, git_head, links, tasks
from toolgate.workspace.sessions import Caller, SessionId
from toolgate.workspace.tasks import Limit, Priority, Status, Task, TaskId, Type
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

REASONS_WITH_OPEN_CHILDREN = ("duplicate", "already_implemented", "wont_fix", "obsolete")
MOST_BLOCKED = 100  # tasks, by a new one

Title = Annotated[str, Meta(min_length=1, max_length=tasks.LONGEST_TITLE, pattern=r"\S")]
Description = Annotated[str, Meta(description="Markdown", max_length=tasks.LONGEST_DESCRIPTION)]
Text = Annotated[str, Meta(max_length=tasks.LONGEST_TEXT)]
Name = Annotated[str, Meta(max_length=tasks.LONGEST_NAME)]
Labels = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=tasks.LONGEST_NAME)]], Meta(max_length=tasks.MOST_LABELS)
]
Blocked = Annotated[list[TaskId], Meta(description="Ids of the tasks that wait for this one", max_length=MOST_BLOCKED)]
ParentId = Annotated[str, Meta(description="The id of the task that this one is a part of", max_length=64)]


class CreateTask(msgspec.Struct, forbid_unknown_fields=True):
    title: Annotated[Title, Meta(description="What is to be done, in one line")]
    session_id: SessionId | None = None
    description: Description | None = None
    priority: Priority = 2
    task_type: Annotated[Type, Meta(description="What kind of task it is")] = "task"
    parent_task_id: ParentId | None = None
    blocks: Blocked | None = None
    labels: Labels | None = None
    test_strategy: Text | None = None
    validation_criteria: Annotated[Text, Meta(description="What must be true before it is closed")] | None = None


async def create_task(given: CreateTask, workspace: Workspace, context: ToolContext) -> Object:
    _check_session(given.session_id, workspace)
    caller, now = await workspace.caller(context, given.session_id), workspace.now()

    def work(connection: Connection) -> Task:
        session = caller.session(connection, given.session_id, now)
        if given.parent_task_id:
            tasks.check_parent(connection, "", given.parent_task_id)
        made = tasks.insert(
            connection,
            Task(
                id="",
                project_id=caller.project_id,
                title=given.title,
                priority=given.priority,
                type=given.task_type,
                created_at=now,
                updated_at=now,
                description=given.description or None,
                parent_task_id=given.parent_task_id or None,
                created_in_session_id=caller.shown_id(session),
                labels=_labels(given.labels or ()),
                test_strategy=given.test_strategy or None,
                validation_criteria=given.validation_criteria or None,
            ),
        )
        for id in _once(given.blocks or ()):
            dependencies.add(connection, id, made.id, "blocks", now)
        if session:
            links.link(connection, made.id, session, "discovered", now)
        return made

    made = await workspace.transact(work, "tasks", whose=context.client.principal.counted_as)
    if given.session_id:
        workspace.bind_shown(context, made.created_in_session_id)
    return tasks.shown(made)


def _check_session(session_id: str | None, workspace: Workspace) -> None:
    if workspace.config.require_session_id and not session_id:
        raise tasks.refused("`session_id` is missing, which this gateway requires (`tasks.require_session_id`)")


def _labels(values: Sequence[str]) -> list[str]:
    """Raises `Fault` where they are too long together: they stand in an index."""
    labels = _once(values)
    if sum(map(len, labels)) > tasks.LONGEST_LABELS:
        raise tasks.refused(f"labels have at most {tasks.LONGEST_LABELS:,} characters together")
    return labels


def _once(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))


class GetTask(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId


async def get_task(given: GetTask, workspace: Workspace, context: ToolContext) -> EncodedResult:
    return await workspace.answered(context, partial(dependencies.whole_task, id=given.task_id))


class UpdateTask(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId
    title: Title | None = None
    description: Description | None = None
    status: Status | None = None
    priority: Priority | None = None
    assignee: Name | None = None
    labels: Annotated[Labels, Meta(description="The whole list: labels that are not in it are removed")] | None = None
    validation_criteria: Text | None = None
    parent_task_id: ParentId | None = None
    test_strategy: Text | None = None
    workflow_name: Name | None = None
    verification: Annotated[Text, Meta(description="How it was, or is to be, verified")] | None = None
    sequence_order: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None


async def update_task(given: UpdateTask, workspace: Workspace, context: ToolContext) -> Object:
    changes: dict[str, Any] = {
        name: _labels(value) if name == "labels" else None if value == "" else value
        for name, value in msgspec.structs.asdict(given).items()
        if name != "task_id" and value is not None
    }
    if not changes:
        raise tasks.refused("no change given; name at least one field besides `task_id`")
    caller, now = await workspace.caller(context), workspace.now()
    commit = await _commit(workspace, context) if given.status == "closed" else None

    def work(connection: Connection) -> Task:
        task = tasks.find(connection, given.task_id)
        at = tasks.later(now, task.updated_at)
        if given.parent_task_id and given.parent_task_id != task.parent_task_id:
            tasks.check_parent(connection, task.id, given.parent_task_id)
        session = caller.session(connection, None, at)
        changed = msgspec.structs.replace(task, **changes)
        if changed.status == "closed" != task.status:
            _check_children(connection, task, "completed")
            changed = _closed(
                changed, "completed", caller.shown_id(session), commit if _is_here(task, caller) else None, at
            )
        elif task.status == "closed" != changed.status:
            changed = msgspec.structs.replace(changed, **_NOT_CLOSED)
        if changed.status == "escalated" != task.status:
            changed = msgspec.structs.replace(changed, escalated_at=at)
        if session:
            links.link(connection, task.id, session, "closed" if given.status == "closed" else "worked_on", at)
        return tasks.save(connection, changed, at)

    whose = context.client.principal.counted_as
    return tasks.shown(await workspace.transact(work, "tasks", whose=whose))


class CloseTask(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId
    reason: Annotated[
        str,
        Meta(
            description=f"Why. With open children only: {', '.join(REASONS_WITH_OPEN_CHILDREN)}",
            min_length=1,
            max_length=1000,
            pattern=r"\S",
        ),
    ] = "completed"
    changes_summary: (
        Annotated[Text, Meta(description="What was changed, and how it meets the validation criteria")] | None
    ) = None
    skip_validation: Annotated[bool, Meta(description="The criteria were not looked at")] = False
    session_id: SessionId | None = None
    override_justification: (
        Annotated[Text, Meta(description="Why it is closed although the criteria are not met")] | None
    ) = None


async def close_task(given: CloseTask, workspace: Workspace, context: ToolContext) -> Object:
    """Nobody judges here whether the criteria are met. It is `validated` where there are any and its caller says how
    they are."""
    _check_session(given.session_id, workspace)
    caller, now = await workspace.caller(context, given.session_id), workspace.now()
    commit = await _commit(workspace, context)

    def work(connection: Connection) -> tuple[Task, bool]:
        task = tasks.find(connection, given.task_id)
        at = tasks.later(now, task.updated_at)
        if task.status == "closed":
            why = f" ({task.closed_reason})" if task.closed_reason else ""
            raise tasks.refused(f"{task.id} is closed already{why}; update_task with status open opens it again")
        if given.reason not in REASONS_WITH_OPEN_CHILDREN:
            _check_children(connection, task, given.reason)
        session = caller.session(connection, given.session_id, at)
        is_skipped = given.skip_validation or bool(given.override_justification)
        is_validated = bool(task.validation_criteria and given.changes_summary) and not is_skipped
        closed = _closed(task, given.reason, caller.shown_id(session), commit if _is_here(task, caller) else None, at)
        if given.changes_summary:
            closed.validation_feedback = given.changes_summary
        if given.override_justification:
            closed.validation_override_reason = given.override_justification
        if is_validated or is_skipped:
            closed.validation_status = "valid" if is_validated else "skipped"
        if session:
            links.link(connection, task.id, session, "closed", at)
        return tasks.save(connection, closed, at), is_validated

    whose = context.client.principal.counted_as
    closed, is_validated = await workspace.transact(work, "tasks", whose=whose)
    if given.session_id:
        workspace.bind_shown(context, closed.closed_in_session_id)
    return tasks.shown(closed) | {"validated": is_validated}


_NOT_CLOSED = dict.fromkeys(("closed_at", "closed_reason", "closed_in_session_id", "closed_commit_sha"))


def _closed(task: Task, reason: str, session: str | None, commit: str | None, at: str) -> Task:
    """The task as it is then, nothing written."""
    commits = [each for each in task.commits if each != commit] + ([commit] if commit else [])
    return msgspec.structs.replace(
        task,
        status="closed",
        closed_at=at,
        closed_reason=reason,
        closed_in_session_id=session,
        closed_commit_sha=commit,
        commits=commits[-tasks.MOST_COMMITS :],
    )


def _check_children(connection: Connection, task: Task, reason: str) -> None:
    """Raises `Fault` where some are not closed."""
    found = tasks.children(connection, task.id, are_open=True)
    if found:
        raise tasks.refused(
            f"{task.id} cannot be closed as {reason}: its children {tasks.listed(found)} are not closed",
            hint=f"close them first, or close it as {', '.join(REASONS_WITH_OPEN_CHILDREN[:-1])} or "
            f"{REASONS_WITH_OPEN_CHILDREN[-1]}",
        )


def _is_here(task: Task, caller: Caller) -> bool:
    """Whether the checkout that the call is in is that of the task's project."""
    return bool(task.project_id) and task.project_id == caller.project_id


async def _commit(workspace: Workspace, context: ToolContext) -> str | None:
    """What the project of a call is at."""
    project = await workspace.project(context)
    if not project:
        return None
    whose, commit = context.client.principal.counted_as, partial(git_head.commit_of, project.folder)
    return await workspace.folders.in_thread(whose, project.folder, commit)


class DeleteTask(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId
    cascade: Annotated[bool, Meta(description="Also delete all tasks below it")] = False


async def delete_task(given: DeleteTask, workspace: Workspace, context: ToolContext) -> Object:
    count = await deleting.delete(workspace, context, given.task_id, given.cascade)
    return {"deleted": True, "task_id": given.task_id, "count": count}


class ListTasks(msgspec.Struct, forbid_unknown_fields=True):
    status: Status | None = None
    priority: Priority | None = None
    task_type: Type | None = None
    assignee: Name | None = None
    label: Name | None = None
    parent_task_id: TaskId | None = None
    title_like: (
        Annotated[str, Meta(description="A part of the title, in upper or lower case", max_length=100)] | None
    ) = None
    limit: Limit | None = 50


async def list_tasks(given: ListTasks, workspace: Workspace, context: ToolContext) -> EncodedResult:
    project = await workspace.project(context)
    where = tasks.among(
        project.id if project else "",
        given.parent_task_id,
        by_text=bool(given.title_like or given.label),
        status=given.status,
        priority=given.priority,
        type=given.task_type,
        assignee=given.assignee,
    )
    label = msgspec.json.encode(given.label).decode() if given.label else ""
    if given.title_like:
        where += _has("title", "title_letters", given.title_like)
    if label:
        where += _has("labels", "label_letters", label)  # which costs less, but does not tell B from b
        where.append((_HAS_LABEL, f",{label}"))

    def work(connection: Connection) -> Object:
        found = letters.places(connection, letters.letters(given.title_like or ""), letters.letters(label))
        return tasks.listing(connection, where, tasks.NEWEST_FIRST, given.limit, places=found)

    return await workspace.answered(context, work)


def _has(column: str, bits_in: str, text: str) -> list[tuple[str, object]]:
    """The conditions of what has this text in it."""
    escaped, bits = re.sub(r"([\\%_])", r"\\\1", text), letters.letters(text)
    like: tuple[str, object] = (f"task.{column} LIKE ? ESCAPE '\\'", f"%{escaped}%")
    return [(f"(task.{bits_in} & {bits}) = ?", bits), like]


# Labels are a JSON array of texts. A quote within one has a backslash before it, so `,"` is where one begins.
_LABELS = "',' || substr(task.labels, 2)"
_HAS_LABEL = f"replace({_LABELS}, ?, '') <> {_LABELS}"

TOOLS = (
    Tool("create_task", "Create a new task in the current project.", CreateTask, create_task, changes=True),
    Tool("get_task", "Get task details with dependencies.", GetTask, get_task),
    Tool(
        "update_task",
        "Update task fields. What is left out stays as it is; an empty text takes a value away.",
        UpdateTask,
        update_task,
        changes=True,
    ),
    Tool("close_task", "Close a task with a reason.", CloseTask, close_task, changes=True),
    Tool(
        "delete_task",
        "Delete a task (optional cascade: with all that is below it).",
        DeleteTask,
        delete_task,
        changes=True,
    ),
    Tool(
        "list_tasks",
        "List tasks with optional filters. The newest come first, each in brief: get_task shows one in full.",
        ListTasks,
        list_tasks,
    ),
)
