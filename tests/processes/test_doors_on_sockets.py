"""The doors on real sockets, with clients of other makers: the SDK's over HTTP and SSE, and a WebSocket library's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets
from inmemory import Scripted, said, tools
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from processes.ground import LEGACY, MODERN, PREFIX, Json, Served, gateway, real, shut, toolgate, until
from processes.ground import child as scripted_child
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from wires import modern

from toolgate.config import Config, Server
from toolgate.core.inflow import Intake
from toolgate.frontends.connections import Connection
from toolgate.frontends.duplex import Conversation
from toolgate.frontends.session import Session
from toolgate.frontends.subscriber import Subscriber
from toolgate.upstreams.links import MakeLink
from toolgate.upstreams.links.memory import MemoryLink

GREETER = Config((Server(id="greeter", name="greeter", type="registry"),))
CHANGED = "notifications/tools/list_changed"
MCP = websockets.Subprotocol("mcp")
HELLO: Json = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


@asynccontextmanager
async def scripted(script: Scripted) -> AsyncIterator[Served]:
    """A gateway on a socket, in front of a server of a script."""

    async def make(server: Server, receiver: Any, _ground: Any) -> MemoryLink:
        return MemoryLink(server.name, script, receiver)

    link: MakeLink = make
    config = Config((Server(id="docs", name="docs", type="stdio", command="memory"),))
    async with gateway(config, links={"docs": link}) as served:
        yield served


@asynccontextmanager
async def connected(served: Served, path: str = "/mcp", **more: Any) -> AsyncIterator[Any]:
    url = f"ws://127.0.0.1:{served.port}{path}"
    async with websockets.connect(url, subprotocols=[MCP], **more) as socket:
        yield socket


async def ask(socket: Any, id: int, method: str, **params: Any) -> Json:
    await socket.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    return json.loads(await socket.recv())


def calls(script: Scripted) -> int:
    return len([asked for asked in script.requests if asked["method"] == "tools/call"])


# WebSocket.


@real
async def test_a_websocket_client_of_either_era_lists_and_calls() -> None:
    envelope = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
    async with gateway(GREETER) as served, connected(served) as socket:
        assert socket.subprotocol == "mcp"
        assert (await ask(socket, 1, "initialize", **HELLO))["result"]["protocolVersion"] == LEGACY
        greet = {"name": "greeter__greet", "arguments": {"name": "Ada"}}
        assert (await ask(socket, 2, "tools/call", **greet))["result"] == said("Hello, Ada!")
        modern = (await ask(socket, 3, "tools/call", _meta=envelope, **greet))["result"]
        assert modern["resultType"] == "complete"
        assert len((await ask(socket, 4, "tools/list"))["result"]["tools"]) == 2


@real
async def test_a_websocket_carries_large_messages_and_refuses_those_over_the_limit() -> None:
    async with gateway(GREETER) as served:
        async with connected(served, max_size=None, user_agent_header="ours") as socket:
            name = "x" * 8_000_000
            answer = await ask(socket, 1, "tools/call", name="greeter__greet", arguments={"name": name})
            assert answer["result"] == said(f"Hello, {name}!")
            with pytest.raises(websockets.ConnectionClosed):
                await socket.send("x" * (served.app.http.body_limit + 1))
                await socket.recv()
        async with connected(served) as socket:
            assert (await ask(socket, 1, "ping"))["result"] == {}


@pytest.mark.parametrize("frames", [[b"\xff"], [b'{"jsonrpc":', b'"\xc3', b'"}'], [b"\xed\xa0\x80"]])
@real
async def test_text_that_is_none_closes_a_websocket_and_is_no_error_of_the_log(
    frames: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolgate.frontends.frames")
    async with gateway(GREETER) as served:
        for _ in range(30):
            async with connected(served) as socket:
                await socket.send(frames if len(frames) > 1 else frames[0], text=True)
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd and closed.value.rcvd.code == 1007
        async with connected(served) as socket:
            await socket.send(['{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"é', 'é"}}'])
            assert json.loads(await socket.recv())["result"] == {}
    told = [each.getMessage() for each in caplog.records if "UTF-8" in each.getMessage()]
    assert 0 < len(told) <= 20 and all(each.startswith("127.0.0.1 ") for each in told)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@real
async def test_an_operator_reads_who_has_sent_text_that_is_none() -> None:
    async with toolgate("serve", "--port", "0", config={}) as it:
        port = (await it.until_it_serves()).port
        async with websockets.connect(f"ws://127.0.0.1:{port}/mcp", subprotocols=[MCP]) as socket:
            await socket.send(b"\xff", text=True)
            with pytest.raises(websockets.ConnectionClosed):
                await socket.recv()
        await it.until_it_says(b" 127.0.0.1 sent text that is not UTF-8")
        assert b"Traceback" not in it.errors


@real
async def test_who_is_not_let_in_gets_a_status() -> None:
    async with gateway(GREETER) as served:
        refusals = ("/mcp", "https://evil.example", 403), ("/mcp", "http://localhost:3000", 403), ("/nope", None, 404)
        for path, origin, status in refusals:
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with connected(served, path, origin=origin):
                    pass
            assert refused.value.response.status_code == status


@real
async def test_connections_that_vanish_leave_nothing() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with scripted(script) as served:
        async with connected(served) as socket:
            await ask(socket, 1, "tools/list")
        await until(lambda: not served.app.http._pipes._open)
        tasks = len(asyncio.all_tasks())
        for number in range(20):
            async with connected(served) as socket:
                call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "docs__t"}}
                await socket.send(json.dumps(call))
                await until(lambda: calls(script) > number)
                socket.transport.abort()
        await until(lambda: len(asyncio.all_tasks()) <= tasks and not served.app.http._pipes._open)


@real
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_connection_that_has_ended_leaves_nothing_for_the_collector_of_garbage(
    is_whole: bool, is_kept: bool
) -> None:
    """A thousand of them at once would have it hold up everybody else. The head of a second request on one that is kept
    is known."""
    text = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n"
    head = head % len(text) + (b"\r\n" if is_kept else b"Connection: close\r\n\r\n")
    parts = [head + text] if is_whole else [head, text]

    async def asks(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2 if is_kept else 1):
            for part in parts:
                writer.write(part)
                await writer.drain()
            assert b"HTTP/1.1 " in await (reader.readuntil(b"\r\n\r\n{") if is_kept else reader.read())
            if is_kept:
                await reader.readuntil(b"}")
        writer.close()
        await writer.wait_closed()

    async with gateway(GREETER) as served:
        await leaves_no_garbage(served, lambda: asks(served.port))


async def leaves_no_garbage(served: Served, visit: Callable[[], Awaitable[None]]) -> None:
    kinds = (Intake, Connection, FlowControl, RequestResponseCycle, Session, Subscriber, Conversation)
    await visit()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await asyncio.gather(*(visit() for _ in range(10)))
        await until(lambda: not served.app.http.connections.count)
        await until(lambda: not served.app.http._pipes._open)
        for _ in range(10):
            await asyncio.sleep(0)
        gc.collect()
        assert not [each for each in gc.garbage if isinstance(each, kinds)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


_META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
_LISTENS = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": _META},
    }
)
STREAMS = {
    "sse": "GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n",
    "listen": "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\n"
    f"Mcp-Method: subscriptions/listen\r\nContent-Length: {len(_LISTENS)}\r\n\r\n{_LISTENS}",
    "websocket": "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
}


@real
@pytest.mark.parametrize("kind", STREAMS)
async def test_nor_does_a_stream_that_has_ended(kind: str) -> None:
    async def listens() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(STREAMS[kind].encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith((b"HTTP/1.1 200", b"HTTP/1.1 101"))
        writer.transport.abort()

    async with gateway(GREETER) as served:
        await leaves_no_garbage(served, listens)


@real
async def test_a_gateway_that_ends_closes_its_websockets() -> None:
    async with toolgate("serve", "--port", "0", config={"one": scripted_child("counting")}) as process:
        client = await process.until_it_serves()
        url = f"ws://127.0.0.1:{client.port}/mcp"
        async with websockets.connect(url) as socket:
            assert (await ask(socket, 1, "ping"))["result"] == {}
            process.process.terminate()
            with pytest.raises(websockets.ConnectionClosed):
                await socket.recv()
            assert socket.close_code in (1001, 1012)
        assert await process.ended() == 0


def test_a_server_that_nobody_speaks_websocket_with_does_not_load_it() -> None:
    code = (
        "import asyncio, sys\n"
        "from toolgate.app import running\n"
        "from toolgate.config import Config\n"
        "from toolgate.frontends.server import bind, serving\n"
        "async def main():\n"
        "    async with running(Config(), environ={}) as app, serving(app.http, bind('127.0.0.1', 0)):\n"
        "        print(sorted(name for name in sys.modules if name in ('websockets', 'wsproto')))\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# HTTP with SSE.


@pytest.mark.promise("spec.legacy.http.sse")
@pytest.mark.parametrize("path", ["/sse", "/mcp/sse", "/mcp/servers/greeter/sse"])
@real
async def test_the_sdks_client_of_the_older_transport_lists_and_calls(path: str) -> None:
    async with gateway(GREETER) as served:
        async with sse_client(f"http://127.0.0.1:{served.port}{path}") as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = [tool.name for tool in (await session.list_tools()).tools]
            assert len(listed) == 2
            greet = next(name for name in listed if name.endswith("greet"))
            result: Any = await session.call_tool(greet, {"name": "Ada"})
            assert result.content[0].text == "Hello, Ada!"
        await until(lambda: not served.app.http._pipes._open)


# Connections that break.


class Breaking:
    """Passes bytes to a port and back, until they are broken."""

    def __init__(self) -> None:
        self.port = 0
        self.taken = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def break_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def took(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.taken += 1
        there, back = await asyncio.open_connection("127.0.0.1", port)
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.ensure_future(self._pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        await shut(sink)


@asynccontextmanager
async def breaking(port: int) -> AsyncIterator[Breaking]:
    """A port in front of another, whose connections can be broken."""
    found = Breaking()
    server = await asyncio.start_server(lambda reader, writer: found.took(reader, writer, port), "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        found.break_all()
        await until(lambda: not found._tasks)


@pytest.mark.promise("spec.legacy.http.resumption")
@real
async def test_the_sdks_client_gets_the_answer_of_a_call_whose_connection_broke() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    reached: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reached.append(progress)

    def progress(progress: float) -> None:
        token = script.requests[-1]["params"]["_meta"]["progressToken"]
        script.tell("notifications/progress", progressToken=token, progress=progress)

    async with scripted(script) as served, breaking(served.port) as between:
        url = f"http://127.0.0.1:{between.port}/mcp"
        async with streamable_http_client(url) as streams, ClientSession(*streams) as session:
            await session.initialize()
            await session.list_tools()
            calling = asyncio.ensure_future(session.call_tool("docs__t", {}, progress_callback=on_progress))
            await until(lambda: calls(script))
            progress(1)
            await until(lambda: reached == [1])
            between.break_all()
            progress(2)
            taken = between.taken
            await until(lambda: between.taken > taken)
            progress(3)
            script.answer_last(said("whole"))
            result: Any = await calling
            assert result.content[0].text == "whole"
            assert reached == [1, 2, 3]
            assert calls(script) == 1


@pytest.mark.promise("spec.legacy.http.resumption")
@real
async def test_the_sdks_own_stream_goes_on_after_a_break() -> None:
    script = Scripted(tools_list=tools("t"))
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        heard.append(getattr(message, "method", "") or getattr(getattr(message, "root", None), "method", ""))

    async with scripted(script) as served, breaking(served.port) as between:
        url = f"http://127.0.0.1:{between.port}/mcp"
        async with (
            streamable_http_client(url) as streams,
            ClientSession(*streams, message_handler=on_message) as session,
        ):
            await session.initialize()
            await session.list_tools()
            script.change(tools("u"))
            await until(lambda: heard == [CHANGED])
            between.break_all()
            script.change(tools("v"))
            await until(lambda: heard == [CHANGED] * 2)


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("head_is_known", [False, True])
@real
async def test_a_client_that_closes_its_writing_side_is_taken_for_one_that_has_left(
    head_is_known: bool, behind: int
) -> None:
    """Also where more requests wait behind the one that is under way."""
    script = Scripted(tools_list=tools("slow"), tools_call=said("early"))

    def call(id: int) -> bytes:
        return modern(id, "tools/call", {"name": "docs__slow", "arguments": {}})

    async with scripted(script) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for id in range(3 if head_is_known else 0):
            writer.write(call(id))
            await reader.readuntil(b"early")
            await reader.readuntil(b"}")
        before, script.answers["tools/call"] = calls(script), ...
        writer.write(call(9))
        await until(lambda: calls(script) > before)
        for id in range(behind):
            writer.write(call(10 + id))
        writer.write_eof()
        await until(lambda: script.requests[-1]["method"] == "notifications/cancelled")
        assert b"HTTP/1.1" not in await reader.read()
        assert not served.app.http.under_way()
        await shut(writer)
