"""Giving resource URIs inside results the names that the client knows them by.

The rule this file keeps: only the members that the protocol defines as resource URIs are touched; text, HTML and
`structuredContent` are never searched (behaviour.md section 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Raw

from toolgate.core import counting, jsonrpc
from toolgate.core.jsonrpc import Members
from toolgate.core.templates import EXPRESSION

Rename = Callable[[str], str]

_PAGE_BEFORE = "ui/resourceUri"  # where drafts of MCP Apps had it, and hosts still look


def is_made_by(template: str, uri: str) -> bool:
    """Whether a URI is one that this template (RFC 6570) can make. Generous: each expression stands for any text. It is
    read as far as the URI is like it: servers choose how much there is of it."""
    place = reached = 0
    for expressions in _EXPRESSIONS.finditer(template):
        literal = template[place : expressions.start()]
        found = uri.find(literal, reached) if place else (0 if uri.startswith(literal) else -1)
        if found < 0:
            return False
        reached, place = found + len(literal), expressions.end()
    last = template[place:]
    return uri.endswith(last) and len(uri) - len(last) >= reached if place else template == uri


_EXPRESSIONS = re.compile(f"(?:{EXPRESSION.pattern})+")  # what follows another at once changes nothing


def rewrite(method: str, body: Raw | bytes, rename: Rename) -> Raw | bytes:
    """The result with its resource URIs renamed. One that is out of shape, or has too many values, is left as it is."""
    if method != "resources/read" and b'"resource' not in bytes(body):
        return body
    if counting.is_too_much(body):
        return body
    try:
        rewriter = _REWRITERS.get(method)
        return rewriter(body, rename) if rewriter else body
    except (KeyError, TypeError, *jsonrpc.UNREADABLE):
        return body


def rewrite_tool(raw: Raw, rename: Rename) -> Raw:
    """A tool as it is listed, with the page that its `_meta` names (MCP Apps) renamed. One without stays as it is."""
    if b"resourceUri" not in memoryview(raw).tobytes():
        return raw
    try:
        tool = jsonrpc.members(raw)
        meta = jsonrpc.members(tool["_meta"])
        if _PAGE_BEFORE in meta:
            meta[_PAGE_BEFORE] = _uri(meta[_PAGE_BEFORE], rename)
        if "ui" in meta:
            page = jsonrpc.members(meta["ui"])
            meta["ui"] = Raw(jsonrpc.encode(_renamed(page, rename, "resourceUri")))
        return Raw(jsonrpc.encode(tool | {"_meta": Raw(jsonrpc.encode(meta))}))
    except (KeyError, *jsonrpc.UNREADABLE):
        return raw


def _tool_result(body: Raw | bytes, rename: Rename) -> bytes:
    result = jsonrpc.members(body)
    result["content"] = _each(result["content"], lambda block: _block(block, rename))
    return jsonrpc.encode(result)


def _prompt(body: Raw | bytes, rename: Rename) -> bytes:
    result = jsonrpc.members(body)
    result["messages"] = _each(result["messages"], lambda message: _message(message, rename))
    return jsonrpc.encode(result)


def _contents(body: Raw | bytes, rename: Rename) -> bytes:
    result = jsonrpc.members(body)
    result["contents"] = _each(result["contents"], lambda part: _renamed(jsonrpc.members(part), rename))
    return jsonrpc.encode(result)


_REWRITERS = {"tools/call": _tool_result, "prompts/get": _prompt, "resources/read": _contents}


def _message(raw: Raw, rename: Rename) -> Members:
    message = jsonrpc.members(raw)
    message["content"] = Raw(jsonrpc.encode(_block(message["content"], rename)))
    return message


def _block(raw: Raw, rename: Rename) -> Members | Raw:
    """A content block: links and embedded resources carry a URI, all else passes."""
    block = jsonrpc.members(raw)
    kind = jsonrpc.value(block["type"])
    if kind == "resource_link":
        return _renamed(block, rename)
    if kind == "resource":
        block["resource"] = Raw(jsonrpc.encode(_renamed(jsonrpc.members(block["resource"]), rename)))
        return block
    return raw


def _renamed(found: Members, rename: Rename, key: str = "uri") -> Members:
    if key in found:
        found[key] = _uri(found[key], rename)
    return found


def _uri(raw: Raw, rename: Rename) -> Raw:
    return Raw(jsonrpc.encode(rename(jsonrpc.read(raw, type=str))))


def _each(raw: Raw, change: Callable[[Raw], Members | Raw]) -> Raw:
    return Raw(jsonrpc.encode([change(item) for item in jsonrpc.items(raw)]))
