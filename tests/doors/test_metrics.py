"""What Prometheus reads of the gateway: `/metrics`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, tools

from toolgate.config import Config
from toolgate.config.access import KnownClient

KEY, ADMIN = "tg-a-key-that-is-long-enough", "tg-the-key-of-an-administrator"
KNOWN = Config(
    clients=(
        KnownClient(id="ann", name="ann", key=KEY, servers="all"),
        KnownClient(id="ops", name="ops", key=ADMIN, admin=True),
    )
)
SAMPLE = re.compile(r'([a-z_]+)(?:\{([a-z]+="(?:[^"\\\n]|\\.)*",?)+\})? [0-9.e+]+')


def opened() -> Any:
    return gateway(scripts={"git": Scripted(tools_list=tools("t"))}, config=KNOWN)


async def scraped(app: Any) -> list[str]:
    response = await Visitor(app, "/metrics", authorization=f"Bearer {ADMIN}").send("GET")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return bytes(response.body).decode().splitlines()


async def test_a_scrape_shows_the_gateway_and_the_state_of_each_server() -> None:
    async with opened() as app:
        lines = await scraped(app)
        assert "toolgate_serving 1" in lines
        assert "toolgate_configuration_invalid 0" in lines
        assert 'toolgate_server_calls{server="git"} 0' in lines
        states = [line for line in lines if line.startswith('toolgate_server_state{server="git"')]
        assert [line for line in states if line.endswith(" 1")] == [
            f'toolgate_server_state{{server="git",state="{app.gateway.snapshot.upstreams["git"].status().state}"}} 1'
        ]
        app.gateway.phase = "draining"
        assert "toolgate_serving 0" in await scraped(app)


async def test_each_line_is_of_the_format_and_each_metric_has_its_row_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs/lifecycle.md").read_text()
    async with opened() as app:
        samples = [SAMPLE.fullmatch(line) for line in await scraped(app) if not line.startswith("# ")]
        assert all(samples)
        told = {found[1] for found in samples if found}
        assert told == set(re.findall(r"^\| `(toolgate_\w+)`", page, re.MULTILINE))


@pytest.mark.parametrize(("key", "status"), [("", 401), (KEY, 403), (ADMIN, 200)], ids=["nobody", "client", "admin"])
async def test_only_an_administrator_reads_it(key: str, status: int) -> None:
    async with opened() as app:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        response = await Visitor(app, "/metrics").send("GET", headers=headers)
        assert response.status == status
        assert (b"toolgate_server" in bytes(response.body)) == (status == 200)


async def test_other_paths_and_methods_are_refused() -> None:
    async with opened() as app:
        assert (await Visitor(app, "/metrics/more").send("GET")).status == 404
        assert (await Visitor(app, "/metrics", authorization=f"Bearer {ADMIN}").send("POST")).status == 405
