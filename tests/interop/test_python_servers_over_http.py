"""Servers of the Python SDK 1.30 and of FastMCP 2.14.7 over HTTP, behind the gateway, in every way that they serve."""

from __future__ import annotations

import json
from collections.abc import Iterator

import expected
import installed
import pytest
import world

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

FASTMCP = "fastmcp-2.14"
ENVIRONMENTS = {"python1": installed.PY1, "fastmcp": installed.program(FASTMCP)}
PATHS = {"stateful": "/stateful/mcp", "stateless": "/stateless/mcp", "json": "/json/mcp", "sse": "/sse/sse"}
CLIENTS = ["python2-legacy", "python2-auto", "python1", "typescript2-auto", "typescript1"]
TOOLS = ["get-sum", "trigger-elicitation-request", "trigger-long-running-operation"]


@pytest.fixture(scope="module", params=list(ENVIRONMENTS))
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of one framework, whose ways are a server each."""
    if request.param == "fastmcp" and (reason := installed.missing_program(FASTMCP)):
        pytest.skip(reason)
    home = tmp_path_factory.mktemp(request.param)
    command = [str(ENVIRONMENTS[request.param] / "bin" / "python"), str(installed.HERE / "servers" / "over_http.py")]
    with world.process(command, home) as server:
        world.Lines(server.stderr)
        origin = world.Lines(server.stdout).until(r"^(http://127\.0\.0\.1:\d+)$").group(1)
        servers = {way: {"type": "sse" if way == "sse" else "http", "url": origin + PATHS[way]} for way in PATHS}
        file = home / "toolgate.json"
        file.write_text(json.dumps({"mcpServers": servers}))
        with world.serving(world.toolgate("serve", "--config", str(file), "--port", "0"), home) as found:
            yield found


def visit(url: str, way: str, name: str, home: object, parts: str) -> dict[str, object]:
    read = ("--read", expected.DOCUMENT, "--prompt", "simple-prompt")
    calls = ("--calls", '[["get-sum", {"a": 2, "b": 3}]]')
    where = world.at_url(url.removesuffix("/mcp") + f"/mcp/servers/{way}")
    report = world.run_client(world.CLIENTS[name], where, home, "--prefix", "", *read, *calls, "--parts", parts)  # type: ignore[arg-type]
    assert report["errors"] == {}
    assert expected.lists(report)["tools"] == TOOLS
    assert expected.lists(report)["resources"] == [expected.DOCUMENT]
    assert report["calls"]["get-sum"]["text"] == ["The sum of 2 and 3 is 5."]
    expected.check_read(report, expected.DOCUMENT, "# Features")
    return report


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("way", ["stateful", "sse"])
def test_lists_calls_questions_and_progress(way: str, name: str, url: str, tmp_path: object) -> None:
    report = visit(url, way, name, tmp_path, "list,read,calls,elicitation,progress")
    expected.check_elicitation(report)
    expected.check_progress(world.CLIENTS[name], report)


@pytest.mark.parametrize("name", ["python2-auto", "python1"])
@pytest.mark.parametrize("way", ["stateless", "json"])
def test_lists_and_calls_where_a_server_cannot_ask(way: str, name: str, url: str, tmp_path: object) -> None:
    visit(url, way, name, tmp_path, "list,read,calls")
