"""What one session of a real program leaves is in what the next one asks its model; nothing but hooks carries it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_model
import programs
import pytest
import world
from programs import PROGRAMS, Program
from room import Room, closed

from toolgate.demo import SERVERS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.filterwarnings("error")]

CALL = ["clock__convert_time", {"time": "12:00", "from_timezone": "UTC", "to_timezone": "+02:00"}]
CLIENTS = {"claude-code-2.1.330": "claude", "codex-0.169": "codex", "gemini-cli-0.61": "gemini"}
UNASKED = {"codex-0.169": ["--dangerously-bypass-hook-trust"]}  # its user is asked once, in its own window
HANDED_OVER = f"# Handoff: {programs.PROMPT}"


@pytest.fixture(scope="module", params=CLIENTS)
def program(request: pytest.FixtureRequest) -> Program:
    found = PROGRAMS[request.param]
    if reason := found.missing():
        pytest.skip(reason)
    return found


def visit(room: Room, program: Program, home: Path, url: str, number: int) -> list[dict[str, Any]]:
    """One session: what was asked of its model."""
    own, record = home / f"visit-{number}", home / f"model-{number}.jsonl"
    own.mkdir()
    play = [sys.executable, str(fake_model.__file__), "--calls", json.dumps([CALL]), "--record", str(record)]
    with world.process(room.enter(play), home / "model") as model:
        model_url = world.Lines(model.stdout).until("^(http://.*)$")[1]
        setting = programs.Setting(own, program.found() or [], model_url, url, [])
        command, env = program.start(setting)
        at = len(setting.executable) + 1
        command[at:at] = UNASKED.get(program.name, [])
        # The gateway's own state folder; all else is the session's.
        env = world.environment(own) | {"XDG_STATE_HOME": world.environment(home)["XDG_STATE_HOME"]} | room.env | env
        install = world.toolgate("hooks", "install", "--client", CLIENTS[program.name], "--wait", "8")
        subprocess.run(install, env=env, check=True, capture_output=True, timeout=world.SECONDS)
        folder = home / "project"
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            room.enter(command), cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=world.SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    requests = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    return [request for request in requests if "turn" in request]


@pytest.mark.promise("004.hooks.start", "004.hooks.end")
def test_the_model_of_the_next_session_is_told_what_the_last_one_left(program: Program, tmp_path: Path) -> None:
    config = tmp_path / "toolgate.json"
    clock = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS["clock"])]}
    config.write_text(json.dumps({"mcpServers": {"clock": clock}}), encoding="utf-8")
    command = world.toolgate("serve", "--config", str(config), "--port", "0")
    with closed() as room, world.serving(room.enter(command), tmp_path) as url:
        first, second = (visit(room, program, tmp_path, url, number) for number in (1, 2))
        shown = world.toolgate("sessions", "list", "--json", "--config", str(config))
        told = subprocess.run(shown, env=world.environment(tmp_path), capture_output=True, check=True, timeout=60)
    asked_first, asked_second = (json.dumps([turn["body"] for turn in turns]) for turns in (first, second))
    assert HANDED_OVER not in asked_first
    newest, oldest = json.loads(told.stdout)
    assert HANDED_OVER in asked_second, (newest, oldest)
    assert (newest["source"], newest["parent_id"], newest["cwd"]) == (
        CLIENTS[program.name], oldest["id"], str(tmp_path / "project"),
    )  # fmt: skip
    assert (oldest["status"], oldest["title"], oldest["prompts"]) == ("ended", programs.PROMPT, 1)
    assert newest["status"] == "handoff_ready"
