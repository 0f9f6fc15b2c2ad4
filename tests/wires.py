"""A connection to the gateway's HTTP server, in memory: what a client writes on it, torn as it likes, and reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import uvicorn
from inmemory import META, MODERN, Response
from uvicorn.server import ServerState
from virtualtime import settle, soon

from toolgate.app import App
from toolgate.frontends import server

LEGACY = "2025-11-25"


class Wire(asyncio.Transport):
    """`address` is where its client is."""

    def __init__(self, app: App, address: str = "127.0.0.1") -> None:
        super().__init__()
        self.address = address
        self.is_over = False
        self.is_paused = False
        self._read = bytearray()
        self._has_read = asyncio.Event()
        config = uvicorn.Config(
            app.http, lifespan="off", ws="none", log_config=None, timeout_keep_alive=server.KEEP_ALIVE
        )
        config.load()
        given: dict[str, Any] = {"config": config, "server_state": ServerState(), "app_state": {}}
        self.protocol = server.HttpProtocol(app.http, **given)
        self.protocol.connection_made(self)

    # What the client does.

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.protocol.data_received(piece)

    async def ask(self, *pieces: bytes) -> Response:
        self.send(*pieces)
        return await self.answer()

    async def answer(self) -> Response:
        """The next response, whole."""
        return await soon(self._whole())

    async def leave(self) -> None:
        self.protocol.connection_lost(None)
        await settle()

    async def _whole(self) -> Response:
        """Without what says only that it listens."""
        while not (found := _response(bytes(self._read).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"))):
            self._has_read.clear()
            await self._has_read.wait()
        response, size = found
        del self._read[: self._read.index(b"HTTP/1.1 %d " % response.status) + size]
        return response

    @property
    def unread(self) -> bytes:
        return bytes(self._read)

    # What the server does.

    def write(self, data: Any) -> None:
        assert not self.is_over
        self._read += data
        self._has_read.set()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self.address, 5), "sockname": ("127.0.0.1", 8765)}.get(name, default)

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0


def _response(data: bytes) -> tuple[Response, int] | None:
    """What begins these bytes, and how long it is, once it is whole."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if "content-length" in headers:
        size = int(headers["content-length"])
        whole = body[:size] if len(body) >= size else None
    else:
        whole, size = _unchunked(body)
    if whole is None:
        return None
    return Response(int(first.split()[1]), headers, whole), len(head) + len(end) + size


def _unchunked(data: bytes) -> tuple[bytes | None, int]:
    body, at = b"", 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end], 16)
        body, at = body + data[end + 2 : end + 2 + size], end + 4 + size
        if not size:
            return body, at
    return None, 0


def post(message: Any, *lines: str, path: str = "/mcp", first: str = "") -> bytes:
    """A request of a client that keeps its connection. `lines` are its headers beside the usual ones."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    told = [
        first or f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        *lines,
    ]
    return "\r\n".join(told).encode("latin-1") + b"\r\n\r\n" + body


def legacy(id: Any, method: str, params: Mapping[str, Any] | None = None, *lines: str, session: str = "") -> bytes:
    own = [f"MCP-Protocol-Version: {LEGACY}", f"Mcp-Session-Id: {session}"] if session else []
    return post({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}, *own, *lines)


_TOLD = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}}
HELLO = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _TOLD}


def hello(*lines: str) -> bytes:
    return post(HELLO, *lines)


def modern(id: Any, method: str, params: Mapping[str, Any] | None = None, *lines: str) -> bytes:
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    own = [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {method}"]
    own += [f"Mcp-Name: {params['name']}"] if params and "name" in params else []
    return post(
        {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta, **(params or {})}}, *own, *lines
    )
