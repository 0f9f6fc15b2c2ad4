"""Scripted servers and clients of both eras, in memory, and a gateway between them.

A script is a coroutine function that plays one tool, prompt or resource: it gets a `Scene`, may ask, report and wait,
and returns the result. The same script runs in both eras: a legacy server asks by requests in the middle of the call, a
modern one keeps nothing, returns `input_required`, and plays the script again with the answers when the retry comes.

Every message that the gateway sends to a peer is held against the official schema of its revision (`official`); a fault
fails the running test, whatever the test itself looks at.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
import official
from asgi import HttpRequest
from official import LEGACY, MODERN, Json
from virtualtime import FakeClock, complain, settle, soon

from toolgate.app import App, running
from toolgate.config import CatalogLimits, Config, Limits, ParkingLimits, PoolLimits, Server
from toolgate.config.access import Concurrency
from toolgate.core import surrogates
from toolgate.core.model import Principal
from toolgate.frontends.streams import QUICK
from toolgate.policy.base import Policy
from toolgate.sandbox.services import MakeEngine
from toolgate.state.audit import Trail
from toolgate.state.base import Store
from toolgate.state.settings import Settings
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.memory import MemoryLink
from toolgate.upstreams.mcp.upstream import McpUpstream
from toolgate.upstreams.mcp.upstream_session import Connection as LiveConnection

LATEST = LEGACY[-1]
META = "io.modelcontextprotocol/"
TARGET = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
NAMED = TARGET | {"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
KIND = {"tools/call": "tools", "prompts/get": "prompts", "resources/read": "resources"}
LISTEN = "subscriptions/listen"
LIST_OF = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
# What a modern client asks to hear of a changed list by, and the notification.
FILTERS = {f"{kind}ListChanged": f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
EVERYTHING: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}

Question: TypeAlias = tuple[str, Json]  # method, params


class RpcError(Exception):
    """An error response: raised by a script to send one, and by `ask` where one came."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def body(self) -> Json:
        return {"code": self.code, "message": self.message} | ({} if self.data is None else {"data": self.data})


# What is asked and answered in most conversations.


def form(message: str = "Your name?", **more: Any) -> Question:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return "elicitation/create", {"message": message, "requestedSchema": schema, **more}


def link(url: str = "https://example.com/sign-in") -> Question:
    return "elicitation/create", {"mode": "url", "message": "Please sign in", "url": url}


def sampling(text: str = "Say hello", **more: Any) -> Question:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return "sampling/createMessage", {"messages": [message], "maxTokens": 10, **more}


ROOTS: Question = ("roots/list", {})


def asks(server: str, message: str) -> str:
    """A message of one line."""
    return f"The server {server} asks:\n\n> {message}"


def words_of(params: Json) -> str:
    """What a server itself has written of such a message."""
    return str(params["message"]).removeprefix("The server ").rpartition(" asks:\n\n> ")[2]


def named(name: str) -> Json:
    return {"action": "accept", "content": {"name": name}}


def sampled(text: str) -> Json:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "scripted"}


def rooted(*uris: str) -> Json:
    return {"roots": [{"uri": uri} for uri in uris]}


ACCEPTED: Json = {"action": "accept"}
DECLINED: Json = {"action": "decline"}


def text_of(result: Json) -> str:
    """What a result of any of the three methods says."""
    if "contents" in result:
        return result["contents"][0]["text"]
    blocks = result["content"] if "content" in result else [result["messages"][0]["content"]]
    return "\n".join(block["text"] for block in blocks)


def _saying(method: str, target: str, text: str) -> Json:
    block = {"type": "text", "text": text}
    return {
        "tools/call": {"content": [block]},
        "prompts/get": {"messages": [{"role": "user", "content": block}]},
        "resources/read": {"contents": [{"uri": target, "text": text}]},
    }[method]


def _dump(message: Json) -> bytes:
    return json.dumps(message).encode()


# Servers.


class Scene:
    """One round of one call, as its script sees it."""

    def __init__(self, connection: _Connection, message: Json) -> None:
        self.id = message["id"]
        self.method = message["method"]
        self.params: Json = message["params"]
        self.target = self.params[TARGET[self.method]] if self.method in TARGET else ""
        self.arguments: Json = self.params.get("arguments", {})
        self.meta: Json = self.params.get("_meta", {})
        self.connection = connection

    async def ask(self, question: Question) -> Json:
        """The client's answer. Raises `RpcError`."""
        return (await self.ask_all(question))[0]

    async def ask_all(self, *questions: Question) -> list[Json]:
        """Several questions at once."""
        return await self.connection.ask_all(self, questions)

    def progress(self, progress: float, **more: Any) -> None:
        params = {"progressToken": self.meta["progressToken"], "progress": progress, **more}
        self.connection.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def log(self, level: str, data: Any) -> None:
        if self.connection.server.heeds_levels and not self.connection.is_wanted(level, self.meta):
            return
        self.connection.say(
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": data}}
        )

    def crash(self, reason: str = "it crashed") -> None:
        self.connection.hang_up(reason)


Script: TypeAlias = Callable[[Scene], Awaitable[Any]]
Scripts: TypeAlias = Mapping[str, Script]


class _Connection:
    """One connection of the gateway to a server: a `MemoryServer`."""

    def __init__(self, server: _Server) -> None:
        self.server = server
        self.received_messages: list[Json] = []
        self.raw: list[bytes] = []
        self.is_open = False
        self._ids: set[Any] = set()
        self._playing: dict[Any, asyncio.Task[None]] = {}

    def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
        self.is_open = True
        self._say = say
        self._hang_up = hang_up

    def hang_up(self, reason: str = "it crashed") -> None:
        """End as a process does that crashes."""
        self._hang_up(reason)
        self.disconnected()

    def disconnected(self) -> None:
        self.is_open = False
        for task in self._playing.values():
            task.cancel()

    def say(self, message: Json | bytes) -> None:
        self._say(message if isinstance(message, bytes) else _dump(message))

    def received(self, data: bytes) -> None:
        message = json.loads(data)
        self.received_messages.append(message)
        self.raw.append(data)
        self.server.heard(message)
        try:
            self.check(message)
            if "method" in message and "id" in message:
                assert message["id"] not in self._ids, f"the id {message['id']} was used before"
                self._ids.add(message["id"])
        except AssertionError as error:
            complain(f"the gateway sent to {type(self.server).__name__}", error)
        if "method" not in message:
            self.answered(message)
        elif message["method"] == "notifications/cancelled":
            self._cancelled(message["params"]["requestId"])
        elif "id" in message:
            self.requested(message)
        else:
            self.notified(message)

    def requested(self, message: Json) -> None:
        method = message["method"]
        if method in KIND:
            self._playing[message["id"]] = asyncio.get_running_loop().create_task(self._play(message))
        elif method in self.server.lists:
            self.reply(message, self.completed(method, self._page(method, message.get("params", {}).get("cursor"))))
        elif method == "completion/complete" and self.server.completes:
            self._complete(message, self.server.completes)
        elif method in self.server.extension:
            self._playing[message["id"]] = asyncio.get_running_loop().create_task(self._play(message))
        else:
            self.refuse(message, RpcError(-32601, f"Method not found: {method}"))

    def _complete(self, message: Json, completes: Callable[[Json], Json]) -> None:
        try:
            self.reply(message, self.completed(message["method"], {"completion": completes(message["params"])}))
        except RpcError as error:
            self.refuse(message, error)

    def _page(self, method: str, cursor: str | None) -> Json:
        key, items = self.server.lists[method]
        start = CURSORS.index(cursor) if cursor is not None else 0
        end = start + (self.server.page or len(items))
        return {key: items[start:end]} | ({"nextCursor": CURSORS[end]} if end < len(items) else {})

    def notified(self, message: Json) -> None: ...

    def reply(self, message: Json, result: Json | bytes) -> None:
        body = result if isinstance(result, bytes) else _dump(result)
        self.say(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(message["id"]).encode(), body))

    def refuse(self, message: Json, error: RpcError) -> None:
        self.say({"jsonrpc": "2.0", "id": message["id"], "error": error.body()})

    async def _play(self, message: Json) -> None:
        scene = self.scene(message)
        try:
            script = self.server.script(scene)
            if script is None:
                raise RpcError(-32602, f"Not found: {scene.target}")
            result = await script(scene)
        except RpcError as error:
            self.refuse(message, error)
        except _NotYet as not_yet:
            self.reply(message, not_yet.result)
        else:
            if isinstance(result, str):
                result = _saying(scene.method, scene.target, result)
            self.reply(message, result if isinstance(result, bytes) else self.completed(scene.method, result))
        finally:
            self._playing.pop(scene.id, None)

    def _cancelled(self, id: Any) -> None:
        task = self._playing.pop(id, None)
        if task and not self.server.ignores_cancellation:
            task.cancel()

    def log(self, level: str, data: Any) -> None:
        """A log line that is of no call."""
        self.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": data}})

    # What the eras do in their own ways.

    def scene(self, message: Json) -> Scene:
        return Scene(self, message)

    @property
    def watched(self) -> list[str]:
        """The resources whose changes it is to tell of, each as often as that was asked for."""
        raise NotImplementedError

    def updated(self, uri: str) -> None:
        """Tell whoever wants to know that this resource has changed."""
        raise NotImplementedError

    def changed(self, list: str) -> None:
        """Tell whoever wants to know that this list has changed."""
        raise NotImplementedError

    def is_wanted(self, level: str, meta: Json) -> bool:
        raise NotImplementedError

    def check(self, message: Json) -> None:
        raise NotImplementedError

    def answered(self, message: Json) -> None:
        raise NotImplementedError

    def completed(self, method: str, result: Json) -> Json:
        raise NotImplementedError

    async def ask_all(self, scene: Scene, questions: Sequence[Question]) -> list[Json]:
        raise NotImplementedError


CURSORS = ("", *(f"é+/= {number}" for number in range(1, 1000)))  # an empty one is one, too


class _Server:
    """What a server offers, its connections, and all that it was sent. `settings` are keys of its `config.Server`.

    `templates` are played as resources are, for every URI that they make. `completes` makes the `completion` of a
    request's parameters. `announces`: it tells when its lists change; `tells`: it can be asked to tell of resources,
    save of those of `deaf_to`. `page` items of a list come at once. `keeps` are its hints for caches (modern).
    `heeds_levels`: it logs only what is wanted. `declares` are its capabilities, whatever else it has.
    `extension` holds the scripts of methods that MCP does not define.
    """

    connection: type[_Connection]

    def __init__(
        self,
        tools: Scripts | None = None,
        prompts: Scripts | None = None,
        resources: Scripts | None = None,
        ignores_cancellation: bool = False,
        *,
        templates: Scripts | None = None,
        completes: Callable[[Json], Json] | None = None,
        instructions: str = "",
        announces: bool = False,
        tells: bool = False,
        deaf_to: Sequence[str] = (),
        page: int = 0,
        keeps: Json | None = None,
        heeds_levels: bool = False,
        declares: Json | None = None,
        extension: Scripts | None = None,
        **settings: Any,
    ) -> None:
        self.scripts: dict[str, Scripts] = {
            "tools": tools or {},
            "prompts": prompts or {},
            "resources": resources or {},
        }
        self.ignores_cancellation = ignores_cancellation
        self.templates = templates or {}
        self.completes = completes
        self.instructions = instructions
        self.announces = announces
        self.tells = tells
        self.deaf_to = deaf_to
        self.page = page
        self.keeps = {"ttlMs": 0, "cacheScope": "private"} | (keeps or {})
        self.heeds_levels = heeds_levels
        self.declares = declares
        self.extension = extension or {}
        self.settings = settings
        self.connections: list[Any] = []
        self.received: list[Json] = []
        self.lists: dict[str, tuple[str, list[Json]]] = {
            "tools/list": ("tools", [{"name": name, "inputSchema": {"type": "object"}} for name in tools or {}]),
            "prompts/list": ("prompts", [{"name": name} for name in prompts or {}]),
            "resources/list": ("resources", [{"uri": uri, "name": uri} for uri in resources or {}]),
            "resources/templates/list": (
                "resourceTemplates",
                [{"uriTemplate": template, "name": template} for template in self.templates],
            ),
        }

    @property
    def capabilities(self) -> Json:
        if self.declares is not None:
            return self.declares
        found: Json = {kind: {} for kind, scripts in self.scripts.items() if scripts} | {"logging": {}}
        if self.templates or self.tells:
            found.setdefault("resources", {})
        for kind in found.keys() & self.scripts.keys() if self.announces else ():
            found[kind] |= {"listChanged": True}
        if self.tells:
            found["resources"] |= {"subscribe": True}
        return found | ({"completions": {}} if self.completes else {})

    def script(self, scene: Scene) -> Script | None:
        if scene.method in self.extension:
            return self.extension[scene.method]
        scripts = self.scripts[KIND[scene.method]]
        if scene.target in scripts or scene.method != "resources/read":
            return scripts.get(scene.target)
        made = (script for template, script in self.templates.items() if _pattern(template).fullmatch(scene.target))
        return next(made, None)

    def offer(self, kind: str, *items: Json) -> None:
        """Offer these now, and tell that the list has changed."""
        self.lists[LIST_OF[kind]][1][:] = items
        self.announce("resources" if kind == "resourceTemplates" else kind)

    def announce(self, list: str) -> None:
        for connection in self.open_connections:
            connection.changed(list)

    def update(self, uri: str) -> None:
        """Tell whoever wants to know that this resource has changed."""
        for connection in self.open_connections:
            connection.updated(uri)

    @property
    def open_connections(self) -> list[Any]:
        return [connection for connection in self.connections if connection.is_open]

    @property
    def watched(self) -> list[str]:
        """The resources that it is to tell of, each as often as it is told on whatever connection."""
        return sorted(uri for connection in self.open_connections for uri in connection.watched)

    async def make_link(self, server: Server, receiver: Receiver, ground: LinkDeps) -> MemoryLink:
        connection = self.connection(self)
        self.connections.append(connection)
        return MemoryLink(server.name, connection, receiver)

    def heard(self, message: Json) -> None:
        self.received.append(message)

    def requests(self, method: str) -> list[Json]:
        """What it was sent of this method, in order."""
        return [message for message in self.received if message.get("method") == method]

    @property
    def calls(self) -> list[Json]:
        return [message for message in self.received if message.get("method") in KIND]

    @property
    def cancelled(self) -> list[Any]:
        """The ids of the requests that the gateway has cancelled."""
        return [message["params"]["requestId"] for message in self.requests("notifications/cancelled")]

    @property
    def answers(self) -> list[Json]:
        """The gateway's responses to this server's questions."""
        return [message for message in self.received if "method" not in message]

    async def got(self, method: str, count: int = 1) -> Json:
        """The `count`-th message of this method, once it is there."""
        await eventually(lambda: len(self.requests(method)) >= count, f"no {method} number {count}")
        return self.requests(method)[count - 1]


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(re.escape(literal) for literal in re.split(r"\{[^{}]*\}", template)))


async def eventually(is_so: Callable[[], Any], otherwise: str = "it did not come to that") -> None:
    """Wait until something is so; it must come without any timeout's help."""
    for _ in range(200):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(otherwise)


class LegacyServer(_Server):
    """A server of a handshake revision: it knows no `server/discover`. `refuses` says what it has against the
    parameters of `initialize`. `on_initialized` and `on_roots_changed` are scripts without a call."""

    def __init__(
        self,
        *args: Any,
        revision: str = LATEST,
        discover_error: int = -32601,
        refuses: Callable[[Json], RpcError | None] = lambda params: None,
        on_initialized: Callable[[_LegacyConnection], Awaitable[None]] | None = None,
        on_roots_changed: Callable[[_LegacyConnection], Awaitable[None]] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.connection = _LegacyConnection
        self.revision = revision
        self.discover_error = discover_error
        self.refuses = refuses
        self.on_told = {
            "notifications/initialized": on_initialized,
            "notifications/roots/list_changed": on_roots_changed,
        }


class _LegacyConnection(_Connection):
    server: LegacyServer

    def __init__(self, server: LegacyServer) -> None:
        super().__init__(server)
        self.client_capabilities: Json = {}
        self.level: str | None = None
        self._watched: list[str] = []
        self._questions: dict[str, tuple[str, asyncio.Future[Json]]] = {}
        self._numbers = itertools.count(1)
        self._scripts: list[asyncio.Future[None]] = []

    def check(self, message: Json) -> None:
        told = message.get("params", {}).get("protocolVersion", LATEST)
        opening = {"server/discover": MODERN, "initialize": told}
        revision = opening.get(message.get("method", ""), self.server.revision)
        asked = self._questions.get(message.get("id", ""))
        official.check(message, revision, asked[0] if asked else "")

    def requested(self, message: Json) -> None:
        if message["method"] == "server/discover":
            self.refuse(message, RpcError(self.server.discover_error, "What?"))
        elif message["method"] == "initialize":
            if error := self.server.refuses(message["params"]):
                self.refuse(message, error)
                return
            self.client_capabilities = message["params"]["capabilities"]
            info = {"name": "scripted", "version": "1"}
            result = {
                "protocolVersion": self.server.revision,
                "capabilities": self.server.capabilities,
                "serverInfo": info,
            }
            told = {"instructions": self.server.instructions} if self.server.instructions else {}
            self.reply(message, result | told)
        elif message["method"] == "logging/setLevel":
            self.level = message["params"]["level"]
            self.reply(message, {})
        elif message["method"] in ("resources/subscribe", "resources/unsubscribe") and self.server.tells:
            self._subscribe(message, message["params"]["uri"])
        else:
            super().requested(message)

    def _subscribe(self, message: Json, uri: str) -> None:
        if uri in self.server.deaf_to:
            self.refuse(message, RpcError(-32002, f"Not found: {uri}"))
            return
        if message["method"] == "resources/subscribe":
            self._watched.append(uri)
        elif uri in self._watched:
            self._watched.remove(uri)
        else:
            complain(f"unsubscribed from what was not subscribed to: {uri}")
        self.reply(message, {})

    @property
    def watched(self) -> list[str]:
        return self._watched

    def updated(self, uri: str) -> None:
        if any(uri.startswith(watched) for watched in self._watched):
            self.say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})

    def changed(self, list: str) -> None:
        self.say({"jsonrpc": "2.0", "method": f"notifications/{list}/list_changed"})

    def is_wanted(self, level: str, meta: Json) -> bool:
        return self.level is None or LEVELS.index(level) >= LEVELS.index(self.level)

    def notified(self, message: Json) -> None:
        if told := self.server.on_told.get(message["method"]):
            self._scripts.append(asyncio.ensure_future(told(self)))

    def disconnected(self) -> None:
        super().disconnected()
        for script in self._scripts:
            script.cancel()

    def completed(self, method: str, result: Json) -> Json:
        return result

    def answered(self, message: Json) -> None:
        _, future = self._questions.pop(message["id"], ("", None))
        if future is None:
            complain(f"an answer to no question that is open: {message}")
        elif future.done():
            pass  # its script was cancelled; the question is answered all the same
        elif "error" in message:
            error = message["error"]
            future.set_exception(RpcError(error["code"], error["message"], error.get("data")))
        else:
            future.set_result(message["result"])

    async def ask_all(self, scene: Scene, questions: Sequence[Question]) -> list[Json]:
        return list(await asyncio.gather(*(self.ask(question) for question in questions)))

    async def ask(self, question: Question) -> Json:
        """A question of this server, which on this carrier belongs to no call in particular."""
        return await self.put(question)[1]

    def put(self, question: Question) -> tuple[str, asyncio.Future[Json]]:
        """A question's id, and its answer to come."""
        method, params = question
        number = next(self._numbers)
        if params.get("mode") == "url":
            params = {**params, "elicitationId": f"elicitation-{number}"}
        id = f"question-{number}"
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._questions[id] = (method, future)
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id, future

    def withdraw(self, id: str) -> None:
        self.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
        self._questions.pop(id)[1].cancel()


class _NotYet(Exception):
    """A modern server's script needs answers that it does not have."""

    def __init__(self, result: Json) -> None:
        self.result = result


class ModernServer(_Server):
    """A server of 2026-07-28 that keeps nothing between rounds: its state holds the answers that it has."""

    def __init__(self, *args: Any, initialize_error: int = -32601, is_fussy: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.is_fussy = is_fussy  # the first `server/discover` is refused, in favour of the very same revision
        self.connection = _ModernConnection
        self.initialize_error = initialize_error
        self.key_of_questions = "q{}"  # with their numbers in a call
        self.states: list[str] = []  # those that it gave out

    def end_listening(self) -> None:
        """End all that it is to tell, gracefully."""
        for connection in self.open_connections:
            connection.end_listening()


class _ModernScene(Scene):
    """`answers` are those of all rounds so far, by key; `asked` counts the questions of this replay."""

    def __init__(self, connection: _ModernConnection, message: Json) -> None:
        super().__init__(connection, message)
        self.answers: dict[str, Json] = {}
        self.asked = 0
        self.round = 1
        if "requestState" in self.params:
            self.round, self.answers, open_keys = connection.read_state(self.params["requestState"])
            given = self.params.get("inputResponses", {})
            self.answers |= {key: given[key] for key in open_keys if key in given}

    def back(self) -> None:
        """Ask for nothing but the state, once."""
        self.asked += 1
        if self.round <= self.asked:
            raise _NotYet({"resultType": "input_required", "requestState": self.state([])})

    def state(self, open_keys: Iterable[str]) -> str:
        server: ModernServer = self.connection.server  # type: ignore[assignment]
        inner = json.dumps([self.round + 1, self.answers, list(open_keys)]).encode()
        state = f"é+/= {len(server.states)} {base64.b64encode(inner).decode()}"
        server.states.append(state)
        return state


class _ModernConnection(_Connection):
    server: ModernServer

    def __init__(self, server: ModernServer) -> None:
        super().__init__(server)
        self.listening: dict[Any, Json] = {}  # what is wanted, by the id of the request that wants it

    def check(self, message: Json) -> None:
        official.check(message, LATEST if message.get("method") == "initialize" else MODERN)

    def requested(self, message: Json) -> None:
        if message["method"] == "server/discover" and self.server.is_fussy:
            self.server.is_fussy = False
            self.refuse(message, RpcError(-32022, "Unsupported protocol version", {"supported": [MODERN]}))
            return
        if message["method"] == "server/discover":
            result = {"supportedVersions": [MODERN], "capabilities": self.server.capabilities}
            told = {"instructions": self.server.instructions} if self.server.instructions else {}
            self.reply(message, self.completed("server/discover", result | told))
        elif message["method"] == LISTEN:
            self._listen(message)
        elif message["method"] == "initialize":
            data = {"supported": [MODERN]} if self.server.initialize_error == -32022 else None
            self.refuse(message, RpcError(self.server.initialize_error, "No handshake here", data))
        else:
            super().requested(message)

    def scene(self, message: Json) -> Scene:
        return _ModernScene(self, message)

    def _listen(self, message: Json) -> None:
        """What it does not tell of is left out of the acknowledgement."""
        wanted: Json = message["params"]["notifications"]
        can = self.server.capabilities
        honoured = {key: True for key in FILTERS if wanted.get(key) and can.get(key[:-11], {}).get("listChanged")}
        uris = [uri for uri in wanted.get("resourceSubscriptions", ()) if uri not in self.server.deaf_to]
        if uris and self.server.tells:
            honoured["resourceSubscriptions"] = uris
        self.listening[message["id"]] = honoured
        self._tell(message["id"], "notifications/subscriptions/acknowledged", {"notifications": honoured})

    def _tell(self, id: Any, method: str, params: Json) -> None:
        meta = {META + "subscriptionId": id}
        self.say({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}})

    def end_listening(self) -> None:
        for id in list(self.listening):
            del self.listening[id]
            self.reply({"id": id}, {"resultType": "complete", "_meta": {META + "subscriptionId": id}})

    def _cancelled(self, id: Any) -> None:
        self.listening.pop(id, None)
        super()._cancelled(id)

    @property
    def watched(self) -> list[str]:
        return [uri for wanted in self.listening.values() for uri in wanted.get("resourceSubscriptions", ())]

    def updated(self, uri: str) -> None:
        for id, wanted in self.listening.items():
            if any(uri.startswith(watched) for watched in wanted.get("resourceSubscriptions", ())):
                self._tell(id, "notifications/resources/updated", {"uri": uri})

    def changed(self, list: str) -> None:
        for id, wanted in self.listening.items():
            if f"{list}ListChanged" in wanted:
                self._tell(id, f"notifications/{list}/list_changed", {})

    def is_wanted(self, level: str, meta: Json) -> bool:
        wanted = meta.get(META + "logLevel")
        return wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted)

    def completed(self, method: str, result: Json) -> Json:
        kept = {} if method in ("tools/call", "prompts/get", "completion/complete") else self.server.keeps
        return {"resultType": "complete", **kept, **result}

    def answered(self, message: Json) -> None:
        complain(f"a modern server was sent a response: {message}")

    def read_state(self, state: str) -> tuple[int, dict[str, Json], list[str]]:
        if state not in self.server.states:
            complain(f"a modern server was sent a state that it did not give out: {state}")
        round, answers, open_keys = json.loads(base64.b64decode(state.split(" ")[2]))
        return round, answers, open_keys

    async def ask_all(self, scene: Scene, questions: Sequence[Question]) -> list[Json]:
        assert isinstance(scene, _ModernScene)
        name = self.server.key_of_questions.format
        keys = [name(scene.asked + number) for number, _ in enumerate(questions, 1)]
        scene.asked += len(questions)
        missing = {
            key: {"method": method, "params": params}
            for key, (method, params) in zip(keys, questions, strict=True)
            if key not in scene.answers
        }
        if missing:
            state = scene.state(missing)
            raise _NotYet({"resultType": "input_required", "inputRequests": missing, "requestState": state})
        return [scene.answers[key] for key in keys]


# What comes back to a client.

Heard: TypeAlias = Callable[[bytes, "Pending | None"], None]


class Reply(msgspec.Struct):
    """The answer to one request. `raw` is its message as it came, `before` what came on its stream before it."""

    raw: bytes
    before: list[Json]
    status: int | None = None
    raw_before: list[bytes] = []

    @property
    def message(self) -> Json:
        return json.loads(self.raw)

    @property
    def result(self) -> Json:
        message = self.message
        assert "result" in message, message
        return message["result"]

    @property
    def error(self) -> Json:
        message = self.message
        assert "error" in message, message
        return message["error"]

    @property
    def text(self) -> str:
        return text_of(self.result)

    @property
    def state(self) -> str:
        assert self.result["resultType"] == "input_required", self.result
        return self.result["requestState"]

    @property
    def asks(self) -> dict[str, Json]:
        """The questions of an `input_required`, by key."""
        assert self.result["resultType"] == "input_required", self.result
        return self.result.get("inputRequests", {})

    @property
    def key(self) -> str:
        """The key of its only question."""
        (key,) = self.asks
        return key

    def notes(self, method: str) -> list[Json]:
        """The parameters of what was notified before it."""
        return [message["params"] for message in self.before if message.get("method") == method]


class Pending:
    """A request under way."""

    def __init__(self, message: Json, spelled: bytes = b"") -> None:
        self.message = message
        self.spelled = spelled or _dump(message)
        self.messages: list[Json] = []
        self.raw_messages: list[bytes] = []
        self.http: HttpRequest | None = None
        self.raw: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.leave: Callable[[], None] = lambda: None  # the client goes away, and takes the request with it

    @property
    def is_answered(self) -> bool:
        return self.raw.done()

    @property
    def is_listening(self) -> bool:
        return self.message["method"] == LISTEN

    async def reply(self) -> Reply:
        """The answer; it must come without any timeout's help."""
        raw = await soon(asyncio.shield(self.raw))
        return Reply(raw, self.messages, self.http.status if self.http else None, self.raw_messages)

    async def gone(self) -> None:
        """Leave, and let the gateway see it. A legacy call goes on."""
        self.leave()
        if self.http:
            await asyncio.wait((self.http.task,), timeout=5 * QUICK)
        await settle()


class _Wire:
    """What carries a client's messages: one POST each, or the lines of stdio."""

    def __init__(self, rig: Rig, principal: str, path: str) -> None:
        self.rig = rig
        self.principal = principal
        self.path = path

    def open(self, pending: Pending, headers: Mapping[str, str], heard: Heard) -> None:
        raise NotImplementedError

    def tell(self, message: Json, headers: Mapping[str, str]) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


class _Http(_Wire):
    def open(self, pending: Pending, headers: Mapping[str, str], heard: Heard) -> None:
        pending.http = self._post(pending.spelled, headers, lambda data: heard(data, pending))
        pending.leave = pending.http.leave

    def tell(self, message: Json, headers: Mapping[str, str]) -> None:
        request = self._post(message, headers, lambda _data: None)

        def told(_done: asyncio.Task[None]) -> None:
            if request.status != 202:
                complain(f"HTTP {request.status} instead of 202 to {message}: {request.body!r}")

        request.task.add_done_callback(told)

    def _post(
        self, message: Json | bytes, headers: Mapping[str, str], on_message: Callable[[bytes], None]
    ) -> HttpRequest:
        body = message if isinstance(message, bytes) else _dump(message)
        all_headers = {"x-test-principal": self.principal, "content-type": "application/json", **headers}
        return HttpRequest(self.rig.app.http, "POST", self.path, all_headers.items(), body, on_message)


class _Lines(_Wire):
    """One stdio door. On it nobody can tell which request a notification belongs to: every pending one gets it."""

    def __init__(self, rig: Rig, path: str) -> None:
        super().__init__(rig, "local", path)
        self._pending: dict[Any, Pending] = {}
        self._heard: Heard = lambda _data, _pending: None
        self.door = rig.app.stdio(self._written, path)

    def open(self, pending: Pending, headers: Mapping[str, str], heard: Heard) -> None:
        self._heard = heard
        id = pending.message["id"]
        self._pending[id] = pending
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
        pending.leave = lambda: self.tell(cancelled, {})
        self.say(pending.spelled)

    def tell(self, message: Json, headers: Mapping[str, str]) -> None:
        self.say(_dump(message))

    def say(self, message: bytes) -> None:
        self.door.data_received(message + b"\n")

    async def close(self) -> None:
        await self.door.close()

    def _written(self, data: bytes) -> None:
        assert data.endswith(b"\n") and data.count(b"\n") == 1, "one message a line"
        message = json.loads(data)
        if "method" in message:
            subscription = message.get("params", {}).get("_meta", {}).get(META + "subscriptionId")
            own = [each for id, each in self._pending.items() if subscription in (None, id)]
            for pending in own if subscription is not None else [each for each in own if not each.is_listening]:
                self._heard(data, pending)
            if not own:
                self._heard(data, None)
        else:
            self._heard(data, self._pending.pop(message["id"], None))


# Clients.


class ModernClient:
    """A client of 2026-07-28. `capabilities` are what each of its requests declares."""

    revision = MODERN

    def __init__(self, wire: _Wire, capabilities: Json | None = None, accept: str = "") -> None:
        self.wire = wire
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.accept = accept or "application/json, text/event-stream"
        self._ids = itertools.count(1)
        self._ears: list[Ear] = []

    def start(self, method: str, *, meta: Json | None = None, id: Any = None, **params: Any) -> Pending:
        """Send a request. `params` are those of the method; the envelope is put in."""
        envelope = {
            META + "protocolVersion": MODERN,
            META + "clientCapabilities": self.capabilities,
            META + "clientInfo": {"name": "scripted", "version": "1"},
            **(meta or {}),
        }
        id = f"m-{next(self._ids)}" if id is None else id
        pending = Pending({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": envelope}})
        return self._open(pending)

    async def raw(self, spelled: bytes) -> Reply:
        """A request as these bytes."""
        return await self._open(Pending(json.loads(spelled), spelled)).reply()

    def _open(self, pending: Pending) -> Pending:
        method, params = pending.message["method"], pending.message["params"]
        headers = {"accept": self.accept, "mcp-protocol-version": MODERN, "mcp-method": method}
        if method in NAMED:
            headers["mcp-name"] = _header(params[NAMED[method]])
        self.wire.open(pending, headers, self._heard)
        return pending

    async def request(self, method: str, **more: Any) -> Reply:
        return await self.start(method, **more).reply()

    async def call(self, name: str, **more: Any) -> Reply:
        return await self.request("tools/call", name=name, **more)

    def retry_later(self, asked: Pending, reply: Reply, answers: Mapping[str, Json] | None, **changes: Any) -> Pending:
        """Send the same request once more, with answers. `changes` replace parameters of it, None removes one."""
        message = asked.message
        params = {name: value for name, value in message["params"].items() if name not in _RETRY}
        if "requestState" in reply.result:
            params["requestState"] = reply.result["requestState"]
        if answers is not None:
            params["inputResponses"] = answers
        params = {name: value for name, value in (params | changes).items() if value is not None}
        meta = params.pop("_meta", {})
        return self.start(changes.get("method") or message["method"], meta=meta, **params)

    async def retry(self, asked: Pending, reply: Reply, answers: Mapping[str, Json] | None, **changes: Any) -> Reply:
        return await self.retry_later(asked, reply, answers, **changes).reply()

    async def converse(self, method: str, answers: Answers, **params: Any) -> Reply:
        """A call to its end: whatever is asked is answered by script."""
        pending = self.start(method, **params)
        reply = await pending.reply()
        while reply.message.get("result", {}).get("resultType") == "input_required":
            given = {key: await _scripted(answers, ask) for key, ask in reply.asks.items()}
            before = reply.before
            pending = self.retry_later(pending, reply, given)
            reply = await pending.reply()
            reply.before[:0] = before
        return reply

    async def listen(self, *uris: str, lists: Sequence[str] = ()) -> Ear:
        """Open a subscription to these resources and changed lists; it is acknowledged."""
        wanted = {f"{list}ListChanged": True for list in lists} | ({"resourceSubscriptions": uris} if uris else {})
        pending = self.start(LISTEN, notifications=wanted)
        await eventually(lambda: pending.messages or pending.is_answered, "nothing was acknowledged")
        ear = Ear(pending.messages, pending)
        self._ears.append(ear)
        return ear

    async def close(self) -> None:
        for ear in self._ears:
            await ear.stop()
        await self.wire.close()

    def _heard(self, data: bytes, pending: Pending | None) -> None:
        message = json.loads(data)
        try:
            assert pending, f"a modern client is told nothing of its own accord: {message}"
            official.check(message, MODERN, pending.message["method"])
            self._check(message, pending)
        except AssertionError as error:
            complain("the gateway sent to a modern client", error)
        _file(data, message, pending)

    def _check(self, message: Json, pending: Pending) -> None:
        meta = pending.message["params"]["_meta"]
        if message.get("method") == "notifications/message":
            assert META + "logLevel" in meta, "logs are for those who asked for them"
        for ask in message.get("result", {}).get("inputRequests", {}).values():
            assert _capability(ask["method"]) in self.capabilities, f"asked for what was not declared: {ask}"
        if pending.is_listening:
            _check_subscription(message, pending)
        elif "method" in message:
            assert message["method"].startswith((*_OF_A_REQUEST, official.EXTENSION)), (
                f"no notification of a request: {message}"
            )
        _check_common(message, pending, meta)


_OF_A_REQUEST = ("notifications/progress", "notifications/message")


def _check_subscription(message: Json, pending: Pending) -> None:
    """What comes on a subscription is marked as its own, asked for, and not before the acknowledgement."""
    body = message.get("params", message.get("result", {}))
    if "error" not in message:
        got, given = body["_meta"][META + "subscriptionId"], pending.message["id"]
        assert (got, type(got)) == (given, type(given)), f"told of another subscription: {message}"
    if "method" not in message:
        return
    acknowledged = message["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged is not bool(pending.messages), f"not one acknowledgement, and first: {message}"
    wanted: Json = pending.message["params"]["notifications"]
    if acknowledged:
        return
    honoured: Json = pending.messages[0]["params"]["notifications"]
    assert honoured.items() <= wanted.items() or set(honoured) <= set(wanted), f"more than was wanted: {honoured}"
    told = {FILTERS[key] for key in honoured if key in FILTERS}
    told |= {"notifications/resources/updated"} if "resourceSubscriptions" in honoured else set()
    told |= {"notifications/tasks"} if "taskIds" in honoured else set()
    assert message["method"] in told, f"told of what was not wanted: {message}"


class Ear:
    """What one client hears that belongs to no call: a subscription of a modern one, or a legacy one's own stream.
    `messages` begin with the acknowledgement where there is a `pending` request."""

    def __init__(self, messages: list[Json], pending: Pending | None = None, before_stop: Any = None) -> None:
        self.messages = messages
        self.pending = pending
        self._before_stop = before_stop

    @property
    def honoured(self) -> Json:
        """What a modern client was promised."""
        return self.messages[0]["params"]["notifications"]

    @property
    def updated(self) -> list[str]:
        """The resources that it was told of, in order."""
        return [each["params"]["uri"] for each in self._of("notifications/resources/updated")]

    @property
    def changed(self) -> list[str]:
        """The lists that it was told of, in order."""
        return [each["method"].split("/")[1] for each in self.messages if each["method"].endswith("/list_changed")]

    @property
    def logged(self) -> list[Any]:
        return [each["params"]["data"] for each in self._of("notifications/message")]

    def _of(self, method: str) -> list[Json]:
        return [message for message in self.messages if message["method"] == method]

    async def stop(self) -> None:
        if self._before_stop:
            await self._before_stop()
            self._before_stop = None
        if self.pending and not self.pending.is_answered:
            await self.pending.gone()


_RETRY = ("requestState", "inputResponses")


class LegacyClient:
    """A client of a handshake revision. `answers` answer its questions by script; what no script answers waits for
    `answer`. Made by `Rig.legacy`, which shakes hands."""

    def __init__(
        self,
        wire: _Wire,
        revision: str = LATEST,
        answers: Answers | None = None,
        capabilities: Json | None = None,
        accept: str = "",
    ) -> None:
        self.wire = wire
        self.revision = revision
        self.answers = dict(answers or {})
        if capabilities is None:
            capabilities = {**EVERYTHING, "elicitation": EVERYTHING["elicitation"] if revision >= LATEST else {}}
        self.capabilities = capabilities
        self.accept = accept or "application/json, text/event-stream"
        self.session = ""
        self.asked: list[Json] = []  # every question, in order
        self.withdrawn: list[Any] = []  # ids of questions that the gateway took back
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: list[HttpRequest] = []
        self._unasked: list[Json] = []  # what came on no request's stream

    async def initialize(self) -> Reply:
        info = {"name": "scripted", "version": "1"}
        pending = self.start(
            "initialize", protocolVersion=self.revision, capabilities=self.capabilities, clientInfo=info
        )
        reply = await pending.reply()
        if pending.http:
            self.session = pending.http.headers["mcp-session-id"]
        assert reply.result["protocolVersion"] == self.revision
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return reply

    def start(self, method: str, *, meta: Json | None = None, id: Any = None, **params: Any) -> Pending:
        """Send a request. `params` are those of the method."""
        id = next(self._ids) if id is None else id
        params = {**params, **({"_meta": meta} if meta else {})}
        return self._open(Pending({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))

    async def raw(self, spelled: bytes) -> Reply:
        """A request as these bytes."""
        return await self._open(Pending(json.loads(spelled), spelled)).reply()

    def _open(self, pending: Pending) -> Pending:
        self.wire.open(pending, self._headers(), self._heard)
        return pending

    async def request(self, method: str, **more: Any) -> Reply:
        return await self.start(method, **more).reply()

    async def call(self, name: str, **more: Any) -> Reply:
        return await self.request("tools/call", name=name, **more)

    async def converse(self, method: str, answers: Answers, **params: Any) -> Reply:
        """A call to its end: whatever is asked is answered by script."""
        self.answers = dict(answers)
        return await self.request(method, **params)

    async def question(self, number: int = 1) -> Json:
        """The `number`-th question, once it is there."""
        await eventually(lambda: len(self.asked) >= number, f"question {number} did not come")
        return self.asked[number - 1]

    def answer(self, question: Json, result: Json | RpcError) -> None:
        body = {"error": result.body()} if isinstance(result, RpcError) else {"result": result}
        self.tell({"jsonrpc": "2.0", "id": question["id"], **body})

    def cancel(self, pending: Pending) -> None:
        params = {"requestId": pending.message["id"]}
        self.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def tell(self, message: Json) -> None:
        self.wire.tell(message, self._headers())

    async def listen(self, *uris: str, lists: Sequence[str] = ()) -> Ear:
        """Open an ear of its own and subscribe to these resources. Of changed lists this era tells unasked."""
        messages = self._unasked if isinstance(self.wire, _Lines) else self.open_stream()
        await settle()
        for uri in uris:
            assert (await self.request("resources/subscribe", uri=uri)).result == {}

        async def unsubscribe() -> None:
            for uri in uris:
                assert (await self.request("resources/unsubscribe", uri=uri)).result == {}

        return Ear(messages, before_stop=unsubscribe)

    def open_stream(self) -> list[Json]:
        """Open a GET stream; what comes on it, in a list that grows."""
        heard: list[Json] = []

        def on_message(data: bytes) -> None:
            message = json.loads(data)
            if "id" in message and message.get("method") != "roots/list":
                complain(f"a request or response on the GET stream: {message}")
            try:
                official.check(message, self.revision)
            except AssertionError as error:
                complain(f"the gateway sent to a client of {self.revision}", error)
            if "id" in message:
                self._is_asked(message, None)
            else:
                heard.append(message)

        headers = {**self._headers(), "accept": "text/event-stream", "x-test-principal": self.wire.principal}
        self._streams.append(
            HttpRequest(self.wire.rig.app.http, "GET", self.wire.path, headers.items(), b"", on_message)
        )
        return heard

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for stream in self._streams:
            stream.leave()
            await soon(stream.task)
        await self.wire.close()

    def _headers(self) -> dict[str, str]:
        headers = {"accept": self.accept}
        if self.session:
            headers |= {"mcp-session-id": self.session, "mcp-protocol-version": self.revision}
        return headers

    def _heard(self, data: bytes, pending: Pending | None) -> None:
        message = json.loads(data)
        try:
            assert pending or isinstance(self.wire, _Lines), "a message on no stream"
            official.check(message, self.revision, pending.message["method"] if pending else "")
            if pending:
                _check_common(message, pending, pending.message["params"].get("_meta", {}))
        except AssertionError as error:
            complain(f"the gateway sent to a client of {self.revision}", error)
        if "id" in message and "method" in message:
            self._is_asked(message, pending)
        elif message.get("method") == "notifications/cancelled":
            self.withdrawn.append(message["params"]["requestId"])
        elif message.get("method", "") not in ("", *_OF_A_REQUEST) or not pending:
            self._unasked.append(message)
        _file(data, message, pending)

    def _is_asked(self, question: Json, pending: Pending | None) -> None:
        if any(question["id"] == earlier["id"] for earlier in self.asked):
            if not isinstance(self.wire, _Lines):
                complain(f"the id of a question was used before: {question}")
            return
        self.asked.append(question)
        if question["method"] in self.answers:
            task = asyncio.get_running_loop().create_task(self._answer(question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: Json) -> None:
        try:
            self.answer(question, await _scripted(self.answers, question))
        except RpcError as error:
            self.answer(question, error)


Client: TypeAlias = ModernClient | LegacyClient
Answers: TypeAlias = Mapping[str, Any]  # by method: a result, or a (coroutine) function from the question's parameters


async def _scripted(answers: Answers, question: Json) -> Json:
    answer = answers[question["method"]]
    if callable(answer):
        answer = answer(question.get("params", {}))
    return await answer if isinstance(answer, Awaitable) else answer


def _capability(method: str) -> str:
    return {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}[method]


def _header(value: str) -> str:
    if value.isascii() and value.isprintable():
        return value
    return "=?base64?" + base64.b64encode(surrogates.shown(value).encode()).decode() + "?="


def _check_common(message: Json, pending: Pending, meta: Json) -> None:
    if message.get("method") == "notifications/progress" and pending.http:
        assert "progressToken" in meta, "progress is for those who gave a token"
        got, given = message["params"]["progressToken"], meta["progressToken"]
        assert (got, type(got)) == (given, type(given)), f"the token {got!r} instead of {given!r}"
    if "method" not in message:
        got, given = message.get("id"), pending.message["id"]
        assert (got, type(got)) == (given, type(given)), f"the id {got!r} instead of {given!r}"


def _file(data: bytes, message: Json, pending: Pending | None) -> None:
    if not pending:
        return
    if "method" in message:
        pending.messages.append(message)
        pending.raw_messages.append(data)
    elif pending.raw.done():
        complain(f"a second response to {pending.message['id']}: {message}")
    else:
        pending.raw.set_result(data)


# The gateway between them.


class _Alarm(logging.Handler):
    """Fails the test that makes the gateway log an error of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(f"logged: {record.getMessage()}", record.exc_info[1] if record.exc_info else None)


class Rig:
    """A running gateway, its servers, and whoever visits it."""

    def __init__(self, app: App, clock: FakeClock, servers: Mapping[str, _Server]) -> None:
        self.app = app
        self.clock = clock
        self.servers = servers
        self._clients: list[Client] = []
        self._baseline = asyncio.all_tasks()

    def modern(self, principal: str = "ann", *, path: str = "/mcp", stdio: bool = False, **more: Any) -> ModernClient:
        wire = _Lines(self, path) if stdio else _Http(self, principal, path)
        client = ModernClient(wire, **more)
        self._clients.append(client)
        return client

    async def legacy(
        self,
        revision: str = LATEST,
        principal: str = "ann",
        *,
        path: str = "/mcp",
        stdio: bool = False,
        **more: Any,
    ) -> LegacyClient:
        client = self.legacy_stranger(revision, principal, path=path, stdio=stdio, **more)
        await client.initialize()
        return client

    def legacy_stranger(
        self, revision: str = LATEST, principal: str = "ann", *, path: str = "/mcp", stdio: bool = False, **more: Any
    ) -> LegacyClient:
        """A client that has not shaken hands."""
        wire = _Lines(self, path) if stdio else _Http(self, principal, path)
        client = LegacyClient(wire, revision, **more)
        self._clients.append(client)
        return client

    async def client(self, revision: str, **more: Any) -> Client:
        return self.modern(**more) if revision == MODERN else await self.legacy(revision, **more)

    @property
    def connections(self) -> list[LiveConnection]:
        upstreams = self.app.gateway.snapshot.upstreams.values()
        sessions = [
            session for each in upstreams if isinstance(each, McpUpstream) for session in each._sessions.values()
        ]
        return [session.live for session in sessions if session.live]

    @property
    def in_flight(self) -> int:
        """Requests that the gateway waits for."""
        return sum(connection.requests.in_flight for connection in self.connections)

    async def is_quiet(self) -> None:
        """Nothing is parked, in flight, asked or running."""
        await settle()
        assert len(self.app.parking) == 0, f"parked: {self.app.parking._parked}"
        for connection in self.connections:
            assert connection.requests.in_flight == 0, f"in flight: {connection.requests}"
            assert not connection.questions._open, f"unanswered: {connection.questions._open}"
            assert not connection.questions._held, f"held: {connection.questions._held}"
            connection.tasks.counted.end()  # which servers may be at work on when a test ends
        await settle()
        for session in self.app.sessions.all():
            assert not session._in_flight and not session._questions and not session._work, session
        running = asyncio.all_tasks() - self._baseline - {asyncio.current_task()}
        running = {task for task in running if not task.get_name().startswith("hear")}  # as long as their connection
        assert not running, f"still running: {running}"
        assert self.app._policy_deps.meters.are_idle, "something that was taken was not given back"

    async def leave(self) -> None:
        for client in self._clients:
            await client.close()
        await settle()


METERED = Limits(concurrency=Concurrency(10**6, 10**6, 10**6))  # so that what is taken and not given back is seen


@asynccontextmanager
async def gateway(
    policies: Sequence[Policy] = (),
    parking: ParkingLimits | None = None,
    catalog: CatalogLimits | None = None,
    pool: PoolLimits | None = None,
    store: Store | None = None,
    bundles: Mapping[str, tuple[str, ...]] | None = None,
    config: Config | None = None,
    edited: Callable[[Config], Config] | None = None,
    audit: Trail | None = None,
    engines: Mapping[str, MakeEngine] = {},
    **servers: _Server,
) -> AsyncGenerator[Rig]:
    """A gateway in front of these servers. When the conversation is over, nothing of it may be left, but what was put
    into a store that is given. `edited`: what is made of the configuration when it is read again."""
    clock = FakeClock()
    config = msgspec.structs.replace(
        config or Config(limits=METERED),
        servers=tuple(
            Server(id=id.replace("_", "-"), name=id, type="stdio", command=id, **server.settings)
            for id, server in servers.items()
        ),
        parking=parking or ParkingLimits(),
        catalog=catalog or CatalogLimits(),
        pool=pool or PoolLimits(),
        bundles=bundles or {},
    )
    links = {id.replace("_", "-"): server.make_link for id, server in servers.items()}
    alarm = _Alarm(logging.ERROR)
    logging.getLogger("toolgate").addHandler(alarm)
    try:
        injected: Json = {"clock": clock, "environ": {}, "store": store, "audit": audit, "engines": engines}
        injected["identify"] = _by_client if config.clients else _by_header
        if edited:
            injected["settings"] = Settings(lambda: edited(config), {})
        async with running(config, policies=policies, links=links, **injected) as app:
            rig = Rig(app, clock, servers)
            try:
                yield rig
                await rig.leave()
                await rig.is_quiet()
                assert len(app.events) == len(app.sessions), "somebody listens who has gone"
            except BaseException:
                await rig.leave()
                raise
    finally:
        logging.getLogger("toolgate").removeHandler(alarm)


async def _by_header(headers: Mapping[str, str], address: str, path: str) -> Principal:
    return Principal(headers.get("x-test-principal", "local"), address)


async def _by_client(headers: Mapping[str, str], address: str, path: str) -> Principal:
    """Where clients are configured: `ann/laptop` is the client `ann`, and somebody of its own."""
    name = headers.get("x-test-principal", "local")
    return Principal(name, address, client=name.partition("/")[0], is_admin=name.endswith("/admin"))
