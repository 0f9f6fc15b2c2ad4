"""A client opens sessions without end, and in each declares as much as it may, so that the gateway keeps it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import msgspec
import pytest
from inmemory import LATEST, META, MODERN, Visitor, gateway
from msgspec import Raw
from peers import LegacyServer, Scene, form, named
from peers import gateway as rigged
from virtualtime import FakeClock, settle

from toolgate.core import asks, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Principal
from toolgate.eras import legacy, modern
from toolgate.frontends import channels
from toolgate.frontends.channels import ReplayBuffers
from toolgate.frontends.subscriber import Subscriber
from toolgate.gateway.gateway import Gateway
from toolgate.state.parking import ParkedCall, Parking

MANY = [[] for _ in range(60_000)]
DECLARED = {"experimental": {"a": {"b": MANY[:8_000]}}, "sampling": {"tools": MANY[:2_000], "x": MANY[:2_000]}}
ICONS = {"icons": [{"src": "data:image/png;base64," + "A" * 100_000}], "x": MANY[:20_000]}
PAGES = {mcp.UI_EXTENSION: {"mimeTypes": ["text/html;profile=mcp-app"]}}
INFO = {"name": "visitor", "version": "1"}


def kept_of(client: Client) -> int:
    """Bytes of all that is kept of what a client says of itself."""

    def size(value: Any) -> int:
        if isinstance(value, dict):
            return sys.getsizeof(value) + sum(size(name) + size(each) for name, each in value.items())
        if isinstance(value, list | tuple):
            return sys.getsizeof(value) + sum(map(size, value))
        if isinstance(value, Raw):
            return len(memoryview(value))
        return sys.getsizeof(value)

    ours = ("principal", "revision")
    return sum(size(getattr(client, name)) for name in client.__struct_fields__ if name not in ours)


@pytest.mark.parametrize(
    ("revision", "capabilities", "info"),
    [
        *[(revision, DECLARED, INFO) for revision in ("2024-11-05", "2025-06-18", LATEST)],
        (LATEST, {"extensions": {"com.example/x": {"y": MANY[:8_000]}, **PAGES}}, INFO),
        (LATEST, {f"x{number}": {} for number in range(4_000)}, INFO),
        (LATEST, {"roots": {"listChanged": True}, "elicitation": {f"x{n}": {} for n in range(4_000)}}, INFO),
        (LATEST, {}, INFO | ICONS),
    ],
)
async def test_a_session_keeps_little_whatever_its_client_declares(revision: str, capabilities: Any, info: Any) -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": info}
        assert "result" in (await visitor.post(visitor.request("initialize", **params))).last
        (session,) = app.sessions.all()
        assert kept_of(session.client) < 4_000


async def test_for_a_session_that_has_ended_nothing_is_kept() -> None:
    """What runs in it as a task of a server tells of its progress all the same."""
    async with gateway() as app:
        await Visitor(app).initialize()
        (session,) = app.sessions.all()
        await session.close()
        session.tell(b"x" * 1000)
        assert not session._pending_events


async def test_a_subscription_keeps_little_whatever_its_request_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Client] = []
    begin = Subscriber.__init__

    def noted(self: Subscriber, gateway: Any, path: str, client: Client, *more: Any) -> None:
        made.append(client)
        begin(self, gateway, path, client, *more)

    monkeypatch.setattr(Subscriber, "__init__", noted)
    async with gateway() as app:
        visitor = Visitor(app)
        meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": DECLARED, META + "clientInfo": ICONS}
        message = visitor.request("subscriptions/listen", notifications={"toolsListChanged": True}, _meta=meta)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
        stream = visitor.begin("POST", json.dumps(message).encode(), headers=headers)
        await settle()
        assert kept_of(made[0]) < 4_000
        await stream.gone()


@pytest.mark.parametrize(
    ("capabilities", "named"),
    [
        ({"experimental": {"a": "x" * asks.LONGEST_CAPABILITIES}}, "capabilities"),
        ({"extensions": {mcp.UI_EXTENSION: {"mimeTypes": ["x" * asks.LONGEST_EXTENSION]}}}, mcp.UI_EXTENSION),
        ({"extensions": {mcp.TASKS_EXTENSION: MANY[:3_000]}}, mcp.TASKS_EXTENSION),
    ],
)
async def test_what_is_too_large_to_be_declared_is_refused_and_the_error_says_so(capabilities: Any, named: str) -> None:
    for era in (legacy, modern):
        with pytest.raises(Fault, match=f"{named} must have at most") as refused:
            if era is legacy:
                params = {"protocolVersion": LATEST, "capabilities": capabilities, "clientInfo": INFO}
                legacy.read_initialize(Raw(msgspec.json.encode(params)))
            else:
                meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": capabilities}
                modern.read_envelope(Raw(msgspec.json.encode(meta)))
        assert refused.value.code == "INVALID_ARGS"


def test_what_clients_declare_is_kept_as_far_as_it_means_something() -> None:
    def declared(capabilities: Any) -> Any:
        return json.loads(msgspec.json.encode(asks.declared(msgspec.json.encode(capabilities))))

    assert declared({}) == {}
    assert declared({"roots": {}, "elicitation": {}}) == {"roots": {}, "elicitation": {}}
    whole = {
        "roots": {"listChanged": True},
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}},
        "extensions": {**PAGES, mcp.TASKS_EXTENSION: {}},
    }
    assert declared(whole) == whole
    more = {"experimental": {}, "tasks": {"list": {}}, "roots": whole["roots"] | {"x": 1}}
    assert declared(whole | more) == whole
    assert declared({"roots": None, "elicitation": True, "extensions": [], "sampling": {"context": {}}}) == {
        "sampling": {}
    }


async def test_what_sessions_could_not_be_told_yet_counts_by_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 200_000)
    together = ReplayBuffers(FakeClock())
    anns = together.pending("ann")
    anns.add(b"x" * 40_000, Principal())
    for session in range(1_000):
        together.pending("mallory").add(b"%d" % session + b"y" * 5_000, Principal())
        assert together.bytes <= 200_000
    assert len(anns.take(Principal())) == 1


async def test_sessions_that_hear_nothing_keep_no_more_than_all_may_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_TOGETHER", 100_000)
    made: list[ReplayBuffers] = []
    begin = ReplayBuffers.__init__
    monkeypatch.setattr(ReplayBuffers, "__init__", lambda self, clock: (made.append(self), begin(self, clock))[1])
    async with gateway() as app:
        for _ in range(20):
            await Visitor(app).initialize()
        for session in app.sessions.all():
            for number in range(20):
                session.tell(b"%d" % number + b"z" * 1_000)
        assert 0 < sum(each.bytes for each in made) <= 100_000
    assert sum(each.bytes for each in made) == 0


async def asking(scene: Scene) -> str:
    await scene.ask(form())
    return "asked"


@pytest.mark.parametrize(
    "more", [{"meta": {"com.example/x": "y" * 50_000}}, {"x": "y" * 50_000}], ids=["meta", "extra"]
)
async def test_a_call_that_is_parked_counts_with_all_that_its_request_has(
    more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    hold = Parking.hold

    def noted(self: Parking, resume: Any, notes: Any, principal: Any, size: int = 0) -> ParkedCall:
        sizes.append(size)
        return hold(self, resume, notes, principal, size)

    monkeypatch.setattr(Parking, "hold", noted)
    async with rigged(there=LegacyServer({"asking": asking})) as rig:
        client = rig.modern()
        answers = {"elicitation/create": lambda _: named("Ann")}
        reply = await client.converse("tools/call", answers, name="there__asking", arguments={}, **more)
        assert reply.text == "asked"
        assert len(sizes) == 1 and sizes[0] > 50_000


async def test_changes_of_roots_that_come_while_one_is_on_its_way_make_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Client] = []
    may_end = asyncio.Event()

    async def roots_changed(self: Gateway, path: str, client: Client) -> None:
        begun.append(client)
        await may_end.wait()

    monkeypatch.setattr(Gateway, "roots_changed", roots_changed)
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize(roots={"listChanged": True})
        (session,) = app.sessions.all()
        for _ in range(100):
            await visitor.post({"jsonrpc": "2.0", "method": mcp.ROOTS_CHANGED})
        await settle()
        assert len(begun) == len(session._work) == 1
        may_end.set()
        await settle()
        assert len(begun) == 2 and not session._work
        await visitor.post({"jsonrpc": "2.0", "method": mcp.ROOTS_CHANGED})
        await settle()
        assert len(begun) == 3
