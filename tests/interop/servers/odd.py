"""A hostile server, and a plain one (`--plain`), over stdio with the standard library alone. What the first one lists
is what clients cannot read or compile, beside what they can."""

from __future__ import annotations

import json
import sys
from typing import Any


def schema(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema(), **more}


WIDE = {"properties": {f"p{number}": {"type": "string"} for number in range(300)}}
SCHEMAS = [
    schema(properties={"a": {"pattern": "("}}),
    schema(properties={"a": {"$ref": "#/$defs/nowhere"}}),
    schema(properties={"a": {"nullable": True}}),
    schema(properties={f"p{number}": {"$ref": "#/$defs/wide"} for number in range(300)}, **{"$defs": {"wide": WIDE}}),
    {"$id": "https://example.com/sum", **schema(required=["never"])},
]
ODD = {
    "tools": [tool(f"odd-{number}", outputSchema=each) for number, each in enumerate(SCHEMAS)],
    "resources": [
        {"uri": "no/scheme", "name": "left out"},
        {"uri": "x://host:99999/", "name": "left out"},
        {"uri": "x:time", "name": "time", "annotations": {"lastModified": "yesterday"}},
        {"uri": "x:size", "name": "size", "size": "big", "icons": [{"src": 5}], "Name": 5},
    ],
    "resourceTemplates": [{"uriTemplate": "x:{a}", "name": "a", "annotations": {"lastModified": 5, "priority": 9}}],
    "prompts": [{"name": "p", "arguments": [{"name": 5}, {"name": "a", "required": "x"}], "title": None}],
}
SUM = {"$id": "https://example.com/sum", **schema(properties={"sum": {"type": "integer"}}, required=["sum"])}
PLAIN = {
    "tools": [tool("add", outputSchema=SUM)],
    "resources": [{"uri": "q:a", "name": "q"}],
    "resourceTemplates": [{"uriTemplate": "q:{a}", "name": "q"}],
    "prompts": [{"name": "q"}],
}
LISTS = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}
LISTS["resources/templates/list"] = "resourceTemplates"
CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
OPENING = {"capabilities": CAPABILITIES, "serverInfo": {"name": "odd", "version": "1"}}


def answer(method: str, offered: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {"result": {"protocolVersion": "2025-11-25", **OPENING}}
    if method in LISTS:
        return {"result": {LISTS[method]: offered[LISTS[method]]}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": "5"}], "structuredContent": {"sum": 5}}}
    return {"error": {"code": -32601, "message": "Method not found"}}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        said = answer(asked["method"], PLAIN if "--plain" in sys.argv else ODD)
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
