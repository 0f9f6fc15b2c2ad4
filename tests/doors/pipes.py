"""Connections that go both ways, in memory: a WebSocket and the transport of 2024-11-05, as a door's clients have them.

A `Wire` carries the messages of the scripted clients of `peers` over one of them; `arrived(rig, door)` makes such a
client at any door.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from asgi import App, HttpRequest
from peers import LATEST, LegacyClient, ModernClient, Rig, _Lines
from virtualtime import settle, soon

Json = dict[str, Any]
Heard = Callable[[bytes], None]
DOORS = ("http", "stdio", "websocket", "sse")


class WebSocket:
    """One WebSocket to an ASGI application. `on_message` gets each text frame."""

    def __init__(
        self,
        app: App,
        path: str = "/mcp",
        headers: Iterable[tuple[str, str]] = (),
        on_message: Heard = lambda _data: None,
        subprotocols: Iterable[str] = ("mcp",),
        knows_denials: bool = True,
    ) -> None:
        self.accepted = False
        self.subprotocol: str | None = None
        self.status: int | None = None
        self.denial = b""
        self.headers: dict[str, str] = {}
        self.stops_reading = False
        self.code: int | None = None
        self._on_message = on_message
        self._incoming: asyncio.Queue[Json] = asyncio.Queue()
        self._incoming.put_nowait({"type": "websocket.connect"})
        usual = {"host": "localhost", "content-type": "application/json"}
        scope = {
            "type": "websocket",
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in {**usual, **dict(headers)}.items()],
            "client": ("192.0.2.1", 50000),
            "subprotocols": list(subprotocols),
            "extensions": {"websocket.http.response": {}} if knows_denials else {},
        }
        self.task = asyncio.get_running_loop().create_task(app(scope, self._incoming.get, self._send))  # type: ignore[arg-type]

    def say(self, data: str | bytes | Json) -> None:
        text = json.dumps(data) if isinstance(data, dict) else data.decode() if isinstance(data, bytes) else data
        self._incoming.put_nowait({"type": "websocket.receive", "text": text})

    def say_bytes(self, data: bytes) -> None:
        self._incoming.put_nowait({"type": "websocket.receive", "bytes": data})

    async def leave(self) -> None:
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await soon(self.task)

    async def ended(self) -> WebSocket:
        await soon(asyncio.shield(self.task))
        return self

    async def _send(self, part: dict[str, Any]) -> None:
        assert self.code is None, "nothing is sent after the end"
        while self.stops_reading:
            await asyncio.sleep(1)
        if part["type"] == "websocket.accept":
            assert not self.accepted
            self.accepted, self.subprotocol = True, part["subprotocol"]
        elif part["type"] == "websocket.send":
            assert self.accepted
            self._on_message(part["text"].encode())
        elif part["type"] == "websocket.http.response.start":
            self.status = part["status"]
            self.headers = {name.decode(): value.decode() for name, value in part["headers"]}
        elif part["type"] == "websocket.http.response.body":
            self.denial += part["body"]
        else:
            assert part["type"] == "websocket.close"
            self.code = part["code"]


class SseClient:
    """The stream of 2024-11-05, and what is posted to the place that it names."""

    def __init__(self, app: App, path: str, headers: Iterable[tuple[str, str]], on_message: Heard) -> None:
        self.app = app
        self.headers = list(headers)
        self.path = ""
        self.query = b""
        self._unsaid: list[bytes] = []
        self._posts: list[HttpRequest] = []
        self._on_message = on_message
        self.stream = HttpRequest(app, "GET", path, self.headers, b"", self._heard)

    def say(self, message: Json | bytes) -> None:
        self._unsaid.append(message if isinstance(message, bytes) else json.dumps(message).encode())
        if self.path:
            self._say_all()

    def post(self, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> HttpRequest:
        return HttpRequest(self.app, "POST", self.path, [*self.headers, *headers], body, query=self.query)

    async def leave(self) -> None:
        self.stream.leave()
        await soon(self.stream.task)
        for post in self._posts:
            await soon(post.task)
            assert post.status == 202, f"{post.status}: {post.body!r}"

    def _heard(self, data: bytes) -> None:
        if self.path:
            self._on_message(data)
            return
        path, _, query = data.partition(b"?")
        self.path, self.query = path.decode(), query
        self._say_all()

    def _say_all(self) -> None:
        while self._unsaid:
            self._posts.append(self.post(self._unsaid.pop(0)))


class Wire(_Lines):
    """As on stdio nobody can tell which request a notification belongs to."""

    def __init__(self, rig: Rig, principal: str, path: str, door: str) -> None:
        super(_Lines, self).__init__(rig, principal, path)
        self._pending = {}
        self._heard = lambda _data, _pending: None
        headers = [("x-test-principal", principal)]
        self.pipe: WebSocket | SseClient
        if door == "websocket":
            self.pipe = WebSocket(rig.app.http, path, headers, self._written_whole)
        else:
            self.pipe = SseClient(rig.app.http, path + "/sse", headers, self._written_whole)

    def say(self, message: bytes) -> None:
        self.pipe.say(message)

    async def close(self) -> None:
        await self.pipe.leave()

    def _written_whole(self, data: bytes) -> None:
        self._written(data + b"\n")


async def legacy_at(
    rig: Rig, door: str, revision: str = LATEST, principal: str = "ann", path: str = "/mcp", **more: Any
) -> LegacyClient:
    if door in ("http", "stdio"):
        return await rig.legacy(revision, principal, path=path, stdio=door == "stdio", **more)
    client = LegacyClient(Wire(rig, principal, path, door), revision, **more)
    rig._clients.append(client)
    await client.initialize()
    await settle()
    return client


def modern_at(rig: Rig, door: str, principal: str = "ann", path: str = "/mcp", **more: Any) -> ModernClient:
    if door in ("http", "stdio"):
        return rig.modern(principal, path=path, stdio=door == "stdio", **more)
    client = ModernClient(Wire(rig, principal, path, door), **more)
    rig._clients.append(client)
    return client
