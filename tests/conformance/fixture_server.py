"""The server that the conformance suite is run against: official SDK, low level, both eras, over HTTP or stdio.

    python tests/conformance/fixture_server.py --port 0     # says its URL on its first line of output; loopback only
    python tests/conformance/fixture_server.py --stdio

`--era legacy` or `--era modern` makes it a server of that era alone, which the other era's clients reach only through
a gateway. What it offers is in `fixture_offers.py`, how it asks in `fixture_call.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import fixture_offers as offers
import mcp.types as types
import uvicorn
from fixture_call import TASKS, Call, InputRequired, Object, Tasks, ToolFailed, lacks
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.inbound import decode_header_value
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

# Sampling, roots and logging are deprecated since 2026-07-28; this server is there to speak them.
warnings.filterwarnings("ignore", category=MCPDeprecationWarning)

Context = ServerRequestContext[Any, Any]
Handler = Callable[[Context, Any], Awaitable[Any]]
NAME = "conformance-fixture"
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
HINTS: dict[Any, CacheHint] = {method: CacheHint(ttl_ms=0, scope="private") for method in (*LISTS, "server/discover")}


@dataclass
class World:
    """What lives as long as the server does."""

    tasks: Tasks = field(default_factory=Tasks)
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    levels: dict[str, types.LoggingLevel] = field(default_factory=dict)
    subscribers: dict[str, dict[str, ServerSession]] = field(default_factory=dict)

    def log_level(self, ctx: Context) -> types.LoggingLevel:
        return self.levels.get(session_id(ctx), "debug")

    async def announce(self, ctx: Context, event: ServerEvent, notification: types.ServerNotification) -> None:
        """To every modern client that listens, and to the legacy session that this call came in."""
        await self.bus.publish(event)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await ctx.session.send_notification(notification)

    async def updated(self, event: ResourceUpdated) -> None:
        await self.bus.publish(event)
        for session in self.subscribers.get(event.uri, {}).values():
            await session.send_resource_updated(event.uri)


def session_id(ctx: Context) -> str:
    return ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""


WORLD = World()
listen = ListenHandler(WORLD.bus)


@asynccontextmanager
async def lifespan(_: Server[World]) -> AsyncIterator[World]:
    try:
        yield WORLD
    finally:
        await WORLD.tasks.end()


# -- handlers: dictionaries out, complete unless they say otherwise ---------------------------------------------------


def answers(handler: Handler) -> Handler:
    """Only 2026-07-28 knows `resultType`; the SDK leaves it out for legacy clients."""

    async def handle(ctx: Context, params: Any) -> Object:
        return {"resultType": "complete"} | await handler(ctx, params)

    return handle


@answers
async def list_tools(ctx: Context, params: Any) -> Object:
    return {"tools": [tool.listed() for tool in offers.TOOLS.values()]}


@answers
async def list_prompts(ctx: Context, params: Any) -> Object:
    return {"prompts": [prompt.listed() for prompt in offers.PROMPTS.values()]}


@answers
async def list_resources(ctx: Context, params: Any) -> Object:
    return {"resources": offers.resources()}


@answers
async def list_templates(ctx: Context, params: Any) -> Object:
    return {"resourceTemplates": offers.templates()}


@answers
async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Object:
    call = Call(ctx, ctx.params or {})
    tool = offers.TOOLS.get(params.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    if tool.task in ("must", "after asking") and not call.does_tasks:
        raise lacks({"extensions": {TASKS: {}}})
    if tool.task in ("may", "must") and call.does_tasks:
        return WORLD.tasks.start(call, tool.result)
    try:
        return await tool.result(call)
    except InputRequired as needed:
        return needed.result
    except ToolFailed as failed:
        return {"content": [offers.text(str(failed))], "isError": True}


@answers
async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Object:
    prompt = offers.PROMPTS.get(params.name)
    if prompt is None or set(prompt.arguments) - (params.arguments or {}).keys():
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt or missing arguments: {params.name}")
    try:
        return await prompt.result(Call(ctx, ctx.params or {}))
    except InputRequired as needed:
        return needed.result


@answers
async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> Object:
    found = offers.contents(str(params.uri))
    if found is None:
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        raise MCPError(types.INVALID_PARAMS if is_modern else -32002, "Resource not found", {"uri": str(params.uri)})
    return {"contents": [found]}


@answers
async def complete(ctx: Context, params: types.CompleteRequestParams) -> Object:
    values = [word for word in offers.SUGGESTIONS if word.startswith(params.argument.value)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


async def set_level(ctx: Context, params: types.SetLevelRequestParams) -> Object:
    WORLD.levels[session_id(ctx)] = params.level
    return {}


async def subscribe(ctx: Context, params: types.SubscribeRequestParams) -> Object:
    WORLD.subscribers.setdefault(str(params.uri), {})[session_id(ctx)] = ctx.session
    return {}


async def unsubscribe(ctx: Context, params: types.UnsubscribeRequestParams) -> Object:
    WORLD.subscribers.get(str(params.uri), {}).pop(session_id(ctx), None)
    return {}


# -- the tasks extension: the SDK has no part of it yet ---------------------------------------------------------------


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: Object = {}


def of_tasks(act: Callable[[TaskParams], Object | None]) -> Handler:
    """A handler of `tasks/...`: for modern clients that declare the extension, with the task's id in the header."""

    @answers
    async def handle(ctx: Context, params: TaskParams) -> Object:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
        if ctx.request is not None and decode_header_value(ctx.request.headers.get("mcp-name", "")) != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, "Mcp-Name is not the task's id")
        if not Call(ctx, {}).does_tasks:
            raise lacks({"extensions": {TASKS: {}}})
        return act(params) or {}

    return handle


TASK_METHODS: dict[str, Callable[[TaskParams], Object | None]] = {
    "tasks/get": lambda params: WORLD.tasks.get(params.task_id),
    "tasks/update": lambda params: WORLD.tasks.find(params.task_id).update(params.input_responses),
    "tasks/cancel": lambda params: WORLD.tasks.cancel(params.task_id),
}


# -- the server -------------------------------------------------------------------------------------------------------


class Events(EventStore):
    """The last events of all streams, for clients that come back with `Last-Event-ID`."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, str, types.JSONRPCMessage | None]] = deque(maxlen=2000)
        self._last = 0

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._last += 1
        self._events.append((self._last, stream_id, message))
        return str(self._last)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream = next((stream for id, stream, _ in self._events if str(id) == last_event_id), None)
        missed = [event for event in self._events if event[1] == stream and event[0] > int(last_event_id)]
        for id, _, message in missed:
            if message is not None:
                await send_callback(EventMessage(message, str(id)))
        return stream


async def modern_only(ctx: Context, call_next: CallNext) -> HandlerResult:
    if ctx.method == "initialize" and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        supported = list(MODERN_PROTOCOL_VERSIONS)
        requested = (ctx.params or {}).get("protocolVersion")
        data = {"supported": supported, "requested": requested}
        raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
    return await call_next(ctx)


ERAS = ("both", "modern", "legacy")


def build(era: str) -> Server[World]:
    server: Server[World] = Server(
        NAME, version="1", instructions="For tests.", lifespan=lifespan, cache_hints=HINTS,
        on_list_tools=list_tools, on_call_tool=call_tool, on_list_prompts=list_prompts, on_get_prompt=get_prompt,
        on_list_resources=list_resources, on_list_resource_templates=list_templates, on_read_resource=read_resource,
        on_subscribe_resource=subscribe, on_unsubscribe_resource=unsubscribe, on_completion=complete,
        on_set_logging_level=set_level, on_subscriptions_listen=listen,
    )  # fmt: skip
    for method, act in TASK_METHODS.items():
        server.add_request_handler(method, TaskParams, of_tasks(act))
    server.extensions[TASKS] = {}
    sealing = RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME)
    server.middleware += [modern_only, sealing] if era == "modern" else [sealing]
    # Legacy clients are told of changes too; the SDK's HTTP app asks the server for its options without saying so.
    tells = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    options = server.create_initialization_options
    server.create_initialization_options = lambda *given, **more: options(tells, *given[1:], **more)
    return server


def as_old_servers_do(app: ASGIApp) -> ASGIApp:
    """A server of the handshake era over HTTP: it refuses a revision that it has never heard of with status 400."""
    error = {"code": types.INVALID_REQUEST, "message": "Bad Request: Unsupported protocol version"}
    refusal = JSONResponse({"jsonrpc": "2.0", "id": "server-error", "error": error}, status_code=400)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers") or [])
        is_modern = headers.get(b"mcp-protocol-version", b"").decode("latin-1") in MODERN_PROTOCOL_VERSIONS
        await (refusal if is_modern else app)(scope, receive, send)

    return serve


def serve_http(port: int, era: str) -> None:
    app: ASGIApp = build(era).streamable_http_app(event_store=Events(), retry_interval=100)
    door = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{door.getsockname()[1]}/mcp", flush=True)
    # h11, because httptools leaves the blanks at the end of a header's value, which HTTP says are no part of it.
    config = uvicorn.Config(as_old_servers_do(app) if era == "legacy" else app, log_level="warning", http="h11")
    uvicorn.Server(config).run(sockets=[door])


async def serve_stdio(era: str) -> None:
    server = build(era)
    async with stdio_server() as (reading, writing):
        if era == "legacy":
            await serve_loop(server, reading, writing, lifespan_state=WORLD)
        else:
            await server.run(reading, writing, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--stdio", action="store_true")
    where.add_argument("--port", type=int)
    parser.add_argument("--era", choices=ERAS, default="both")
    given = parser.parse_args()
    if given.stdio:
        asyncio.run(serve_stdio(given.era))
    else:
        serve_http(given.port, given.era)


if __name__ == "__main__":
    main()
