"""The whole gateway in memory: a client of its HTTP door that shows every byte, and servers that follow a script.

A test opens `gateway(...)` and talks to it through a `Visitor`, in virtual time: nothing listens, nobody waits.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import official
from virtualtime import FakeClock

from toolgate import config as configs
from toolgate.app import App, running
from toolgate.config import Config, Server
from toolgate.core.fault import Fault
from toolgate.frontends.http import HttpFrontend
from toolgate.frontends.peers import Operator
from toolgate.frontends.streams import QUICK
from toolgate.state.base import UNREAD
from toolgate.state.memory import MemoryStore
from toolgate.state.settings import Settings
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.memory import MemoryLink

Json = dict[str, Any]

LATEST, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
ENVELOPE = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
GREETER = Server(id="greeter", name="greeter", type="registry")
THE_SOCKET = Operator(("", 0))  # where a request comes from that came over the operator's socket


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
        self.answers = self._opening() | {name.replace("_", "/"): answer for name, answer in answers.items()}
        self.requests: list[Json] = []
        self.on_bytes: Callable[[bytes], object] = len

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

    def change(self, tools: Json) -> None:
        """Offer other tools, and say so."""
        self.answers["tools/list"] = tools
        self.tell("notifications/tools/list_changed")

    def tell(self, method: str, **params: Any) -> None:
        self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def received(self, message: bytes) -> None:
        self.on_bytes(message)
        asked: Json = json.loads(message)
        self.requests.append(asked)
        if "id" not in asked or "method" not in asked:
            return
        answer = self.answers.get(asked["method"], Refusal(-32601, "Method not found"))
        try:
            answer = answer(asked.get("params", {})) if callable(answer) else answer
        except Refusal as refusal:
            answer = refusal
        if answer is not ...:
            self._answer(asked["id"], answer)

    def answer_last(self, answer: Any) -> None:
        """Break the silence on the last request."""
        self._answer(self.requests[-1]["id"], answer)

    def _answer(self, id: int, answer: Any) -> None:
        head = b'{"jsonrpc":"2.0","id":%d,' % id
        if isinstance(answer, Refusal):
            self.say(head + b'"error":' + json.dumps(answer.error).encode() + b"}")
        else:
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.say(head + b'"result":' + body + b"}")


def tools(*names: str, **more: Any) -> Json:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}, **more} for name in names]}


def said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


class UnreadStore(MemoryStore):
    """A store that cannot be read for a while."""

    is_unread = False

    def get(self, space: str, key: str) -> bytes | None:
        return None if self.is_unread else super().get(space, key)

    def items(self, space: str) -> Mapping[str, bytes]:
        return UNREAD if self.is_unread else super().items(space)


Script = Scripted | Fault
Headers = Mapping[str, str | None]


@asynccontextmanager
async def gateway(*servers: Server, config: Config | None = None, **more: Any) -> AsyncGenerator[App]:
    """A running gateway: in front of the greeter where nothing else is said, and of scripted servers by `scripts=`;
    `links_of=` are what servers are that come later. Nothing runs code there but `engines=`; only `registries=` are
    asked."""
    scripts: dict[str, Script] = more.pop("scripts", {})
    links = {name: _link(script) for name, script in (scripts | more.pop("links_of", {})).items()}
    named = {server.id for server in servers}
    told = tuple(Server(id=name, name=name, type="stdio", command="memory") for name in scripts if name not in named)
    everything = (*servers, *told) or (GREETER,)
    wanted = config or Config()
    offline = msgspec.structs.replace(wanted.provision, registries=more.pop("registries", ()))
    whole = msgspec.structs.replace(wanted, servers=everything, provision=offline)
    usual = {"clock": FakeClock(), "engines": {}, "environ": {}}
    async with running(whole, links=links, **{**usual, **more}) as app:
        yield app


@asynccontextmanager
async def of_file(path: Path, scripts: Mapping[str, Script], **more: Any) -> AsyncGenerator[App]:
    """A running gateway of a file, which it may edit. Its servers are scripted, by their names."""
    settings = Settings(lambda: configs.load(path, {}), {}, path, path.with_name("servers.json"))
    links = {name: _link(script) for name, script in scripts.items()}
    usual = {"clock": FakeClock(), "engines": {}, "environ": {}}
    async with running(settings.read(), links=links, settings=settings, **{**usual, **more}) as app:
        yield app


def _link(script: Script) -> MakeLink:
    async def make(server: Server, receiver: Receiver, ground: LinkDeps) -> MemoryLink:
        if isinstance(script, Fault):
            raise script.at("", "")
        return _ChildLink(server.name, script, receiver, {"pid": PID, "started": ground.clock.wall()})

    return make


PID = 4711  # of every server in memory


class _ChildLink(MemoryLink):
    """It looks like that of a process."""

    def __init__(self, name: str, script: Scripted, receiver: Receiver, about: Json) -> None:
        super().__init__(name, script, receiver)
        self._about: Json = about

    def describe(self) -> dict[str, object]:
        return self._about


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

    def __init__(self, door: HttpFrontend, scope: Json, body: Sequence[bytes | None]) -> None:
        self._incoming: asyncio.Queue[Json] = asyncio.Queue()
        parts = list(body) or [b""]
        for number, part in enumerate(parts, 1):
            if part is not None:  # else there is more, and it does not come
                event = {"type": "http.request", "body": part, "more_body": number < len(parts)}
                self._incoming.put_nowait(event)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._stages: list[str] = []
        self.work = asyncio.ensure_future(door(scope, self._incoming.get, self._send))

    def more(self, part: bytes) -> None:
        """The rest of a body that did not come."""
        self._incoming.put_nowait({"type": "http.request", "body": part, "more_body": False})

    @property
    def parts_left(self) -> int:
        return self._incoming.qsize()

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

    @property
    def has_ended(self) -> bool:
        """Whether the response has, whatever goes on behind it."""
        return bool(self._stages) and self._stages[-1] == "end"

    async def gone(self) -> None:
        """The client leaves. What it has called may go on, to be had on another connection."""
        self._incoming.put_nowait({"type": "http.disconnect"})
        await asyncio.wait((self.work,), timeout=5 * QUICK)
        if self.work.done():
            await self.work


class Visitor:
    """A client of the HTTP door. `path` is where it goes, `client` where it comes from; `headers` are its own on every
    request.

    Whatever `ask` and `ask_modern` are told is held against the official schema of the revision that is spoken.
    """

    def __init__(self, app: App, path: str = "/mcp", **headers: str) -> None:
        self.app = app
        self.path = path
        self.revision = "2025-03-26"
        self.client: tuple[str, int] = ("127.0.0.1", 5)
        self.headers = {"host": "127.0.0.1:8765", "content-type": "application/json"}
        self.headers |= {"accept": "application/json, text/event-stream"}
        self.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._ids = itertools.count(1)

    def begin(self, method: str, *body: bytes | None, headers: Headers = {}, twice: str = "", **scope: Any) -> Exchange:
        """Start a request. A header that is None is left out; the one named by `twice` is sent again."""
        told = {**self.headers, **headers}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in told.items() if value is not None]
        raw += [(name, value) for name, value in raw if name == twice.encode()]
        whole: Json = {"type": "http", "method": method, "path": self.path, "headers": raw, "client": self.client}
        return Exchange(self.app.http, whole | scope, body)

    async def send(self, method: str, *body: bytes, **more: Any) -> Response:
        return await self.begin(method, *body, **more).response()

    async def post(self, message: Any, **more: Any) -> Response:
        return await self.send("POST", message if isinstance(message, bytes) else json.dumps(message).encode(), **more)

    def request(self, method: str, **params: Any) -> Json:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def ask(self, method: str, **params: Any) -> Response:
        """A legacy request. The session that it is given is kept."""
        response = await self.post(self.request(method, **params))
        if "mcp-session-id" in response.headers:
            self.headers.setdefault("mcp-session-id", response.headers["mcp-session-id"])
        if method == "initialize" and "result" in response.last:
            self.revision = response.result["protocolVersion"]
        return self._checked(response, self.revision, method)

    async def initialize(self, version: str = LATEST, **capabilities: Any) -> Response:
        info = {"name": "visitor", "version": "1"}
        return await self.ask("initialize", protocolVersion=version, capabilities=capabilities, clientInfo=info)

    def modern_request(self, method: str, **params: Any) -> Json:
        return self.request(method, **{"_meta": ENVELOPE, **params})

    async def ask_modern(self, method: str, headers: Headers = {}, twice: str = "", **params: Any) -> Response:
        """A modern request with the headers that belong to it; `headers` replaces some."""
        told: dict[str, str | None] = {"mcp-protocol-version": MODERN, "mcp-method": method}
        target = params.get("name", params.get("uri"))
        if target is not None:
            told["mcp-name"] = target
        response = await self.post(self.modern_request(method, **params), headers={**told, **headers}, twice=twice)
        return self._checked(response, MODERN, method)

    def _checked(self, response: Response, revision: str, method: str) -> Response:
        for message in response.messages:
            if message.get("id", "") is not None:  # an error that answers no request has a null there
                official.check(message, revision, method)
        return response
