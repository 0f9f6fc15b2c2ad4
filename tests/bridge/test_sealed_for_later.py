"""What clients carry for us opens after a restart, and at every gateway of one store; and what is good once is good
once for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, form, gateway, named
from task_peers import WITH_EXTENSION, ModernTaskServer
from virtualtime import FakeClock

from toolgate.config import CatalogLimits
from toolgate.core import jsonrpc
from toolgate.core.model import Ask, Call, Done, Outcome, Required
from toolgate.policy.base import Policy
from toolgate.state.memory import MemoryStore

INVALID = -32602


async def plain(scene: Scene) -> str:
    return "just so"


async def hello(scene: Scene) -> str:
    return f"hello {(await scene.ask(form()))['content']['name']}"


class Approve(Policy):
    """A policy that asks before anything is called."""

    name = "approve"

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Outcome | Required:
        method, params = form("Really?")
        asks = (Ask("really", method, jsonrpc.Raw(jsonrpc.encode(params))),)
        return call if was_passed or call.resumption else Required(asks)

    def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
        assert isinstance(outcome, Done)
        return outcome


@pytest.mark.parametrize("revision", ["2024-11-05", LATEST, MODERN])
async def test_a_cursor_goes_on_after_a_restart(revision: str) -> None:
    store, limits = MemoryStore(FakeClock()), CatalogLimits(page_size=2)
    scripts = {f"tool-{number}": plain for number in range(5)}
    found: list[str] = []
    params: dict[str, Any] = {}
    for _ in range(3):
        async with gateway(catalog=limits, store=store, there=LegacyServer(scripts)) as rig:
            result = (await (await rig.client(revision)).request("tools/list", **params)).result
            found += [tool["name"] for tool in result["tools"]]
            params = {"cursor": result.get("nextCursor")}
    assert found == [f"there__tool-{number}" for number in range(5)]
    assert params == {"cursor": None}


async def test_the_id_of_a_task_is_good_after_a_restart() -> None:
    store, there = MemoryStore(FakeClock()), ModernTaskServer({"slow": plain}, as_tasks=("slow",))
    async with gateway(store=store, there=there) as rig:
        client = rig.modern(capabilities=WITH_EXTENSION)
        id = (await client.call("there__slow")).result["taskId"]
    async with gateway(store=store, there=there) as rig:
        assert (await rig.modern(capabilities=WITH_EXTENSION).request("tasks/get", taskId=id)).result["taskId"] == id
        stranger = rig.modern("bob", capabilities=WITH_EXTENSION)
        assert (await stranger.request("tasks/get", taskId=id)).error["code"] == INVALID
    async with gateway(store=MemoryStore(FakeClock()), there=there) as rig:
        client = rig.modern(capabilities=WITH_EXTENSION)
        assert (await client.request("tasks/get", taskId=id)).error["code"] == INVALID


@pytest.mark.promise("spec.2026.mrtr.state-once")
@pytest.mark.parametrize("asker", ["modern server", "policy"])
@pytest.mark.parametrize("again", ["here", "there"])
async def test_an_answered_question_is_good_for_one_call_at_all_gateways_of_a_store(asker: str, again: str) -> None:
    store, is_policy = MemoryStore(FakeClock()), asker == "policy"
    server = ModernServer({"hello": plain if is_policy else hello})
    more: Any = {"store": store, "policies": [Approve()] if is_policy else [], "there": server}
    async with gateway(**more) as one, gateway(**more) as two:
        client, other = one.modern(), two.modern()
        call = client.start("tools/call", name="there__hello")
        reply = await call.reply()
        answers = {reply.key: named("Ann")}
        assert (await other.retry(call, reply, answers)).text == ("just so" if is_policy else "hello Ann")
        calls = len(server.calls)
        refused = await (client if again == "here" else other).retry(call, reply, answers)
        assert refused.error["code"] == INVALID
        assert len(server.calls) == calls


async def test_a_question_of_a_call_that_waits_is_answered_where_it_waits() -> None:
    more: Any = {"store": MemoryStore(FakeClock()), "there": LegacyServer({"hello": hello})}
    async with gateway(**more) as one, gateway(**more) as two:
        client, other = one.modern(), two.modern()
        call = client.start("tools/call", name="there__hello")
        reply = await call.reply()
        answers = {reply.key: named("Ann")}
        refused = await other.retry(call, reply, answers)
        assert refused.error["code"] == INVALID and "gateway that has ended" in refused.error["message"]
        assert (await client.retry(call, reply, answers)).text == "hello Ann"
