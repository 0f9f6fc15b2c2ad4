"""A project's tasks as a file in its folder, for git: exported, imported, and told how it stands.

The rule this file keeps: one process at a time reads and writes a file, and none writes over lines that it has not
read.

What this store has last read or written of a file is noted in the store. The note beside the file is for people: it
travels with clones, in which the store is another.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from toolgate.config import ownership
from toolgate.core import jsonrpc
from toolgate.state.base import Connection
from toolgate.upstreams.inprocess.tools import Object, ToolContext
from toolgate.workspace import comparing, exporting, importing, jsonl, standing, task_file, tasks
from toolgate.workspace.comparing import Progress
from toolgate.workspace.jsonl import Unreadable
from toolgate.workspace.pace import Pace, paced
from toolgate.workspace.projects import FILE, Project
from toolgate.workspace.standing import Mark
from toolgate.workspace.task_file import TaskFile
from toolgate.workspace.tools import Tool
from toolgate.workspace.workspace import Workspace

SPACE = "task files"  # of the store: what was last read or written of each
NOTHING = hashlib.sha256().hexdigest()  # where there is no file
LONGEST_NOTE = 64 * 1024  # bytes of the note beside a file


def _silent(done: float, total: float | None = None, message: str = "") -> None:
    pass


class _Known(msgspec.Struct):
    """What this store knows of a file: the hash of what it has last read or written of it, and by which mark its tasks
    were in it as they are; why that went wrong since, if it did. `elsewhere`: ids of tasks that stand in the file only,
    since tasks of other projects have them here."""

    hash: str = ""
    mark: Mark = ()
    exported: str = ""
    problem: str = ""
    elsewhere: list[str] = []


class _Note(msgspec.Struct):
    """`tasks_meta.json`: the SHA-256 of the file as it was written, and when."""

    content_hash: str
    last_exported: str


async def synced(
    workspace: Workspace, project: Project, imports: bool, exports: bool, tell: Progress = _silent
) -> dict[str, Any]:
    """What is asked for, done, and told by direction. An export imports first what others have written into the file
    since. Raises `Fault`."""
    async with _opened(workspace, project) as file:
        known = _known(workspace, file)
        try:
            in_thread = _reporting(workspace, project, tell)
            found = await _hash_of(file)
            done: dict[str, Any] = {}
            if imports and not found:
                done["import"] = {"tasks": 0, "skipped": "there is no file"}
            elif imports or found not in ("", known.hash):
                read = await importing.imported(workspace, file, in_thread)
                known.hash, known.mark, known.elsewhere = read.hash, read.mark or known.mark, read.elsewhere
                done["import"] = msgspec.to_builtins(read.imported)
            if exports:
                done["export"] = await _export(workspace, file, known, in_thread)
            known.problem = ""
        except Unreadable as error:
            known.problem = f"{file.path}: {error}"
            raise
        except OSError as error:
            known.problem = task_file.unusable(file.path, error).message
            raise
        finally:
            workspace.syncs.pop(project.folder, None)
            await workspace.store.put(SPACE, file.key, jsonrpc.encode(known))
    return {"file": str(file.path), **done}


async def automatically(workspace: Workspace, project: Project) -> None:
    """Import what others have written into the file; and write what has changed here, where anything has. Raises
    `Fault`."""
    async with _opened(workspace, project) as file:
        known = _known(workspace, file)
        found = await _hash_of(file)
        mark = await workspace.query(lambda connection: standing.mark(connection, project.id))
        is_new, is_stale = found not in ("", known.hash), mark != known.mark and (found or mark[0])
    if not is_new and not is_stale:
        return
    done = await synced(workspace, project, imports=is_new, exports=False)
    if is_stale and not (is_new and not done["import"].get("missing")):
        await synced(workspace, project, imports=False, exports=True)


@asynccontextmanager
async def _opened(workspace: Workspace, project: Project) -> AsyncGenerator[TaskFile]:
    """In the order in which this process asks; another process is waited for as long as `task_file.opened` says."""
    turn = workspace.turns_at_files.setdefault(project.folder, asyncio.Lock())
    async with turn, task_file.opened(project, Path(workspace.config.jsonl), workspace.clock, workspace.files) as file:
        yield file


async def status(workspace: Workspace, project: Project) -> dict[str, Any]:
    """How a file stands to the tasks: `synced` where it is what an export would write now."""
    async with _opened(workspace, project) as file:
        known = _known(workspace, file)
        note = await file.in_thread(partial(_read_note, file))
        found, wanted, problem = "", "", known.problem
        try:
            found = await _hash_of(file)
            wanted = await paced(
                lambda pace: workspace.query(partial(exporting.hash_of, project=project.id, pace=pace))
            )
            await paced(lambda pace: file.in_thread(partial(_look_for_markers, file, pace), pace))
        except Unreadable as error:
            problem = f"{file.path}: {error}"
    is_synced = (found or NOTHING) == wanted and not problem
    word = "unusable" if problem else "synced" if is_synced else "out_of_date" if found else "never_exported"
    said = {"status": word, "last_exported": note and note.last_exported, "hash": found or None, "synced": is_synced}
    return {**said, "file": str(file.path), **({"problem": problem} if problem else {})}


async def _hash_of(file: TaskFile) -> str:
    return await paced(lambda pace: file.in_thread(partial(task_file.hash_of, file, pace), pace))


def _known(workspace: Workspace, file: TaskFile) -> _Known:
    try:
        return msgspec.json.decode(workspace.store.get(SPACE, file.key) or b"{}", type=_Known)
    except jsonrpc.UNREADABLE:
        return _Known()


def _reporting(workspace: Workspace, project: Project, tell: Progress) -> Progress:
    """The same from a thread, and through all that is done one after another: what is told only grows. What is being
    done stands in `workspace.syncs` meanwhile."""
    loop = asyncio.get_running_loop()
    before: float = 0
    latest: float = 0
    doing = ""

    def report(done: float, total: float | None = None, message: str = "") -> None:
        nonlocal before, latest, doing
        if message != doing:
            before, doing = before + latest, message
        latest = done
        workspace.syncs[project.folder] = f"{done:,} {'' if total is None else f'of {total:,} '}{message}"
        loop.call_soon_threadsafe(tell, before + done, None if total is None else before + total, message)

    return report


# In threads: the file.


def _look_for_markers(file: TaskFile, pace: Pace) -> None:
    """Raises `Unreadable`."""
    with contextlib.suppress(FileNotFoundError), file.read() as opened:
        jsonl.look_for_markers(pace.through(jsonl.lines(opened, hashlib.sha256())))


def _read_note(file: TaskFile) -> _Note | None:
    try:
        with ownership.open_in(file.folder, file.note) as opened:
            return msgspec.json.decode(opened.read(LONGEST_NOTE), type=_Note)
    except (OSError, *jsonrpc.UNREADABLE):
        return None


# Export.


async def _export(workspace: Workspace, file: TaskFile, known: _Known, tell: Progress) -> dict[str, Any]:
    """Write the file, where what stands there is something else. What it says is in `known` then."""

    if known.elsewhere:
        known.problem = (
            f"{file.path} was not written: tasks of other projects have the ids of tasks in it, which would be lost "
            f"({tasks.listed(known.elsewhere)})"
        )
        raise tasks.refused(
            known.problem, "delete the tasks of the other project, or give those in the file other ids; then sync again"
        )

    def work(connection: Connection, pace: Pace) -> tuple[str, int, Mark, bool]:
        mark, content = standing.mark(connection, file.project.id), hashlib.sha256()
        before = task_file.hash_of(file, pace)

        def is_another() -> bool:
            if task_file.hash_of(file, pace) != before:
                raise _Overtaken
            return content.hexdigest() != (before or NOTHING)

        with task_file.replacing(file.folder, file.path.name, is_another) as fresh:
            for number, line in enumerate(exporting.lines(connection, file.project.id, pace), 1):
                fresh.write(line)
                content.update(line)
                if number % comparing.LINES == 0:
                    tell(number, mark[0], "exported")
        found = content.hexdigest()
        return found, mark[0], mark, found != (before or NOTHING)

    try:
        known.hash, count, known.mark, is_written = await paced(lambda pace: workspace.query(partial(work, pace=pace)))
    except _Overtaken:
        raise tasks.refused(f"{file.path} was changed meanwhile: sync it again") from None
    if is_written:
        known.exported = workspace.now()
        note = _Note(known.hash, known.exported)
        await file.in_thread(partial(_write_note, file, note))
    return {"tasks": count, "written": is_written, "hash": known.hash, "last_exported": known.exported or None}


class _Overtaken(Exception):
    """Somebody else has written the file."""


def _write_note(file: TaskFile, note: _Note) -> None:
    with task_file.replacing(file.folder, file.note.name) as fresh:
        fresh.write(jsonrpc.encode(note) + b"\n")


# The tools.


class SyncTasks(msgspec.Struct, forbid_unknown_fields=True):
    direction: Annotated[
        Literal["import", "export", "both"],
        Meta(description="`import` reads the file, `export` writes it; `both` (default) does that in this order"),
    ] = "both"


async def sync_tasks(given: SyncTasks, workspace: Workspace, context: ToolContext) -> Object:
    project = await workspace.project(context)
    if not project:
        raise tasks.refused(
            "This call is in no project: its tasks are in the store only, without a file",
            f'make one: {FILE} with {{"id": "...", "name": "..."}} in the folder of the project',
        )
    imports, exports = given.direction != "export", given.direction != "import"
    return {"direction": given.direction, **await synced(workspace, project, imports, exports, context.progress)}


class GetSyncStatus(msgspec.Struct, forbid_unknown_fields=True):
    pass


async def get_sync_status(given: GetSyncStatus, workspace: Workspace, context: ToolContext) -> Object:
    project = await workspace.project(context)
    if not project:
        return {"status": "no_project", "last_exported": None, "hash": None, "synced": False}
    return await status(workspace, project)


TOOLS = (
    Tool(
        "sync_tasks",
        "Import/export tasks to JSONL: the project's file for git. Nothing here is lost by it; of two versions of a "
        "task the one that was changed last is kept.",
        SyncTasks,
        sync_tasks,
        changes=True,
    ),
    Tool(
        "get_sync_status",
        "Get sync status: whether the project's file of tasks is up to date.",
        GetSyncStatus,
        get_sync_status,
    ),
)
