"""One client takes all slots of the pool: by sessions, each with a server of its own that it calls, watches or only
starts. Others have room all the same, and the guard ends nothing that is within somebody's share."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest
from peers import LegacyServer, Scene, eventually, gateway
from virtualtime import FakeClock, settle

from toolgate.config import PoolLimits
from toolgate.core.fault import Fault
from toolgate.upstreams.pool import SHARED, Holder, Pool


async def plain(scene: Scene) -> str:
    return scene.target


async def never(scene: Scene) -> str:
    await asyncio.Event().wait()
    return ""


def own(**more: Any) -> LegacyServer:
    """A server that each session has for itself."""
    resources = {"mem://a": plain}
    return LegacyServer(
        {"t": plain, "hold": never}, resources=resources, tells=True, scope="session", timeout=900.0, **more
    )


async def held_by(rig: Any, who: str, count: int) -> list[Any]:
    """Calls without end, each in a session of its own."""
    calls: list[Any] = []
    for _ in range(count):
        calls.append((await rig.legacy(principal=who)).start("tools/call", name="own__hold"))
        await settle()
    return calls


async def end(rig: Any, who: str = "") -> None:
    """The sessions of all, or of one."""
    for session in rig.app.sessions.all():
        if who in ("", session.client.principal.id):
            rig.app.sessions.end(session)
    await settle()


def over(calls: list[Any]) -> list[int]:
    return [number for number, call in enumerate(calls) if call.raw.done()]


@pytest.mark.promise("b.attacks.slots")
async def test_calls_in_many_sessions_leave_a_slot_to_others_and_the_latest_ends() -> None:
    async with gateway(pool=PoolLimits(max_live=4), own=own()) as rig:
        calls = await held_by(rig, "mallory", 8)
        assert len(rig.connections) == 4 and over(calls) == []
        assert (await rig.modern("bob").call("own__t")).text == "t"
        assert over(calls) == [3]  # of the four that were up
        error = (await calls[3].reply()).error
        assert error["data"]["code"] == "SERVER_FAILED" and "share of the pool (pool.max_live)" in error["message"]
        assert len(rig.servers["own"].requests("tools/call")) == 5  # nothing is sent again
        await end(rig)


async def test_a_server_that_all_share_is_started_while_one_client_holds_all_slots() -> None:
    there, further = LegacyServer({"t": plain}, idle=1.0), LegacyServer({"t": plain}, idle=1.0)
    async with gateway(pool=PoolLimits(max_live=4), own=own(), there=there, further=further) as rig:
        calls = await held_by(rig, "mallory", 1)
        await rig.clock.advance(10)
        calls += await held_by(rig, "mallory", 7)
        assert len(rig.connections) == len(over(calls)) + 4 and not there.open_connections
        bob = rig.modern("bob")
        assert [(await bob.call(f"{id}__t")).text for id in ("there", "further")] == ["t", "t"]
        assert over(calls) == [3]  # what is idle goes first: `there` for `further`
        await end(rig)


async def test_who_waits_and_holds_less_is_before_a_hundred_of_one_who_holds_more() -> None:
    async with gateway(pool=PoolLimits(max_live=4), own=own()) as rig:
        hers = await held_by(rig, "mallory", 100)
        his = await held_by(rig, "bob", 2)
        assert over(hers) == [2, 3]
        assert [call["params"]["name"] for call in rig.servers["own"].calls] == ["hold"] * 6
        assert over(his) == []
        third = await held_by(rig, "cid", 1)
        assert len(over(hers)) + len(over(his)) == 3 and over(third) == []
        await end(rig)


async def test_what_is_within_a_share_is_ended_for_nobody_however_often_others_come() -> None:
    async with gateway(pool=PoolLimits(max_live=4), own=own(), there=LegacyServer({"t": plain})) as rig:
        anns = await held_by(rig, "ann", 2)
        for _ in range(5):
            await held_by(rig, "mallory", 6)
            await end(rig, "mallory")
        assert over(anns) == []
        assert (await rig.modern("bob").call("there__t")).text == "t"
        assert over(anns) == []
        await end(rig)


async def test_idle_servers_of_others_are_not_ended_by_who_holds_more() -> None:
    async with gateway(pool=PoolLimits(max_live=4), own=own()) as rig:
        ann = await rig.legacy(principal="ann")
        await ann.call("own__t")
        [hers] = rig.connections
        calls = await held_by(rig, "mallory", 8)
        assert hers in rig.connections and len(rig.connections) == 4
        assert over(calls) == []
        await end(rig)


async def test_subscriptions_in_many_sessions_give_way_before_calls_and_come_back() -> None:
    async with gateway(pool=PoolLimits(max_live=4), own=own(), there=LegacyServer({"t": plain}, idle=1.0)) as rig:
        calls = await held_by(rig, "mallory", 1)
        ears = [await (await rig.legacy(principal="mallory")).listen("own+mem://a") for _ in range(3)]
        calls += await held_by(rig, "mallory", 1)
        assert (await rig.modern("bob").call("there__t")).text == "t"
        assert over(calls) == [] and len(rig.servers["own"].watched) == 2
        await calls[1].gone()
        await rig.clock.advance(120)
        assert len(rig.servers["own"].watched) == 3  # when there was room
        for ear in ears:
            await ear.stop()
        await end(rig)


async def test_servers_that_never_start_leave_a_slot_to_others() -> None:
    class Hanging(LegacyServer):
        async def make_link(self, *ground: Any) -> Any:
            await asyncio.Event().wait()

    hanging = Hanging({"t": plain}, scope="session", start_timeout=600.0, timeout=900.0)
    async with gateway(pool=PoolLimits(max_live=2), own=hanging, there=LegacyServer({"t": plain})) as rig:
        calls: list[Any] = []
        for _ in range(2):
            calls.append((await rig.legacy(principal="mallory")).start("tools/call", name="own__t"))
            await settle()
        there = asyncio.ensure_future(rig.modern("bob").call("there__t"))
        await eventually(there.done)
        assert there.result().text == "t"
        await end(rig)


@pytest.mark.parametrize(("who", "is_ended"), [("mallory", True), ("local", False)])
async def test_a_connection_of_a_principal_counts_but_not_where_anybody_is_that_principal(
    who: str, is_ended: bool
) -> None:
    servers = {f"s{n}": LegacyServer({"hold": never}, scope="principal", timeout=900.0) for n in range(3)}
    last = LegacyServer({"t": plain}, idle=1.0, start_timeout=5.0)
    async with gateway(pool=PoolLimits(max_live=3), **servers, last=last) as rig:
        calls: list[Any] = []
        for id in servers:
            session = await rig.legacy(principal=who)
            calls.append(session.start("tools/call", name=f"{id}__hold"))
            await rig.clock.advance(10)
        assert len(rig.connections) == 3 and not last.open_connections
        call = rig.modern("bob").start("tools/call", name="last__t")
        await rig.clock.advance(30)
        assert call.raw.done() and bool(over(calls)) == is_ended
        await end(rig)


# The pool alone.


class Up:
    """A server that holds a slot, or waits for one."""

    def __init__(self, pool: Pool, whose: str, asker: str = "") -> None:
        self.pool, self.whose, self.asker = pool, whose, asker or whose
        self.is_idle, self.is_at_work, self.ended = False, True, False
        self.holder = Holder(lambda: 0.0, lambda: self.is_idle, lambda: self.is_at_work, self._give_way)
        self.entering = asyncio.ensure_future(pool.enter(self.holder, "x", 60.0, whose, asker))

    @property
    def is_up(self) -> bool:
        return self.entering.done() and not self.entering.exception() and not self.ended

    def _give_way(self) -> None:
        self.ended = True
        asyncio.get_running_loop().call_soon(self.pool.leave, self.holder)


async def come(pool: Pool, whose: str, count: int = 1, asker: str = "") -> list[Up]:
    found = [Up(pool, whose, asker) for _ in range(count)]
    await settle()
    return found


async def done(*all: Up) -> None:
    for each in all:
        each.entering.cancel()
    await asyncio.gather(*(each.entering for each in all), return_exceptions=True)


async def test_what_all_share_is_in_nobodys_share_and_is_ended_only_when_it_is_idle() -> None:
    pool = Pool(FakeClock(), PoolLimits(max_live=4))
    shared, anns = await come(pool, SHARED, 4), await come(pool, "ann", 2)
    assert [each.is_up for each in (*shared, *anns)] == [True] * 4 + [False] * 2
    shared[1].is_idle = True
    pool.rested()
    await settle()
    assert [each.is_up for each in (*shared, *anns)] == [True, False, True, True, True, False]
    await done(*shared, *anns)


@pytest.mark.parametrize("shared", [1, 2, 3])
async def test_what_all_share_makes_no_share_smaller(shared: int) -> None:
    pool = Pool(FakeClock(), PoolLimits(max_live=6))
    anns, others = await come(pool, "ann", 3), await come(pool, SHARED, shared, "mallory")
    mallorys = await come(pool, "mallory", 4)
    assert [each.is_up for each in (*anns, *others)] == [True] * (3 + shared)
    assert [each.is_up for each in mallorys] == [True] * (3 - shared) + [False] * (1 + shared)
    further = await come(pool, SHARED, 3, "mallory")
    assert all(each.is_up for each in (*anns, *others))
    await done(*anns, *others, *mallorys, *further)


async def test_who_waits_for_what_all_share_claims_a_share_of_its_own() -> None:
    pool = Pool(FakeClock(), PoolLimits(max_live=6))
    held = [*await come(pool, "ann", 3), *await come(pool, "bob", 3)]
    [shared] = await come(pool, SHARED, 1, "cid")
    assert shared.is_up and sum(each.is_up for each in held) == 5
    await done(*held, shared)


async def test_calls_at_shared_servers_end_none_of_a_clients_within_its_share() -> None:
    shared = {f"s{n}": LegacyServer({"hold": never}, timeout=900.0) for n in range(3)}
    async with gateway(pool=PoolLimits(max_live=6), own=own(), **shared) as rig:
        anns = await held_by(rig, "ann", 3)
        hers = [rig.modern("mallory").start("tools/call", name=f"{id}__hold") for id in shared]
        await settle()
        assert len(rig.connections) == 6
        hers += await held_by(rig, "mallory", 3)
        assert over(anns) == [] and len(rig.connections) == 6
        for call in hers:
            call.leave()
        await end(rig)


async def test_an_idle_one_goes_to_its_own_and_no_call_of_ones_own_ends_for_another() -> None:
    pool = Pool(FakeClock(), PoolLimits(max_live=2))
    anns = await come(pool, "ann", 3)
    assert [each.is_up for each in anns] == [True, True, False]
    anns[0].is_idle = True
    pool.rested()
    await settle()
    assert [each.is_up for each in anns] == [False, True, True]
    await done(*anns)


async def test_who_gets_no_slot_is_told_so_and_those_that_are_up_go_on() -> None:
    pool = Pool(FakeClock(), PoolLimits(max_live=2))
    everybody = [*await come(pool, "ann"), *await come(pool, "bob")]
    late = Up(pool, "cid")
    with pytest.raises(Fault, match="the pool is full"):
        await late.entering
    assert all(each.is_up for each in everybody)


@pytest.mark.parametrize("seed", range(20))
async def test_whoever_comes_nobody_is_ended_within_a_share_and_nobody_starves(seed: int) -> None:
    random, most = Random(seed), 6
    pool = Pool(FakeClock(), PoolLimits(max_live=most))
    there: list[Up] = []
    for _ in range(150):
        up_before = [each for each in there if each.is_up]
        held = Counter(each.whose for each in up_before)
        if random.random() < 0.7 or not there:
            whose = random.choice(["ann", "bob", "mallory", "mallory", "mallory", SHARED])
            there.append(Up(pool, whose, random.choice(["ann", "cid", "mallory"]) if whose == SHARED else ""))
        else:
            leaving = random.choice(there)
            there.remove(leaving)
            leaving.entering.cancel()
            await settle()
            pool.leave(leaving.holder)
        await settle()
        claimants = {each.asker for each in there if not each.ended} - {SHARED}
        is_asked = any(each.whose == SHARED and not each.entering.done() for each in there)
        fair = max(1, most // max(1 + is_asked, len(claimants)))
        up = Counter(each.whose for each in there if each.is_up)
        waiting = Counter(each.whose for each in there if not each.entering.done())
        assert up.total() == len(pool) <= most
        for each in up_before:
            if each.ended:
                assert each.whose != SHARED and held[each.whose] > fair and up[each.whose] >= fair
        for whose in waiting.keys() - {SHARED}:
            assert up[whose] >= fair or all(up[other] <= fair for other in up if other != SHARED), (up, waiting)
    await done(*there)
