"""The control tools of seed 002: discovery across servers, and calls to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from toolgate.catalog.base import ServerList, ServerSummary, View
from toolgate.core import items, jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.search import Hit, signatures
from toolgate.surfaces.controls import base, code
from toolgate.surfaces.controls.base import Control, Family, Forward, Given, Object
from toolgate.surfaces.controls.context import ControlContext
from toolgate.surfaces.controls.states import IN_002
from toolgate.upstreams.base import Status


def _wrap(given: Given, call: Call, raw: Raw | bytes) -> Object:
    """The server's own result, as it is."""
    return jsonrpc.members(raw)


def _fail(control: Control, given: Given, fault: Fault) -> Object:
    said = fault.message
    if control.forward and {"tool", "server"} <= given.keys():
        called = f"{given['tool']} on {given['server']}"
        if len(called) <= 2 * base.LONGEST_NAMED:  # else the fault says so, and nobody reads it in between
            said = f"Error calling {called}: {fault.message}"
    if fault.hint and fault.hint not in said:
        said = f"{said} ({fault.hint})"
    if "schema" in fault.extra:  # a model has nothing else of this reply
        said = f"{said}\nThe schema of the arguments: {jsonrpc.encode(fault.extra['schema']).decode()}"
    return {"content": [{"type": "text", "text": said}], "isError": True}


FAMILY = Family(_wrap, _fail, base.text)


def _refuse(control: Control, given: Given, fault: Fault) -> Object:
    """What was refused before the code ran."""
    said = fault.message if not fault.hint or fault.hint in fault.message else f"{fault.message} ({fault.hint})"
    return {"content": [{"type": "text", "text": f"{control.name} error: {said}"}], "isError": True}


OF_CODE = Family(_wrap, _refuse, lambda said: said)


async def mcp_discover(given: Given, context: ControlContext) -> Any:
    one = base.find_server(given["server"], context.gateway.names) if "server" in given else None
    known = context.gateway.servers if one or "query" in given else context.gateway.configured
    servers = [one] if one else list(known)
    wanted = [(id, "tools") for id in servers]
    view = await context.gateway.lists(wanted)
    return base.unless_pending(await _discovered(given, context, known, one, view), wanted, view, context)


async def _discovered(
    given: Given, context: ControlContext, known: Mapping[str, ServerSummary], one: str | None, view: View
) -> Any:
    servers = [one] if one else list(known)
    if "query" in given:
        hits = await context.gateway.search(given["query"], servers=servers, limit=given.get("limit", 10))
        budget = signatures.Budget(_MOST_OF_A_SEARCH)
        return [_found(hit, context, given.get("format"), budget) for hit in hits]
    if not one:
        return [
            _summary(known[id], context.gateway.status(id), view.server_list(id, "tools"))
            for id in servers
            if id in context.gateway.servers
        ]
    server_list = view.server_list(one, "tools")
    said = _summary(known[one], context.gateway.status(one), server_list)
    if server_list:
        part, note = await _all_told(one, server_list, given.get("format"), context)
        return base.OfLists({**said, "tools": base.LIST, **({"note": note} if note else {})}, [part])
    fault = view.fault(one, "tools")
    return {**said, "tools": [], **({"error": fault.message} if fault else {})}


def _summary(server: ServerSummary, status: Status, tools: ServerList | None) -> Object:
    return {
        "name": server.name,
        "state": IN_002[status.state],
        "toolCount": len(tools.items) if tools else None,
        "criticality": server.criticality,
    }


async def mcp_provision(given: Given, context: ControlContext) -> Any:
    """A tool that is here answers first; stop words and what is merely possible answer nothing."""
    intent = " ".join(filter(None, (given["intent"].strip(), given.get("context", "").strip())))
    if len(intent) > _LONGEST_INTENT:
        message = f"Invalid arguments: `intent` and `context` have {len(intent):,} characters"
        raise Fault("INVALID_ARGS", f"{message}; the limit is {_LONGEST_INTENT:,}", reach="not_sent")
    source = given.get("source")
    servers = [] if source == "registry" else list(context.gateway.servers)
    wanted = [(id, "tools") for id in servers]
    view = await context.gateway.lists(wanted)
    hits = await context.gateway.search(intent, servers=servers, limit=_MOST_LOCAL)
    local = [_local(hit, context) for hit in hits if hit.verdict == "match"]
    if local:
        return {"source": "local", "tools": local}
    judges, is_dry = given.get("autoProvision", False), given.get("dryRun", False)
    looks_further = source != "local"
    said = await context.gateway.provision(intent, judges, is_dry, context) if looks_further else _NONE
    return base.unless_pending(said, wanted, view, context)


_NONE: Object = {"source": "none", "matches": []}


_LONGEST_INTENT = 2000  # characters
_MOST_LOCAL = 5


def _local(hit: Hit, context: ControlContext) -> Object:
    found = hit.document
    return {
        "tool": found.name,
        "server": context.gateway.servers[found.server].name,
        "description": found.description,
        "confidence": round(hit.confidence, 2),
    }


# What is looked at of schemas (see `signatures.Budget`): of a search's hits at once, of a list beside the event loop.
_MOST_OF_A_SEARCH, _MOST_OF_A_LIST = 5_000, 30_000


def _found(hit: Hit, context: ControlContext, format: str | None, budget: signatures.Budget) -> Object:
    found = hit.document
    said: dict[str, Any] = {
        "tool": found.name,
        "server": context.gateway.servers[found.server].name,
        "description": found.description,
        "score": hit.score,
        "confidence": round(hit.confidence, 2),
    }
    server_list = context.gateway.known(found.server, "tools")
    raw = server_list.items.get(found.name) if server_list else None
    if raw is None:
        return said
    observed = context.gateway.observed(found.server, found.name) if format else b""
    return {**said, **_declared(items.read(raw), format, budget, observed)}


async def _all_told(
    server: str, server_list: ServerList, format: str | None, context: ControlContext
) -> tuple[base.Part, str]:
    """All tools of a list, which is written once for all who ask for it, and what is to be said of that; what was
    observed is for each alone."""
    told = f"told {format or ''}"
    part, note = await base.derived(server_list, told, lambda: _written(server_list, format), context.client)
    if not format:
        return part, note
    budget = signatures.Budget(_MOST_OF_A_SEARCH)
    observed = {name: shape for name in part.pieces if (shape := context.gateway.observed(server, name))}
    found = {name: _told(server_list.items[name], format, budget, shape) for name, shape in observed.items()}
    own = base.part_of({name: each for name, each in found.items() if "declaration" in each})
    replaced = sum(len(part.pieces[name]) for name in own.pieces)
    return base.Part({**part.pieces, **own.pieces}, part.size + own.size - replaced, part.tokens), note


def _written(server_list: ServerList, format: str | None) -> tuple[base.Part, str]:
    budget = signatures.Budget(_MOST_OF_A_LIST)
    told: dict[str, Object] = {}
    whole = 0
    for name, raw in server_list.items.items():
        told[name] = _told(raw, format, budget)
        whole += not budget.is_over
    note = f"{len(told) - whole:,} tools are shown without their parameters, because the list is too large: search"
    return base.part_of(told), f"{note} for one of them" if whole < len(told) else ""


def _told(raw: Raw, format: str | None, budget: signatures.Budget, observed: bytes = b"") -> Object:
    tool = items.read(raw)
    return {"tool": tool.name, "description": tool.description, **_declared(tool, format, budget, observed)}


def _declared(tool: items.Item, format: str | None, budget: signatures.Budget, observed: bytes = b"") -> dict[str, Any]:
    """How a tool is called: in one line, and in full where that is wanted and the budget allows it."""
    schemas = (bytes(tool.inputSchema), bytes(tool.outputSchema), observed)
    written = signatures.Tool(tool.name, tool.description, *schemas)
    said = {"signature": signatures.one_line(written, budget)}
    declaration = _DECLARE[format](written, budget) if format else ""
    return said | ({"declaration": declaration} if declaration else {})


_DECLARE = {"typescript": signatures.typescript, "python": signatures.python}


CONTROLS = (
    Control(
        "mcp_discover",
        FAMILY,
        "Search the tools of all MCP servers; each result has its signature. "
        "Without a query: the servers, their state and how many tools they have.",
        {
            "query": {"type": "string", "description": "What to search for"},
            "server": {"type": "string", "description": "Only this server"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10, "description": "Result limit"},
            "format": {
                "type": "string",
                "enum": ["typescript", "python"],
                "description": "Add each tool's declaration in this language",
            },
        },
        work=mcp_discover,
    ),
    Control(
        "mcp_provision",
        FAMILY,
        "Find what can do something, by what you need: a tool that is here, else an MCP server that could be added. "
        "With autoProvision, each server's gates are told, and one that passes them all is installed where the "
        "operator allows it.",
        {
            "intent": {"type": "string", "description": "What capability you need"},
            "context": {"type": "string", "description": "Additional context for resolution"},
            "autoProvision": {"type": "boolean", "default": False, "description": "Auto-provision if trusted"},
            "dryRun": {
                "type": "boolean",
                "default": False,
                "description": "Report what would be installed, and install nothing",
            },
            "source": {"type": "string", "enum": ["local", "registry"], "description": "Look there only"},
        },
        ("intent",),
        work=mcp_provision,
        changes=True,
    ),
    Control(
        "mcp_call",
        FAMILY,
        "Call a tool of an MCP server, with arguments as in its signature. mcp_discover finds the tool.",
        {
            "server": {"type": "string", "description": "Target server name"},
            "tool": {"type": "string", "description": "Tool name to call"},
            "args": {"type": "object", "description": "Arguments to pass to the tool"},
        },
        ("server", "tool"),
        forward=Forward("server", "tool", "args"),
        insists=True,
    ),
    Control(
        "mcp_execute",
        OF_CODE,
        "Run JavaScript that calls tools of several MCP servers and returns what you need of their results: "
        "`const rows = await servers.NAME.TOOL({...}); return rows.length`. Also servers['NAME'].call('TOOL', {...}), "
        "servers.batch([...]), sleep(ms), console.log. mcp_discover with format typescript shows the types.",
        {"code": {"type": "string", "description": "JavaScript code to execute"}},
        ("code",),
        work=code.mcp_execute,
        needs="javascript",
    ),
)
