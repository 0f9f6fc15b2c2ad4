"""One client takes all connections that the gateway may open to servers over HTTP. Others have some left, whatever
carries its calls; and what the gateway itself lacks is no failure of a server."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from random import Random
from typing import Any

import pytest
from processes.ground import Client, Json, Served, failure, gateway, real, settings, until
from processes.scripted_component import ScriptedComponent
from processes.scripted_http import Request, ScriptedServer, serving
from processes.test_sse_link import OldServer
from virtualtime import FakeClock, settle

from toolgate.auth.safe_net import SafeNet
from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.upstreams.breaker import FAILURES
from toolgate.upstreams.links import places
from toolgate.upstreams.links.places import Places, of_server
from toolgate.upstreams.links.receipts import MOST, Receipts

FEW = 12  # connections


async def by_header(headers: Any, _address: str, _path: str) -> Principal:
    return Principal(headers["x-who"], client=headers["x-who"])


def client_of(served: Served, who: str) -> Client:
    client = served.client()
    client.headers = [f"X-Who: {who}"]
    return client


def at(server: ScriptedServer, path: str = "/mcp", **more: str) -> Json:
    return {"url": f"http://127.0.0.1:{server.port}{path}", **more}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "most_connections", lambda: FEW)


async def _never(_request: Request) -> None:
    """No answer."""


async def _stays_open(request: Request) -> None:
    """Answers, and does not end its stream."""
    request.open_stream()
    request.event(request.answer())


class SlowReceipts(OldServer):
    """Takes each call, and never says so."""

    async def _take(self, request: Request) -> None:
        if request.method != "tools/call":
            await super()._take(request)


def _server(kind: str) -> tuple[ScriptedServer, dict[str, str]]:
    if kind == "sse":
        return SlowReceipts(), {"type": "sse", "path": "/sse"}
    if kind == "component":
        return ScriptedComponent({"name": "act", "inputSchema": {"type": "object"}}, _never), {
            "type": "component",
            "path": "",
        }
    return ScriptedServer(_never, modern=kind == "modern"), {"type": "http"}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", ["http", "modern", "sse", "component"])
@real
async def test_calls_of_one_client_that_hang_leave_connections_to_others(kind: str) -> None:
    async def says(request: Request) -> None:
        request.whole(request.answer())

    hanging, config = _server(kind)
    async with (
        serving(hanging),
        serving(ScriptedServer(says)) as other,
        gateway(settings(slow=at(hanging, **config), other=at(other)), identify=by_header) as served,
    ):
        begun = [asyncio.ensure_future(client_of(served, "mallory").call("slow__act")) for _ in range(5 * FEW)]
        taken = served.app._link_deps.places._taken
        await until(lambda: taken["mallory"] >= FEW // 2 - 1)
        for _ in range(5):
            assert await client_of(served, "bob").call("other__act") == "ok"
        assert hanging.open_connections + other.open_connections <= FEW
        for each in begun:
            each.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        await until(lambda: not taken["mallory"])


@pytest.mark.usefixtures("few")
@real
async def test_streams_that_a_server_leaves_open_cost_its_callers_no_place_elsewhere() -> None:
    async def says(request: Request) -> None:
        request.whole(request.answer())

    async with (
        serving(ScriptedServer(_stays_open)) as wild,
        serving(ScriptedServer(says)) as other,
        gateway(settings(wild=at(wild), other=at(other)), identify=by_header) as served,
    ):
        bob = client_of(served, "bob")
        for _ in range(2 * FEW):
            assert await bob.call("wild__act") == "ok"
        assert await bob.call("other__act") == "ok"
        assert wild.open_connections + other.open_connections <= FEW


@pytest.mark.parametrize("lack", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("is_up", [True, False])
@real
async def test_what_the_gateway_lacks_is_no_failure_of_the_server(lack: int, is_up: bool) -> None:
    async def says(request: Request) -> None:
        request.whole(request.answer())

    async def fails(*_any: Any) -> Any:
        raise OSError(lack, os.strerror(lack))

    async with serving(ScriptedServer(says)) as server, gateway(settings(one=at(server))) as served:
        client, upstream = served.client(), served.app.gateway.snapshot.upstreams["one"]
        assert await client.call("one__act") == "ok"
        if not is_up:
            await upstream.stop()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SafeNet, "_connected", fails)
            for wire in list(served.app._link_deps.places._idle):
                wire.abort()
            for _ in range(FAILURES + 1):
                refused = await failure(client.call("one__act"))
                assert (refused.data["code"], refused.data["retryable"]) == ("RATE_LIMITED", True), refused
        assert await client.call("one__act") == "ok"


# The places alone.


class Held:
    """What uses a place: a wire."""

    def __init__(self, all: Places, whose: str) -> None:
        self.whose, self.sent, self.is_needless, self.is_over = whose, 0.0, False, False
        self._all = all

    def give_up(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.is_over = True
        asyncio.get_running_loop().call_soon(self._all.gone, self)


async def use(all: Places, whose: str, patience: float = 3600.0) -> Any:
    await all.take(whose, patience)
    all.make_room()
    wire = Held(all, whose)
    all.used(wire, whose)  # type: ignore[arg-type]
    return wire


def begin(all: Places, whose: str, count: int) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(use(all, whose)) for _ in range(count)]


async def end(begun: list[asyncio.Task[Any]]) -> None:
    for each in begun:
        each.cancel()
    await asyncio.gather(*begun, return_exceptions=True)


def up(begun: list[asyncio.Task[Any]]) -> int:
    return sum(each.done() and not each.result().is_over for each in begun)


@pytest.mark.usefixtures("few")
async def test_who_comes_later_has_a_place_however_many_others_want() -> None:
    all = Places(FakeClock())
    everybody = [begin(all, "mallory", 100)]
    await settle()
    assert up(everybody[0]) == FEW // 2
    for who in ("eve", "bob", of_server("one")):
        everybody.append(begin(all, who, 100 if who == "eve" else 1))
        await settle()
        assert up(everybody[-1]) >= 1
    assert sum(map(up, everybody)) <= FEW
    for each in everybody:
        await end(each)


@pytest.mark.usefixtures("few")
async def test_what_is_idle_or_needless_gives_way_and_what_is_needed_does_not() -> None:
    all = Places(FakeClock())
    idle = [await use(all, "ann") for _ in range(FEW // 2)]
    for each in idle:
        all.rests(each)
    needless = [await use(all, "ann") for _ in range(FEW // 2)]
    for each in needless[1:]:
        each.is_needless = True
    assert not any(each.is_over for each in (*idle, *needless))
    more = begin(all, "ann", FEW)
    await settle()
    assert [each.is_over for each in needless] == [False] + [True] * (FEW // 2 - 1)
    assert up(more) == FEW // 2 - 1
    await end(more)


@pytest.mark.usefixtures("few")
async def test_who_gets_no_place_in_time_is_told_so_and_leaves_none_taken() -> None:
    all = Places(FakeClock())
    held = begin(all, "ann", FEW // 2)
    await settle()
    with pytest.raises(Fault) as refused:
        await use(all, "ann", 5.0)
    assert (refused.value.code, refused.value.reach) == ("RATE_LIMITED", "not_sent")
    gone = begin(all, "ann", 1)
    await settle()
    all.gone(held[0].result())
    gone[0].cancel()  # in the moment that it is given one
    await settle()
    assert up(begun := begin(all, "ann", 1)) == 0
    await settle()
    assert up(begun) == 1
    await end(held)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(20))
async def test_whoever_comes_and_goes_there_are_never_too_many_and_nobody_waits_while_it_may_have_one(
    seed: int,
) -> None:
    random, all = Random(seed), Places(FakeClock())
    there: list[tuple[str, asyncio.Task[Any]]] = []
    for _ in range(200):
        if random.random() < 0.6 or not there:
            who = random.choice(["mallory", "mallory", "mallory", "eve", "ann", "bob"])
            there.append((who, begin(all, who, 1)[0]))
        else:
            _, task = there.pop(random.randrange(len(there)))
            if task.done():
                (all.rests if random.random() < 0.5 else all.gone)(task.result())
            else:
                task.cancel()
        await settle()
        held = Counter(who for who, task in there if task.done())
        assert held == all._taken and held.total() <= FEW
        assert held.total() + len(all._idle) <= FEW
        for who, task in there:
            assert task.done() or held[who] >= FEW - held.total()
    await end([task for _, task in there])


# Messages that have no answer.


async def test_a_crowd_of_messages_has_few_on_their_way_at_once() -> None:
    receipts = Receipts(FakeClock())
    on_their_way: list[int] = []

    async def send(number: int) -> None:
        await receipts.expect(number)
        on_their_way.append(number)
        await asyncio.sleep(0)  # for a connection

    crowd = [asyncio.ensure_future(send(number)) for number in range(3000)]
    await settle()
    assert len(on_their_way) == MOST
    receipts.note(on_their_way[0])
    await settle()
    assert len(on_their_way) == MOST + 1
    await asyncio.sleep(1.5)  # the server gives no receipts: so many in each second
    assert len(on_their_way) <= 3 * MOST
    for each in crowd:
        each.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_who_gives_up_waiting_takes_no_place_and_passes_on_what_it_got() -> None:
    receipts = Receipts(FakeClock())
    for number in range(MOST):
        await receipts.expect(number)
    first, second = (asyncio.ensure_future(receipts.expect(word)) for word in ("first", "second"))
    await settle()
    receipts.note(0)
    first.cancel()  # in the moment that there is room
    await settle()
    assert first.cancelled() and second.done()
    assert len(receipts._expected) == MOST
