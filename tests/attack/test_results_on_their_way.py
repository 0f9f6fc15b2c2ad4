"""Large results count from their first byte until they are handed to their client: of one client little is kept, and
nobody else has to do with it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from attack.test_servers_that_never_end import CHUNKED, STREAM, Connection, chunk, nowhere
from inmemory import ENVELOPE, LATEST, META, MODERN, Exchange, Scripted, Visitor, gateway, said, tools
from processes.ground import real, until
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import bodies
from toolgate.core.bodies import FREE, Bodies, Body, Kept
from toolgate.core.inflow import IntakeQueue
from toolgate.core.model import Principal
from toolgate.frontends.guards import Headers
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.http import HttpLink
from toolgate.upstreams.links.http1 import ConnectionPool, Target, Wire
from toolgate.upstreams.links.places import Places
from toolgate.upstreams.links.whole import HttpClient
from toolgate.upstreams.mcp import requests

SIZE = 4 * FREE  # bytes of a result
MOST = 5 * SIZE  # of one client
CALLS = 20

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", MOST)
    monkeypatch.setattr(bodies, "MOST", 2 * MOST)


class Counted:
    """The most that was kept at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        keep = Bodies.keep

        def noted(budget: Bodies, body: Body, size: int) -> None:
            keep(budget, body, size)
            self.most = max(self.most, budget._kept)

        monkeypatch.setattr(Bodies, "keep", noted)


async def identify(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers["authorization"], address, client=headers["authorization"])


def call(visitor: Visitor, revision: str, id: int) -> Exchange:
    params: dict[str, Any] = {"name": "docs__t", "arguments": {}}
    headers: dict[str, str | None] = {}
    if revision == MODERN:
        params["_meta"] = ENVELOPE | {META + "clientCapabilities": {"elicitation": {"form": {}}}}
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "docs__t"}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return visitor.begin("POST", json.dumps(message).encode(), headers=headers)


def answer_all(script: Scripted, result: Any) -> None:
    for request in script.requests:
        if request.get("method") == "tools/call":
            script._answer(request["id"], result)
    script.requests.clear()


@pytest.mark.parametrize("server", [LATEST, MODERN])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_of_results_on_a_pipe_as_many_are_taken_as_a_client_may_have(
    revision: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "LARGE", 2 * SIZE)  # else each of them would be handed over before the next is read
    counted = Counted(monkeypatch)
    script = Scripted(server, tools_list=tools("t"), tools_call=...)
    result: dict[str, Any] = said("x" * SIZE)
    if server == MODERN:
        result["resultType"] = "complete"
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        ann, bob = (Visitor(app, authorization=name) for name in ("ann", "bob"))
        if revision != MODERN:
            await ann.initialize(revision)
            await bob.initialize(revision)
        hers = [call(ann, revision, 100 + each) for each in range(CALLS)]
        await settle()
        his = call(bob, revision, 99)
        await settle()
        answer_all(script, result)
        answers = [await each.response() for each in hers]
        refused = [each.error for each in answers if "error" in each.last]
        assert len(answers) - len(refused) == MOST // SIZE - 1  # each has a few bytes around the text
        assert {each["data"]["code"] for each in refused} == {"RATE_LIMITED"}
        assert {each["data"]["outcome"] for each in refused} == {"executed"}
        assert counted.most <= MOST + 3 * SIZE
        assert len((await his.response()).result["content"][0]["text"]) == SIZE
        await settle()
        assert not app._link_deps.results._by
        again = call(ann, revision, 200)
        await settle()
        answer_all(script, result)
        assert "result" in (await again.response()).last


async def test_results_of_calls_that_are_parked_count_until_they_are_given_up() -> None:
    script = Scripted(LATEST, tools_list=tools("t"), tools_call=...)
    ask = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        ann = Visitor(app, authorization="ann")
        await ann.ask_modern("tools/list")
        for each in range(CALLS):
            calling = call(ann, MODERN, 100 + each)
            await settle()
            asked = {"jsonrpc": "2.0", "id": each, "method": "elicitation/create", "params": ask}
            script.say(json.dumps(asked).encode())
            assert (await calling.response()).result["resultType"] == "input_required"
            answer_all(script, said("x" * SIZE))
            await settle()
            assert app._link_deps.results._kept < MOST + SIZE
        assert app._link_deps.results._kept > MOST - SIZE
        await app.clock.sleep(100_000)
        assert not app._link_deps.results._by


# Over HTTP each answer has a connection of its own, and waits there.


class Patient(Connection):
    """The server's end of a connection, which says more once that is read."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._is_read = asyncio.Event()
        self._is_read.set()
        super().__init__(pool)

    def pause_reading(self) -> None:
        super().pause_reading()
        self._is_read.clear()

    def resume_reading(self) -> None:
        super().resume_reading()
        self._is_read.set()

    async def says(self, data: bytes) -> None:
        for start in range(0, len(data), 4096):
            await self._is_read.wait()
            self.wire.data_received(data[start : start + 4096])


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    found: list[Connection] = []

    async def connect(pool: ConnectionPool) -> Wire:
        found.append(Patient(pool))
        return found[-1].wire

    monkeypatch.setattr(ConnectionPool, "_reached", connect)
    return found


class Calls:
    """Those of a principal, whose results are kept until `hand_over`."""

    def __init__(self, budget: Bodies, whose: str) -> None:
        self.budget = budget
        self.whose = whose
        self.owed: dict[int, Kept] = {}
        self.results: dict[int, Kept] = {}
        self.receiver = Receiver(
            "",
            lambda id: self.whose,
            self._received,
            self.owed.__contains__,
            self._failed,
            self._over,
            self._over,
            self._counts,
        )

    def expect(self, id: int) -> None:
        self.owed[id] = Kept(self.budget.begun(self.whose))

    def hand_over(self) -> None:
        self.results.clear()

    def _counts(self, id: int) -> Body | None:
        return self.owed[id].body if id in self.owed else None

    def _received(self, data: bytes, id: int | None) -> None:
        assert id is not None and len(data) > SIZE
        self.results[id] = self.owed.pop(id)

    def _failed(self, id: int, fault: Any) -> None:
        del self.owed[id]

    def _over(self, fault: Any) -> None: ...


def result(id: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{"x":"%b"}}' % (id, b"x" * SIZE)


def as_body(id: int) -> bytes:
    data = result(id)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def as_event(id: int) -> bytes:
    return STREAM + CHUNKED + b"\r\n" + chunk(b"data: " + result(id) + b"\n\n") + b"0\r\n\r\n"


def as_lines(id: int) -> bytes:
    lines = b"".join(b"data: " + part + b"\n" for part in result(id).replace(b"x" * 1000, b"x" * 999 + b"\n").split())
    return STREAM + CHUNKED + b"\r\n" + chunk(lines + b"\n") + b"0\r\n\r\n"


@pytest.mark.parametrize("written", [as_body, as_event, as_lines])
async def test_what_does_not_fit_is_not_read_until_there_is_room(
    connections: list[Connection], written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, budget = Counted(monkeypatch), Bodies()
    server = Server(id="wild", name="Wild", type="http", url="http://localhost/mcp")
    ann, bob = Calls(budget, "ann"), Calls(budget, "bob")
    hers = HttpLink(server, ann.receiver, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()))
    his = HttpLink(server, bob.receiver, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()))
    for id in range(CALLS):
        ann.expect(id)
        await hers.send(b"{}", origin=id)
    saying = [asyncio.ensure_future(each.says(written(id))) for id, each in enumerate(connections)]
    await settle()
    waiting = [each for each in connections if each.is_paused]
    assert len(waiting) >= CALLS - 2 * MOST // SIZE and ann.results, "whose turn came first goes on, most wait"
    bob.expect(1)
    await his.send(b"{}", origin=1)
    await connections[-1].says(written(1))
    assert 1 in bob.results, "whatever others keep"
    for _ in range(CALLS):
        ann.hand_over()
        await settle()
    assert not ann.owed and all(each.done() for each in saying), "everybody's turn has come"
    assert counted.most <= MOST + CALLS * 2 * FREE + 2 * SIZE  # of each a piece is read before it is known to be large
    bob.hand_over()
    await settle()
    assert not budget._by and not budget._waiting
    await hers.close()
    await his.close()


async def test_a_connection_that_waited_does_not_keep_the_next_answer_waiting(connections: list[Connection]) -> None:
    budget = Bodies()
    stuck = Kept(budget.begun("ann"))
    stuck.body.has(2 * MOST)
    pool = ConnectionPool(
        Target("http://localhost/"), FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()), "wild", 60.0
    )
    wire = await pool.take("ann")
    read: list[bytes] = []
    late = [Kept(budget.begun("ann"))]

    class Reply:
        def head(self, status: int, headers: dict[bytes, bytes]) -> None: ...

        def body(self, chunk: bytes) -> None:
            read.append(chunk)
            if len(read) == 1:
                wire.keeps(late[0].body, 2 * FREE)

        def complete(self) -> None: ...

        def lost(self, reason: str) -> None: ...

    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    for number in (1, 2):
        wire.send(b"", b"", Reply())
        await connections[0].says(answer)
        assert len(read) == number and not connections[0].is_paused
    del stuck
    late.clear()
    await settle()
    assert not budget._by and not budget._waiting
    pool.close()
    await settle()


async def test_results_of_a_component_wait_as_well(connections: list[Connection]) -> None:
    budget = Bodies()
    line = HttpClient("http://localhost/", {}, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()), "wild", 60.0)
    asking = [
        asyncio.ensure_future(
            line.ask(line.head("POST", "/act", has_body=True), b"{}", "ann", kept=Kept(budget.begun("ann")))
        )
        for _ in range(CALLS)
    ]
    await settle()
    body = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE + b"x" * SIZE
    saying = [asyncio.ensure_future(each.says(body)) for each in connections]
    await settle()
    assert sum(each.is_paused for each in connections) >= CALLS - 2 * MOST // SIZE
    assert asking[0].done()
    while asking:
        waiting = [each for each in asking if not each.done()]
        assert len(waiting) < len(asking)
        asking = waiting
        await settle()
    await asyncio.gather(*saying)
    line.close("it is over")
    await settle()
    assert not budget._by


def begun(budget: Bodies, *sizes: int) -> list[Body]:
    found = [budget.begun("ann") for _ in sizes]
    for body, size in zip(found, sizes, strict=True):
        body.has(size)
    return found


async def test_results_beside_a_large_one_wait_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Bodies(little=SIZE)
    first, second, third = begun(budget, SIZE, 2 * FREE, 2 * FREE)
    assert budget.has_room(first), "the oldest goes on"
    waiting = [asyncio.ensure_future(each.room()) for each in (second, third)]
    await settle()
    assert not any(each.done() for each in waiting)
    assert second.has(3 * FREE, can_wait=False), "what cannot wait is not refused for that"
    first.ended()
    await settle()
    assert waiting[0].done()
    monkeypatch.setattr(bodies, "SOON", 0.0)
    late = budget.begun("ann")
    late.has(SIZE)
    await asyncio.wait_for(late.room(), 5)
    assert late.has_waited and late.has(2 * SIZE), "nobody waits twice"
    waiting[1].cancel()
    await settle()


async def test_results_beside_a_large_one_have_their_bound_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SOON", 0.0)
    budget = Bodies(little=SIZE)
    _, second = begun(budget, MOST, SIZE)
    waiting = asyncio.ensure_future(second.room())
    await settle()
    await asyncio.sleep(0.001)
    assert second.has_waited and not waiting.done()
    assert not second.has(SIZE, can_wait=False)
    waiting.cancel()
    await settle()


@real
async def test_what_a_thread_held_last_counts_no_more() -> None:
    budget = Bodies()
    held = [Kept(budget.begun("ann"))]
    held[0].body.has(SIZE)
    letting_go = threading.Thread(target=held.clear)
    letting_go.start()
    letting_go.join()
    await until(lambda: not budget._by)


# What one server leaves unfinished.


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> Bodies:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 64 * MIB)
    monkeypatch.setattr(bodies, "MOST", 256 * MIB)
    return Bodies(little=2 * MIB)


async def test_what_a_server_leaves_unfinished_keeps_no_result_of_another_waiting(usual: Bodies) -> None:
    """On an open gateway all programs of a machine are one principal."""
    stalled = [usual.begun("p", "evil") for _ in range(3)]
    for body in stalled:
        body.has(31 * MIB)
    assert usual.begun("p", "evil").has(FREE + 1) is False
    first, second = usual.begun("p", "good"), usual.begun("p", "good")
    assert first.has(5 * MIB)
    assert not second.has(70_000)  # all that comes to this principal is more than it may have
    waiting = asyncio.ensure_future(second.room())
    await asyncio.sleep(0)
    first.ended()
    await asyncio.wait_for(waiting, 1)


async def test_of_two_servers_neither_waits_for_what_little_the_other_leaves_unfinished(usual: Bodies) -> None:
    usual.begun("p", "evil").has(3 * MIB)
    assert [usual.begun("p", "good").has(200_000) for _ in range(5)] == [True] * 5


async def test_of_a_server_whose_result_was_delivered_the_next_is_read_however_many_of_another_wait(
    usual: Bodies,
) -> None:
    stalled = [usual.begun("p", "evil") for _ in range(100)]
    for body in stalled:
        body.has(MIB)
    first, second = usual.begun("p", "good"), usual.begun("p", "good")
    first.has(5 * MIB)
    second.has(70_000)
    waiting = [asyncio.ensure_future(each.room()) for each in (*stalled[1:], second)]
    for each in (*stalled, second):
        each.has_waited = True
    await settle()
    assert not waiting[-1].done()
    first.ended()
    await asyncio.wait_for(waiting[-1], 1)
    for each in waiting:
        each.cancel()
    await settle()


async def test_who_waits_for_room_twice_for_one_result_does_not_wait_for_ever(usual: Bodies) -> None:
    """A server that ends a stream in the middle of an event is read on over another connection."""
    _, body = begun(usual, 65 * MIB, MIB)
    first, second = (asyncio.ensure_future(body.room()) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    body.ended()
    await asyncio.wait_for(second, 1)


async def test_where_all_together_have_too_much_one_of_a_principal_goes_on_and_no_more(usual: Bodies) -> None:
    large = [usual.begun("p", f"s{number}") for number in range(4)]
    assert [body.has(100 * MIB) for body in large] == [True, True, False, False]
    assert usual.begun("q", "s0").has(5 * MIB)
    for body in large:
        body.ended()
    assert usual.begun("p", "s0").has(FREE + 1)
    assert list(usual._from) == list(usual._kept_from)
