"""One client makes others wait at a shared server: by questions that it leaves open, by calls that take long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, Rig, Scene, eventually, form, gateway, named
from virtualtime import patience, settle

from toolgate.core.model import Client, Principal
from toolgate.upstreams.mcp.questions import STANDS
from toolgate.upstreams.mcp.rotation import QUIET, TURN, Rotation

REVISIONS = ["2025-06-18", LATEST, MODERN]


async def asks(scene: Scene) -> str:
    return (await scene.ask(form("the secret of ann?")))["action"]


async def plain(_scene: Scene) -> str:
    return "plain"


class Shared:
    """A shared server on a pipe. `end` lets its slow calls go on, and `go` those that ask later."""

    def __init__(self, **more: Any) -> None:
        self.end = asyncio.Event()
        self.go = asyncio.Event()
        scripts = {"asks": asks, "plain": plain, "slow": self.slow, "later": self.later}
        self.server = LegacyServer(scripts, **more)

    async def later(self, scene: Scene) -> str:
        await self.go.wait()
        return await asks(scene)

    async def slow(self, _scene: Scene) -> str:
        await self.end.wait()
        return "slow"

    async def takes_turns(self, rig: Rig) -> None:
        """What the attacker did: one principal alone, in two sessions, has the server ask."""
        one, other = await rig.legacy(principal="ann"), await rig.legacy(principal="ann")
        slow = one.start("tools/call", name="old__slow")
        await self.server.got("tools/call")
        assert "take turns" in (await other.call("old__asks")).error["message"]
        self.end.set()
        await slow.reply()
        self.end.clear()


async def answered_after(rig: Rig, call: Any) -> float:
    """In how many seconds."""
    began = rig.clock.now()
    with patience(60):
        assert (await call.reply()).text == "plain"
    return rig.clock.now() - began


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_question_that_is_left_open_keeps_others_waiting_for_a_turn_only(revision: str) -> None:
    shared = Shared()
    async with gateway(old=shared.server) as rig:
        await shared.takes_turns(rig)
        ann, bob = await rig.client(revision, principal="ann"), await rig.client(revision, principal="bob")
        count = len(shared.server.calls)
        asking = ann.start("tools/call", name="old__asks")
        await shared.server.got("tools/call", count + 1)
        waited = [await answered_after(rig, bob.start("tools/call", name="old__plain")) for _ in range(20)]
        assert waited[0] == pytest.approx(TURN, abs=0.1) and sum(waited[1:]) < 1
        if revision == MODERN:  # the question is still hers to answer
            asked = await asking.reply()
            assert (await ann.retry(asking, asked, {asked.key: named("A")})).text == "accept"  # type: ignore[union-attr]
        else:
            ann.answer(await ann.question(), named("A"))  # type: ignore[union-attr]
            assert (await asking.reply()).text == "accept"


@pytest.mark.parametrize("tool", ["slow", "asks"])
async def test_who_keeps_others_waiting_again_and_again_has_no_turn_left_to_do_so(tool: str) -> None:
    """Whatever it is that takes long, and however many sessions it is done in."""
    shared = Shared()
    async with gateway(old=shared.server) as rig:
        await shared.takes_turns(rig)
        bob, waited, begun = await rig.legacy(principal="bob"), 0.0, list[Any]()
        for _ in range(10):
            count = len(shared.server.calls)
            ann = await rig.legacy(principal="ann")
            begun.append((ann, ann.start("tools/call", name=f"old__{tool}")))
            await shared.server.got("tools/call", count + 1)
            waited += await answered_after(rig, bob.start("tools/call", name="old__plain"))
        assert waited < 2 * TURN
        for ann, call in begun:
            ann.cancel(call)


async def test_calls_that_are_given_up_count_as_long_as_they_may_ask() -> None:
    shared = Shared(ignores_cancellation=True)
    async with gateway(old=shared.server) as rig:
        await shared.takes_turns(rig)
        ann, bob, waited = await rig.legacy(principal="ann"), await rig.legacy(principal="bob"), 0.0
        for _ in range(10):
            count = len(shared.server.calls)
            call = ann.start("tools/call", name="old__slow")
            await shared.server.got("tools/call", count + 1)
            ann.cancel(call)
            await settle()
            waited += await answered_after(rig, bob.start("tools/call", name="old__plain"))
        assert waited < 2 * TURN + 1
        shared.end.set()


async def test_in_a_turn_that_nobody_waits_for_all_calls_of_a_client_run_at_once() -> None:
    shared = Shared()
    async with gateway(old=shared.server) as rig:
        await shared.takes_turns(rig)
        bob = await rig.legacy(principal="bob")
        calls = [bob.start("tools/call", name="old__slow") for _ in range(8)]
        await eventually(lambda: rig.in_flight == 8)
        shared.end.set()
        for call in calls:
            await call.reply()


async def test_turns_end_when_the_server_has_asked_nothing_for_a_while() -> None:
    shared = Shared()
    async with gateway(old=shared.server) as rig:
        await shared.takes_turns(rig)
        await rig.clock.advance(QUIET)
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        slow = ann.start("tools/call", name="old__slow")
        await eventually(lambda: rig.in_flight == 1)
        assert await answered_after(rig, bob.start("tools/call", name="old__plain")) < 1
        shared.end.set()
        await slow.reply()


async def test_what_a_server_asks_beside_a_turn_that_has_passed_is_put_to_nobody_else() -> None:
    """Ann's call goes on; so her server's next question may be of Bob's call, and the other way round."""
    shared = Shared()
    async with gateway(old=shared.server) as rig:
        await shared.takes_turns(rig)
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        count = len(shared.server.calls)
        anns = ann.start("tools/call", name="old__later")
        await shared.server.got("tools/call", count + 1)
        bobs = bob.start("tools/call", name="old__slow")
        await rig.clock.advance(TURN + 1)
        await shared.server.got("tools/call", count + 2)
        shared.go.set()
        assert "unclear which of them" in (await anns.reply()).error["message"]
        assert (ann.asked, bob.asked) == ([], [])
        shared.end.set()
        await bobs.reply()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_where_so_many_calls_run_at_once_a_question_stands_only_so_long_while_others_wait(revision: str) -> None:
    shared = Shared(concurrency=1)
    async with gateway(old=shared.server) as rig:
        ann, bob = await rig.client(revision, principal="ann"), await rig.client(revision, principal="bob")
        asking = ann.start("tools/call", name="old__asks")
        await shared.server.got("tools/call")
        assert await answered_after(rig, bob.start("tools/call", name="old__plain")) < STANDS + 1
        assert "wait for this one" in shared.server.answers[0]["error"]["message"]
        if revision == MODERN:
            reply = await ann.retry(asking, await asking.reply(), {})  # type: ignore[union-attr]
        else:
            reply = await asking.reply()
        assert "wait for this one" in reply.error["message"]


async def test_where_nobody_waits_a_question_stands_as_long_as_its_client_likes() -> None:
    shared = Shared(concurrency=1)
    async with gateway(old=shared.server) as rig:
        ann = await rig.legacy(principal="ann")
        asking, after = (ann.start("tools/call", name=f"old__{tool}") for tool in ("asks", "plain"))
        await rig.clock.advance(3 * STANDS)
        ann.answer(await ann.question(), named("A"))
        assert (await asking.reply()).text == "accept"
        assert "error" in (await after.reply()).message  # her own call waited, and nobody else


async def test_principals_take_turns_and_the_time_that_others_waited_comes_back() -> None:
    async with gateway() as rig:
        clock, order = rig.clock, list[str]()
        turns = Rotation(clock)

        async def call(id: int, who: str) -> None:
            await turns.take(id, Client(Principal(who)))
            order.append(who)

        async def waited(id: int) -> float:
            began = clock.now()
            await call(id, "bob")
            turns.over(id)
            return clock.now() - began

        await call(0, "ann")
        anns = [asyncio.ensure_future(call(id, "ann")) for id in range(1, 5)]
        await settle()
        assert order == ["ann"] * 5  # as nobody else waits
        assert await waited(5) == pytest.approx(TURN)
        await call(6, "ann")
        assert await waited(7) == pytest.approx(0, abs=0.1)
        await clock.advance(100)
        await call(8, "ann")
        assert await waited(9) == pytest.approx(10, abs=0.5)
        await asyncio.gather(*anns)
        assert turns.waiting == 0 and not turns._held and not turns._holders and not turns._waiting
