"""A client holds back the last byte of each of hundreds of requests, or has large ones looked through in threads, and
lets all go on at once: they are worked on by turns, and others wait for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from inmemory import gateway
from virtualtime import FakeClock, settle
from wires import Wire, modern

from toolgate.app import App
from toolgate.config import Config
from toolgate.config.access import KnownClient
from toolgate.core import inflow, jsonrpc
from toolgate.frontends import guards, scheduling
from toolgate.frontends.modern import ModernResponses
from toolgate.frontends.scheduling import FRESH, MOST_ALONE

MANY = 60
ANN, BOB = "key-of-ann-that-is-long", "key-of-bob-that-is-long"
CLIENTS = (("ann", ANN), ("bob", BOB))
CONFIG = Config(clients=tuple(KnownClient(id=id, name=id, key=key, servers="all") for id, key in CLIENTS))


def call(key: str, id: int, **arguments: Any) -> bytes:
    asked = {"name": "greeter__nobody", "arguments": arguments}
    return modern(id, "tools/call", asked, f"Authorization: Bearer {key}", f"X-Own: {id}")


async def held(app: App, key: str, *ids: int) -> list[Wire]:
    """Requests of one client, each but for its last byte."""
    wires: list[Wire] = []
    for id in ids:
        wires.append(Wire(app))
        wires[-1].send(call(key, id)[:-1])
        await FakeClock().advance(2 * FRESH)
    return wires


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the calls that are worked on: each is read first."""
    ids: list[int] = []
    whole = jsonrpc.decode

    def noted(data: bytes, *given: Any, **more: Any) -> jsonrpc.Message:
        message = whole(data, *given, **more)
        if message.method == "tools/call":
            ids.append(int(message.id))
        return message

    monkeypatch.setattr(jsonrpc, "decode", noted)
    monkeypatch.setattr(inflow, "MOMENT", 600.0)  # what comes together is read in one round
    return ids


async def in_each_round(read: list[int], begin: Callable[[], object], count: int) -> list[int]:
    """How many are worked on in each round from then on, until it is so many."""
    counts: list[int] = []
    begin()
    while len(read) < count:
        before = len(read)
        await asyncio.sleep(0)
        counts.append(len(read) - before)
        assert len(counts) < 100 * count
    return counts


@pytest.mark.promise("b.fair.turns")
async def test_of_requests_that_end_together_few_are_worked_on_in_a_round(read: list[int]) -> None:
    async with gateway(config=CONFIG) as app:
        wires = await held(app, ANN, *range(MANY))
        assert not read
        counts = await in_each_round(read, lambda: [wire.send(b"}") for wire in wires], MANY)
        assert max(counts) <= MOST_ALONE
        for wire in wires:
            assert (await wire.answer()).status == 400
            await wire.leave()


@pytest.mark.promise("b.fair.turns")
async def test_where_another_calls_one_of_them_is_and_it_waits_for_one(read: list[int]) -> None:
    async with gateway(config=CONFIG) as app:
        wires = [*await held(app, ANN, *range(MANY)), *await held(app, BOB, MANY)]
        counts = await in_each_round(read, lambda: [wire.send(b"}") for wire in wires], MANY + 1)
        assert max(counts) == 1
        assert read.index(MANY) <= 2
        for wire in wires:
            assert (await wire.answer()).status == 400
            await wire.leave()


@pytest.mark.promise("b.fair.turns")
@pytest.mark.parametrize("is_large", [False, True])
async def test_a_large_request_is_read_in_one_step_and_worked_on_in_another(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    decode, answer = jsonrpc.decode, ModernResponses.answer

    def noted(data: bytes, *given: Any, **more: Any) -> jsonrpc.Message:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.call_soon(order.append, "another is heard"))  # it has come meanwhile, and is read
        order.append("read")
        return decode(data, *given, **more)

    def work(self: Any, *given: Any, **more: Any) -> Any:
        order.append("worked on")
        return answer(self, *given, **more)

    monkeypatch.setattr(jsonrpc, "decode", noted)
    monkeypatch.setattr(ModernResponses, "answer", work)
    async with gateway(config=CONFIG) as app:
        wire = Wire(app)
        reply = await wire.ask(call(ANN, 1, said="x" * (guards.LARGE if is_large else 10)))
        assert reply.status == 400
        await settle()
        then = ["another is heard", "worked on"]
        assert order == ["read", *(then if is_large else reversed(then))]
        await wire.leave()


@pytest.mark.promise("b.fair.turns")
async def test_nor_are_large_ones_that_come_out_of_threads_together(
    read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_through = asyncio.Event()

    async def in_thread(work: Callable[..., Any], *given: Any) -> Any:
        await looked_through.wait()
        return work(*given)

    monkeypatch.setattr(asyncio, "to_thread", in_thread)
    monkeypatch.setattr(guards, "SHORT", 100)
    monkeypatch.setattr(guards, "LARGE", 100)
    monkeypatch.setattr(scheduling, "FRESH", 0.0)  # as they are by then: each takes longer to be worked on
    async with gateway(config=CONFIG) as app:
        wires: list[Wire] = []
        for id in range(MANY + 1):
            wires.append(Wire(app))
            wires[-1].send(call(BOB if id == MANY else ANN, id, said="x" * 100))
            await FakeClock().advance(2 * FRESH)
        await settle()
        assert not read
        counts = await in_each_round(read, looked_through.set, MANY + 1)
        assert max(counts) == 1
        assert read.index(MANY) <= 2
        for wire in wires:
            assert (await wire.answer()).status == 400
            await wire.leave()
