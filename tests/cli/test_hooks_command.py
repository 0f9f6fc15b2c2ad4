"""`toolgate hooks` edits the settings of programs: what others wrote stays, and what it cannot read it leaves alone."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app
from toolgate.cli.hooks import BACKUP, PROGRAMS

OTHERS = {
    "model": "opus",
    "hooks": {"Stop": [{"matcher": "x", "hooks": [{"type": "command", "command": "say ünïcode"}]}], "Other": []},
}
CLIENTS = pytest.mark.parametrize("client", PROGRAMS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["hooks", *arguments])


def settings(home: Path, client: str) -> Path:
    return home / PROGRAMS[client].home / PROGRAMS[client].file


def written(home: Path, client: str, content: Any) -> Path:
    file = settings(home, client)
    file.parent.mkdir()
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


@CLIENTS
def test_hooks_are_added_once_and_what_was_there_stays(client: str, home: Path) -> None:
    file = written(home, client, OTHERS)
    file.chmod(0o640)
    assert run("status", "--client", client).exit_code == 1
    added = run("install", "--client", client)
    assert added.exit_code == 0 and str(file) in added.output
    first = file.read_text(encoding="utf-8")
    tree = json.loads(first)
    assert tree["model"] == "opus" and tree["hooks"]["Other"] == []
    assert tree["hooks"]["Stop"][0] == OTHERS["hooks"]["Stop"][0] and "ünïcode" in first  # type: ignore[index]
    for event in PROGRAMS[client].events:
        [entry] = tree["hooks"][event][-1]["hooks"]
        assert entry["type"] == "command" and entry["command"] in added.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert json.loads(file.with_name(file.name + BACKUP).read_text(encoding="utf-8")) == OTHERS
    assert "already" in run("install", "--client", client).output and file.read_text(encoding="utf-8") == first
    assert run("status", "--client", client).exit_code == 0
    assert run("remove", "--client", client).exit_code == 0
    assert json.loads(file.read_text(encoding="utf-8")) == OTHERS
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name, file.name + BACKUP]


@CLIENTS
def test_a_program_without_settings_gets_some_for_its_user_alone(client: str, home: Path) -> None:
    assert run("install", "--client", client, "--state", "some where").exit_code == 0
    file = settings(home, client)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("remove", "--client", client).exit_code == 0
    assert json.loads(file.read_text()) == {}
    assert "no hooks" in run("remove", "--client", client).output


@CLIENTS
@pytest.mark.parametrize(
    "content",
    ['{"a": 1} // why', "[]", "", "{", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"hooks": {"Stop": ["x"]}}'],
)
def test_what_cannot_be_read_is_left_as_it_is(client: str, content: str, home: Path) -> None:
    file = written(home, client, content)
    for command in ("install", "remove", "status"):
        done = run(command, "--client", client)
        assert done.exit_code == 1 and str(file) in done.output
    assert file.read_text() == content and list(file.parent.iterdir()) == [file]


def test_a_link_to_settings_elsewhere_stays_one(home: Path) -> None:
    elsewhere = home / "dotfiles.json"
    elsewhere.write_text("{}")
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").symlink_to(elsewhere)
    assert run("install", "--client", "claude").exit_code == 0
    assert (home / ".claude/settings.json").is_symlink() and "hooks" in json.loads(elsewhere.read_text())


def test_settings_elsewhere_are_found_by_the_programs_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(home / "codex"))
    done = run("install", "--client", "codex")
    assert (home / "codex" / "hooks.json").exists() and "/hooks" in done.output  # Codex wants its user's trust


def test_what_is_installed_can_be_run_by_a_shell(home: Path) -> None:
    folder = home / "it's a folder"
    assert run("install", "--client", "claude", "--state", str(folder), "--wait", "0").exit_code == 0
    command = json.loads(settings(home, "claude").read_text())["hooks"]["Stop"][0]["hooks"][0]["command"]
    done = subprocess.run(["sh", "-c", command], input=b'{"x": 1}', capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{}\n", b"")
    [file] = (folder / "hooks").iterdir()
    assert file.read_bytes() == b'{"x": 1}' and file.name.endswith("-claude.json")
