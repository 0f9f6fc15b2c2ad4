"""The circuit breaker: a server that fails again and again is left alone for a while, and then tried with one call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import LegacyServer, ModernServer, RpcError, Scene, gateway
from virtualtime import settle

from toolgate.model import Call, Client, Fault
from toolgate.upstreams.breaker import FAILURES, PAUSE

BOTH = pytest.mark.parametrize("kind", [LegacyServer, ModernServer])


class Moody:
    """A tool that does what its mood is."""

    def __init__(self, mood: str = "crash") -> None:
        self.mood = mood
        self.go_on = asyncio.Event()

    async def __call__(self, scene: Scene) -> Any:
        if self.mood == "crash":
            scene.crash("segmentation fault")
        elif self.mood == "wait":
            await self.go_on.wait()
        elif self.mood == "error":
            raise RpcError(-32603, "it went wrong")
        elif self.mood == "tool error":
            return {"content": [], "isError": True}
        return "well"


async def code(client: Any) -> str:
    """How a call of the tool ends."""
    message = (await client.call("one__t")).message
    return message["error"]["data"]["code"] if "error" in message else "well"


async def opened(client: Any) -> None:
    assert [await code(client) for _ in range(FAILURES)] == ["SERVER_FAILED"] * FAILURES


@pytest.mark.promise("b.002.breaker")
@BOTH
async def test_after_five_crashes_in_a_row_calls_are_refused_for_a_while(kind: Any) -> None:
    tool = Moody()
    one = kind({"t": tool})
    async with gateway(one=one) as house:
        client = house.modern()
        await opened(client)
        error = (await client.call("one__t")).error
        assert error["message"] == "Circuit breaker open for one"
        assert (error["data"]["code"], error["data"]["outcome"]) == ("CIRCUIT_OPEN", "not_sent")
        assert error["data"]["retryable"] and "tried again in 30 s" in error["data"]["hint"]
        await house.clock.advance(PAUSE - 1)
        assert await code(client) == "CIRCUIT_OPEN"
        assert len(one.calls) == FAILURES
        tool.mood = "well"
        await house.clock.advance(2)
        assert await code(client) == "well"
        tool.mood = "crash"
        assert await code(client) == "SERVER_FAILED"  # it is closed: one failure is one failure


async def test_status_and_lists_say_that_it_is_open() -> None:
    one = LegacyServer({"t": Moody()})
    async with gateway(one=one, two=LegacyServer({"t": Moody("well")})) as house:
        client = house.modern()
        await opened(client)
        house.app.gateway.snapshot.catalog.changed("one", "", ("tools",))
        await settle()
        listed = (await client.request("tools/list")).result
        assert "two__t" in [tool["name"] for tool in listed["tools"]]
        assert listed["_meta"]["failures"] == [{"server_id": "one", "error": "Circuit breaker open for one"}]
        status = house.app.gateway.snapshot.upstreams["one"].status()
        assert status.state == "failed" and status.error == "segmentation fault"
        assert "tried again in 30 s" in status.hint


@BOTH
async def test_what_a_server_says_and_that_it_is_slow_does_not_count(kind: Any) -> None:
    tool = Moody("wait")
    one = kind({"t": tool}, timeout=1.0)
    async with gateway(one=one) as house:
        client = house.modern()
        for _ in range(2 * FAILURES):
            call = client.start("tools/call", name="one__t")
            await house.clock.advance(2)
            assert (await call.reply()).error["data"]["code"] == "TIMEOUT"
        for mood in ("error", "tool error"):
            tool.mood = mood
            for _ in range(2 * FAILURES):
                assert "Circuit" not in str((await client.call("one__t")).message)


async def test_an_answer_in_between_begins_the_count_anew() -> None:
    tool = Moody()
    async with gateway(one=LegacyServer({"t": tool})) as house:
        client = house.modern()
        for mood in ["crash"] * 4 + ["well"] + ["crash"] * 4 + ["error"] + ["crash"] * 4:
            tool.mood = mood
            assert (await client.call("one__t")).message.get("error", {}).get("data", {}).get("code") != "CIRCUIT_OPEN"


async def test_calls_that_die_together_are_one_failure() -> None:
    tool = Moody("wait")
    async with gateway(one=LegacyServer({"t": tool})) as house:
        client = house.modern()
        for _ in range(FAILURES - 1):
            calls = [client.start("tools/call", name="one__t") for _ in range(20)]
            await settle()
            house.servers["one"].open_connections[0].hang_up()
            assert {(await call.reply()).error["data"]["code"] for call in calls} == {"SERVER_FAILED"}
        tool.mood = "well"
        assert await code(client) == "well"


async def test_a_server_that_dies_while_nobody_wants_anything_of_it_has_not_failed_a_call() -> None:
    tool = Moody("well")
    one = LegacyServer({"t": tool})
    async with gateway(one=one) as house:
        client = house.modern()
        for _ in range(2 * FAILURES):
            assert await code(client) == "well"
            one.open_connections[0].hang_up()
            await settle()


@BOTH
async def test_while_it_is_tried_others_are_refused(kind: Any) -> None:
    tool = Moody()
    one = kind({"t": tool})
    async with gateway(one=one) as house:
        client = house.modern()
        await opened(client)
        await house.clock.advance(PAUSE + 1)
        tool.mood = "wait"
        tried = client.start("tools/call", name="one__t")
        await one.got("tools/call", FAILURES + 1)
        for _ in range(3):
            assert await code(client) == "CIRCUIT_OPEN"
        tool.go_on.set()
        assert (await tried.reply()).text == "well"
        assert await code(client) == "well"


async def test_a_try_that_fails_opens_it_again() -> None:
    async with gateway(one=LegacyServer({"t": Moody()})) as house:
        client = house.modern()
        await opened(client)
        for _ in range(3):
            await house.clock.advance(PAUSE + 1)
            assert await code(client) == "SERVER_FAILED"
            assert await code(client) == "CIRCUIT_OPEN"


async def test_a_try_that_its_client_gives_up_leaves_room_for_another() -> None:
    tool = Moody()
    one = LegacyServer({"t": tool})
    async with gateway(one=one) as house:
        client = house.modern()
        await opened(client)
        await house.clock.advance(PAUSE + 1)
        tool.mood = "wait"
        tried = client.start("tools/call", name="one__t")
        await one.got("tools/call", FAILURES + 1)
        await tried.gone()
        tool.mood = "well"
        assert await code(client) == "well"


@pytest.mark.parametrize("scope", ["shared", "principal"])
async def test_a_server_that_does_not_start_is_left_alone_too(scope: str) -> None:
    starts = 0

    async def fails(*_any: Any) -> Any:
        nonlocal starts
        starts += 1
        raise Fault("SERVER_FAILED", "Command not found: npx", reach="not_sent")

    one = LegacyServer(scope=scope)
    one.make_link = fails
    async with gateway(one=one) as house:
        upstream = house.app.gateway.snapshot.upstreams["one"]
        call = Call("tools/call", "t", Client(), server="one")
        for _ in range(FAILURES):
            with pytest.raises(Fault, match="Server not started: Command not found: npx"):
                await upstream.invoke(call)
        with pytest.raises(Fault, match="Circuit breaker open for one") as caught:
            await upstream.invoke(call)
        assert "Command not found: npx" in caught.value.hint
        assert starts == FAILURES
        status = upstream.status()
        assert (status.state, status.error) == ("failed", "Command not found: npx")
        assert status.stderr == "/bin/sh: npx: command not found\n"
        assert "install Node.js" in status.hint
        await upstream.stop()  # somebody has mended it
        with pytest.raises(Fault, match="Server not started"):
            await upstream.invoke(call)
        assert starts == FAILURES + 1


async def test_one_clients_trouble_is_not_anothers() -> None:
    """Where each has a connection of its own."""
    bad: set[str] = {"ann"}

    async def moody(scene: Scene) -> str:
        if scene.arguments["who"] in bad:
            scene.crash()
        return "well"

    async with gateway(one=LegacyServer({"t": moody}, scope="principal")) as house:
        ann, bob = house.modern("ann"), house.modern("bob")
        for _ in range(FAILURES):
            await ann.call("one__t", arguments={"who": "ann"})
        assert "Circuit" in (await ann.call("one__t", arguments={"who": "ann"})).error["message"]
        assert (await bob.call("one__t", arguments={"who": "bob"})).text == "well"


async def test_a_call_that_is_refused_when_it_is_sent_again_says_how_far_it_got_the_first_time() -> None:
    one = LegacyServer({"t": Moody()})
    one.lists["tools/list"][1][0]["annotations"] = {"readOnlyHint": True}
    async with gateway(one=one) as house:
        client = house.modern()
        outcomes = [
            (await client.call("one__t")).error["data"] for _ in range(3)
        ]  # the fifth crash is the third's first
        assert [(each["code"], each["outcome"]) for each in outcomes] == [("SERVER_FAILED", "sent_unknown")] * 3
        assert len(one.calls) == FAILURES


async def test_lists_are_let_through_after_the_pause_and_decide_nothing() -> None:
    one = LegacyServer({"t": Moody()}, prompts={"p": Moody("well")})
    async with gateway(one=one) as house:
        client = house.modern()
        await opened(client)
        await house.clock.advance(PAUSE + 1)
        listed = await asyncio.gather(client.request("tools/list"), client.request("prompts/list"))
        assert not any("failures" in each.result.get("_meta", {}) for each in listed)
        assert house.app.gateway.snapshot.upstreams["one"].status().state == "ready"
        assert await code(client) == "SERVER_FAILED"
        assert await code(client) == "CIRCUIT_OPEN"
