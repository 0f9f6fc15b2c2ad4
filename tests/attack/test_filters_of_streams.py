"""A modern server is told of all that is watched by one request. One client watches and leaves thousands of things, and
what is sent for that stays bounded; others are asked for, and told of, all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attack.test_queues_of_subscriptions import docs
from peers import LISTEN, ModernServer, eventually, gateway
from unit.upstreams.test_hearing import Mouth

from toolgate.core import jsonrpc
from toolgate.core.model import Client
from toolgate.upstreams.mcp import subscriptions
from toolgate.upstreams.mcp.subscriptions import ModernSubscriptions

MANY = 60


async def test_thousands_that_are_left_at_once_are_told_of_together() -> None:
    there = docs(ModernServer)
    async with gateway(there=there) as rig:
        bobs = await rig.modern("bob").listen("there+mem://b")
        hers = await rig.modern("mallory").listen(*(f"there+mem://m{number}" for number in range(MANY)))
        before = len(there.requests(LISTEN))
        await hers.stop()
        await eventually(lambda: there.watched == ["mem://b"])
        assert len(there.requests(LISTEN)) - before <= 2
        there.update("mem://b")
        await eventually(lambda: bobs.updated == ["there+mem://b"])


async def test_what_is_left_and_wanted_again_meanwhile_is_told_of() -> None:
    there = docs(ModernServer)
    async with gateway(there=there) as rig:
        first = await rig.modern("ann").listen("there+mem://a", "there+mem://b")
        stopping = asyncio.ensure_future(first.stop())
        again = await rig.modern("bob").listen("there+mem://a")
        await stopping
        await eventually(lambda: there.watched == ["mem://a"])
        there.update("mem://a")
        await eventually(lambda: again.updated == ["there+mem://a"])


class Paced(Mouth):
    """Acknowledges all at once, and counts what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    async def begin(self, method: str, params: bytes, headers: Any) -> tuple[int, Any]:
        self.sent += len(params)
        id, exchange = await super().begin(method, params, headers)
        wanted = jsonrpc.value(params)["notifications"]
        told = {"notifications": wanted, "_meta": {"io.modelcontextprotocol/subscriptionId": id}}
        note = jsonrpc.decode(jsonrpc.notification("notifications/subscriptions/acknowledged", jsonrpc.encode(told)))
        asyncio.get_running_loop().call_soon(lambda: self.handlers[note.method](note, None))
        return id, exchange


@pytest.mark.parametrize("size", [10, 2000])
async def test_what_is_sent_for_thousands_of_watches_takes_the_time_that_it_is_large(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "PACE", 100_000)
    mouth: Any = Paced()
    hearing = ModernSubscriptions(mouth, Client(), lambda: None)

    async def watch_all() -> None:
        for number in range(MANY):
            await hearing.watch(("resources", f"mem://{number}/{'x' * size}"))

    watching = asyncio.ensure_future(watch_all())
    if size == 10:
        await eventually(watching.done)  # what is small is not paused for
    while not watching.done():
        assert mouth.sent <= 100_000 * (mouth.clock.now() + 1) + (MANY + 1) * size
        await mouth.clock.advance(0.1)
    assert len(mouth.streams) == MANY and len(hearing._watched) == MANY
    mouth.end()
