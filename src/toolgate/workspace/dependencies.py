"""What tasks wait for, what they were found in, and what they have to do with: the tools that change and show it.

The rules this file keeps: only `blocks` blocks; no task waits for itself, over whatever is between. That is looked at
before the transaction that adds the dependency, since it may take long; there, only whether it still holds, so that two
writers cannot close a circle together. What comes in by other ways may have one, which `check_dependency_cycles` finds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from toolgate.core.concurrency import SOON
from toolgate.core.fault import Fault
from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import EncodedResult, Object, ToolContext
from toolgate.workspace import tasks
from toolgate.workspace.circles import ENDS, changed, steps, version, waits, waits_within
from toolgate.workspace.tasks import TaskId
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

DependencyType = Literal["blocks", "discovered-from", "related"]
Direction = Literal["blockers", "blocking", "both"]

DEEPEST = 10  # levels of a tree below its task
MOST_NODES = 1000  # of a tree
MOST_OF_ONE = 1000  # dependencies that one task may have; and of those on it, so many are shown
MOST_CYCLES = 100  # that are shown
MOST_AT_ONCE = 5000  # dependencies that are looked at while others wait to write
TRIES = 5  # to add one, while others change them
REST = 500  # tasks that are looked at before other threads get a turn


def add(connection: Connection, task_id: str, depends_on: str, dep_type: DependencyType, now: str) -> bool:
    """Whether it is new. That it closes no circle is known: what it depends on is new, or was looked at. Raises `Fault`
    where a task is not there, or waits for too many."""
    if not _is_new(connection, task_id, depends_on, dep_type):
        return False
    connection.execute("INSERT INTO task_dependency VALUES (?, ?, ?, ?)", (task_id, depends_on, dep_type, now))
    return True


def _is_new(connection: Connection, task_id: str, depends_on: str, dep_type: DependencyType) -> bool:
    if task_id == depends_on:
        raise tasks.refused(f"{task_id} cannot depend on itself")
    for id in (task_id, depends_on):
        tasks.find(connection, id)
    is_there = "SELECT 1 FROM task_dependency WHERE task_id = ? AND depends_on = ? AND dep_type = ?"
    if connection.execute(is_there, (task_id, depends_on, dep_type)).fetchone():
        return False
    [count] = connection.execute("SELECT count(*) FROM task_dependency WHERE task_id = ?", (task_id,)).fetchone()
    if count >= MOST_OF_ONE:
        raise tasks.refused(f"{task_id} has {count:,} dependencies already; remove some, or group them under a task")
    return True


def _circle(task_id: str, depends_on: str) -> Fault:
    return tasks.refused(
        f"{task_id} cannot wait for {depends_on}, which waits for {task_id} already",
        hint=f"get_dependency_tree of {depends_on} shows the tasks between them",
    )


# What `get_task` shows of them.


def whole_task(connection: Connection, id: str) -> dict[str, Any]:
    """Raises `Fault` where there is none."""
    return tasks.shown(tasks.find(connection, id)) | {"dependencies": of_task(connection, id)}


def of_task(connection: Connection, id: str) -> dict[str, Any]:
    """What a task waits for and what waits for it; and what else it was tied to, from either end."""
    shown: dict[str, Any] = {"blocked_by": [], "blocking": []}
    room = tasks.AnswerSize()
    for way, (start, end) in ENDS.items():
        sql = (
            f"SELECT d.dep_type, task.id, task.title, task.status FROM task_dependency d JOIN task ON task.id = d.{end}"
            f" WHERE d.{start} = ? ORDER BY d.dep_type, task.priority, task.created_at, task.id LIMIT ?"
        )
        found = connection.execute(sql, (id, MOST_OF_ONE + 1)).fetchall()
        for number, (dep_type, *row) in enumerate(found):
            if number == MOST_OF_ONE or not room.takes(one := tasks.in_line(row)):
                shown["truncated"] = True
                break
            shown.setdefault(_SHOWN_AS[way, dep_type], []).append(one)
    return shown


_SHOWN_AS = {
    ("blockers", "blocks"): "blocked_by",
    ("blocking", "blocks"): "blocking",
    ("blockers", "discovered-from"): "discovered_from",
    ("blocking", "discovered-from"): "discovered",
    ("blockers", "related"): "related",
    ("blocking", "related"): "related",
}


# The tools.


class AddDependency(msgspec.Struct, forbid_unknown_fields=True):
    task_id: Annotated[TaskId, Meta(description="The task that depends on the other")]
    depends_on: Annotated[TaskId, Meta(description="The other task: with `blocks`, the one that must be closed first")]
    dep_type: Annotated[DependencyType, Meta(description="Only `blocks` keeps a task from being ready")] = "blocks"


async def add_dependency(given: AddDependency, workspace: Workspace, context: ToolContext) -> Object:
    """What would close a circle is found before anything is written: no writer waits for a search."""
    now, whose = workspace.now(), context.client.principal.counted_as
    task_id, depends_on, is_blocking = given.task_id, given.depends_on, given.dep_type == "blocks"

    def look(connection: Connection) -> bytes | None:
        if _is_new(connection, task_id, depends_on, given.dep_type) and waits(connection, depends_on, task_id):
            raise _circle(task_id, depends_on)
        return version(connection)

    def work(connection: Connection) -> bool | None:
        """None where others have changed so much meanwhile that it is to be looked for again."""
        if is_blocking and version(connection) != seen:
            found = waits_within(connection, depends_on, task_id, MOST_AT_ONCE)
            if found is None:
                return None
            if found:
                raise _circle(task_id, depends_on)
        is_added = add(connection, task_id, depends_on, given.dep_type, now)
        if is_added and is_blocking:
            changed(connection)
        return is_added

    for _ in range(TRIES):
        seen = await workspace.query(look, whose) if is_blocking else None
        added = await workspace.transact(work, "tasks", whose=whose)
        if added is not None:
            return {"added": added, **msgspec.structs.asdict(given)}
    message = "Dependencies were changed again and again while they were checked for a cycle"
    raise Fault("RATE_LIMITED", message, reach="not_sent", hint="try again", extra={"retryAfter": SOON})


class RemoveDependency(msgspec.Struct, forbid_unknown_fields=True):
    task_id: Annotated[TaskId, Meta(description="The task that depends on the other")]
    depends_on: Annotated[TaskId, Meta(description="The other task")]


async def remove_dependency(given: RemoveDependency, workspace: Workspace, context: ToolContext) -> Object:
    """Of whatever type."""

    def work(connection: Connection) -> list[str]:
        pair = (given.task_id, given.depends_on)
        for id in pair:
            tasks.find(connection, id)
        where = "FROM task_dependency WHERE task_id = ? AND depends_on = ?"
        found = connection.execute(f"SELECT dep_type {where} ORDER BY dep_type", pair).fetchall()
        connection.execute(f"DELETE {where}", pair)
        return [dep_type for [dep_type] in found]

    removed = await workspace.transact(work, "tasks", whose=context.client.principal.counted_as)
    return {"removed": bool(removed), **msgspec.structs.asdict(given), "dep_types": removed}


class GetDependencyTree(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId
    direction: Annotated[
        Direction, Meta(description="`blockers`: what it waits for; `blocking`: what waits for it")
    ] = "both"


async def get_dependency_tree(given: GetDependencyTree, workspace: Workspace, context: ToolContext) -> EncodedResult:
    return await workspace.answered(context, lambda connection: tree(connection, given.task_id, given.direction))


def tree(connection: Connection, id: str, direction: Direction) -> dict[str, Any]:
    """A task with `blockers` and `blocking`, each of those with its own in turn. A task that was shown already stands
    there again as `repeated`, with nothing below it. Where something is left out, its task is `truncated`, and so is
    the whole. Raises `Fault` where there is no such task."""
    task = tasks.find(connection, id)
    whole: dict[str, Any] = {name: getattr(task, name) for name in tasks.BRIEF} | {"truncated": False}
    left, room = MOST_NODES - 1, tasks.AnswerSize()
    for way in ENDS if direction == "both" else (direction,):
        level, shown = {id: whole}, {id}
        whole[way] = []
        for _ in range(DEEPEST):
            edges = set(steps(connection, level, way, left))
            found = _briefs(connection, {end for _, end in edges})
            edges = _in_order([edge for edge in edges if edge[1] in found], list(level), found)
            below: dict[str, dict[str, Any]] = {}
            fitting = [
                edge for edge in edges[:left] if room.takes(found[edge[1]])
            ]  # from the first without room on, none
            for start, end in fitting:
                node = dict(found[end])
                level[start].setdefault(way, []).append(node)
                if end in shown:
                    node["repeated"] = True
                else:
                    shown.add(end)
                    below[end] = node
            for start, _ in edges[len(fitting) :]:
                level[start]["truncated"] = whole["truncated"] = True
            left = left - len(edges) if len(fitting) == len(edges) else 0
            level = below
        for start, _ in steps(connection, level, way, MOST_NODES):
            level[start]["truncated"] = whole["truncated"] = True
    return whole


def _in_order(
    edges: Sequence[tuple[str, str]], level: Sequence[str], found: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """By the task that they lead from, as it stands in its level; then the most urgent first."""
    place = {id: number for number, id in enumerate(level)}

    def order(edge: tuple[str, str]) -> tuple[Any, ...]:
        end = found[edge[1]]
        return place[edge[0]], end["priority"], end["created_at"], end["id"]

    return sorted(edges, key=order)


def _briefs(connection: Connection, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for chunk in tasks.chunks(ids):
        marks = ", ".join("?" * len(chunk))
        rows = connection.execute(f"SELECT {', '.join(tasks.BRIEF)} FROM task WHERE id IN ({marks})", chunk).fetchall()
        found |= {row[0]: tasks.brief_of(row) for row in rows}
    return found


class CheckDependencyCycles(msgspec.Struct, forbid_unknown_fields=True):
    pass


async def check_dependency_cycles(
    given: CheckDependencyCycles, workspace: Workspace, context: ToolContext
) -> EncodedResult:
    project = await workspace.project(context)

    def work(connection: Connection) -> Object:
        found = cycles(connection, project.id if project else "")
        return {"has_cycles": bool(found), "cycles": [*itertools.takewhile(tasks.AnswerSize().takes, found)]}

    return await workspace.answered(context, work)


def cycles(connection: Connection, project_id: str) -> list[list[str]]:
    """Tasks that wait for themselves, in the order in which they wait: one circle at least of each knot in which a task
    of the project is, `MOST_CYCLES` in all."""
    ahead: dict[str, list[str]] = {}
    sql = "SELECT task_id, depends_on FROM task_dependency WHERE dep_type = 'blocks'"
    for start, end in connection.execute(sql).fetchall():
        ahead.setdefault(start, []).append(end)

    def is_here(circle: Sequence[str]) -> bool:
        for chunk in tasks.chunks(circle):
            here = f"SELECT 1 FROM task WHERE id IN ({', '.join('?' * len(chunk))}) AND project_id = ? LIMIT 1"
            if connection.execute(here, (*chunk, project_id)).fetchone():
                return True
        return False

    return list(itertools.islice(filter(is_here, _circles(ahead)), MOST_CYCLES))


def _circles(ahead: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """A walk in depth. What is met again on the way closes a circle; what the walk has left closes none any more."""
    done: set[str] = set()
    for number, first in enumerate(ahead):
        if number % REST == 0:
            time.sleep(0)
        if first in done:
            continue
        way, on_way = [first], {first}
        steps = [iter(ahead[first])]
        while steps:
            end = next(steps[-1], None)
            if end is None:
                steps.pop()
                done.add(left := way.pop())
                on_way.discard(left)
            elif end in on_way:
                yield way[way.index(end) :]
            elif end not in done:
                way.append(end)
                on_way.add(end)
                steps.append(iter(ahead.get(end, ())))


TOOLS = (
    Tool("add_dependency", "Add a dependency between two tasks.", AddDependency, add_dependency, changes=True),
    Tool(
        "remove_dependency",
        "Remove a dependency between two tasks.",
        RemoveDependency,
        remove_dependency,
        changes=True,
    ),
    Tool(
        "get_dependency_tree",
        "Show what a task waits for and what waits for it, as a tree.",
        GetDependencyTree,
        get_dependency_tree,
    ),
    Tool(
        "check_dependency_cycles",
        "Detect tasks that wait for each other in a circle.",
        CheckDependencyCycles,
        check_dependency_cycles,
    ),
)
