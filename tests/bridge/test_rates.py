"""How many calls in a while and at once, in virtual time: exact, for clients and servers of both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
import pytest
from bridge.test_tasks import Gate, knowing, made
from peers import LATEST, MODERN, LegacyServer, ModernClient, ModernServer, Scene, form, gateway, named
from task_peers import LegacyTaskServer, ModernTaskServer
from virtualtime import FakeClock, settle, soon

from toolgate.config import Config, Limits
from toolgate.config.access import Bounds, Concurrency, KnownClient, Rate, Rates
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Accepted, Call, Client, Done, Principal
from toolgate.policy import limits
from toolgate.policy.base import Passed
from toolgate.policy.limits import Meters
from toolgate.upstreams.mcp import counted_tasks
from toolgate.upstreams.mcp.requests import Requests

REVISIONS = ["2025-06-18", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]


async def plain(scene: Scene) -> str:
    return "done"


async def hello(scene: Scene) -> str:
    return f"hello {(await scene.ask(form()))['content']['name']}"


def rated(**rates: Rate) -> Config:
    return Config(limits=Limits(rates=Rates(**rates)))


def at_once(**most: int) -> Config:
    return Config(limits=Limits(concurrency=Concurrency(**most)))


def refused(reply: Any) -> float:
    assert reply.error["code"] == -32603
    assert reply.error["data"]["code"] == "RATE_LIMITED"
    assert reply.error["data"]["outcome"] == "not_sent"
    assert reply.error["data"]["retryable"] is True
    return reply.error["data"]["retryAfter"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_has_as_many_calls_as_its_rate_says_and_is_told_when_the_next_one_is_due(
    revision: str, server: Any
) -> None:
    there = server({"plain": plain})
    async with gateway(config=rated(principal=Rate(3, 60.0)), there=there) as rig:
        client = await rig.client(revision)
        for _ in range(3):
            assert (await client.request("tools/call", name="there__plain")).text == "done"
        wait = refused(await client.request("tools/call", name="there__plain"))
        assert 19 < wait <= 20
        await rig.clock.advance(wait - 0.01)
        refused(await client.request("tools/call", name="there__plain"))
        await rig.clock.advance(0.011)
        assert (await client.request("tools/call", name="there__plain")).text == "done"
        refused(await client.request("tools/call", name="there__plain"))
        assert len(there.calls) == 4


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_one_client_has_used_up_is_left_to_others(revision: str) -> None:
    async with gateway(config=rated(principal=Rate(1, 60.0)), there=LegacyServer({"plain": plain})) as rig:
        ann, bob = await rig.client(revision, principal="ann"), await rig.client(revision, principal="bob")
        assert (await ann.request("tools/call", name="there__plain")).text == "done"
        refused(await ann.request("tools/call", name="there__plain"))
        assert (await bob.request("tools/call", name="there__plain")).text == "done"


async def test_a_servers_rate_is_for_all_its_clients_and_a_tools_for_that_tool() -> None:
    config = rated(server=Rate(3, 60.0), tool=Rate(2, 60.0))
    servers = {id: LegacyServer({"one": plain, "two": plain}) for id in ("here", "there")}
    async with gateway(config=config, **servers) as rig:
        ann, bob = rig.modern("ann"), await rig.legacy(principal="bob")
        assert (await ann.request("tools/call", name="here__one")).text == "done"
        assert (await bob.request("tools/call", name="here__one")).text == "done"
        refused(await ann.request("tools/call", name="here__one"))  # the tool
        assert (await ann.request("tools/call", name="here__two")).text == "done"
        refused(await bob.request("tools/call", name="here__two"))  # the server
        assert (await bob.request("tools/call", name="there__two")).text == "done"


async def test_a_servers_own_rate_holds_instead_of_the_common_one() -> None:
    there = LegacyServer({"plain": plain}, rate=Rate(1, 10.0))
    async with gateway(config=rated(server=Rate(100, 1.0)), there=there, here=LegacyServer({"plain": plain})) as rig:
        client = rig.modern()
        assert (await client.request("tools/call", name="there__plain")).text == "done"
        assert 9 < refused(await client.request("tools/call", name="there__plain")) <= 10
        for _ in range(5):
            assert (await client.request("tools/call", name="here__plain")).text == "done"


@pytest.mark.parametrize("path", ["/mcp/meta", "/mcp/children", "/mcp/daemon"])
async def test_a_control_tool_is_no_way_around(path: str) -> None:
    calls: Mapping[str, tuple[str, dict[str, Any]]] = {
        "/mcp/meta": ("mcp_call", {"server": "there", "tool": "plain", "args": {}}),
        "/mcp/children": ("execute_child_tool", {"server_id": "there", "tool_name": "plain", "arguments": {}}),
        "/mcp/daemon": ("call_tool", {"server_name": "there", "tool_name": "plain", "arguments": {}}),
    }
    name, arguments = calls[path]
    there = LegacyServer({"plain": plain})
    async with gateway(config=rated(tool=Rate(1, 60.0)), there=there) as rig:
        assert (await rig.modern().request("tools/call", name="there__plain")).text == "done"
        reply = await rig.modern(path=path).request("tools/call", name=name, arguments=arguments)
        assert b"this tool may have 1 calls in 60 s" in reply.raw
        assert len(there.calls) == 1


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_that_asks_is_charged_once(revision: str, server: Any) -> None:
    async with gateway(config=rated(principal=Rate(2, 60.0)), there=server({"hello": hello, "plain": plain})) as rig:
        client = await rig.client(revision)
        answers = {"elicitation/create": lambda _: named("Ann")}
        assert (await client.converse("tools/call", answers, name="there__hello")).text == "hello Ann"
        assert (await client.request("tools/call", name="there__plain")).text == "done"
        refused(await client.request("tools/call", name="there__plain"))


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_so_many_calls_run_at_once_and_no_more(revision: str, server: Any) -> None:
    gate = asyncio.Event()

    async def waits(scene: Scene) -> str:
        await gate.wait()
        return "done"

    async with gateway(config=at_once(principal=2), there=server({"waits": waits})) as rig:
        client = await rig.client(revision)
        two = [asyncio.ensure_future(client.request("tools/call", name="there__waits")) for _ in range(2)]
        await settle()
        assert refused(await soon(client.request("tools/call", name="there__waits"))) == limits.SOON
        gate.set()
        assert [reply.text for reply in await asyncio.gather(*two)] == ["done", "done"]
        assert (await client.request("tools/call", name="there__waits")).text == "done"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_that_was_cancelled_makes_room(revision: str) -> None:
    async def forever(scene: Scene) -> str:
        await asyncio.Event().wait()
        return "never"

    there = LegacyServer({"forever": forever, "plain": plain})
    async with gateway(config=at_once(tool=1, server=1), there=there) as rig:
        client = await rig.client(revision)
        running = client.start("tools/call", name="there__forever", id="abc")
        await there.got("tools/call")
        refused(await soon(client.request("tools/call", name="there__plain")))
        if isinstance(client, ModernClient):
            await running.gone()
        else:
            client.cancel(running)
        await settle()
        assert (await client.request("tools/call", name="there__plain")).text == "done"


@pytest.mark.parametrize("server", SERVERS)
async def test_what_is_parked_makes_room_and_its_retry_is_never_refused(server: Any) -> None:
    gate = asyncio.Event()

    async def waits(scene: Scene) -> str:
        await gate.wait()
        return "done"

    async with gateway(config=at_once(principal=1), there=server({"hello": hello, "waits": waits})) as rig:
        client = rig.modern()
        asked = await client.request("tools/call", name="there__hello")
        assert asked.asks
        running = asyncio.ensure_future(client.request("tools/call", name="there__waits"))
        await settle()
        refused(await soon(client.request("tools/call", name="there__waits")))
        answers = {key: named("Ann") for key in asked.asks}
        reply = await client.request(
            "tools/call", name="there__hello", inputResponses=answers, requestState=asked.state
        )
        assert reply.text == "hello Ann"
        gate.set()
        assert (await running).text == "done"


async def test_what_was_parked_and_never_answered_is_given_back() -> None:
    async with gateway(config=at_once(principal=1), there=LegacyServer({"hello": hello, "plain": plain})) as rig:
        client = rig.modern()
        assert (await client.request("tools/call", name="there__hello")).asks
        await rig.clock.advance(400)
        assert (await client.request("tools/call", name="there__plain")).text == "done"


def of_tasks(kind: str, scripts: Mapping[str, Any]) -> Any:
    """A server that runs the tool `slow` as a task."""
    if kind == "modern":
        return ModernTaskServer(scripts, as_tasks=("slow",))
    return LegacyTaskServer(scripts, support={"slow": "optional"})


async def who_knows_tasks(rig: Any, kind: str) -> Any:
    return knowing(rig) if kind == "modern" else await rig.client(LATEST)


TASKS = pytest.mark.parametrize("kind", ["modern", "legacy"])


@TASKS
async def test_a_call_that_has_become_a_task_keeps_its_place_until_that_ends(kind: str) -> None:
    gate = Gate()
    async with gateway(config=at_once(principal=2), there=of_tasks(kind, {"slow": gate, "plain": plain})) as rig:
        ann = await who_knows_tasks(rig, kind)
        first, _ = await made(ann), await made(ann)
        for name in ("slow", "plain"):
            assert refused(await ann.call(f"there__{name}")) == limits.SOON
        await rig.clock.advance(600)
        refused(await ann.call("there__plain"))
        await ann.request("tasks/cancel", taskId=first)
        await settle()
        assert (await ann.call("there__plain")).text == "done"
        await made(ann)
        refused(await ann.call("there__plain"))
        gate.opened.set()
        await rig.clock.advance(61)


@TASKS
async def test_the_place_of_a_task_that_nobody_asks_for_is_free_soon_after_its_end(kind: str) -> None:
    gate = Gate()
    async with gateway(config=at_once(principal=1), there=of_tasks(kind, {"slow": gate, "plain": plain})) as rig:
        ann = await who_knows_tasks(rig, kind)
        await made(ann)
        refused(await ann.call("there__plain"))
        gate.opened.set()
        await rig.clock.advance(61)
        assert (await ann.call("there__plain")).text == "done"


@TASKS
@pytest.mark.parametrize("how", ["get", "result", "told"])
async def test_whoever_learns_that_its_task_is_over_finds_a_place_at_once(how: str, kind: str) -> None:
    gate = Gate()
    there = of_tasks(kind, {"slow": gate, "plain": plain})
    async with gateway(config=at_once(principal=1), there=there) as rig:
        ann = await who_knows_tasks(rig, kind)
        id = await made(ann)
        watching = how == "told" and kind == "modern"
        heard = ann.start("subscriptions/listen", notifications={"taskIds": [id]}) if watching else None
        await settle()
        gate.opened.set()
        await settle()
        if how == "told":
            (connection, task) = there.connections[0], there.kept.tasks["own/1"]
            (connection.tell_task if kind == "modern" else connection.tell_status)(task)
            await settle()
        elif how == "result" and kind == "legacy":
            assert "at last" in str((await ann.request("tasks/result", taskId=id)).result)
        else:
            assert (await ann.request("tasks/get", taskId=id)).result["status"] == "completed"
        assert (await ann.call("there__plain")).text == "done"
        if heard:
            await heard.gone()


@TASKS
async def test_the_places_of_tasks_are_free_where_their_server_is_gone(kind: str) -> None:
    gate = Gate()
    async with gateway(config=at_once(principal=1), there=of_tasks(kind, {"slow": gate, "plain": plain})) as rig:
        ann = await who_knows_tasks(rig, kind)
        await made(ann)
        refused(await ann.call("there__plain"))
        await rig.app.gateway.snapshot.upstreams["there"].stop()
        assert (await ann.call("there__plain")).text == "done"
        gate.opened.set()
        await settle()


async def test_a_task_that_its_client_has_left_at_once_counts_all_the_same() -> None:
    gate = Gate()
    async with gateway(config=at_once(server=1), there=of_tasks("legacy", {"slow": gate, "plain": plain})) as rig:
        ann, bob = await rig.client(LATEST), await rig.client(LATEST, principal="bob")
        await made(ann)
        await ann.close()
        refused(await bob.call("there__plain"))
        gate.opened.set()
        await rig.clock.advance(61)


@pytest.mark.parametrize("most_counted", [0, counted_tasks.MOST_COUNTED])
async def test_a_task_that_its_client_has_left_and_that_is_over_at_once_gives_its_place_back(
    most_counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_tasks, "MOST_COUNTED", most_counted)
    there = of_tasks("legacy", {"slow": plain, "plain": plain})
    async with gateway(config=at_once(server=1), there=there) as rig:
        ann, bob = await rig.client(LATEST), await rig.client(LATEST, principal="bob")
        await ann.request("tools/list")
        there.makes.clear()
        wish = ann.start("tools/call", name="there__slow", arguments={}, task={"ttl": 60_000})
        await settle()
        ann.cancel(wish)
        await settle()
        refused(await bob.call("there__plain"))
        there.makes.set()
        await settle()
        assert (await bob.call("there__plain")).text == "done"


async def test_who_leaves_a_wish_for_a_task_as_its_connection_ends_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ends_at_once(self: Requests, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        spawned = spawn(self, work)
        spawned.cancel()
        return spawned

    there = of_tasks("legacy", {"slow": plain, "plain": plain})
    async with gateway(config=at_once(server=1), there=there) as rig:
        ann = await rig.client(LATEST)
        await ann.request("tools/list")
        there.makes.clear()
        wish = ann.start("tools/call", name="there__slow", arguments={}, task={"ttl": 60_000})
        await settle()
        spawn = Requests.spawn
        monkeypatch.setattr(Requests, "spawn", ends_at_once)
        ann.cancel(wish)
        await settle()
        monkeypatch.undo()
        await rig.app.gateway.snapshot.upstreams["there"].stop()
        there.makes.set()
        assert (await ann.call("there__plain")).text == "done"


async def test_a_tool_that_runs_as_a_task_for_a_client_without_any_counts_once() -> None:
    gate = Gate()
    there = LegacyTaskServer({"slow": gate, "plain": plain}, support={"slow": "required"})
    async with gateway(config=at_once(principal=1), there=there) as rig:
        ann = rig.modern()
        running = asyncio.ensure_future(ann.call("there__slow"))
        await settle()
        refused(await soon(ann.call("there__plain")))
        gate.opened.set()
        await rig.clock.advance(61)
        assert "at last" in str((await running).result)
        assert (await ann.call("there__plain")).text == "done"


async def test_arguments_that_are_too_large_are_refused_with_the_limit() -> None:
    there = LegacyServer({"plain": plain})
    async with gateway(config=Config(limits=Limits(argument_limit=100)), there=there) as rig:
        client = rig.modern()
        assert (await client.request("tools/call", name="there__plain", arguments={"a": "x" * 80})).text == "done"
        reply = await client.request("tools/call", name="there__plain", arguments={"a": "x" * 100})
        assert reply.error["code"] == -32602
        assert reply.error["data"]["limit"] == 100
        assert len(there.calls) == 1


async def test_meters_outlive_the_configuration() -> None:
    there = LegacyServer({"plain": plain})
    rate = rated(principal=Rate(1, 60.0))

    def edited(config: Config) -> Config:
        return msgspec.structs.replace(config, limits=Limits(rates=Rates(principal=Rate(1, 30.0))))

    async with gateway(config=rate, edited=edited, there=there) as rig:
        client = rig.modern()
        assert (await client.request("tools/call", name="there__plain")).text == "done"
        await rig.app.reload()
        assert 29 < refused(await client.request("tools/call", name="there__plain")) <= 30


# The policy alone.


def call(client: str = "", id: str = "ann", server: str = "there", tool: str = "plain") -> Call:
    who = Principal(id, "10.0.0.1", client=client)
    return Call("tools/call", tool, Client(who), server=server)


async def test_each_configured_client_has_its_own_bounds() -> None:
    clients = (
        KnownClient(id="ci", name="ci", limits=Bounds(Rate(1, 60.0))),
        KnownClient(id="desk", name="desk", limits=Bounds(concurrency=1)),
        KnownClient(id="other", name="other"),
    )
    rule = limits.Limits(Config(clients=clients), Meters(FakeClock()))
    assert rule.are_some
    rule.before(call("ci", "client:ci"), False)
    with pytest.raises(Fault, match="1 calls in 60 s"):
        rule.before(call("ci", "client:ci"), False)
    rule.before(call("desk", "client:desk"), False)
    with pytest.raises(Fault, match="at once"):
        rule.before(call("desk", "client:desk"), False)
    for _ in range(10):
        rule.before(call("other", "client:other"), False)


async def test_a_call_that_becomes_a_task_after_it_has_asked_takes_its_place_again() -> None:
    rule = limits.Limits(at_once(principal=1), Meters(FakeClock()))
    first = msgspec.structs.replace(call(), reached=Reached())
    passed = rule.before(first, False)
    assert isinstance(passed, Passed) and first.reached
    rule.ended(first, Done(b"{}"), passed.ticket)  # it has asked
    first.reached.goes_on = True
    rule.ended(first, Accepted(b"{}"), passed.ticket)
    with pytest.raises(Fault, match="at once"):
        rule.before(call(), False)
    for over in (*first.reached.over, *first.reached.over):
        over()
    rule.ended(first, Accepted(b"{}"), passed.ticket)  # it is told late that the task was over at once
    assert isinstance(rule.before(call(), False), Passed)
    with pytest.raises(Fault, match="at once"):
        rule.before(call(), False)


async def test_a_known_client_has_one_meter_wherever_it_is() -> None:
    clients = (KnownClient(id="ci", name="ci", limits=Bounds(Rate(1, 60.0))),)
    rule = limits.Limits(Config(clients=clients), Meters(FakeClock()))
    here = Call("tools/call", "plain", Client(Principal("client:ci", "10.0.0.1", client="ci")), server="there")
    there = Call("tools/call", "plain", Client(Principal("client:ci", "10.0.0.2", client="ci")), server="there")
    rule.before(here, False)
    with pytest.raises(Fault):
        rule.before(there, False)


async def test_a_call_that_one_meter_refuses_is_charged_in_none() -> None:
    clock = FakeClock()
    config = rated(principal=Rate(2, 60.0), server=Rate(1, 600.0))
    rule = limits.Limits(config, Meters(clock))
    rule.before(call(), False)
    for _ in range(5):
        with pytest.raises(Fault, match="this server"):
            rule.before(call(), False)
    rule.before(call(server="here"), False)  # the second of the client's own


async def test_meters_are_bounded() -> None:
    meters = Meters(FakeClock())
    rule = limits.Limits(rated(principal=Rate(1, 60.0)), meters)
    for number in range(limits.MOST_METERS + 10):
        rule.before(call(id=f"client-{number}"), False)
    assert len(meters.of("principal").filled) <= limits.MOST_METERS
    with pytest.raises(Fault):
        rule.before(call(id=f"client-{number}"), False)


async def test_who_asks_how_work_goes_on_is_not_charged() -> None:
    rule = limits.Limits(rated(principal=Rate(1, 60.0)), Meters(FakeClock()))
    for _ in range(5):
        rule.before(Call("tasks/get", "7", Client(), server="there"), False)


async def test_an_end_that_is_told_twice_gives_back_once() -> None:
    meters = Meters(FakeClock())
    rule = limits.Limits(at_once(principal=3), meters)
    one, other = call(), call()
    passed, passed_too = rule.before(one, False), rule.before(other, False)
    assert isinstance(passed, Passed) and isinstance(passed_too, Passed)
    rule.ended(one, Done(b"{}"), passed.ticket)
    rule.ended(one, Done(b"{}"), passed.ticket)
    assert not meters.are_idle
    rule.ended(other, Done(b"{}"), passed_too.ticket)
    assert meters.are_idle
