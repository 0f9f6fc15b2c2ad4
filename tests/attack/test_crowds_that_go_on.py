"""Very many calls of one client wait for the same thing, which comes: few of them go on in a round of the event loop,
and whoever waits for nothing of that has turns in between."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from doors.issuers import bearer
from inmemory import MODERN, Exchange, Scripted, Visitor, gateway, said, tools
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.app import App
from toolgate.auth import keys
from toolgate.auth.oauth.credentials import OAuth
from toolgate.auth.safe_net import SafeNet
from toolgate.catalog.base import ServerList
from toolgate.config import Config, Server
from toolgate.config.access import KnownClient
from toolgate.core import crowds
from toolgate.core.events import every_list
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.core.redaction import Redactor
from toolgate.state import changes
from toolgate.state.memory import MemoryStore
from toolgate.surfaces.controls import base
from toolgate.upstreams.component.upstream import ComponentUpstream
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.links.whole import Lost
from toolgate.upstreams.pool import Pool
from toolgate.upstreams.process.supervisor import Supervisor

MANY = 15 * crowds.FEW
TIMEOUT = 30.0


class Ends:
    """In which round of the event loop each of some calls has ended."""

    def __init__(self, calls: list[asyncio.Future[Any]]) -> None:
        self.rounds: Counter[int] = Counter()
        self._number = 0
        self._is_new = True  # the next one that ends is the first of its round
        self._left = len(calls)
        self._all = asyncio.Event()
        for call in calls:
            call.add_done_callback(self._ended)

    def _round_is_over(self) -> None:
        self._is_new = True

    def _ended(self, _call: object) -> None:
        if self._is_new:
            self._is_new = False
            self._number += 1
            asyncio.get_running_loop().call_soon(self._round_is_over)
        self.rounds[self._number] += 1
        self._left -= 1
        if not self._left:
            self._all.set()

    async def most(self) -> int:
        """In one of these rounds."""
        async with asyncio.timeout(300):
            await self._all.wait()
        return max(self.rounds.values())


def begin(visitor: Visitor, name: str = "wild__act") -> list[asyncio.Future[Any]]:
    asked = [visitor.request("tools/call", name=name, arguments={}) for _ in range(MANY)]
    return [asyncio.ensure_future(visitor.send("POST", json.dumps(each).encode())) for each in asked]


class Slow(Scripted):
    """It takes its time to open, until somebody lets it."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(**answers)
        self._opened = self.answers["initialize"]
        self.answers["initialize"] = ...

    def opens(self) -> None:
        self.answers["initialize"] = self._opened
        self.answer_last(self._opened)

    def does_not(self) -> None:
        self.hang_up("exited with status 1")


async def known(visitor: Visitor) -> None:
    await visitor.initialize()
    await visitor.ask("tools/list")


@pytest.mark.parametrize("name", ["wild__act", "nobody_has_this"])
@pytest.mark.parametrize("comes", [Slow.opens, Slow.does_not])
async def test_calls_that_wait_for_a_server_to_start(comes: Callable[[Slow], None], name: str) -> None:
    there = Slow(tools_list=tools("act"), tools_call=said("done"))
    async with gateway(scripts={"wild": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        calls = begin(visitor, name)
        await settle()
        ends = Ends(calls)
        comes(there)
        assert await ends.most() <= 3 * crowds.FEW


async def crash(app: App, there: Scripted, clock: FakeClock, visitor: Visitor) -> None:
    there.hang_up("exited with status 1")


async def their_time_is_over(app: App, there: Scripted, clock: FakeClock, visitor: Visitor) -> None:
    await clock.advance(TIMEOUT + 1)


async def their_session_ends(app: App, there: Scripted, clock: FakeClock, visitor: Visitor) -> None:
    assert (await visitor.send("DELETE")).status == 204


@pytest.mark.parametrize("ends", [crash, their_time_is_over, their_session_ends])
async def test_calls_that_end_together(ends: Callable[..., Awaitable[None]]) -> None:
    there, clock = Scripted(tools_list=tools("act"), tools_call=...), FakeClock()
    wild = Server(id="wild", name="wild", type="stdio", command="memory", timeout=TIMEOUT)
    async with gateway(wild, scripts={"wild": there}, clock=clock) as app:
        visitor = Visitor(app)
        await known(visitor)
        calls = begin(visitor)
        await settle()
        assert len([each for each in there.requests if each.get("method") == "tools/call"]) == MANY
        counted = Ends(calls)
        await ends(app, there, clock, visitor)
        assert await counted.most() <= 3 * crowds.FEW


async def test_those_that_wait_for_what_is_made_of_a_list_go_on_in_turns() -> None:
    """3,000 calls for 9,000 tools went on in one step of 2 s."""
    listed, made = ServerList({}), asyncio.get_running_loop().create_future()
    listed.memo["told"] = made
    ann = Client(Principal("ann"))
    calls: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(base.derived(listed, "told", lambda: "never", ann)) for _ in range(MANY)
    ]
    await settle()
    counted = Ends(calls)
    made.set_result("said")
    assert await counted.most() <= 3 * crowds.FEW
    assert {await each for each in calls} == {"said"}


async def test_calls_that_wait_for_a_place_and_end_together() -> None:
    there = Scripted(tools_list=tools("act"), tools_call=...)
    narrow = Server(id="wild", name="wild", type="stdio", command="memory", concurrency=2)
    async with gateway(narrow, scripts={"wild": there}) as app:
        visitor = Visitor(app)
        await known(visitor)
        calls = begin(visitor)
        await settle()
        ends = Ends(calls)
        app.http.expel_unknown(lambda principal: False)
        assert await ends.most() <= 3 * crowds.FEW
        assert len([each for each in there.requests if each.get("method") == "tools/call"]) == 2


class OfAComponent:
    """Calls of it that wait for the same: what it has, or whether its process has ended."""

    def __init__(self) -> None:
        clock = FakeClock()
        server = Server(id="echo", name="echo", type="component", url="http://localhost/")
        deps = LinkDeps(clock, Supervisor(clock, {}), Pool(clock))
        self.upstream = ComponentUpstream(server, deps, lambda event: None)
        self.comes: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def wait(self, *_: object) -> Any:
        return await asyncio.shield(self.comes)

    async def lose(self, *_: object) -> Any:
        raise Lost("the connection was closed", "sent_unknown")

    def begin(self) -> list[asyncio.Future[Any]]:
        call = Call("tools/call", "echo", Client(), Raw(b"{}"), "echo")
        return [asyncio.ensure_future(self.upstream.invoke(call)) for _ in range(MANY)]


async def test_calls_that_wait_for_what_a_component_has(monkeypatch: pytest.MonkeyPatch) -> None:
    there = OfAComponent()
    monkeypatch.setattr(there.upstream, "_metadata", there.wait)
    calls = there.begin()
    await settle()
    ends = Ends(calls)
    there.comes.set_exception(Fault("SERVER_FAILED", "it is gone"))
    assert await ends.most() <= 3 * crowds.FEW
    assert all(isinstance(each, Fault) for each in await asyncio.gather(*calls, return_exceptions=True))


async def test_calls_that_lost_the_connection_to_a_component(monkeypatch: pytest.MonkeyPatch) -> None:
    there = OfAComponent()
    program = SimpleNamespace(has_ended=there.wait, fault=None)
    line = SimpleNamespace(answered=0), b""

    async def line_for(*_: object) -> Any:
        return line

    monkeypatch.setattr(there.upstream, "_program", program)
    monkeypatch.setattr(there.upstream, "_line_for", line_for)
    monkeypatch.setattr(there.upstream, "_posted", there.lose)
    calls = there.begin()
    await settle()
    ends = Ends(calls)
    there.comes.set_result(True)
    assert await ends.most() <= 3 * crowds.FEW
    assert all(isinstance(each, Fault) for each in await asyncio.gather(*calls, return_exceptions=True))


async def test_calls_that_wait_for_one_renewal_of_a_token() -> None:
    clock = FakeClock()
    oauth = OAuth(MemoryStore(clock), [b"k" * 32], clock, SafeNet(), Redactor(), lambda: "")
    comes: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def renewed() -> str:
        return await comes

    calls: list[asyncio.Future[Any]] = [asyncio.ensure_future(oauth.once(("there", "x"), renewed)) for _ in range(MANY)]
    await settle()
    ends = Ends(calls)
    comes.set_result("shown")
    assert await ends.most() <= 3 * crowds.FEW
    assert set(await asyncio.gather(*calls)) == {"shown"}


# Streams: a client may have thousands of each kind.

MADE = Config(
    (Server(id="wild", name="wild", type="stdio", command="memory"),),
    clients=(KnownClient(id="made", name="made", servers="all"),),
)
EVENTS = {"accept": "text/event-stream"}


async def listens(app: App, told: dict[str, str]) -> Exchange:
    visitor = Visitor(app, **told)
    told = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    listen = visitor.modern_request("subscriptions/listen", notifications={"toolsListChanged": True})
    return visitor.begin("POST", json.dumps(listen).encode(), headers=told)


async def has_a_session(app: App, told: dict[str, str]) -> Exchange:
    visitor = Visitor(app, **told)
    await visitor.initialize()
    return visitor.begin("GET", headers=EVENTS)


async def is_old(app: App, told: dict[str, str]) -> Exchange:
    return Visitor(app, "/mcp/sse", **told).begin("GET", headers=EVENTS)


async def revoked(app: App, store: MemoryStore, id: str, clock: FakeClock) -> None:
    await keys.revoke(store, id)
    await changes.tell(store, "keys")
    await clock.advance(1)


async def expired(app: App, store: MemoryStore, id: str, clock: FakeClock) -> None:
    await clock.advance(3601)


async def moved(app: App, store: MemoryStore, id: str, clock: FakeClock) -> None:
    elsewhere = msgspec.structs.replace(MADE.clients[0], surface="meta")
    app.http.end_moved(MADE.clients, [elsewhere])


STREAMS = [(listens, revoked), (listens, expired), (listens, moved), (has_a_session, revoked), (is_old, revoked)]


@pytest.mark.parametrize(("opens", "ends"), STREAMS)
async def test_streams_that_end_together(opens: Callable[..., Awaitable[Exchange]], ends: Callable[..., Any]) -> None:
    clock = FakeClock()
    store, there = MemoryStore(clock), Scripted(tools_list=tools("act"), tools_call=said("done"))
    id, made = await keys.create(store, "made", clock.wall(), 3600 if ends is expired else None)
    async with gateway(config=MADE, scripts={"wild": there}, store=store, clock=clock) as app:
        streams = [await opens(app, bearer(made)) for _ in range(MANY)]
        await settle()
        assert not any(each.has_ended for each in streams)
        counted = Ends([each.work for each in streams])
        await ends(app, store, id, clock)
        assert await counted.most() <= 3 * crowds.FEW
        assert all(each.has_ended for each in streams)


async def test_streams_that_wait_for_their_end_say_nothing_more() -> None:
    clock = FakeClock()
    store, there = MemoryStore(clock), Scripted(tools_list=tools("act"), tools_call=said("done"))
    _, made = await keys.create(store, "made", clock.wall())
    async with gateway(config=MADE, scripts={"wild": there}, store=store, clock=clock) as app:
        streams = [await listens(app, bearer(made)) for _ in range(MANY)]
        await settle()
        before = [each.so_far.body for each in streams]
        app.http.expel_unknown(lambda principal: False)
        app.events.tell(every_list())
        await Ends([each.work for each in streams]).most()
        assert [each.so_far.body for each in streams] == before
        assert b"acknowledged" in before[-1]
