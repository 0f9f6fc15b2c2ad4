"""A hundred servers, of which thirty are no good: the others are there soon, and at once after a restart."""

from __future__ import annotations

import asyncio
import collections
from typing import Any

import msgspec
from ground import Json, Served, child, gateway, real, settings, started, until

from toolgate.config import CatalogLimits, Config, PoolLimits
from toolgate.core.clock import SystemClock
from toolgate.state.memory import MemoryStore

BAD = ("hang", "crash", "garbage")

HELD_UP = 200
"""Seconds that a good server may take to start beside ninety-nine others."""


def hundred() -> Config:
    """The bad ones are given up soon; a good one has all the time that a busy machine takes to start a hundred."""
    modes = [*(mode for mode in BAD for _ in range(10)), *["good"] * 70]
    servers = {
        f"s{number}-{mode}": child("offering", mode, start_timeout=HELD_UP if mode == "good" else 20)
        for number, mode in enumerate(modes)
    }
    return msgspec.structs.replace(
        settings(**servers), pool=PoolLimits(max_live=100), catalog=CatalogLimits(list_timeout=3.0)
    )


async def listed(served: Served) -> tuple[set[str], set[str], set[str]]:
    """Which servers' tools stand in the list, which have failed, which were still to come when it was begun."""
    result = await served.client().ask("tools/list")
    counts = collections.Counter(tool["name"].partition("__")[0] for tool in await all_pages(served, result))
    assert set(counts.values()) <= {51}
    meta: Json = result.get("_meta", {})
    return set(counts), {each["server_id"] for each in meta.get("failures", [])}, set(meta.get("pending", []))


async def all_pages(served: Served, result: Json) -> list[Any]:
    tools = list(result["tools"])
    while cursor := result.get("nextCursor"):
        result = await served.client().ask("tools/list", {"cursor": cursor})
        tools += result["tools"]
    return tools


@real
async def test_thirty_bad_servers_of_a_hundred_hold_nobody_up() -> None:
    store = MemoryStore(SystemClock())
    config = hundred()
    async with gateway(config, store=store) as served:
        good, failed, pending = await listed(served)
        assert len(good | failed | pending) == 100

        upstreams = served.app.gateway.snapshot.upstreams
        await until(lambda: all(served.status(id).state in ("ready", "failed") for id in upstreams), HELD_UP)
        async with asyncio.timeout(HELD_UP):  # a server that is ready may not have listed yet
            while pending or len(failed) < 30:
                good, failed, pending = await listed(served)
        assert (len(good), len(failed)) == (70, 30)
        assert {name.rpartition("-")[2] for name in failed} == set(BAD)
    assert not started()
    async with gateway(config, store=store) as served:
        good, failed, pending = await listed(served)
        assert (len(good), len(failed)) == (70, 30) and not pending
