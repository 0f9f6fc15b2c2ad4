"""The circuit breaker of a shared server: no client opens it for the others by what it sends."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from peers import LegacyServer, ModernServer, Scene, gateway
from virtualtime import settle

from toolgate.config import Config, KnownClient
from toolgate.config.access import Permissions
from toolgate.upstreams.breaker import FAILURES
from toolgate.upstreams.links.refusals import refused

BOTH = pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
CLIENTS = Config(clients=tuple(KnownClient(id=id, name=id, servers="all") for id in ("mal", "ann", "bob")))


class Front:
    """A tool behind a proxy, which answers some calls by an HTTP error; what `arguments` say happens."""

    def __init__(self) -> None:
        self.rig: Any = None
        self.go_on = asyncio.Event()

    async def __call__(self, scene: Scene) -> Any:
        if scene.arguments.get("crash"):
            scene.crash("out of memory")
        if scene.arguments.get("waits"):
            await self.go_on.wait()
        if status := scene.arguments.get("status"):
            upstream = self.rig.app.gateway.snapshot.upstreams["one"]
            [session] = [each for each in upstream._sessions.values() if each.live and each.live.requests.pending]
            requests = session.live.requests
            id = next(
                id for id, each in requests.pending.items() if each.call and b"status" in bytes(each.call.arguments)
            )
            requests.failed(id, refused(requests.server, status, bytes(requests.pending[id].call.arguments)))
        return "well"


async def code(client: Any, **arguments: Any) -> str:
    message = (await client.call("one__t", arguments=arguments)).message
    return message["error"]["data"]["code"] if "error" in message else "well"


@BOTH
@pytest.mark.parametrize("status", [400, 403, 404, 413, 414, 415, 422, 431])
@pytest.mark.promise("b.attacks.breakers")
async def test_a_refusal_that_lies_in_the_message_says_nothing_against_its_server(kind: Any, status: int) -> None:
    tool = Front()
    async with gateway(config=CLIENTS, one=kind({"t": tool})) as rig:
        tool.rig, mal, ann = rig, rig.modern("mal"), rig.modern("ann")
        for _ in range(3 * FAILURES):
            assert await code(mal, status=status) == "SERVER_FAILED"
        assert await code(ann) == "well" and await code(mal) == "well"


@BOTH
@pytest.mark.parametrize("how", [{"status": 500}, {"status": 502}, {"status": 429}, {"crash": True}])
async def test_failures_of_one_clients_calls_alone_open_it_for_that_client_alone(kind: Any, how: Any) -> None:
    tool = Front()
    async with gateway(config=CLIENTS, one=kind({"t": tool})) as rig:
        tool.rig, mal, ann = rig, rig.modern("mal"), rig.modern("ann")
        assert await code(ann) == "well"
        for _ in range(FAILURES):
            assert await code(mal, **how) == "SERVER_FAILED"
        assert await code(mal) == "CIRCUIT_OPEN"
        status = rig.app.gateway.snapshot.upstreams["one"].status()
        assert status.state != "failed" or "crash" in how
        rig.app.gateway.snapshot.catalog.changed("one", "", ("tools",))
        await settle()
        assert "failures" not in (await ann.request("tools/list")).result.get("_meta", {})
        assert await code(ann) == "well"
        assert await code(mal) == "well"  # the server has answered


@BOTH
@pytest.mark.parametrize("how", [{"status": 503}, {"crash": True}])
async def test_where_calls_of_two_fail_it_is_open_for_a_third(kind: Any, how: Any) -> None:
    tool = Front()
    async with gateway(config=CLIENTS, one=kind({"t": tool})) as rig:
        tool.rig, mal, ann, bob = rig, rig.modern("mal"), rig.modern("ann"), rig.modern("bob")
        for number in range(FAILURES):
            assert await code((mal, ann)[number % 2], **how) == "SERVER_FAILED"
        assert [await code(each) for each in (mal, ann, bob)] == ["CIRCUIT_OPEN"] * 3


async def test_a_client_whose_call_was_given_up_before_the_crash_does_not_lay_it_on_another() -> None:
    tool = Front()
    async with gateway(config=CLIENTS, one=LegacyServer({"t": tool})) as rig:
        tool.rig, mal, ann = rig, rig.modern("mal"), rig.modern("ann")
        for _ in range(FAILURES):
            hers = ann.start("tools/call", name="one__t", arguments={"waits": True})
            his = mal.start("tools/call", name="one__t", arguments={"waits": True})
            await settle()
            await his.gone()
            await settle()
            rig.servers["one"].open_connections[0].hang_up()
            await hers.reply()
        assert await code(mal) == await code(ann) == "CIRCUIT_OPEN"


@BOTH
async def test_what_a_server_answered_to_one_client_is_told_to_no_other_that_may_not_use_all_of_it(kind: Any) -> None:
    tool, other = Front(), Front()
    few = KnownClient(id="few", name="few", servers=("one",), permissions=Permissions(tools={"one__t": "off"}))
    config = msgspec.structs.replace(CLIENTS, clients=(*CLIENTS.clients, few))
    async with gateway(config=config, one=kind({"t": tool, "other": other})) as rig:
        tool.rig = other.rig = rig
        ann, eve = rig.modern("ann"), rig.modern("few")
        for _ in range(FAILURES - 1):
            told = (await eve.call("one__other", arguments={"status": 500, "mine": "of-eve"})).message
            assert "of-eve" in str(told)  # what was said to its own call
        told = (await ann.call("one__t", arguments={"status": 500, "secret": "of-ann"})).message
        assert "of-ann" in str(told)
        refused_now = (await eve.call("one__other", arguments={})).message
        assert "CIRCUIT_OPEN" in str(refused_now) and "one answered HTTP 500" in str(refused_now)
        status = (await eve.call("status", arguments={})).message
        assert "of-ann" not in str(refused_now) and "of-ann" not in str(status)
        assert "of-ann" in str((await ann.call("one__t", arguments={})).message)  # who may use all of it
