"""The circuit breaker: a server that fails again and again is left alone for a while, and then tried with one call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import LegacyServer, ModernServer, RpcError, Scene, gateway
from virtualtime import settle

from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.upstreams.breaker import FAILURES, LONGEST, SHORTEST, SOON

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
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        error = (await client.call("one__t")).error
        assert error["message"] == "Circuit breaker open for one"
        assert (error["data"]["code"], error["data"]["outcome"]) == ("CIRCUIT_OPEN", "not_sent")
        assert error["data"]["retryable"] and "next try in 0.25 s" in error["data"]["hint"]
        await rig.clock.advance(SHORTEST / 2)
        assert await code(client) == "CIRCUIT_OPEN"
        assert len(one.calls) == FAILURES
        tool.mood = "well"
        await rig.clock.advance(SHORTEST)
        assert await code(client) == "well"
        tool.mood = "crash"
        assert await code(client) == "SERVER_FAILED"  # it is closed: one failure is one failure


async def test_status_and_lists_say_that_it_is_open() -> None:
    one = LegacyServer({"t": Moody()})
    async with gateway(one=one, two=LegacyServer({"t": Moody("well")})) as rig:
        client = rig.modern()
        await opened(client)
        rig.app.gateway.snapshot.catalog.changed("one", "", ("tools",))
        await settle()
        listed = (await client.request("tools/list")).result
        assert "two__t" in [tool["name"] for tool in listed["tools"]]
        assert listed["_meta"]["failures"] == [{"server_id": "one", "error": "Circuit breaker open for one"}]
        status = rig.app.gateway.snapshot.upstreams["one"].status()
        assert status.state == "failed" and status.error == "segmentation fault"
        assert "next try in 0.25 s" in status.hint


@BOTH
async def test_what_a_server_says_and_that_it_is_slow_does_not_count(kind: Any) -> None:
    tool = Moody("wait")
    one = kind({"t": tool}, timeout=1.0)
    async with gateway(one=one) as rig:
        client = rig.modern()
        for _ in range(2 * FAILURES):
            call = client.start("tools/call", name="one__t")
            await rig.clock.advance(2)
            assert (await call.reply()).error["data"]["code"] == "TIMEOUT"
        for mood in ("error", "tool error"):
            tool.mood = mood
            for _ in range(2 * FAILURES):
                assert "Circuit" not in str((await client.call("one__t")).message)


async def test_an_answer_in_between_begins_the_count_anew() -> None:
    tool = Moody()
    async with gateway(one=LegacyServer({"t": tool})) as rig:
        client = rig.modern()
        for mood in ["crash"] * 4 + ["well"] + ["crash"] * 4 + ["error"] + ["crash"] * 4:
            tool.mood = mood
            assert (await client.call("one__t")).message.get("error", {}).get("data", {}).get("code") != "CIRCUIT_OPEN"


async def test_calls_that_die_together_are_one_failure() -> None:
    tool = Moody("wait")
    async with gateway(one=LegacyServer({"t": tool})) as rig:
        client = rig.modern()
        for _ in range(FAILURES - 1):
            calls = [client.start("tools/call", name="one__t") for _ in range(20)]
            await settle()
            rig.servers["one"].open_connections[0].hang_up()
            assert {(await call.reply()).error["data"]["code"] for call in calls} == {"SERVER_FAILED"}
        tool.mood = "well"
        assert await code(client) == "well"


async def test_a_server_that_dies_while_nobody_wants_anything_of_it_has_not_failed_a_call() -> None:
    tool = Moody("well")
    one = LegacyServer({"t": tool})
    async with gateway(one=one) as rig:
        client = rig.modern()
        for _ in range(2 * FAILURES):
            assert await code(client) == "well"
            one.open_connections[0].hang_up()
            await settle()


@BOTH
async def test_while_it_is_tried_others_wait_for_what_becomes_of_it(kind: Any) -> None:
    tool = Moody()
    one = kind({"t": tool})
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        await rig.clock.advance(SHORTEST)
        tool.mood = "wait"
        tried = client.start("tools/call", name="one__t")
        await one.got("tools/call", FAILURES + 1)
        others = [client.start("tools/call", name="one__t") for _ in range(3)]
        await settle()
        assert len(one.calls) == FAILURES + 1
        tool.go_on.set()
        assert [(await call.reply()).text for call in (tried, *others)] == ["well"] * 4


async def test_those_who_wait_for_a_try_that_fails_are_refused() -> None:
    tool = Moody()
    one = LegacyServer({"t": tool})
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        await rig.clock.advance(SHORTEST)
        tool.mood = "wait"
        tried = client.start("tools/call", name="one__t")
        await one.got("tools/call", FAILURES + 1)
        others = [client.start("tools/call", name="one__t") for _ in range(3)]
        await settle()
        one.open_connections[0].hang_up()
        assert (await tried.reply()).error["data"]["code"] == "SERVER_FAILED"
        assert [(await call.reply()).error["data"]["code"] for call in others] == ["CIRCUIT_OPEN"] * 3
        assert len(one.calls) == FAILURES + 1


async def test_a_try_is_waited_for_no_longer_than_a_call_may_take() -> None:
    one: Any = LegacyServer({"t": Moody()}, timeout=5)
    make_link, go_on = one.make_link, asyncio.Event()
    go_on.set()

    async def made(*any: Any) -> Any:
        await go_on.wait()
        return await make_link(*any)

    one.make_link = made
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        await rig.clock.advance(SHORTEST)
        go_on.clear()
        tried = client.start("tools/call", name="one__t")
        await settle()
        other = client.start("tools/call", name="one__t")
        await rig.clock.advance(6)
        assert (await other.reply()).error["data"]["code"] == "CIRCUIT_OPEN"
        go_on.set()
        assert (await tried.reply()).error["data"]["code"] == "SERVER_FAILED"


async def test_calls_that_wait_for_a_try_end_when_the_server_is_stopped() -> None:
    tool = Moody()
    one = LegacyServer({"t": tool})
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        await rig.clock.advance(SHORTEST)
        tool.mood = "wait"
        calls = [client.start("tools/call", name="one__t") for _ in range(2)]
        await one.got("tools/call", FAILURES + 1)
        await rig.app.gateway.snapshot.upstreams["one"].stop()
        told = [(await call.reply()).error for call in calls]
        assert [error["message"] for error in told] == ["one was stopped"] * 2
        assert [error["data"]["outcome"] for error in told] == ["sent_unknown", "not_sent"]


async def test_a_try_that_fails_opens_it_again_and_the_pauses_grow_with_the_time_that_it_is_away() -> None:
    one = LegacyServer({"t": Moody()})
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        upstream = rig.app.gateway.snapshot.upstreams["one"]
        tries = []
        began = rig.clock.now()
        while rig.clock.now() < began + 600:
            breaker = upstream._sessions["", None].breaker
            await rig.clock.advance(breaker.remaining)
            assert await code(client) == "SERVER_FAILED"
            tries.append(rig.clock.now() - began)
            assert breaker.remaining <= max(SHORTEST, tries[-1] / 4) + 0.001 <= LONGEST + 200
        assert tries[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.01)
        assert breaker.remaining == pytest.approx(LONGEST)
        assert await code(client) == "CIRCUIT_OPEN"
        assert 30 < len(tries) < 50


async def test_a_server_that_comes_and_goes_answers_nearly_all_calls_that_are_made_while_it_is_up() -> None:
    """Up for a second, down for a second."""
    tool = Moody("well")
    one = LegacyServer({"t": tool})
    async with gateway(one=one) as rig:
        client = rig.modern()
        calls: list[tuple[str, Any]] = []
        for tick in range(400):
            tool.mood = "well" if tick % 40 < 20 else "crash"
            calls.append((tool.mood, client.start("tools/call", name="one__t")))
            await rig.clock.advance(0.05)
        await rig.clock.advance(SOON)
        told = [(mood, (await call.reply()).message) for mood, call in calls]
        up = [message for mood, message in told if mood == "well"]
        answered = sum("result" in message for message in up)
        assert answered >= 0.95 * len(up)
        assert any("Circuit breaker open" in str(message) for mood, message in told if mood == "crash")


async def test_a_try_that_its_client_gives_up_leaves_room_for_another() -> None:
    tool = Moody()
    one = LegacyServer({"t": tool})
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        await rig.clock.advance(LONGEST)
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
    async with gateway(one=one) as rig:
        upstream = rig.app.gateway.snapshot.upstreams["one"]
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

    async with gateway(one=LegacyServer({"t": moody}, scope="principal")) as rig:
        ann, bob = rig.modern("ann"), rig.modern("bob")
        for _ in range(FAILURES):
            await ann.call("one__t", arguments={"who": "ann"})
        assert "Circuit" in (await ann.call("one__t", arguments={"who": "ann"})).error["message"]
        assert (await bob.call("one__t", arguments={"who": "bob"})).text == "well"


async def test_a_call_that_is_refused_when_it_is_sent_again_says_how_far_it_got_the_first_time() -> None:
    one = LegacyServer({"t": Moody()})
    one.lists["tools/list"][1][0]["annotations"] = {"readOnlyHint": True}
    async with gateway(one=one) as rig:
        client = rig.modern()
        outcomes = [
            (await client.call("one__t")).error["data"] for _ in range(3)
        ]  # the fifth crash is the third's first
        assert [(each["code"], each["outcome"]) for each in outcomes] == [("SERVER_FAILED", "sent_unknown")] * 3
        assert len(one.calls) == FAILURES


async def test_lists_are_let_through_after_the_pause_and_decide_nothing() -> None:
    one = LegacyServer({"t": Moody()}, prompts={"p": Moody("well")})
    async with gateway(one=one) as rig:
        client = rig.modern()
        await opened(client)
        await rig.clock.advance(LONGEST)
        listed = await asyncio.gather(client.request("tools/list"), client.request("prompts/list"))
        assert not any("failures" in each.result.get("_meta", {}) for each in listed)
        assert rig.app.gateway.snapshot.upstreams["one"].status().state == "ready"
        assert await code(client) == "SERVER_FAILED"
        assert await code(client) == "CIRCUIT_OPEN"
