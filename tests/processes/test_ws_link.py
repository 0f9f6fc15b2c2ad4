"""The link to a WebSocket server, against real ones: both eras, and every way to go wrong."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from peers import words_of
from processes.ground import STREAM, Served, failure, gateway, read_events, real, settings, until
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from toolgate.upstreams.links import ws
from toolgate.upstreams.mcp import opening

Json = dict[str, Any]
LEGACY = "2025-06-18"


class Scripted:
    """A server whose answers to `tools/call` the test writes; `silent` are methods that it says nothing to."""

    def __init__(self, on_call: OnCall | None = None, modern: bool = False, silent: tuple[str, ...] = ()) -> None:
        self.port = 0
        self.messages: list[Json] = []
        self.frames: list[str | bytes] = []
        self.connections: list[ServerConnection] = []
        self.on_call = on_call or answer
        self.silent = silent
        self._modern = modern

    @property
    def calls(self) -> list[Json]:
        return [message for message in self.messages if message.get("method") == "tools/call"]

    async def __call__(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        async for frame in connection:
            self.frames.append(frame)
            message: Json = json.loads(frame)
            self.messages.append(message)
            if message.get("method") == "tools/call":
                await self.on_call(connection, message)
            elif "id" in message and "method" in message and message["method"] not in self.silent:
                await connection.send(json.dumps(self._answer(message)))

    def _answer(self, message: Json) -> Json:
        answers: dict[str, Json] = {"tools/list": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}}
        capabilities: Json = {"tools": {}}
        if self._modern:
            answers["server/discover"] = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        else:
            info = {"name": "scripted", "version": "1"}
            told = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            answers["initialize"] = told
        found = answers.get(message["method"])
        if found is None:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
        complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {"jsonrpc": "2.0", "id": message["id"], "result": found | complete}


OnCall = Callable[[ServerConnection, Json], Awaitable[None]]


def result(message: Json, text: str = "ok") -> str:
    body = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": body})


async def answer(connection: ServerConnection, message: Json) -> None:
    await connection.send(result(message))


@asynccontextmanager
async def listening(server: Any, port: int = 0, **more: Any) -> AsyncIterator[Server]:
    async with serve(server, "127.0.0.1", port, subprotocols=["mcp"], **more) as listener:  # type: ignore[list-item]
        server.port = next(iter(listener.sockets)).getsockname()[1]
        yield listener


@asynccontextmanager
async def behind(server: Scripted, **more: Any) -> AsyncIterator[Served]:
    async with listening(server):
        config = {"type": "ws", "url": f"ws://127.0.0.1:{server.port}/mcp", **more}
        async with gateway(settings(one=config)) as served:
            yield served


@pytest.mark.promise("b.links.ws")
@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
@real
async def test_a_server_of_either_era_is_spoken_to_in_text_frames(modern: bool) -> None:
    server = Scripted(modern=modern)
    async with behind(server, headers={"Authorization": "Bearer t"}) as served:
        client = served.client()
        assert await client.tools() == ["one__act"]
        assert await asyncio.gather(*(client.call("one__act", number=number) for number in range(20))) == ["ok"] * 20
        assert served.status("one").revision == ("2026-07-28" if modern else "2025-11-25")
        (connection,) = server.connections
        assert connection.subprotocol == "mcp"
        assert connection.request
        assert connection.request.headers["Authorization"] == "Bearer t"
        assert all(isinstance(frame, str) for frame in server.frames)
        assert len({message["id"] for message in server.messages if "id" in message}) == len(server.frames) - (
            not modern
        )
    assert connection.close_code == 1000


@pytest.mark.promise("b.links.ws")
@real
async def test_a_url_says_by_itself_that_it_is_a_websocket() -> None:
    server = Scripted()
    async with listening(server), gateway(settings(one={"url": f"ws://127.0.0.1:{server.port}"})) as served:
        assert await served.client().call("one__act") == "ok"


@real
async def test_a_server_that_says_nothing_to_what_it_does_not_know_is_found_to_be_legacy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "SILENCE", 0.1)
    server = Scripted(silent=("server/discover",))
    async with behind(server) as served:
        assert await served.client().call("one__act") == "ok"
        assert served.status("one").revision == "2025-11-25"


@real
async def test_questions_and_progress_come_as_frames() -> None:
    async def ask(connection: ServerConnection, message: Json) -> None:
        params = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        await connection.send(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}))

    server = Scripted(ask)
    async with behind(server) as served:
        client = served.client(LEGACY)
        await client.open(elicitation={})
        await client.tools()
        reader, writer = await client.start("tools/call", {"name": "one__act"}, accept=STREAM)
        question = await anext(read_events(reader))
        assert words_of(question["params"]) == "Sure?"
        await client.reply(question["id"], {"action": "accept", "content": {}})
        await until(lambda: any(message.get("id") == 7 for message in server.messages))
        await server.connections[0].send(result(server.calls[0], "sure"))
        assert (await anext(read_events(reader)))["result"]["content"][0]["text"] == "sure"
        writer.close()


@real
async def test_a_call_that_is_cancelled_is_cancelled_at_the_server() -> None:
    async def hold(connection: ServerConnection, message: Json) -> None: ...

    server = Scripted(hold)
    async with behind(server) as served:
        _, writer = await served.client().start("tools/call", {"name": "one__act"})
        await until(lambda: server.calls)
        writer.close()
        await until(lambda: server.messages[-1].get("method") == "notifications/cancelled")
        assert server.messages[-1]["params"]["requestId"] == server.calls[0]["id"]


# What goes wrong.


@pytest.mark.promise("b.links.ws")
@pytest.mark.parametrize("way", ["farewell", "an error code", "cut off"])
@real
async def test_a_connection_that_ends_fails_what_is_under_way_and_is_opened_for_the_next_call(way: str) -> None:
    async def leave(connection: ServerConnection, message: Json) -> None:
        if way == "cut off":
            connection.transport.abort()
        else:
            await connection.close(1000 if way == "farewell" else 1011, "no more tea")

    server = Scripted(leave)
    async with behind(server) as served:
        client = served.client()
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert way == "cut off" or "no more tea" in error.message
        server.on_call = answer
        assert await client.call("one__act") == "ok"
        assert (len(server.connections), len(server.calls)) == (2, 2)


@real
async def test_a_server_that_restarted_between_two_calls_is_connected_to_anew() -> None:
    first, second = Scripted(), Scripted()
    async with listening(first) as listener, gateway(settings(one={"url": f"ws://127.0.0.1:{first.port}"})) as served:
        client = served.client()
        assert await client.call("one__act") == "ok"
        listener.close()
        await listener.wait_closed()
        await until(lambda: served.status("one").state == "failed")
        error = await failure(client.call("one__act"))
        assert error.data["outcome"] == "not_sent"
        async with listening(second, first.port):
            assert await client.call("one__act") == "ok"
            assert len(second.calls) == 1


class Deaf:
    """Takes a connection, and never reads from it again, nor says a word; counts those that it has."""

    def __init__(self) -> None:
        self.port = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = head.lower().partition(b"sec-websocket-key:")[2]
        key = head[len(head) - len(key) :].partition(b"\r\n")[0].strip()
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        writer.write(b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        self.open += 1


@asynccontextmanager
async def deaf() -> AsyncIterator[Deaf]:
    found = Deaf()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await found.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


@pytest.mark.promise("b.links.ws")
@real
async def test_a_peer_that_vanished_is_noticed_by_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ws, "PING", 0.2)
    async with deaf() as server, gateway(settings(one={"url": f"ws://127.0.0.1:{server.port}"})) as served:
        error = await failure(served.client().call("one__act"))
        assert error.data["code"] == "SERVER_FAILED"
        assert "keepalive" in error.message


@real
async def test_a_peer_that_does_not_read_is_not_written_to_without_bound() -> None:
    async def stop_reading(connection: ServerConnection, message: Json) -> None:
        connection.transport.pause_reading()  # type: ignore[attr-defined]

    server = Scripted(stop_reading)
    async with behind(server, timeout="1s") as served:
        client = served.client()
        await client.tools()
        unheard = asyncio.create_task(failure(client.call("one__act")))
        await until(lambda: bool(server.calls))  # and from here on it does not read
        big = "x" * 4 * 1024 * 1024
        errors = await asyncio.gather(unheard, *(failure(client.call("one__act", big=big)) for _ in range(8)))
        assert {error.data["code"] for error in errors} == {"TIMEOUT"}
        assert sum(error.data["outcome"] == "not_sent" for error in errors) > 4, "they waited for room"


@pytest.mark.promise("b.links.ws")
@real
async def test_a_message_beyond_all_measure_ends_the_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ws, "LONGEST_MESSAGE", 10_000)

    async def big(connection: ServerConnection, message: Json) -> None:
        await connection.send(result(message, "x" * 20_000))

    server = Scripted(big)
    async with behind(server) as served:
        client = served.client()
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        server.on_call = answer
        assert await client.call("one__act") == "ok"


@pytest.mark.parametrize("frame", ["", "[]", "null", "{", "\ud7ff", b"\xff\xfe", b"{}"], ids=repr)
@real
async def test_a_frame_that_is_no_message_harms_nobody(frame: str | bytes) -> None:
    async def noisy(connection: ServerConnection, message: Json) -> None:
        await connection.send(frame)
        await connection.send(result(message))

    async with behind(Scripted(noisy)) as served:
        assert await served.client().call("one__act") == "ok"


@real
async def test_an_answer_that_is_no_json_inside_fails_its_call_only() -> None:
    async def broken(connection: ServerConnection, message: Json) -> None:
        await connection.send(result(message, "broken").replace("broken", r"\q"))

    server = Scripted(broken)
    async with behind(server) as served:
        client = served.client()
        error = await failure(client.call("one__act"))
        assert (error.data["code"], error.data["outcome"]) == ("UPSTREAM_ERROR", "executed")
        server.on_call = answer
        assert await client.call("one__act") == "ok" and len(server.connections) == 1


@pytest.mark.parametrize("status", [401, 404, 500, 302])
@real
async def test_a_refused_handshake_is_told_with_its_status(status: int) -> None:
    asked: list[Request] = []

    def refuse(connection: ServerConnection, request: Request) -> Response:
        asked.append(request)
        return Response(status, "No", Headers(Location="/elsewhere"), b"no")

    server = Scripted()
    async with listening(server, process_request=refuse):
        config = {"url": f"ws://127.0.0.1:{server.port}", "headers": {"X-Key": "secret"}}
        async with gateway(settings(one=config)) as served:
            error = await failure(served.client().call("one__act"))
            assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")
            assert f"HTTP {status}" in error.message
            assert ("credentials" in error.data.get("hint", "")) == (status == 401)
            assert {request.path for request in asked} == {"/"}


@real
async def test_what_is_no_websocket_or_is_not_there_is_named() -> None:
    async def no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example.com ESMTP ready\r\n")
        writer.close()

    server = await asyncio.start_server(no_http, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with gateway(settings(one={"url": url})) as served:
        for _ in range(2):
            error = await failure(served.client().call("one__act"))
            assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")
            assert url in error.message
            server.close()
            await server.wait_closed()


def test_websockets_is_imported_with_the_first_such_link_only() -> None:
    code = "import sys, toolgate.app; print('websockets' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


class Pinging:
    """A server that answers until it is called: then it sends pings without end, and reads nothing any more."""

    def __init__(self) -> None:
        self.port = 0
        self.calls = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(each for each in head.split(b"\r\n") if each.lower().startswith(b"sec-websocket-key")).split()[1]
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        writer.write(b"Sec-WebSocket-Protocol: mcp\r\n")
        writer.write(b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n")
        answers = Scripted()
        while message := await self._message(reader):
            if message.get("method") == "tools/call":
                break
            if "id" in message:
                self._say(writer, json.dumps(answers._answer(message)).encode())
        self.calls += 1
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while True:
            writer.write((b"\x89\x7d" + b"x" * 125) * 500)
            await writer.drain()

    async def _message(self, reader: asyncio.StreamReader) -> Json:
        while True:
            kind, size = await reader.readexactly(2)
            size &= 127
            size = int.from_bytes(await reader.readexactly(2)) if size == 126 else size
            mask = await reader.readexactly(4)
            data = bytes(each ^ mask[at % 4] for at, each in enumerate(await reader.readexactly(size)))
            if kind & 15 == 1:
                return json.loads(data)

    def _say(self, writer: asyncio.StreamWriter, said: bytes) -> None:
        size = bytes([len(said)]) if len(said) < 126 else b"\x7e" + len(said).to_bytes(2)
        writer.write(b"\x81" + size + said)


@asynccontextmanager
async def pinging() -> AsyncIterator[Pinging]:
    found = Pinging()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        serving.add(task)
        try:
            await found.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


@real
async def test_a_server_that_pings_and_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ws, "PING", 0.3)
    async with pinging() as server, gateway(settings(one={"url": f"ws://127.0.0.1:{server.port}"})) as served:
        for _ in range(2):  # the next call has a connection of its own
            error = await failure(served.client().call("one__act"))
            assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "sent_unknown")
        assert server.calls == 2


@real
async def test_nor_does_it_keep_a_gateway_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ws, "PATIENCE", 0.2)
    async with pinging() as server:
        there = {"url": f"ws://127.0.0.1:{server.port}", "timeout": "1s"}
        async with gateway(settings(one=there)) as served:
            assert (await failure(served.client().call("one__act"))).data["code"] == "TIMEOUT"
            again = asyncio.create_task(failure(served.client().call("one__act")))  # which waits for room
            await until(lambda: server.calls)
        with contextlib.suppress(ConnectionResetError):  # where its connection was closed before the answer was read
            await again


@pytest.mark.parametrize("scheme", ["ws", "wss"])
@real
async def test_a_server_that_says_nothing_when_it_is_opened_has_its_start_timeout(scheme: str) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        async with gateway(settings(one={"type": "ws", "url": url, "start_timeout": 0.1})) as served:
            async with asyncio.timeout(ws.CONNECT_TIMEOUT / 2):
                error = await failure(served.client().call("one__act"))
            assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")
    finally:
        server.close()
        for writer in writers:
            writer.close()
