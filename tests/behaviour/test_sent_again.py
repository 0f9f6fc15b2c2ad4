"""The one safe retry (behaviour, ruling 4): a call that a crash has lost is sent again only where that does no harm."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from official import LEGACY, MODERN
from peers import LegacyServer, ModernServer, RpcError, Scene, eventually, gateway

from toolgate.core.fault import Fault

BOTH = pytest.mark.parametrize("server", [LegacyServer, ModernServer])
CLIENTS = pytest.mark.parametrize("revision", [LEGACY[-1], MODERN])


async def crashes(scene: Scene) -> str:
    scene.crash("segmentation fault")
    raise RpcError(-1, "nobody hears this")


def crashing_once() -> Any:
    async def script(scene: Scene) -> str:
        if len(scene.connection.server.connections) == 1:
            scene.crash("segmentation fault")
        return "done"

    return script


def annotated(there: Any, **annotations: bool) -> Any:
    [tool] = there.lists["tools/list"][1]
    tool["annotations"] = annotations
    return there


@pytest.mark.promise("b.rulings.04-harmless")
@BOTH
@CLIENTS
@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
async def test_a_harmless_call_is_sent_again_after_a_crash(server: Any, revision: str, hint: str) -> None:
    there = annotated(server({"t": crashing_once()}), **{hint: True})
    async with gateway(there=there) as rig:
        assert (await (await rig.client(revision)).call("there__t")).text == "done"
        assert (len(there.calls), len(there.connections)) == (2, 2)


@pytest.mark.promise("b.rulings.04-harmless")
@BOTH
async def test_a_harmless_call_is_sent_again_once_and_no_more(server: Any) -> None:
    there = annotated(server({"t": crashes}), readOnlyHint=True)
    async with gateway(there=there) as rig:
        error = (await rig.modern().call("there__t")).error
        assert (error["data"]["code"], error["data"]["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert len(there.calls) == 2


@pytest.mark.promise("b.rulings.04-destructive")
@BOTH
@CLIENTS
@pytest.mark.parametrize("annotations", [{}, {"destructiveHint": True}, {"readOnlyHint": False}])
async def test_a_call_that_may_do_harm_twice_is_sent_once(server: Any, revision: str, annotations: Any) -> None:
    there = annotated(server({"t": crashing_once()}), **annotations)
    async with gateway(there=there) as rig:
        error = (await (await rig.client(revision)).call("there__t")).error
        assert error["code"] == -32603
        assert (error["data"]["code"], error["data"]["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert len(there.calls) == 1


@pytest.mark.promise("b.rulings.04-timeout")
@BOTH
@CLIENTS
async def test_nothing_is_sent_again_after_a_timeout(server: Any, revision: str) -> None:
    async def never(scene: Scene) -> str:
        await scene.connection.server.ever.wait()
        return ""

    there = annotated(server({"t": never}, timeout=5), readOnlyHint=True, idempotentHint=True)
    there.ever = asyncio.Event()
    async with gateway(there=there) as rig:
        call = (await rig.client(revision)).start("tools/call", name="there__t")
        await rig.clock.advance(6)
        error = (await call.reply()).error
        assert error["data"]["code"] == "TIMEOUT"
        await eventually(lambda: there.cancelled)
        assert len(there.calls) == 1


# By mcp_call, which promises a retry (seed 002).


async def by_mcp_call(rig: Any) -> Any:
    """The result of a call through that control tool."""
    client = rig.modern()
    await client.request("tools/list")
    return (await client.call("mcp_call", arguments={"server": "there", "tool": "t", "args": {}})).result


@pytest.mark.promise("002.call.retry")
@BOTH
@pytest.mark.parametrize(
    "annotations", [{}, {"openWorldHint": True}, {"idempotentHint": True, "destructiveHint": True}]
)
async def test_mcp_call_to_a_vital_server_is_sent_again_after_a_crash(server: Any, annotations: Any) -> None:
    there = annotated(server({"t": crashing_once()}), **annotations)
    async with gateway(there=there) as rig:
        assert not (await by_mcp_call(rig)).get("isError")
        assert len(there.calls) == 2


@pytest.mark.promise("b.rulings.04-destructive")
@BOTH
@pytest.mark.parametrize(
    "annotations",
    [
        {"destructiveHint": True},
        {"destructiveHint": True, "readOnlyHint": True},
        {"destructiveHint": True, "idempotentHint": False},
        {"readOnlyHint": False},
        {"destructiveHint": False},
    ],
)
async def test_mcp_call_of_a_tool_that_may_do_harm_twice_is_sent_once(server: Any, annotations: Any) -> None:
    there = annotated(server({"t": crashing_once()}), **annotations)
    async with gateway(there=there) as rig:
        assert (await by_mcp_call(rig))["isError"]
        assert len(there.calls) == 1


@BOTH
async def test_mcp_call_to_an_optional_server_is_sent_once(server: Any) -> None:
    there = server({"t": crashing_once()}, criticality="optional")
    async with gateway(there=there) as rig:
        assert (await by_mcp_call(rig))["isError"]
        assert len(there.calls) == 1


@BOTH
async def test_a_call_whose_server_does_not_come_back_was_sent_all_the_same(server: Any) -> None:
    there = annotated(server({"t": crashes}), readOnlyHint=True)
    make_link = there.make_link

    async def once(*ground: Any) -> Any:
        if there.connections:
            raise Fault("SERVER_FAILED", "it does not come back", reach="not_sent")
        return await make_link(*ground)

    there.make_link = once
    async with gateway(there=there) as rig:
        error = (await rig.modern().call("there__t")).error
        assert (error["data"]["code"], error["data"]["outcome"]) == ("SERVER_FAILED", "sent_unknown")
