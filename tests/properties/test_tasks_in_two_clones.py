"""Two people change the tasks of one project in two clones, and git merges: both have the same then, or are told why.

Whatever they do, neither has a task that waits for itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from msgspec import Raw

from toolgate.config import Config
from toolgate.core import mcp
from toolgate.core.clock import SystemClock
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.state.base import Connection
from toolgate.state.memory import MemoryStore
from toolgate.workspace import dependencies, syncing
from toolgate.workspace.services import internal_servers
from toolgate.workspace.tasks import FIELDS, Task, put, row_of
from toolgate.workspace.workspace import Workspace

IDS = [f"gt-{number:06x}" for number in range(6)]
AT = "2026-11-24T08:30:00.000000Z"
NOBODY: Exchange = type("Nobody", (), {})()  # nothing is asked here

# Calls of the tools, in one clone or the other; `None` stands for the id of the task that was made last.
ids = some.sampled_from([*IDS, None])
changes = some.fixed_dictionaries(
    {},
    optional={
        "title": some.text("ab<=> \n\u2028é", max_size=8).map(lambda text: f"t{text}"),
        "status": some.sampled_from(("open", "in_progress", "closed", "failed", "escalated")),
        "labels": some.lists(some.sampled_from(("x", "y")), max_size=2),
        "parent_task_id": ids,
        "priority": some.integers(0, 3),
    },
)
calls = some.one_of(
    some.tuples(some.just("update_task"), changes, ids),
    some.tuples(some.just("add_dependency"), some.fixed_dictionaries({"depends_on": ids}), ids),
    some.tuples(some.just("remove_dependency"), some.fixed_dictionaries({"depends_on": ids}), ids),
    some.tuples(some.just("close_task"), some.just({"reason": "obsolete"}), ids),
    some.tuples(some.just("delete_task"), some.fixed_dictionaries({"cascade": some.booleans()}), ids),
    some.tuples(some.just("create_task"), some.fixed_dictionaries({"parent_task_id": ids}), ids),
)
edits = some.lists(some.tuples(some.integers(0, 1), calls), min_size=1, max_size=15)


class Clone:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / ".gobby" / "tasks.jsonl"
        self.workspace = Workspace(MemoryStore(SystemClock()), SystemClock(), Config(), folder)
        [self.project] = self.workspace.projects.values()
        self.tools = internal_servers(self.workspace)["gobby-tasks"]
        self.made = IDS[0]
        self.told: list[str] = []

    def git(self, *arguments: str) -> int:
        plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        named = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.folder), *named, *arguments]
        return subprocess.run(command, env=plain | alone, capture_output=True).returncode

    async def edit(self, tool: str, arguments: dict[str, Any], id: str | None) -> None:
        given = {"title": "new", "blocks": [id]} if tool == "create_task" else {"task_id": id}
        whole = {name: self.made if value is None else value for name, value in {**arguments, **given}.items()}
        whole |= {"blocks": [id or self.made]} if tool == "create_task" else {}
        call = Call(mcp.CALL, tool, Client(), Raw(json.dumps(whole).encode()), "gobby-tasks")
        try:
            done = await self.tools.answer(call, NOBODY)
            self.made = done["structuredContent"]["id"] if tool == "create_task" else self.made
        except Fault as fault:
            assert fault.code in ("INVALID_ARGS", "RESOURCE_NOT_FOUND")  # it is gone, or would wait for itself

    async def sync(self) -> bool:
        """Whether it could be done."""
        try:
            done = await syncing.synced(self.workspace, self.project, imports=True, exports=True)
        except Fault as fault:
            self.told.append(fault.message)
            return False
        self.told += done["import"].get("refused", [])
        return True

    async def has_circles(self) -> bool:
        return bool(await self.workspace.query(lambda connection: dependencies.cycles(connection, self.project.id)))


async def play(folder: Path, edits: list[Any]) -> None:
    origin = folder / "a"
    (origin / ".gobby").mkdir(parents=True)
    (origin / ".gobby" / "project.json").write_text('{"id": "p-1"}')
    begun = [{"id": id, "title": id, "created_at": AT} for id in IDS]
    (origin / ".gobby" / "tasks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in begun))
    one = Clone(origin)
    assert await one.sync()
    assert not one.git("init", "-q", "-b", "main") and not one.git("add", ".") and not one.git("commit", "-qm", "0")
    subprocess.run(["git", "clone", "-q", str(origin), str(folder / "b")], check=True, capture_output=True)
    other = Clone(folder / "b")
    assert await other.sync()
    for who, call in edits:
        await (one, other)[who].edit(*call)
    for each in (one, other):
        await each.sync()
        each.git("add", ".gobby/tasks.jsonl")
        each.git("commit", "-qm", "1")
    if other.git("pull", "-q", "--no-rebase", "--no-edit"):
        before = other.file.read_bytes()
        assert not await other.sync() and "git conflict marker" in other.told[-1]
        assert other.file.read_bytes() == before
        lines = before.splitlines(keepends=True)  # a person keeps both sides
        other.file.write_bytes(b"".join(line for line in lines if not line.startswith((b"<<<", b"===", b">>>"))))
    assert await other.sync()
    other.git("add", ".gobby/tasks.jsonl")
    other.git("commit", "-qm", "2")
    assert one.git("pull", "-q", "--no-rebase", "--no-edit", str(folder / "b"), "main") == 0
    assert await one.sync() and await one.sync()
    assert not await one.has_circles() and not await other.has_circles()
    is_told = any("itself" in each for each in one.told + other.told)
    assert is_told or one.file.read_bytes() == other.file.read_bytes()


BOTH_WAIT = ("add_dependency", {"depends_on": IDS[1]}, IDS[0])


@given(edits)
@example([(0, BOTH_WAIT), (1, BOTH_WAIT)])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_two_have_changed_is_the_same_for_both_after_a_merge_or_they_are_told(edits: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(play(Path(folder), edits))


text = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
maybe, number = some.none() | text, some.integers(-(2**31), 2**31 - 1)
times = some.datetimes(max_value=datetime(9998, 12, 31)).map(lambda at: at.isoformat(timespec="microseconds") + "Z")
fields = {
    "id": some.sampled_from(IDS),
    "project_id": some.just("p-1"),
    "title": text,
    "status": some.sampled_from(("open", "in_progress", "closed", "failed", "escalated")),
    "priority": some.integers(0, 3),
    "type": some.sampled_from(("task", "bug", "feature", "epic", "chore")),
    "created_at": times,
    "updated_at": times,
    "closed_at": some.none() | times,
    "escalated_at": some.none() | times,
    "labels": some.lists(text, max_size=3),
    "commits": some.lists(text, max_size=3),
    "complexity_score": some.none() | number,
    "estimated_subtasks": some.none() | number,
    "sequence_order": some.none() | number,
    "validation_fail_count": number,
    "use_external_validator": some.booleans(),
    "parent_task_id": some.none() | some.sampled_from(IDS),
}
tasks = some.lists(
    some.builds(Task, **{name: fields.get(name, maybe) for name in FIELDS}), min_size=1, unique_by=lambda task: task.id
)
# From the younger to the older: no circle.
waits = some.dictionaries(
    some.tuples(
        some.sampled_from(IDS), some.sampled_from(IDS), some.sampled_from(("blocks", "discovered-from", "related"))
    ).filter(lambda key: key[0] > key[1]),
    times,
)


def test_all_fields_are_drawn() -> None:
    assert len(FIELDS) == 33 and fields.keys() <= {*FIELDS}


@given(tasks, waits)
@settings(max_examples=100, deadline=None)
def test_a_store_that_imports_what_another_has_exported_has_the_same(
    given: list[Task], waits: dict[tuple[str, str, str], str]
) -> None:
    async def work(folder: Path) -> None:
        (folder / ".gobby").mkdir()
        (folder / ".gobby" / "project.json").write_text('{"id": "p-1"}')
        one, other = Clone(folder), Clone(folder)
        for task in given:
            if task.parent_task_id and task.parent_task_id >= task.id:
                task.parent_task_id = None

        def fill(connection: Connection) -> None:
            put(connection, [row_of(task) for task in given])
            known = {task.id for task in given}
            rows = [(*key, at) for key, at in waits.items() if key[0] in known]
            connection.executemany("INSERT INTO task_dependency VALUES (?, ?, ?, ?)", rows)

        await one.workspace.transact(fill)
        await one.sync()
        written = one.file.read_bytes()
        await other.sync()
        assert await everything(other) == await everything(one)
        assert other.file.read_bytes() == written

    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(work(Path(folder)))


async def everything(clone: Clone) -> list[Any]:
    def work(connection: Connection) -> list[Any]:
        tables = ("task", "task_dependency")
        return [sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables]

    return await clone.workspace.query(work)
