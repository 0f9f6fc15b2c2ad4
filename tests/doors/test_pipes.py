"""WebSocket and the transport of 2024-11-05: how a connection begins, whom it lets in, and how it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgi import HttpRequest
from doors.pipes import SseClient, WebSocket
from inmemory import ENVELOPE, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.app import App
from toolgate.config import Config, Http, Sessions
from toolgate.core.model import Principal
from toolgate.frontends import pipes
from toolgate.frontends.guards import Headers

Json = dict[str, Any]
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
HELLO: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}


async def identify(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers.get("authorization", "nobody"), address)


@asynccontextmanager
async def websocket(app: App, **more: Any) -> AsyncGenerator[tuple[WebSocket, list[bytes]]]:
    heard: list[bytes] = []
    socket = WebSocket(app.http, on_message=heard.append, **more)
    await settle()
    yield socket, heard
    if not socket.task.done():
        await socket.leave()


@asynccontextmanager
async def sse(app: App, path: str = "/sse", **headers: str) -> AsyncGenerator[tuple[SseClient, list[bytes]]]:
    heard: list[bytes] = []
    client = SseClient(app.http, path, headers.items(), heard.append)
    await settle()
    yield client, heard
    await client.leave()


# WebSocket.


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/aggregate", "/mcp/servers/greeter"])
async def test_a_websocket_is_served_at_each_endpoint(path: str) -> None:
    async with gateway() as app, websocket(app, path=path) as (socket, heard):
        assert socket.accepted
        socket.say(PING)
        await settle()
        assert heard == [b'{"jsonrpc":"2.0","id":1,"result":{}}']


@pytest.mark.parametrize(("offered", "chosen"), [(["mcp"], "mcp"), (["x", "mcp"], "mcp"), ([], None), (["x"], None)])
async def test_the_subprotocol_is_mcp_where_it_is_offered(offered: list[str], chosen: str | None) -> None:
    async with gateway() as app, websocket(app, subprotocols=offered) as (socket, _):
        assert socket.accepted and socket.subprotocol == chosen


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/mcp", [("origin", "https://evil.example")], 403),
        ("/nope", [], 404),
        ("/mcp/sse", [], 404),
        ("/sse", [], 404),
    ],
)
async def test_who_is_not_let_in_is_told_so_on_the_level_of_http(
    path: str, headers: list[tuple[str, str]], status: int
) -> None:
    async with gateway() as app:
        socket = await WebSocket(app.http, path, headers).ended()
        assert not socket.accepted and socket.status == status
        assert json.loads(socket.denial)["error"]["code"] == -32600
        bare = await WebSocket(app.http, path, headers, knows_denials=False).ended()
        assert not bare.accepted and bare.code == 1008


async def test_a_frame_that_is_no_text_or_too_large_ends_a_websocket() -> None:
    async with gateway(config=Config(http=Http(body_limit=100))) as app:
        async with websocket(app) as (socket, _):
            socket.say_bytes(PING)
            assert (await socket.ended()).code == 1003
        async with websocket(app) as (socket, _):
            socket.say(b'"' + b"x" * 99 + b'"')
            assert (await socket.ended()).code == 1009


async def test_a_frame_that_is_no_message_is_answered_with_an_error() -> None:
    async with gateway() as app, websocket(app) as (socket, heard):
        for text in ("nonsense", "{}", "\ud800", ""):
            socket.say(text)
        await settle()
        assert [json.loads(each)["error"]["code"] for each in heard] == [-32700, -32600, -32700, -32700]


async def test_what_a_websocket_has_begun_ends_with_it() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        async with websocket(app) as (socket, _):
            for meta in ({}, {"_meta": ENVELOPE}):
                params = {**meta, "name": "docs__t"}
                socket.say({"jsonrpc": "2.0", "id": len(meta), "method": "tools/call", "params": params})
            await settle()
            assert [asked["method"] for asked in script.requests[-2:]] == ["tools/call"] * 2
        await settle()
        assert [asked["method"] for asked in script.requests[-2:]] == ["notifications/cancelled"] * 2


async def test_a_websocket_ends_with_the_gateway() -> None:
    async with gateway() as app, websocket(app) as (socket, _):
        app.http.close()
        assert (await socket.ended()).code == 1001
        assert (await WebSocket(app.http).ended()).status == 503


async def test_the_method_close_ends_a_connection_after_its_answer() -> None:
    async with gateway() as app, websocket(app) as (socket, heard):
        socket.say({"jsonrpc": "2.0", "id": 1, "method": "close"})
        assert (await socket.ended()).code == 1001
        assert json.loads(heard[-1])["result"] == {}


async def test_there_are_no_more_connections_than_sessions_may_be() -> None:
    async with gateway(config=Config(sessions=Sessions(max=1))) as app:
        async with websocket(app):
            assert (await WebSocket(app.http).ended()).status == 503
        async with websocket(app) as (socket, _):
            assert socket.accepted


async def test_who_takes_all_connections_loses_the_oldest_to_one_who_has_fewer_until_both_have_as_many() -> None:
    async with gateway(config=Config(sessions=Sessions(max=4)), identify=identify) as app:

        def come(who: str) -> WebSocket:
            return WebSocket(app.http, headers=[("authorization", who)])

        eves = [come("eve") for _ in range(4)]
        await settle()
        async with sse(app, authorization="ann") as (client, _):
            assert client.stream.is_stream
            assert (await eves[0].ended()).accepted
            anns = come("ann")
            await eves[1].ended()
            assert anns.accepted and not anns.task.done()
            for who in ("eve", "ann"):
                assert (await come(who).ended()).status == 503
            for socket in (anns, *eves[2:]):
                assert not socket.task.done()
                await socket.leave()


@pytest.mark.parametrize("door", [websocket, sse])
async def test_a_client_that_never_reads_is_cut_off(door: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "MOST_WAITING", 1000)
    script = Scripted(tools_list=tools("t"), tools_call=said("x" * 2000))
    async with gateway(scripts={"docs": script}) as app, door(app) as (client, _):
        client.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "docs__t"}})
        await settle()
        assert not app.http._pipes._open


@pytest.mark.parametrize("door", [websocket, sse])
async def test_of_what_a_client_has_left_unread_nothing_is_kept(door: Callable[..., Any]) -> None:
    """Garbage would keep it: a conversation is hardly any, by the number of its objects."""
    script = Scripted(tools_list=tools("t"), tools_call=said("x" * 2000))
    async with gateway(scripts={"docs": script}) as app:
        async with door(app) as (client, _):
            [pipe] = app.http._pipes._open.values()
            if door is websocket:
                client.stops_reading = True
            pipe.outbox._put = pipe.outbox._messages.append  # which wakes nobody
            for id in range(1, 10):
                client.say({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "docs__t"}})
            await settle()
            assert pipe.outbox.waiting > 8 * 2000
        await settle()
        assert not pipe.outbox.waiting and not pipe.outbox._messages


# HTTP with SSE.


@pytest.mark.promise("spec.legacy.http.sse")
@pytest.mark.parametrize("path", ["/sse", "/mcp/sse", "/mcp/aggregate/sse", "/mcp/servers/greeter/sse"])
async def test_the_stream_names_the_place_to_post_to_and_carries_all_answers(path: str) -> None:
    async with gateway() as app, sse(app, path) as (client, heard):
        assert client.stream.is_stream and client.path == path
        assert len(client.query.partition(b"=")[2]) >= 32
        client.say(HELLO)
        client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        client.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        await settle()
        assert [json.loads(each)["id"] for each in heard] == [0, 1]
        assert len(json.loads(heard[1])["result"]["tools"]) == 2


@pytest.mark.promise("spec.legacy.http.sse")
async def test_a_stream_is_its_principals_alone_and_belongs_to_its_path() -> None:
    async with gateway(identify=identify) as app, sse(app, authorization="ada") as (client, heard):
        posts = [
            HttpRequest(app.http, "POST", "/sse", [("authorization", "eve")], PING, query=client.query),
            HttpRequest(app.http, "POST", "/sse", [("authorization", "ada")], PING, query=b"session_id=bogus"),
            HttpRequest(
                app.http, "POST", "/mcp/servers/greeter/sse", [("authorization", "ada")], PING, query=client.query
            ),
            HttpRequest(app.http, "POST", "/sse", [("authorization", "ada")], PING),
        ]
        assert [(await post.answered()).status for post in posts] == [404, 404, 404, 400]
        assert heard == []
        assert (await client.post(PING).answered()).status == 202


@pytest.mark.promise("spec.legacy.http.sse")
async def test_a_session_of_the_stream_ends_with_it() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        async with sse(app) as (client, _):
            client.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "docs__t"}})
            await settle()
        await settle()
        assert script.requests[-1]["method"] == "notifications/cancelled"
        assert (await client.post(PING).answered()).status == 404


async def test_a_stream_that_is_silent_shows_that_it_lives() -> None:
    async with gateway() as app, sse(app) as (client, _):
        await app.clock.sleep(40)
        assert client.stream.comments >= 2


async def test_a_stream_passes_the_same_guards() -> None:
    async with gateway() as app:
        foreign = HttpRequest(app.http, "GET", "/sse", [("origin", "https://evil.example")])
        assert (await foreign.answered()).status == 403
        assert (await HttpRequest(app.http, "DELETE", "/sse").answered()).headers["allow"] == "POST, GET"
        async with sse(app) as (client, _):
            assert (await client.post(PING, [("origin", "https://evil.example")]).answered()).status == 403


async def test_a_stream_ends_with_the_gateway() -> None:
    async with gateway() as app, sse(app) as (client, _):
        app.http.close()
        assert (await client.stream.answered()).is_whole


async def test_a_client_of_the_newer_transport_finds_that_this_is_the_older_one() -> None:
    async with gateway() as app:
        refused = await Visitor(app, "/sse").post(HELLO)
        assert refused.status == 400 and "GET" in refused.error["message"]


# Both.


@pytest.mark.parametrize("door", [websocket, sse])
async def test_a_modern_request_needs_no_handshake(door: Callable[..., Any]) -> None:
    async with gateway() as app, door(app) as (client, heard):
        params = {"_meta": ENVELOPE, "name": "greeter__greet", "arguments": {"name": "Ada"}}
        client.say({"jsonrpc": "2.0", "id": "m", "method": "tools/call", "params": params})
        await settle()
        result = json.loads(heard[-1])["result"]
        assert result["resultType"] == "complete" and result["content"] == said("Hello, Ada!")["content"]


IDS = [b'"\\u0061"', b'""', b"0", b"-0", b"1.50", b"1e2", b"12345678901234567890123456", b"9007199254740993"]


@pytest.mark.promise("spec.legacy.ids.in-flight")
@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("door", [websocket, sse])
async def test_an_id_comes_back_byte_for_byte(door: Callable[..., Any], id: bytes) -> None:
    async with gateway() as app, door(app) as (client, heard):
        client.say(b'{"jsonrpc":"2.0","id":' + id + b',"method":"ping"}')
        await settle()
        assert heard == [b'{"jsonrpc":"2.0","id":' + id + b',"result":{}}']


@pytest.mark.parametrize("id", IDS)
async def test_an_id_comes_back_byte_for_byte_over_http(id: bytes) -> None:
    async with gateway() as app:
        for method in (b'"ping"', b'"nope"'):
            answer = await Visitor(app).send("POST", b'{"jsonrpc":"2.0","id":' + id + b',"method":' + method + b"}")
            assert answer.body.startswith(b'{"jsonrpc":"2.0","id":' + id + b",")


async def test_a_websocket_that_takes_no_message_for_a_minute_is_cut_off() -> None:
    async with gateway() as app:
        socket = WebSocket(app.http)
        await settle()
        socket.stops_reading = True
        socket.say(PING)
        await settle()
        assert not socket.task.done()
        await app.clock.sleep(pipes.PATIENCE + 1)
        assert (await socket.ended()).code is None and not app.http._pipes._open


@pytest.mark.parametrize("door", [websocket, sse])
async def test_a_modern_client_listens_on_a_pipe_and_has_a_last_word_when_the_gateway_ends(
    door: Callable[..., Any],
) -> None:
    script = Scripted(tools_list=tools("t"))
    async with gateway(scripts={"docs": script}) as app, door(app) as (client, heard):
        await Visitor(app).ask("tools/list")
        params = {"_meta": ENVELOPE, "notifications": {"toolsListChanged": True}}
        client.say({"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": params})
        await settle()
        script.change(tools("u"))
        await app.clock.sleep(1)
        told = [json.loads(each).get("method", "") for each in heard]
        assert told == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
        app.http.close()
        await app.clock.sleep(1)
        assert json.loads(heard[-1])["id"] == "s" and "result" in json.loads(heard[-1])
        assert not app.http._pipes._open
