"""A scripted HTTP server over a raw socket: what it answers to a call is written byte by byte by the test.

All but calls it answers properly, as a server of the handshake era or of the modern one. What it was sent stands in
`requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Json = dict[str, Any]


class Request:
    """One request, and the connection that it came on."""

    lines: Sequence[str] = ()  # its headers as they came

    def __init__(self, connection: Connection, line: str, headers: dict[str, str], body: bytes) -> None:
        self.connection = connection
        self.verb, self.path, *_ = line.split()
        self.headers = headers
        self.body = body
        self.message: Json = json.loads(body) if body.startswith(b"{") else {}

    @property
    def method(self) -> str:
        return self.message.get("method", self.verb)

    @property
    def id(self) -> int:
        return self.message["id"]

    def write(self, data: bytes) -> None:
        """To a connection that is closed already: nothing."""
        if not self.connection.writer.is_closing():
            self.connection.writer.write(data)

    def answer(self, text: str = "ok") -> bytes:
        """The result of a call, as JSON."""
        return self.result(content=[{"type": "text", "text": text}])

    def result(self, **members: Any) -> bytes:
        result = {"resultType": "complete"} | members
        return json.dumps({"jsonrpc": "2.0", "id": self.id, "result": result}).encode()

    def open_stream(self) -> None:
        self.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    def event(self, data: bytes = b"", *fields: str) -> None:
        """One event; `fields` such as "id: 1"."""
        event = "".join(f"{field}\n" for field in fields).encode() + b"data: " + data + b"\n\n"
        self.write(b"%x\r\n%b\r\n" % (len(event), event))

    def end_stream(self) -> None:
        self.write(b"0\r\n\r\n")

    def whole(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        """An answer as most servers give it."""
        lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
        self.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


class Connection:
    def __init__(self, number: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.writer = writer
        self.is_closed = False

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


Script = TypeVar("Script", bound="ScriptedServer")
OnCall = Callable[[Request], Awaitable[None]]


class ScriptedServer:
    """`on_call` writes the answer to `tools/call`, `on_get` that to a GET, which is refused without. With `session`, it
    gives out ids and knows only the newest. It speaks `version`, and refuses others where it `is_strict`."""

    version = "2025-11-25"
    is_strict = False

    def __init__(
        self, on_call: OnCall, session: bool = False, modern: bool = False, on_get: OnCall | None = None
    ) -> None:
        self.port = 0
        self.requests: list[Request] = []
        self.connections: list[Connection] = []
        self.tools = ["act"]
        self.session = "" if session else None
        self._on_call = on_call
        self._on_get = on_get
        self._modern = modern
        self._sessions = 0
        self._vanished: set[Connection] = set()

    @property
    def calls(self) -> list[Request]:
        return [request for request in self.requests if request.method == "tools/call"]

    @property
    def gets(self) -> list[Request]:
        return [request for request in self.requests if request.verb == "GET"]

    def listed(self) -> list[Json]:
        return [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]

    @property
    def open_connections(self) -> int:
        return sum(not connection.is_closed for connection in self.connections)

    def forget_the_session(self) -> None:
        self.session = "forgotten"

    async def start(self, port: int = 0) -> None:
        self._listener = await asyncio.start_server(self.serve, "127.0.0.1", port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._listener.close()
        for connection in self.connections:
            connection.writer.transport.abort()
        await self._listener.wait_closed()

    def vanish(self) -> None:
        """As after a power cut: nothing comes any more over the connections that there are, not even their end."""
        self._vanished |= set(self.connections)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(len(self.connections), writer)
        self.connections.append(connection)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while line := (await reader.readline()).decode("latin-1"):
                headers: dict[str, str] = {}
                lines: list[str] = []
                while header := (await reader.readline()).decode("latin-1").strip():
                    lines.append(header)
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(connection, line, headers, body)
                request.lines = lines
                self.requests.append(request)
                if connection not in self._vanished:
                    await self._respond(request)
        connection.is_closed = True
        writer.close()

    async def _respond(self, request: Request) -> None:
        method = request.method
        if method == "server/discover" and self._modern:
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            request.whole(request.result(**found, ttlMs=0, cacheScope="private"))
        elif method == "server/discover":  # with an id of no session, as the Python SDK up to 1.30 refuses it
            named = [] if self.session is None else ["Mcp-Session-Id: of-a-refusal"]
            request.whole(b"Bad Request: no such method here", "400 Bad Request", *named)
        elif method == "initialize" and "mcp-session-id" in request.headers:
            request.whole(b"Session not found", "404 Not Found")
        elif method == "initialize":
            self._initialize(request)
        elif self.session is not None and request.headers.get("mcp-session-id") != self.session:
            request.whole(b"Session not found", "404 Not Found")
        elif request.verb == "GET" and self._on_get:
            await self._on_get(request)
        elif request.verb == "GET":
            request.whole(b"Method Not Allowed", "405 Method Not Allowed")
        elif method == "tools/list":
            request.whole(request.result(tools=self.listed()))
        elif method == "tools/call":
            await self._on_call(request)
        else:  # a notification, or the end of a session
            request.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    def _initialize(self, request: Request) -> None:
        if self.is_strict and request.message["params"]["protocolVersion"] != self.version:
            request.whole(b"Unsupported protocol version", "400 Bad Request", "Mcp-Session-Id: of-a-refusal")
            return
        headers: list[str] = []
        if self.session is not None:
            self._sessions += 1
            self.session = f"session-{self._sessions}"
            headers = [f"Mcp-Session-Id: {self.session}"]
        info = {"name": "scripted", "version": "1"}
        body = request.result(protocolVersion=self.version, capabilities={"tools": {}}, serverInfo=info)
        request.whole(body, "200 OK", *headers)


@asynccontextmanager
async def scripted(
    on_call: OnCall, session: bool = False, modern: bool = False, on_get: OnCall | None = None
) -> AsyncIterator[ScriptedServer]:
    async with serving(ScriptedServer(on_call, session, modern, on_get)) as script:
        yield script


@asynccontextmanager
async def serving(script: Script, port: int = 0) -> AsyncIterator[Script]:
    await script.start(port)
    try:
        yield script
    finally:
        await script.stop()
