"""Servers on the oldest SDK, and in another language: through a gateway a client gets what it gets of them
alone.

- `first`: the Python SDK 1.0.0 over stdio. A request that it does not know ends it, `server/discover` among them.
- `go`: the Go SDK over stdio, of both eras, which can ask only by the means of the era that it is spoken to in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import expected
import installed
import pytest
import world

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

FIRST, GO = "mcp-1.0", "go-sdk-1.8"
OWN_ROOT = "file:///roots/of-its-own"
CLIENTS = ["python1", "typescript2-auto"]
GO_CALLS = [
    ("test_simple_text", {}),
    ("test_error_handling", {}),
    ("test_multiple_content_types", {}),
    ("test_elicitation", {"message": "Who are you?"}),
    ("test_sampling", {"prompt": "say something"}),
]


def go() -> list[str]:
    return [str(installed.program(GO) / "everything-server")]


def first() -> list[str]:
    return [str(installed.program(FIRST) / "bin" / "python"), str(installed.HERE / "servers" / "first.py")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of both: its URL."""
    home = tmp_path_factory.mktemp("gateway")
    commands = {"first": first(), "go": go()}
    servers = {
        name: {"command": command[0], "args": command[1:], "scope": "session", "timeout": 60}
        for name, command in commands.items()
    }
    config = home / "toolgate.json"
    config.write_text(json.dumps({"mcpServers": servers, "state": str(home / "state")}), encoding="utf-8")
    with world.serving(world.toolgate("serve", "--config", str(config), "--port", "0"), home) as url:
        yield url


def report(url: str, client: str, server: str, home: Path, *options: str) -> dict[str, Any]:
    """What a client saw of one server at its own path of the gateway."""
    where = world.at_url(f"{url}/servers/{server}")
    found = world.run_client(world.CLIENTS[client], where, home, "--prefix", "", "--root", OWN_ROOT, *options)
    assert found["errors"] == {}
    return found


SUM = ("--calls", '[["get-sum", {"a": 2, "b": 3}]]')


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_an_unknown_request_ends_is_started_and_used(gateway: str, client: str, tmp_path: Path) -> None:
    if reason := installed.missing_program(FIRST):
        pytest.skip(reason)
    parts = ("--parts", "list,calls,sampling,progress", "--lists", "tools")
    found = report(gateway, client, "first", tmp_path, *parts, *SUM)
    assert found["calls"]["get-sum"]["text"] == ["The sum of 2 and 3 is 5."]
    expected.check_sampling(found)
    done = ["Long running operation completed. Duration: 0.5 seconds, Steps: 5."]
    assert found["progress"]["text"] == done  # without a word on the way: the SDK loses it, alone as well


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
        assert found["calls"]["test_sampling"]["isError"] is False
