"""The demo servers, as real processes: what they say is valid in their revision, and a client of either era can use it.

Every message that a server writes is validated against the official schema of its revision as it arrives.
"""

from __future__ import annotations

import ast
import functools
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import anyio
import jsonschema_rs
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

from toolgate.demo import SERVERS

Json = dict[str, Any]

WAIT = 20.0
SPEC = Path(__file__).parents[2] / "spec"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
BARE = [sys.executable, "-I", "-S"]  # no site-packages and no path of ours: the script must stand alone

RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
}
MESSAGES = {
    "notifications/message": "LoggingMessageNotification",
    "notifications/progress": "ProgressNotification",
    "notifications/cancelled": "CancelledNotification",
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "elicitation/create": "ElicitRequest",
}
ERRORS = {-32021: "MissingRequiredClientCapabilityError", -32022: "UnsupportedProtocolVersionError"}
FORM = {"elicitation": {}}


@functools.cache
def validator(revision: str, definition: str) -> Any:
    schema: Json = json.loads((SPEC / f"{revision}.schema.json").read_text("utf-8"))
    place = "$defs" if "$defs" in schema else "definitions"
    return jsonschema_rs.validator_for({**schema, "$ref": f"#/{place}/{definition}"}, validate_formats=True)


class Server:
    """A demo server, run as a process, and what a client knows of it. Whatever it says is validated."""

    def __init__(self, name: str, revision: str, command: list[str] | None = None) -> None:
        self.revision = revision
        self.complaints = ""
        self._requests: dict[str | int, str] = {}
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._process = subprocess.Popen(
            command or [*BARE, str(SERVERS[name])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            code = self.end()
        finally:
            self._process.kill()
            self._process.wait(WAIT)
            self._reader.join(WAIT)
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                assert pipe
                pipe.close()
        if not kind:
            assert (code, self.complaints) == (0, ""), "it ends by itself, and has nothing to complain about"

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def end(self) -> int:
        """Close its stdin, and wait for it to end."""
        assert self._process.stdin and self._process.stderr
        if not self._process.stdin.closed:
            self._process.stdin.close()
            self._process.wait(WAIT)
            self._reader.join(WAIT)
            self.complaints = self._process.stderr.read().decode()
        return self._process.wait(WAIT)

    def write(self, line: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def send(self, message: Json) -> None:
        if "id" in message and "method" in message:
            self._requests[message["id"]] = message["method"]
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def receive(self) -> Json:
        """The next message; {} at the end."""
        line = self._lines.get(timeout=WAIT)
        if not line:
            return {}
        message: Json = json.loads(line)
        validator(self.revision, "JSONRPCMessage").validate(message)
        validator(self.revision, self._definition(message)).validate(message.get("result", message))
        return message

    def _definition(self, message: Json) -> str:
        if "method" in message:
            return MESSAGES[message["method"]]
        if "error" in message:
            plain = "JSONRPCError" if self.revision < "2025-11-25" else "JSONRPCErrorResponse"
            return ERRORS.get(message["error"]["code"], plain)
        if message["result"].get("resultType") == "input_required":
            return "InputRequiredResult"
        return RESULTS[self._requests[message["id"]]]

    def request(self, key: str | int, method: str, **params: Any) -> Json:
        """The response, which must be the next thing that the server says."""
        self.send({"id": key, "method": method, "params": params})
        response = self.receive()
        assert response["id"] == key
        return response

    def call(self, key: str | int, tool: str, **arguments: Any) -> Json:
        response = self.request(key, "tools/call", name=tool, arguments=arguments)
        return response.get("result", response)


class Modern(Server):
    """The same, with the envelope that every request of 2026-07-28 needs."""

    def __init__(self, name: str, capabilities: Json | None = None, command: list[str] | None = None) -> None:
        super().__init__(name, MODERN, command)
        self.meta: Json = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": capabilities or {}}

    def request(self, key: str | int, method: str, **params: Any) -> Json:
        return super().request(key, method, **{"_meta": self.meta, **params})

    def answer(self, key: str | int, asked: Json, answer: Json, tool: str = "delete_note", **arguments: Any) -> Json:
        """Call again, with an answer to what was asked."""
        [name] = asked["inputRequests"]
        more = {"requestState": asked["requestState"], "inputResponses": {name: answer}}
        response = self.request(key, "tools/call", name=tool, arguments=arguments, **more)
        return response.get("result", response)


def started_clock(revision: str = HANDSHAKE[-1], capabilities: Json | None = None) -> Server:
    server = Server("clock", revision)
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": info}
    result = server.request(0, "initialize", **params)["result"]
    assert result["protocolVersion"] == revision
    server.send({"method": "notifications/initialized"})
    return server


def text_of(result: Json) -> str:
    return result["content"][0]["text"]


def check_tools(tools: list[Json], reading: set[str]) -> None:
    for tool in tools:
        assert tool["title"] and tool["description"]
        for schema in filter(None, (tool["inputSchema"], tool.get("outputSchema"))):
            jsonschema_rs.meta.validate(schema)
    assert {tool["name"] for tool in tools if tool["annotations"]["readOnlyHint"]} == reading


# How they run.


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_ends_when_its_stdin_ends(name: str) -> None:
    with Server(name, MODERN) as server:
        assert server.end() == 0
        assert server.receive() == {}


@pytest.mark.parametrize(("name", "revision"), [("clock", HANDSHAKE[-1]), ("notes", MODERN)])
def test_a_server_also_runs_as_a_module(name: str, revision: str) -> None:
    with Server(name, revision, [sys.executable, "-m", f"toolgate.demo.{name}"]) as server:
        assert server.request(1, "initialize", protocolVersion="2025-11-25", capabilities={})


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_imports_nothing_but_the_standard_library(name: str) -> None:
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(SERVERS[name].read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {module.partition(".")[0] for module in imported} <= sys.stdlib_module_names


# The clock.


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_all_that_the_clock_says_is_valid_in_every_handshake_revision(revision: str) -> None:
    with started_clock(revision) as clock:
        tools = clock.request(1, "tools/list")["result"]["tools"]
        check_tools(tools, reading={"now", "convert_time", "countdown"})
        assert clock.request(2, "ping")["result"] == {}
        assert clock.request(3, "resources/list")["result"]["resources"]
        assert clock.request(4, "resources/templates/list")["result"]["resourceTemplates"]
        assert clock.request(5, "prompts/list")["result"]["prompts"]
        assert clock.request(6, "resources/read", uri="clock://now")["result"]["contents"]
        assert clock.request(7, "logging/setLevel", level="debug")["result"] == {}
        assert "Lift-off" in str(clock.request(8, "prompts/get", name="plan_day", arguments={"focus": "Lift-off"}))
        assert text_of(clock.call(9, "now")).endswith("UTC")
        assert clock.request(10, "prompts/get", name="nothing")["error"]["code"] == -32602
        clock.send({"id": 11, "method": "tools/call", "params": {"name": "countdown", "_meta": {"progressToken": "p"}}})
        said = [clock.receive() for _ in range(11)]
        assert text_of(said[-1]["result"]) == "Lift-off after 5 steps."
        assert {message.get("method") for message in said[:-1]} == {"notifications/message", "notifications/progress"}


def test_the_clock_offers_its_newest_revision_to_a_client_of_an_unknown_one() -> None:
    with Server("clock", HANDSHAKE[-1]) as clock:
        params = {"protocolVersion": "2099-01-01", "capabilities": {}}
        assert clock.request(1, "initialize", **params)["result"]["protocolVersion"] == "2025-11-25"


def test_the_clock_does_not_know_server_discover() -> None:
    with Server("clock", HANDSHAKE[-1]) as clock:
        meta = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
        assert clock.request(1, "server/discover", _meta=meta)["error"]["code"] == -32601


def test_the_clock_runs_no_tool_before_the_handshake() -> None:
    with Server("clock", HANDSHAKE[-1]) as clock:
        assert clock.call(1, "now")["error"]["code"] == -32600


def test_a_converted_time_fits_the_output_schema() -> None:
    with started_clock() as clock:
        tools = {tool["name"]: tool for tool in clock.request(1, "tools/list")["result"]["tools"]}
        zones = {"from_timezone": "+05:30", "to_timezone": "-08:00"}
        result = clock.call(2, "convert_time", time="12:00", **zones)
        jsonschema_rs.validate(tools["convert_time"]["outputSchema"], result["structuredContent"])
        assert result["structuredContent"]["time"] == "22:30"
        assert result["structuredContent"]["date"] in text_of(result)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("now", {"timezone": "Mars/Olympus"}),
        ("now", {"timezone": "../../etc/passwd"}),
        ("now", {"surprise": 1}),
        ("convert_time", {"time": "25:99", "from_timezone": "UTC", "to_timezone": "UTC"}),
        ("convert_time", {"time": "12:00"}),
        ("countdown", {"steps": 0}),
        ("countdown", {"steps": "three"}),
        ("set_alarm", {"time": "soon"}),
    ],
)
def test_bad_arguments_are_a_result_that_the_model_can_read(tool: str, arguments: Json) -> None:
    with started_clock(capabilities=FORM) as clock:
        result = clock.call(1, tool, **arguments)
        assert result["isError"] is True
        assert text_of(result).startswith(f"{tool} failed: ")


def test_an_unknown_tool_and_broken_params_are_errors() -> None:
    with started_clock() as clock:
        assert clock.call(1, "fly")["error"]["code"] == -32602
        assert clock.request(2, "tools/call")["error"]["code"] == -32602
        assert clock.request(3, "logging/setLevel", level="loud")["error"]["code"] == -32602
        assert clock.request(4, "no/such/method")["error"]["code"] == -32601


def test_an_unknown_resource_has_the_error_code_of_its_revision() -> None:
    with started_clock() as clock:
        for key, uri in enumerate(["clock://then", "clock://nowhere", "clock://now/Mars/Olympus"], 1):
            error = clock.request(key, "resources/read", uri=uri)["error"]
            assert (error["code"], error["data"]) == (-32002, {"uri": uri})


def test_the_template_of_the_clock_takes_a_timezone() -> None:
    with started_clock() as clock:
        [content] = clock.request(1, "resources/read", uri="clock://now/+05:30")["result"]["contents"]
        assert content["text"].endswith("+05:30")


def test_progress_is_reported_only_when_it_was_asked_for_and_rises() -> None:
    with started_clock() as clock:
        clock.request(1, "logging/setLevel", level="warning")
        assert text_of(clock.call(2, "countdown", steps=2)) == "Lift-off after 2 steps."
        params = {"name": "countdown", "arguments": {"steps": 3}, "_meta": {"progressToken": 7}}
        clock.send({"id": 3, "method": "tools/call", "params": params})
        reports = [clock.receive()["params"] for _ in range(3)]
        assert [(report["progressToken"], report["progress"], report["total"]) for report in reports] == [
            (7, 1, 3),
            (7, 2, 3),
            (7, 3, 3),
        ]
        assert clock.receive()["id"] == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"action": "accept", "content": {"label": "Tea"}},
            'The user answered accept with {"label": "Tea"}: alarm "Tea" is set for 07:30.',
        ),
        ({"action": "decline"}, 'The user answered decline: alarm "Alarm" is set for 07:30.'),
        ({"action": "cancel"}, "The user answered cancel: no alarm is set."),
    ],
)
@pytest.mark.parametrize("revision", HANDSHAKE[2:])
def test_an_alarm_asks_for_its_label_and_says_what_the_answer_was(revision: str, answer: Json, said: str) -> None:
    with started_clock(revision, FORM) as clock:
        clock.send({"id": 1, "method": "tools/call", "params": {"name": "set_alarm", "arguments": {"time": "07:30"}}})
        question = clock.receive()
        assert question["method"] == "elicitation/create"
        assert clock.request(2, "ping")["result"] == {}, "it serves others while it waits"
        clock.send({"id": question["id"], "result": answer})
        assert text_of(clock.receive()["result"]) == said
        [alarms] = clock.request(3, "resources/read", uri="clock://alarms")["result"]["contents"]
        assert alarms["text"] == {"accept": "07:30 Tea", "decline": "07:30 Alarm"}.get(
            answer["action"], "No alarms are set."
        )


@pytest.mark.parametrize(
    ("revision", "capabilities"),
    [("2025-11-25", {}), ("2025-11-25", {"elicitation": {"url": {}}}), ("2025-03-26", FORM)],
)
def test_a_client_that_cannot_show_a_form_is_not_asked(revision: str, capabilities: Json) -> None:
    with started_clock(revision, capabilities) as clock:
        said = text_of(clock.call(1, "set_alarm", time="07:30"))
        assert said == 'The client cannot be asked: alarm "Alarm" is set for 07:30.'


def test_a_client_that_fails_to_ask_makes_the_call_fail() -> None:
    with started_clock(capabilities=FORM) as clock:
        clock.send({"id": 1, "method": "tools/call", "params": {"name": "set_alarm", "arguments": {"time": "07:30"}}})
        clock.send({"id": clock.receive()["id"], "error": {"code": -32603, "message": "no screen"}})
        result = clock.receive()["result"]
        assert result["isError"] is True
        assert "no screen" in text_of(result)


def test_questions_that_wait_together_get_their_own_answers() -> None:
    with started_clock(capabilities=FORM) as clock:
        asked: dict[str, str] = {}
        for key, time in enumerate(["07:30", "08:45"], 1):
            arguments = {"name": "set_alarm", "arguments": {"time": time}}
            clock.send({"id": key, "method": "tools/call", "params": arguments})
            asked[time] = clock.receive()["id"]
        for time in ("08:45", "07:30"):
            clock.send({"id": asked[time], "result": {"action": "accept", "content": {"label": f"for {time}"}}})
            assert f'alarm "for {time}" is set for {time}' in text_of(clock.receive()["result"])


def test_a_cancelled_call_withdraws_its_question_and_is_not_answered() -> None:
    with started_clock(capabilities=FORM) as clock:
        clock.send({"id": 1, "method": "tools/call", "params": {"name": "set_alarm", "arguments": {"time": "07:30"}}})
        question = clock.receive()["id"]
        clock.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        withdrawn = clock.receive()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question)
        assert clock.request(2, "ping")["result"] == {}
        assert clock.end() == 0
        assert clock.receive() == {}


def test_a_cancelled_countdown_stops() -> None:
    with started_clock() as clock:
        params = {"name": "countdown", "arguments": {"steps": 100}}
        clock.send({"id": 1, "method": "tools/call", "params": params})
        assert clock.receive()["params"]["data"] == "99 to go"
        clock.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        clock.send({"id": 2, "method": "ping"})
        rest = list(iter(clock.receive, {"jsonrpc": "2.0", "id": 2, "result": {}}))
        assert clock.end() == 0
        while message := clock.receive():
            rest.append(message)
        assert len(rest) < 99
        assert not any("id" in message for message in rest)


def test_stdin_may_end_while_a_call_waits_for_the_user() -> None:
    with started_clock(capabilities=FORM) as clock:
        clock.send({"id": 1, "method": "tools/call", "params": {"name": "set_alarm", "arguments": {"time": "07:30"}}})
        assert clock.receive()["method"] == "elicitation/create"
        assert clock.end() == 0


def test_the_clock_takes_a_batch_as_2025_03_26_demands() -> None:
    with started_clock("2025-03-26") as clock:
        pings = [{"jsonrpc": "2.0", "id": key, "method": "ping"} for key in (1, 2)]
        clock._requests |= {1: "ping", 2: "ping"}
        clock.write(json.dumps(pings).encode())
        assert [clock.receive()["id"], clock.receive()["id"]] == [1, 2]


def test_the_clock_survives_what_is_no_message_and_says_so_on_stderr() -> None:
    lines = (
        b"",
        b"no json",
        b"\xff",
        b"[1]",
        b"null",
        b"[" * 100_000,
        b'{"id": 5}',
        b'{"method": "notifications/cancelled"}',
    )
    with started_clock() as clock:
        for line in lines:
            clock.write(line)
        assert clock.request(1, "ping")["result"] == {}
        assert clock.end() == 0
        assert clock.complaints.count("clock: ignored") == len(lines)
        clock.complaints = ""


# The notes.


def test_all_that_the_notes_say_is_valid_and_may_be_cached_as_said() -> None:
    with Modern("notes") as notes:
        found = notes.request(0, "server/discover")["result"]
        assert found["supportedVersions"] == [MODERN]
        tools = notes.request(1, "tools/list")["result"]
        check_tools(tools["tools"], reading={"list_notes", "search_notes", "summarize"})
        [deleting] = [tool for tool in tools["tools"] if tool["name"] == "delete_note"]
        assert deleting["annotations"]["destructiveHint"] is True
        templates = notes.request(2, "resources/templates/list")["result"]
        prompts = notes.request(3, "prompts/list")["result"]
        for result in (found, tools, templates, prompts):
            assert (result["ttlMs"], result["cacheScope"]) == (3_600_000, "public")
            assert result["_meta"][PREFIX + "serverInfo"]["name"] == "notes"
        listed = notes.request(4, "resources/list")["result"]
        read = notes.request(5, "resources/read", uri="note://2")["result"]
        for result in (listed, read):
            assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert [resource["uri"] for resource in listed["resources"]] == ["note://1", "note://2", "note://3"]
        assert "umbrella" in read["contents"][0]["text"]
        prompt = notes.request(6, "prompts/get", name="review_notes", arguments={"goal": "typos"})["result"]
        assert [message["content"]["type"] for message in prompt["messages"]] == ["text", *["resource"] * 3]


@pytest.mark.parametrize("lacking", ["protocolVersion", "clientCapabilities"])
def test_a_request_without_its_envelope_is_refused(lacking: str) -> None:
    with Modern("notes") as notes:
        del notes.meta[PREFIX + lacking]
        error = notes.request(1, "tools/list")["error"]
        assert error["code"] == -32602
        assert lacking in error["message"]


def test_a_request_of_another_version_is_told_which_one_is_served() -> None:
    with Modern("notes") as notes:
        notes.meta[PREFIX + "protocolVersion"] = "2027-01-01"
        error = notes.request(1, "server/discover")["error"]
        assert (error["code"], error["data"]) == (-32022, {"supported": [MODERN], "requested": "2027-01-01"})


def test_an_old_client_is_told_which_version_is_served() -> None:
    with Server("notes", MODERN) as notes:
        error = notes.request(1, "initialize", protocolVersion="2025-11-25", capabilities={})["error"]
        assert (error["code"], error["data"]) == (-32022, {"supported": [MODERN], "requested": "2025-11-25"})
        assert MODERN in error["message"]


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "tasks/get"])
def test_methods_that_2026_07_28_does_not_have_are_not_found(method: str) -> None:
    with Modern("notes") as notes:
        assert notes.request(1, method)["error"]["code"] == -32601


def test_unknown_things_are_invalid_params() -> None:
    with Modern("notes") as notes:
        assert notes.call(1, "fly")["error"]["code"] == -32602
        assert notes.request(2, "prompts/get", name="fly")["error"]["code"] == -32602
        assert notes.request(3, "tools/call")["error"]["code"] == -32602
        for key, uri in enumerate(["note://9", "note://x", "clock://now"], 4):
            error = notes.request(key, "resources/read", uri=uri)["error"]
            assert (error["code"], error["data"]) == (-32602, {"uri": uri})


def test_a_note_is_added_listed_found_and_read() -> None:
    with Modern("notes") as notes:
        tools = {tool["name"]: tool for tool in notes.request(1, "tools/list")["result"]["tools"]}
        added = notes.call(2, "add_note", title="Café", text="Größe ☕")
        assert added["content"][1]["uri"] == "note://4"
        for key, (tool, arguments, ids) in enumerate(
            [
                ("list_notes", {}, [1, 2, 3, 4]),
                ("search_notes", {"query": "GRÖSSE"}, []),
                ("search_notes", {"query": "größe"}, [4]),
                ("search_notes", {"query": "trip"}, [2]),
            ],
            3,
        ):
            result = notes.call(key, tool, **arguments)
            jsonschema_rs.validate(tools[tool]["outputSchema"], result["structuredContent"])
            assert [note["id"] for note in result["structuredContent"]["notes"]] == ids
        [content] = notes.request(7, "resources/read", uri="note://4")["result"]["contents"]
        assert content["text"] == "# Café\n\nGröße ☕"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("add_note", {"title": "only"}),
        ("search_notes", {"query": 5}),
        ("delete_note", {"id": 9}),
        ("summarize", {"x": 1}),
    ],
)
def test_bad_arguments_are_a_result_here_too(tool: str, arguments: Json) -> None:
    with Modern("notes", FORM) as notes:
        result = notes.call(1, tool, **arguments)
        assert result["isError"] is True
        assert text_of(result).startswith(f"{tool} failed: ")


@pytest.mark.parametrize(
    ("answer", "said", "left"),
    [
        ({"action": "accept", "content": {"delete": True}}, 'Deleted note 2, "Trip".', 2),
        ({"action": "accept", "content": {"delete": False}}, 'Note 2, "Trip", is kept, as you wish.', 3),
        ({"action": "decline"}, 'Note 2, "Trip", is kept, as you wish.', 3),
        ({"action": "cancel"}, 'Note 2, "Trip", is kept: the question was dismissed.', 3),
    ],
)
def test_a_note_is_deleted_only_when_the_user_says_so(answer: Json, said: str, left: int) -> None:
    with Modern("notes", FORM) as notes:
        asked = notes.call(1, "delete_note", id=2)
        assert asked["resultType"] == "input_required"
        [question] = asked["inputRequests"].values()
        assert question["params"]["message"] == 'Delete note 2, "Trip"?'
        result = notes.answer(2, asked, answer, id=2)
        assert (text_of(result), result.get("isError", False)) == (said, False)
        assert len(notes.call(3, "list_notes")["structuredContent"]["notes"]) == left


@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}, {"elicitation": {"url": {}}}])
def test_deleting_needs_a_client_that_can_show_a_form(capabilities: Json) -> None:
    with Modern("notes", capabilities) as notes:
        error = notes.call(1, "delete_note", id=2)["error"]
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {}}})


def test_a_state_is_good_for_its_own_request_only() -> None:
    yes = {"action": "accept", "content": {"delete": True}}
    with Modern("notes", FORM | {"sampling": {}}) as notes:
        asked = notes.call(1, "delete_note", id=2)
        later = str(float(asked["requestState"].partition(":")[0]) + 1)
        forged = [later + ":" + asked["requestState"].partition(":")[2], "", "é", "1:2", asked["requestState"] + "0"]
        for key, state in enumerate(forged, 2):
            assert notes.answer(key, {**asked, "requestState": state}, yes, id=2)["error"]["code"] == -32602
        assert notes.answer(10, asked, yes, id=1)["error"]["code"] == -32602
        assert notes.answer(11, asked, yes, tool="summarize")["error"]["code"] == -32602
        assert text_of(notes.answer(12, asked, yes, id=2)) == 'Deleted note 2, "Trip".'


def test_a_state_is_good_for_a_while_only() -> None:
    code = f"""import runpy
notes = runpy.run_path({str(SERVERS["notes"])!r})
notes["Call"].ask.__globals__["ANSWER_WITHIN"] = -1
notes["main"]()"""
    with Modern("notes", FORM, [*BARE, "-c", code]) as notes:
        asked = notes.call(1, "delete_note", id=2)
        answer = {"action": "accept", "content": {"delete": True}}
        assert notes.answer(2, asked, answer, id=2)["error"]["code"] == -32602


def test_a_missing_answer_is_asked_for_again_and_an_unasked_one_ignored() -> None:
    yes = {"action": "accept", "content": {"delete": True}}
    with Modern("notes", FORM) as notes:
        asked = notes.call(1, "delete_note", id=2)
        params = {"name": "delete_note", "arguments": {"id": 2}}
        again = notes.request(2, "tools/call", **params, requestState=asked["requestState"])["result"]
        assert again["inputRequests"] == asked["inputRequests"]
        assert again["requestState"] != asked["requestState"]
        hasty = notes.request(3, "tools/call", **params, inputResponses={"answer": yes})["result"]
        assert hasty["resultType"] == "input_required"
        assert text_of(notes.answer(4, again, yes, id=2)) == 'Deleted note 2, "Trip".'


def test_a_summary_is_made_by_the_client_s_model_where_it_has_one() -> None:
    with Modern("notes", {"sampling": {}}) as notes:
        asked = notes.call(1, "summarize")
        [question] = asked["inputRequests"].values()
        assert question["method"] == "sampling/createMessage"
        assert "umbrella" in question["params"]["messages"][0]["content"]["text"]
        for key, content in enumerate([{"type": "text", "text": "Busy."}, [{"type": "text", "text": "Busy."}]], 2):
            answer = {"role": "assistant", "model": "m", "content": content}
            assert text_of(notes.answer(key, asked, answer, tool="summarize")) == "Busy."


def test_without_a_model_the_summary_is_a_list_of_titles() -> None:
    with Modern("notes") as notes:
        assert text_of(notes.call(1, "summarize")) == "3 notes: Groceries, Trip, Ideas."


def test_a_listener_is_told_when_the_list_of_notes_changes_until_it_cancels() -> None:
    with Modern("notes") as notes:
        wanted = {"resourcesListChanged": True, "toolsListChanged": True}
        params = {"_meta": notes.meta, "notifications": wanted}
        notes.send({"id": "ear", "method": "subscriptions/listen", "params": params})
        acknowledged = notes.receive()["params"]
        assert acknowledged == {
            "_meta": {PREFIX + "subscriptionId": "ear"},
            "notifications": {"resourcesListChanged": True},
        }
        add = {"name": "add_note", "arguments": {"title": "a", "text": "b"}, "_meta": notes.meta}
        notes.send({"id": 1, "method": "tools/call", "params": add})
        assert notes.receive()["method"] == "notifications/resources/list_changed"
        assert notes.receive()["id"] == 1
        notes.send({"method": "notifications/cancelled", "params": {"requestId": "ear"}})
        assert text_of(notes.call(2, "add_note", title="c", text="d")) == 'Added note 5, "c".'


def test_the_notes_survive_what_is_no_message_and_answer_with_an_error() -> None:
    with Modern("notes") as notes:
        for line in (
            b"",
            b"no json",
            b"\xff",
            b"[1]",
            b"null",
            b"[" * 100_000,
            b'{"id": 5}',
            b'{"method": "notifications/cancelled"}',
        ):
            notes.write(line)
            assert notes.receive()["error"]["code"] == -32700
        assert text_of(notes.call(1, "list_notes"))


# The official client.


def drive(name: str, talk: Callable[[Client], Awaitable[None]], mode: str = "auto", **options: Any) -> None:
    """Let the SDK's client start the server, and talk to it."""

    async def run() -> None:
        with anyio.fail_after(WAIT):
            command = StdioServerParameters(command=BARE[0], args=[*BARE[1:], str(SERVERS[name])])
            async with Client(command, mode=mode, **options) as client:
                await talk(client)

    anyio.run(run)


def shown(result: types.CallToolResult) -> str:
    [content, *_] = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def name_it_tea(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"label": "Tea", "delete": True})


async def speak_for_the_model(_context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(type="text", text="Busy."))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_uses_the_clock(mode: str) -> None:
    logged: list[Any] = []
    reported: list[float] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    async def talk(client: Client) -> None:
        assert client.protocol_version == "2025-11-25"
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "now",
            "convert_time",
            "countdown",
            "set_alarm",
        ]
        assert len((await client.list_resources()).resources) == 2
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert len((await client.list_prompts()).prompts) == 1
        assert (await client.read_resource("clock://now/+02:00")).contents
        assert (await client.get_prompt("plan_day", {"focus": "tests"})).messages
        zones = {"from_timezone": "UTC", "to_timezone": "+02:00"}
        converted = await client.call_tool("convert_time", {"time": "10:00", **zones})
        assert converted.structured_content and converted.structured_content["time"] == "12:00"
        counted = await client.call_tool("countdown", {"steps": 3}, progress_callback=on_progress)
        assert shown(counted) == "Lift-off after 3 steps."
        assert reported == [1, 2, 3]
        assert logged == ["2 to go", "1 to go", "0 to go"]
        assert 'alarm "Tea"' in shown(await client.call_tool("set_alarm", {"time": "07:30"}))

    drive("clock", talk, mode, elicitation_callback=name_it_tea, logging_callback=on_log)


@pytest.mark.parametrize("mode", ["auto", MODERN])
def test_the_official_client_uses_the_notes(mode: str) -> None:
    async def talk(client: Client) -> None:
        assert client.protocol_version == MODERN
        assert len((await client.list_tools()).tools) == 5
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert len((await client.list_prompts()).prompts) == 1
        assert (await client.get_prompt("review_notes")).messages
        async with client.listen(resources_list_changed=True) as changes:
            await client.call_tool("add_note", {"title": "New", "text": "thing"})
            await anext(changes)
        assert len((await client.list_resources()).resources) == 4
        assert (await client.read_resource("note://4")).contents
        assert shown(await client.call_tool("delete_note", {"id": 4})) == 'Deleted note 4, "New".'
        assert shown(await client.call_tool("summarize")) == "Busy."

    drive("notes", talk, mode, elicitation_callback=name_it_tea, sampling_callback=speak_for_the_model)


def test_the_official_client_learns_why_the_notes_refuse_it() -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("delete_note", {"id": 1})
        assert refused.value.code == -32021
        assert "3 notes" in shown(await client.call_tool("summarize"))

    drive("notes", talk)


def test_the_official_old_client_learns_which_version_the_notes_speak() -> None:
    async def talk(client: Client) -> None:
        pytest.fail("it cannot connect")

    with pytest.raises(BaseExceptionGroup) as refused:
        drive("notes", talk, "legacy")
    assert refused.group_contains(MCPError, match=MODERN, depth=None)
