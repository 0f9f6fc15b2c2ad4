"""Calls that wait for an operator hold no places that others need: of a server, of a tool, or of a principal."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import peers
import pytest
from peers import LegacyServer, RpcError
from virtualtime import FakeClock, settle

from toolgate.config import Config, Limits, access
from toolgate.config.access import Concurrency, KnownClient, Permissions, Rate, Rates
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Call, Client, Done, Outcome, Principal
from toolgate.core.redaction import Redactor
from toolgate.policy import limits
from toolgate.policy.approval import LOOK, Approval
from toolgate.policy.approvals import Approvals
from toolgate.policy.limits import Meters
from toolgate.policy.run import PolicyRun, compiled
from toolgate.state.memory import MemoryStore

MOST = 2
WAIT, TTL = 50.0, 900.0


class Scene:
    def __init__(self, what: str = "server", **more: Any) -> None:
        self.clock = FakeClock()
        self.meters = Meters(self.clock)
        self.book = Approvals(MemoryStore(self.clock), self.clock)
        settings = access.Approvals(by=("operator",), wait=WAIT)
        config = Config(limits=Limits(concurrency=Concurrency(**{what: MOST}), **more))
        asks = Approval(
            lambda call: "ask" if call.target == "danger" else "allow",
            *(self.book, settings, Redactor(), self.clock, {}),
        )
        self.policies = compiled([limits.Limits(config, self.meters), asks])

    async def begun(self, target: str = "danger", whose: str = "mallory", x: int = 0) -> tuple[PolicyRun, Any]:
        arguments = json.dumps({"x": x}).encode()
        client = Client(Principal(whose))
        made = Call("tools/call", target, client, arguments=arguments, server="there", reached=Reached())
        run = PolicyRun(made, self.policies, self.clock)

        async def before() -> Call | Outcome | Fault:
            try:
                return await run.before()
            except Fault as fault:
                run.ended(fault)
                return fault

        task = asyncio.ensure_future(before())
        await settle()
        return run, task

    async def decide(self, how: str = "once") -> None:
        for request in self.book.requests():
            if request.state != "undecided":
                continue
            if how == "deny":
                await self.book.deny(request, TTL)
            else:
                await self.book.allow(request, how, TTL)  # type: ignore[arg-type]
        await self.clock.sleep(2 * LOOK)
        await settle()


def is_refused(outcome: Any) -> bool:
    return isinstance(outcome, Fault) and (outcome.code, outcome.reach) == ("RATE_LIMITED", "not_sent")


@pytest.mark.parametrize(("what", "whose"), [("server", "ann"), ("tool", "mallory"), ("principal", "mallory")])
async def test_calls_that_wait_for_an_operator_keep_no_places(what: str, whose: str) -> None:
    scene = Scene(what)
    waiting = [await scene.begun(x=number) for number in range(5 * MOST)]
    assert scene.meters.are_idle
    other, task = await scene.begun("safe", whose)
    assert isinstance(await task, Call)
    other.ended(Done(b"{}"))
    await scene.decide("deny")
    assert {(await task).code for _, task in waiting} == {"APPROVAL_DENIED"} and scene.meters.are_idle


@pytest.mark.parametrize("how", ["once", "always"])
async def test_of_those_that_go_on_as_many_run_as_may_and_no_decision_is_used_up_in_vain(how: str) -> None:
    scene = Scene()
    waiting = [await scene.begun(x=number) for number in range(3 * MOST)]
    await scene.decide(how)
    outcomes = [await task for _, task in waiting]
    ran = [run for (run, _), outcome in zip(waiting, outcomes, strict=True) if isinstance(outcome, Call)]
    assert len(ran) == MOST and sum(map(is_refused, outcomes)) == 2 * MOST
    for run in ran:
        run.ended(Done(b"{}"))
    assert scene.meters.are_idle
    for number, outcome in enumerate(outcomes):
        if is_refused(outcome):  # it is made again, and nobody is asked again
            run, task = await scene.begun(x=number)
            assert isinstance(await task, Call)
            run.ended(Done(b"{}"))
    assert scene.meters.are_idle


@pytest.mark.parametrize("ends", ["given up", "nobody decides"])
async def test_a_call_that_ends_while_it_waits_gives_nothing_back_twice(ends: str) -> None:
    scene = Scene()
    other, _ = await scene.begun("safe", "ann")
    run, task = await scene.begun()
    if ends == "given up":
        task.cancel()
        await settle()
        run.ended(asyncio.CancelledError())
    else:
        assert (await task).code == "APPROVAL_REQUIRED"
    assert not scene.meters.are_idle, "the other one runs"
    other.ended(Done(b"{}"))
    other.ended(Done(b"{}"))
    assert scene.meters.are_idle


async def test_a_call_that_waits_is_charged_once() -> None:
    scene = Scene(rates=Rates(principal=Rate(2, 600.0)))
    waiting = [await scene.begun(x=number) for number in range(2)]
    await scene.decide()
    for run, task in waiting:
        assert isinstance(await task, Call)
        run.ended(Done(b"{}"))
    _, task = await scene.begun("safe")
    assert is_refused(await task)


async def test_a_call_that_an_operator_lets_go_on_after_its_client_was_asked_takes_its_place_once() -> None:
    def fails(_params: Any) -> Any:
        raise RpcError(-32603, "no window to show it in")

    async def echo(scene: Any) -> str:
        return json.dumps(scene.arguments)

    clock = FakeClock()
    store = MemoryStore(clock)
    book = Approvals(store, clock)
    ann = KnownClient(id="ann", name="ann", servers="all", permissions=Permissions(servers={"there": "ask"}))
    config = Config(
        clients=(ann, KnownClient(id="bob", name="bob", servers="all")),
        approvals=access.Approvals(by=("client", "operator"), wait=WAIT),
        limits=Limits(concurrency=Concurrency(server=1)),
    )
    async with peers.gateway(config=config, store=store, there=LegacyServer({"echo": echo})) as rig:
        client = await rig.legacy(principal="ann", answers={"elicitation/create": fails})
        for number in range(2):
            call = client.start("tools/call", name="there__echo", arguments={"x": number})
            while not (waiting := [each for each in book.requests() if each.state == "undecided"]):
                await asyncio.sleep(LOOK)
            await book.allow(waiting[0], "once", TTL)
            assert (await call.reply()).text == json.dumps({"x": number})
        bob = await rig.legacy(principal="bob")
        assert (await bob.call("there__echo", arguments={"x": 1})).text == json.dumps({"x": 1})
