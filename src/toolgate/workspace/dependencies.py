"""What tasks wait for, what they were found in, and what they have to do with: the tools that change and show it.

The rules this file keeps: only `blocks` blocks; no task waits for itself, over whatever is between. That is looked at
in the transaction that adds the dependency, so that two writers cannot close a circle together. What comes in by other
ways may have one, which `check_dependency_cycles` finds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import Object, ToolContext
from toolgate.workspace import tasks
from toolgate.workspace.circles import ENDS, steps, waits
from toolgate.workspace.tasks import TaskId
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

DependencyType = Literal["blocks", "discovered-from", "related"]
Direction = Literal["blockers", "blocking", "both"]

DEEPEST = 10  # levels of a tree below its task
MOST_NODES = 1000  # of a tree
MOST_OF_ONE = 1000  # dependencies that one task may have; and of those on it, so many are shown
MOST_CYCLES = 100  # that are shown
REST = 500  # tasks that are looked at before other threads get a turn


def add(connection: Connection, task_id: str, depends_on: str, dep_type: DependencyType, now: str) -> bool:
    """Whether it is new. Raises `Fault` where a task is not there, or would wait for itself."""
    if task_id == depends_on:
        raise tasks.refused(f"{task_id} cannot depend on itself")
    for id in (task_id, depends_on):
        tasks.find(connection, id)
    key = (task_id, depends_on, dep_type)
    is_there = "SELECT 1 FROM task_dependency WHERE task_id = ? AND depends_on = ? AND dep_type = ?"
    if connection.execute(is_there, key).fetchone():
        return False
    [count] = connection.execute("SELECT count(*) FROM task_dependency WHERE task_id = ?", (task_id,)).fetchone()
    if count >= MOST_OF_ONE:
        raise tasks.refused(f"{task_id} has {count:,} dependencies already; remove some, or group them under a task")
    if dep_type == "blocks" and waits(connection, depends_on, task_id):
        raise tasks.refused(
            f"{task_id} cannot wait for {depends_on}, which waits for {task_id} already",
            hint=f"get_dependency_tree of {depends_on} shows the tasks between them",
        )
    connection.execute("INSERT INTO task_dependency VALUES (?, ?, ?, ?)", (*key, now))
    return True


# What `get_task` shows of them.


def of_task(connection: Connection, id: str) -> dict[str, Any]:
    """What a task waits for and what waits for it; and what else it was tied to, from either end."""
    shown: dict[str, Any] = {"blocked_by": [], "blocking": []}
    for way, (start, end) in ENDS.items():
        sql = (
            f"SELECT d.dep_type, task.id, task.title, task.status FROM task_dependency d JOIN task ON task.id = d.{end}"
            f" WHERE d.{start} = ? ORDER BY d.dep_type, task.priority, task.created_at, task.id LIMIT ?"
        )
        found = connection.execute(sql, (id, MOST_OF_ONE + 1)).fetchall()
        for dep_type, *row in found[:MOST_OF_ONE]:
            shown.setdefault(_SHOWN_AS[way, dep_type], []).append(tasks.in_line(row))
        if len(found) > MOST_OF_ONE:
            shown["truncated"] = True
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
    now = workspace.now()
    added = await workspace.transact(
        lambda connection: add(connection, given.task_id, given.depends_on, given.dep_type, now), "tasks"
    )
    return {"added": added, **msgspec.structs.asdict(given)}


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

    removed = await workspace.transact(work, "tasks")
    return {"removed": bool(removed), **msgspec.structs.asdict(given), "dep_types": removed}


class GetDependencyTree(msgspec.Struct, forbid_unknown_fields=True):
    task_id: TaskId
    direction: Annotated[
        Direction, Meta(description="`blockers`: what it waits for; `blocking`: what waits for it")
    ] = "both"


async def get_dependency_tree(given: GetDependencyTree, workspace: Workspace, context: ToolContext) -> Object:
    return await workspace.query(lambda connection: tree(connection, given.task_id, given.direction))


def tree(connection: Connection, id: str, direction: Direction) -> dict[str, Any]:
    """A task with `blockers` and `blocking`, each of those with its own in turn. A task that was shown already stands
    there again as `repeated`, with nothing below it. Where something is left out, its task is `truncated`, and so is
    the whole. Raises `Fault` where there is no such task."""
    task = tasks.find(connection, id)
    whole: dict[str, Any] = {name: getattr(task, name) for name in tasks.BRIEF} | {"truncated": False}
    left = MOST_NODES - 1
    for way in ENDS if direction == "both" else (direction,):
        level, shown = {id: whole}, {id}
        whole[way] = []
        for _ in range(DEEPEST):
            edges = set(steps(connection, level, way, left))
            found = _briefs(connection, {end for _, end in edges})
            edges = _in_order([edge for edge in edges if edge[1] in found], list(level), found)
            below: dict[str, dict[str, Any]] = {}
            for start, end in edges[:left]:
                node = dict(found[end])
                level[start].setdefault(way, []).append(node)
                if end in shown:
                    node["repeated"] = True
                else:
                    shown.add(end)
                    below[end] = node
            for start, _ in edges[left:]:
                level[start]["truncated"] = whole["truncated"] = True
            left -= min(left, len(edges))
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


async def check_dependency_cycles(given: CheckDependencyCycles, workspace: Workspace, context: ToolContext) -> Object:
    project = await workspace.project(context)
    found = await workspace.query(lambda connection: cycles(connection, project.id if project else ""))
    return {"has_cycles": bool(found), "cycles": found}


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
