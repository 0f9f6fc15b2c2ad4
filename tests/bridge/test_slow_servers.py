"""Servers that are slow to start: only what needs them waits, and clients hear when they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from peers import LATEST, MODERN, House, LegacyServer, ModernServer, Scene, gateway
from virtualtime import settle, soon

from toolgate.config import Config, Server

CLIENTS = ["2024-11-05", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]


async def plain(scene: Scene) -> str:
    return "just so"


def slow(there: Any, seconds: float = 20.0) -> Any:
    """Has a server hear nothing until it has been started for so long."""

    class Slow(there.connection):
        def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
            super().connected(say, hang_up)
            self.early: list[bytes] | None = []
            self.timer = asyncio.get_running_loop().call_later(seconds, self.wake)

        def wake(self) -> None:
            early, self.early = self.early or [], None
            for data in early:
                super().received(data)

        def received(self, data: bytes) -> None:
            if self.early is None:
                super().received(data)
            else:
                self.early.append(data)

        def disconnected(self) -> None:
            self.timer.cancel()
            super().disconnected()

    there.connection = Slow
    return there


def state(house: House, server: str) -> str:
    return house.app.gateway.snapshot.upstreams[server].status().state


# Servers that are started with the gateway.


@pytest.mark.promise("b.lifecycle.eager")
@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_beside_an_eager_server_that_hangs_the_gateway_answers_at_once(kind: Any, stdio: bool) -> None:
    stuck = slow(kind({"plain": plain}, start="eager"))
    there = kind({"plain": plain}, start="eager")
    async with gateway(stuck=stuck, there=there) as house:
        assert not stuck.received
        await settle()
        assert (state(house, "stuck"), state(house, "there")) == ("starting", "ready")
        client = await house.legacy(stdio=stdio)
        assert (await soon(client.request("ping"))).result == {}
        assert (await soon(client.call("there__plain"))).text == "just so"
        assert (await soon(house.modern(stdio=stdio).call("there__plain"))).text == "just so"
        assert state(house, "stuck") == "starting"
        await house.clock.advance(20)
        assert state(house, "stuck") == "ready"


@pytest.mark.promise("b.lifecycle.eager")
async def test_an_eager_server_that_is_added_later_keeps_nobody_waiting_either() -> None:
    there, stuck = LegacyServer({"plain": plain}), slow(LegacyServer({"plain": plain}))

    def edited(config: Config) -> Config:
        added = Server(id="stuck", name="stuck", type="stdio", command="stuck", start="eager")
        return Config(servers=(*config.servers, added))

    async with gateway(there=there, edited=edited) as house:
        house.app._links["stuck"] = stuck.make_link  # type: ignore[index]
        await soon(house.app.reload())
        await settle()
        assert state(house, "stuck") == "starting"
        assert (await soon(house.modern().call("there__plain"))).text == "just so"
        await house.clock.advance(20)
        assert state(house, "stuck") == "ready"
