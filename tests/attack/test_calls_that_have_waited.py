"""A call that has waited (for a person, its turn, or a server that starts again) goes by what holds when it is sent: a
tool that was held back, hidden or turned off meanwhile is not called by whoever began to wait before."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
import pytest
from bridge.test_approval import ApprovalRig, code, decide, sent
from bridge.test_breaker import Moody
from bridge.test_pinned_tools import AFTER, QUARANTINE, a_server
from peers import LATEST, MODERN, LegacyServer, Rig, Scene, eventually, form, gateway
from virtualtime import patience, settle

from toolgate.config import Config, Guard, Limits, Overlay, Parameter
from toolgate.config.access import KnownClient, Permissions
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.state import parking
from toolgate.upstreams.breaker import FAILURES, SHORTEST

REVISIONS = pytest.mark.parametrize("revision", ["2025-06-18", LATEST, MODERN])
FORMS = {"elicitation": {"form": {}}}
YES = {"action": "accept", "content": {"decision": "once"}}
LONG = 60.0  # seconds that a person takes
Change: TypeAlias = Callable[[Rig, Any], Awaitable[None]]


async def is_announced(rig: Rig, there: Any) -> None:
    there.offer("tools", *AFTER)
    await rig.clock.advance(1)


async def is_seen_after_a_restart(_rig: Rig, there: Any) -> None:
    there.lists["tools/list"] = ("tools", list(AFTER))
    there.open_connections[0].hang_up()


async def is_edited(rig: Rig, _there: Any) -> None:
    await rig.app.reload()


def overlaid(**overlay: Any) -> Callable[[Config], Config]:
    def edited(config: Config) -> Config:
        (there,) = config.servers
        with_tools = msgspec.structs.replace(there, tools={"read": Overlay(**overlay)})
        return msgspec.structs.replace(config, servers=(with_tools,))

    return edited


def turned_off(config: Config) -> Config:
    off = Permissions(everything="allow", tools={"there__read": "off"})
    return msgspec.structs.replace(config, clients=(KnownClient(id="ann", name="ann", permissions=off),))


def removed(config: Config) -> Config:
    return msgspec.structs.replace(config, servers=())


CHANGES: dict[str, tuple[Change, Callable[[Config], Config], set[str]]] = {
    "the server tells of another definition": (is_announced, lambda config: config, {"ACCESS_DENIED"}),
    "the server is started again as another": (is_seen_after_a_restart, lambda config: config, {"ACCESS_DENIED"}),
    "the tool is hidden": (is_edited, overlaid(hidden=True), {"TOOL_NOT_FOUND"}),
    "an argument is fixed": (is_edited, overlaid(parameters={"path": Parameter(fixed="/tmp")}), {"INVALID_ARGS"}),
    "the tool is renamed": (is_edited, overlaid(name="look"), {"TOOL_NOT_FOUND"}),
    "the tool is turned off": (is_edited, turned_off, {"ACCESS_DENIED"}),
    "the server is removed": (is_edited, removed, {"TOOL_NOT_FOUND", "SERVER_NOT_FOUND", "SERVER_FAILED"}),
}
CHANGED = {"INVALID_STATE", "APPROVAL_REQUIRED"}  # what is refused before, where approval stands in front of all else
PARAMS: dict[str, Any] = {"name": "there__read", "arguments": {"path": "/etc"}}


def there_is(**settings: Any) -> Any:
    there = a_server(**settings)
    there.lists["tools/list"][1][0]["inputSchema"]["properties"] = {"path": {"type": "string"}}
    return there


@pytest.mark.promise("b.attacks.waited")
@pytest.mark.parametrize("what", CHANGES)
@REVISIONS
async def test_a_form_that_is_left_open_is_no_way_to_what_was_locked_meanwhile(revision: str, what: str) -> None:
    change, edited, expected = CHANGES[what]
    there = there_is()

    async def answer(_params: Any) -> Any:
        await change(rig, there)
        return YES

    async with ApprovalRig().gateway(there=there, config=QUARANTINE, edited=edited) as rig:
        client = await rig.client(revision, principal="ann", capabilities=FORMS)
        with patience(LONG):
            reply = await client.converse("tools/call", {"elicitation/create": answer}, **PARAMS)
        assert code(reply) in expected | CHANGED
        assert sent(there) == []


@pytest.mark.parametrize("what", CHANGES)
@REVISIONS
async def test_what_an_operator_approves_is_not_sent_where_it_was_locked_meanwhile(revision: str, what: str) -> None:
    change, edited, expected = CHANGES[what]
    there, approvals = there_is(), ApprovalRig("operator", wait=LONG)
    async with approvals.gateway(there=there, config=QUARANTINE, edited=edited) as rig:
        client = await rig.client(revision, principal="ann")
        waiting = client.start("tools/call", **PARAMS)
        request = await approvals.request()
        await change(rig, there)
        await approvals.book.allow(request, "once", 60)
        await rig.clock.advance(1)
        reply = await waiting.reply()
        assert code(reply) in expected | CHANGED
        assert sent(there) == []


@pytest.mark.parametrize("pinning", ["warn", "off"])
async def test_what_was_approved_is_not_sent_to_a_tool_that_is_another_by_then(pinning: Any) -> None:
    there, approvals = there_is(), ApprovalRig("operator", wait=LONG)
    async with approvals.gateway(there=there, config=Config(guard=Guard(pinning=pinning))) as rig:
        waiting = rig.modern().start("tools/call", **PARAMS)
        request = await approvals.request()
        await is_announced(rig, there)
        await approvals.book.allow(request, "once", 60)
        await rig.clock.advance(1)
        error = (await waiting.reply()).error
        assert error["data"]["code"] == "APPROVAL_REQUIRED" and "has changed since" in error["message"]
        assert error["data"]["outcome"] == "not_sent" and sent(there) == []


async def test_what_is_changed_of_others_costs_a_call_that_waits_nothing() -> None:
    there, approvals, other = there_is(), ApprovalRig("operator", wait=LONG), a_server()
    async with approvals.gateway(there=there, other=other, config=QUARANTINE, edited=lambda config: config) as rig:
        waiting = rig.modern().start("tools/call", **PARAMS)
        request = await approvals.request()
        other.offer("tools", *AFTER)
        await rig.app.reload()
        await approvals.book.allow(request, "once", 60)
        await rig.clock.advance(1)
        assert (await waiting.reply()).text == "read was called"
        assert sent(there) == [{"path": "/etc"}]


class Slow:
    """A server that has one call at a time."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.there = there_is(concurrency=1)
        self.there.scripts["tools"]["find"] = self.find

    async def find(self, _scene: Scene) -> str:
        await self.go.wait()
        return "found"


@pytest.mark.parametrize("what", CHANGES)
@REVISIONS
async def test_a_call_in_the_queue_of_a_server_is_not_sent_where_it_was_locked_meanwhile(
    revision: str, what: str
) -> None:
    change, edited, expected = CHANGES[what]
    slow = Slow()
    async with gateway(there=slow.there, config=QUARANTINE, edited=edited) as rig:
        ann, bob = await rig.client(revision, principal="ann"), await rig.client(revision, principal="bob")
        first = bob.start("tools/call", name="there__find", arguments={})
        await slow.there.got("tools/call")
        second = ann.start("tools/call", **PARAMS)
        await eventually(lambda: rig.app.gateway.snapshot.upstreams["there"].calls == 2)
        await change(rig, slow.there)
        slow.go.set()
        await first.reply()
        reply = await second.reply()
        assert code(reply) in expected
        assert {"path": "/etc"} not in sent(slow.there)


@REVISIONS
async def test_a_call_in_the_queue_of_a_server_is_not_sent_by_an_approval_that_was_revoked_meanwhile(
    revision: str,
) -> None:
    slow, approvals = Slow(), ApprovalRig()
    always = decide("always")
    async with approvals.gateway(there=slow.there) as rig:
        ann, bob = await rig.client(revision, principal="ann"), await rig.client(revision, principal="bob")
        assert (await ann.converse("tools/call", always, **PARAMS)).text == "read was called"
        first = asyncio.ensure_future(bob.converse("tools/call", always, name="there__find", arguments={}))
        await eventually(lambda: len(sent(slow.there)) == 2)
        second = ann.start("tools/call", **PARAMS)
        await eventually(lambda: rig.app.gateway.snapshot.upstreams["there"].calls == 2)
        (grant,) = [each for each in approvals.book.grants() if each.place.target == "read"]
        await approvals.book.revoke(grant)
        slow.go.set()
        await first
        assert code(await second.reply()) == "APPROVAL_REQUIRED"
        assert len(sent(slow.there)) == 2


STRICTER = {
    "arguments may be less large": lambda config: msgspec.structs.replace(config, limits=Limits(argument_limit=10)),
    "arguments are validated": lambda config: msgspec.structs.replace(config, validate_arguments=True),
}


@pytest.mark.parametrize("what", STRICTER)
async def test_a_call_that_waits_for_a_list_is_judged_by_the_configuration_that_is_served_then(what: str) -> None:
    there, starts = there_is(), asyncio.Event()
    connects = there.make_link

    async def connects_when_it_may(*given: Any) -> Any:
        await starts.wait()
        return await connects(*given)

    there.make_link = connects_when_it_may
    async with gateway(there=there, config=Config(validate_arguments=False), edited=STRICTER[what]) as rig:
        waiting = rig.modern().start("tools/call", name="there__read", arguments={"path": 1, "more": "much"})
        await settle()
        await rig.app.reload()
        starts.set()
        assert code(await waiting.reply()) == "INVALID_ARGS"
        assert sent(there) == []


async def test_a_route_that_a_request_has_kept_from_before_a_change_is_not_the_way_of_its_call() -> None:
    there = there_is()
    edited = STRICTER["arguments are validated"]
    async with gateway(there=there, config=Config(validate_arguments=False), edited=edited) as rig:
        assert (await rig.modern().call("there__read", arguments={"path": 1})).text == "read was called"
        served, route = rig.app.gateway, rig.app.gateway.route("/mcp")
        await rig.app.reload()
        call = Call("tools/call", "there__read", Client(Principal("local")), arguments=msgspec.Raw(b'{"path": 1}'))
        assert served.begin(call, route) is None
        with pytest.raises(Fault) as refused:
            await served.handle(call, route)
        assert refused.value.code == "INVALID_ARGS"
        assert sent(there) == [{"path": 1}]


@pytest.mark.parametrize("what", CHANGES)
@REVISIONS
async def test_a_call_that_waits_for_another_ones_try_is_not_sent_where_it_was_locked_meanwhile(
    revision: str, what: str
) -> None:
    change, edited, expected = CHANGES[what]
    there, tool = there_is(), Moody()
    there.scripts["tools"]["find"] = tool
    async with gateway(there=there, config=QUARANTINE, edited=edited) as rig:
        ann, bob = await rig.client(revision, principal="ann"), await rig.client(revision, principal="bob")
        for client in (ann, bob, *[bob] * (FAILURES - 2)):
            await client.call("there__find", arguments={})
        await rig.clock.advance(2 * SHORTEST)
        tool.mood = "wait"
        trying = bob.start("tools/call", name="there__find", arguments={})
        await settle()
        waiting = ann.start("tools/call", **PARAMS)
        await settle()
        assert {"path": "/etc"} not in sent(there)
        await change(rig, there)
        tool.mood = "well"
        tool.go_on.set()
        await trying.reply()
        await rig.clock.advance(1)
        assert code(await waiting.reply()) in expected | {"CIRCUIT_OPEN"}
        assert {"path": "/etc"} not in sent(there)


async def test_a_call_that_is_sent_again_after_a_crash_is_not_sent_to_another_program() -> None:
    there = there_is()
    there.lists["tools/list"][1][0]["annotations"] = {"readOnlyHint": True}

    async def crash(scene: Scene) -> str:
        there.lists["tools/list"] = ("tools", list(AFTER))
        scene.crash()
        return ""

    there.scripts["tools"]["read"] = crash
    async with gateway(there=there, config=QUARANTINE) as rig:
        reply = await rig.modern().call("there__read", arguments={})
        assert code(reply) == "SERVER_FAILED"
        assert len(there.calls) == 1


async def test_of_parked_calls_that_give_way_nothing_is_kept_until_the_collector_of_garbage_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parking, "MOST_BYTES", 3000)

    async def ask(scene: Scene) -> str:
        return str(await scene.ask(form("sure?")))

    def kept() -> int:
        return sum(isinstance(each, Call) and len(bytes(each.arguments)) > 2000 for each in gc.get_objects())

    async with gateway(there=LegacyServer({"ask": ask})) as rig:
        client = rig.modern(capabilities={"elicitation": {"form": {}}})
        gc.collect()
        gc.disable()
        try:
            for number in range(4):
                reply = await client.request("tools/call", name="there__ask", arguments={"x": f"{number}" * 2500})
                assert reply.result["resultType"] == "input_required"
                if not number:
                    await settle()
                    of_one = kept()
            await settle()
            assert 0 < kept() <= of_one
        finally:
            gc.enable()
            rig.app.parking.close()
