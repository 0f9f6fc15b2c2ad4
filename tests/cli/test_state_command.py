"""`toolgate state backup`, `restore` and `check`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_backup_brings_back_what_there_was(here: Path) -> None:
    nothing = run("state", "check")
    assert (nothing.exit_code, "There is no store" in nothing.output) == (1, True)
    assert "There is no store" in run("state", "backup", "b").output
    run("tasks", "create", "one")
    checked = run("state", "check")
    assert (checked.exit_code, "  task: 1 rows\n" in checked.stdout, "no problems" in checked.stdout) == (0, True, True)
    assert json.loads(run("state", "check", "--json").stdout)["counts"]["task"] == 1
    assert run("state", "backup", "b").stdout.startswith("wrote b (")
    again = run("state", "backup", "b")
    assert (again.exit_code, "--force" in again.output) == (1, True)
    run("tasks", "create", "two")
    restored = run("state", "restore", "b")
    assert restored.exit_code == 0 and "toolgate.db.before-restore-1" in restored.stdout
    assert json.loads(run("tasks", "list", "--json").stdout)["count"] == 1
    [line] = (here / "XDG_STATE_HOME" / "toolgate" / "audit.jsonl").read_text().splitlines()
    noted = json.loads(line)
    assert (noted["event"], noted["file"]) == ("state.restore", str(here / "b"))


def test_what_is_no_backup_is_refused_and_what_others_can_read_is_a_problem(here: Path) -> None:
    run("tasks", "create", "one")
    (here / "b").write_text("no database")
    refused = run("state", "restore", "b")
    assert (refused.exit_code, "not a store of toolgate" in refused.output) == (1, True)
    (here / "XDG_STATE_HOME" / "toolgate" / "toolgate.db").chmod(0o644)
    checked = run("state", "check")
    assert (checked.exit_code, "chmod go-rwx" in checked.stdout) == (1, True)


def test_pins_of_a_store_that_cannot_be_opened_are_no_pins_that_are_missing(here: Path) -> None:
    (here / "toolgate.json").write_text('{"mcpServers": {"one": {"command": "x"}}}')
    run("state", "check")
    run("tasks", "create", "one", "--config", "toolgate.json")
    store = sqlite3.connect(here / "XDG_STATE_HOME" / "toolgate" / "toolgate.db")
    store.execute("PRAGMA user_version = 99")
    store.close()
    for command in ("list", "diff"):
        ended = run("pins", command, "--config", "toolgate.json")
        assert ended.exit_code == 1 and "What is pinned cannot be read: " in ended.output, ended.output
        assert "from a newer toolgate" in ended.output
