"""`toolgate export`: the servers in the words of other programs, all else in their files as it was."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app

CONFIG = """
[mcpServers.local]
command = "npx"
args = ["-y", "x@1"]
env = { TOKEN = "${TOKEN}", KEY = "${secret:my-key}" }

[mcpServers.far]
url = "https://far.example/mcp"
headers = { Authorization = "Bearer ${TOKEN}" }
timeout = "90s"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TOKEN", "t0ken")
    monkeypatch.setenv("TOOLGATE_SECRET_MY_KEY", "k3y")
    path = tmp_path / "toolgate.toml"
    path.write_text(CONFIG)
    return path


def run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", "--config", str(config), *arguments])


def test_a_program_gets_its_own_words_for_variables_and_secrets(config: Path) -> None:
    assert json.loads(run(config, "--to", "opencode").stdout) == {
        "mcp": {
            "local": {
                "type": "local",
                "command": ["npx", "-y", "x@1"],
                "enabled": True,
                "environment": {"TOKEN": "{env:TOKEN}", "KEY": "{env:TOOLGATE_SECRET_MY_KEY}"},
            },
            "far": {
                "type": "remote",
                "enabled": True,
                "url": "https://far.example/mcp",
                "headers": {"Authorization": "Bearer {env:TOKEN}"},
                "timeout": 90000,
            },
        }
    }


def test_what_a_program_cannot_be_told_is_said_and_left_out(config: Path) -> None:
    done = run(config, "--to", "codex")
    assert done.exit_code == 1
    assert "local: left out: `env` has a variable" in done.stderr
    assert tomllib.loads(done.stdout) == {
        "mcp_servers": {
            "far": {"url": "https://far.example/mcp", "bearer_token_env_var": "TOKEN", "tool_timeout_sec": 90}
        }
    }
    assert run(config, "--to", "claude-desktop").stdout == ""


def test_values_go_into_a_file_and_are_never_printed(config: Path, tmp_path: Path) -> None:
    assert run(config, "--to", "zed", "--values").exit_code == 2
    file = tmp_path / "settings.json"
    file.write_text('// of mine\n{\n  "theme": "x", // one\n  "context_servers": {}\n}\n')
    done = run(config, "--to", "zed", "--values", "--output", str(file))
    assert done.exit_code == 0, done.output
    text = file.read_text()
    assert '"KEY": "k3y"' in text and '"Bearer t0ken"' in text
    assert text.startswith('// of mine\n{\n  "theme": "x", // one\n  "context_servers": {\n')
    assert "k3y" not in done.output and "t0ken" not in done.output


@pytest.mark.parametrize("to", ["toolgate", "children"])
@pytest.mark.parametrize("key", ["args", "env"])
def test_what_is_no_variable_becomes_none_where_values_are_written(
    to: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this program's words there are none."""
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken-of-the-user")
    theirs = tmp_path / "claude_desktop_config.json"
    value: object = ["lit:${GITHUB_TOKEN}"] if key == "args" else {"A": "lit:${GITHUB_TOKEN}"}
    theirs.write_text(json.dumps({"mcpServers": {"one": {"command": "x", key: value}, "two": {"command": "y"}}}))
    file = tmp_path / "out.toml"
    done = run(theirs, "--to", to, "--values", "--output", str(file))
    assert "one: left out" in done.output.replace("\n", " ") and "GITHUB_TOKEN" not in file.read_text()
    assert "two" in file.read_text()


def test_a_file_that_is_there_keeps_all_else(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('# mine\nmodel = "x"\n\n[mcp_servers.own]\ncommand = "y" # why\n')
    assert run(config, "--to", "codex", "--server", "far", "--output", str(file)).exit_code == 0
    assert file.read_text().startswith('# mine\nmodel = "x"\n\n[mcp_servers.own]\ncommand = "y" # why\n')
    assert set(tomllib.loads(file.read_text())["mcp_servers"]) == {"own", "far"}


def test_what_is_no_program_is_said(config: Path) -> None:
    done = run(config, "--to", "nobody")
    assert done.exit_code == 2 and "claude-code" in done.output
    assert run(config, "--to", "server-json").exit_code == 2


def test_what_was_exported_is_imported_again(config: Path) -> None:
    """With the secrets that it names; where it is there already, nobody has to agree to anything."""
    kept = config.parent / "kept.json"
    assert run(config, "--to", "mcp-servers", "--output", str(kept)).exit_code in (0, 1)
    again = CliRunner().invoke(app, ["import", str(kept), "--config", str(config), "--server", "local"])
    assert again.exit_code == 0 and config.read_text() == CONFIG, again.output
    fresh = config.with_name("fresh.toml")
    done = CliRunner().invoke(app, ["import", str(kept), "--config", str(fresh), "--yes"])
    assert done.exit_code == 0, done.output
    servers = tomllib.loads(fresh.read_text())["mcpServers"]
    assert servers["local"]["env"] == {"TOKEN": "${TOKEN}", "KEY": "${secret:my-key}"}
    assert servers["far"]["headers"] == {"Authorization": "Bearer ${TOKEN}"}
