"""Servers on other SDKs than the newest, and in another language: through a gateway a client gets what it gets of them
alone.

- `first`: the Python SDK 1.0.0 over stdio. A request that it does not know ends it, `server/discover` among them.
- `sdk`, `fastmcp`: the Python SDK 1.30 and FastMCP 2.14 over HTTP. They answer `server/discover` with an error and a
  session id, which is none.
- `go`: the Go SDK over stdio, of both eras, which can ask only by the means of the era that it is spoken to in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import expected
import installed
import pytest
import world

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

FIRST, FASTMCP, GO = "mcp-1.0", "fastmcp-2.14", "go-sdk-1.8"
OWN_ROOT = "file:///roots/of-its-own"
CLIENTS = ["python1", "typescript2-auto"]
GO_CALLS = [
    ("test_simple_text", {}),
    ("test_error_handling", {}),
    ("test_multiple_content_types", {}),
    ("test_elicitation", {"message": "Who are you?"}),
    ("test_sampling", {"prompt": "say something"}),
]
SERVERS = installed.HERE / "servers"


def python(part: Path, script: str, *arguments: str) -> list[str]:
    return [str(part / "bin" / "python"), str(SERVERS / script), *arguments]


def go() -> list[str]:
    return [str(installed.program(GO) / "everything-server")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of whichever of them are installed: its URL."""
    home = tmp_path_factory.mktemp("gateway")
    servers: dict[str, Any] = {}
    with ExitStack() as until_the_end:

        def over_http(name: str, part: Path) -> None:
            command = python(part, "handshake.py", name)
            started = until_the_end.enter_context(world.process(command, home / name))
            world.Lines(started.stderr)
            servers[name] = {"url": world.Lines(started.stdout).until(r"^(http://127\.0\.0\.1:\d+/mcp)$").group(1)}

        over_http("sdk", installed.PY1)
        if not installed.missing_program(FASTMCP):
            over_http("fastmcp", installed.program(FASTMCP))
        if not installed.missing_program(FIRST):
            first, *rest = python(installed.program(FIRST), "first.py")
            servers["first"] = {"command": first, "args": rest}
        if not installed.missing_program(GO):
            servers["go"] = {"command": go()[0]}
        for entry in servers.values():
            entry |= {"scope": "session", "timeout": 60}
        config = home / "toolgate.json"
        config.write_text(json.dumps({"mcpServers": servers, "state": str(home / "state")}), encoding="utf-8")
        serve = world.toolgate("serve", "--config", str(config), "--port", "0")
        yield until_the_end.enter_context(world.serving(serve, home))


def report(url: str, client: str, server: str, home: Path, *options: str) -> dict[str, Any]:
    """What a client saw of one server at its own path of the gateway."""
    where = world.at_url(f"{url}/servers/{server}")
    found = world.run_client(world.CLIENTS[client], where, home, "--prefix", "", "--root", OWN_ROOT, *options)
    assert found["errors"] == {}
    return found


SUM = ("--calls", '[["get-sum", {"a": 2, "b": 3}]]')


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("server", ["sdk", "fastmcp"])
def test_a_python_server_over_http_lists_answers_and_asks(
    gateway: str, server: str, client: str, tmp_path: Path
) -> None:
    if server == "fastmcp" and (reason := installed.missing_program(FASTMCP)):
        pytest.skip(reason)
    parts = ("--parts", "list,calls,elicitation,sampling,roots,progress", "--lists", "tools")
    found = report(gateway, client, server, tmp_path, *parts, *SUM)
    assert "trigger-elicitation-request" in found["list"]["tools"]["items"]
    assert found["calls"]["get-sum"]["text"] == ["The sum of 2 and 3 is 5."]
    expected.check_elicitation(found)
    expected.check_sampling(found)
    expected.check_roots(found, OWN_ROOT)
    expected.check_progress(world.CLIENTS[client], found)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_an_unknown_request_ends_is_started_and_used(gateway: str, client: str, tmp_path: Path) -> None:
    if reason := installed.missing_program(FIRST):
        pytest.skip(reason)
    parts = ("--parts", "list,calls,sampling,progress", "--lists", "tools")
    found = report(gateway, client, "first", tmp_path, *parts, *SUM)
    assert found["calls"]["get-sum"]["text"] == ["The sum of 2 and 3 is 5."]
    expected.check_sampling(found)
    expected.check_progress(world.CLIENTS[client], found)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_in_go_is_what_it_is_alone(gateway: str, client: str, tmp_path: Path) -> None:
    if reason := installed.missing_program(GO):
        pytest.skip(reason)
    options = ("--parts", "list,calls", "--calls", json.dumps(GO_CALLS))
    alone = world.run_client(world.CLIENTS[client], world.at_command(go()), tmp_path, *options, "--root", OWN_ROOT)
    found = report(gateway, client, "go", tmp_path, *options)
    assert found["list"] == alone["list"]
    assert found["calls"] == alone["calls"]
    if not world.CLIENTS[client].is_modern:  # a modern one cannot be asked by it
        assert found["calls"]["test_elicitation"]["isError"] is False
        assert found["calls"]["test_sampling"]["isError"] is False
