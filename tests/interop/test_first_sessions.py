"""The first session of a newcomer: does a program's model get to call a tool, with no more settings than README names?

Each program, over HTTP and over stdio, on the default surface and on `meta`, with nothing but the gateway in its
configuration: once where nothing is kept and servers list within half a second; once after `toolgate list`, with a
server that takes long to start. A program that the gateway keeps waiting goes on without it.

`TOOLGATE_FIRST_SESSIONS` says how often each is tried (3 to accept), `TOOLGATE_LATE_SECONDS` how long the late server
takes (20 to accept). Nothing here is held against a clock: what counts is what the program tells its model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_model
import installed
import programs
import pytest
import world
from programs import PROGRAMS, Program
from room import Room, closed
from test_real_programs import run

from toolgate.demo import SERVERS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.filterwarnings("error")]

TIMES = int(os.environ.get("TOOLGATE_FIRST_SESSIONS") or 1)
LATE = float(os.environ.get("TOOLGATE_LATE_SECONDS") or 6)
PROMPT_ENOUGH = 0.2
"""That and the start of an interpreter are within half a second."""

GOAL = ("late__convert_time", {"time": "12:00", "from_timezone": "UTC", "to_timezone": "+02:00"})
QUERY = "convert a time from one timezone to another"
TRUTH = "14:00"


@dataclass(frozen=True)
class Session:
    ended: int
    said: str
    turns: list[dict[str, Any]]
    """The requests to the model that offered any tool."""

    @property
    def first(self) -> set[str]:
        """What of the gateway the first of them offered."""
        tools = self.turns[0]["tools"] if self.turns else []
        return {tool.partition("toolgate")[2].lstrip("_") for tool in tools if "toolgate" in tool}


@dataclass(frozen=True)
class Rig:
    """A gateway's configuration, with a state folder of its own, and what it is like before the session."""

    room: Room
    home: Path
    surface: str
    config: Path

    @classmethod
    def build(cls, room: Room, home: Path, surface: str, seconds: float) -> Rig:
        late = [sys.executable, "-I", "-S", str(installed.HERE / "servers" / "late.py"), str(seconds)]
        commands = {
            "late": [*late, str(SERVERS["clock"])],
            "notes": [sys.executable, "-I", "-S", str(SERVERS["notes"])],
        }
        servers = {name: {"command": command[0], "args": command[1:]} for name, command in commands.items()}
        home.mkdir()
        config = home / "toolgate.json"
        config.write_text(json.dumps({"mcpServers": servers, "state": str(home / "state")}), encoding="utf-8")
        return cls(room, home, surface, config)

    def list(self) -> None:
        command = self.room.enter(world.toolgate("list", "--config", str(self.config)))
        done = subprocess.run(
            command, env=world.environment(self.home / "list"), capture_output=True, text=True, timeout=world.SECONDS,
            check=False,
        )  # fmt: skip
        assert GOAL[0] in done.stdout, done.stdout + done.stderr

    def options(self) -> list[str]:
        return ["--config", str(self.config), *(["--surface", self.surface] if self.surface != "default" else [])]

    def hold(self, program: Program, transport: str) -> Session:
        """One session of a program: what it showed its model, and what came of it."""
        with ExitStack() as until_the_end:
            url = None
            if transport == "http":
                serve = world.toolgate("serve", "--port", "0", *self.options())
                url = until_the_end.enter_context(world.serving(self.room.enter(serve), self.home / "gateway"))
            record = self.home / "model.jsonl"
            play = [str(fake_model.__file__), "--goal", json.dumps(GOAL), "--query", QUERY, "--record", str(record)]
            model = until_the_end.enter_context(
                world.process(self.room.enter([sys.executable, *play]), self.home / "model")
            )
            model_url = world.Lines(model.stdout).until("^(http://.*)$")[1]
            gateway = world.toolgate("stdio", *self.options())
            setting = programs.Setting(self.home, program.found() or [], model_url, url, gateway, patient=False)
            ended, said = run(self.room, *program.start(setting), self.home)
        requests = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        return Session(ended, said, [request for request in requests if "turn" in request])


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with closed() as room:
        yield room


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    found = PROGRAMS[request.param]
    if reason := found.missing():
        pytest.skip(reason)
    return found


@pytest.mark.parametrize("again", range(TIMES))
@pytest.mark.parametrize("surface", ["default", "meta"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
class TestAFirstSession:
    """The model is shown the tool, calls it, and is told the truth."""

    def test_with_nothing_kept_and_prompt_servers(
        self, room: Room, program: Program, transport: str, surface: str, again: int, tmp_path: Path
    ) -> None:
        rig = Rig.build(room, tmp_path / "rig", surface, PROMPT_ENOUGH)
        self.has_called(rig.hold(program, transport), surface)

    def test_after_list_with_a_server_that_takes_long_to_start(
        self, room: Room, program: Program, transport: str, surface: str, again: int, tmp_path: Path
    ) -> None:
        rig = Rig.build(room, tmp_path / "rig", surface, LATE)
        rig.list()
        self.has_called(rig.hold(program, transport), surface)

    @staticmethod
    def has_called(session: Session, surface: str) -> None:
        shown = {"mcp_discover", "mcp_call"} if surface == "meta" else {GOAL[0]}
        assert shown <= session.first, f"the first turn's tools are {sorted(session.first)}\n{session.said}"
        results = session.turns[-1]["results"]
        assert results, session.said
        assert TRUTH in results[-1], results
