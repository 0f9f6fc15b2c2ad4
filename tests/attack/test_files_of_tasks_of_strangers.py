"""A cloned repository brings its own file of tasks: it wins nothing for ever, loses nothing of others, and costs what
it is allowed to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from workroom import Workroom

from toolgate.workspace import jsonl, syncing, tasks
from toolgate.workspace.projects import FILE, Project, project_of

SINCE = "2026-01-01T00:00:00.000000Z"


def _clone(folder: Path, id: str, *lines: dict[str, Any]) -> Path:
    (folder / FILE).parent.mkdir(parents=True)
    (folder / FILE).write_text(json.dumps({"id": id}))
    _file(folder).write_text("".join(f"{json.dumps({'title': 'x', 'created_at': SINCE, **each})}\n" for each in lines))
    return folder


def _file(folder: Path) -> Path:
    return folder / ".gobby" / "tasks.jsonl"


def _project(folder: Path) -> Project:
    found = project_of(folder)
    assert found
    return found


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59.999999Z",
        "9999-99-99T99:99:99.999999Z",
        "٩٩٩٩-12-31T23:59:59.999999Z",
        "9999-01-01",
        "9998-12-31T23:59:59-12:00",
    ],
)
@pytest.mark.parametrize("field", ["updated_at", "created_at", "closed_at"])
async def test_no_time_of_a_file_is_one_that_no_change_can_follow(tmp_path: Path, time: str, field: str) -> None:
    room = Workroom(_clone(tmp_path / "clone", "p", {"id": "gt-1", field: time}))

    fault = await room.refused("sync_tasks", direction="import")

    assert f"line 1: `{field}` is not a time" in fault.message


async def test_a_change_here_is_kept_over_the_latest_time_that_a_file_can_have(tmp_path: Path) -> None:
    latest = "9998-12-31T23:59:59.999999Z"
    room = Workroom(_clone(tmp_path / "clone", "p", {"id": "gt-1", "title": "theirs", "updated_at": latest}))
    await room.do("sync_tasks", direction="import")

    await room.do("update_task", task_id="gt-1", title="ours")
    await room.do("sync_tasks", direction="import")

    assert (await room.do("get_task", task_id="gt-1"))["title"] == "ours"


@pytest.mark.parametrize("has_changed", [True, False])
async def test_tasks_whose_ids_a_clone_of_another_project_took_first_stay_in_their_file(
    tmp_path: Path, has_changed: bool
) -> None:
    room = Workroom(_clone(tmp_path / "hostile", "hostile", {"id": "gt-1", "title": "squat"}))
    await room.do("sync_tasks")
    honest = _clone(tmp_path / "honest", "honest", {"id": "gt-1", "title": "mine"}, {"id": "gt-2"})
    before = _file(honest).read_bytes()
    await syncing.synced(room.workspace, _project(honest), imports=True, exports=False)
    if has_changed:
        await room.do("update_task", task_id="gt-2", title="changed")

    for exporting in (
        syncing.automatically(room.workspace, _project(honest)),
        syncing.synced(room.workspace, _project(honest), imports=False, exports=True),
        syncing.synced(room.workspace, _project(honest), imports=True, exports=True),
    ):
        try:
            await exporting
        except tasks.Fault as fault:
            assert "gt-1" in fault.message and "would be lost" in fault.message
    assert _file(honest).read_bytes() == before

    await room.do("delete_task", task_id="gt-1")
    await syncing.synced(room.workspace, _project(honest), imports=True, exports=True)
    titles = {task["id"]: task["title"] for task in map(json.loads, _file(honest).read_text().splitlines())}
    assert titles == {"gt-1": "mine", "gt-2": "changed" if has_changed else "x"}


@pytest.mark.parametrize(
    "more",
    [
        {"title": "x" * (tasks.LONGEST_TITLE + 1)},
        {"assignee": "x" * (tasks.LONGEST_NAME + 1)},
        {"labels": ["x"] * (tasks.MOST_LABELS + 1)},
        {"labels": ["x" * (tasks.LONGEST_LABELS + 1)]},
    ],
    ids=["title", "assignee", "labels", "label"],
)
async def test_what_lists_and_indexes_have_is_as_short_from_a_file_as_by_a_tool(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    room = Workroom(_clone(tmp_path / "clone", "p", {"id": "gt-1", **more}))

    fault = await room.refused("sync_tasks", direction="import")

    assert "line 1:" in fault.message
    assert await room.listed("list_tasks") == []


async def test_all_dependencies_of_a_file_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MOST_DEPENDENCIES", 3)
    two = [{"depends_on": "gt-8"}, {"depends_on": "gt-9"}]
    lines = [{"id": f"gt-{number}", "dependencies": two} for number in (1, 2)]

    fault = await Workroom(_clone(tmp_path / "clone", "p", *lines)).refused("sync_tasks")

    assert "line 2: a file can have 3 dependencies at most" in fault.message


@pytest.mark.parametrize(
    "more", [{"status": "x" * 100_000}, {"dependencies": [{"depends_on": "gt-2", "dep_type": "x" * 100_000}]}]
)
async def test_a_fault_quotes_little_of_the_file(tmp_path: Path, more: dict[str, Any]) -> None:
    fault = await Workroom(_clone(tmp_path / "clone", "p", *[{"id": "gt-1", **more}] * 20)).refused("sync_tasks")

    assert len(fault.message) < 2 * jsonl.MOST_SAID * jsonl.LONGEST_FAULT
