"""The command line: what it prints, how it ends, and that an error names its fix."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolgate.cli import COMMANDS, app, doctor
from toolgate.cli.checked import Checked, Fault, fix_for, unprovoked, what_it_has
from toolgate.config import Server
from toolgate.demo import SERVERS

BOUND = 60  # seconds; far more than anything here takes
BARE = [sys.executable, "-I", "-S"]
CLOCK: dict[str, Any] = {"command": BARE[0], "args": [*BARE[1:], str(SERVERS["clock"])]}
NOTES: dict[str, Any] = {"command": BARE[0], "args": [*BARE[1:], str(SERVERS["notes"])]}
NOT_THERE: dict[str, Any] = {"command": "no-such-command-anywhere"}
DYING: dict[str, Any] = {"command": BARE[0], "args": [*BARE[1:], "-c", "import nowhere_to_be_found"]}

ODD_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        answer["serverInfo"] = {"name": "odd", "version": "1"}
    elif asked.get("method") == "tools/list":
        answer = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("x" * 80, "t")]}
    elif asked.get("method") == "tools/call":
        answer = RESULT
    elif "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


class Ended:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in, and no configuration of the user's. It is the user's own configuration folder, whose
    files need no trust."""
    own = tmp_path / "config" / "toolgate"
    own.mkdir(parents=True)
    monkeypatch.chdir(own)
    monkeypatch.setenv("HOME", str(own / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own.parent))
    monkeypatch.setenv("COLUMNS", "120")
    return own


def configure(here: Path, **servers: dict[str, Any]) -> None:
    (here / "toolgate.json").write_text(json.dumps({"mcpServers": servers}))


def toolgate(*arguments: str, input: str | None = None) -> Ended:
    """Run a command in this process."""
    result = CliRunner().invoke(app, arguments, input=input)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def process(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.Popen([sys.executable, "-m", "toolgate", *arguments], **pipes)


# Help.


def test_the_help_lists_every_command_with_its_line(here: Path) -> None:
    ended = toolgate("--help")
    assert ended.code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in ended.out
        assert line.split()[0] in ended.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_of_its_own(here: Path, command: str) -> None:
    ended = toolgate(command, "--help")
    assert ended.code == 0 and "Usage:" in ended.out
    assert "--install-completion" not in ended.out  # that of a single command would complete nothing


def test_without_a_command_the_help_is_shown(here: Path) -> None:
    ended = toolgate()
    assert "Usage:" in ended.out + ended.err


def test_the_version_is_printed(here: Path) -> None:
    assert toolgate("--version").out.startswith("toolgate ")


def test_a_command_that_there_is_not_is_an_error(here: Path) -> None:
    ended = toolgate("srve")
    assert ended.code == 2 and "srve" in ended.err


def test_help_loads_no_command(here: Path) -> None:
    script = (
        "import sys; from toolgate.cli import app; app(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=BOUND, check=True)
    loaded = done.stdout.rsplit("[", 1)[1]
    assert "toolgate.cli" in loaded
    assert "toolgate.app" not in loaded and "uvicorn" not in loaded and "cryptography" not in loaded


# The configuration.


@pytest.mark.parametrize("command", [["serve"], ["stdio"], ["list"], ["call", "a", "b"], ["doctor"]])
def test_without_a_configuration_every_command_says_what_to_write(here: Path, command: list[str]) -> None:
    ended = toolgate(*command)
    assert ended.code == 2
    assert "No configuration found" in ended.err and '"mcpServers"' in ended.err


@pytest.mark.parametrize("command", [["serve"], ["stdio"], ["list"], ["call", "a", "b"], ["doctor"]])
def test_all_that_is_wrong_with_a_configuration_is_said_at_once(here: Path, command: list[str]) -> None:
    configure(here, one={"comand": "x"}, two={"command": "x", "timeout": "soon"}, three={"url": "ftp://x"})
    ended = toolgate(*command)
    assert ended.code == 2
    assert [server in ended.err for server in ("one", "two", "three")] == [True, True, True]
    assert "toolgate.json" in ended.err and "Traceback" not in ended.err


def test_a_configuration_that_is_not_there_is_an_error(here: Path) -> None:
    ended = toolgate("list", "--config", "nowhere.toml")
    assert ended.code == 2 and "nowhere.toml" in ended.err


def test_a_configuration_can_be_named(here: Path) -> None:
    configure(here, clock=CLOCK)
    (here / "toolgate.json").rename(here / "other.json")
    assert toolgate("list", "-c", "other.json").code == 0


# list.


def test_list_shows_the_tools_of_all_servers(here: Path) -> None:
    configure(here, clock=CLOCK, notes=NOTES)
    ended = toolgate("list")
    assert ended.code == 0, ended.err
    assert "clock__now" in ended.out and "notes__add_note" in ended.out
    assert "2025-11-25" in ended.out and "2026-07-28" in ended.out


def test_list_prints_json_for_programs(here: Path) -> None:
    configure(here, clock=CLOCK)
    found = json.loads(toolgate("list", "--json").out)
    assert "clock__now" in [tool["name"] for tool in found["tools"]]


@pytest.mark.promise("001.errors.partial")
def test_list_goes_on_where_one_server_fails_and_ends_with_1(here: Path) -> None:
    configure(here, clock=CLOCK, bad=NOT_THERE)
    ended = toolgate("list")
    assert ended.code == 1
    assert "clock__now" in ended.out and "Command not found: no-such-command-anywhere" in ended.out


@pytest.mark.promise("b.faults.empty-success")
def test_list_fails_where_all_fail(here: Path) -> None:
    configure(here, bad=NOT_THERE)
    ended = toolgate("list")
    assert ended.code == 1 and "Command not found: no-such-command-anywhere" in ended.err


def test_list_shows_a_name_as_a_client_may_call_it(here: Path) -> None:
    configure(here, odd={"command": BARE[0], "args": [*BARE[1:], "-c", ODD_SERVER]})
    name = next(word for word in toolgate("list").out.split() if word.startswith("odd__"))
    assert name == json.loads(toolgate("list", "--json").out)["tools"][0]["name"]


def test_list_shows_the_servers_tools_whatever_surface_clients_have(here: Path) -> None:
    (here / "kids.json").write_text(json.dumps({"surface": "children", "mcpServers": {"clock": CLOCK}}))
    assert "clock__now" in toolgate("list", "-c", "kids.json").out
    listed = json.loads(toolgate("list", "-c", "kids.json", "--json").out)
    assert "get_schema" in [tool["name"] for tool in listed["tools"]]


def test_list_gives_each_tool_a_line_of_its_own_where_no_terminal_is(here: Path) -> None:
    configure(here, notes=NOTES, bad=NOT_THERE)
    lines = toolgate("list").out.splitlines()
    assert all(line.startswith(("notes ready", "  notes__", "bad failed Command")) for line in lines), lines


# call.


def test_call_prints_what_a_tool_says(here: Path) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("call", "clock", "convert_time", json.dumps(FROM_UTC))
    assert ended.code == 0, ended.err
    assert "07:30 +00:00 is" in ended.out


FROM_UTC = {"time": "07:30", "from_timezone": "+00:00", "to_timezone": "+01:00"}


def test_call_reads_arguments_from_standard_input_and_prints_json(here: Path) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("call", "clock", "convert_time", "-", "--json", input=json.dumps(FROM_UTC))
    assert json.loads(ended.out)["structuredContent"]["time"] == "08:30"


def test_who_sits_at_the_terminal_needs_no_permission(here: Path) -> None:
    clients = [{"id": "ci", "mcp_permissions": {"tools": {"clock__now": "ask"}}}]
    (here / "toolgate.json").write_text(json.dumps({"mcpServers": {"clock": CLOCK}, "clients": clients}))
    assert "clock__now" in toolgate("list").out
    assert "UTC" in toolgate("call", "clock", "now").out


def test_call_ends_with_1_where_the_tool_failed(here: Path) -> None:
    configure(here, clock=CLOCK)
    wrong = FROM_UTC | {"time": "25:99"}
    ended = toolgate("call", "clock", "convert_time", json.dumps(wrong))
    assert ended.code == 1 and "convert_time failed" in ended.out


def test_call_ends_with_1_where_the_arguments_are_wrong(here: Path) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("call", "clock", "countdown", '{"steps": 0}')
    assert ended.code == 1 and "/steps" in ended.err


@pytest.mark.parametrize("arguments", ["{", "[]", "7", "", "\udcff", '{"a": ' + "[" * 5000])
def test_call_wants_a_json_object(here: Path, arguments: str) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("call", "clock", "now", arguments)
    assert ended.code == 2 and "argument" in ended.err


def test_call_of_a_server_that_there_is_not_names_those_that_there_are(here: Path) -> None:
    configure(here, clock=CLOCK, notes=NOTES)
    ended = toolgate("call", "clok", "now")
    assert ended.code == 1
    assert "Server not found: clok" in ended.err and "clock, notes" in ended.err


@pytest.mark.promise("b.names.lookup")
def test_call_finds_a_server_by_any_spelling(here: Path) -> None:
    configure(here, **{"My Clock": CLOCK})
    for spelling in ("My Clock", "my-clock", "my_clock"):
        assert toolgate("call", spelling, "now").code == 0


def test_call_of_a_server_that_is_switched_off_says_so(here: Path) -> None:
    configure(here, clock={**CLOCK, "enabled": False}, notes=NOTES)
    ended = toolgate("call", "clock", "now")
    assert ended.code == 1 and "clock is disabled" in ended.err


def test_call_of_a_tool_that_there_is_not_fails(here: Path) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("call", "clock", "nwo")
    assert ended.code == 1 and "nwo" in ended.err


def test_call_of_a_server_that_does_not_start_fails(here: Path) -> None:
    configure(here, bad=NOT_THERE)
    ended = toolgate("call", "bad", "now")
    assert ended.code == 1
    assert "Command not found: no-such-command-anywhere" in ended.err and "install" in ended.err


def test_call_of_a_tool_that_asks_says_that_it_cannot_answer(here: Path) -> None:
    configure(here, notes=NOTES)
    ended = toolgate("call", "notes", "delete_note", '{"id": 1}')
    assert ended.code == 1 and "Traceback" not in ended.err


@pytest.mark.parametrize("odd", ["5", "[]"])
def test_call_of_a_server_whose_result_is_no_object_says_so(here: Path, odd: str) -> None:
    configure(here, odd={"command": BARE[0], "args": [*BARE[1:], "-c", ODD_SERVER.replace("RESULT", odd)]})
    ended = toolgate("call", "odd", "t")
    assert ended.code == 1 and "not a JSON object" in ended.err


@pytest.mark.parametrize("odd", ['{"content": 5}', '{"content": [5]}', '{"content": [{"type": "text"}]}'])
def test_call_prints_a_result_out_of_shape_too(here: Path, odd: str) -> None:
    configure(here, odd={"command": BARE[0], "args": [*BARE[1:], "-c", ODD_SERVER.replace("RESULT", odd)]})
    assert toolgate("call", "odd", "t").code == 0


# doctor.


def test_doctor_finds_nothing_where_all_is_well(here: Path) -> None:
    configure(here, clock=CLOCK, notes=NOTES, off={**NOT_THERE, "enabled": False})
    ended = toolgate("doctor")
    assert ended.code == 0, ended.out
    assert ended.out.count("✓") == 2 + ended.out.count("✓ code in ") and "off: disabled" in ended.out


def test_doctor_ticks_off_no_engine_that_is_not_here(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "described", lambda _: {"javascript": ("it is not installed", False)})
    configure(here, clock=CLOCK)
    ended = toolgate("doctor")
    assert "– code in javascript: it is not installed" in ended.out and ended.code == 0


def test_doctor_finds_clients_that_no_gateway_would_serve(here: Path) -> None:
    clients = [{"id": id, "key": "k" * 24, "mcp_server_access": "all"} for id in ("ci", "cd")]
    (here / "toolgate.json").write_text(json.dumps({"mcpServers": {"clock": CLOCK}, "clients": clients}))
    ended = toolgate("doctor")
    assert ended.code == 1 and "ci and cd have the same key" in ended.out


def test_doctor_names_permissions_that_mean_no_tool(here: Path) -> None:
    tools = {"clock__nwo": "off", "clock__*w": "off", "cl*__gone": "off", "notes__gone": "off"}
    clients = [{"id": "ci", "mcp_server_access": "all", "mcp_permissions": {"tools": tools}}]
    (here / "toolgate.json").write_text(json.dumps({"mcpServers": {"clock": CLOCK}, "clients": clients}))
    ended = toolgate("doctor")
    assert [line.strip() for line in ended.out.splitlines() if "look:" in line] == [
        "look: clients.ci.mcp_permissions.tools: `clock__nwo` matches none of its tools: correct the name"
    ]


def test_doctor_says_what_a_server_has_in_so_many_words(here: Path) -> None:
    configure(here, odd={"command": BARE[0], "args": [*BARE[1:], "-c", ODD_SERVER]})
    assert "odd: 2 tools, revision 2025-11-25\n" in toolgate("doctor").out
    assert what_it_has(1, "") == "1 tool"


TOOL = '{"name": name, "inputSchema": {"type": "object"}}'


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}', "ignored the output schema of a tool, t: "),
        ('{"type": "object", "properties": {"a": {"pattern": "("}}}', "ignored the output schema of a tool, t: "),
        ('{"type": "object", "enum": [0] * 20_000}', "ignored 2 of its items: more than 10,000 JSON values in one"),
    ],
)
def test_doctor_says_which_output_schemas_and_tools_are_ignored_and_why(here: Path, schema: str, why: str) -> None:
    code = ODD_SERVER.replace(TOOL, TOOL.replace("}}", f'}}, "outputSchema": {schema}}}'))
    configure(here, odd={"command": BARE[0], "args": [*BARE[1:], "-c", code]})
    looks = [line.strip() for line in toolgate("doctor").out.splitlines() if "look:" in line]
    assert any(line.startswith(f"look: {why}") for line in looks), looks


def test_doctor_names_each_fault_with_its_mend(here: Path) -> None:
    configure(
        here, clock=CLOCK, bad=NOT_THERE, dying=DYING, unset={"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}}
    )
    ended = toolgate("doctor")
    assert ended.code == 1
    assert ended.out.count("✗") == 3
    assert ended.out.count("fix:") == 2 and "or write a default" in ended.out
    assert "install no-such-command-anywhere" in ended.out
    assert "No module named" in ended.out and "uvx" in ended.out
    assert "NO_SUCH_VARIABLE" in ended.out


RUDE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    error = {"code": -32000, "message": "no\\nFORGED \\x1b[2J\\r"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "error": error}), flush=True)
"""


@pytest.mark.parametrize("command", [["doctor"], ["list"], ["call", "rude", "t"]])
def test_what_a_server_says_makes_no_line_and_moves_no_cursor(here: Path, command: list[str]) -> None:
    configure(here, rude={"command": BARE[0], "args": [*BARE[1:], "-c", RUDE]})
    ended = toolgate(*command)
    said = ended.out + ended.err
    assert "FORGED" in said and "\x1b" not in said
    assert not any(line.startswith("FORGED") for line in said.splitlines())


def test_doctor_looks_at_one_server_only(here: Path) -> None:
    configure(here, clock=CLOCK, bad=NOT_THERE)
    ended = toolgate("doctor", "--server", "clock")
    assert ended.code == 0 and "bad" not in ended.out


def test_doctor_of_a_server_that_there_is_not_says_so(here: Path) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("doctor", "--server", "clok")
    assert ended.code == 1
    assert "Server not found: clok" in ended.err and "clock" in ended.err


def test_a_fix_is_the_faults_own_or_a_known_cause_or_a_look_at_the_command() -> None:
    server = Server(id="a", name="a", type="stdio", command="a-program", args=("it's", "secret"), private_args=(1,))
    broke = Fault(error="it broke")
    assert fix_for(server, Checked(fault=Fault(hint="install it"))) == "install it"
    assert "npx -y" in fix_for(server, Checked(fault=broke, stderr="Error: Cannot find module 'x'"))
    assert fix_for(server, Checked(fault=broke)).endswith("""a-program 'it'"'"'s' '***'"""), "as it would be typed"
    assert fix_for(Server(id="a", name="a", type="stdio", problem="A is not set: set it"), Checked(fault=broke)) == ""


def test_doctor_ends_with_a_summary_and_prints_json_for_scripts(here: Path) -> None:
    configure(here, clock=CLOCK, bad=NOT_THERE)
    assert toolgate("doctor").out.splitlines()[-1] == "2 servers, 4 tools; problems: 1 (bad)."
    ended = toolgate("doctor", "--json")
    report = json.loads(ended.out)
    assert (ended.code, report["ok"]) == (1, False)
    found = {each["name"]: each for each in report["servers"]}
    assert (found["clock"]["ok"], found["clock"]["tools"]) == (True, 4)
    assert "install no-such-command-anywhere" in found["bad"]["fix"]
    configure(here, clock=CLOCK)
    ended = toolgate("doctor")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "All is well: 1 server, 4 tools.")


def test_doctor_shows_names_that_servers_share_tokens_that_have_expired_and_variables_that_are_empty(
    here: Path,
) -> None:
    expired = "eyJhbGciOiJub25lIn0.eyJleHAiOjEwMDAwMDAwMDB9.x"
    configure(here, clock={**CLOCK, "env": {"TOKEN": expired, "EMPTY": ""}}, other=CLOCK)
    ended = toolgate("doctor")
    assert "the token in TOKEN expired on 2001-09-09" in ended.out and "set but empty: EMPTY" in ended.out
    assert "a tool of the same name" in ended.out and "(clock, other)" in ended.out and expired not in ended.out


def test_doctor_looks_at_the_disk_that_the_audit_needs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"audit": {"enabled": True}, "mcpServers": {"clock": CLOCK}}
    (here / "toolgate.json").write_text(json.dumps(settings))
    assert "audit.jsonl" in toolgate("doctor").out
    monkeypatch.setattr("toolgate.cli.doctor.LEAST_SPACE", 1 << 70)
    ended = toolgate("doctor")
    assert ended.code == 1 and "MiB are free" in ended.out and "free some space" in ended.out


def test_what_our_own_probe_has_provoked_is_not_shown() -> None:
    said = (
        "starting\nWARNING:root:Failed to validate request: 2 validation errors for ClientRequest\n"
        "PingRequest.method\n  Input should be 'ping' [type=literal_error]\n    For further information\n"
        "WARNING:root:Message that failed validation: method='server/discover' params={}\nready\n"
    )
    assert unprovoked(said) == "starting\nready"
    assert unprovoked("unknown method server/discover\n") == ""


# serve.


@pytest.mark.promise("b.001.loopback")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_serve_refuses_to_listen_beyond_loopback(here: Path, host: str) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("serve", "--host", host)
    assert ended.code == 2
    assert f"Refused to listen on {host}" in ended.err and "--open-to-network" in ended.err


@pytest.mark.promise("b.001.loopback")
def test_serve_refuses_a_configured_address_too(here: Path) -> None:
    (here / "toolgate.json").write_text(json.dumps({"mcpServers": {"clock": CLOCK}, "http": {"host": "0.0.0.0"}}))
    assert toolgate("serve").code == 2


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_serve_refuses_a_port_that_is_none(here: Path, port: str) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("serve", "--port", port)
    assert ended.code == 2 and "--port" in ended.err


def test_serve_says_when_its_port_is_taken(here: Path) -> None:
    configure(here, clock=CLOCK)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = toolgate("serve", "--port", str(taken.getsockname()[1]))
    assert ended.code == 1 and "Choose another --port" in ended.err


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway in a process of its own, and its URL."""
    server = process("serve", "--port", "0", *arguments)
    try:
        assert server.stderr
        line = server.stderr.readline()
        assert line.startswith("toolgate is listening on http://"), line
        yield line.split()[-1], server
    finally:
        server.kill()
        server.communicate(timeout=BOUND)


def post(url: str, body: str) -> Any:
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=BOUND) as response:
        return json.loads(response.read())


@pytest.mark.promise("b.001.port")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_serves_until_it_is_told_to_stop(here: Path, number: signal.Signals) -> None:
    configure(here, clock=CLOCK)
    with serving() as (url, server):
        call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now"}}'
        assert "UTC" in post(url, call)["result"]["content"][0]["text"]
        server.send_signal(number)
        out, err = server.communicate(timeout=BOUND)
        assert (server.returncode, out) == (0, "")
        told = [line.partition(" INFO ")[2] for line in err.splitlines() if " INFO " in line]
        assert told[-1] == "ended" and any(line.startswith("shutting down; calls in progress: 0") for line in told)
        assert "Traceback" not in err and "toolgate." not in "".join(told), "no modules in an operator's log"


def test_serve_begins_with_what_it_serves_and_how_to_connect(here: Path) -> None:
    configure(here, clock=CLOCK, off={**NOTES, "enabled": False})
    assert toolgate("list").code == 0  # from now on it is known what the servers offer
    with serving() as (url, server):
        assert server.stderr
        said = ""
        while "other clients" not in said:
            line = server.stderr.readline()
            assert line, said
            said += line
    assert "clock" in said and "4 tools" in said and "disabled" in said and "tokens" in said
    assert f"claude mcp add --transport http toolgate {url}" in said
    assert f"codex mcp add toolgate --url {url}" in said


# stdio.


@pytest.mark.promise("spec.2026.stdio.pure")
def test_stdio_speaks_the_protocol_and_nothing_else(here: Path) -> None:
    configure(here, clock=CLOCK, bad=NOT_THERE)
    with process("stdio", stdin=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answers = []
        for number, (method, params) in enumerate([("initialize", asked), ("tools/list", {}), ("nope", {})]):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
            answers.append(json.loads(server.stdout.readline()))
        out, _ = server.communicate(timeout=BOUND)
        assert (server.returncode, out) == (0, "")
    opened, listed, refused = answers
    assert opened["result"]["protocolVersion"] == "2025-06-18"
    assert "clock__now" in [tool["name"] for tool in listed["result"]["tools"]]
    assert listed["result"]["_meta"]["failures"][0]["server_id"] == "bad"
    assert refused["error"]["code"] == -32601


def test_stdio_ends_when_it_is_told_to(here: Path) -> None:
    configure(here, clock=CLOCK)
    with process("stdio", stdin=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        server.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["result"] == {}
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=BOUND)
        assert server.returncode == 0


# demo.


def test_the_demo_visits_servers_of_both_eras_with_clients_of_both(here: Path) -> None:
    with process("demo", "--once", "--port", "0", env={**os.environ, "COLUMNS": "200"}) as tour:
        out, err = tour.communicate(timeout=BOUND)
        assert (tour.returncode, err) == (0, "")
    for expected in (
        "serves 3 servers at http://127.0.0.1:",
        "2025-06-18 → clock__now",
        "2025-06-18 → notes__delete_note",
        "2026-07-28 → clock__set_alarm",
        "2026-07-28 → greeter__greet",
        "3 of 3",
        "clock speaks 2025-11-25",
        "notes speaks 2026-07-28",
        "claude mcp add --transport http toolgate http://127.0.0.1:",
    ):
        assert expected in out, out


def test_the_demo_takes_another_port_where_its_own_is_taken(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with process("demo", "--once", "--port", port) as tour:
            out, _ = tour.communicate(timeout=BOUND)
    assert tour.returncode == 0
    assert f"127.0.0.1:{port}/" not in out


@pytest.mark.promise("b.surfaces.default", "b.000.aliases")
@pytest.mark.parametrize(
    "flags",
    [["--surface", "children"], ["--config", "children_config.toml"], ["--children-config", "children_config.toml"]],
)
def test_stdio_shows_the_surface_that_is_wanted(here: Path, flags: list[str]) -> None:
    configure(here, clock=CLOCK)
    (here / "children_config.toml").write_text(
        f"[mcp_servers.clock]\ncommand = {json.dumps(CLOCK['command'])}\nargs = {json.dumps(CLOCK['args'])}\n"
    )
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with process("stdio", *flags, stdin=subprocess.PIPE) as server:
        assert server.stdin and server.stdout
        for number, (method, params) in enumerate([("initialize", asked), ("tools/list", {})]):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline())
        server.stdin.close()
        assert server.wait(60) == 0
    assert "list_registered_children" in [tool["name"] for tool in answer["result"]["tools"]]


def test_a_surface_that_there_is_not_is_refused_with_those_there_are(here: Path) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("serve", "--surface", "inside")
    assert ended.code == 2 and "children" in ended.err


def test_what_another_tool_would_ask_for_is_named_in_its_own_words(here: Path) -> None:
    (here / "mcp.json").write_text(
        json.dumps(
            {
                "inputs": [{"id": "api-key", "type": "promptString"}],
                "servers": {
                    "a": {"type": "stdio", "command": "x", "env": {"K": "${input:api-key}"}},
                    "b": {"type": "stdio", "command": "x", "env": {"K": "${env:NO_SUCH_VARIABLE}"}},
                },
            }
        )
    )
    said = toolgate("doctor", "-c", "mcp.json").out
    assert "${input:api-key} has no value" in said and "set API_KEY in toolgate's environment" in said
    assert "set it in toolgate's environment\n" in said, "VS Code has no defaults"


def test_a_tool_is_called_by_the_name_that_clients_know(here: Path) -> None:
    configure(here, clock=CLOCK)
    assert "UTC" in toolgate("call", "clock__now").out
    ended = toolgate("call", "clock__convert_time", '{"time": "12:00", "from_timezone": "UTC", "to_timezone": "UTC"}')
    assert "12:00" in ended.out, ended.err
    assert "did you mean clock?" in toolgate("call", "clok", "now").err
    assert "toolgate call clock TOOL" in toolgate("call", "clock").err


def test_status_says_how_to_start_a_gateway_where_none_runs(here: Path) -> None:
    configure(here, clock=CLOCK)
    ended = toolgate("status")
    assert ended.code == 1 and "toolgate serve" in ended.err
