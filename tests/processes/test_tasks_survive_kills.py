"""Whoever is killed while tasks are written: the store opens, what was acknowledged is there, the file is whole.

KILLS says how often; `make faults` kills a hundred times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from toolgate.core.clock import SystemClock
from toolgate.state import backups
from toolgate.state.base import Connection
from toolgate.state.sqlite import FILE, SqliteStore
from toolgate.workspace.jsonl import Reading

KILLS = int(os.environ.get("KILLS", "5"))
AT_ONCE = 100  # lines that one process has told before it is killed, at most

# Makes tasks, and writes the file after each few; says the id of each that is kept, on a line of its own.
WRITER = """
import asyncio, sys
from pathlib import Path
import uvloop
from toolgate.config import Config
from toolgate.core.clock import SystemClock
from toolgate.state.sqlite import SqliteStore
from toolgate.workspace import syncing, tasks
from toolgate.workspace.tasks import Task
from toolgate.workspace.workspace import Workspace

async def main():
    state, folder = map(Path, sys.argv[1:])
    store = SqliteStore(state, SystemClock())
    workspace = Workspace(store, SystemClock(), Config(), folder)
    [project] = workspace.projects.values()

    async def write():
        while True:
            at = workspace.now()
            task = Task(id="", project_id=project.id, title="one", description="x" * 2000, created_at=at, updated_at=at)
            made = await workspace.transact(lambda connection: tasks.insert(connection, task), "tasks")
            print(made.id, flush=True)

    async def export():
        while True:
            await syncing.synced(workspace, project, imports=True, exports=True)

    await asyncio.gather(write(), write(), export())

uvloop.run(main())
"""


@pytest.mark.promise("b.tasks.files")
@pytest.mark.timeout(30 + 10 * KILLS)
def test_who_is_killed_while_writing_tasks_loses_none_and_leaves_a_whole_file(tmp_path: Path) -> None:
    state, folder = tmp_path / "state", tmp_path / "work"
    (folder / ".gobby").mkdir(parents=True)
    (folder / ".gobby" / "project.json").write_text('{"id": "p-1"}')
    file = folder / ".gobby" / "tasks.jsonl"
    dice = random.Random(7)
    told: set[str] = set()
    seen = 0
    for _ in range(KILLS):
        command = [sys.executable, "-W", "error", "-c", WRITER, str(state), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            told |= {writer.stdout.readline().strip() for _ in range(dice.randint(1, AT_ONCE))}
            writer.send_signal(signal.SIGKILL)
            told |= {line.strip() for line in writer.stdout if line.endswith("\n")}
        assert writer.returncode == -signal.SIGKILL
        assert backups.check(state / FILE).problems == []
        kept = set(uvloop.run(ids(state)))
        assert told <= kept
        if file.exists():
            written = file.read_bytes()
            entries = list(Reading().entries(written.splitlines(keepends=True)))
            assert written.endswith(b"\n") and all(json.loads(line) for line in written.splitlines())
            assert {entry.task.id for entry in entries} <= kept and len(entries) >= seen
            seen = len(entries)
    assert seen and len(told) >= KILLS


async def ids(state: Path) -> list[str]:
    store = SqliteStore(state, SystemClock())

    def work(connection: Connection) -> list[str]:
        return [id for [id] in connection.execute("SELECT id FROM task").fetchall()]

    try:
        return await store.query(work)
    finally:
        await store.close()
