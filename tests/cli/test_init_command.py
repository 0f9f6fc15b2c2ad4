"""`toolgate init`: the servers of this machine's programs come into one file, if the user agrees."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app
from toolgate.demo import SERVERS

TOKEN = "ghp_abcdefghijklmnopqrstuvwx0123"
VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*VARIABLES, "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    clock = ["-I", "-S", str(SERVERS["clock"])]
    servers = {
        "clock": {"command": sys.executable, "args": clock},
        "far": {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}},
    }
    (tmp_path / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / ".codex").mkdir()
    args = ", ".join(json.dumps(each) for each in clock)
    (tmp_path / ".codex" / "config.toml").write_text(
        f"[mcp_servers.clock]\ncommand = {json.dumps(sys.executable)}\nargs = [{args}]\n"
    )
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments])


def own(home: Path) -> Path:
    return home / ".config" / "toolgate" / "toolgate.toml"


def test_what_is_found_is_merged_and_its_tokens_are_counted(home: Path) -> None:
    done = run("--yes")
    assert done.exit_code == 0, done.output
    assert set(tomllib.loads(own(home).read_text())["mcpServers"]) == {"clock", "far"}
    assert TOKEN not in done.output and TOKEN not in own(home).read_text()
    assert "Claude Code loads now" in done.output and "far could not be listed" in done.output
    assert "toolgate install " in done.output
    assert json.loads((home / ".local/state/toolgate/secrets.json").read_text()) == {"far-token": TOKEN}
    assert run("--undo").exit_code == 0
    assert not own(home).exists()
    assert json.loads((home / ".local/state/toolgate/secrets.json").read_text()) == {}


def test_nothing_is_started_or_written_without_consent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr("toolgate.cli.init.common.run", started.append)
    for arguments in ([], ["--no-start"]):
        done = run(*arguments)
        assert done.exit_code == 2 and "--yes" in done.output
    assert not started and not own(home).exists() and not (home / ".local").exists()
    assert run("--no-start", "--yes").exit_code == 0
    assert not started and own(home).exists()


def test_a_file_of_this_folder_is_only_named(home: Path) -> None:
    (home / "project" / ".mcp.json").write_text('{"mcpServers": {"theirs": {"command": "x"}}}')
    (home / "project" / "toolgate.toml").write_text('[mcpServers.theirs]\ncommand = "x"\n')
    done = run("--yes", "--no-start")
    assert done.exit_code == 0 and "may be from anyone: .mcp.json" in done.output
    assert "theirs" not in own(home).read_text()


def test_only_the_programs_that_are_named(home: Path) -> None:
    assert run("--from", "codex", "--yes", "--no-start").exit_code == 0
    assert set(tomllib.loads(own(home).read_text())["mcpServers"]) == {"clock"}


def test_a_program_whose_file_cannot_be_read_does_not_keep_the_others(home: Path) -> None:
    (home / ".codex" / "config.toml").write_text("[broken")
    done = run("--yes", "--no-start")
    assert done.exit_code == 0 and "Codex was left out" in done.output
    assert set(tomllib.loads(own(home).read_text())["mcpServers"]) == {"clock", "far"}


def test_where_there_is_nothing_it_says_what_to_do(home: Path) -> None:
    (home / ".claude.json").unlink()
    (home / ".codex" / "config.toml").unlink()
    done = run()
    assert done.exit_code == 0 and "toolgate add" in done.output and not own(home).exists()
