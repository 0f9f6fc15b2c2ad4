"""A server of the handshake era over HTTP, made with the official SDK: `sdk.py http|sse [PORT]`.

It writes its port on its first line. What is newer than the handshake it refuses, as servers did before it.
"""

from __future__ import annotations

import itertools
import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from pydantic import BaseModel

server = MCPServer("sdk", version="1")
heard = anyio.Event()


class Sure(BaseModel):
    sure: bool


@server.tool(structured_output=False)
async def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool(structured_output=False)
async def poll(times: int, ctx: Context) -> str:
    """Cuts its own stream off, again and again, before it answers; not before `go`, since the SDK may cut it before
    the first event id is out, and then nobody can take it up."""
    await ctx.report_progress(0.5, times)
    await heard.wait()
    for time in range(times):
        before = store.streams
        await ctx.close_sse_stream()
        while store.streams == before:  # the SDK loses what is said while a stream is taken up
            await anyio.sleep(0.01)
        await anyio.sleep(0.1)
        await ctx.report_progress(time + 1, times)
    return f"polled {times} times"


@server.tool(structured_output=False)
async def go() -> str:
    heard.set()
    return "it goes"


@server.tool(structured_output=False)
async def change(ctx: Context) -> str:
    """Another tool is there, which is told on the server's own stream."""
    server.add_tool(added, "added", structured_output=False)
    await ctx.session.send_tool_list_changed()
    return "changed"


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Sure?", Sure)
    return answer.action


async def added() -> str:
    return "I am new"


class Store(EventStore):
    """Every event, for ever."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []
        self.streams = 0  # how often one was begun or taken up

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.streams += message is None
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream, _ = self._events[int(last_event_id) - 1]
        for number, (other, message) in itertools.islice(enumerate(self._events, 1), int(last_event_id), None):
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


store = Store()


def without_discovery(app: Any) -> Any:
    async def older(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (b"mcp-protocol-version", b"2026-07-28") in scope["headers"]:
            await send({"type": "http.response.start", "status": 400, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return older


def main(transport: str, port: str = "0") -> None:
    door = socket.create_server(("127.0.0.1", int(port)))
    print(door.getsockname()[1], flush=True)
    app = server.sse_app() if transport == "sse" else server.streamable_http_app(event_store=store, retry_interval=20)
    uvicorn.Server(uvicorn.Config(without_discovery(app), log_level="warning")).run(sockets=[door])


if __name__ == "__main__":
    main(*sys.argv[1:])
