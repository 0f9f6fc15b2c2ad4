"""A server's life: started by the first who needs it, stopped when nobody does, and there again for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Rig, Scene, eventually, form, gateway, named
from task_peers import WITH_EXTENSION, ModernTaskServer
from virtualtime import settle

from toolgate.app import DRAIN
from toolgate.config import CatalogLimits, Config, PoolLimits
from toolgate.config.access import Rate
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.upstreams.links.memory import MemoryLink
from toolgate.upstreams.mcp.upstream import McpUpstream

BOTH = pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
CLIENT = Client()


async def plain(scene: Scene) -> str:
    return scene.target


async def hello(scene: Scene) -> str:
    return (await scene.ask(form()))["action"]


class Gate:
    """A tool that answers when the gate is open."""

    def __init__(self) -> None:
        self.opens = asyncio.Event()

    async def __call__(self, scene: Scene) -> str:
        await self.opens.wait()
        return "through"


def there(rig: Rig, id: str) -> McpUpstream:
    found = rig.app.gateway.snapshot.upstreams[id]
    assert isinstance(found, McpUpstream)
    return found


def state(rig: Rig, id: str) -> tuple[str, str]:
    status = there(rig, id).status()
    return status.state, status.stopped_by


def with_changed(**changes: Any) -> Callable[[Config], Config]:
    """An edit of the first server."""

    def edited(config: Config) -> Config:
        return msgspec.structs.replace(config, servers=(msgspec.structs.replace(config.servers[0], **changes),))

    return edited


def many(count: int, **settings: Any) -> dict[str, Any]:
    return {f"s{number}": LegacyServer({"t": plain}, **settings) for number in range(count)}


def up(servers: dict[str, Any]) -> list[str]:
    return [name for name, server in servers.items() if server.open_connections]


# One start for all.


@BOTH
async def test_a_hundred_first_calls_start_a_server_once(kind: Any) -> None:
    one = kind({"t": plain})
    async with gateway(one=one) as rig:
        replies = await asyncio.gather(*(rig.modern().call("one__t") for _ in range(100)))
        assert [reply.text for reply in replies] == ["t"] * 100
        assert len(one.connections) == 1


async def test_a_hundred_calls_of_a_server_that_does_not_start_hear_of_one_start() -> None:
    starts = 0

    async def fails(*_any: Any) -> Any:
        nonlocal starts
        starts += 1
        await asyncio.sleep(1)
        raise Fault("SERVER_FAILED", "it does not start", reach="not_sent")

    one = LegacyServer({"t": plain})
    one.make_link = fails
    async with gateway(one=one) as rig:
        upstream = there(rig, "one")
        call = Call("tools/call", "t", CLIENT, server="one")
        failed = await asyncio.gather(*(upstream.invoke(call) for _ in range(100)), return_exceptions=True)
        assert {str(fault) for fault in failed} == {"Server not started: it does not start"}
        assert len({id(fault) for fault in failed}) == 100
        assert starts == 1


# Idle.


@BOTH
async def test_a_server_that_nobody_calls_is_stopped_and_the_next_call_starts_it_again(kind: Any) -> None:
    one = kind({"t": plain})
    async with gateway(one=one) as rig:
        client = rig.modern()
        await client.call("one__t")
        await rig.clock.advance(299)
        assert state(rig, "one") == ("ready", "")
        await rig.clock.advance(2)
        assert state(rig, "one") == ("stopped", "idle")
        assert not one.open_connections
        assert (await client.call("one__t")).text == "t"
        assert len(one.connections) == 2
        assert state(rig, "one") == ("ready", "")


async def test_its_own_time_counts_before_that_of_the_pool() -> None:
    async with gateway(
        pool=PoolLimits(idle=50), one=LegacyServer({"t": plain}, idle=10.0), two=LegacyServer({"t": plain})
    ) as rig:
        for id in ("one", "two"):
            await rig.modern().call(f"{id}__t")
        await rig.clock.advance(11)
        assert [state(rig, id)[0] for id in ("one", "two")] == ["stopped", "ready"]
        await rig.clock.advance(41)
        assert state(rig, "two") == ("stopped", "idle")


async def test_what_it_offers_stays_known_while_it_is_stopped() -> None:
    one = LegacyServer({"t": plain}, idle=10.0)
    async with gateway(one=one) as rig:
        client = rig.modern()
        await client.request("tools/list")
        await rig.clock.advance(20)
        assert [tool["name"] for tool in (await client.request("tools/list")).result["tools"]] == ["one__t"]
        await client.request("server/discover")
        assert (await client.request("prompts/list")).result["prompts"] == []  # it has said that it has none
        assert len(one.connections) == 1
        assert state(rig, "one") == ("stopped", "idle")


@BOTH
async def test_it_is_not_stopped_while_a_call_is_under_way(kind: Any) -> None:
    gate = Gate()
    one = kind({"t": gate}, idle=10.0, timeout=1000.0)
    async with gateway(one=one) as rig:
        call = rig.modern().start("tools/call", name="one__t")
        await one.got("tools/call")
        await rig.clock.advance(100)
        assert state(rig, "one") == ("busy", "")
        assert there(rig, "one").calls == there(rig, "one").status().calls == 1
        gate.opens.set()
        assert (await call.reply()).text == "through"
        await rig.clock.advance(9)
        assert state(rig, "one") == ("ready", "")  # it is the end of the last call that counts
        await rig.clock.advance(2)
        assert state(rig, "one") == ("stopped", "idle")


async def test_it_is_not_stopped_while_a_call_is_parked() -> None:
    one = LegacyServer({"hello": hello}, idle=10.0)
    async with gateway(one=one) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="one__hello")
        reply = await call.reply()
        await rig.clock.advance(100)
        assert state(rig, "one") == ("busy", "")
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).text == "accept"
        await rig.clock.advance(11)
        assert state(rig, "one") == ("stopped", "idle")


async def test_a_modern_server_keeps_nothing_for_a_question_and_may_be_stopped_meanwhile() -> None:
    one = ModernServer({"hello": hello}, idle=10.0)
    async with gateway(one=one) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="one__hello")
        reply = await call.reply()
        await rig.clock.advance(100)
        assert state(rig, "one") == ("stopped", "idle")
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).text == "accept"


@BOTH
async def test_it_is_not_stopped_while_a_client_watches_what_it_has(kind: Any) -> None:
    one = kind({"t": plain}, resources={"mem://a": plain}, tells=True, idle=10.0)
    async with gateway(one=one) as rig:
        ear = await rig.modern().listen("one+mem://a")
        await rig.clock.advance(100)
        assert state(rig, "one") == ("ready", "")
        await ear.stop()
        await rig.clock.advance(20)
        assert state(rig, "one") == ("stopped", "idle")


async def test_it_is_not_stopped_while_a_task_of_it_runs() -> None:
    gate = Gate()
    one = ModernTaskServer({"t": gate}, as_tasks=("t",), idle=10.0)
    async with gateway(one=one) as rig:
        client = rig.modern(capabilities=WITH_EXTENSION)
        made = (await client.call("one__t")).result
        await rig.clock.advance(100)
        assert state(rig, "one") == ("ready", "")
        gate.opens.set()
        await settle()
        assert (await client.request("tasks/get", taskId=made["taskId"])).result["status"] == "completed"
        await rig.clock.advance(20)
        assert state(rig, "one") == ("stopped", "idle")


async def test_one_that_is_kept_alive_is_never_stopped_and_takes_no_seat() -> None:
    async with gateway(kept=LegacyServer({"t": plain}, lifecycle="keep-alive", idle=1.0)) as rig:
        await rig.modern().call("kept__t")
        await rig.clock.advance(10000)
        assert state(rig, "kept") == ("ready", "")
        assert len(there(rig, "kept")._deps.link_deps.pool) == 0


@pytest.mark.parametrize("scope", ["principal", "session"])
async def test_connections_of_one_client_are_stopped_in_the_same_way(scope: str) -> None:
    own = LegacyServer({"t": plain}, scope=scope, idle=10.0)
    async with gateway(own=own) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        await ann.call("own__t")
        await bob.call("own__t")
        assert len(own.open_connections) == 2
        await rig.clock.advance(6)
        await bob.call("own__t")
        await rig.clock.advance(6)
        assert len(own.open_connections) == 1
        assert (await ann.call("own__t")).text == "t"


@pytest.mark.parametrize("seed", range(20))
async def test_no_call_fails_over_a_stop_for_want_of_use_or_room(seed: int) -> None:
    """Calls come at just the moments at which servers are stopped."""
    random = Random(seed)

    async def quick(scene: Scene) -> str:
        await asyncio.sleep(random.choice([0.0, 0.0, 0.001, 0.5]))
        return scene.target

    servers = {
        f"s{number}": random.choice([LegacyServer, ModernServer])(
            {"t": quick}, idle=random.choice([0.0, 1.0, 1.0, 2.0]), lifecycle=random.choice(["lazy", "ephemeral"])
        )
        for number in range(5)
    }
    async with gateway(pool=PoolLimits(max_live=2), **servers) as rig:
        client = rig.modern()

        async def visit() -> None:
            for _ in range(30):
                call = client.start("tools/call", name=f"{random.choice(list(servers))}__t")
                await asyncio.wait((call.raw,))  # where the pool is full that takes a while
                assert (await call.reply()).text == "t"
                await asyncio.sleep(random.choice([0.0, 0.0, 0.1, 1.0, 1.0, 2.0, 0.999999, 1.000001]))

        await asyncio.gather(*(visit() for _ in range(8)))
        await rig.clock.advance(10)
        assert up(servers) == []


# The pool.


@pytest.mark.promise("b.002.pool")
async def test_the_least_recently_used_idle_server_gives_way() -> None:
    servers = many(4)
    async with gateway(pool=PoolLimits(max_live=3), **servers) as rig:
        client = rig.modern()
        for id in ("s0", "s1", "s2", "s0"):
            await client.call(f"{id}__t")
            await rig.clock.advance(1)
        await client.call("s3__t")
        await settle()
        assert up(servers) == ["s0", "s2", "s3"]
        assert state(rig, "s1") == ("stopped", "pool")
        assert (await client.call("s1__t")).text == "t"
        assert up(servers) == ["s0", "s1", "s3"]


async def test_one_that_is_busy_or_kept_alive_does_not_give_way() -> None:
    gate = Gate()
    servers = many(2) | {"busy": LegacyServer({"t": gate}), "kept": LegacyServer({"t": plain}, lifecycle="keep-alive")}
    async with gateway(pool=PoolLimits(max_live=2), **servers) as rig:
        client = rig.modern()
        await client.call("kept__t")
        call = client.start("tools/call", name="busy__t")
        await servers["busy"].got("tools/call")
        for _ in range(3):
            await client.call("s0__t")
            await client.call("s1__t")
        assert up(servers) == ["s1", "busy", "kept"]
        gate.opens.set()
        await call.reply()


async def test_where_all_are_busy_a_start_waits_its_turn() -> None:
    gates = [Gate(), Gate()]
    servers = {"a": LegacyServer({"t": gates[0]}), "b": LegacyServer({"t": gates[1]})} | many(2)
    async with gateway(pool=PoolLimits(max_live=2), **servers) as rig:
        client = rig.modern()
        busy = [client.start("tools/call", name=f"{id}__t") for id in ("a", "b")]
        await servers["a"].got("tools/call")
        await servers["b"].got("tools/call")
        waiting = [client.start("tools/call", name="s1__t")]
        await settle()
        waiting.append(client.start("tools/call", name="s0__t"))
        await rig.clock.advance(10)
        assert state(rig, "s0") == state(rig, "s1") == ("starting", "")
        assert up(servers) == ["a", "b"]
        gates[1].opens.set()
        await waiting[0].reply()
        await rig.clock.advance(1)
        assert (await waiting[1].reply()).text == "t"  # when the first who waited needed its seat no more
        assert up(servers) == ["a", "s0"]
        gates[0].opens.set()
        for call in busy:
            assert (await call.reply()).text == "through"


async def test_a_start_that_gets_no_seat_in_time_says_that_the_pool_is_full() -> None:
    gate = Gate()
    servers = {
        "busy": LegacyServer({"t": gate}, timeout=1000.0),
        "late": LegacyServer({"t": plain}, start_timeout=30.0),
    }
    async with gateway(pool=PoolLimits(max_live=1), **servers) as rig:
        call = rig.modern().start("tools/call", name="busy__t")
        await servers["busy"].got("tools/call")
        upstream = there(rig, "late")
        refused = asyncio.ensure_future(upstream.invoke(Call("tools/call", "t", CLIENT, server="late")))
        await rig.clock.advance(29)
        assert not refused.done()
        await rig.clock.advance(2)
        fault = refused.exception()
        assert isinstance(fault, Fault)
        assert (fault.code, fault.reach) == ("SERVER_FAILED", "not_sent")
        assert "pool is full" in fault.message and "pool.max_live" in fault.message and "pool.max_live" in fault.hint
        assert state(rig, "late") == ("configured", "")  # it is no fault of that server
        gate.opens.set()
        await call.reply()
        assert (await rig.modern().call("late__t")).text == "t"


async def test_a_start_that_waits_for_a_seat_can_be_stopped_and_leaves_no_seat_taken() -> None:
    gate = Gate()
    servers = {"busy": LegacyServer({"t": gate})} | many(2)
    async with gateway(pool=PoolLimits(max_live=1), **servers) as rig:
        client = rig.modern()
        busy = client.start("tools/call", name="busy__t")
        await servers["busy"].got("tools/call")
        waiting = asyncio.ensure_future(there(rig, "s0").invoke(Call("tools/call", "t", CLIENT, server="s0")))
        await settle()
        await there(rig, "s0").stop()
        with pytest.raises(Fault, match="s0 was stopped"):
            await waiting
        assert state(rig, "s0") == ("stopped", "close")
        gate.opens.set()
        await busy.reply()
        assert (await client.call("s1__t")).text == "t"
        assert up(servers) == ["s1"]


async def test_a_hundred_servers_are_listed_through_a_pool_of_twenty() -> None:
    most = 0

    class Counted(LegacyServer):
        async def make_link(self, *ground: Any) -> MemoryLink:
            nonlocal most
            link = await super().make_link(*ground)
            most = max(most, len(up(servers)))
            return link

    servers: dict[str, Any] = {f"s{number}": Counted({"t": plain}) for number in range(100)}
    async with gateway(**servers) as rig:
        listed = (await rig.modern().request("tools/list")).result
        assert len(listed["tools"]) == 100
        assert not {"pending", "failures"} & set(listed.get("_meta", {}))
        assert most <= 20
        assert [len(server.connections) for server in servers.values()] == [1] * 100
        await rig.clock.advance(10)
        assert len(up(servers)) == 20  # and nobody is started again for the others' sake
        assert sum(len(server.connections) for server in servers.values()) == 100


async def test_servers_that_take_turns_in_a_full_pool_are_not_listed_without_end() -> None:
    servers = many(6)
    async with gateway(pool=PoolLimits(max_live=2), catalog=CatalogLimits(ttl=30), **servers) as rig:
        client = rig.modern()
        for _ in range(3):
            await client.request("tools/list")
            await rig.clock.advance(31)
        assert sum(len(server.connections) for server in servers.values()) <= 18
        assert sum(len(server.requests("tools/list")) for server in servers.values()) <= 18


async def test_limits_may_change_at_any_time() -> None:
    servers = many(6)
    async with gateway(pool=PoolLimits(max_live=4), **servers) as rig:
        client = rig.modern()
        for id in servers:
            await client.call(f"{id}__t")
            await rig.clock.advance(1)
        assert len(up(servers)) == 4
        pool = there(rig, "s0")._deps.link_deps.pool
        pool.limits = PoolLimits(max_live=1)
        await settle()
        assert up(servers) == ["s5"]
        pool.limits = PoolLimits(max_live=6)
        await asyncio.gather(*(client.call(f"{id}__t") for id in servers))
        assert len(up(servers)) == 6


# Up for each call only.


@BOTH
async def test_an_ephemeral_server_is_up_for_one_call_or_list(kind: Any) -> None:
    one = kind({"t": plain}, lifecycle="ephemeral")
    async with gateway(one=one) as rig:
        client = rig.modern()
        await client.request("tools/list")
        await settle()
        assert not one.open_connections and len(one.connections) == 1
        for number in (2, 3):
            assert (await client.call("one__t")).text == "t"
            await settle()
            assert not one.open_connections and len(one.connections) == number
        assert state(rig, "one") == ("stopped", "ephemeral")
        await rig.clock.advance(100)
        assert len(one.connections) == 3


async def test_calls_at_the_same_time_share_an_ephemeral_server_until_the_last_is_over() -> None:
    gate = Gate()
    one = LegacyServer({"t": plain, "gate": gate}, lifecycle="ephemeral")
    async with gateway(one=one) as rig:
        client = rig.modern()
        await client.request("tools/list")
        call = client.start("tools/call", name="one__gate")
        await one.got("tools/call")
        await asyncio.gather(*(client.call("one__t") for _ in range(10)))
        assert len(one.connections) == 2 and one.open_connections
        gate.opens.set()
        assert (await call.reply()).text == "through"
        await settle()
        assert not one.open_connections


async def test_an_ephemeral_server_waits_for_the_answer_to_its_question() -> None:
    one = LegacyServer({"hello": hello}, lifecycle="ephemeral")
    async with gateway(one=one) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="one__hello")
        reply = await call.reply()
        await rig.clock.advance(100)
        assert one.open_connections
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).text == "accept"
        await settle()
        assert not one.open_connections


# Stopped on demand.


@pytest.mark.promise("000.close.closed")
@BOTH
async def test_a_call_under_way_when_its_server_is_stopped_fails_and_is_not_sent_again(kind: Any) -> None:
    one = kind({"t": Gate(), "u": plain})
    one.lists["tools/list"][1][0]["annotations"] = {"readOnlyHint": True}
    async with gateway(one=one) as rig:
        client = rig.modern()
        await client.request("tools/list")
        call = client.start("tools/call", name="one__t")
        await one.got("tools/call")
        await there(rig, "one").stop()
        assert state(rig, "one") == ("stopped", "close")
        assert not one.open_connections
        error = (await call.reply()).error
        assert error["message"] == "one was stopped"
        assert (error["data"]["code"], error["data"]["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        await rig.clock.advance(10)
        assert len(one.calls) == len(one.connections) == 1
        assert (await client.call("one__u")).text == "u"


async def test_calls_that_wait_for_their_turn_fail_unsent_when_their_server_is_stopped() -> None:
    one = LegacyServer({"t": Gate()}, concurrency=1)
    async with gateway(one=one) as rig:
        calls = [rig.modern().start("tools/call", name="one__t") for _ in range(3)]
        await one.got("tools/call")
        await eventually(lambda: there(rig, "one").calls == 3)
        await there(rig, "one").stop()
        outcomes = [(await call.reply()).error["data"]["outcome"] for call in calls]
        assert sorted(outcomes) == ["not_sent", "not_sent", "sent_unknown"]
        assert len(one.connections) == 1


async def test_a_start_under_way_is_given_up_when_its_server_is_stopped() -> None:
    one = LegacyServer({"t": plain})
    one.make_link = never
    async with gateway(one=one) as rig:
        upstream = there(rig, "one")
        call = Call("tools/call", "t", CLIENT, server="one")
        waiting = [asyncio.ensure_future(upstream.invoke(call)) for _ in range(3)]
        await settle()
        assert state(rig, "one") == ("starting", "")
        await upstream.stop()
        assert state(rig, "one") == ("stopped", "close")
        for each in waiting:
            with pytest.raises(Fault, match="one was stopped") as caught:
                await each
            assert (caught.value.code, caught.value.reach) == ("SERVER_FAILED", "not_sent")
        assert not one.connections


async def never(*_any: Any) -> Any:
    await asyncio.Event().wait()


async def test_one_that_was_never_started_can_be_stopped_too() -> None:
    async with gateway(one=LegacyServer({"t": plain})) as rig:
        assert state(rig, "one") == ("configured", "")
        await there(rig, "one").stop()
        assert state(rig, "one") == ("stopped", "close")
        assert (await rig.modern().call("one__t")).text == "t"


async def test_a_call_that_comes_while_its_server_is_stopped_waits_until_all_of_it_is_gone() -> None:
    gone = asyncio.Event()
    order: list[str] = []

    class Slow(MemoryLink):
        async def close(self) -> None:
            await gone.wait()
            order.append("gone")
            await super().close()

    class Server(LegacyServer):
        async def make_link(self, server: Any, receiver: Any, ground: Any) -> MemoryLink:
            order.append("started")
            self.connections.append(self.connection(self))
            return Slow(server.name, self.connections[-1], receiver)

    one = Server({"t": plain})
    async with gateway(one=one) as rig:
        await rig.modern().call("one__t")
        stop = asyncio.ensure_future(there(rig, "one").stop())
        await settle()
        call = rig.modern().start("tools/call", name="one__t")
        await settle()
        assert order == ["started"] and not stop.done()
        gone.set()
        assert (await call.reply()).text == "t"
        await stop
        assert order == ["started", "gone", "started"]
        assert state(rig, "one") == ("ready", "")


# Configured no more.


async def test_what_is_parked_may_end_while_a_server_is_drained_and_then_it_is_closed_for_good() -> None:
    one = LegacyServer({"hello": hello, "t": plain})
    async with gateway(one=one) as rig:
        client = rig.modern()
        call = client.start("tools/call", name="one__hello")
        reply = await call.reply()
        drain = asyncio.ensure_future(there(rig, "one").drain(60))
        await rig.clock.advance(10)
        assert (await client.call("one__t")).text == "t"  # by an old snapshot
        assert not drain.done()
        assert (await client.retry(call, reply, {reply.key: named("Ann")})).text == "accept"
        await settle()
        assert drain.done() and not one.open_connections
        error = (await client.call("one__t")).error
        assert (error["data"]["code"], error["data"]["outcome"]) == ("SERVER_FAILED", "not_sent")


async def test_a_drain_ends_in_its_time_whatever_is_under_way() -> None:
    one = LegacyServer({"t": Gate()}, timeout=1000.0)
    async with gateway(one=one) as rig:
        call = rig.modern().start("tools/call", name="one__t")
        await one.got("tools/call")
        drain = asyncio.ensure_future(there(rig, "one").drain(60))
        await rig.clock.advance(59)
        assert not drain.done()
        await rig.clock.advance(2)
        assert drain.done()
        assert (await call.reply()).error["data"]["outcome"] == "sent_unknown"
        assert not one.open_connections


async def test_a_server_that_has_nothing_to_do_is_drained_at_once() -> None:
    async with gateway(one=LegacyServer({"t": plain})) as rig:
        await rig.modern().call("one__t")
        await asyncio.wait_for(there(rig, "one").drain(60), 1)


# One at a time.


async def test_a_queued_call_that_is_cancelled_is_never_sent_and_the_others_keep_their_order() -> None:
    heard: list[int] = []
    gate = Gate()

    async def tell(scene: Scene) -> str:
        heard.append(scene.arguments["number"])
        return await gate(scene)

    one = LegacyServer({"t": tell}, concurrency=1)
    async with gateway(one=one) as rig:
        client = await rig.client(MODERN)
        calls = []
        for number in range(5):
            calls.append(client.start("tools/call", name="one__t", arguments={"number": number}))
            await eventually(lambda: there(rig, "one").status().calls == len(calls))
        await calls[2].gone()
        await eventually(lambda: there(rig, "one").calls == 4)
        gate.opens.set()
        for number in (0, 1, 3, 4):
            assert (await calls[number].reply()).text == "through"
        assert heard == [0, 1, 3, 4]
        assert there(rig, "one").calls == 0


class _Ends(Exception):
    pass


async def test_a_call_of_an_edited_server_waits_for_the_end_of_the_one_before_and_for_no_longer_than_a_drain() -> None:
    there = LegacyServer({"never": Gate(), "t": plain}, timeout=1000.0)
    async with gateway(there=there, edited=with_changed(args=("new",))) as rig:
        held = rig.modern().start("tools/call", name="there__never")
        await there.got("tools/call")
        await rig.app.reload()
        call = rig.modern().start("tools/call", name="there__t")
        await rig.clock.advance(DRAIN - 1)
        assert len(there.connections) == 1 and state(rig, "there") == ("starting", "")
        await rig.clock.advance(2)
        assert (await call.reply()).text == "t"
        assert (await held.reply()).error["data"]["outcome"] == "sent_unknown"
        assert len(there.open_connections) == 1


async def test_a_start_that_waits_for_the_end_of_the_one_before_can_be_stopped() -> None:
    there = LegacyServer({"never": Gate(), "t": plain}, timeout=1000.0)
    async with gateway(there=there, edited=with_changed(args=("new",))) as rig:
        held = rig.modern().start("tools/call", name="there__never")
        await there.got("tools/call")
        await rig.app.reload()
        call = rig.modern().start("tools/call", name="there__t")
        await rig.clock.advance(1)
        await rig.app.gateway.snapshot.upstreams["there"].stop()
        assert (await call.reply()).error["data"]["outcome"] == "not_sent"
        await rig.clock.advance(DRAIN)
        assert (await held.reply()).error["data"]["outcome"] == "sent_unknown"
        assert (await rig.modern().call("there__t")).text == "t"


async def test_another_time_for_calls_ends_nothing_and_counts_for_the_next_call() -> None:
    gate = Gate()
    there = LegacyServer({"t": gate}, timeout=60.0)
    async with gateway(there=there, edited=with_changed(timeout=7.0, start_timeout=5.0, rate=Rate(9, 1.0))) as rig:
        first = rig.modern().start("tools/call", name="there__t")
        await there.got("tools/call")
        await rig.app.reload()
        second = rig.modern().start("tools/call", name="there__t")
        await rig.clock.advance(8)
        assert (await second.reply()).error["data"]["code"] == "TIMEOUT"
        await rig.clock.advance(DRAIN)
        gate.opens.set()
        assert (await first.reply()).text == "through"
        assert len(there.connections) == len(there.open_connections) == 1


async def test_a_task_that_runs_when_its_server_is_edited_has_as_long_as_a_call() -> None:
    gate = Gate()
    there = ModernTaskServer({"t": gate}, as_tasks=("t",))
    async with gateway(there=there, edited=with_changed(env={"A": "b"})) as rig:
        await rig.modern(capabilities=WITH_EXTENSION).call("there__t")
        await rig.app.reload()
        await rig.clock.advance(DRAIN - 1)
        assert len(there.open_connections) == 1
        await rig.clock.advance(2)
        assert not there.open_connections
        gate.opens.set()


@pytest.mark.parametrize("seconds", [1, DRAIN + 5])
async def test_what_a_handshake_client_answers_after_an_edit_is_sent_to_the_server_as_it_is_now(seconds: float) -> None:
    there = ModernServer({"hello": hello})
    async with gateway(there=there, edited=with_changed(env={"A": "b"})) as rig:
        client = await rig.legacy(LATEST)
        call = client.start("tools/call", name="there__hello")
        question = await client.question()
        await rig.app.reload()
        await rig.clock.advance(seconds)
        client.answer(question, named("Ann"))
        assert (await call.reply()).text == "accept"
        assert len(there.open_connections) == 1 and len(there.connections) == 2


async def test_what_a_handshake_client_answers_after_an_edit_is_sent_to_no_other_program() -> None:
    there = ModernServer({"hello": hello})
    async with gateway(there=there, edited=with_changed(args=("new",))) as rig:
        client = await rig.legacy(LATEST)
        call = client.start("tools/call", name="there__hello")
        question = await client.question()
        await rig.app.reload()
        await rig.clock.advance(1)
        client.answer(question, named("Ann"))
        assert (await call.reply()).error["data"]["outcome"] == "not_sent"
        assert len(there.requests("tools/call")) == 1


async def test_a_server_that_was_replaced_and_is_still_at_work_ends_with_the_gateway() -> None:
    async def never(_scene: Scene) -> str:
        await asyncio.Event().wait()
        return ""

    there = LegacyServer({"never": never})
    with suppress(_Ends):
        async with gateway(there=there, edited=with_changed(env={"A": "b"})) as rig:
            rig.modern().start("tools/call", name="there__never", arguments={})
            await there.got("tools/call")
            await rig.app.reload()
            assert len(there.open_connections) == 1
            raise _Ends
    assert there.open_connections == []
