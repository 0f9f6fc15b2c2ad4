"""`toolgate add`, `remove` and `test`: one server in the user's own file, whose comments stay."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolgate.cli import app
from toolgate.demo import SERVERS

OWN = '# mine\ndrain = 5  # why\n\n[mcpServers.old]\ncommand = "x" # because\n'


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TOOLGATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = tmp_path / ".config" / "toolgate" / "toolgate.toml"
    file.parent.mkdir(parents=True)
    file.write_text(OWN)
    return file


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=input)


def servers(own: Path) -> dict[str, Any]:
    return tomllib.loads(own.read_text())["mcpServers"]


def test_a_program_and_a_url_are_added_and_all_else_stays(own: Path) -> None:
    assert run("add", "time", "--env", "TZ=UTC", "--env", "LANG", "--", "uvx", "mcp-server-time", "--x").exit_code == 0
    done = run("add", "Docs", "https://docs.example/mcp", "--header", "Authorization: Bearer abc", "--timeout", "90s")
    assert done.exit_code == 0 and "abc" not in done.output
    assert own.read_text().startswith(OWN)
    assert servers(own)["time"] == {
        "command": "uvx", "args": ["mcp-server-time", "--x"], "env": {"TZ": "UTC", "LANG": "${LANG}"},
    }  # fmt: skip
    assert servers(own)["Docs"] == {
        "url": "https://docs.example/mcp", "timeout": "90s",
        "headers": {"Authorization": "Bearer ${secret:docs-token}"},
    }  # fmt: skip
    kept = own.parents[2] / ".local" / "state" / "toolgate" / "secrets.json"
    assert json.loads(kept.read_text()) == {"docs-token": "abc"}


def test_a_secret_is_asked_for_and_never_an_argument(own: Path) -> None:
    done = run("add", "gh", "--secret", "GITHUB_TOKEN", "--", "npx", "gh", input="s3cret\n")
    assert done.exit_code == 0 and "s3cret" not in done.output
    assert servers(own)["gh"]["env"] == {"GITHUB_TOKEN": "${secret:gh-github-token}"}


def test_a_name_is_taken_once_unless_that_is_asked_for(own: Path) -> None:
    done = run("add", "Old", "--", "y")
    assert done.exit_code == 1 and own.read_text() == OWN
    assert run("add", "Old", "--replace", "--", "y").exit_code == 0
    assert servers(own) == {"old": {"command": "y"}} and "# mine" in own.read_text()


@pytest.mark.parametrize("arguments", [
    ("x", "https://a/b", "more"), ("x", "--env", "a b=c", "--", "y"), ("x", "--header", "none", "https://a/b"),
    ("x", "--timeout", "soon", "--", "y"), ("toolgate", "--", "y"), ("x", "--type", "nothing", "--", "y"),
])  # fmt: skip
def test_what_would_not_work_is_not_written(own: Path, arguments: tuple[str, ...]) -> None:
    done = run("add", *arguments)
    assert done.exit_code in (1, 2) and "Traceback" not in done.output
    assert own.read_text() == OWN


def test_a_file_in_the_words_of_another_tool_is_edited_in_them(own: Path, tmp_path: Path) -> None:
    file = tmp_path / "opencode.json"
    file.write_text('{ // mine\n  "mcp": {}\n}\n')
    assert run("add", "time", "--config", str(file), "--", "uvx", "mcp-server-time").exit_code == 0
    assert "// mine" in file.read_text() and '"command": [' in file.read_text()
    assert run("add", "t2", "--type", "sse", "--config", str(file), "https://a/b").exit_code == 2  # it has no SSE


def test_a_server_is_removed_by_any_spelling_and_the_rest_stays(own: Path) -> None:
    assert run("add", "My Time", "--", "uvx", "x").exit_code == 0
    assert run("remove", "my_time").exit_code == 0
    assert own.read_text().rstrip() == OWN.rstrip()
    assert run("remove", "nobody").exit_code == 1


def test_one_server_is_tested_and_no_other_started(own: Path, tmp_path: Path) -> None:
    marker = tmp_path / "was-started"
    assert run("add", "other", "--", "touch", str(marker)).exit_code == 0
    assert run("add", "clock", "--", sys.executable, "-I", "-S", str(SERVERS["clock"])).exit_code == 0
    done = run("test", "clock")
    assert done.exit_code == 0, done.output
    assert "✓ start: stdio" in done.output and "✓ list: 4 tools" in done.output
    called = run("test", "clock", "convert_time", '{"time": "12:00", "from_timezone": "UTC", "to_timezone": "+02:00"}')
    assert called.exit_code == 0 and "✓ call convert_time: " in called.output and "14:00" in called.output
    failed = run("test", "clock", "nothing", "--json")
    assert failed.exit_code == 1 and json.loads(failed.stdout)[-1]["ok"] is False
    assert not marker.exists()


def test_a_server_that_does_not_start_is_said_with_its_fix(own: Path) -> None:
    assert run("add", "gone", "--", "uvx-that-is-not-there", "x").exit_code == 0
    done = run("test", "gone")
    assert done.exit_code == 1 and "✗ start: " in done.output
    assert run("test", "nobody").exit_code == 1


def test_a_trusted_file_of_this_folder_stays_trusted_when_its_user_edits_it_so(own: Path) -> None:
    here = Path("toolgate.toml")
    here.write_text('[mcpServers.mine]\ncommand = "x"\n')
    assert run("add", "time", "--", "uvx", "x").exit_code == 2 and "time" not in here.read_text()
    assert run("trust", "toolgate.toml", "--yes").exit_code == 0
    assert run("add", "time", "--", "uvx", "x").exit_code == 0 and "time" in here.read_text()
    assert run("remove", "time").exit_code == 0
    here.write_text(here.read_text() + "# by somebody\n")
    assert run("add", "time", "--", "uvx", "x").exit_code == 2
    assert own.read_text() == OWN
