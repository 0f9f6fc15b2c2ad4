"""What toolgate reads in a program's own file is what the program itself reads there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import installed
import pytest
import world
from room import Room, closed

from toolgate.config import Config, load

pytestmark = pytest.mark.interop

SECONDS = 90
ENVIRON = {"WHAT": "w", "TOKEN": "t", "KEY": "k", "PASSED": "p"}
CODEX = """
[mcp_servers.local]
command = "npx"
args = ["-y", "${HOME}", "$WHAT"]
env = { A = "a" }
env_vars = ["PASSED", "NOT_SET"]
startup_timeout_sec = 20
tool_timeout_sec = 45.5
[mcp_servers.far]
url = "https://far.example/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Key" = "KEY" }
[mcp_servers.off]
command = "x"
enabled = false
"""
OPENCODE = """{ // with a comment
    "mcp": {
        "local": {
            "type": "local", "command": ["bun", "x", "{env:WHAT}"], "environment": {"A": "{env:KEY}"}, "enabled": false,
        },
        "far": {"type": "remote", "url": "http://127.0.0.1:9/{env:WHAT}", "enabled": false},
    },
}"""


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with closed() as found:
        yield found


def said(room: Room, name: str, executable: str, arguments: list[str], home: Path, **environ: str) -> Any:
    """What the program prints, as JSON; there is nothing to see where it is not installed."""
    if reason := installed.missing_program(name):
        pytest.skip(reason)
    program = sorted(installed.program(name).glob(executable))[-1]
    done = subprocess.run(
        room.enter([str(program), *arguments]), cwd=home, env=world.environment(home) | room.env | ENVIRON | environ,
        capture_output=True, text=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def read(path: Path, text: str) -> Config:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load(path, ENVIRON)


def test_codex_reads_its_file_as_toolgate_does(room: Room, tmp_path: Path) -> None:
    config = read(tmp_path / "codex" / "config.toml", CODEX)
    arguments, executable = ["mcp", "list", "--json"], "node_modules/@openai/codex-*/vendor/*/bin/codex"
    listed = said(room, "codex-0.169", executable, arguments, tmp_path, CODEX_HOME=str(tmp_path / "codex"))
    assert {one.name for one in config.servers} == {each["name"] for each in listed}
    for theirs in listed:
        [ours] = [one for one in config.servers if one.name == theirs["name"]]
        transport = theirs["transport"]
        assert ours.enabled == theirs["enabled"]
        assert ours.timeout == (theirs["tool_timeout_sec"] or 60.0)
        assert ours.start_timeout == (theirs["startup_timeout_sec"] or 60.0)
        if transport["type"] == "stdio":
            passed = {name: ENVIRON[name] for name in transport["env_vars"] if name in ENVIRON}
            assert (ours.command, list(ours.args)) == (transport["command"], transport["args"])
            assert ours.env == {**(transport["env"] or {}), **passed}
        else:
            named = {header: ENVIRON[name] for header, name in transport["env_http_headers"].items()}
            token = {"Authorization": f"Bearer {ENVIRON[transport['bearer_token_env_var']]}"}
            assert (ours.type, ours.url) == ("http", transport["url"])
            assert ours.headers == {**transport["http_headers"], **named, **token}


def test_opencode_reads_its_file_as_toolgate_does(room: Room, tmp_path: Path) -> None:
    config = read(tmp_path / "opencode.json", OPENCODE)
    executable = "node_modules/opencode-*/bin/opencode"
    listed = said(room, "opencode-1.18", executable, ["debug", "config"], tmp_path)["mcp"]
    local, far = config.servers
    assert [local.command, *local.args] == listed["local"]["command"] == ["bun", "x", "w"]
    assert (local.env, local.enabled) == (listed["local"]["environment"], listed["local"]["enabled"])
    assert (far.url, far.enabled) == (listed["far"]["url"], False)
