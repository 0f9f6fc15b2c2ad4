"""A folder that somebody names may lie on a disk that does not answer: nobody waits for it long, nor at its side."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from processes.ground import real

from toolgate.config import Config, ownership
from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.state.memory import MemoryStore
from toolgate.workspace import folders as rooms
from toolgate.workspace import syncing
from toolgate.workspace.folders import Folders
from toolgate.workspace.pace import Pace
from toolgate.workspace.projects import Project
from toolgate.workspace.workspace import Workspace

HUNG, FINE = Path("/hung"), Path("/fine")
ANN, BOB = Principal("client:ann", is_here=True), Principal("client:bob", is_here=True)


class Disk:
    """It `answers` when that is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[Path] = []

    def look(self, folder: Path, found: str = "found") -> str:
        self.asked.append(folder)
        assert self.answers.wait(60)
        return found


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setattr(rooms, "PATIENCE", 0.2)
    disk = Disk()
    yield disk
    disk.answers.set()


async def refusal(work: object) -> str:
    with pytest.raises(Fault) as caught:
        await work  # type: ignore[misc]
    assert caught.value.code == "TIMEOUT"
    return caught.value.message


async def answered(folders: Folders, folder: Path) -> None:
    """Until nothing is under way any more in a folder."""
    over = asyncio.Event()
    folders.afterwards(folder, over.set)
    async with asyncio.timeout(30):
        await over.wait()


@real
async def test_who_names_such_a_folder_is_told_which_it_is_and_others_go_on(disk: Disk) -> None:
    folders = Folders(SystemClock())
    first, second = Path("/hung/1"), Path("/hung/2")
    both = [folders.in_thread("ann", each, partial(disk.look, each)) for each in (first, second)]
    said = await asyncio.gather(*map(refusal, both))
    assert said == [f"The disk of {each} does not answer" for each in (first, second)]
    assert await refusal(folders.in_thread("ann", first, partial(disk.look, first))) == said[0]
    third = await refusal(folders.in_thread("ann", FINE, lambda: 1))
    assert third == "The disk of /hung/1 and /hung/2 does not answer", "what keeps it from its turn"
    assert await folders.in_thread("bob", FINE, lambda: 1) == 1
    assert disk.asked == [first, second], "nobody asks it again"
    disk.answers.set()
    for each in (first, second):
        await answered(folders, each)
    assert await folders.in_thread("ann", first, partial(disk.look, first)) == "found"


@real
async def test_what_comes_of_it_when_nobody_waits_any_more_is_let_go(disk: Disk) -> None:
    folders, unwanted, closed = Folders(SystemClock()), list[str](), list[str]()
    await refusal(folders.in_thread("ann", HUNG, partial(disk.look, HUNG, "a file"), unwanted=unwanted.append))
    folders.afterwards(HUNG, lambda: closed.append("what it uses"))
    assert (unwanted, closed) == ([], [])
    disk.answers.set()
    await answered(folders, HUNG)
    assert (unwanted, closed) == (["a file"], ["what it uses"])


@real
async def test_who_goes_away_leaves_the_turn_to_the_thread(disk: Disk) -> None:
    folders, unwanted = Folders(SystemClock()), list[str]()
    gone = asyncio.ensure_future(
        folders.in_thread("ann", HUNG, partial(disk.look, HUNG, "a file"), unwanted=unwanted.append)
    )
    async with asyncio.timeout(30):
        while not disk.asked:
            await asyncio.sleep(0.001)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    disk.answers.set()
    await answered(folders, HUNG)
    assert unwanted == ["a file"]
    assert await folders.in_thread("ann", HUNG, lambda: 1) == 1


@real
async def test_work_that_goes_on_may_take_long(disk: Disk) -> None:
    def work(pace: Pace) -> str:
        for _ in range(20):
            pace.step()
            disk.answers.wait(rooms.PATIENCE / 5)
        return "all"

    pace = Pace()
    assert await Folders(SystemClock()).in_thread("ann", FINE, partial(work, pace), lambda: pace.steps) == "all"


@real
async def test_what_fails_there_is_raised_as_it_is() -> None:
    def work() -> None:
        raise TimeoutError(110, "Connection timed out")  # what a disk of another machine may say

    with pytest.raises(TimeoutError, match="timed out"):
        await Folders(SystemClock()).in_thread("ann", FINE, work)


@real
async def test_a_session_in_such_a_folder_is_refused_and_all_that_needs_threads_goes_on(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read = ownership.open_anyones

    def opened(path: Path, flags: int = 0) -> object:
        if path.is_relative_to(HUNG):
            disk.look(path)
        return read(path, flags)

    monkeypatch.setattr(ownership, "open_anyones", opened)
    clock = SystemClock()
    workspace = Workspace(MemoryStore(clock), clock, Config(), tmp_path)
    named = [workspace.project_id_and_place(f"/hung/{number}", ANN) for number in range(20)]
    said = await asyncio.gather(*map(refusal, named))
    assert all("/hung/" in each and "does not answer" in each for each in said)
    async with asyncio.timeout(30):
        await asyncio.gather(*(asyncio.to_thread(os.getpid) for _ in range(20)))
        assert await workspace.project_id_and_place("", ANN) == ("", "")
        assert (await workspace.project_id_and_place(str(tmp_path), ANN))[1] == str(tmp_path)
        assert (await workspace.project_id_and_place(str(tmp_path / "a"), BOB))[1] == str(tmp_path / "a")


@real
async def test_a_file_of_tasks_on_such_a_disk_stops_nobody(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = [Project(name, name, tmp_path / name) for name in ("hung", "fine")]
    for each in both:
        (each.folder / ".gobby").mkdir(parents=True)
        (each.folder / ".gobby/project.json").write_text(json.dumps({"id": each.id}))
    hung, fine = both
    opening = ownership.open_folder

    def opened(top: Path, within: tuple[str, ...]) -> int:
        if top == hung.folder:
            disk.look(top)
        return opening(top, within)

    monkeypatch.setattr(ownership, "open_folder", opened)
    clock = SystemClock()
    workspace = Workspace(MemoryStore(clock), clock, Config(), tmp_path)
    before = len(os.listdir("/dev/fd"))
    for work in (syncing.automatically, syncing.status):
        assert str(hung.folder) in await refusal(work(workspace, hung))
        await work(workspace, fine)
    disk.answers.set()
    await answered(workspace.files, hung.folder)
    assert (await syncing.status(workspace, hung))["status"] == "synced"
    assert len(os.listdir("/dev/fd")) == before
