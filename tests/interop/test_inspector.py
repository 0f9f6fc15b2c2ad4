"""The MCP Inspector's command line in each of its eras: what comes out through a gateway is what the servers offer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import installed
import programs
import pytest
import tap
import world
from room import Room, closed

from toolgate.demo import SERVERS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

Json = dict[str, Any]

ERAS = {"legacy": "initialize", "auto": "server/discover", "modern": "server/discover"}
"""Each with the request that opens the conversation."""
LISTS = {
    "tools/list": ("tools", "name", "__"),
    "prompts/list": ("prompts", "name", "__"),
    "resources/list": ("resources", "uri", "+"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "+"),
}
"""Each with its member, and what the gateway puts the server's name before, and how."""
SPOKEN = {"clock": "legacy", "notes": "modern", "everything": "legacy"}
NOT_OFFERED = "Method not found"
UNKNOWN = {"legacy": set(), "auto": {"execution"}, "modern": {"execution"}}
"""What the Inspector leaves out of a tool because the revision that it speaks then does not know it."""


@dataclass(frozen=True)
class Inspector:
    """Runs the Inspector against one server, in one era."""

    room: Room
    home: Path
    target: list[str]
    era: str

    def ask(self, method: str, *options: str) -> Json:
        """The envelope that it prints: a result or an error."""
        asked = ["--protocol-era", self.era, "--method", method, "--format", "json", *options]
        done = subprocess.run(
            self.room.enter([*programs.inspector(), *self.target, *asked]),
            env=world.environment(self.home) | self.room.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, encoding="utf-8", timeout=world.SECONDS, check=False,
        )  # fmt: skip
        envelope = json.loads(done.stdout.strip() or done.stderr.strip().splitlines()[-1])
        assert (done.returncode == 0) is ("result" in envelope and not envelope["result"].get("isError")), done
        return envelope

    def tools(self) -> list[Json]:
        """With `--strict` it would fail if it had anything to say against one."""
        return in_order(self.ask("tools/list", "--strict")["result"]["tools"])


@dataclass(frozen=True)
class Place:
    room: Room
    home: Path
    url: str
    servers: dict[str, list[str]]
    """The commands of the servers behind the gateway."""
    config: Path
    """An MCP client's configuration with one entry: a gateway as a child."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if reason := installed.missing_program(programs.INSPECTOR):
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("inspector")
    servers = {name: [sys.executable, "-I", "-S", str(script)] for name, script in SERVERS.items()}
    servers["everything"] = world.everything("stdio")
    entries = {name: {"command": first, "args": rest} for name, (first, *rest) in servers.items()}
    entries["everything"]["scope"] = "session"
    ours = write(home / "toolgate.json", entries)
    first, *rest = world.toolgate("stdio", "--config", str(ours))
    theirs = write(home / "mcp.json", {programs.SERVER: {"type": "stdio", "command": first, "args": rest}})
    with closed() as room:
        command = world.toolgate("serve", "--config", str(ours), "--port", "0")
        with world.serving(room.enter(command), home / "gateway") as url:
            yield Place(room, home, url, servers, theirs)


def write(path: Path, servers: Json) -> Path:
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def direct(place: Place) -> Callable[[str, str], list[Json]]:
    """One list of one server without a gateway, named as the gateway names it; asked once."""
    known: dict[tuple[str, str], list[Json]] = {}

    def ask(server: str, method: str) -> list[Json]:
        if (server, method) not in known:
            target = [*place.servers[server], "--transport", "stdio"]
            envelope = Inspector(place.room, place.home, target, SPOKEN[server]).ask(method)
            member, name, mark = LISTS[method]
            offered = envelope["result"][member] if "result" in envelope else none_of(envelope)
            known[server, method] = [one | {name: f"{server}{mark}{one[name]}"} for one in offered]
        return known[server, method]

    return ask


def in_order(listed: list[Json]) -> list[Json]:
    return sorted(listed, key=lambda one: json.dumps(one, sort_keys=True))


def none_of(envelope: Json) -> list[Json]:
    assert NOT_OFFERED in envelope["error"]["message"], envelope
    return []


def needs_no_task(one: Json) -> Json:
    """Through the gateway no tool needs a client that knows tasks (docs/protocol-tasks.md)."""
    needs = one.get("execution", {}).get("taskSupport") == "required"
    return one | {"execution": {**one["execution"], "taskSupport": "optional"}} if needs else one


def offered(direct: Callable[[str, str], list[Json]], method: str, era: str) -> list[Json]:
    """One list of all servers, as the Inspector shows it when it speaks so."""
    shown = (needs_no_task(one) for server in SPOKEN for one in direct(server, method))
    return in_order([{key: value for key, value in one.items() if key not in UNKNOWN[era]} for one in shown])


@pytest.fixture(scope="module", params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def over_http(place: Place, era: str) -> Iterator[tuple[Inspector, Path]]:
    """The Inspector at a wire that leads to the gateway, and what is written down there."""
    record = place.home / f"{era}.jsonl"
    command = [sys.executable, str(tap.__file__), "--to", place.url, "--record", str(record)]
    with world.process(place.room.enter(command), place.home) as wire:
        url = world.Lines(wire.stdout).until("^(http://.*)$")[1]
        yield Inspector(place.room, place.home, [url, "--transport", "http"], era), record


@pytest.fixture(scope="module")
def inspector(over_http: tuple[Inspector, Path]) -> Inspector:
    return over_http[0]


@pytest.fixture(scope="module")
def over_stdio(place: Place, era: str) -> Inspector:
    return Inspector(place.room, place.home, ["--config", str(place.config), "--server", programs.SERVER], era)


class TestTheInspector:
    def test_the_tools_of_the_servers_come_out_and_pass_its_checks(
        self, inspector: Inspector, direct: Callable[[str, str], list[Json]]
    ) -> None:
        assert inspector.tools() == offered(direct, "tools/list", inspector.era)

    @pytest.mark.parametrize("method", [method for method in LISTS if method != "tools/list"])
    def test_what_else_the_servers_offer_comes_out(
        self, inspector: Inspector, direct: Callable[[str, str], list[Json]], method: str
    ) -> None:
        listed = inspector.ask(method)["result"][LISTS[method][0]]
        assert in_order(listed) == offered(direct, method, inspector.era)

    def test_the_conversation_is_of_that_era(self, over_http: tuple[Inspector, Path]) -> None:
        inspector, record = over_http
        inspector.ask("tools/call", "--tool-name", "clock__now")
        methods = [message["method"] for message in tap.sent(record) if "method" in message]
        assert {"initialize", "server/discover"}.intersection(methods) == {ERAS[inspector.era]}
        assert "tools/call" in methods

    def test_a_tool_of_a_legacy_server_answers(self, inspector: Inspector) -> None:
        arguments = json.dumps({"time": "12:00", "from_timezone": "UTC", "to_timezone": "+02:00"})
        options = ("--tool-name", "clock__convert_time", "--tool-args-json", arguments)
        result = inspector.ask("tools/call", *options)["result"]
        assert result["structuredContent"]["time"] == "14:00"
        assert result["content"][0]["text"].endswith("14:00 +02:00.")

    def test_a_tool_of_a_modern_server_answers(self, inspector: Inspector) -> None:
        result = inspector.ask("tools/call", "--tool-name", "notes__search_notes", "--tool-arg", "query=umbrella")
        (note,) = result["result"]["structuredContent"]["notes"]
        assert note["title"] == "Trip"

    def test_a_tool_that_fails_says_why(self, inspector: Inspector) -> None:
        result = inspector.ask("tools/call", "--tool-name", "clock__now", "--tool-arg", "timezone=Mars/Base")["result"]
        assert result["isError"] is True
        assert result["content"][0]["text"] == "now failed: 'No time zone found with key Mars/Base'"

    def test_a_client_that_cannot_be_asked_is_told_so(self, inspector: Inspector) -> None:
        envelope = inspector.ask("tools/call", "--tool-name", "notes__delete_note", "--tool-arg", "id=1")
        assert envelope["error"]["message"] == programs.CANNOT_BE_ASKED

    @pytest.mark.parametrize(
        ("uri", "start"), [("notes+note://2", "# Trip\n"), ("clock+clock://alarms", "No alarms are set.")]
    )
    def test_a_resource_is_read(self, inspector: Inspector, uri: str, start: str) -> None:
        (content,) = inspector.ask("resources/read", "--uri", uri)["result"]["contents"]
        assert content["uri"] == uri
        assert content["text"].startswith(start)

    def test_a_resource_that_is_not_there_is_an_error(self, inspector: Inspector) -> None:
        envelope = inspector.ask("resources/read", "--uri", "clock+clock://nothing")
        assert envelope["error"]["message"] == "Resource not found"

    @pytest.mark.parametrize(
        ("name", "argument", "words"),
        [
            ("clock__plan_day", "focus=rest", "Plan the rest of my day around: rest"),
            ("notes__review_notes", "goal=trips", "Review my notes for trips."),
        ],
    )
    def test_a_prompt_is_got(self, inspector: Inspector, name: str, argument: str, words: str) -> None:
        result = inspector.ask("prompts/get", "--prompt-name", name, "--prompt-args", argument)["result"]
        assert words in result["messages"][0]["content"]["text"]

    def test_the_same_through_stdio(self, over_stdio: Inspector, direct: Callable[[str, str], list[Json]]) -> None:
        assert over_stdio.tools() == offered(direct, "tools/list", over_stdio.era)
        result = over_stdio.ask("tools/call", "--tool-name", "everything__echo", "--tool-arg", "message=ünïcode ✓")
        assert result["result"]["content"] == [{"type": "text", "text": "Echo: ünïcode ✓"}]
