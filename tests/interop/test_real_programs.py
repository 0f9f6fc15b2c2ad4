"""Real coding agents in front of a gateway, with a model that plays a script. Nothing here can reach a network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import expected
import fake_model
import installed
import programs
import pytest
import tap
import world
from programs import PROGRAMS, Program
from room import Room, closed

from toolgate.demo import SERVERS, clock, notes

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.filterwarnings("error")]

LEAVING = 20.0  # seconds that what a program started may take to go after it

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("clock__convert_time", {"time": "12:00", "from_timezone": "UTC", "to_timezone": "+02:00"}),
    ("notes__search_notes", {"query": "umbrella"}),
    ("everything__echo", {"message": "ünïcode ✓"}),
    ("everything__get-tiny-image", {}),
    ("clock__convert_time", {"time": "12:00", "from_timezone": "Mars/Base", "to_timezone": "UTC"}),
    ("clock__set_alarm", {"time": "07:30"}),
    ("notes__delete_note", {"id": 1}),
    ("notes__list_notes", {}),
]


def truths(program: Program) -> list[str]:
    """What each call's result must hold, as the program tells its model."""
    return [
        "14:00",
        "Night train to Vienna on Friday. Pack the blue umbrella.",
        "Echo: ünïcode ✓",
        "Here's the image you requested:",
        "convert_time failed: 'No time zone found with key Mars/Base'",
        program.alarm,
        program.deletion,
        "Oats, lemons, coffee beans.",  # the note that was not to be deleted without a question
    ]


@dataclass(frozen=True)
class Visit:
    """One program's run, and what was seen of it from all sides."""

    program: Program
    ended: int
    said: str
    turns: list[dict[str, Any]]
    """The requests to the model that offered the first tool."""
    messages: list[dict[str, Any]]
    """What the program sent to the gateway; seen over HTTP only."""
    remained: list[str]


@dataclass(frozen=True)
class Place:
    """A room with a gateway in it."""

    room: Room
    url: str
    config: Path

    def process(self, command: list[str], home: Path) -> Any:
        return world.process(self.room.enter(command), home)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("gateway")
    servers: dict[str, Any] = {
        name: {"command": sys.executable, "args": ["-I", "-S", str(script)]} for name, script in SERVERS.items()
    }
    node, *arguments = world.everything("stdio")
    servers["everything"] = {"command": node, "args": arguments, "scope": "session"}
    config = home / "toolgate.json"
    config.write_text(json.dumps({"mcpServers": servers, "catalog": {"first_wait": "10s"}}), encoding="utf-8")
    with closed() as room:
        command = world.toolgate("serve", "--config", str(config), "--port", "0")
        with world.serving(room.enter(command), home) as url:
            yield Place(room, url, config)


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    found = PROGRAMS[request.param]
    if reason := found.missing():
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module", params=["http", "stdio"])
def visit(
    request: pytest.FixtureRequest, program: Program, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> Visit:
    home = tmp_path_factory.mktemp(f"{program.name}-{request.param}")
    model_record, wire_record = home / "model.jsonl", home / "wire.jsonl"
    wire_record.touch()
    play = [str(fake_model.__file__), "--calls", json.dumps(CALLS), "--record", str(model_record)]
    listen = [str(tap.__file__), "--to", place.url, "--record", str(wire_record)]
    with (
        place.process([sys.executable, *play], home / "model") as model,
        place.process([sys.executable, *listen], home / "wire") as wire,
    ):
        model_url, wire_url = (world.Lines(each.stdout).until("^(http://.*)$")[1] for each in (model, wire))
        gateway = world.toolgate("stdio", "--config", str(place.config))
        url = wire_url if request.param == "http" else None
        setting = programs.Setting(home, program.found() or [], model_url, url, gateway)
        before = place.room.inhabitants()
        ended, said = run(place.room, *program.start(setting), home)
        remained = place.room.remaining(before, LEAVING)
    requests = [json.loads(line) for line in model_record.read_text(encoding="utf-8").splitlines()]
    turns = [request for request in requests if "turn" in request]
    return Visit(program, ended, said, turns, list(tap.sent(wire_record)), remained)


def run(room: Room, command: list[str], env: dict[str, str], home: Path) -> tuple[int, str]:
    """Run one program to its end: its exit status, and all that it wrote."""
    folder = home / "project"
    folder.mkdir()
    started = subprocess.Popen(
        room.enter(command),
        cwd=folder, env=world.environment(home) | room.env | env, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
    )  # fmt: skip
    try:
        said, _ = started.communicate(timeout=world.SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        said, _ = started.communicate(timeout=world.SECONDS)
        said += f"\n(It had to be killed after {world.SECONDS} s.)"
    return started.returncode, said


def test_the_room_has_no_way_out(place: Place) -> None:
    if place.room.open_because:
        pytest.skip(f"the room is only shut by proxies: {place.room.open_because}")
    attempt = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    command = place.room.enter([sys.executable, "-c", attempt])
    done = subprocess.run(command, capture_output=True, text=True, timeout=world.SECONDS, check=False)
    assert "Network is unreachable" in done.stderr


class TestAnAgent:
    def test_it_ends_well_and_says_what_the_model_said(self, visit: Visit) -> None:
        assert visit.ended == 0, visit.said
        assert "The tools said:" in visit.said
        assert "Night train to Vienna on Friday. Pack the blue umbrella." in visit.said

    def test_the_model_is_offered_exactly_the_tools_of_the_gateway(self, visit: Visit) -> None:
        everything = expected.everything_tools() | visit.program.declares
        offered = {"clock": set(clock.TOOLS), "notes": set(notes.TOOLS), "everything": everything}
        wanted = {fake_model.plain(f"{server}__{tool}") for server, tools in offered.items() for tool in tools}
        shown = [fake_model.plain(tool) for tool in visit.turns[-1]["tools"]]
        ours = {tool.partition("toolgate")[2].lstrip("_") for tool in shown if "toolgate" in tool}
        assert ours == wanted

    def test_the_true_results_come_back_to_the_model(self, visit: Visit) -> None:
        results = visit.turns[-1]["results"]
        assert len(results) == len(CALLS), visit.said
        for (tool, _), result, truth in zip(CALLS, results, truths(visit.program), strict=True):
            assert truth in result, tool

    def test_each_call_is_made_once(self, visit: Visit) -> None:
        assert [turn["turn"] for turn in visit.turns] == list(range(len(CALLS) + 1))

    def test_nothing_that_it_started_remains(self, visit: Visit) -> None:
        assert visit.remained == []

    @pytest.mark.parametrize("visit", ["http"], indirect=True, scope="module")  # over stdio nobody listens in
    def test_it_speaks_its_own_revision_to_the_gateway(self, visit: Visit) -> None:
        opening = visit.messages[0]
        assert visit.program.client in json.dumps(opening)
        assert installed.pinned_version(visit.program.name) in json.dumps(opening)
        assert opening["method"] == ("server/discover" if visit.program.speaks == world.MODERN else "initialize")
        assert visit.program.speaks in json.dumps(opening)
        methods = [message.get("method") for message in visit.messages]
        assert "tools/list" in methods
        assert methods.count("tools/call") >= len(CALLS)
