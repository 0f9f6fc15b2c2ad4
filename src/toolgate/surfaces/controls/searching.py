"""The search tool of seed 001: shown instead of many tools, it finds those that are wanted and has them shown."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.search import Hit
from toolgate.surfaces.controls import base
from toolgate.surfaces.controls.base import Control, Family, Given, Object
from toolgate.surfaces.controls.context import ControlContext

KINDS = {**mcp.SECTIONS, "all": tuple(mcp.KINDS)}


def _wrap(given: Given, call: Call, raw: Raw | bytes) -> Object:
    return jsonrpc.members(raw)


def _fail(control: Control, given: Given, fault: Fault) -> None:
    """A JSON-RPC error, as all of this surface's."""


def _say(said: Any) -> Object:
    return base.text(said, structuredContent=said)


FAMILY = Family(_wrap, _fail, _say)


async def search_tools(given: Given, context: ControlContext) -> Any:
    kinds = KINDS[given.get("type", "tools")]
    wanted = [(id, kind) for id in context.gateway.servers for kind in kinds]
    view = await context.gateway.lists(wanted)
    limit, mode = given.get("limit", 10), given.get("mode", context.gateway.search_mode)
    hits = await context.gateway.search(
        given["query"], servers=list(context.gateway.servers), kinds=kinds, limit=limit, mode=mode
    )
    matches = [_match(hit, context) for hit in hits]
    tools = [match["name"] for match in matches if match["type"] == "tool"]
    context.gateway.activate(tools)
    said = {"matches": matches, "activated": tools if context.client.session else []}
    return base.unless_pending(said, wanted, view, context)


def _match(hit: Hit, context: ControlContext) -> dict[str, Any]:
    found = hit.document
    match: dict[str, Any] = {
        "type": mcp.KINDS[found.kind].noun.lower(),
        "name": context.gateway.named(found.server, found.kind, found.name),
        "relevance": hit.relevance,
        "description": found.description,
    }
    return match | ({"inputSchema": Raw(found.schema)} if found.schema else {})


CONTROLS = (
    Control(
        "search_tools",
        FAMILY,
        "Search the tools, resources and prompts of all MCP servers. The results can be called by name at once.",
        {
            "query": {"type": "string", "description": "What you need, in words"},
            "type": {"type": "string", "enum": list(KINDS), "default": "tools"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
            "mode": {"type": "string", "enum": ["bm25", "regex", "semantic"], "default": "bm25"},
        },
        ("query",),
        work=search_tools,
        also=("localrouter__search_tools", "search"),
        output={
            "type": "object",
            "properties": {
                "matches": {"type": "array", "items": {"type": "object"}},
                "activated": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["matches", "activated"],
        },
    ),
)
