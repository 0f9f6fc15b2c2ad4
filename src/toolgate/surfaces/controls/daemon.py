"""The control tools of seed 004: the daemon's status, its tool proxy, its servers, its sessions; Codex where that is
enabled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from toolgate import config as configs
from toolgate.catalog.base import ServerList, ServerSummary
from toolgate.config import Config
from toolgate.config.edits import table_of
from toolgate.config.settings import APPROVAL_POLICIES, SANDBOXES
from toolgate.core import items, jsonrpc, mcp, surrogates
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.search.briefs import brief
from toolgate.surfaces.controls import base, code, importing, recommending
from toolgate.surfaces.controls.base import Control, Family, Forward, Given, Object
from toolgate.surfaces.controls.context import ControlContext
from toolgate.surfaces.controls.states import IN_004
from toolgate.upstreams import checks
from toolgate.upstreams.base import Status

# Fault code → `error_type` (behaviour.md, "004 daemon tools").
ERROR_TYPES: Mapping[str, str] = {
    "INVALID_ARGS": "ValueError",
    "SERVER_NOT_FOUND": "KeyError",
    **dict.fromkeys(mcp.MISSING, "KeyError"),
    "ACCESS_DENIED": "PermissionError",
    "APPROVAL_DENIED": "PermissionError",
    "TIMEOUT": "TimeoutError",
    "SERVER_FAILED": "ConnectionError",
}


def _wrap(given: Given, call: Call, raw: Raw | bytes) -> Object:
    if call.method != mcp.CALL:
        return base.text({"success": True, "result": msgspec.Raw(raw)})
    body = base.take_apart(raw)
    if body.is_error:
        said = {"success": False, "error": body.text, "error_type": "ToolError"}
        return base.joined(said, body, is_error=True)
    body.rest.pop("structuredContent", None)  # it is the result now
    return base.joined({"success": True, "result": _result(body)}, body, is_error=False)


def _result(body: base.Body) -> Any:
    """The structured content, else the text as JSON where it is that, else the text."""
    if body.structured is not None:
        return body.structured
    try:
        return Raw(jsonrpc.encode(jsonrpc.read(surrogates.escaped(body.text), Raw)))
    except jsonrpc.UNREADABLE:
        return body.text


def _fail(control: Control, given: Given, fault: Fault) -> Object:
    said = {"success": False, "error": fault.message, "error_type": ERROR_TYPES.get(fault.code, "RuntimeError")}
    return base.text(said | base.what_helps(fault), isError=True)


FAMILY = Family(_wrap, _fail, base.text)

_SERVER = {"type": "string", "description": "Server name"}


async def status(given: Given, context: ControlContext) -> Object:
    gateway_info = context.gateway.gateway_info
    seconds = int(gateway_info.wall() - gateway_info.started)
    servers = [_state(server, context.gateway.status(id)) for id, server in context.gateway.configured.items()]
    return {
        "status": "running",
        "uptime": _spoken(seconds),
        "uptime_seconds": seconds,
        "pid": gateway_info.pid,
        "port": gateway_info.port(),
        "version": gateway_info.version,
        "mcp_servers": servers,
        "mcp_server_count": len(servers),
        "formatted_message": _table(_spoken(seconds), servers),
        "tokens": await context.gateway.tokens(),
        **({"config_error": problem} if context.gateway.is_whole and (problem := gateway_info.problem()) else {}),
    }


def _state(server: ServerSummary, status: Status) -> Object:
    state = IN_004[status.state]
    said = {"name": server.name, "state": state, "connected": state == "connected", "transport": _transport(server)}
    why = {"error": status.error} | ({"hint": status.hint} if status.hint else {})
    return said | (why if state == "failed" else {})


def _transport(server: ServerSummary) -> str:
    return {"ws": "websocket"}.get(server.type, server.type)


def _spoken(seconds: int) -> str:
    """8130 → "2h 15m 30s"."""
    hours, minutes = divmod(seconds // 60, 60)
    parts = [(hours, "h"), (minutes, "m")]
    shown = [f"{number}{unit}" for at, (number, unit) in enumerate(parts) if any(n for n, _ in parts[: at + 1])]
    return " ".join([*shown, f"{seconds % 60}s"])


def _table(uptime: str, servers: list[Object]) -> str:
    width = max((len(server["name"]) for server in servers), default=0)
    lines = [f"toolgate is running, up {uptime}, {len(servers)} servers"]
    lines += [f"  {server['name']:<{width}}  {server['state']:<12} {server['transport']}" for server in servers]
    return "\n".join(lines)


async def list_mcp_servers(given: Given, context: ControlContext) -> Object:
    return {
        "servers": [
            {
                "name": server.name,
                "project_id": server.project or context.gateway.gateway_info.project,
                "description": server.description,
                **{key: value for key, value in _state(server, context.gateway.status(id)).items() if key != "name"},
            }
            for id, server in context.gateway.configured.items()
        ]
        + [{"name": name, "state": "disabled", "connected": False} for name in context.gateway.disabled.values()]
    }


async def list_tools(given: Given, context: ControlContext) -> Any:
    one = base.find_server(given["server"], context.gateway.names) if "server" in given else None
    servers = [one] if one else list(context.gateway.servers)
    view = await context.gateway.lists([(id, "tools") for id in servers])
    if one:
        server_list = view.server_list(one, "tools")
        if server_list is None:
            raise view.fault(one, "tools") or base.not_listed_yet(one)
        told = {"success": True, "server": view.servers[one], "tools": base.LIST}
        return base.OfLists(told, [await _briefs(server_list, context)])
    listed: list[Object] = []
    parts: list[base.Part] = []
    for id in servers:
        server_list, fault = view.server_list(id, "tools"), view.fault(id, "tools")
        said: dict[str, Any] = {"name": view.servers[id], "tools": base.LIST if server_list else []}
        parts += [await _briefs(server_list, context)] if server_list else []
        listed.append(said | ({"error": fault.message} if fault else {} if server_list else {"pending": True}))
    return base.OfLists({"success": True, "servers": listed}, parts)


async def _briefs(server_list: ServerList, context: ControlContext) -> base.Part:
    """A line on each tool of a list."""
    return await base.part(server_list, "briefs", partial(_in_lines, server_list), context.client)


def _in_lines(server_list: ServerList) -> Mapping[str, Object]:
    return {name: _in_a_line(items.read(raw)) for name, raw in server_list.items.items()}


def _in_a_line(tool: items.Item) -> Object:
    return {"name": tool.name, "brief": brief(tool.description)}


async def get_tool_schema(given: Given, context: ControlContext) -> Any:
    id, tool = base.find_server(given["server_name"], context.gateway.names), given["tool_name"]
    view = await context.gateway.lists([(id, "tools")])
    base.check_offered(id, "tools", tool, view)
    server_list = view.server_list(id, "tools")
    assert server_list
    told = {"success": True, "server": view.servers[id], "tool": base.VALUE}
    made = await base.part(server_list, f"tool {tool}", lambda: {tool: server_list.items[tool]}, context.client)
    return base.OfLists(told, [made])


def table_of_new(given: Given) -> Mapping[str, Any]:
    """The server that the arguments of `add_mcp_server` describe, as a native file has it."""
    keys = {key: value for key, value in given.items() if key not in ("name", "transport", "dryRun")}
    decoded = {key: jsonrpc.value(value) if isinstance(value, Raw) else value for key, value in keys.items()}
    return table_of(given["transport"], **decoded)


def planned(given: Given, asks: bool) -> Object:
    """What a call of `add_mcp_server` would do that is to do nothing, and what `preflight` says of such a server
    without starting it. `asks`: a person would be asked first."""
    table = table_of_new(given)
    said: dict[str, Any] = {
        "success": True,
        "dryRun": True,
        "name": given["name"],
        "transport": given["transport"],
        "asks_first": asks,
        **{key: table[key] for key in ("url", "command", "args") if key in table},
        **{key: sorted(table[key]) for key in ("env", "headers") if key in table},
    }
    (server,) = configs.with_own(Config(), {given["name"]: table}, {}).servers
    found = [
        {"check": each.check, "level": each.level, "says": each.says, **({"fix": each.fix} if each.fix else {})}
        for each in checks.of_server(server, os.environ)
    ]
    return {**said, "ok": not any(each["level"] == "problem" for each in found), "checks": found}


async def add_mcp_server(given: Given, context: ControlContext) -> Any:
    if given.get("dryRun"):
        return planned(given, asks=True)
    id = await context.gateway.add(given["name"], table_of_new(given), context)
    said = {"success": True, "name": given["name"], "transport": given["transport"]}
    if id not in context.gateway.servers:
        return {**said, "state": "disabled", "tools": []}
    view = await context.gateway.lists([(id, "tools")])
    server_list, fault = view.server_list(id, "tools"), view.fault(id, "tools")
    status = context.gateway.status(id)
    parts = [await _briefs(server_list, context)] if server_list else []
    told: Object = {**said, "state": IN_004[status.state], "tools": base.LIST if parts else []}
    if fault:
        hint = status.hint or fault.hint
        told = {**told, "error": fault.message, **({"hint": hint} if hint else {})}
    return base.OfLists(told, parts)


async def remove_mcp_server(given: Given, context: ControlContext) -> Object:
    known = {**context.gateway.names, **context.gateway.disabled}
    name = known[base.find_server(given["name"], known)]
    await context.gateway.remove(name)
    return {"success": True, "name": name, "removed": True}


async def call_hook(given: Given, context: ControlContext) -> Object:
    return await context.gateway.hook(given, context)


async def by_codex(given: Given, context: ControlContext) -> Object:
    return await context.gateway.codex(context.call.target, given, context)


LARGEST_TABLE = 256 * 1024  # bytes of what describes a server: each word of it is looked at as a possible secret
LARGEST_IMPORT = 1024 * 1024
MOST_THREADS = 100  # on one page
_MORE = "Default: the most that the operator allows, up to "

CONTROLS = (
    Control(
        "status", FAMILY, "Show the state of the gateway: its uptime, and the state of all MCP servers.", work=status
    ),
    Control(
        "list_mcp_servers",
        FAMILY,
        "List all configured MCP servers and whether they are connected.",
        work=list_mcp_servers,
    ),
    Control(
        "call_tool",
        FAMILY,
        "Execute a tool of an MCP server. See list_tools and get_tool_schema first.",
        {
            "server_name": _SERVER,
            "tool_name": {"type": "string", "description": "Name of the tool to execute"},
            "arguments": {"type": "object", "description": "Tool-specific arguments"},
        },
        ("server_name", "tool_name"),
        forward=Forward("server_name", "tool_name", "arguments"),
    ),
    Control(
        "list_tools",
        FAMILY,
        "List the tools of one MCP server, or of all, with one line for each.",
        {"server": {"type": "string", "description": "Server name. If omitted, all servers."}},
        work=list_tools,
        aliases={"server_name": "server"},
    ),
    Control(
        "get_tool_schema",
        FAMILY,
        "Show one tool of an MCP server in full, with the schema of its arguments.",
        {"server_name": _SERVER, "tool_name": {"type": "string", "description": "Tool name"}},
        ("server_name", "tool_name"),
        work=get_tool_schema,
    ),
    Control(
        "read_mcp_resource",
        FAMILY,
        "Read a resource of an MCP server.",
        {"server_name": _SERVER, "resource_uri": {"type": "string", "description": "URI of the resource"}},
        ("server_name", "resource_uri"),
        forward=Forward("server_name", "resource_uri", method="resources/read"),
    ),
    Control(
        "add_mcp_server",
        FAMILY,
        "Add an MCP server. It is checked, a person approves it, and it is stored, started and listed at once.",
        {
            "name": {"type": "string", "description": "Unique server name"},
            "transport": {"type": "string", "enum": ["http", "stdio", "websocket", "sse"]},
            "url": {"type": "string", "description": "Server URL (http, websocket, sse)"},
            "headers": {"type": "object", "description": "Custom HTTP headers"},
            "command": {"type": "string", "description": "Command to run (stdio)"},
            "args": {"type": "array", "description": "Command arguments"},
            "env": {"type": "object", "description": "Environment variables"},
            "enabled": {"type": "boolean", "default": True, "description": "Whether it is enabled"},
            "dryRun": {"type": "boolean", "default": False, "description": "Say what would be added, and add nothing"},
        },
        ("name", "transport"),
        work=add_mcp_server,
        changes=True,
        largest=LARGEST_TABLE,
    ),
    Control(
        "remove_mcp_server",
        FAMILY,
        "Remove an MCP server that was added. A person is asked first.",
        {"name": {"type": "string", "description": "Server name to remove"}},
        ("name",),
        work=remove_mcp_server,
        changes=True,
    ),
    Control(
        "import_mcp_server",
        FAMILY,
        "Import MCP servers from exactly one source: another project, a GitHub repository or a search of registries. A "
        "person approves each; what lacks a secret is returned with what is missing.",
        {
            "from_project": {"type": "string", "description": "Source project name to import from"},
            "servers": {"type": "array", "description": "Specific server names to import (all if omitted)"},
            "github_url": {"type": "string", "description": "GitHub repository URL"},
            "query": {"type": "string", "description": "Natural language search query"},
            "content": {"type": "string", "description": "With github_url: its server.json, .mcp.json or README"},
        },
        work=importing.import_mcp_server,
        check=importing.check,
        changes=True,
        largest=LARGEST_IMPORT,
    ),
    Control(
        "call_hook",
        FAMILY,
        "Report an event in your session, for programs without hooks of their own: SessionStart restores what an "
        "earlier session has left, PromptSubmit gives the session a title, Stop pauses it, SessionEnd summarizes it.",
        {
            "hook_type": {"type": "string", "description": "SessionStart, PromptSubmit, Stop, SessionEnd, and others"},
            "params": {"type": "object", "description": "session_id, and what the hook tells: source, prompt, cwd"},
            "source": {"type": "string", "description": 'Which program it is, such as "Codex" or "Gemini"'},
        },
        ("hook_type",),
        work=call_hook,
        changes=True,
    ),
    Control(
        "execute_code",
        FAMILY,
        "Run Python (or JavaScript) in a sandbox, without network and files. It may call the tools of MCP servers: "
        "`servers.NAME.TOOL(argument=...)`. The result is the last expression's value, else the variable `result`, "
        "else what was printed.",
        {
            "code": {"type": "string", "description": "Code to execute"},
            "language": {"type": "string", "description": "python (default) or javascript"},
            "context": {"type": "string", "description": "Instructions for a model, where one is configured"},
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "maximum": int(code.LONGEST),
                "default": int(code.USUAL),
                "description": "Max execution time in seconds",
            },
        },
        ("code",),
        work=code.execute_code,
        needs="python",
    ),
    Control(
        "process_large_dataset",
        FAMILY,
        "Filter, sort, group, count and cut a large list of records without reading it: say in English what to do, or "
        "give parameters.sql (one SELECT from the table `data`), .steps or .code (Python, with `data`). For example "
        '"top 5 by price", "count by status", "average price by category". What is not understood is refused.',
        {
            "data": {"type": ["array", "object"], "description": "Dataset to process"},
            "operation": {"type": "string", "description": "What to do, in English"},
            "parameters": {"type": "object", "description": "sql, steps or code; path to the records within the data"},
            "timeout": {
                "type": "integer",
                "minimum": 1,
                "maximum": int(code.LONGEST),
                "default": int(code.USUAL),
                "description": "Max execution time in seconds",
            },
        },
        ("data", "operation"),
        work=code.process_large_dataset,
        needs="own",
    ),
    Control(
        "recommend_tools",
        FAMILY,
        "Recommend tools for a task: which servers and tools fit, how sure that is, and why.",
        {
            "task_description": {"type": "string", "description": "What you're trying to accomplish"},
            "agent_id": {"type": "string", "description": "Agent profile ID for filtering: a bundle of tools"},
        },
        ("task_description",),
        work=recommending.recommend_tools,
    ),
    Control(
        "codex",
        FAMILY,
        "Run a prompt with Codex, an agent that reads and changes files and runs commands, and wait for its answer. A "
        "person is asked first.",
        {
            "prompt": {"type": "string", "description": "User prompt"},
            "thread_id": {"type": "string", "description": "Continue existing thread"},
            "cwd": {
                "type": "string",
                "description": "Working directory, an absolute path. Default: the thread's, else the gateway's",
            },
            "model": {"type": "string", "description": "Model override"},
            "sandbox": {
                "type": "string",
                "enum": list(SANDBOXES),
                "description": f"Sandbox mode. {_MORE}workspace-write",
            },
            "approval_policy": {
                "type": "string",
                "enum": list(APPROVAL_POLICIES),
                "description": f"Approval policy. {_MORE}on-request",
            },
        },
        ("prompt",),
        work=by_codex,
        changes=True,
        needs="codex",
    ),
    Control(
        "codex_list_threads",
        FAMILY,
        "List Codex conversation threads, the newest first. A person is asked first.",
        {
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_THREADS,
                "default": 20,
                "description": "The maximum number of threads",
            },
            "cursor": {"type": "string", "description": "The `next_cursor` of the previous page"},
        },
        work=by_codex,
        needs="codex",
    ),
    Control(
        "codex_archive_thread",
        FAMILY,
        "Archive a Codex thread: it is no longer listed. A person is asked first.",
        {"thread_id": {"type": "string", "description": "The thread to archive"}},
        ("thread_id",),
        work=by_codex,
        changes=True,
        needs="codex",
    ),
)
