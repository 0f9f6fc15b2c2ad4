"""Limits on the size of tools' results: what is too large is cut to its ends or left out, and kept to be read.

The rules this file keeps: what is cut says so where it is read, with the URI of the whole (`overflow`); JSON, base64,
images and embedded resources are shown whole or not at all; a result within its limit passes untouched.

Only tools' results are limited: a resource or a prompt is what its reader asked for by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.config import Config, Limits, Server
from toolgate.core import counting, excerpts, jsonrpc, mcp, surrogates
from toolgate.core.excerpts import Ends, Excerpt
from toolgate.core.model import Call, Done, Outcome
from toolgate.core.steps import InSteps, at_once
from toolgate.policy import content_kinds
from toolgate.policy.base import Policy
from toolgate.policy.overflow import LINES, Later, OverflowStore, Source
from toolgate.search.tokens import estimate, has_more

_TEXT, _JSON = "text/plain", "application/json"
META_KEY = "toolgate/truncated"
_LIMITED = frozenset({mcp.CALL, mcp.TASK_RESULT})
_MOST_NOTICES = 8  # further parts are kept together
_PARTS = frozenset({"content", "structuredContent"})
_LONGEST_NAME = 200  # characters of a URI in a notice
# What a server calls its blocks stands in our own sentences: where it is one word, as it should be.
_KIND, _URI = re.compile("[a-z_]{1,32}"), re.compile(r"[!-~]+")
_MIME = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)
_SMALL = 1024  # bytes: a notice in place of a smaller part would save nothing


class Limit(msgspec.Struct, frozen=True):
    """None: no limit. `ends` are what is kept of a text that is over one."""

    bytes: int | None = None
    tokens: int | None = None
    ends: Ends = Ends()

    def surely_holds(self, size: int) -> bool:
        """No token is shorter than a byte."""
        return all(limit is None or size <= limit for limit in (self.bytes, self.tokens))


def of(config: Config, overflow: OverflowStore) -> Truncate | None:
    """None where nothing is limited."""
    limit = _limit(config.limits, None)
    own = {
        each.id: _limit(config.limits, each)
        for each in config.servers
        if (each.result_limit, each.result_tokens) != (None, None)
    }
    if all(each.bytes is None and each.tokens is None for each in (limit, *own.values())):
        return None
    return Truncate(limit, own, overflow)


def _limit(limits: Limits, server: Server | None) -> Limit:
    bytes = limits.result_limit if server is None or server.result_limit is None else server.result_limit
    tokens = limits.result_tokens if server is None or server.result_tokens is None else server.result_tokens
    return Limit(bytes, tokens, Ends(limits.head, limits.tail))


class Truncate(Policy):
    """`limits` are those of servers that have one of their own."""

    name = "truncate"

    def __init__(self, limit: Limit, limits: Mapping[str, Limit], overflow: OverflowStore) -> None:
        self._limit = limit
        self._limits = limits
        self._overflow = overflow

    def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
        if not _is_limited(call) or not isinstance(outcome, Done):
            return outcome
        if outcome.is_cut or self._limit_of(call).surely_holds(memoryview(outcome.body).nbytes):
            return outcome
        keeping = self._overflow.later()
        cut = at_once(self.cut(call, outcome, keeping))
        keeping.done()
        return cut

    def keeping(self, call: Call) -> Later | None:
        """What is cut off is kept by it, where something may be: for `cut` in a thread."""
        return self._overflow.later() if _is_limited(call) else None

    def cut(self, call: Call, outcome: Done, keeping: Later) -> InSteps[Done]:
        limit = self._limit_of(call)
        if limit.surely_holds(memoryview(outcome.body).nbytes):
            return outcome
        body = yield from _Shortening(call, limit, keeping).of(outcome.body)
        return msgspec.structs.replace(outcome, body=body)

    def _limit_of(self, call: Call) -> Limit:
        return self._limits.get(call.server, self._limit)


def _is_limited(call: Call) -> bool:
    """What a script gets is no model's to read: what the script says of it is limited."""
    return call.method in _LIMITED and not call.by_script


class _Failed(msgspec.Struct):
    isError: bool = False


class _Shortening:
    """One result that may be too large: the room that is left, and what became of its parts."""

    def __init__(self, call: Call, limit: Limit, overflow: Later) -> None:
        self._call = call
        self._room = limit.bytes
        self._tokens = limit.tokens
        self._ends = limit.ends
        self._free = _SMALL
        self._is_promised = bool(call.tool_info and call.tool_info.has_output)  # a structured content
        self._overflow = overflow
        self._parts: list[dict[str, Any]] = []
        self._too_much: list[Raw] = []
        self._json: dict[str | bytes, str] = {}  # that was kept, in one spelling each, and where

    def of(self, body: Raw | bytes) -> InSteps[Raw | bytes]:
        if counting.is_too_much(body):
            return self._as_a_whole(body, "a result with too many values to describe")
        try:
            result = jsonrpc.members(body)
            blocks = jsonrpc.items(result.get("content", b"[]"))
        except jsonrpc.TooMany:
            return self._as_a_whole(body, "a result with too many values to describe")
        except jsonrpc.UNREADABLE:
            return self._as_a_whole(body, "a result that is out of shape")
        if not self._takes_beside(result):
            return self._as_a_whole(body, "a result with much that is no content")
        structured = self._structured(result) if self._is_promised else []  # what must be there has the first claim
        yield
        content: list[Raw] = []
        for raw in blocks:
            content += self._block(raw)
            yield
        if structured:
            result["isError"] = Raw(b"true")  # clients take a result without what was promised for broken
        elif not self._is_promised:
            structured = self._structured(result)
        content += [*self._rest(), *structured]
        return _rewritten(result, content, self._parts) if self._parts else body

    def _as_a_whole(self, body: Raw | bytes, what: str) -> bytes:
        """Of what cannot be looked into."""
        content = self._left_out("result", _shown(body), _JSON, what)
        result = {"resultType": Raw(b'"complete"')}
        if self._is_promised or _has_failed(body):
            result["isError"] = Raw(b"true")
        return _rewritten(result, content, self._parts)

    def _structured(self, result: dict[str, Raw]) -> list[Raw]:
        """What stands in the content for structured content that was too large, and was taken out."""
        text = _shown(result.get("structuredContent", b""))
        if not text or self._takes(len(text.encode()), text):
            return []
        del result["structuredContent"]
        return self._left_out("structuredContent", text, _JSON, f"structured content, {content_kinds.shape(text)}")

    def _block(self, raw: Raw) -> Sequence[Raw]:
        try:
            block = jsonrpc.members(raw)
            kind = jsonrpc.read(block["type"], str)
            text = surrogates.shown(jsonrpc.read(block["text"], str)) if kind == "text" else None
        except (KeyError, *jsonrpc.UNREADABLE):
            block, kind, text = dict[str, Raw](), "block", None  # out of shape: shown whole or not at all
        kind = kind if _KIND.fullmatch(kind) else "block"  # it stands in what we say
        beside = memoryview(raw).nbytes - (memoryview(block["text"]).nbytes if text is not None else 0)
        if text is not None and beside > _SMALL:
            block, kind, text = dict[str, Raw](), "block", None
            beside = memoryview(raw).nbytes
        size = beside if text is None else len(text.encode()) + self._counted(beside)
        if self._takes(size, _shown(raw) if text is None and kind in ("resource", "block") else text):
            return [raw]
        if size <= _SMALL or len(self._parts) >= _MOST_NOTICES:
            self._too_much.append(raw)
            return []
        return self._other(kind, block, raw) if text is None else self._text(block, text)

    def _takes_beside(self, result: dict[str, Raw]) -> bool:
        """The same of what stands beside the content; usually next to nothing does, and that is not counted."""
        beside = {name: each for name, each in result.items() if name not in _PARTS}
        size = self._counted(sum(len(name) + memoryview(each).nbytes for name, each in beside.items()))
        return not size or self._takes(size, "".join(name + _shown(each) for name, each in beside.items()))

    def _counted(self, beside: int) -> int:
        """How much of so many bytes counts: the first that stand beside texts and parts do not."""
        free = min(beside, self._free)
        self._free -= free
        return beside - free

    def _takes(self, size: int, text: str | None) -> bool:
        """Whether there is room for it; if so, it is used up."""
        if self._room is not None and size > self._room:
            return False
        if text and self._tokens is not None:
            if has_more(text, self._tokens):
                return False
            self._tokens -= estimate(text)
        self._room = None if self._room is None else self._room - size
        return True

    def _text(self, block: dict[str, Raw], text: str) -> Sequence[Raw]:
        if form := content_kinds.form(text):
            is_json = form == "json"
            return self._left_out(
                form, text, _JSON if is_json else _TEXT, content_kinds.shape(text) if is_json else form
            )
        cut = self._fitting(text)
        if cut.first + cut.last == 0 or (cut.unit == "chars" and content_kinds.is_parted(text, cut)):
            return self._left_out("text", text, _TEXT, f"text of {excerpts.count_lines(text):,} lines")
        uri = self._keep(text, _TEXT)
        shown = {"unit": cut.unit, "first": cut.first, "last": cut.last, "total": cut.total}
        self._noted("text", uri, _TEXT, len(text.encode())).update(shown=shown)
        said = f"{cut.text}\n\n[Cut by toolgate: {_said(cut)} are shown. {_where(uri, _further(cut))}]"
        return [Raw(jsonrpc.encode({**block, "text": said}))]

    def _fitting(self, text: str) -> Excerpt:
        """Uses up the room that it takes."""
        size = len(text.encode())
        budget = size if self._room is None else min(size, self._room)
        if self._tokens is not None:
            budget = min(budget, size * self._tokens // max(estimate(text), 1))
        cut = excerpts.to_fit(text, budget, self._ends.head, self._ends.tail)
        while budget and self._tokens is not None and estimate(cut.text) > self._tokens:
            budget = budget * 3 // 4
            cut = excerpts.to_fit(text, budget, self._ends.head, self._ends.tail)
        self._takes(min(len(cut.text.encode()), budget), cut.text)
        return cut

    def _other(self, kind: str, block: dict[str, Raw], raw: Raw) -> Sequence[Raw]:
        held = block
        if kind == "resource":
            with suppress(KeyError, *jsonrpc.UNREADABLE):
                held = jsonrpc.members(block["resource"])
        mime = found[0] if (found := _MIME.match(_text_of(held, "mimeType"))) else ""
        encoded = _text_of(held, "data") or _text_of(held, "blob")
        if encoded and (data := content_kinds.from_base64(encoded)) is not None:
            mime = mime or "application/octet-stream"
            return self._left_out(kind, data, mime, f"{kind} ({mime})")
        named = f" {found[0]}" if (found := _URI.fullmatch(_text_of(held, "uri")[:_LONGEST_NAME])) else ""
        if text := _text_of(held, "text"):
            return self._left_out(kind, text, mime or _TEXT, f"{kind}{named}")
        return self._left_out(kind, _shown(raw), _JSON, f"{kind}{named}")

    def _rest(self) -> Sequence[Raw]:
        """What is too small to be kept by itself, or too much, is kept together."""
        if not self._too_much:
            return []
        text = jsonrpc.encode(self._too_much).decode()
        return self._left_out("blocks", text, _JSON, f"{len(self._too_much):,} blocks of content")

    def _left_out(self, kind: str, whole: str | bytes, mime: str, what: str) -> list[Raw]:
        """A notice and a link in place of a part; nothing where the same stands there already."""
        uri, is_new = self._kept(whole, mime)
        size = len(whole.encode()) if isinstance(whole, str) else len(whole)
        self._noted(kind, uri, mime, size)
        if not is_new:
            return []
        done = "The call was executed. " if kind == "structuredContent" else ""
        example = _beginning(whole, min(size, self._overflow.at_once))
        notice = f"[{done}Left out by toolgate: {what}, {size:,} bytes. {_where(uri, example)}]"
        blocks: list[dict[str, Any]] = [{"type": "text", "text": notice}]
        if uri:
            name = f"{self._call.target}: {kind}"
            blocks.append({"type": "resource_link", "uri": uri, "name": name, "mimeType": mime, "size": size})
        return [Raw(jsonrpc.encode(block)) for block in blocks]

    def _kept(self, whole: str | bytes, mime: str) -> tuple[str, bool]:
        """Where it is kept, and whether it was not yet: what is structured often stands in the content as well."""
        if mime != _JSON or isinstance(whole, bytes):
            return self._keep(whole, mime), True
        spelled = content_kinds.spelled(whole)
        is_new = spelled not in self._json
        if is_new:
            self._json[spelled] = self._keep(whole, mime)
        return self._json[spelled], is_new

    def _keep(self, whole: str | bytes, mime: str) -> str:
        call = self._call
        return self._overflow.keep(call.client, whole, mime, Source(call.server, call.made))

    def _noted(self, kind: str, uri: str, mime: str, size: int) -> dict[str, Any]:
        part = {"kind": kind, "mimeType": mime, "bytes": size} | ({"uri": uri} if uri else {})
        self._parts.append(part)
        return part


def _rewritten(result: dict[str, Raw], content: list[Raw], parts: list[dict[str, Any]]) -> bytes:
    result["content"] = Raw(jsonrpc.encode(content))
    told = {META_KEY: jsonrpc.encode({"parts": parts})}
    result["_meta"] = Raw(jsonrpc.with_members(result.get("_meta", b"{}"), told))
    return jsonrpc.encode(result)


def _text_of(held: dict[str, Raw], name: str) -> str:
    try:
        return jsonrpc.read(held[name], str)
    except (KeyError, *jsonrpc.UNREADABLE):
        return ""


def _has_failed(body: Raw | bytes) -> bool:
    try:
        return jsonrpc.read(body, type=_Failed).isError
    except jsonrpc.UNREADABLE:
        return True  # out of shape


def _shown(raw: Raw | bytes) -> str:
    return bytes(raw).decode(errors="replace")


# What is said of a part, and how the rest of it is to be had.


def _said(cut: Excerpt) -> str:
    unit = "lines" if cut.unit == "lines" else "characters"
    first, last = f"the first {cut.first:,}", f"the last {cut.last:,}"
    shown = f"{first} and {last}" if cut.first and cut.last else first if cut.first else last
    return f"{shown} of {cut.total:,} {unit}"


def _where(uri: str, example: str) -> str:
    if not uri:
        return "It is too large to be stored"
    return f"The full content is the resource {uri}, readable in ranges such as {uri}?{example}"


def _further(cut: Excerpt) -> str:
    """The range behind what is shown of the beginning."""
    base = 1 if cut.unit == "lines" else 0
    start = cut.first + base
    width = LINES if cut.unit == "lines" else max(cut.first, cut.last)
    return f"{cut.unit}={start}-{min(start + width, cut.total + base) - 1}"


def _beginning(whole: str | bytes, at_once: int) -> str:
    lines = excerpts.count_lines(whole) if isinstance(whole, str) else 0
    return f"lines=1-{min(lines, LINES)}" if lines > 1 else f"bytes=0-{at_once - 1}"
