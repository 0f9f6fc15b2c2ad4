"""`toolgate sessions` shows what agents' programs told, and does nothing to a terminal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import Raw
from typer.testing import CliRunner, Result

from toolgate import state as stores
from toolgate.cli import app
from toolgate.config import Config
from toolgate.core.clock import SystemClock
from toolgate.workspace.hooks import Hooks
from toolgate.workspace.workspace import Workspace


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolgate.json").write_text('{"mcpServers": {}}')
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sessions", *arguments, "--config", "toolgate.json"])


def told(home: Path, *payloads: dict[str, str]) -> None:
    async def tell() -> None:
        clock = SystemClock()
        async with stores.opened(home / ".local/state/toolgate") as store:
            hooks = Hooks(Workspace(store, clock, Config(), home), clock)
            for payload in payloads:
                await hooks.take(Raw(json.dumps({"cwd": "/repo", **payload}).encode()), "claude")

    asyncio.run(tell())


def test_sessions_are_listed_and_shown(home: Path) -> None:
    assert "toolgate hooks install" in run("list").output
    told(
        home,
        {"session_id": "one", "hook_event_name": "UserPromptSubmit", "prompt": "Mend the login"},
        {"session_id": "one", "hook_event_name": "SessionEnd"},
        {"session_id": "two", "hook_event_name": "SessionStart"},
    )
    head, two, one = run("list").output.splitlines()
    assert head.split() == ["LAST", "ACTIVE", "STATUS", "PROGRAM", "TITLE", "FOLDER", "ID"]
    assert "ended" in one and "Mend the login" in one and "active" in two and two.endswith("two")
    assert [record["id"] for record in json.loads(run("list", "--json", "--limit", "1").output)] == ["two"]
    assert run("list", "--project", "none").output.startswith("No sessions")
    shown = run("show", "one")
    assert shown.exit_code == 0 and "# Handoff: Mend the login" in shown.output
    assert json.loads(run("show", "two", "--json").output)["parent_id"] == "one"


def test_a_session_that_is_not_there_is_an_error(home: Path) -> None:
    done = run("show", "nobody")
    assert done.exit_code == 1 and "Session not found: nobody" in done.output
