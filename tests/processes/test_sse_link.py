"""Servers of HTTP+SSE, the transport of 2024-11-05: named as such, or behind a URL that refuses all that is newer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from processes.ground import STREAM, Served, failure, gateway, read_events, real, settings, until
from processes.scripted_http import OnCall, Request, ScriptedServer, serving

LEGACY = "2025-06-18"


class OldServer(ScriptedServer):
    """`GET /sse` is the stream, messages go to `/messages`, and all else is answered with `other`."""

    def __init__(self, on_call: OnCall | None = None, endpoint: str = "/messages?session={}") -> None:
        super().__init__(on_call or said)
        self.streams: list[Request] = []
        self.endpoint = endpoint
        self.other = "405 Method Not Allowed"
        self.post = "202 Accepted"

    @property
    def posts(self) -> list[Request]:
        return [request for request in self.requests if request.path.startswith("/messages")]

    async def _respond(self, request: Request) -> None:
        if request.verb == "GET" and request.path == "/sse":
            request.open_stream()
            self.streams.append(request)
            if self.endpoint:
                session = len(self.streams)
                where = self.endpoint.format(session, port=self.port).encode()
                request.event(where, "event: endpoint")
        elif request.verb == "POST" and request.path.startswith("/messages"):
            await self._take(request)
        else:
            request.whole(b"not here", self.other)

    async def _take(self, request: Request) -> None:
        newest = self.streams[-1]
        if request.path.endswith("=forgotten") or not request.path.endswith(f"={len(self.streams)}"):
            request.whole(b"Could not find session", "404 Not Found")
            return
        request.whole(b"Accepted" if self.post.startswith("202") else b"the server's own words", self.post)
        if self.post.startswith("202"):
            found = self._answer(request)
            if found:
                newest.event(found, "event: message")
            elif request.method == "tools/call":
                await self._on_call(request)

    def _answer(self, request: Request) -> bytes | None:
        info = {"name": "old", "version": "1"}
        if request.method == "initialize":
            return request.result(protocolVersion="2024-11-05", capabilities={"tools": {}}, serverInfo=info)
        if request.method == "tools/list":
            return request.result(tools=self.listed())
        return None

    def say(self, message: bytes | dict[str, Any]) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.streams[-1].event(data, "event: message")


async def said(request: Request) -> None: ...


def answering(server: OldServer) -> OldServer:
    async def on_call(request: Request) -> None:
        server.say(request.answer())

    server._on_call = on_call
    return server


@asynccontextmanager
async def behind(server: OldServer, **more: Any) -> AsyncIterator[Served]:
    async with serving(server):
        config = {"type": "sse", "url": f"http://127.0.0.1:{server.port}/sse", **more}
        async with gateway(settings(one=config)) as served:
            yield served


ENDPOINTS = [
    "/messages?session={}",
    "messages?session={}",
    "?session={}",
    "http://127.0.0.1:{port}/messages?session={}",
]


@pytest.mark.promise("spec.legacy.http.sse-upstream")
@pytest.mark.parametrize("endpoint", [ENDPOINTS[0], ENDPOINTS[1], ENDPOINTS[3]])
@real
async def test_messages_go_where_the_stream_says(endpoint: str) -> None:
    server = answering(OldServer(endpoint=endpoint))
    async with behind(server, headers={"Authorization": "Bearer t"}) as served:
        client = served.client()
        assert await client.tools() == ["one__act"]
        assert [await client.call("one__act") for _ in range(3)] == ["ok"] * 3
        assert served.status("one").revision == "2024-11-05"
        methods = [request.method for request in server.requests]
        assert methods[:4] == ["GET", "initialize", "notifications/initialized", "tools/list"]
        assert {request.path for request in server.posts} == {"/messages?session=1"}
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer t"}
        assert server.requests[0].headers["accept"] == "text/event-stream"
        assert server.open_connections <= 3
    await_closed = [connection for connection in server.connections if not connection.is_closed]
    assert await_closed == []


@pytest.mark.promise("spec.legacy.initialized.first")
@real
async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    taken = False
    early: list[str] = []

    class Slow(OldServer):
        async def _take(self, request: Request) -> None:
            nonlocal taken
            if request.method == "notifications/initialized":
                for _ in range(200):  # turns of the loop, in which others could come
                    await asyncio.sleep(0)
                taken = True
            elif request.method != "initialize" and not taken:
                early.append(request.method)
            await super()._take(request)

    async with behind(answering(Slow())) as served:
        assert await served.client().call("one__act") == "ok"
    assert taken and early == []


@pytest.mark.promise("spec.legacy.http.sse-upstream")
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://example.com/messages",
        "https://127.0.0.1:{port}/messages",
        "//example.com/messages",
        "file:///etc/passwd",
        "/messages x",
        "http://[",
    ],
)
@real
async def test_a_stream_that_names_another_origin_is_refused(endpoint: str) -> None:
    server = OldServer(endpoint=endpoint)
    async with behind(server) as served:
        error = await failure(served.client().call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")
        assert "which is not at" in error.message
        await until(lambda: server.open_connections == 0)
    assert server.posts == []


@pytest.mark.parametrize("status", ["404 Not Found", "401 Unauthorized", "200 OK", "500 Internal Server Error"])
@real
async def test_a_url_without_a_stream_is_told_with_its_status(status: str) -> None:
    server = OldServer()
    server.other = status
    async with serving(server):
        config = {"type": "sse", "url": f"http://127.0.0.1:{server.port}/elsewhere"}
        async with gateway(settings(one=config)) as served:
            error = await failure(served.client().call("one__act"))
            assert error.data["outcome"] == "not_sent"
            assert f"HTTP {status[:3]}" in error.message
            assert ("credentials" in error.data.get("hint", "")) == (status[:3] == "401")
            assert served.status("one").state == "failed"
            await until(lambda: server.open_connections == 0)


@real
async def test_a_stream_that_names_no_endpoint_fails_after_the_start_timeout() -> None:
    server = OldServer(endpoint="")
    async with behind(server, start_timeout="1s") as served:
        error = await failure(served.client().call("one__act"))
        assert error.data["outcome"] == "not_sent"
        assert "did not send its message endpoint within 1 s" in error.message
        await until(lambda: server.open_connections == 0)


@real
async def test_a_server_that_is_not_there_is_named() -> None:
    async with serving(OldServer()) as gone:
        url = f"http://127.0.0.1:{gone.port}/sse"
    async with gateway(settings(one={"type": "sse", "url": url})) as served:
        error = await failure(served.client().call("one__act"))
        assert error.data["outcome"] == "not_sent"
        assert url in error.message


@pytest.mark.promise("spec.legacy.http.sse-upstream")
@pytest.mark.parametrize("way", ["ended", "reset", "half an event"])
@real
async def test_a_stream_that_ends_fails_what_is_under_way_and_is_opened_for_the_next_call(way: str) -> None:
    held: list[Request] = []

    async def hold(request: Request) -> None:
        held.append(request)

    server = OldServer(hold)
    async with behind(server) as served:
        client = served.client()
        call = asyncio.create_task(client.call("one__act"))
        await until(lambda: held)
        stream = server.streams[0]
        if way == "ended":
            stream.end_stream()
        elif way == "reset":
            stream.connection.reset()
        else:
            stream.write(b"ff\r\ndata: {")
            stream.connection.close()
        error = await failure(call)
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        answering(server)
        assert await client.call("one__act") == "ok"
        assert len(server.streams) == 2
        assert len(server.calls) == 2


@real
async def test_a_session_that_the_server_forgot_is_opened_anew_and_the_call_sent_again() -> None:
    """It restarted, and nobody noticed that the stream is dead."""
    server = answering(OldServer())
    async with behind(server) as served:
        client = served.client()
        assert await client.call("one__act") == "ok"
        server.streams.append(server.streams[0])
        assert await client.call("one__act") == "ok"
        assert [request.path[-1] for request in server.calls] == ["1", "1", "3"]


STATUSES = ["400 Bad Request", "413 Too Large", "500 Oops"]


@pytest.mark.promise("b.errors.outcome-http")
@pytest.mark.parametrize("status", STATUSES)
@real
async def test_a_message_that_is_not_taken_fails_its_call_only(status: str) -> None:
    server = answering(OldServer())
    async with behind(server) as served:
        client = served.client()
        await client.tools()
        server.post = status
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert "the server's own words" in error.message
        server.post = "202 Accepted"
        assert await client.call("one__act") == "ok"
        assert len(server.streams) == 1


@pytest.mark.promise("b.errors.outcome-http")
@real
async def test_a_404_for_another_reason_says_nothing_of_its_call_and_opens_another_stream() -> None:
    server = answering(OldServer())
    async with behind(server) as served:
        client = served.client()
        await client.tools()
        server.post = "404 Not Found"
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert len(server.calls) == 1
        server.post = "202 Accepted"
        assert await client.call("one__act") == "ok"
        assert len(server.streams) == 2


@real
async def test_an_answer_that_is_no_json_inside_fails_its_call_only() -> None:
    server = OldServer()

    async def broken(request: Request) -> None:
        server.say(request.answer("broken").replace(b"broken", rb"\q"))

    server._on_call = broken
    async with behind(server) as served:
        client = served.client()
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("UPSTREAM_ERROR", "executed")
        answering(server)
        assert await client.call("one__act") == "ok" and len(server.streams) == 1


@real
async def test_questions_and_changes_come_by_the_stream() -> None:
    held: list[Request] = []

    async def ask(request: Request) -> None:
        held.append(request)
        server.tools.append("more")
        params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        server.say({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params})
        server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    server = OldServer(ask)
    async with behind(server) as served:
        client = served.client(LEGACY)
        await client.open(elicitation={})
        await client.tools()
        events: list[Any] = []
        served.app.events.listen(events.append)
        reader, writer = await client.start("tools/call", {"name": "one__act"}, accept=STREAM)
        question = await anext(read_events(reader))
        assert question["method"] == "elicitation/create"
        await client.reply(question["id"], {"action": "accept", "content": {}})
        await until(lambda: any(request.message.get("id") == 7 for request in server.posts))
        await until(lambda: events)
        server.say(held[0].answer("done"))
        assert (await anext(read_events(reader)))["result"]["content"][0]["text"] == "done"
        writer.close()


# A URL of which only the transport is unknown.


@asynccontextmanager
async def found(server: OldServer, path: str = "/sse") -> AsyncIterator[Served]:
    async with serving(server):
        url = f"http://127.0.0.1:{server.port}{path}"
        async with gateway(settings(one={"type": "http", "url": url})) as served:
            yield served


@pytest.mark.promise("spec.legacy.http.sse-fallback")
@pytest.mark.parametrize("status", ["405 Method Not Allowed", "404 Not Found", "400 Bad Request"])
@real
async def test_a_server_that_refuses_all_posts_is_tried_by_the_older_transport(status: str) -> None:
    server = answering(OldServer())
    server.other = status
    async with found(server) as served:
        client = served.client()
        assert [await client.call("one__act") for _ in range(3)] == ["ok"] * 3
        assert served.status("one").revision == "2024-11-05"
        methods = [(request.verb, request.path.partition("?")[0], request.method) for request in server.requests]
        in_plainer_words = 2 if status == "400 Bad Request" else 0  # which may be what it refuses
        assert methods[: 5 + in_plainer_words] == [
            ("POST", "/sse", "server/discover"),
            *[("POST", "/sse", "initialize")] * (1 + in_plainer_words),
            ("GET", "/sse", "GET"),
            ("POST", "/messages", "initialize"),
            ("POST", "/messages", "notifications/initialized"),
        ]
        assert {request.path.partition("?")[0] for request in server.requests[3 + in_plainer_words :]} == {"/messages"}


@pytest.mark.promise("spec.legacy.http.sse-fallback")
@real
async def test_a_url_that_is_neither_is_told_as_it_was_refused_first() -> None:
    server = OldServer()
    server.other = "404 Not Found"
    async with found(server, "/elsewhere") as served:
        error = await failure(served.client().call("one__act"))
        assert error.data["outcome"] == "not_sent"
        assert "HTTP 404: not here" in error.message
        assert [request.verb for request in server.requests] == ["POST", "POST", "GET"]
        await until(lambda: server.open_connections == 0)


@pytest.mark.promise("spec.legacy.http.sse-fallback")
@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "500 Internal Server Error", "200 OK"])
@real
async def test_a_server_that_refuses_in_another_way_is_not_asked_for_a_stream(status: str) -> None:
    server = OldServer()
    server.other = status
    async with found(server, "/elsewhere") as served:
        await failure(served.client().call("one__act"))
        assert {request.verb for request in server.requests} == {"POST"}


@pytest.mark.promise("spec.legacy.http.sse-fallback")
@real
async def test_a_server_whose_refusal_is_a_message_is_of_the_newer_transport() -> None:
    class Newer(OldServer):
        async def _respond(self, request: Request) -> None:
            error = {"code": -32600, "message": "not today"}
            body = {"jsonrpc": "2.0", "id": request.message.get("id"), "error": error}
            request.whole(json.dumps(body).encode(), "400 Bad Request")

    server = Newer()
    async with found(server) as served:
        error = await failure(served.client().call("one__act"))
        assert "not today" in error.message
        assert {request.verb for request in server.requests} == {"POST"}
