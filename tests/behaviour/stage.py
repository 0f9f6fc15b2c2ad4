"""The servers that the examples of the texts name, in memory, and whoever asks the gateway in front, of either era."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import offers
from codex_double import CodexDouble
from inmemory import LATEST, THE_SOCKET, Json, Response, Script, Scripted, Visitor, gateway, said
from virtualtime import FakeClock

from toolgate.app import App
from toolgate.config import Config, Server
from toolgate.config.settings import Codex
from toolgate.policy.approvals import Approvals
from toolgate.sandbox.bridge import Broken
from toolgate.sandbox.dataset import runner
from toolgate.sandbox.services import MakeEngine
from toolgate.sandbox.worker import Engine, Worker
from toolgate.state.memory import MemoryStore
from toolgate.workspace.codex import NAME

LINES = [f"src/file{number}.py:{number}: import os" for number in range(1, 301)]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ROWS = [{"name": "Ada", "email": "ada@example.org"}]

THREAD = "01a20b52-0000-7000-8000-0000000000ff"

README = """# Weather

```json
{"mcpServers": {"weather": {"command": "npx", "args": ["-y", "@ann/weather@1.2.0"], "env": {"API_KEY": "${API_KEY}"}}}}
```
"""

# A call of each control tool that ends well on a gateway with `serena` and `sqlite`.
CALLS: dict[str, Json] = {
    "execute_child_tool": {"server_id": "serena", "tool_name": "search_code", "arguments": {"query": "x"}},
    "get_schema": {"server_id": "serena"},
    "list_registered_children": {},
    "get_child_status": {"server_id": "serena"},
    "close_child_session": {"server_id": "serena"},
    "mcp_discover": {},
    "mcp_provision": {"intent": "search code", "context": "by a semantic search"},
    "mcp_call": {"server": "serena", "tool": "search_code", "args": {"query": "x"}},
    "status": {},
    "list_mcp_servers": {},
    "call_tool": {"server_name": "serena", "tool_name": "search_code", "arguments": {"query": "x"}},
    "list_tools": {},
    "get_tool_schema": {"server_name": "serena", "tool_name": "search_code"},
    "read_mcp_resource": {"server_name": "serena", "resource_uri": "serena://guide"},
    "add_mcp_server": {"name": "more", "transport": "stdio", "command": "more"},
    "remove_mcp_server": {"name": "more"},
    "import_mcp_server": {"github_url": "https://github.com/ann/weather", "content": README},
    "call_hook": {"hook_type": "SessionStart", "params": {"session_id": "codex-abc123"}, "source": "Codex"},
    "mcp_execute": {"code": "return [1, 2]"},
    "execute_code": {"code": "[1, 2]"},
    "recommend_tools": {"task_description": "Find where a function is used by a semantic search of the code"},
    "process_large_dataset": {"data": [{"price": 1}, {"price": 2}], "operation": "top 1 by price"},
    "codex": {"prompt": "say There are no tests for the parser."},
    "codex_list_threads": {"limit": 1},
    "codex_archive_thread": {"thread_id": THREAD},
    "search_tools": {"query": "search"},
}
WITH_CODEX = Codex(enabled=True, calls="allow")


def codex() -> dict[str, Any]:
    """What stands for Codex, with a thread of before."""
    double = CodexDouble()
    double.remember(THREAD, "/home/ann/parser", "say Hello.")
    return {NAME: double}


def engine(language: str) -> MakeEngine:
    """What stands for an engine: code returns [1, 2], and that of `process_large_dataset` is run here."""

    async def start(worker: Worker) -> None:
        def write(line: bytes) -> None:
            order = json.loads(line)["run"]
            value = runner.process(order["data"]) if "data" in order else [1, 2]
            worker.wrote(json.dumps({"done": {"value": value}}).encode() + b"\n")

        worker.started(0, write, lambda: worker.exited(Broken("was stopped")), None)
        worker.wrote(json.dumps({"ready": f"{language} in memory"}).encode() + b"\n")

    return lambda *_: Engine(language, start)


CODE = {"engines": {language: engine(language) for language in ("javascript", "python")}}


@asynccontextmanager
async def confirming(config: Config = Config(), **more: Any) -> AsyncGenerator[App]:
    """A gateway as it is by default, whose operator says yes to whatever waits."""
    clock = FakeClock()
    store = MemoryStore(clock)
    book = Approvals(store, clock)

    async def say_yes() -> None:
        while True:
            for request in book.requests():
                if request.state == "undecided":
                    await book.allow(request, "once", config.approvals.ttl)
            await clock.sleep(0.1)

    async with gateway(config=config, store=store, **more) as app:
        operator = asyncio.ensure_future(say_yes())
        try:
            yield app
        finally:
            operator.cancel()
            await asyncio.gather(operator, return_exceptions=True)


@asynccontextmanager
async def allowing(**more: Any) -> AsyncGenerator[App]:
    """A gateway that lets tool calls add and remove servers, and run Codex."""
    links = codex() | more.pop("links_of", {})
    async with gateway(config=Config(add_servers="allow", codex=WITH_CODEX), links_of=links, **CODE, **more) as app:
        yield app


CONSENTS = {"allowed": allowing, "confirmed": confirming}


class Asker:
    """A client of one era on one path. One that is `an_operator` comes over the operator's socket."""

    def __init__(self, app: App, era: str, path: str = "/mcp", an_operator: bool = False) -> None:
        self.era = era
        self.visitor = Visitor(app, path)
        if an_operator:
            self.visitor.client = THE_SOCKET

    async def request(self, method: str, **params: Any) -> Response:
        if self.era == "modern":
            return await self.visitor.ask_modern(method, **params)
        if "mcp-session-id" not in self.visitor.headers:
            await self.visitor.initialize(LATEST)
        return await self.visitor.ask(method, **params)

    async def result(self, method: str, **params: Any) -> Json:
        return (await self.request(method, **params)).result

    async def error(self, method: str, **params: Any) -> Json:
        return (await self.request(method, **params)).error

    async def call(self, name: str, arguments: Json | None = None) -> Json:
        """The result of a tool's call; what has no arguments says so by leaving them out."""
        given = {} if arguments is None else {"arguments": arguments}
        return await self.result("tools/call", name=name, **given)

    async def told(self, name: str, /, **arguments: Any) -> Any:
        """What the first text of a good result holds, as JSON."""
        result = await self.call(name, arguments)
        assert not result.get("isError"), result
        return read(result)

    async def failed(self, name: str, /, **arguments: Any) -> Any:
        """What the text of a failed result holds, as JSON."""
        result = await self.call(name, arguments)
        assert result["isError"] is True, result
        return read(result)

    async def listed(self, kind: str = "tools") -> list[str]:
        key = "uri" if kind == "resources" else "name"
        return [item[key] for item in (await self.result(f"{kind}/list"))[kind]]


def read(result: Json) -> Any:
    return json.loads(result["content"][0]["text"])


def tool(name: str, description: str, required: Mapping[str, str] = {}, **optional: str) -> Json:
    """A tool by the types of its parameters."""
    properties = {each: {"type": type} for each, type in {**required, **optional}.items()}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema}


SEARCH_CODE = {
    "name": "search_code",
    "description": "Search code using semantic search",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Search query"},
            "case_sensitive": {"type": "boolean", "description": "Case-sensitive search"},
        },
        "required": ["query"],
    },
}
GUIDE = {"uri": "serena://guide", "name": "guide", "description": "How to search"}


def serena() -> Scripted:
    return Scripted(
        tools_list={"tools": [SEARCH_CODE]},
        resources_list={"resources": [GUIDE]},
        resources_read={"contents": [{"uri": GUIDE["uri"], "text": "Search."}]},
        tools_call=lambda params: said("\n".join(LINES)),
    )


def playwright() -> Scripted:
    image = {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}

    def call(params: Json) -> Json:
        if params["name"] == "browser_screenshot":
            return image
        return said(f"Navigated to {params['arguments']['url']}")

    return Scripted(tools_list={"tools": offers.read(offers.PLAYWRIGHT)}, tools_call=call)


def sqlite() -> Scripted:
    return Scripted(
        tools_list={"tools": offers.read(offers.SQLITE)},
        tools_call={"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": {"rows": ROWS}},
    )


def one(*tools: Json, text: str = "done") -> Scripted:
    """A server whose tools all say the same."""
    return Scripted(tools_list={"tools": list(tools)}, tools_call=said(text))


def cast() -> dict[str, Script]:
    """The children of the examples, in the order of the first text."""
    return {
        "serena": serena(),
        "context7": one(
            tool("get-library-docs", "Get the documentation of a library. By its id.", {"libraryId": "string"}),
            text="# React",
        ),
        "codegraph": one(
            tool("query_graph", "Query the graph of the code", {"query": "string"}, limit="integer"),
            text='[{"n.name": "main"}]',
        ),
        "playwright": playwright(),
        "sqlite": sqlite(),
    }


@asynccontextmanager
async def playing(
    *names: str, config: Config | None = None, servers: tuple[Server, ...] = (), **more: Any
) -> AsyncGenerator[App]:
    """A gateway in front of these of the cast, or of all."""
    whole = cast()
    scripts = {name: whole[name] for name in names or whole}
    config = config or Config(codex=WITH_CODEX)
    async with gateway(*servers, config=config, scripts=scripts, links_of=codex(), **CODE | more) as app:
        app.port = 8765
        yield app


def at_least(shown: Any, got: Any, where: str = "it") -> None:
    """Whether a reply has every field that an example shows, each of its type; of lists, in every item."""
    if isinstance(shown, dict):
        assert isinstance(got, dict), f"{where}: {got!r} instead of an object"
        assert shown.keys() <= got.keys(), f"{where} lacks {shown.keys() - got.keys()}: {got}"
        for key, value in shown.items():
            at_least(value, got[key], f"{where}.{key}")
    elif isinstance(shown, list):
        assert isinstance(got, list), f"{where}: {got!r} instead of a list"
        assert got or not shown, f"{where} is empty"
        for number, each in enumerate(got):
            if shown:
                at_least(shown[min(number, len(shown) - 1)], each, f"{where}[{number}]")
    elif isinstance(shown, bool) or shown is None:
        assert shown is None or isinstance(got, bool), f"{where}: {got!r}"
    elif isinstance(shown, float):
        assert isinstance(got, int | float), f"{where}: {got!r}"
    else:
        assert isinstance(got, type(shown)) and not isinstance(got, bool), f"{where}: {got!r} instead of {shown!r}"
