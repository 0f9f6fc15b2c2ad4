"""What the gateway says to whoever keeps it running: `/healthz` and `/readyz`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, tools

from toolgate.config import Config
from toolgate.config.access import KnownClient

KEY = "tg-a-key-that-is-long-enough"
KNOWN = Config(clients=(KnownClient(id="ann", name="ann", key=KEY, servers="all"),))


def opened(**more: Any) -> Any:
    return gateway(scripts={"git": Scripted(tools_list=tools("t"))}, **more)


async def asked(app: Any, path: str, method: str = "GET", **headers: str | None) -> tuple[int, Any]:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await Visitor(app, path).send(method, headers=told)
    is_json = response.headers.get("content-type") == "application/json"
    return response.status, json.loads(response.body) if is_json else response.body


@pytest.mark.parametrize("config", [Config(), KNOWN], ids=["open", "with keys"])
async def test_a_probe_needs_no_key_and_no_name_of_the_host(config: Config) -> None:
    async with opened(config=config) as app:
        assert await asked(app, "/healthz", host="10.1.2.3:8080") == (200, b"ok\n")
        assert await asked(app, "/readyz", host="10.1.2.3:8080") == (200, {"ready": True})


async def test_a_gateway_that_ends_is_alive_and_not_ready() -> None:
    async with opened() as app:
        app.gateway.phase = "draining"
        assert await asked(app, "/healthz") == (200, b"ok\n")
        status, said = await asked(app, "/readyz")
        assert (status, said["ready"], said["why"]) == (503, False, "the gateway is shutting down")


async def test_who_may_see_a_server_is_told_that_it_has_failed_and_the_gateway_is_ready_all_the_same() -> None:
    async with gateway(config=KNOWN, scripts={"git": Scripted(tools_list=None)}) as app:
        key = f"Bearer {KEY}"
        assert await asked(app, "/readyz", authorization=key) == (200, {"ready": True, "failed": []})
        await Visitor(app, authorization=key).ask_modern("tools/list")
        fail(app, "git")
        assert await asked(app, "/readyz", authorization=key) == (200, {"ready": True, "failed": ["git"]})
        assert await asked(app, "/readyz") == (200, {"ready": True})
        assert await asked(app, "/readyz", authorization="Bearer tg-another-key-of-nobody") == (200, {"ready": True})


async def test_other_paths_and_methods_are_refused() -> None:
    async with opened() as app:
        assert (await asked(app, "/healthz/more"))[0] == 404
        assert (await asked(app, "/readyz", "POST"))[0] == 405
        assert (await asked(app, "/readyz", "HEAD"))[0] == 200


def fail(app: Any, server: str) -> None:
    """As if it had not started."""
    upstream = app.gateway.snapshot.upstreams[server]
    status = upstream.status()
    upstream.status = lambda: type(status)("failed")
