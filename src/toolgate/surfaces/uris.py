"""Giving resource URIs inside results the names that the client knows them by.

The rule this file keeps: only the members that the protocol defines as resource URIs are touched, and where there are
any, what readers that do not mind case take for one is left out; text, HTML and `structuredContent` are never searched
(behaviour.md section 1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import TypeAlias

from msgspec import Raw

from toolgate.core import counting, jsonrpc, large, mcp
from toolgate.core.jsonrpc import Members
from toolgate.core.steps import InSteps
from toolgate.core.templates import EXPRESSION
from toolgate.eras.calls import by_folded, without_lookalikes

Rename: TypeAlias = Callable[[str], str]
Change: TypeAlias = "Callable[[Raw, Rename], Members | Raw]"

# Where drafts of MCP Apps had the page of a tool, and where the Apps SDK of OpenAI has it: hosts still look there.
_PAGES = ("ui/resourceUri", "openai/outputTemplate")


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


def made_by(lists: Iterable[Iterable[str]], uri: str) -> InSteps[dict[str, bool]]:
    """Which of the templates in these lists make a URI."""
    found: dict[str, bool] = {}
    for template in chain.from_iterable(lists):
        if template not in found:
            found[template] = is_made_by(template, uri)
            yield
    return found


_EXPRESSIONS = re.compile(f"(?:{EXPRESSION.pattern})+")  # what follows another at once changes nothing


def may_be_named(body: Raw | bytes) -> bool:
    """Whether anything in it may be what is renamed: `"resource"`, `"resource_link"`, `"resourceUri"`, what others
    than MCP Apps call that, or any of these with a letter escaped."""
    if large.is_view(body) and not large.holds_any(body, *_MAY_BE, b"\\u00"):
        return False
    said = bytes(body)
    # Each call passes this: `in` takes ten times as long for bytes, since it tries them as a number first.
    if said.find(b'"resource') >= 0 or said.find(b'resourceUri"') >= 0 or said.find(b'outputTemplate"') >= 0:
        return True
    return said.find(b"\\u00") >= 0 and any(each in said for each in _ESCAPES)


_MAY_BE = (b'"resource', b'resourceUri"', b'outputTemplate"')
_ESCAPES = tuple(b"\\u00%d" % row for row in range(2, 8))  # of ASCII


def rewrite(method: str, body: Raw | bytes, rename: Rename) -> Raw | bytes:
    """The result with its resource URIs renamed. One that is out of shape, or has too many values, is left as it is."""
    found = _PARTS.get(method)
    if found is None or (found[0] != "contents" and not may_be_named(body)):
        return body
    if counting.is_too_much(body):
        return body
    try:
        whole = jsonrpc.members(body)
    except jsonrpc.UNREADABLE:
        return body
    renamed = _with_parts(_with_page(without_lookalikes(whole, _OF_RESULTS), rename), *found, rename)
    return body if renamed is whole else jsonrpc.encode(renamed)


def rewrite_tool(raw: Raw, rename: Rename) -> Raw:
    """A tool as it is listed, with the page that its `_meta` names (MCP Apps) renamed. One without stays as it is."""
    if not may_be_named(raw):
        return raw
    try:
        tool = jsonrpc.members(raw)
    except jsonrpc.UNREADABLE:
        return raw
    renamed = _with_page(tool, rename)
    return raw if renamed is tool else Raw(jsonrpc.encode(renamed))


def _with_page(found: Members, rename: Rename) -> Members:
    """A tool, or a result, with the page that its `_meta` names renamed, wherever that stands. What is out of shape
    stays as it is."""
    try:
        meta = jsonrpc.members(found["_meta"])
    except (KeyError, *jsonrpc.UNREADABLE):
        return found
    named: Members = {}
    for key in _PAGES:
        with suppress(KeyError, *jsonrpc.UNREADABLE):
            named[key] = _uri(meta[key], rename)
    with suppress(KeyError, *jsonrpc.UNREADABLE):
        page = jsonrpc.members(meta["ui"])
        named["ui"] = Raw(jsonrpc.encode(page | {"resourceUri": _uri(page["resourceUri"], rename)}))
    return found | {"_meta": Raw(jsonrpc.encode(meta | named))} if named else found


def _with_parts(result: Members, member: str, change: Change, rename: Rename) -> Members:
    """A result with the URIs in the list of its parts renamed. What is out of shape stays as it is, and nothing else
    because of that."""
    try:
        return result | {member: _each(result[member], lambda part: _changed(change, part, rename))}
    except (KeyError, *jsonrpc.UNREADABLE):
        return result


def _changed(change: Change, part: Raw, rename: Rename) -> Members | Raw:
    try:
        return change(part, rename)
    except (KeyError, *jsonrpc.UNREADABLE):
        return part


def _contents(raw: Raw, rename: Rename) -> Members:
    return _renamed(_plain(raw), rename)


def _message(raw: Raw, rename: Rename) -> Members:
    message = _plain(raw)
    content = message["content"]
    if bytes(content).startswith(b"["):  # as in sampling, where no revision has it
        message["content"] = _each(content, lambda part: _changed(_block, part, rename))
    else:
        message["content"] = Raw(jsonrpc.encode(_block(content, rename)))
    return message


def _block(raw: Raw, rename: Rename) -> Members | Raw:
    """A content block: links and embedded resources carry a URI, all else passes."""
    whole = jsonrpc.members(raw)
    block = without_lookalikes(whole, _OF_PARTS)
    kind = jsonrpc.value(block["type"])
    if kind == "resource_link":
        return _renamed(block, rename)
    if kind == "resource":
        block["resource"] = Raw(jsonrpc.encode(_renamed(_plain(block["resource"]), rename)))
        return block
    return raw if block is whole else block


def _plain(raw: Raw) -> Members:
    """The members of a part, none of which some readers take for one that is renamed."""
    return without_lookalikes(jsonrpc.members(raw), _OF_PARTS)


_OF_RESULTS = by_folded(("_meta", "content", "contents", "messages"))
_OF_PARTS = by_folded(("type", "uri", "resource", "content"))
_CHANGES: Mapping[str, Change] = {"content": _block, "messages": _message, "contents": _contents}
_PARTS = {name: (method.holds, _CHANGES[method.holds]) for name, method in mcp.METHODS.items() if method.holds}


def _renamed(found: Members, rename: Rename, key: str = "uri") -> Members:
    if key in found:
        found[key] = _uri(found[key], rename)
    return found


def _uri(raw: Raw, rename: Rename) -> Raw:
    return Raw(jsonrpc.encode(rename(jsonrpc.read(raw, type=str))))


def _each(raw: Raw, change: Callable[[Raw], Members | Raw]) -> Raw:
    return Raw(jsonrpc.encode([change(item) for item in jsonrpc.items(raw)]))
