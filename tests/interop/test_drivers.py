"""The drivers themselves, without a gateway: what they report of a server is what it does.

If these fail, the suite says nothing about the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import expected
import pytest
import world

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

OWN_ROOT = "file:///roots/of-its-own"
DIRECT = ("--prefix", "", "--root", OWN_ROOT, "--read", expected.DOCUMENT, "--prompt", "simple-prompt")
SUM = ("--calls", '[["get-sum", {"a": 2, "b": 3}]]')


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with world.dual_server(tmp_path_factory.mktemp("dual")) as url:
        yield url


@pytest.mark.parametrize("name", world.CLIENTS)
def test_every_client_speaks_to_a_server_of_both_eras_over_http(name: str, dual: str, tmp_path: Path) -> None:
    client = world.CLIENTS[name]
    report = world.run_client(client, world.at_url(dual), tmp_path, *DIRECT, *SUM)
    assert report["errors"] == {}
    assert report["protocol"] == client.speaks
    assert expected.lists(report)["resources"] == [expected.DOCUMENT]
    assert report["calls"]["get-sum"]["text"] == ["The sum of 2 and 3 is 5."]
    expected.check_read(report, expected.DOCUMENT, "# Features")
    expected.check_elicitation(report)
    expected.check_sampling(report)
    expected.check_roots(report, OWN_ROOT)
    expected.check_progress(client, report)


@pytest.mark.parametrize("name", ["python2-legacy", "python2-auto", "python1", "typescript2-auto", "typescript1"])
def test_a_client_speaks_to_server_everything_over_stdio(name: str, tmp_path: Path) -> None:
    client = world.CLIENTS[name]
    report = world.run_client(client, world.at_command(world.everything("stdio")), tmp_path, *DIRECT, *SUM)
    assert report["errors"] == {}
    assert expected.lists(report) == expected.alone()
    assert report["calls"]["get-sum"]["text"] == ["The sum of 2 and 3 is 5."]
    expected.check_read(report, expected.DOCUMENT)
    expected.check_elicitation(report)
    expected.check_sampling(report)
    expected.check_roots(report, OWN_ROOT)
    expected.check_progress(client, report)


@pytest.mark.parametrize("server", ["everything", *expected.TOOLS])
def test_each_server_alone_offers_and_answers_what_is_written_down(server: str, tmp_path: Path) -> None:
    files = world.make_files(tmp_path)
    entry = world.config(files)["mcpServers"][server]
    variables = [f"{name}={value}" for name, value in entry.get("env", {}).items()]
    command = ["env", *variables, entry["command"], *entry["args"]]
    prefix = f"{server}__"
    calls = [(name.removeprefix(prefix), given) for name, given in expected.calls(files) if name.startswith(prefix)]
    before = expected.now_in_tokyo()
    options = ("--parts", "list,calls", "--lists", "tools", "--calls", json.dumps(calls))
    report = world.run_client(world.CLIENTS["python1"], world.at_command(command), tmp_path, *options)
    assert report["errors"] == {}
    assert [prefix + name for name in expected.lists(report)["tools"]] == [
        name for name in expected.union()["tools"] if name.startswith(prefix)
    ]
    report["calls"] = {prefix + name: result for name, result in report["calls"].items()}
    expected.check_calls(report, before, server)


def test_clients_run_together_each_have_their_own_roots(dual: str, tmp_path: Path) -> None:
    pair = [(world.CLIENTS["python1"], "file:///roots/a"), (world.CLIENTS["typescript2-auto"], "file:///roots/b")]
    reports = world.run_together(pair, world.at_url(dual), tmp_path, "--prefix", "", "--parts", "roots")
    for report, (_, root) in zip(reports, pair, strict=True):
        assert report["errors"] == {}
        expected.check_roots(report, root)
