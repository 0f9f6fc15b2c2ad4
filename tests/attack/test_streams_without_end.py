"""One client listens on as many streams as it can begin, which watch nothing and cost nothing to keep open: each event
is told thousands of times in one go."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from doors.pipes import WebSocket
from inmemory import ENVELOPE, MODERN, Exchange, Scripted, Visitor, gateway, tools
from virtualtime import settle

from toolgate.core import events as core_events
from toolgate.core.events import PORTION, Events, every_list
from toolgate.core.model import Event, Principal
from toolgate.frontends.guards import Headers

LISTEN = "subscriptions/listen"


async def identify(headers: Headers, address: str, path: str) -> Principal:
    who = headers.get("authorization", "nobody")
    return Principal(who, address, client=who)


def listen(id: int) -> Any:
    params = {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True}}
    return {"jsonrpc": "2.0", "id": id, "method": LISTEN, "params": params}


async def stream(visitor: Visitor) -> Exchange:
    headers = {"mcp-protocol-version": MODERN, "mcp-method": LISTEN}
    exchange = visitor.begin("POST", json.dumps(listen(1)).encode(), headers=headers)
    await settle()
    return exchange


async def test_streams_of_all_connections_of_a_principal_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_events, "MOST_OF_ONE", 6)
    async with gateway(scripts={"docs": Scripted(tools_list=tools("t"))}, identify=identify) as app:
        heard: list[Any] = []
        shown = [("authorization", "mallory")]
        sockets = [
            WebSocket(app.http, headers=shown, on_message=lambda data: heard.append(json.loads(data))) for _ in range(2)
        ]
        for socket in sockets:
            for id in range(4):
                socket.say(listen(id))
        await asyncio.sleep(1)
        refused = [each["error"]["message"] for each in heard if "error" in each]
        assert len(heard) == 8 and len(refused) == 2 and "Too many subscriptions" in refused[0]
        over = await stream(Visitor(app, authorization="mallory"))
        assert "Too many subscriptions" in str((await over.response()).error)
        his = await stream(Visitor(app, authorization="bob"))
        assert not his.work.done()
        await sockets[0].leave()
        again = await stream(Visitor(app, authorization="mallory"))
        assert not again.work.done()
        await sockets[1].leave()
        for each in (his, again):
            await each.gone()
        assert not app.events._counted


async def test_a_subscription_that_is_refused_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_events, "MOST_OF_ONE", 1)
    async with gateway(identify=identify) as app:
        visitor = Visitor(app, authorization="ann")
        for _ in range(3):
            refused = await visitor.ask_modern(LISTEN, notifications={"toolsListChanged": 7})
            assert "Too many" not in str(refused.error)
        assert not app.events._counted


def crowd(events: Events, count: int) -> list[list[Event]]:
    """So many who listen, and what each has heard."""
    heard: list[list[Event]] = [[] for _ in range(count)]
    for each in heard:
        events.listen(each.append)
    return heard


async def test_an_event_is_told_in_portions_and_others_are_heard_in_between() -> None:
    events = Events()
    heard = crowd(events, 10 * PORTION)
    one, two = every_list("one"), every_list("two")
    rounds = [0]
    events.tell(one)
    events.tell(two)
    while not heard[-1][1:]:
        told = sum(map(len, heard))
        await asyncio.sleep(0)
        rounds.append(sum(map(len, heard)) - told)
    assert max(rounds) <= PORTION and len(rounds) >= 19
    assert all(each == [one, two] for each in heard)


async def test_few_are_told_at_once_and_who_has_stopped_or_came_later_hears_nothing() -> None:
    events = Events()
    heard = crowd(events, PORTION)
    events.tell(every_list())
    assert all(each == [every_list()] for each in heard)
    last: list[Event] = []
    stop = events.listen(last.append)
    events.tell(every_list("there"))
    stop()
    later: list[Event] = []
    events.listen(later.append)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert last == later == [] and all(len(each) == 2 for each in heard)
