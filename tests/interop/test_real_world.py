"""One gateway in front of five real servers, asked by the official clients of every generation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import expected
import pytest
import world

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

DOCUMENT = f"everything+{expected.DOCUMENT}"
READ = ("--read", DOCUMENT, "--prompt", "everything__simple-prompt")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[world.Gateway]:
    with world.gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module", params=list(world.CLIENTS))
def client(request: pytest.FixtureRequest) -> world.Client:
    return world.CLIENTS[request.param]


@pytest.fixture(scope="module")
def visit(
    client: world.Client, gateway: world.Gateway, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], datetime]:
    """One visit of one client that does everything: its report, and when it began."""
    before = expected.now_in_tokyo()
    options = (*READ, "--root", client.root(), "--calls", json.dumps(expected.calls(gateway.files)))
    home = tmp_path_factory.mktemp("client")
    return world.run_client(client, world.at_url(gateway.url), home, *options), before


@pytest.fixture(scope="module")
def report(visit: tuple[dict[str, Any], datetime]) -> dict[str, Any]:
    assert "connection" not in visit[0]["errors"], visit[0]["errors"]
    return visit[0]


class TestOverHttp:
    def test_nothing_fails(self, report: dict[str, Any]) -> None:
        assert report["errors"] == {}
        assert "closing" not in report

    def test_the_newest_revision_of_the_client_is_spoken(self, client: world.Client, report: dict[str, Any]) -> None:
        assert report["protocol"] == client.speaks

    def test_the_lists_are_exactly_the_union(self, report: dict[str, Any]) -> None:
        assert expected.lists(report) == expected.union()

    def test_a_tool_of_each_server_answers(self, report: dict[str, Any], visit: tuple[Any, datetime]) -> None:
        expected.check_calls(report, visit[1])

    def test_a_resource_is_read_and_a_prompt_is_got(self, report: dict[str, Any]) -> None:
        expected.check_read(report, DOCUMENT)

    def test_elicitation_reaches_the_client(self, report: dict[str, Any]) -> None:
        expected.check_elicitation(report)

    def test_sampling_reaches_the_client(self, report: dict[str, Any]) -> None:
        expected.check_sampling(report)

    def test_the_roots_are_the_clients_own(self, client: world.Client, report: dict[str, Any]) -> None:
        expected.check_roots(report, client.root())

    def test_progress_is_told_in_order(self, client: world.Client, report: dict[str, Any]) -> None:
        expected.check_progress(client, report)


@pytest.mark.parametrize("name", ["python2-legacy", "python1", "typescript2-legacy", "typescript1"])
@pytest.mark.parametrize("declared", ["", "roots", "elicitation,sampling"])
def test_a_session_lists_what_its_own_capabilities_open(
    name: str, declared: str, gateway: world.Gateway, tmp_path: Path
) -> None:
    options = ("--capabilities", declared, "--parts", "list")
    report = world.run_client(world.CLIENTS[name], world.at_url(gateway.url), tmp_path, *options)
    assert report["errors"] == {}
    capabilities = tuple(word for word in declared.split(",") if word)
    assert expected.lists(report) == expected.union(capabilities)


@pytest.mark.parametrize(
    "names",
    [
        ("python2-legacy", "python1"),
        ("python1", "python1"),
        ("typescript1", "typescript2-legacy"),
        ("python2-auto", "python2-legacy"),
        ("typescript2-auto", "python1"),
    ],
    ids=" and ".join,
)
def test_two_clients_at_once_get_their_own_roots(
    names: tuple[str, str], gateway: world.Gateway, tmp_path: Path
) -> None:
    pair = []
    for place, name in enumerate(names):
        client = world.CLIENTS[name]
        pair.append((client, client.root() if client.is_modern else f"{client.root()}-{place}"))
    reports = world.run_together(pair, world.at_url(gateway.url), tmp_path, "--parts", "roots,elicitation,progress")
    for report, (client, root) in zip(reports, pair, strict=True):
        assert report["errors"] == {}
        expected.check_roots(report, root)
        expected.check_elicitation(report)
        expected.check_progress(client, report)


@pytest.mark.parametrize("name", ["python2-legacy", "python2-auto", "python1", "typescript2-auto", "typescript1"])
def test_one_server_can_be_seen_as_if_there_were_no_gateway(name: str, gateway: world.Gateway, tmp_path: Path) -> None:
    client = world.CLIENTS[name]
    url = gateway.url.removesuffix("/mcp") + "/mcp/servers/everything"
    read = ("--read", expected.DOCUMENT, "--prompt", "simple-prompt")
    calls = ("--calls", '[["get-sum", {"a": 2, "b": 3}]]')
    options = ("--prefix", "", "--root", client.root(), *read, *calls)
    report = world.run_client(client, world.at_url(url), tmp_path, *options)
    assert report["errors"] == {}
    assert report["protocol"] == client.speaks
    assert expected.lists(report) == expected.alone()
    assert report["calls"]["get-sum"]["text"] == ["The sum of 2 and 3 is 5."]
    expected.check_read(report, expected.DOCUMENT)
    expected.check_elicitation(report)
    expected.check_sampling(report)
    expected.check_roots(report, client.root())
    expected.check_progress(client, report)


@pytest.mark.parametrize("name", ["python2-legacy", "python2-auto", "python1", "typescript2-auto", "typescript1"])
def test_the_same_through_stdio(name: str, tmp_path: Path) -> None:
    """`toolgate stdio`, started by the client itself: a gateway of its own, so every client has a root of its own."""
    client = world.CLIENTS[name]
    root = f"file:///roots/stdio-{name}"
    files = world.make_files(tmp_path)
    command = world.toolgate("stdio", "--config", str(world.write_config(files)))
    before = expected.now_in_tokyo()
    options = (*READ, "--root", root, "--calls", json.dumps(expected.calls(files)))
    report = world.run_client(client, world.at_command(command), tmp_path, *options)
    assert report["errors"] == {}
    if name != "typescript1":  # which does not tell what it settled on over stdio
        assert report["protocol"] == client.speaks
    assert expected.lists(report) == expected.union()
    expected.check_calls(report, before)
    expected.check_read(report, DOCUMENT)
    expected.check_elicitation(report)
    expected.check_sampling(report)
    expected.check_roots(report, root)
    expected.check_progress(client, report)
