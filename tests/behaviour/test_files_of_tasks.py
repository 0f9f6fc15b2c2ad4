"""Seed 004's git sync: the tools `sync_tasks` and `get_sync_status`, through each surface that reaches them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from inmemory import Json, gateway
from stage import Asker

PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/daemon", "/mcp/all", "/mcp/servers/gobby-tasks"])
AT = "2026-11-24T08:30:00Z"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".gobby").mkdir()
    (tmp_path / ".gobby" / "project.json").write_text('{"id": "p-1", "name": "one"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".gobby" / "tasks.jsonl"


async def do(asker: Asker, path: str, tool: str, /, **arguments: Any) -> Json:
    if "servers" in path:
        return (await asker.call(tool, arguments))["structuredContent"]
    return (await asker.told("call_tool", server_name="gobby-tasks", tool_name=tool, arguments=arguments))["result"]


async def refused(asker: Asker, path: str, tool: str, /, **arguments: Any) -> str:
    if "servers" in path:
        return (await asker.error("tools/call", name=tool, arguments=arguments))["message"]
    told = await asker.failed("call_tool", server_name="gobby-tasks", tool_name=tool, arguments=arguments)
    return told["error"]


@PATHS
@pytest.mark.promise("b.tasks.files")
async def test_tasks_are_exported_and_imported_and_the_status_is_computed(path: str, era: str, file: Path) -> None:
    async with gateway() as app:
        asker = Asker(app, era, path)
        made = await do(asker, path, "create_task", title="Write the docs")
        status = await do(asker, path, "get_sync_status")
        assert (status["status"], status["synced"], status["hash"]) == ("never_exported", False, None)
        done = await do(asker, path, "sync_tasks", direction="export")
        assert (done["direction"], done["export"]["tasks"], done["export"]["written"]) == ("export", 1, True)
        [line] = [json.loads(each) for each in file.read_text().splitlines()]
        assert {key: line[key] for key in made} == made
        status = await do(asker, path, "get_sync_status")
        assert (status["status"], status["synced"], status["hash"]) == ("synced", True, done["export"]["hash"])
        assert status["last_exported"] == done["export"]["last_exported"]
        with open(file, "a") as more:
            more.write(json.dumps({"id": "gt-ffffff", "title": "theirs", "created_at": AT, "deps_on": [made["id"]]}))
        assert (await do(asker, path, "get_sync_status"))["synced"] is False
        done = await do(asker, path, "sync_tasks")
        assert (done["import"]["created"], done["import"]["unchanged"]) == (1, 1)
        found = await do(asker, path, "get_task", task_id="gt-ffffff")
        assert (found["title"], [each["id"] for each in found["dependencies"]["blocked_by"]]) == (
            "theirs",
            [made["id"]],
        )


@PATHS
@pytest.mark.promise("b.tasks.files")
async def test_a_file_in_the_middle_of_a_merge_is_refused_with_its_line(path: str, era: str, file: Path) -> None:
    async with gateway() as app:
        asker = Asker(app, era, path)
        file.write_text(f"{json.dumps({'id': 'gt-1', 'title': 'T', 'created_at': AT})}\n<<<<<<< HEAD\n")
        for direction in ("import", "export", "both"):
            said = await refused(asker, path, "sync_tasks", direction=direction)
            assert "tasks.jsonl: line 2: git conflict marker" in said and "Nothing was imported" in said
        assert (await do(asker, path, "get_sync_status"))["status"] == "unusable"
        assert (await do(asker, path, "list_tasks"))["tasks"] == []


@PATHS
@pytest.mark.promise("b.tasks.files")
async def test_what_is_asked_in_vain_is_refused(path: str, era: str, file: Path) -> None:
    async with gateway() as app:
        asker = Asker(app, era, path)
        for given in ({"direction": "up"}, {"direction": None}, {"directions": "both"}):
            assert "Invalid arguments" in await refused(asker, path, "sync_tasks", **given)
        assert "Invalid arguments" in await refused(asker, path, "get_sync_status", all=True)
        (file.parent / "project.json").unlink()
        assert "in no project" in await refused(asker, path, "sync_tasks")
        assert (await do(asker, path, "get_sync_status"))["status"] == "no_project"
