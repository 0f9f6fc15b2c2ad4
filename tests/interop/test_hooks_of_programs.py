"""What one session of a real program leaves is in what the next one asks its model; nothing but hooks carries it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
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


def visit(
    room: Room, program: Program, home: Path, url: str, number: int, wait: Sequence[str] = ("--wait", "8")
) -> list[dict[str, Any]]:
    """One session: what was asked of its model. Its hooks tell the gateway whose state folder is that of `home`."""
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
        install = world.toolgate("hooks", "install", "--client", CLIENTS[program.name], *wait)
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


def configured(home: Path) -> Path:
    config = home / "toolgate.json"
    clock = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS["clock"])]}
    config.write_text(json.dumps({"mcpServers": {"clock": clock}}), encoding="utf-8")
    return config


def serve(config: Path) -> list[str]:
    return world.toolgate("serve", "--config", str(config), "--port", "0")


def sessions(home: Path, config: Path) -> list[dict[str, Any]]:
    shown = world.toolgate("sessions", "list", "--json", "--config", str(config))
    told = subprocess.run(shown, env=world.environment(home), capture_output=True, check=True, timeout=60)
    return json.loads(told.stdout)


@pytest.mark.promise("004.hooks.start", "004.hooks.end")
def test_the_model_of_the_next_session_is_told_what_the_last_one_left(program: Program, tmp_path: Path) -> None:
    config = configured(tmp_path)
    with closed() as room, world.serving(room.enter(serve(config)), tmp_path) as url:
        first, second = (visit(room, program, tmp_path, url, number) for number in (1, 2))
        newest, oldest = sessions(tmp_path, config)
    asked_first, asked_second = (json.dumps([turn["body"] for turn in turns]) for turns in (first, second))
    assert HANDED_OVER not in asked_first
    assert HANDED_OVER in asked_second, (newest, oldest)
    assert (newest["source"], newest["parent_id"], newest["cwd"]) == (
        CLIENTS[program.name], oldest["id"], str(tmp_path / "project"),
    )  # fmt: skip
    assert (oldest["status"], oldest["title"], oldest["prompts"]) == ("ended", programs.PROMPT, 1)
    assert newest["status"] == "handoff_ready"


@pytest.mark.parametrize("gateway", ["down", "hanging"])
def test_a_session_without_an_answer_goes_on_and_what_it_has_told_is_read_later(
    program: Program, gateway: str, tmp_path: Path
) -> None:
    """The tools that it calls are those of another gateway, which has another state folder."""
    config, other = configured(tmp_path), tmp_path / "other"
    other.mkdir()
    with closed() as room, world.serving(room.enter(serve(configured(other))), other) as url:
        if gateway == "down":
            visit(room, program, tmp_path, url, 1, wait=())
        else:
            with world.process(room.enter(serve(config)), tmp_path) as hanging:
                world.Lines(hanging.stdout)
                world.Lines(hanging.stderr).until("toolgate is listening on ")
                hanging.send_signal(signal.SIGSTOP)
                visit(room, program, tmp_path, url, 1, wait=())
                hanging.kill()
    state = Path(world.environment(tmp_path)["XDG_STATE_HOME"], "toolgate")
    told = [json.loads(file.read_bytes())["hook_event_name"] for file in sorted((state / "hooks").glob("[0-9]*"))]
    assert (told[0], told[-1]) == ("SessionStart", "SessionEnd") and len(told) >= 4, told
    with world.serving(serve(config), tmp_path):
        deadline = time.monotonic() + world.SECONDS
        while list((state / "hooks").glob("[0-9]*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        [record] = sessions(tmp_path, config)
    assert (record["status"], record["title"], record["prompts"]) == ("handoff_ready", programs.PROMPT, 1)
