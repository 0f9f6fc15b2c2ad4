"""A project's file is kept up to date by itself, a while after its tasks have changed; another one is read."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inmemory import THE_SOCKET, Response, Visitor, gateway
from virtualtime import FakeClock

from toolgate.app import App
from toolgate.config import Config, Tasks
from toolgate.state.memory import MemoryStore
from toolgate.workspace import syncing
from toolgate.workspace.following import AGAIN, PAUSE, TaskFiles
from toolgate.workspace.projects import Project
from toolgate.workspace.workspace import MOST_PROJECTS, Workspace

AT = "2026-11-24T08:30:00.000000Z"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def titles(here: Path) -> list[str]:
    return [json.loads(line)["title"] for line in (here / ".gobby" / "tasks.jsonl").read_text().splitlines()]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """As another process has it."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


async def create(visitor: Visitor, title: str) -> None:
    await visitor.ask_modern("tools/call", name="gobby-tasks__create_task", arguments={"title": title})


async def listed(visitor: Visitor) -> list[str]:
    answer = await visitor.ask_modern("tools/call", name="gobby-tasks__list_tasks", arguments={})
    return [task["title"] for task in answer.result["structuredContent"]["tasks"]]


async def test_many_changes_make_one_writing_a_while_after_the_first(here: Path) -> None:
    async with gateway() as app:
        visitor, file = Visitor(app), here / ".gobby" / "tasks.jsonl"
        await create(visitor, "one")
        await app.clock.sleep(1)
        assert not file.exists()
        await create(visitor, "two")
        await app.clock.sleep(PAUSE)
        assert sorted(titles(here)) == ["one", "two"]
        before = file.stat().st_mtime_ns
        await app.clock.sleep(100)
        assert file.stat().st_mtime_ns == before


async def test_what_is_not_written_at_the_end_is_written_then(here: Path) -> None:
    async with gateway() as app:
        await create(Visitor(app), "one")
    assert titles(here) == ["one"]


async def test_at_the_start_a_file_is_read_that_others_have_written(here: Path) -> None:
    store = MemoryStore(FakeClock())
    async with gateway(store=store) as app:
        await create(Visitor(app), "one")
    line = {"id": "gt-1", "title": "theirs", "created_at": AT}
    with open(here / ".gobby" / "tasks.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    async with gateway(store=store) as app:
        await app.clock.sleep(0.1)
        assert sorted(await listed(Visitor(app))) == ["one", "theirs"]


async def test_where_it_is_turned_off_nothing_is_read_or_written(here: Path) -> None:
    (here / ".gobby" / "tasks.jsonl").write_text(json.dumps({"id": "gt-1", "title": "theirs", "created_at": AT}))
    async with gateway(config=Config(tasks=Tasks(sync=False))) as app:
        await create(Visitor(app), "one")
        await app.clock.sleep(2 * PAUSE)
        assert await listed(Visitor(app)) == ["one"]
    assert titles(here) == ["theirs"]


async def test_what_is_wrong_with_a_file_is_said_once_and_stops_nobody(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = here / ".gobby" / "tasks.jsonl"
    file.write_text("<<<<<<< ours\n")
    with caplog.at_level(logging.WARNING, "toolgate.workspace"):
        async with gateway() as app:
            for title in ("one", "two"):
                await create(Visitor(app), title)
                await app.clock.sleep(2 * PAUSE)
            assert file.read_text() == "<<<<<<< ours\n"
            [record] = caplog.records
            assert "tasks.jsonl: line 1: git conflict marker" in record.getMessage()
            file.write_text("")
            await create(Visitor(app), "three")
            await app.clock.sleep(2 * PAUSE)
            assert len(titles(here)) == 3


async def test_what_could_not_be_written_since_the_file_was_locked_is_written_when_it_is_free(here: Path) -> None:
    async with gateway() as app:
        await app.clock.sleep(1)
        with locked(here / ".gobby"):
            await create(Visitor(app), "the last one of the day")
            await app.clock.sleep(4 * PAUSE)
            assert not (here / ".gobby" / "tasks.jsonl").exists()
        await app.clock.sleep(AGAIN + 2 * PAUSE)
        assert titles(here) == ["the last one of the day"]


async def test_who_looks_at_a_file_without_end_keeps_no_other_of_the_gateway_from_it(here: Path) -> None:
    workspace = Workspace(MemoryStore(FakeClock()), FakeClock(), Config(), here)
    [project] = workspace.projects.values()
    done: list[int] = []

    async def look(number: int) -> None:
        async with syncing._opened(workspace, project):
            await workspace.clock.sleep(10)
            done.append(number)

    await asyncio.gather(*map(look, range(5)))
    assert done == [0, 1, 2, 3, 4] and not workspace.turns_at_files


async def test_without_a_project_nothing_is_written(here: Path) -> None:
    (here / ".gobby" / "project.json").unlink()
    async with gateway() as app:
        await create(Visitor(app), "one")
        await app.clock.sleep(2 * PAUSE)
    assert not (here / ".gobby" / "tasks.jsonl").exists()


async def test_two_gateways_of_one_folder_write_the_same(here: Path) -> None:
    store = MemoryStore(FakeClock())
    async with gateway(store=store) as one, gateway(store=store) as other:
        await asyncio.gather(*(create(Visitor(app), f"{n}") for n in range(10) for app in (one, other)))
        await one.clock.sleep(3 * PAUSE)
        assert len(titles(here)) == 20
        assert len(await listed(Visitor(other))) == 20


async def test_a_command_says_in_which_folder_it_is(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Which only the operator may: for others a path means nothing."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / ".gobby").mkdir()
    (elsewhere / ".gobby" / "project.json").write_text('{"id": "p-2"}')
    asked: dict[str, Any] = {"tool": "gobby-tasks__create_task", "arguments": {"title": "there"}}

    async def call(app: App, folder: str) -> Response:
        body = json.dumps(asked | {"folder": folder}).encode()
        return await Visitor(app).begin("POST", body, path="/admin/call", client=THE_SOCKET).response()

    async with gateway() as app:
        answer = await call(app, str(elsewhere))
        assert json.loads(answer.body)["result"]["structuredContent"]["project_id"] == "p-2"
        await app.clock.sleep(2 * PAUSE)
        assert titles(elsewhere) == ["there"]
        assert not (here / ".gobby" / "tasks.jsonl").exists()
        assert (await call(app, "below")).status == 400


async def test_the_projects_that_calls_were_in_last_are_followed_however_many_there_were(tmp_path: Path) -> None:
    clock, done = FakeClock(), list[str]()
    workspace = Workspace(MemoryStore(clock), clock, Config(), tmp_path)

    async def sync(_: Workspace, project: Project) -> None:
        done.append(project.id)

    files = TaskFiles(workspace, sync)
    follows = asyncio.ensure_future(files.follow())
    for number in range(MOST_PROJECTS + 1):
        workspace.note(Project(f"p{number}", "", tmp_path / str(number)))
        workspace.note(Project("p0", "", tmp_path / "0"))  # all the while somebody works in it
    await clock.advance(2 * PAUSE)
    assert {f"p{number}" for number in range(MOST_PROJECTS + 1)} <= set(done), "each is written once more"
    assert len(workspace.projects) == MOST_PROJECTS
    assert tmp_path / "0" in workspace.projects and tmp_path / "1" not in workspace.projects
    workspace.note(Project("another", "", tmp_path / "0"))
    await clock.advance(2 * PAUSE)
    assert done[-1] == "another"
    follows.cancel()
    await asyncio.gather(follows, return_exceptions=True)
