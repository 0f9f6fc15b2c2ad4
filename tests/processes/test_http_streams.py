"""Streams of a server of the handshake era over HTTP: the one of what it says by itself, and broken ones taken up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from peers import words_of
from processes.ground import STREAM, Served, failure, gateway, read_events, real, settings, until
from processes.scripted_http import OnCall, Request, ScriptedServer, scripted

from toolgate.core.model import Event
from toolgate.upstreams.links import streams

LEGACY = "2025-06-18"
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RETRY", 0.05)
    monkeypatch.setattr(streams, "LEAST_RETRY", 0.01)


@asynccontextmanager
async def behind(
    on_call: OnCall | None = None, on_get: OnCall | None = None, session: bool = True, modern: bool = False, **more: Any
) -> AsyncIterator[tuple[Served, ScriptedServer]]:
    async with scripted(on_call or whole, session, modern, on_get) as server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        async with gateway(settings(one={"url": url, **more})) as served:
            yield served, server


async def whole(request: Request) -> None:
    request.whole(request.answer())


def heard(served: Served) -> list[Event]:
    """What the server's own words became."""
    events: list[Event] = []
    served.app.events.listen(events.append)
    return events


class Listened:
    """Opens a stream for every GET, and leaves what is said on it to the test."""

    def __init__(self) -> None:
        self.gets: list[Request] = []

    async def __call__(self, request: Request) -> None:
        request.open_stream()
        self.gets.append(request)


# What a server says by itself.


@pytest.mark.promise("spec.legacy.http.listen-upstream")
@real
async def test_a_server_is_heard_where_no_call_runs() -> None:
    listened = Listened()
    async with behind(on_get=listened) as (served, server):
        events = heard(served)
        await served.client().tools()
        await until(lambda: listened.gets)
        headers = listened.gets[0].headers
        assert (headers["accept"], headers["mcp-session-id"]) == ("text/event-stream", "session-1")
        assert headers["mcp-protocol-version"] == "2025-11-25"
        assert "last-event-id" not in headers
        order = [request.method for request in server.requests]
        assert order.index("GET") > order.index("notifications/initialized")
        server.tools.append("more")
        listened.gets[0].event(CHANGED)
        await until(lambda: events)
        assert events == [Event("one", "list_changed", lists=("tools",))]
        assert len(server.gets) == 1


@pytest.mark.promise("spec.legacy.http.listen-upstream")
@real
async def test_a_question_on_the_servers_own_stream_reaches_the_one_call_that_runs() -> None:
    listened = Listened()
    held: list[Request] = []

    async def on_call(request: Request) -> None:
        held.append(request)
        params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        question = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}
        listened.gets[0].event(json.dumps(question).encode())

    async with behind(on_call, listened) as (served, server):
        client = served.client(LEGACY)
        await client.open(elicitation={})
        await client.tools()
        await until(lambda: listened.gets)
        reader, writer = await client.start("tools/call", {"name": "one__act"}, accept=STREAM)
        events = read_events(reader)
        question = await anext(events)
        assert (question["method"], words_of(question["params"])) == ("elicitation/create", "Sure?")
        await client.reply(question["id"], {"action": "accept", "content": {}})
        await until(lambda: any(request.message.get("id") == 7 for request in server.requests))
        held[0].whole(held[0].answer("sure"))
        assert (await anext(events))["result"]["content"][0]["text"] == "sure"
        writer.close()


REFUSALS = ["405 Method Not Allowed", "404 Not Found", "400 Bad Request", "401 Unauthorized", "501 Not Implemented"]
REFUSALS += ["500 Internal Server Error", "200 OK", "204 No Content"]


@pytest.mark.promise("spec.legacy.http.listen-upstream")
@pytest.mark.parametrize("status", REFUSALS)
@real
async def test_a_server_that_says_nothing_by_itself_is_asked_once_and_is_well(status: str) -> None:
    async def refuse(request: Request) -> None:
        request.whole(b"", status)

    async with behind(on_get=refuse) as (served, server):
        client = served.client()
        assert [await client.call("one__act") for _ in range(3)] == ["ok"] * 3
        await until(lambda: server.gets)
        assert [request.method for request in server.requests].count("initialize") == 1
        assert served.status("one").state == "ready"
    assert len(server.gets) == 1


@real
async def test_a_get_that_is_never_answered_holds_up_nothing() -> None:
    async def silent(request: Request) -> None: ...

    async with behind(on_get=silent) as (served, server):
        assert [await served.client().call("one__act") for _ in range(5)] == ["ok"] * 5
        await until(lambda: server.gets)
        assert len({request.connection.number for request in server.calls}) == 1
        assert server.calls[0].connection.number != server.gets[0].connection.number


@real
async def test_nobody_listens_to_a_modern_server() -> None:
    async with behind(modern=True, session=False) as (served, server):
        assert await served.client().call("one__act") == "ok"
    assert server.gets == []


@pytest.mark.promise("spec.legacy.http.resume-upstream")
@pytest.mark.parametrize("way", ["ended", "broken"])
@real
async def test_the_servers_own_stream_is_asked_for_again_from_where_it_broke(way: str) -> None:
    listened = Listened()
    async with behind(on_get=listened) as (served, server):
        events = heard(served)
        await served.client().tools()
        await until(lambda: listened.gets)
        server.tools.append("more")
        listened.gets[0].event(CHANGED, "id: 12", "retry: 20")
        if way == "ended":
            listened.gets[0].end_stream()
        else:
            listened.gets[0].connection.reset()
        await until(lambda: len(listened.gets) == 2)
        assert listened.gets[1].headers["last-event-id"] == "12"
        assert listened.gets[1].headers["mcp-session-id"] == "session-1"
        await until(lambda: len(events) == 1)
        server.tools.append("even more")
        listened.gets[1].event(CHANGED)
        await until(lambda: len(events) == 2)


@real
async def test_a_server_that_ends_its_own_stream_at_once_is_asked_more_and_more_seldom() -> None:
    async def end(request: Request) -> None:
        request.open_stream()
        request.end_stream()

    cursor = streams.Cursor()
    pauses = [cursor.pause(failures) for failures in range(12)]
    assert pauses == sorted(pauses)
    assert pauses[-1] <= streams.LONGEST_PAUSE
    async with behind(on_get=end) as (served, server):
        await served.client().tools()
        await until(lambda: len(server.gets) == 3)
        assert await served.client().call("one__act") == "ok"


def test_a_server_that_wants_a_longer_pause_gets_it() -> None:
    cursor = streams.Cursor()
    cursor.note(streams.sse.Event(b"", retry=90_000))
    assert cursor.pause(0) == cursor.pause(5) == 90.0


@pytest.mark.promise("b.faults.404")
@real
async def test_a_session_that_is_forgotten_on_the_servers_own_stream_is_opened_anew() -> None:
    listened = Listened()
    async with behind(on_get=listened) as (served, server):
        client = served.client()
        await client.tools()
        await until(lambda: listened.gets)
        server.forget_the_session()
        listened.gets[0].connection.reset()
        await until(lambda: served.status("one").state == "failed")
        assert await client.call("one__act") == "ok"
        assert [request.headers["mcp-session-id"] for request in server.calls] == ["session-2"]
        await until(lambda: len(listened.gets) == 2)
        assert listened.gets[1].headers["mcp-session-id"] == "session-2"


@real
async def test_the_servers_own_stream_ends_with_the_gateway_and_leaves_nothing() -> None:
    listened = Listened()
    async with scripted(whole, True, False, listened) as server:
        async with gateway(settings(one={"url": f"http://127.0.0.1:{server.port}/mcp"})) as served:
            await served.client().tools()
            await until(lambda: listened.gets)
        await until(lambda: listened.gets[0].connection.is_closed)
        await until(lambda: server.open_connections == 0)
        assert len(server.gets) == 1


# The stream of a request, broken before its answer.


class Broken:
    """A call whose stream is opened, gives an event id, and breaks as `way` says; each GET is left to the test."""

    def __init__(self, way: str = "ended", *fields: str) -> None:
        self.way = way
        self.fields = fields or ("id: first", "retry: 10")
        self.calls: list[Request] = []
        self.resumed: list[Request] = []

    async def on_call(self, request: Request) -> None:
        self.calls.append(request)
        request.open_stream()
        request.event(b"", *self.fields)
        break_off(request, self.way)

    async def on_get(self, request: Request) -> None:
        if "last-event-id" in request.headers:
            request.open_stream()
            self.resumed.append(request)
        else:
            request.whole(b"", "405 Method Not Allowed")


def break_off(request: Request, way: str) -> None:
    if way == "ended":
        request.end_stream()
    elif way == "closed":
        request.connection.close()
    else:
        request.write(b"40\r\nid: half an event")
        request.connection.close()


@pytest.mark.promise("spec.legacy.http.resume-upstream")
@pytest.mark.parametrize("way", ["ended", "closed", "in the middle"])
@pytest.mark.parametrize("session", [True, False], ids=["session", "no session"])
@real
async def test_a_stream_that_ends_before_the_answer_is_taken_up_again(way: str, session: bool) -> None:
    broken = Broken(way)
    async with behind(broken.on_call, broken.on_get, session) as (served, server):
        call = asyncio.create_task(served.client().call("one__act"))
        await until(lambda: broken.resumed)
        assert broken.resumed[0].headers["last-event-id"] == "first"
        assert broken.resumed[0].headers.get("mcp-session-id") == ("session-1" if session else None)
        broken.resumed[0].event(broken.calls[0].answer("at last"), "id: second")
        broken.resumed[0].end_stream()
        assert await call == "at last"
        assert len(server.calls) == 1
    assert len(broken.resumed) == 1


@pytest.mark.promise("spec.legacy.http.resume-upstream")
@real
async def test_a_server_may_be_polled_as_often_as_it_likes_and_its_last_id_counts() -> None:
    broken = Broken()
    async with behind(broken.on_call, broken.on_get) as (served, server):
        client = served.client()
        reader, writer = await client.start(
            "tools/call", {"name": "one__act", "_meta": {"progressToken": "mine"}}, accept=STREAM
        )
        events = read_events(reader)
        for number in range(3):
            await until(lambda number=number: len(broken.resumed) == number + 1)
            token = broken.calls[0].message["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": number + 1}
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            broken.resumed[-1].event(json.dumps(note).encode(), f"id: note-{number}")
            assert (await anext(events))["params"]["progress"] == number + 1
            break_off(broken.resumed[-1], ["ended", "closed", "in the middle"][number])
        await until(lambda: len(broken.resumed) == 4)
        broken.resumed[-1].event(broken.calls[0].answer("at last"))
        assert (await anext(events))["result"]["content"][0]["text"] == "at last"
        writer.close()
        seen = [request.headers["last-event-id"] for request in broken.resumed]
        assert seen == ["first", "note-0", "note-1", "note-2"]
        assert len(server.calls) == 1
        await until(lambda: broken.resumed[-1].connection.is_closed)


@pytest.mark.promise("spec.legacy.http.resume-upstream")
@real
async def test_a_question_on_a_stream_that_was_taken_up_belongs_to_its_call() -> None:
    """Though another client's call runs beside it."""
    broken = Broken()
    async with behind(broken.on_call, broken.on_get) as (served, server):
        other = served.client()
        kept = asyncio.create_task(other.call("one__act"))
        await until(lambda: len(broken.resumed) == 1)
        client = served.client(LEGACY)
        await client.open(elicitation={})
        reader, writer = await client.start("tools/call", {"name": "one__act"}, accept=STREAM)
        await until(lambda: len(broken.resumed) == 2)
        params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        question = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}
        broken.resumed[1].event(json.dumps(question).encode(), "id: q")
        events = read_events(reader)
        asked = await anext(events)
        assert words_of(asked["params"]) == "Sure?"
        await client.reply(asked["id"], {"action": "accept", "content": {}})
        await until(lambda: any(request.message.get("id") == 7 for request in server.requests))
        broken.resumed[1].event(broken.calls[1].answer("yes"))
        assert (await anext(events))["result"]["content"][0]["text"] == "yes"
        writer.close()
        broken.resumed[0].event(broken.calls[0].answer("also"))
        assert await kept == "also"


@pytest.mark.promise("spec.legacy.http.resume-upstream")
@pytest.mark.parametrize("status", ["405 Method Not Allowed", "404 Not Found", "400 Bad Request", "200 OK"])
@real
async def test_a_call_whose_stream_is_not_given_again_is_lost_and_not_sent_twice(status: str) -> None:
    broken = Broken()

    async def refuse(request: Request) -> None:
        request.whole(b"gone", status)

    async with behind(broken.on_call, refuse) as (served, server):
        error = await failure(served.client().call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert "did not resume it" in error.message
        assert len(server.calls) == 1
        server._on_call = whole  # type: ignore[attr-defined]
        assert await served.client().call("one__act") == "ok"


@real
async def test_a_server_that_is_away_for_a_moment_is_asked_again_for_the_stream() -> None:
    broken = Broken()
    ways = ["503 Service Unavailable", "409 Conflict", "nothing", ""]

    async def on_get(request: Request) -> None:
        way = ways.pop(0) if "last-event-id" in request.headers else "405 Method Not Allowed"
        if way == "nothing":
            request.connection.reset()
        elif way:
            request.whole(b"", way)
        else:
            await broken.on_get(request)

    async with behind(broken.on_call, on_get) as (served, server):
        call = asyncio.create_task(served.client().call("one__act"))
        await until(lambda: broken.resumed)
        broken.resumed[0].event(broken.calls[0].answer("at last"))
        assert await call == "at last"
        assert len(server.calls) == 1


@pytest.mark.promise("spec.legacy.http.resume-upstream")
@pytest.mark.parametrize("way", ["cancelled", "timed out"])
@real
async def test_a_call_that_nobody_waits_for_is_not_asked_for_again(way: str) -> None:
    broken = Broken()
    more = {"timeout": "1s"} if way == "timed out" else {}
    async with behind(broken.on_call, broken.on_get, **more) as (served, server):
        _, writer = await served.client().start("tools/call", {"name": "one__act"})
        await until(lambda: broken.resumed)
        if way == "cancelled":
            writer.close()
        await until(lambda: broken.resumed[0].connection.is_closed)
        await until(lambda: server.requests[-1].method == "notifications/cancelled")
        writer.close()
    assert len(broken.resumed) == 1


@real
async def test_a_call_that_waits_to_be_asked_for_again_ends_with_the_gateway() -> None:
    broken = Broken("ended", "id: first", "retry: 600000")
    async with behind(broken.on_call, broken.on_get) as (served, server):
        call = asyncio.create_task(served.client().call("one__act"))
        await until(lambda: broken.calls and server.gets)
        await served.app.gateway.snapshot.upstreams["one"].close()
        error = await failure(call)
        assert error.data["outcome"] == "sent_unknown"
    assert broken.resumed == []


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "no id"])
@real
async def test_a_stream_that_cannot_be_taken_up_is_lost(modern: bool) -> None:
    broken = Broken("ended", *(["id: first"] if modern else ["retry: 10"]))
    async with behind(broken.on_call, broken.on_get, session=not modern, modern=modern) as (served, server):
        error = await failure(served.client().call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert "without an answer" in error.message
    assert broken.resumed == []
    assert len(server.calls) == 1
