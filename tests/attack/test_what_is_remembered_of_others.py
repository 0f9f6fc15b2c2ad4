"""One client has a server remember much for it: scopes that it has left, failures, tasks. What is remembered of others
stays, also where they are few and came first."""

from __future__ import annotations

from typing import Any

import pytest
from peers import LATEST, LegacyClient, LegacyServer, Rig, Scene, gateway
from task_peers import LegacyTaskServer
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Event, Principal
from toolgate.upstreams import breaker
from toolgate.upstreams.breaker import Breakers
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.mcp import upstream
from toolgate.upstreams.mcp.upstream import MOST_AWAY, McpUpstream
from toolgate.upstreams.pool import Pool


async def plain(scene: Scene) -> str:
    return scene.target


def own_tasks(**more: Any) -> LegacyTaskServer:
    """A server that each session has for itself, whose tool runs as a task."""
    return LegacyTaskServer({"slow": plain}, support={"slow": "optional"}, scope="session", idle=10.0, **more)


async def made(client: LegacyClient, name: str = "there__slow") -> str:
    id: str = (await client.call(name, task={})).result["task"]["taskId"]
    return id


async def rests(rig: Rig) -> None:
    """Until no server is needed any more."""
    await rig.clock.advance(60)
    assert not rig.connections


# Scopes that nobody uses just now.


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_task_is_still_there_after_many_sessions_of_another(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "MOST_AWAY", 3)
    server = own_tasks()
    async with gateway(there=server) as rig:
        bob = await rig.legacy(principal="bob")
        id = await made(bob)
        assert (await bob.request("tasks/result", taskId=id)).text == "slow"
        await rests(rig)
        for _ in range(6):
            await (await rig.legacy(principal="mallory")).call("there__slow")
            if is_lost:
                server.connections[-1].hang_up()
            await rests(rig)
        assert (await bob.request("tasks/get", taskId=id)).result["status"] == "completed"
        assert [task["taskId"] for task in (await bob.request("tasks/list")).result["tasks"]] == [id]


async def test_what_is_listed_for_one_is_kept_whatever_another_declares_with_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream, "MOST_AWAY", 3)
    async with gateway(there=LegacyServer({"plain": plain}, scope="session", idle=10.0)) as rig:
        await rig.modern("bob").call("there__plain")
        await rests(rig)
        catalog = rig.app.gateway.snapshot.catalog
        [hers] = catalog._readers
        for names in (["roots"], ["sampling"], ["elicitation"], ["roots", "sampling"], ["roots", "elicitation"]):
            mallory = rig.modern("mallory", capabilities={name: {} for name in names})
            await mallory.call("there__plain")
            await rests(rig)
        assert hers in catalog._readers and len(catalog._readers) == 4


@pytest.mark.parametrize(
    ("bob", "mallory"),
    [
        (Principal("client:bob", client="bob"), Principal("client:mallory", client="mallory")),
        (Principal(address="192.0.2.1"), Principal(address="192.0.2.2")),
        (Principal("sub:bob", client="one"), Principal("sub:mallory", client="one")),
    ],
    ids=["keys", "addresses", "tokens"],
)
@pytest.mark.parametrize("revision", [LATEST, mcp.LATEST["modern"].date])
async def test_who_has_most_scopes_that_are_away_loses_the_first_of_them(
    bob: Principal, mallory: Principal, revision: str
) -> None:
    told: list[Event] = []
    server = Server(id="there", name="there", type="http", url="http://127.0.0.1:1/", scope="session")
    clock = FakeClock()
    there = McpUpstream(None, server, LinkDeps(clock, None, Pool(clock)), told.append)  # type: ignore[arg-type]

    def leaves(principal: Principal, session: str) -> str:
        client = Client(principal, session, revision=mcp.REVISIONS[revision])
        left = there._place(client)
        left.was_open = True
        there._opened(left)
        return left.scope

    scope = leaves(bob, "his")
    hers = [leaves(mallory, str(number)) for number in range(MOST_AWAY + 10)]
    assert [event.scope for event in told if event.kind == "scope_ended"] == hers[:11]
    assert (scope, None) in there._sessions and len(there._sessions) == MOST_AWAY


# Failures.


@pytest.mark.parametrize("count", [5, 500])
def test_the_failures_that_one_scope_has_seen_are_not_forgotten_for_those_of_another(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "MOST_KEPT", 3)
    breakers = Breakers("there", FakeClock())

    def fails(scope: str, whose: str) -> None:
        kept = breakers.of(scope)
        kept.failed(Fault("SERVER_FAILED", "it does not start"))
        breakers.keep(scope, whose, kept)

    fails("bob/", "bob")
    for number in range(count):
        fails(f"mallory/{number}/", "mallory")
    fails("bob/", "bob")
    assert breakers.of("bob/").failures == 2
    assert [breakers.of(f"mallory/{number}/").failures for number in range(count)][-3:] == [0, 1, 1]
    breakers.reset()
    assert not breakers.of("bob/").failures


async def test_a_server_that_does_not_start_for_one_is_left_alone_however_often_another_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(breaker, "MOST_KEPT", 3)

    async def fails(*_any: Any) -> Any:
        raise Fault("SERVER_FAILED", "it does not start", reach="not_sent")

    there = LegacyServer({"plain": plain}, scope="session")
    there.make_link = fails
    async with gateway(there=there) as rig:
        bob = await rig.legacy(principal="bob")
        for _ in range(breaker.FAILURES):
            await bob.call("there__plain")
        for _ in range(6):
            await (await rig.legacy(principal="mallory")).call("there__plain")
        await settle()
        assert (await bob.call("there__plain")).error["data"]["code"] == "CIRCUIT_OPEN"
