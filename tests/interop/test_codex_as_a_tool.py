"""The real Codex behind a gateway: prompts, threads, and what it may do, with a model that plays a script.

The client is a pipe of `toolgate stdio`, whose user is asked before Codex runs, and where Codex asks for more. Nothing
here can reach a network.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_model
import pytest
import world
from programs import PROGRAMS
from room import Room, closed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

Json = dict[str, Any]
LEAVING = 20.0  # seconds that what a gateway has started may take to go with it
CODEX = PROGRAMS["codex-0.169"]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
FORMS: Json = {"elicitation": {"form": {}}}


class Pipe:
    """A client of `toolgate stdio` of one era; `decides` answers what its user is asked."""

    def __init__(self, process: Any, era: str, decides: Callable[[str], str]) -> None:
        self._process = process
        self._lines = world.Lines(process.stdout)
        self._era = era
        self._ids = itertools.count(1)
        self.decides = decides
        self.asked: list[str] = []
        if era == LEGACY:
            info = {"name": "pipe", "version": "1"}
            self._answer("initialize", protocolVersion=LEGACY, capabilities=FORMS, clientInfo=info)
            self._write({"method": "notifications/initialized"})

    def _write(self, message: Json) -> None:
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def _answer(self, method: str, **params: Any) -> Json:
        id = next(self._ids)
        self._write({"id": id, "method": method, "params": params})
        while True:
            message = json.loads(self._lines.until(r"^\{.*").string)
            if message.get("method") == "elicitation/create":
                self._write({"id": message["id"], "result": self._decided(message["params"])})
            elif message.get("id") == id:
                return message

    def _decided(self, question: Json) -> Json:
        self.asked.append(question["message"])
        return {"action": "accept", "content": {"decision": self.decides(question["message"])}}

    def request(self, method: str, **params: Any) -> Json:
        if self._era == LEGACY:
            return self._answer(method, **params)["result"]
        envelope = {META + "protocolVersion": MODERN, META + "clientCapabilities": FORMS}
        more: Json = {}
        while True:
            result = self._answer(method, **params, **more, _meta=envelope)["result"]
            if result.get("resultType") != "input_required":
                return result
            questions = result.get("inputRequests", {})
            answers = {key: self._decided(each["params"]) for key, each in questions.items()}
            more = {"inputResponses": answers, "requestState": result.get("requestState")}

    def call(self, tool: str, **arguments: Any) -> Json:
        result = self.request("tools/call", name=tool, arguments=arguments)
        return json.loads(result["content"][0]["text"])


def yes(_question: str) -> str:
    return "once"


def only_the_call(question: str) -> str:
    return "deny" if question.startswith("Codex asks") else "once"


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    if reason := CODEX.missing():
        pytest.skip(reason)
    with closed() as found:
        yield found


@contextmanager
def running(room: Room, home: Path, era: str, calls: Any, **settings: Any) -> Iterator[Pipe]:
    """A gateway with Codex, and a model that makes these calls."""
    home.mkdir()
    record = home / "model.jsonl"
    play = [str(fake_model.__file__), "--calls", json.dumps(calls), "--record", str(record)]
    before = room.inhabitants()
    with world.process(room.enter([sys.executable, *play]), home / "model") as model:
        url = world.Lines(model.stdout).until("^(http://.*)$")[1]
        write_codex_config(home, url)
        [executable] = CODEX.found() or []
        config = home / "toolgate.json"
        codex = {"enabled": True, "command": executable, **settings}
        config.write_text(json.dumps({"mcpServers": {}, "codex": codex}), encoding="utf-8")
        command = world.toolgate("stdio", "--surface", "daemon", "--config", str(config))
        with world.process(room.enter(command), home) as gateway:
            yield Pipe(gateway, era, yes)
            gateway.stdin.close()
            gateway.wait(world.SECONDS)
    assert not room.remaining(before, LEAVING)


def write_codex_config(home: Path, url: str) -> None:
    folder = Path(world.environment(home)["HOME"], ".codex")
    folder.mkdir()
    (folder / "config.toml").write_text(
        "\n".join(
            (
                'model = "scripted"',
                'model_provider = "fake"',
                "check_for_update_on_startup = false",
                'approval_policy = "never"',  # and what it is told in a call counts all the same
                'sandbox_mode = "danger-full-access"',
                "[analytics]",
                "enabled = false",
                "[feedback]",
                "enabled = false",
                "[model_providers.fake]",
                'name = "fake"',
                f'base_url = "{url}/v1"',
                'wire_api = "responses"',
            )
        )
    )


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_it_runs_a_prompt_goes_on_with_it_lists_it_and_archives_it(room: Room, tmp_path: Path, era: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    calls = [["exec_command", {"cmd": "echo from codex > made.txt; cat made.txt"}]]
    with running(room, tmp_path / "home", era, calls) as pipe:
        first = pipe.call("codex", prompt="Make a file.", cwd=str(project))
        assert first["success"] is True, first
        assert "from codex" in first["result"]
        assert (project / "made.txt").read_text() == "from codex\n"
        [command] = [each for each in first["items"] if each["type"] == "command"]
        assert "made.txt" in command["command"] and command["exit_code"] == 0
        assert "Make a file." in pipe.asked[0] and str(project) in pipe.asked[0] and "workspace-write" in pipe.asked[0]

        again = pipe.call("codex", prompt="And once more.", thread_id=first["thread_id"])
        assert (again["success"], again["thread_id"], again["cwd"]) == (True, first["thread_id"], str(project)), again
        assert "from codex" in again["result"]  # the model is shown what was before

        listed = pipe.call("codex_list_threads", limit=5)
        assert [each["thread_id"] for each in listed["threads"]] == [first["thread_id"]]
        assert listed["threads"][0]["preview"] == "Make a file."
        gone = pipe.call("codex_archive_thread", thread_id=first["thread_id"])
        assert gone == {"success": True, "thread_id": first["thread_id"], "archived": True}
        assert pipe.call("codex_list_threads", limit=6)["threads"] == []
        missing = pipe.call("codex", prompt="Still there?", thread_id=first["thread_id"])
        assert "is archived" in missing["error"], missing
        assert len(pipe.asked) == 6


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("decides", [yes, only_the_call])
def test_what_it_asks_on_the_way_its_user_decides(
    room: Room, tmp_path: Path, era: str, decides: Callable[[str], str]
) -> None:
    outside = tmp_path / "outside.txt"
    wants = {"cmd": f"touch {outside}", "sandbox_permissions": "require_escalated", "justification": "a test"}
    with running(room, tmp_path / "home", era, [["exec_command", wants]]) as pipe:
        pipe.decides = decides
        told = pipe.call("codex", prompt="Leave the sandbox.", cwd=str(tmp_path))
        assert told["success"] is True, told
        assert str(outside) in pipe.asked[1]
        assert outside.exists() is (decides is yes)
        assert bool(told.get("declined")) is (decides is not yes)


def test_no_configuration_of_its_own_gives_it_more_than_it_was_allowed(room: Room, tmp_path: Path) -> None:
    """Its file says `never` and `danger-full-access`."""
    outside = Path("/var/tmp/toolgate-codex-outside")
    outside.unlink(missing_ok=True)
    with running(room, tmp_path / "home", LEGACY, [["exec_command", {"cmd": f"touch {outside}"}]]) as pipe:
        for sandbox in ("workspace-write", "read-only"):
            told = pipe.call("codex", prompt="Leave the sandbox.", sandbox=sandbox, cwd=str(tmp_path))
            assert told["success"] is True, told
            assert "Read-only file system" in told["result"] and not outside.exists(), told
        wider = pipe.call("codex", prompt="Leave the sandbox.", sandbox="danger-full-access")
        assert wider["error_type"] == "PermissionError"
