"""A task deleted with all that is below it, in pieces.

The rules this file keeps: others write between two pieces; and after each of them, whatever ends us there, every task
that is left has its parent, and the same deletion, begun again, does what is left. What others make or move meanwhile
is as if they had done so before: what is below the task by then is deleted, and what is no longer stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from toolgate.core.concurrency import SOON
from toolgate.core.fault import Fault
from toolgate.state import letters
from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import ToolContext
from toolgate.workspace import tasks
from toolgate.workspace.workspace import Workspace

MOST = 10_000  # tasks, by one call
AT_ONCE = 20  # tasks in one transaction
PAUSE = 0.002  # seconds from one piece to the next, in which other processes write
TRIES = 5  # to find nothing below the task any more, while others make tasks there


async def delete(workspace: Workspace, context: ToolContext, id: str, cascade: bool) -> int:
    """How many tasks are gone. Raises `Fault`."""
    whose, count = context.client.principal.counted_as, 0
    try:
        for _ in range(TRIES):
            wanted = await workspace.query(partial(_with_all_below, id=id, cascade=cascade), whose)
            for at in range(0, len(wanted), AT_ONCE):
                if at:
                    context.progress(count, count + len(wanted) - at, "deleted")
                    await workspace.clock.sleep(PAUSE)
                work = partial(_deleted, wanted=wanted[at : at + AT_ONCE], top=id)
                gone = await workspace.transact(work, "tasks", whose=whose)
                count += len(gone)
                if id in gone:
                    return count
        message = f"Others make tasks below {id} again and again while it is deleted"
        raise Fault("RATE_LIMITED", message, reach="not_sent", hint="try again", extra={"retryAfter": SOON})
    except Fault as fault:
        if not count:
            raise
        if fault.code == "RESOURCE_NOT_FOUND":  # another has deleted the rest
            return count
        message = f"{fault.message}. {count:,} of the tasks below it are deleted"
        raise Fault(fault.code, message, reach="executed", hint=fault.hint, extra=fault.extra) from None


def _with_all_below(connection: Connection, id: str, cascade: bool) -> list[str]:
    """Each behind those that are below it. Raises `Fault` where that is not wanted, or they are too many."""
    tasks.find(connection, id)
    children = tasks.children(connection, id)
    if children and not cascade:
        raise tasks.refused(
            f"{id} has children: {tasks.listed(children)}", hint="delete them first, or pass `cascade: true`"
        )
    found, level = {id: None}, [id]
    while level:
        below: list[str] = []
        for chunk in tasks.chunks(level):
            sql = f"SELECT id FROM task WHERE parent_task_id IN ({', '.join('?' * len(chunk))}) LIMIT ?"
            below += [each for [each] in connection.execute(sql, (*chunk, MOST + 1)).fetchall()]
        level = [each for each in below if each not in found]
        found |= dict.fromkeys(level)
        if len(found) > MOST:
            raise tasks.refused(f"{id} has more than {MOST:,} tasks below it; delete its children one by one")
    return [*reversed(found)]


def _deleted(connection: Connection, wanted: Sequence[str], top: str) -> list[str]:
    """Those of these that are below `top`, or it, and have nothing below them any more."""
    is_below = {top: bool(connection.execute("SELECT 1 FROM task WHERE id = ?", (top,)).fetchone())}
    gone: list[str] = []
    for id in wanted:
        if _is_below(connection, id, is_below) and not connection.execute(_HAS_CHILD, (id,)).fetchone():
            gone.append(id)
            connection.execute("DELETE FROM task WHERE id = ?", (id,))
    for table, column in _TIES:
        connection.execute(f"DELETE FROM {table} WHERE {column} IN ({', '.join('?' * len(gone))})", gone)
    letters.forget(connection, gone)
    return gone


_HAS_CHILD = "SELECT 1 FROM task WHERE parent_task_id = ? LIMIT 1"
_TIES = (("task_dependency", "task_id"), ("task_dependency", "depends_on"), ("task_session", "task_id"))


def _is_below(connection: Connection, id: str, known: dict[str, bool]) -> bool:
    """Whether a task is one of those that are `known` to be below, or below one of them; what was found of those
    between is known then."""
    path: dict[str, None] = {}
    above: str | None = id
    while above is not None and above not in known and above not in path and len(path) <= MOST:
        path[above] = None
        row = connection.execute("SELECT parent_task_id FROM task WHERE id = ?", (above,)).fetchone()
        above = row[0] if row else None
    is_so = above is not None and known.get(above, False)
    known |= dict.fromkeys(path, is_so)
    return is_so
