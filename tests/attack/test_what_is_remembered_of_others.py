"""One client has a server remember much for it: scopes that it has left, failures, tasks. What is remembered of others
stays, also where they are few and came first."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest
from msgspec import Raw
from peers import LATEST, LegacyClient, LegacyServer, Rig, RpcError, Scene, gateway
from task_peers import RELATED, LegacyTaskServer, _LegacyTaskConnection
from virtualtime import FakeClock, settle

from toolgate.config import CatalogLimits, Server
from toolgate.core import mcp
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Call, Client, Event, Principal
from toolgate.core.notes import Notes
from toolgate.eras.tasks import Task
from toolgate.state.memory import MemoryStore
from toolgate.upstreams import breaker
from toolgate.upstreams.breaker import Breakers
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.mcp import reporting, upstream
from toolgate.upstreams.mcp.made_tasks import MOST_OF_ALL, MOST_TASKS, TaskOwners
from toolgate.upstreams.mcp.reporting import MOST_REPORTING, Reporting
from toolgate.upstreams.mcp.upstream import MOST_AWAY, McpUpstream
from toolgate.upstreams.pool import Pool


async def plain(scene: Scene) -> str:
    return scene.target


def own_tasks(**more: Any) -> LegacyTaskServer:
    """A server that each session has for itself, whose tool runs as a task."""
    return LegacyTaskServer({"slow": plain}, support={"slow": "optional"}, scope="session", idle=10.0, **more)


async def made(client: LegacyClient, name: str = "there__slow", **more: Any) -> str:
    id: str = (await client.call(name, task={}, **more)).result["task"]["taskId"]
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


# Tasks.


class Lists(_LegacyTaskConnection):
    """`lists` is what it does when it is asked for all tasks that it has."""

    lists = "all"

    def requested(self, message: Any) -> None:
        if message["method"] != "tasks/list" or self.lists == "all":
            super().requested(message)
        elif self.lists == "fails":
            self.refuse(message, RpcError(-32603, "there are too many"))
        else:
            more = {"nextCursor": str(message["id"])} if self.lists == "without end" else {}
            self.reply(message, {"tasks": [], **more})


def sharing(lists: str = "all") -> LegacyTaskServer:
    """A server that all share."""
    server = LegacyTaskServer({"slow": plain}, support={"slow": "optional"})
    server.connection = type("Connection", (Lists,), {"lists": lists})
    return server


def ids(reply: Any) -> list[str]:
    return [task["taskId"] for task in reply.result["tasks"]]


@pytest.mark.parametrize("lists", ["all", "without end", "nothing", "fails"])
async def test_ones_own_tasks_are_listed_however_many_another_has_made(lists: str) -> None:
    server = sharing(lists)
    async with gateway(there=server, catalog=CatalogLimits(items=10)) as rig:
        mallory, bob = await rig.legacy(principal="mallory"), await rig.legacy(principal="bob")
        his = [await made(bob)]
        hers = [await made(mallory) for _ in range(15)]
        his.append(await made(bob))
        assert ids(await bob.request("tasks/list")) == his
        assert len(server.requests("tasks/get")) == len(his)
        assert ids(await mallory.request("tasks/list")) == hers


async def test_a_task_that_the_server_knows_no_more_or_shows_out_of_shape_is_left_out_and_no_other() -> None:
    server = sharing()
    async with gateway(there=server) as rig:
        bob = await rig.legacy(principal="bob")
        _gone, odd, there = [await made(bob) for _ in range(3)]
        shown = server.shown
        del server.kept.tasks["own/1"]
        server.shown = lambda task: [] if task.id == "own/2" else shown(task)  # type: ignore[method-assign, return-value]
        assert ids(await bob.request("tasks/list")) == [there]
        server.shown = shown  # type: ignore[method-assign]
        assert ids(await bob.request("tasks/list")) == [odd, there]
        assert len(server.requests("tasks/get")) == 3 + 2


async def test_tasks_of_ones_own_that_are_too_long_together_are_refused() -> None:
    server = sharing()
    async with gateway(there=server, catalog=CatalogLimits(bytes=5000)) as rig:
        bob = await rig.legacy(principal="bob")
        await made(bob)
        shown = server.shown
        server.shown = lambda task: {**shown(task), "statusMessage": "x" * 5000}  # type: ignore[method-assign]
        there = rig.app.gateway.snapshot.upstreams["there"]
        with pytest.raises(Fault, match="more than 5,000 bytes"):
            await there.tasks(Client(Principal("bob")))


def client(principal: Principal, session: str = "s") -> Client:
    return Client(principal, session)


@pytest.mark.parametrize(
    ("bob", "mallory"),
    [(Principal("bob"), Principal("mallory")), (Principal(address="192.0.2.1"), Principal(address="192.0.2.2"))],
    ids=["keys", "addresses"],
)
def test_whose_a_task_is_stays_known_however_many_another_makes(bob: Principal, mallory: Principal) -> None:
    owners = TaskOwners()
    owners.add(Task("his"), Call("tools/call", "t", client(bob)), 0.0)
    for number in range(3 * MOST_TASKS):
        owners.add(Task(f"hers/{number}"), Call("tools/call", "t", client(mallory)), 0.0)
    assert owners.maker("his") == (bob.id, "s") and "his" in owners.of(bob.id)
    assert len(owners._entries) == MOST_TASKS + 1


def test_of_all_tasks_that_are_remembered_whoever_made_most_loses_the_first() -> None:
    owners = TaskOwners()
    owners.add(Task("his"), Call("tools/call", "t", client(Principal("bob"))), 0.0)
    for number in range(MOST_OF_ALL + MOST_TASKS):
        whose = client(Principal(address=f"192.0.2.{number % 99}"))
        owners.add(Task(f"hers/{number}"), Call("tools/call", "t", whose), 0.0)
    assert owners.maker("his") and len(owners._entries) == MOST_OF_ALL


@pytest.mark.parametrize("scope", ["shared", "principal", "session"])
async def test_tasks_of_sessions_that_have_a_server_for_themselves_are_not_kept_beyond_them(scope: str) -> None:
    """A client may open ever new ones, and none is there after a restart."""
    store = MemoryStore(FakeClock())
    there = own_tasks()
    there.settings["scope"] = scope
    async with gateway(store=store, there=there) as rig:
        for _ in range(3):
            await made(await rig.legacy())
        kept = [key for space, keys in store._spaces.items() if space.startswith("task owners/") for key in keys]
        assert len(kept) == (0 if scope == "session" else 3)


@pytest.mark.parametrize("support", ["optional", "required"])
async def test_a_task_still_reports_after_many_of_another(support: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`required`: the client wants no task, and the gateway waits for it."""
    monkeypatch.setattr(reporting, "MOST_REPORTING", 3)
    go = asyncio.Event()

    async def report(scene: Scene) -> str:
        await go.wait()
        scene.progress(1)
        return "reported"

    server = LegacyTaskServer({"slow": plain, "report": report}, support={"slow": "optional", "report": support})
    async with gateway(there=server) as rig:
        mallory, bob = await rig.legacy(principal="mallory"), await rig.legacy(principal="bob")
        heard = (await bob.listen()).messages
        if support == "optional":
            id = await made(bob, "there__report", meta={"progressToken": "p"})
            pending = bob.start("tasks/result", taskId=id)
            related: Any = {"_meta": {RELATED: {"taskId": id}}}
        else:
            pending = bob.start("tools/call", name="there__report", meta={"progressToken": "p"})
            related = {}
            await server.got("tasks/result")
        for _ in range(8):
            await made(mallory, meta={"progressToken": "hers"})
        assert len(rig.connections[0].requests.reporting) == 3
        go.set()
        reply = await pending.reply()
        told = reply.notes("notifications/progress") or [message["params"] for message in heard]
        assert told == [{"progressToken": "p", "progress": 1, **related}]
        assert len(rig.connections[0].requests.reporting) <= 3


def test_of_a_call_that_became_a_task_nothing_is_kept_but_where_its_notes_go() -> None:
    kept = Reporting()

    def add(number: int, whose: str) -> None:
        arguments = Raw(b'"' + b"x" * 100_000 + b'"')
        call = Call("tools/call", "t", client(Principal(whose)), arguments=arguments, notes=Notes())
        kept.add(number, call, Exchange(Asker("upstream", "there"), FakeClock()), f"task/{number}")

    add(0, "bob")
    tracemalloc.start()
    try:
        for number in range(1, 3 * MOST_REPORTING):
            add(number, "mallory")
        assert tracemalloc.get_traced_memory()[0] < 50 * 100_000
    finally:
        tracemalloc.stop()
    assert kept.notes(0) and not kept.notes(1) and len(kept) == MOST_REPORTING
