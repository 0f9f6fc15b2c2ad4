"""One client sends its requests a hundred to a batch, so that a hundred of them start where others start one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from doors.pipes import SseClient, WebSocket
from inmemory import Exchange, Json, Response, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.app import App
from toolgate.core import jsonrpc
from toolgate.core.model import Call, Principal
from toolgate.eras import calls
from toolgate.frontends.guards import Headers
from toolgate.frontends.session import Session
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.snapshot import Route

BATCHES = 4


async def identify(headers: Headers, address: str, path: str) -> Principal:
    who = headers.get("authorization", "nobody")
    return Principal(who, address, client=who)


def call(id: Any, name: str = "docs__t", **more: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, **more}}


def batch(name: str = "docs__t", first: int = 0) -> bytes:
    return json.dumps([call(first + id, name) for id in range(100)]).encode()


async def until(happened: Callable[[], object]) -> None:
    for _ in range(20_000):
        if happened():
            return
        await asyncio.sleep(0.0001)
    raise AssertionError("it does not happen")


class Heard:
    """What came over a pipe."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def __call__(self, data: bytes) -> None:
        self.messages.append(json.loads(data))


@asynccontextmanager
async def noted(monkeypatch: pytest.MonkeyPatch, **more: Any) -> AsyncGenerator[tuple[App, list[str]]]:
    """A gateway, and whose calls were begun, in their order."""
    order: list[str] = []
    whole = Gateway.handle

    async def handle(self: Gateway, call: Call, route: Route) -> Any:
        order.append(call.client.principal.id)
        return await whole(self, call, route)

    monkeypatch.setattr(Gateway, "handle", handle)
    script = Scripted(tools_list=tools("t"), tools_call=said("done"))
    async with gateway(scripts={"docs": script}, identify=identify, **more) as app:
        yield app, order


def by_post(app: App) -> tuple[Callable[[bytes], Any], Callable[..., Any]]:
    begun: list[Exchange] = []

    def say(data: bytes) -> None:
        begun.append(Visitor(app, authorization="mallory").begin("POST", data))

    async def answers(_each_has: int = 100) -> list[Any]:
        found: list[Response] = [await each.response() for each in begun]
        return [answer for response in found for answer in response.last]

    return say, answers


def by_pipe(app: App, kind: str) -> tuple[Callable[[bytes], Any], Callable[..., Any]]:
    heard, shown = Heard(), [("authorization", "mallory")]
    if kind == "websocket":
        pipe: WebSocket | SseClient = WebSocket(app.http, headers=shown, on_message=heard)
    else:
        pipe = SseClient(app.http, "/mcp/sse", shown, heard)

    async def answers(each_has: int = 100) -> list[Any]:
        await settle()
        await until(lambda: sum(map(len, heard.messages)) == each_has * BATCHES)
        await pipe.leave()
        return [answer for message in heard.messages for answer in message]

    return pipe.say, answers


@pytest.mark.parametrize("name", ["docs__t", "docs__missing"])
@pytest.mark.parametrize("kind", ["post", "websocket", "sse"])
async def test_a_request_of_another_waits_for_few_of_a_batch(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with noted(monkeypatch) as (app, order):
        say, answers = by_post(app) if kind == "post" else by_pipe(app, kind)
        heard = Heard()
        bob = WebSocket(app.http, headers=[("authorization", "bob")], on_message=heard)
        bob.say(call("first"))
        await settle()
        for number in range(BATCHES):
            say(batch(name, 100 * number))
        await until(lambda: order[-1] == "mallory")
        seen = len(order)
        bob.say(call("second"))
        await until(lambda: len(heard.messages) == 2)
        ahead = order.index("bob", seen) - seen
        assert ahead <= 3 and order.count("mallory") <= seen + 10
        found = await answers()
        assert order.count("mallory") == len(found) == 100 * BATCHES
        assert {each["id"] for each in found} == set(range(100 * BATCHES))
        await bob.leave()


async def test_who_calls_alone_has_all_of_a_batch_answered_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with noted(monkeypatch) as (app, order):
        before = app.clock.now()
        response = await Visitor(app).post(batch())
        assert {each["id"] for each in response.last} == set(range(100)) and len(order) == 100
        assert app.clock.now() - before < 0.1  # virtual: no turn is a wait


async def test_what_waits_for_its_turn_is_cancelled_and_its_id_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with noted(monkeypatch) as (app, order):
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
        heard = Heard()
        socket = WebSocket(app.http, headers=[("authorization", "mallory")], on_message=heard)
        socket.say(json.dumps([*json.loads(batch())[2:], cancel, call(98)]))
        await until(lambda: heard.messages)
        [found] = heard.messages
        assert len(order) == 97 and 99 not in [each["id"] for each in found]
        assert [each["id"] for each in found if "already in use" in str(each)] == [98]
        await socket.leave()


@pytest.mark.parametrize("kind", ["websocket", "session"])
async def test_what_waits_ends_with_its_connection_or_its_session(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with noted(monkeypatch) as (app, order):
        scheduler = app.http.scheduler
        scheduler.lets_pass("bob")
        scheduler.lets_pass("mallory")
        if kind == "websocket":
            socket = WebSocket(app.http, headers=[("authorization", "mallory")])
            socket.say(batch())
        else:
            mallory = Visitor(app, authorization="mallory")
            running = mallory.begin("POST", batch())
        await until(lambda: order)
        if kind == "websocket":
            await socket.leave()
        else:
            for session in app.sessions.all():
                app.sessions.end(session)
            await running.response()
        begun = len(order)
        assert begun < 20 and not scheduler.waiting
        await asyncio.sleep(1)
        assert len(order) == begun


@pytest.mark.parametrize("kind", ["post", "websocket", "sse"])
async def test_what_answers_a_question_waits_for_no_turn(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with noted(monkeypatch) as (app, order):
        taken: list[int] = []
        answered = Session.answered
        monkeypatch.setattr(Session, "answered", lambda *given: (taken.append(len(order)), answered(*given)))
        say, answers = by_post(app) if kind == "post" else by_pipe(app, kind)
        answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
        for number in range(BATCHES):
            say(json.dumps([*json.loads(batch(first=100 * number))[1:], answer]).encode())
        await answers(99)
        assert len(taken) == BATCHES and taken[0] == 0 and len(order) == 99 * BATCHES


def filled(size: int) -> bytes:
    """A batch of so many bytes: notifications of a tenth of that, and one request."""
    note = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {"x": ""}}
    whole = [call(0), *({**note, "params": {"x": "é" * (size // 20)}} for _ in range(9)), note]
    rest = size - len(json.dumps(whole, ensure_ascii=False).encode())
    note["params"] = {"x": "x" * rest}
    return json.dumps(whole, ensure_ascii=False).encode()


@pytest.mark.parametrize("kind", ["post", "websocket", "sse"])
async def test_a_batch_is_read_in_one_step_and_so_one_of_more_than_a_megabyte_is_refused_unread(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 16 MB held up all others for 0.3 to 0.8 s."""
    async with noted(monkeypatch) as (app, order):
        read: list[int] = []
        read_batch = jsonrpc.read_batch
        monkeypatch.setattr(jsonrpc, "read_batch", lambda data: (read.append(len(data)), read_batch(data))[1])
        heard = Heard()
        shown = [("authorization", "mallory")]
        pipe = {
            "websocket": lambda: WebSocket(app.http, headers=shown, on_message=heard),
            "sse": lambda: SseClient(app.http, "/mcp/sse", shown, heard),
        }.get(kind, lambda: None)()
        for size in (jsonrpc.LARGEST_BATCH + 1, 4 * jsonrpc.LARGEST_BATCH, jsonrpc.LARGEST_BATCH):
            seen, data = len(heard.messages), filled(size)
            assert len(data) == size
            if pipe:
                pipe.say(data)
                await until(lambda seen=seen: len(heard.messages) > seen)
            else:
                response = await Visitor(app, authorization="mallory").post(data)
                heard.messages.append(response.last)
        refused, much, answered = heard.messages
        assert refused == much and refused["error"]["code"] == -32600 and refused["id"] is None
        assert "at most 1,048,576 bytes" in refused["error"]["message"]
        assert [each["id"] for each in answered] == [0] and len(order) == 1
        assert read == [jsonrpc.LARGEST_BATCH]
        if pipe:
            await pipe.leave()


LONG = b"0" * jsonrpc.LONGEST_ID


@pytest.mark.parametrize("written", [b"7." + LONG, b"7e" + LONG, b'"%b7"' % (b"\\u0030" * 1000)])
async def test_what_a_notification_names_is_not_decoded_where_it_is_longer_than_any_id(
    written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To decode a hundred tokens of 160 KB took 0.2 s."""
    async with noted(monkeypatch) as (app, _):
        asked: list[object] = []
        monkeypatch.setattr(Session, "_question", lambda _self, id: asked.append(id))
        visitor = Visitor(app)
        await visitor.initialize("2025-11-25")
        for token in (b"7", b'"\\u0037"', b"7.0", written, b'{"a":7}', b"[7]"):
            told = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":%b}}'
            assert (await visitor.post(told % token)).status == 202
        assert [each for each in asked if each is not None] == [7, "7", 7.0]
    known = {7: None, "0" * 1000 + "7": None}
    cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
    assert calls.read_cancelled(jsonrpc.decode(cancelled % written), known) is None
    assert calls.read_cancelled(jsonrpc.decode(cancelled % b"7"), known) == 7
