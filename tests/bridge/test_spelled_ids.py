"""Peers that give back an id as text, or as a float: programs between two others do, and official clients take it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from peers import (
    LegacyClient,
    LegacyServer,
    ModernServer,
    Scene,
    _LegacyConnection,  # type: ignore[reportPrivateUsage]
    _ModernConnection,  # type: ignore[reportPrivateUsage]
    form,
    gateway,
    named,
    text_of,
)
from virtualtime import settle

THERE = "/mcp/servers/there"
SPELLED = pytest.mark.parametrize("spell", [str, float])


def spelling(server: LegacyServer, spell: Callable[[Any], Any]) -> LegacyServer:
    """It writes ids, and progress tokens, so."""

    class Spelling(_LegacyConnection):
        def reply(self, message: dict[str, Any], result: Any) -> None:
            super().reply(message | {"id": spell(message["id"])}, result)

        def refuse(self, message: dict[str, Any], error: Any) -> None:
            super().refuse(message | {"id": spell(message["id"])}, error)

        def say(self, message: Any) -> None:
            if not isinstance(message, bytes) and message.get("method") == "notifications/progress":
                told = message["params"]
                message = message | {"params": told | {"progressToken": spell(told["progressToken"])}}
            super().say(message)

    server.connection = Spelling
    return server


@SPELLED
async def test_a_server_that_writes_ids_otherwise_is_opened_answers_and_reports(spell: Callable[[Any], Any]) -> None:
    async def tool(scene: Scene) -> str:
        if scene.meta:
            scene.progress(1)
        return "hello"

    there = spelling(LegacyServer({"t": tool}, revision="2025-06-18"), spell)
    async with gateway(there=there) as rig:
        client = await rig.legacy("2025-06-18", path=THERE)
        reply = await client.call("t", meta={"progressToken": "mine"})
        assert text_of(reply.result) == "hello"
        assert [told["progress"] for told in reply.notes("notifications/progress")] == [1]
        assert (await client.call("t", meta={})).text == "hello"


@SPELLED
@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
async def test_a_client_that_writes_the_id_of_a_question_otherwise_has_answered_it(
    spell: Callable[[Any], Any], stdio: bool
) -> None:
    class Spelling(LegacyClient):
        def answer(self, question: dict[str, Any], result: Any) -> None:
            super().answer(question | {"id": spell(question["id"])}, result)

    async def tool(scene: Scene) -> str:
        return (await scene.ask(form()))["action"]

    async with gateway(there=LegacyServer({"t": tool})) as rig:
        client = rig.legacy_stranger(path=THERE, stdio=stdio)
        client.__class__ = Spelling
        await client.initialize()
        client.answers = {"elicitation/create": named("Ann")}
        assert (await client.call("t")).text == "accept"


@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
async def test_a_client_that_cancels_by_the_id_as_text_has_cancelled(stdio: bool) -> None:
    async def tool(scene: Scene) -> str:
        await asyncio.Event().wait()
        return ""

    there = LegacyServer({"t": tool})
    async with gateway(there=there) as rig:
        client = await rig.legacy(path=THERE, stdio=stdio)
        call = client.start("tools/call", name="t")
        await there.got("tools/call")
        client.tell(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": str(call.message["id"])},
            }
        )
        await there.got("notifications/cancelled")


async def test_an_id_that_is_text_is_that_request_rather_than_the_one_whose_number_it_is() -> None:
    async def tool(scene: Scene) -> str:
        await asyncio.Event().wait()
        return ""

    there = LegacyServer({"t": tool})
    async with gateway(there=there) as rig:
        client = await rig.legacy(path=THERE)
        counted, named_so = client.start("tools/call", name="t", id=77), client.start("tools/call", name="t", id="77")
        await there.got("tools/call", 2)
        client.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "77"}})
        await there.got("notifications/cancelled")
        assert len(there.cancelled) == 1 and not counted.is_answered
        assert named_so.message["id"] == "77"
        client.cancel(counted)
        await there.got("notifications/cancelled", 2)


@SPELLED
async def test_a_server_that_withdraws_a_question_by_its_number_written_otherwise_has(
    spell: Callable[[Any], Any],
) -> None:
    async def tool(scene: Scene) -> str:
        connection = scene.connection
        connection.say({"jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": form()[1]})
        await settle()
        connection.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": spell(5)}})
        await settle()
        return "went on"

    async with gateway(there=LegacyServer({"t": tool})) as rig:
        client = await rig.legacy(path=THERE)
        reply = await client.call("t")
        assert reply.text == "went on" and reply.notes("notifications/cancelled")


async def test_a_modern_server_that_writes_the_number_of_a_subscription_as_text_is_heard() -> None:
    class Spelling(_ModernConnection):
        def say(self, message: Any) -> None:
            key = "io.modelcontextprotocol/subscriptionId"
            meta = message.get("params", {}).get("_meta", {}) if not isinstance(message, bytes) else {}
            if key in meta:
                meta[key] = str(meta[key])
            super().say(message)

    there = ModernServer(resources=["file:///a"], tells=True)
    there.connection = Spelling
    async with gateway(there=there) as rig:
        ear = await rig.modern(path=THERE).listen("file:///a")
        there.update("file:///a")
        await settle()
        assert ear.updated == ["file:///a"]
