"""What one server lists that clients cannot read or compile costs no real client what other servers have."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import expected
import installed
import pytest
import world

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("error")]

SERVER = [str(installed.HERE / "servers" / "odd.py")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("odd")
    servers = {"odd": {"command": sys.executable, "args": SERVER}}
    servers["plain"] = {"command": sys.executable, "args": [*SERVER, "--plain"]}
    config = home / "toolgate.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    with world.serving(world.toolgate("serve", "--config", str(config), "--port", "0"), home) as found:
        yield found


@pytest.mark.parametrize("name", world.CLIENTS)
def test_an_odd_server_costs_no_client_the_others(name: str, url: str, tmp_path: Path) -> None:
    """The results of the last two calls are held against a schema that has the same `$id` at both servers."""
    calls = json.dumps([["odd__odd-0", {}], ["odd__odd-3", {}], ["plain__add", {}]])
    options = ("--parts", "list,calls", "--calls", calls, "--prefix", "plain__")
    report = world.run_client(world.CLIENTS[name], world.at_url(url), tmp_path, *options)
    assert report["errors"] == {}
    assert expected.lists(report) == {
        "tools": [*(f"odd__odd-{number}" for number in range(5)), "plain__add"],
        "resources": ["odd+x:size", "odd+x:time", "plain+q:a"],
        "templates": ["odd+x:{a}", "plain+q:{a}"],
        "prompts": ["odd__p", "plain__q"],
    }
    assert report["calls"]["plain__add"]["structured"] == {"sum": 5}
    assert report["calls"]["odd__odd-0"]["text"] == ["5"]
