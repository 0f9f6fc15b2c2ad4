"""The control tools of seed 000: child servers, their tools, their state."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Raw

from toolgate.catalog.base import ServerList, ServerSummary
from toolgate.core import excerpts, items, jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.surfaces.controls import base
from toolgate.surfaces.controls.base import Control, Family, Forward, Given, Object
from toolgate.surfaces.controls.context import ControlContext
from toolgate.surfaces.controls.states import IN_000
from toolgate.upstreams.base import Status


def _wrap(given: Given, call: Call, raw: Raw | bytes) -> Object:
    body = base.take_apart(raw)
    if body.is_error:
        return base.joined({"error": body.text, "status": "failed", "code": "TOOL_ERROR"}, body, is_error=True)
    cut = excerpts.read_ends(given).cut(body.text)
    told = cut.members() if cut.is_truncated else {}
    return base.joined({"result": cut.text, "status": "success", **told}, body, is_error=False)


def _fail(control: Control, given: Given, fault: Fault) -> Object:
    said = {"error": fault.message, "status": "failed", "code": fault.code} | base.what_helps(fault)
    return base.text(said, isError=True)


FAMILY = Family(_wrap, _fail, base.text)

_SERVER = {"type": "string", "description": "Name of the child server"}
_CHILD_NAME = {"child_name": "server_id"}


async def get_schema(given: Given, context: ControlContext) -> Any:
    id = base.find_server(given["server_id"], context.gateway.names)
    view = await context.gateway.lists([(id, "tools"), (id, "resources")])
    server_list = view.server_list(id, "tools")
    if server_list is None:
        raise view.fault(id, "tools") or base.not_listed_yet(id)
    resources = view.server_list(id, "resources")
    parts = [await base.part(server_list, "schemas", partial(_of_each, _described, server_list), context.client)]
    if resources:
        parts.append(await base.part(resources, "places", partial(_of_each, _located, resources), context.client))
    return base.OfLists({"tools": base.LIST, "resources": base.LIST if resources else []}, parts)


def _of_each(told: Callable[[Raw], Object], server_list: ServerList) -> Mapping[str, Object]:
    return {name: told(raw) for name, raw in server_list.items.items()}


def _described(raw: Raw) -> Object:
    tool = items.read(raw)
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.inputSchema or jsonrpc.EMPTY_OBJECT,
    }


def _located(raw: Raw) -> Object:
    found = items.read(raw)
    return {"uri": found.uri, "name": found.name, "description": found.description}


async def list_registered_children(given: Given, context: ControlContext) -> Object:
    children = [server.name for server in context.gateway.configured.values()]
    return {"children": children, "count": len(children)}


async def get_child_status(given: Given, context: ControlContext) -> Object:
    if "server_id" in given:
        id = base.find_server(given["server_id"], context.gateway.names)
        return _status(context.gateway.servers[id], context.gateway.status(id))
    found = [_status(server, context.gateway.status(id)) for id, server in context.gateway.configured.items()]
    return {"children": found, "count": len(found)}


def _status(server: ServerSummary, status: Status) -> Object:
    shown = IN_000[status.state]
    said: dict[str, Any] = {"server_id": server.name, "status": shown}
    if shown == "running":
        said["startup_time"] = instant(status.started)
        if status.pid:
            said["pid"] = status.pid
    elif shown == "failed":
        said |= {"error": status.error, "stderr": status.stderr}
        if status.hint:
            said["hint"] = status.hint
    elif status.state == "configured":
        said["reason"] = "not_started"
    elif status.stopped_by:
        said["reason"] = status.stopped_by
    return said


def instant(seconds: float | None) -> str | None:
    """Seconds since 1970 as "2024-01-15T10:30:00Z"."""
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


async def close_child_session(given: Given, context: ControlContext) -> Object:
    id = base.find_server(given["server_id"], context.gateway.names)
    name, status = context.gateway.names[id], context.gateway.status(id)
    up = IN_000[status.state] == "running" and status.started is not None
    seconds = int(max(0.0, context.gateway.gateway_info.wall() - (status.started or 0.0))) if up else 0
    await context.gateway.stop(id)
    return {
        "server_id": name,
        "status": "closed",
        "message": "Session closed successfully" if up else "There was no open session; the next call starts one",
        "uptime": f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}",
    }


CONTROLS = (
    Control(
        "execute_child_tool",
        FAMILY,
        "Execute a tool of a registered child MCP server. Ask get_schema for its arguments first.",
        {
            "server_id": _SERVER,
            "tool_name": {"type": "string", "description": "Name of the tool to execute on the child server"},
            "arguments": {"type": "object", "description": "Arguments of that tool, as in its schema"},
            "head": {"type": "integer", "minimum": 0, "description": "Number of output lines to include from start"},
            "tail": {"type": "integer", "minimum": 0, "description": "Number of output lines to include from end"},
            "head_chars": {
                "type": "integer",
                "minimum": 0,
                "description": "Number of characters to include from start",
            },
            "tail_chars": {"type": "integer", "minimum": 0, "description": "Number of characters to include from end"},
        },
        ("server_id", "tool_name", "arguments"),
        forward=Forward("server_id", "tool_name", "arguments"),
        aliases=_CHILD_NAME | {"tool_args": "arguments"},
        check=excerpts.read_ends,
    ),
    Control(
        "get_schema",
        FAMILY,
        "Show the tools and resources of a child MCP server, with the schemas of their arguments.",
        {"server_id": _SERVER},
        ("server_id",),
        work=get_schema,
        aliases=_CHILD_NAME,
    ),
    Control(
        "list_registered_children", FAMILY, "List all registered child MCP servers.", work=list_registered_children
    ),
    Control(
        "get_child_status",
        FAMILY,
        "Show the state of a child MCP server: running, starting, stopped, or failed with its error and stderr. "
        "Without server_id: all of them.",
        {"server_id": _SERVER},
        work=get_child_status,
        aliases=_CHILD_NAME,
    ),
    Control(
        "close_child_session",
        FAMILY,
        "Terminate a child MCP server's session. The next call starts it again.",
        {"server_id": _SERVER},
        ("server_id",),
        work=close_child_session,
        aliases=_CHILD_NAME,
        changes=True,
    ),
)


# The two resources.


async def server_summary(context: ControlContext) -> Object:
    return {
        "total_children": len(context.gateway.configured),
        "active_sessions": sum(
            IN_000[context.gateway.status(id).state] == "running" for id in context.gateway.configured
        ),
        "config_path": context.gateway.gateway_info.source,
        "version": context.gateway.gateway_info.version,
    }


async def children_servers(context: ControlContext) -> Object:
    children = [
        _child(server, context.gateway.status(id), context.gateway.known(id, "tools"))
        for id, server in context.gateway.configured.items()
    ]
    return {"children": children, "count": len(children)}


def _child(server: ServerSummary, status: Status, tools: ServerList | None) -> Object:
    session = {"startup_time": instant(status.started), "pid": status.pid, "calls": status.calls}
    return {
        "name": server.name,
        "status": IN_000[status.state],
        "config": {"type": server.type, **server.told},
        "session": session if IN_000[status.state] == "running" else None,
        "tool_count": len(tools.items) if tools else None,
    }


RESOURCES: Mapping[str, tuple[str, str, Any]] = {
    "mcp://server_summary": ("server_summary", "A summary of this gateway and its configuration", server_summary),
    "mcp://children_servers": ("children_servers", "All child servers: state, configuration, tools", children_servers),
}


def listed_resources(is_permitted: Callable[[str], bool]) -> tuple[Raw, ...]:
    return tuple(
        Raw(jsonrpc.encode({"uri": uri, "name": name, "description": said, "mimeType": "application/json"}))
        for uri, (name, said, _) in RESOURCES.items()
        if is_permitted(uri)
    )
