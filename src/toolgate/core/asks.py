"""Questions of servers: whether a client can be asked one, and what is said of one that is not put. Free of eras.

The rule this file keeps: what a user says (`accept`, `decline`, `cancel`) is said by users; whatever the gateway has to
say of a question is an error (behaviour.md, ruling 15).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members
from toolgate.core.model import Answer, Ask

MOST_OPEN = 16  # questions that wait in one place: of one call, of the next one, or until it is clear of which
MOST_BYTES = 4 * 1024 * 1024  # of all of them: a question to a model may have pictures in it
MOST_TO_READ = 64 * 1024  # bytes of those to a person: a character that is written out takes seven times as many
PAGES = "only https URLs are passed on, and http ones of this machine, without a user name"
_OF_PERSONS = "elicitation/create"
_OWN_MACHINE = ("localhost", "127.0.0.1", "::1")
_uri = re.compile(r"[!-\[\]-~]{1,2048}")  # ASCII without spaces, and without the backslash, on which readers disagree
MOST_VALUES = 10_000  # of JSON in a question: a tenth of a second, to write odd tools in the words of its client
MOST_ESCAPES = 150_000  # characters or quotes so written, of all: secrets are looked for behind each


def is_too_long(*questions: Ask) -> bool:
    """In bytes, or in escapes, all of them together."""
    if size(questions) > MOST_BYTES or size(ask for ask in questions if ask.method == _OF_PERSONS) > MOST_TO_READ:
        return True
    written = [bytes(ask.params) for ask in questions]
    return sum(params.count(each) for params in written for each in _ESCAPES) > MOST_ESCAPES


_ESCAPES = (b"\\u", b'\\"')


def is_too_large(ask: Ask) -> bool:
    return is_too_long(ask) or counting.has_more_values(bytes(ask.params), MOST_VALUES)


def size(questions: Iterable[Ask]) -> int:
    """In bytes."""
    return sum(len(memoryview(ask.params)) for ask in questions)


def has_room(ask: Ask, others: Collection[Ask]) -> bool:
    """Whether a question may wait beside these."""
    return len(others) < MOST_OPEN and not is_too_long(ask, *others)


class _Elicitation(msgspec.Struct):
    mode: str | None = None  # None: a form
    url: str | None = None


class _Sampling(msgspec.Struct):
    tools: Raw = jsonrpc.NOTHING


def check_page(page: Raw) -> None:
    """A page that a server would have its user open must be one of the web: https, or http on the user's own machine. A
    client may hand the URL to what runs it (`javascript:`, `file:`, a program's own scheme). Its id has a length, since
    it is kept until the page is done with. Raises `Fault`."""
    members: jsonrpc.Members = {}
    try:
        found, members = jsonrpc.read(page, type=_Elicitation), jsonrpc.members(page)
        is_plain = not any(name != "url" and name.lower() == "url" for name in members)
        parts = urlsplit(found.url if found.url and _uri.fullmatch(found.url) else "")  # it keeps what it has read
        is_web = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _OWN_MACHINE)
        is_fine = is_plain and is_web and bool(parts.hostname) and "@" not in parts.netloc
    except (ValueError, *jsonrpc.UNREADABLE):
        is_fine = False
    if not is_fine:
        raise Fault("UPSTREAM_ERROR", f"The server asked for a page whose URL is refused: {PAGES}", reach="executed")
    if len(memoryview(members.get("elicitationId", jsonrpc.NOTHING))) > jsonrpc.LONGEST_ID:
        message = f"The server asked for a page whose elicitationId has more than {jsonrpc.LONGEST_ID:,} bytes"
        raise Fault("UPSTREAM_ERROR", message, reach="executed")


def check_url(ask: Ask) -> None:
    """The same of a question, where it asks for a page."""
    try:
        is_page = ask.method == _OF_PERSONS and jsonrpc.read(ask.params, type=_Elicitation).mode == "url"
    except jsonrpc.UNREADABLE:
        return  # nor does its client get it: it is not answerable
    if is_page:
        check_page(ask.params)


def is_answerable(ask: Ask, capabilities: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities may be asked this (MRTR, server requirement 7)."""
    declared = capabilities.get(mcp.ASKS[ask.method].capability) if ask.method in mcp.ASKS else None
    if not isinstance(declared, Mapping):
        return False
    try:
        if ask.method == _OF_PERSONS:
            mode = jsonrpc.read(ask.params, type=_Elicitation).mode or "form"
            return mode in declared or (mode == "form" and not declared)
        if ask.method == "sampling/createMessage":
            return not jsonrpc.given(jsonrpc.read(ask.params, type=_Sampling).tools) or "tools" in declared
    except jsonrpc.UNREADABLE:
        return False
    return True


class _Meta(msgspec.Struct):
    progressToken: Raw = jsonrpc.NOTHING


class _Addressed(msgspec.Struct):
    meta: _Meta | None = msgspec.field(name="_meta", default=None)


def progress_token(ask: Ask) -> Raw:
    """By which its asker wants to hear of progress; empty where it does not."""
    if mcp.PROGRESS_KEY.encode() not in bytes(ask.params):
        return jsonrpc.NOTHING
    try:
        meta = jsonrpc.read(ask.params, type=_Addressed).meta
    except jsonrpc.UNREADABLE:
        return jsonrpc.NOTHING
    token = bytes(meta.progressToken) if meta else b""
    return Raw(token) if len(token) <= jsonrpc.LONGEST_ID else jsonrpc.NOTHING  # each report would have it


def with_token(question: bytes, token: int) -> bytes:
    """A question whose asker hears of progress by this token."""
    meta = jsonrpc.members(Raw(question)).get("_meta", jsonrpc.EMPTY_OBJECT)
    return jsonrpc.with_members(
        question, {"_meta": jsonrpc.with_members(meta, {mcp.PROGRESS_KEY: jsonrpc.encode(token)})}
    )


def unanswered(why: str, code: int = jsonrpc.INTERNAL_ERROR, data: Raw = jsonrpc.NOTHING) -> Answer:
    """The answer to a question that nobody has answered."""
    return Answer(error=jsonrpc.RpcError(code, why, data))


def undeclared(ask: Ask) -> Answer:
    """The answer to a question that its client has not declared to be able to answer. It names the capability."""
    capability = mcp.ASKS[ask.method].capability
    data = Raw(jsonrpc.encode({"requiredCapabilities": {capability: _required(ask)}}))
    named = ".".join((capability, *_required(ask)))
    message = f"The client of this call cannot be asked: it did not declare the capability {named}"
    return unanswered(message, jsonrpc.METHOD_NOT_FOUND, data)


def _required(ask: Ask) -> Mapping[str, Any]:
    """What of a capability a question needs."""
    try:
        if ask.method == _OF_PERSONS:
            return {jsonrpc.read(ask.params, type=_Elicitation).mode or "form": {}}
        if ask.method == "sampling/createMessage" and jsonrpc.given(jsonrpc.read(ask.params, type=_Sampling).tools):
            return {"tools": {}}
    except jsonrpc.UNREADABLE:
        pass
    return {}


# What a client may declare that we relay questions for, and what each may hold.
_RELAYED = {"elicitation": ("form", "url"), "sampling": ("tools",), "roots": ()}


LONGEST_CAPABILITIES = 64 * 1024  # bytes that a client may declare; those of real ones have some hundreds
LONGEST_EXTENSION = 4 * 1024  # bytes of what it says of an extension, which is kept for as long as its session


def declared(capabilities: Raw | bytes) -> dict[str, Any]:
    """What a client declares, as far as anything here goes by it: in another form, so that what is kept is small,
    whatever came. Raises `Fault` INVALID_ARGS where that is too large; as `jsonrpc.members` does where it is misshapen.
    """
    _refuse_longer(capabilities, LONGEST_CAPABILITIES, "capabilities")
    given = jsonrpc.members(capabilities)
    found: dict[str, Any] = {}
    for name, known in _RELAYED.items():
        if (parts := _parts(given, name)) is not None:
            found[name] = {part: {} for part in known if part in parts}
            if name == "roots" and parts.get("listChanged") == Raw(b"true"):
                found[name] = {"listChanged": True}
    extensions = {name: _kept(name, raw) for name, raw in (_parts(given, "extensions") or {}).items() if name in _KNOWN}
    return found | {"extensions": extensions} if extensions else found


_KNOWN = (mcp.TASKS_EXTENSION, mcp.UI_EXTENSION)


def _parts(given: Members, name: str) -> Members | None:
    """Those of a capability; None where it is not declared."""
    raw = given.get(name, jsonrpc.NOTHING)
    return jsonrpc.members(raw) if bytes(raw)[:1] == b"{" else None


def _kept(name: str, raw: Raw) -> Raw | None:
    """What a client says of an extension, in one spelling, and apart from the request that it came with."""
    _refuse_longer(raw, LONGEST_EXTENSION, name)
    return None if raw == Raw(b"null") else Raw(jsonrpc.canonical(jsonrpc.value(raw)))


def _refuse_longer(raw: Raw | bytes, most: int, name: str) -> None:
    if memoryview(raw).nbytes > most:
        message = f"Invalid params: {name} must have at most {most:,} bytes"
        raise Fault("INVALID_ARGS", message, reach="not_sent", hint="declare only what MCP or an extension defines")


def relayed_capabilities(capabilities: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of a client's capabilities those that we relay, without anything else in them. An empty `elicitation` means
    forms. That a client shows pages (MCP Apps) concerns its server alone."""
    found: dict[str, dict[str, Any]] = {}
    for name, known in _RELAYED.items():
        declared = capabilities.get(name)
        if isinstance(declared, Mapping):
            found[name] = {part: {} for part in known if part in declared}
    if found.get("elicitation") == {}:
        found["elicitation"] = {"form": {}}
    pages = extension(capabilities, mcp.UI_EXTENSION)
    if pages is not None:
        found["extensions"] = {mcp.UI_EXTENSION: pages}
    return found


def extension(capabilities: Mapping[str, Any], name: str) -> Any:
    """What a side declares of an extension; None where it does not know it."""
    extensions = capabilities.get("extensions")
    return cast("Mapping[str, Any]", extensions).get(name) if isinstance(extensions, Mapping) else None


def is_accepted(answer: Answer) -> bool:
    return answer_value(answer).get("action") == "accept"


def answer_value(answer: Answer) -> dict[str, Any]:
    """An answer's result, decoded; an error answers nothing."""
    try:
        return jsonrpc.read(answer.result or b"{}", type=dict[str, Any])
    except jsonrpc.UNREADABLE:
        return {}
