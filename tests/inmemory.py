"""The whole gateway in memory: a client of its HTTP door, servers that follow a script, and a clock that is told.

A test opens `gateway(...)` and talks to it through a `Visitor`; nothing listens, nothing is started, nobody waits.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolgate.app import App, running
from toolgate.config import Config, Server
from toolgate.frontends.http import HttpDoor
from toolgate.model import Fault
from toolgate.upstreams.links import Ground, MakeLink
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.memory import MemoryLink

Json = dict[str, Any]

LATEST, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
BOUND = 30.0  # seconds, after which a test that waits for something is a failure
GREETER = Server(id="greeter", name="greeter", type="registry")


def conversation(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(BOUND):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def settled() -> None:
    """Let everything happen that can happen without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)


class ToldClock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return 1_700_000_000.0 + self._now

    def call_later(self, seconds: float, then: Callable[[], object]) -> _Timer:
        timer = _Timer(then)
        heapq.heappush(self._timers, (self._now + seconds, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self.call_later(seconds, over.set)
        await over.wait()

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        timeout = _Timeout(None)
        if seconds is not None:
            self.call_later(seconds, timeout.expire)
        return timeout

    async def go_on(self, seconds: float) -> None:
        """Let time pass, and everything happen that happens meanwhile."""
        await settled()
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            timer.then()
            await settled()
        self._now = end
        await settled()


class _Timer:
    def __init__(self, then: Callable[[], object]) -> None:
        self.then = then

    def cancel(self) -> None:
        self.then = lambda: None


class _Timeout(asyncio.Timeout):
    def expire(self) -> None:
        try:
            self.reschedule(0)
        except RuntimeError:
            pass  # its block was left


class Refusal(Exception):
    """A server of a script refuses a request."""

    def __init__(self, code: int, message: str = "", data: Any = None) -> None:
        self.error = {"code": code, "message": message} | ({"data": data} if data is not None else {})


class Scripted:
    """A server in memory, of the handshake era where `revision` is of it.

    `answers` says what it answers by method: a result, the bytes of one, an error to raise, a function of the
    parameters, or `...` for silence. What it does not know is refused with -32601. `requests` is what it was asked.
    """

    def __init__(self, revision: str = LATEST, **answers: Any) -> None:
        self.revision = revision
        self.answers = {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.requests: list[Json] = []
        self.answers |= self._opening()

    def _opening(self) -> Json:
        capabilities = {"tools": {}, "resources": {}, "prompts": {}}
        info = {"name": "scripted", "version": "1"}
        if self.revision == MODERN:
            found = {"supportedVersions": [MODERN], "capabilities": capabilities, "_meta": {META + "serverInfo": info}}
            return {"server/discover": found | {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}}
        return {"initialize": {"protocolVersion": self.revision, "capabilities": capabilities, "serverInfo": info}}

    def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
        self.say = say
        self.hang_up = hang_up

    def disconnected(self) -> None: ...

    def tell(self, method: str, **params: Any) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def received(self, message: bytes) -> None:
        asked: Json = json.loads(message)
        self.requests.append(asked)
        if "id" not in asked or "method" not in asked:
            return
        answer = self.answers.get(asked["method"], Refusal(-32601, "Method not found"))
        try:
            answer = answer(asked["params"]) if callable(answer) else answer
        except Refusal as refusal:
            answer = refusal
        if answer is ...:
            return
        head = b'{"jsonrpc":"2.0","id":%d,' % asked["id"]
        if isinstance(answer, Refusal):
            self.say(head + b'"error":' + json.dumps(answer.error).encode() + b"}")
        else:
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.say(head + b'"result":' + body + b"}")


def tools(*names: str, **more: Any) -> Json:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}, **more} for name in names]}


def said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


Script = Scripted | Fault


@asynccontextmanager
async def gateway(*servers: Server, config: Config | None = None, **more: Any) -> AsyncGenerator[App]:
    """A running gateway: in front of the greeter where nothing else is said, and of scripted servers by `scripts=`."""
    scripts: Mapping[str, Script] = more.pop("scripts", {})
    links = {name: _link(script) for name, script in scripts.items()}
    told = tuple(Server(id=name, name=name, type="stdio", command="memory") for name in scripts)
    everything = (*servers, *told) or (GREETER,)
    whole = config or Config()
    whole = Config(everything, whole.http, whole.sessions, whole.parking, whole.catalog)
    async with running(whole, links=links, environ={}, **more) as app:
        yield app


def _link(script: Script) -> MakeLink:
    async def make(server: Server, receiver: Receiver, ground: Ground) -> MemoryLink:
        if isinstance(script, Fault):
            raise script.at("", "")
        return MemoryLink(server.name, script, receiver)

    return make


class Response:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def messages(self) -> list[Json]:
        if not self.is_stream:
            return [json.loads(self.body)] if self.body else []
        lines = self.body.split(b"\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]

    @property
    def last(self) -> Json:
        return self.messages[-1]

    @property
    def result(self) -> Json:
        assert "result" in self.last, self.last
        return self.last["result"]

    @property
    def error(self) -> Json:
        assert "error" in self.last, self.last
        return self.last["error"]


class Exchange:
    """One request to the door while it runs: `gone` is the client's going away."""

    def __init__(self, door: HttpDoor, scope: Json, body: Sequence[bytes]) -> None:
        parts = list(body) or [b""]
        self._incoming: asyncio.Queue[Json] = asyncio.Queue()
        for part in parts[:-1]:
            self._incoming.put_nowait({"type": "http.request", "body": part, "more_body": True})
        self._incoming.put_nowait({"type": "http.request", "body": parts[-1], "more_body": False})
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._stages: list[str] = []
        self.work = asyncio.ensure_future(door(scope, self._incoming.get, self._send))

    async def _send(self, event: Any) -> None:
        if event["type"] == "http.response.start":
            assert not self._stages, "a response starts once"
            self._status = event["status"]
            self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event["headers"]}
        else:
            assert self._stages and self._stages[-1] != "end", "a body comes between the start and the end"
            self._body += event["body"]
        self._stages.append("end" if event["type"].endswith("body") and not event.get("more_body") else "open")

    @property
    def so_far(self) -> Response:
        return Response(self._status, self._headers, bytes(self._body))

    async def response(self) -> Response:
        await self.work
        assert self._stages and self._stages[-1] == "end", "every request is answered to the end"
        declared = self._headers.get("content-length")
        assert declared is None or int(declared) == len(self._body)
        return self.so_far

    async def gone(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})
        await self.work


class Visitor:
    """A client of the HTTP door. `path` is where it goes; `headers` are its own on every request."""

    def __init__(self, app: App, path: str = "/mcp", **headers: str) -> None:
        self.app = app
        self.path = path
        self.headers = {"host": "127.0.0.1:8765", "content-type": "application/json"}
        self.headers |= {"accept": "application/json, text/event-stream"}
        self.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._ids = itertools.count(1)

    def begin(self, method: str, *body: bytes, headers: Mapping[str, str | None] | None = None, **more: Any) -> Exchange:
        told = {**self.headers, **(headers or {})}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in told.items() if value is not None]
        scope: Json = {"type": "http", "method": method, "path": self.path, "headers": raw, "client": ("127.0.0.1", 5)}
        return Exchange(self.app.http, scope | more, body)

    async def send(self, method: str, *body: bytes, **more: Any) -> Response:
        return await self.begin(method, *body, **more).response()

    async def post(self, message: Any, **more: Any) -> Response:
        return await self.send("POST", message if isinstance(message, bytes) else json.dumps(message).encode(), **more)

    def request(self, method: str, **params: Any) -> Json:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def ask(self, method: str, **params: Any) -> Response:
        """A legacy request. The session that it is given is kept."""
        response = await self.post(self.request(method, **params))
        self.headers.setdefault("mcp-session-id", response.headers["mcp-session-id"])
        return response

    async def initialize(self, version: str = LATEST, **capabilities: Any) -> Response:
        info = {"name": "visitor", "version": "1"}
        return await self.ask("initialize", protocolVersion=version, capabilities=capabilities, clientInfo=info)

    def modern_request(self, method: str, **params: Any) -> Json:
        meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
        return self.request(method, **{"_meta": meta, **params})

    async def ask_modern(self, method: str, headers: Mapping[str, str | None] | None = None, **params: Any) -> Response:
        """A modern request with the headers that belong to it; `headers` replaces some."""
        told: dict[str, str | None] = {"mcp-protocol-version": MODERN, "mcp-method": method}
        target = params.get("name", params.get("uri"))
        if target is not None:
            told["mcp-name"] = target
        return await self.post(self.modern_request(method, **params), headers={**told, **(headers or {})})
