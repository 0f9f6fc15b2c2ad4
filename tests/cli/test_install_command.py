"""`toolgate install`: one entry in each program's file, all else as it was, and a way back."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import agents, app
from toolgate.config.formats import parse

FIXTURES = Path(__file__).parents[1] / "fixtures" / "installed"
CLAUDE = '{\n  "numStartups": 3,\n  "mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}\n}\n'
CODEX = '# mine\nmodel = "x"  # why\n\n[mcp_servers.own]\ncommand = "y"\n'
CONFIG = '[mcpServers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n'
VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*VARIABLES, "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("toolgate.cli.common.own_command", lambda: ("/opt/toolgate/bin/toolgate",))
    (tmp_path / "bin").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    own = tmp_path / ".config" / "toolgate" / "toolgate.toml"
    own.parent.mkdir(parents=True)
    own.write_text(CONFIG)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["install", *arguments])


def program(home: Path, name: str, says: str) -> None:
    file = home / "bin" / name
    file.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    file.chmod(0o755)


@pytest.mark.parametrize("name", agents.AGENTS)
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_the_file_of_each_program_is_as_it_should_be(name: str, way: str, home: Path) -> None:
    """Those that cannot be installed for a test are held to a fixture, as all others are."""
    if way not in agents.AGENTS[name].by:
        assert run(name, "--http", "--no-check").exit_code == 2
        return
    done = run(name, "--no-check", *(["--http"] if way == "http" else []))
    assert done.exit_code == 0, done.output
    file = agents.AGENTS[name].file({"HOME": str(home)})
    expected = FIXTURES / way / f"{name}{file.suffix}"
    assert file.read_text().replace(str(home), "/home/me") == expected.read_text()


@pytest.mark.parametrize("name", agents.AGENTS)
def test_it_can_be_undone_to_the_byte(name: str, home: Path) -> None:
    file = agents.AGENTS[name].file({"HOME": str(home)})
    file.parent.mkdir(parents=True, exist_ok=True)
    before = {".json": "// of mine\n{\n}\n", ".toml": CODEX, ".yaml": "# of mine\nextensions: {}\n"}[file.suffix]
    file.write_text(before)
    assert run(name, "--no-check").exit_code == 0
    assert file.read_text() != before
    assert "has the gateway already" in run(name, "--no-check").output
    assert run(name, "--undo").exit_code == 0
    assert file.read_text() == before
    assert run(name, "--undo").exit_code == 1


def test_a_file_that_was_made_is_gone_when_it_is_undone(home: Path) -> None:
    assert run("cursor", "--no-check").exit_code == 0
    assert run("cursor", "--undo").exit_code == 0
    assert not (home / ".cursor" / "mcp.json").exists()


def test_what_was_written_since_stays_when_it_is_undone(home: Path) -> None:
    file = home / ".claude.json"
    file.write_text(CLAUDE)
    assert run("claude-code", "--replace", "--no-check").exit_code == 0
    assert set(json.loads(file.read_text())["mcpServers"]) == {"toolgate"}
    tree = json.loads(file.read_text())
    tree["numStartups"] = 4
    tree["mcpServers"]["later"] = {"command": "z"}
    file.write_text(json.dumps(tree))
    assert "has changed since" in run("claude-code", "--undo").output
    left = json.loads(file.read_text())
    assert left["numStartups"] == 4 and set(left["mcpServers"]) == {"time", "later"}


def test_servers_that_the_gateway_has_are_named_and_taken_out_only_where_that_is_asked_for(home: Path) -> None:
    file = home / ".claude.json"
    file.write_text(CLAUDE)
    done = run("claude-code", "--no-check")
    assert "twice" in done.output and "time" in json.loads(file.read_text())["mcpServers"]
    other = json.loads(file.read_text())
    other["mcpServers"]["own"] = {"command": "mine"}
    file.write_text(json.dumps(other))
    assert run("claude-code", "--replace", "--no-check").exit_code == 0
    assert set(json.loads(file.read_text())["mcpServers"]) == {"toolgate", "own"}


def test_a_dry_run_writes_nothing(home: Path) -> None:
    (home / ".claude.json").write_text(CLAUDE)
    done = run("claude-code", "codex", "--dry-run")
    assert done.exit_code == 0 and done.output.count("would write") == 2
    assert (home / ".claude.json").read_text() == CLAUDE and not (home / ".codex").exists()


def test_options_are_in_the_entry(home: Path) -> None:
    own = home / ".config" / "toolgate" / "toolgate.toml"
    own.write_text(CONFIG + '[[clients]]\nid = "ci"\nmcp_server_access = "all"\n')
    assert run("codex", "--surface", "meta", "--client", "ci", "--no-check").exit_code == 0
    entry: Any = tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"]["toolgate"]
    assert entry["args"] == ["stdio", "--config", str(own), "--surface", "meta", "--client", "ci"]
    assert run("gemini", "codex", "--http", "--surface", "meta", "--no-check").exit_code == 0
    entry = tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"]["toolgate"]
    assert (entry["url"], entry["bearer_token_env_var"]) == ("http://127.0.0.1:8765/mcp/meta", "TOOLGATE_KEY")
    entry = json.loads((home / ".gemini" / "settings.json").read_text())["mcpServers"]["toolgate"]
    assert entry["headers"] == {"Authorization": "Bearer ${TOOLGATE_KEY}"}
    assert run("zed", "--http", "--no-check").exit_code == 2  # it would need the key itself


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("localhost", "127.0.0.1"),
        ("LocalHost", "127.0.0.1"),
        ("::1", "[::1]"),
        ("0.0.0.0", "127.0.0.1"),  # all addresses of this machine, and for many clients none to connect to
        ("::", "[::1]"),
    ],
)
def test_programs_are_given_the_address_that_is_listened_on(host: str, written: str, home: Path) -> None:
    """At another address of that name another user of the machine may listen, and would get the key."""
    own = home / ".config" / "toolgate" / "toolgate.toml"
    own.write_text(f'http = {{ host = "{host}" }}\n{CONFIG}[[clients]]\nid = "ci"\n')
    assert run("gemini", "--http", "--no-check").exit_code == 0
    entry = json.loads((home / ".gemini" / "settings.json").read_text())["mcpServers"]["toolgate"]
    assert f"http://{written}:8765/mcp" in entry.values()


def test_the_file_of_a_project_is_edited_where_that_is_asked_for(home: Path) -> None:
    assert run("vscode", "claude-code", "--project", "--http", "--no-check").exit_code == 0
    found: Any = parse((home / "project" / ".vscode" / "mcp.json").read_text(), "json")
    assert found == {"servers": {"toolgate": {"type": "http", "url": "http://127.0.0.1:8765/mcp"}}}
    assert (home / "project" / ".mcp.json").is_file() and not (home / ".claude.json").exists()
    assert run("codex", "--project").exit_code == 2


def test_a_link_that_a_repository_brings_leads_to_no_file_elsewhere(home: Path) -> None:
    """git makes it as the user, so it is nobody else's."""
    project, other, folder = home / "project", home / "other.json", home / "folder"
    other.write_text('{"important": 1}')
    folder.mkdir()
    for link, to in ((".mcp.json", other), (".mcp.json", home / "new.json"), (".mcp.json", project / "circle")):
        (project / link).symlink_to(to)
        if to == project / "circle":
            to.symlink_to(project / link)
        for more in ([], ["--dry-run"]):
            done = run("claude-code", "--project", "--no-check", *more)
            assert done.exit_code == 2 and ("leads out of this folder" in done.output or "circle" in done.output)
        (project / link).unlink()
    (project / ".cursor").symlink_to(folder)
    assert run("cursor", "--project", "--no-check").exit_code == 2
    (project / ".vscode").symlink_to("../folder/deeper")
    assert run("vscode", "--project", "--no-check").exit_code == 2
    assert other.read_text() == '{"important": 1}' and not list(folder.iterdir()) and not (home / "new.json").exists()


def test_a_link_within_the_project_is_followed(home: Path) -> None:
    project = home / "project"
    (project / "kept.json").write_text("{}")
    (project / ".mcp.json").symlink_to("kept.json")
    assert run("claude-code", "--project", "--no-check").exit_code == 0
    assert "toolgate" in (project / "kept.json").read_text() and (project / ".mcp.json").is_symlink()


@pytest.mark.parametrize(("name", "executable", "says", "is_seen"), [
    ("claude-code", "claude", "Checking MCP server health…\n\ntoolgate: /x/toolgate stdio - ✔ Connected", True),
    ("claude-code", "claude", "toolgate: /x/toolgate stdio - ✗ Failed to connect", False),
    ("claude-code", "claude", "No MCP servers configured.", False),
    ("codex", "codex", '[{"name": "toolgate", "enabled": true}]', True),
    ("gemini", "gemini", "\x1b[32m○\x1b[0m toolgate: /x/toolgate stdio (stdio) - Disabled", True),
    ("gemini", "gemini", "✗ toolgate: /x/toolgate (stdio) - Disconnected", False),
    ("opencode", "opencode", "●  ✓ toolgate \x1b[90mconnected", True),
])  # fmt: skip
def test_a_program_is_asked_whether_it_sees_it(
    name: str, executable: str, says: str, is_seen: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    program(home, executable, says)
    done = run(name)
    assert done.exit_code == (0 if is_seen else 1), done.output
    assert (": sees it:" in done.output) == is_seen and ("does not see it" in done.output) == (not is_seen)
    assert "\x1b" not in done.output


def test_a_program_is_not_asked_in_a_folder_whose_files_it_would_follow(home: Path) -> None:
    """Some start each server that a file of the folder names, which may be a stranger's."""
    file = home / "bin" / "opencode"
    file.write_text(f"#!/bin/sh\n/bin/ls -A > {home}/there\npwd > {home}/where\necho toolgate connected\n")
    file.chmod(0o755)
    (home / "project" / "opencode.json").write_text('{"mcp": {"x": {"type": "local", "command": ["touch", "ran"]}}}')
    done = run("opencode")
    assert done.exit_code == 0 and "sees it" in done.output, done.output
    assert "opencode.json" not in (home / "there").read_text()
    where = Path((home / "where").read_text().strip())
    assert where.parent == home / ".local" / "state" / "toolgate" / "asked" and not where.exists()


def test_of_a_projects_file_no_program_is_asked(home: Path) -> None:
    """It is the folder's other files that it would follow."""
    file = home / "bin" / "opencode"
    file.write_text(f"#!/bin/sh\ntouch {home}/ran\necho toolgate connected\n")
    file.chmod(0o755)
    done = run("opencode", "--project")
    assert done.exit_code == 0 and "`opencode mcp list` shows what it sees" in done.output
    assert not (home / "ran").exists()


def test_a_program_that_is_not_there_is_said(home: Path) -> None:
    done = run("codex", "zed")
    assert done.exit_code == 0 and "not checked" in done.output and "cannot be asked" in done.output


def test_a_file_that_cannot_be_read_stops_it_before_any_other_is_written(home: Path) -> None:
    broken = home / ".gemini" / "settings.json"
    broken.parent.mkdir()
    broken.write_text("{ broken")
    done = run("codex", "gemini", "--no-check")
    assert done.exit_code == 1 and "settings.json" in done.output
    assert broken.read_text() == "{ broken" and not (home / ".codex").exists()


def test_what_is_unknown_is_said(home: Path) -> None:
    assert run("nobody").exit_code == 2
    assert run("codex", "--surface", "nothing").exit_code == 2
    assert run("codex", "--client", "nobody").exit_code == 2


def test_nothing_is_written_through_a_link_of_another_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = home / "victim.json"
    victim.write_text("{}")
    (home / ".cursor").mkdir()
    link = home / ".cursor" / "mcp.json"
    link.symlink_to(victim)
    import os

    real = os.lstat

    def lstat(path: Any, **more: Any) -> os.stat_result:
        found = real(path, **more)
        return os.stat_result((*found[:4], os.geteuid() + 1, *found[5:])) if str(path) == str(link) else found

    monkeypatch.setattr(os, "lstat", lstat)
    done = run("cursor", "--no-check")
    assert done.exit_code == 1 and "another user" in done.output
    assert victim.read_text() == "{}"


@pytest.mark.promise("b.operator.waits")
def test_who_waits_at_a_terminal_for_a_slow_program_sees_whom_is_asked(home: Path) -> None:
    go_on = home / "go on"
    os.mkfifo(go_on)
    slow = home / "bin" / "claude"
    slow.write_text(f"#!/bin/sh\nread line < '{go_on}'\necho toolgate: connected\n")
    slow.chmod(0o755)
    screen, theirs = pty.openpty()
    command = [sys.executable, "-m", "toolgate", "install", "claude-code"]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        assert "asking Claude Code which servers it sees" in seen(screen, "which servers it sees")
        go_on.write_text("\n")
        assert "Claude Code: sees it" in seen(screen, "sees it:")
        assert process.wait(60) == 0
    os.close(screen)


def seen(screen: int, text: str) -> str:
    """What is shown on a terminal until it says so."""
    shown = ""
    while text not in shown:
        assert select.select([screen], [], [], 60)[0], shown
        shown += os.read(screen, 65536).decode(errors="replace")
    return shown
