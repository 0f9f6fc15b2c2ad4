"""A call that reports progress has its time anew, and keeps nobody waiting by that: not for its place at a server, nor
for what becomes of the one call that a failing server is tried with."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec import Raw
from peers import LATEST, MODERN, LegacyServer, Scene, gateway
from virtualtime import patience

from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.core.notes import Notes
from toolgate.upstreams.breaker import FAILURES


class Endless:
    """It crashes, or works for ever, and says so."""

    def __init__(self) -> None:
        self.crashes = False

    async def works(self, scene: Scene) -> str:
        if self.crashes:
            scene.crash("segmentation fault")
            return ""
        for number in range(1000):
            scene.progress(number)
            await asyncio.sleep(5)
        return "done"

    async def quick(self, scene: Scene) -> str:
        return "quick"

    def server(self, **more: object) -> LegacyServer:
        return LegacyServer({"works": self.works, "quick": self.quick}, **more)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_others_have_the_only_place_when_a_call_has_had_its_time(revision: str) -> None:
    async with gateway(there=Endless().server(concurrency=1)) as rig:
        eve, ann = await rig.client(revision, principal="eve"), await rig.client(revision, principal="ann")
        endless = eve.start("tools/call", name="there__works", arguments={}, meta={"progressToken": 1})
        await asyncio.sleep(100)
        assert not endless.is_answered  # nobody else has wanted the place
        with patience(70.0):
            assert (await ann.call("there__quick")).text == "quick"
        assert "No answer within the time limit" in str((await endless.reply()).message)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_failing_server_that_is_tried_with_an_endless_call_is_tried_with_another(revision: str) -> None:
    tool = Endless()
    async with gateway(there=tool.server()) as rig:
        eve, ann = await rig.client(revision, principal="eve"), await rig.client(revision, principal="ann")
        tool.crashes = True
        for who in [eve, ann] * FAILURES:
            await who.call("there__works")
        tool.crashes = False
        await asyncio.sleep(20)
        endless = eve.start("tools/call", name="there__works", arguments={}, meta={"progressToken": 1})
        await asyncio.sleep(1)
        with patience(70.0):
            assert (await ann.call("there__quick")).text == "quick"
        assert endless.is_answered


async def test_a_call_of_a_key_that_has_expired_has_no_more_time() -> None:
    async with gateway(there=Endless().server()) as rig:
        eve = Principal("eve", expires=rig.clock.wall() + 90)
        request = Call("tools/call", "works", Client(eve, revision=mcp.LATEST["modern"]), server="there")
        notes = Notes()
        call = msgspec.structs.replace(request, notes=notes, wants_progress=True, arguments=Raw(b"{}"))
        making = asyncio.ensure_future(rig.app.gateway.snapshot.upstreams["there"].invoke(call))
        await asyncio.sleep(80)
        assert not making.done()
        await asyncio.sleep(75)
        with pytest.raises(Fault, match="No answer within the time limit"):
            await making
