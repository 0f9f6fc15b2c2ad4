"""Revision 2026-07-28 as a translation: requests that carry their envelope, results that may ask.

First what we say to modern clients, then what we say to modern servers. Spec: basic/index (`_meta`),
basic/patterns/mrtr, server/discover, server/utilities/caching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolgate.core import asks, counting, jsonrpc, large, mcp
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members, Params
from toolgate.core.large import Joined
from toolgate.core.listing import Listing
from toolgate.core.mcp import Revision
from toolgate.core.model import Accepted, Answer, Ask, Call, Client, Done, Required
from toolgate.eras import calls, header_arguments, headers, listed, naming, revisions, tasks
from toolgate.eras.calls import Headers
from toolgate.eras.questions import read_question, write_question

Value = TypeVar("Value")

SERVED: Mapping[str, Revision] = {date: mcp.REVISIONS[date] for date in mcp.dates("modern")}

# JSON-RPC code → HTTP status; any other is 200 (protocol.md 1.1).
HTTP_STATUS: dict[int, int] = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
    mcp.HEADER_MISMATCH: 400,
    mcp.MISSING_CAPABILITY: 400,
    mcp.UNSUPPORTED_VERSION: 400,
}


class Envelope(msgspec.Struct, frozen=True):
    """What every modern request says about its client."""

    version: str
    revision: Revision | None  # of that date, where it is served
    capabilities: Mapping[str, Any]
    log_level: str | None
    meta: calls.Meta
    told: Raw  # as `Client` has it


class _Peek(msgspec.Struct):
    """The `_meta` of a request, as far as it tells the era."""

    version: Any = msgspec.field(name=mcp.VERSION_KEY, default=None)


class _PeekParams(msgspec.Struct):
    meta: _Peek | None = msgspec.field(name="_meta", default=None)


_peek_params = jsonrpc.Decoder(_PeekParams)


def speaks_modern(version_header: str | None, params: Raw) -> bool:
    """Whether a request is to be read by this era's rules (behaviour.md 001): its header or its `_meta` says so."""
    if version_header is not None and (version_header in SERVED or mcp.is_modern(version_header)):
        return True
    written = bytes(params)
    # Each call passes this: `in` takes ten times as long for bytes, since it tries them as a number first.
    if written.find(b"_meta") < 0 and written.find(b"\\") < 0:  # nor by another spelling
        return False
    try:
        meta = _peek_params.decode(written).meta
    except jsonrpc.UNREADABLE:
        return False
    return meta is not None and meta.version is not None


def unsupported(version: str) -> Fault:
    """For a revision that is not served; with those that are."""
    extra = {"supported": list(SERVED), "requested": version}
    return Fault("UNSUPPORTED_VERSION", f"Unsupported protocol version: {version}", extra=extra)


_text = jsonrpc.Decoder(str)


DEFAULT_LEVEL = "info"  # for clients of an era in which a server may log without being asked
LONGEST_STATE = 256 * 1024  # characters of what a server wants back; those of real ones have some hundreds
LONGEST_SEALED = 2 * 1024 * 1024  # of the same when it is sealed, in up to four bytes a character, with what else is
MOST_REPEATED = 128
LONGEST_REPEATED = 1024  # bytes


def _once(read: Callable[[Raw], Value]) -> Callable[[Raw], Value]:
    """The same for what clients repeat in each request: it is read once. Nobody changes what comes of it."""

    @lru_cache(MOST_REPEATED)
    def known(written: bytes) -> Value:
        return read(Raw(written))

    return lambda raw: known(bytes(raw)) if len(raw) <= LONGEST_REPEATED else read(raw)


@_once
def _declared(raw: Raw) -> tuple[Mapping[str, Any], Raw]:
    """Capabilities, and what servers hear of them."""
    capabilities = asks.declared(raw)
    return capabilities, told(capabilities)


class _Info(msgspec.Struct):
    """An object."""


_info = jsonrpc.Decoder(_Info)


@_once
def read_envelope(meta: Raw) -> Envelope:
    """The `_meta` of a request. Raises `Fault` INVALID_ARGS for a missing or misshapen key."""
    read = calls.read_meta(meta)
    version = _required(read.members, mcp.VERSION_KEY, _text.decode)
    capabilities, told = _required(read.members, mcp.CAPABILITIES_KEY, _declared)
    _optional(read.members, mcp.CLIENT_INFO_KEY, _info.decode)  # nothing goes by it
    return Envelope(version, SERVED.get(version), capabilities, _log_level(read.members), read, told)


def _required(meta: Members, key: str, read: Callable[[Raw], Value]) -> Value:
    found = _optional(meta, key, read)
    if found is None:
        raise Fault("INVALID_ARGS", f'Invalid params: _meta lacks "{key}"')
    return found


def _optional(meta: Members, key: str, read: Callable[[Raw], Value]) -> Value | None:
    if key not in meta:
        return None
    try:
        return read(meta[key])
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f'Invalid params: _meta["{key}"]: {error}') from None


def _log_level(meta: Members) -> str | None:
    level = _optional(meta, mcp.LOG_LEVEL_KEY, _text.decode)
    return level if level is None else calls.check_level(level)


def read_answers(params: Members, called: Mapping[str, str] = {}) -> Mapping[str, Answer]:
    """The `inputResponses` of a retry, to questions of which some keys were `called` something else."""
    found = params.get("inputResponses")
    if not found:
        return {}
    keys = {shown: key for key, shown in called.items()}
    answers = calls.read_members(found, "inputResponses")
    return {keys.get(shown, shown): Answer(result=raw) for shown, raw in answers.items()}


def read_state(params: Members) -> str | None:
    """The `requestState` of a retry; None for a first request. Raises `Fault` INVALID_ARGS."""
    return calls.read_text(params, "requestState", LONGEST_SEALED) if "requestState" in params else None


def write_done(
    method: str, body: Raw | bytes, is_foreign: bool = False, is_for_all: bool = True, frame: Raw = jsonrpc.NOTHING
) -> bytes | Joined:
    """A complete result. What this era requires and an older server left out, or meant otherwise, is filled in. One of
    a type that we do not know is as it was. What a cache may keep is private where it is not `is_for_all`. `frame` has
    the members of a large one that are looked at here. Raises `Fault`."""
    whole = body
    if not is_for_all and method in _REQUIRED_MEMBERS:
        body = _private(body, frame)
    if is_foreign:
        return large.as_bytes(body)
    wanted = _REQUIRED_MEMBERS.get(method, _COMPLETE)
    if method in revisions.MEANT_OTHERWISE:
        body = revisions.write_modern_result(method, body)
    try:
        try:
            there = _strict_filled(frame if frame and body is whole else body)
        except msgspec.DecodeError:
            there = _filled.decode(frame if frame and body is whole else body)
    except jsonrpc.UNREADABLE:
        raise Fault("UPSTREAM_ERROR", "The server's result is not a JSON object", reach="executed") from None
    if there.resultType and bytes(there.resultType) != b'"complete"' and not counting.is_too_much(body):
        body = jsonrpc.with_members(body, {"resultType": b'"complete"'})  # an older server's own use of the word
    if wanted is _COMPLETE:
        missing = b"" if there.resultType else wanted[0][1]
    else:
        missing = b",".join(member for name, member in wanted if not getattr(there, name))
    said: Any = body
    if missing:
        return jsonrpc.with_first_member(body, missing)
    return Joined(body) if isinstance(said, memoryview) else bytes(body)


def _private(body: Raw | bytes, frame: Raw) -> Raw | bytes:
    """A result that no cache gives to anybody else, whatever its server says of it. Raises `Fault`."""
    try:
        scope = _filled.decode(frame or body).cacheScope
        if not scope or (bytes(scope) == _PRIVATE and bytes(body).count(b'"cacheScope"') == 1):
            return body
        if counting.is_too_much(body):
            raise Fault("UPSTREAM_ERROR", "The server's result has too many JSON values", reach="executed")
        return jsonrpc.with_members(body, {"cacheScope": _PRIVATE})
    except jsonrpc.UNREADABLE:
        return body  # it is refused, or of a type that we do not know


_PRIVATE = b'"private"'


class _Filled(msgspec.Struct):
    """The members of a result that this era requires, where they are there."""

    resultType: Raw = jsonrpc.NOTHING
    ttlMs: Raw = jsonrpc.NOTHING
    cacheScope: Raw = jsonrpc.NOTHING


_filled = jsonrpc.Decoder(_Filled)
_strict_filled = msgspec.json.Decoder(_Filled).decode  # not by `Decoder`: a call passes this


_COMPLETE = (("resultType", b'"resultType":"complete"'),)
_REQUIRED_MEMBERS = dict.fromkeys(
    mcp.CACHED, (*_COMPLETE, ("ttlMs", b'"ttlMs":0'), ("cacheScope", b'"cacheScope":"private"'))
)


def _spoken(client: Client) -> Revision:
    assert client.revision  # each request of this era says it
    return client.revision


def write_questions(client: Client, asks: Iterable[Ask], called: Mapping[str, str] = {}) -> Raw:
    """Questions as `write_required` has them. Some of their keys are `called` something else."""
    requests = {
        called.get(ask.key, ask.key): {"method": ask.method, "params": write_question(ask, _spoken(client))}
        for ask in asks
    }
    return Raw(jsonrpc.encode(requests)) if requests else jsonrpc.NOTHING


def write_required(questions: Raw, state: str | None) -> bytes:
    """The `input_required` result."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if questions:
        result["inputRequests"] = questions
    if state is not None:
        result["requestState"] = state
    return jsonrpc.encode(result)


def write_listing(client: Client, listing: Listing, server_info: Mapping[str, Any]) -> bytes:
    """A list holds as long as all servers say that theirs do; it is public if all of them are."""
    revision, scope = _spoken(client), "public" if listing.is_public else "private"
    caching = {"ttlMs": int(listing.ttl * 1000), "cacheScope": scope}
    result = {"resultType": "complete"} | caching | listing.members()
    result[listing.kind] = revisions.write_items(listing, revision)
    result["_meta"] = listing.meta() | {mcp.SERVER_INFO_KEY: server_info}
    return bytes(naming.write(mcp.LIST_OF_KIND[listing.kind], jsonrpc.encode(result), revision))


def write_discovered(
    client: Client, capabilities: Mapping[str, Any], server_info: Mapping[str, Any], instructions: str
) -> bytes:
    result: dict[str, Any] = {
        "resultType": "complete",
        "supportedVersions": list(SERVED),
        "capabilities": tasks.known_to(_spoken(client), capabilities),
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {mcp.SERVER_INFO_KEY: server_info},
    }
    if instructions:
        result["instructions"] = instructions
    return jsonrpc.encode(result)


def error_code(fault: Fault) -> int:
    """This era knows neither -32002 nor -32042, and of the codes that it keeps for itself only those it defines."""
    if fault.rpc == mcp.RESOURCE_NOT_FOUND:
        return jsonrpc.INVALID_PARAMS
    is_undefined = fault.rpc in mcp.RESERVED_ERRORS and fault.rpc not in mcp.MODERN_ONLY_ERRORS
    return jsonrpc.INTERNAL_ERROR if is_undefined or fault.rpc == mcp.URL_ELICITATION_REQUIRED else fault.rpc


# To servers.


class _AskPeek(msgspec.Struct):
    method: str
    params: Raw = jsonrpc.EMPTY_OBJECT


class _TypePeek(msgspec.Struct):
    """Of a result that is too much to be read."""

    resultType: str | UnsetType = UNSET
    inputRequests: Raw = jsonrpc.NOTHING


class _ResultPeek(msgspec.Struct):
    resultType: str | UnsetType = UNSET
    inputRequests: dict[str, _AskPeek] | bool | None = None  # False: they are too large to be looked into
    requestState: Annotated[str, msgspec.Meta(max_length=LONGEST_STATE)] | bool | None = None  # False: likewise


class Discovered(msgspec.Struct):
    """The answer to `server/discover`."""

    supportedVersions: tuple[str, ...]
    capabilities: dict[str, Any] | None = None
    instructions: str | None = ""


_type_peek = jsonrpc.Decoder(_TypePeek)
_result_peek = jsonrpc.Decoder(_ResultPeek)
_strict_type_peek = msgspec.json.Decoder(_TypePeek).decode  # not by `Decoder`: a call passes one of these
_strict_result_peek = msgspec.json.Decoder(_ResultPeek).decode
_discovered = jsonrpc.Decoder(Discovered)


def envelope_meta(revision: Revision, client: Client, info: Raw, log_level: str | None = None) -> Members:
    """The `_meta` of a request to a modern server: each caller's own capabilities, our own name (`info`)."""
    meta: Members = {
        mcp.VERSION_KEY: _VERSIONS[revision.date],
        mcp.CLIENT_INFO_KEY: info,
        mcp.CAPABILITIES_KEY: client.told or told(client.capabilities),
    }
    if log_level:
        meta[mcp.LOG_LEVEL_KEY] = Raw(jsonrpc.encode(log_level))
    return meta


def told(capabilities: Mapping[str, Any]) -> Raw:
    """What a modern server hears of a client's capabilities."""
    found = asks.relayed_capabilities(capabilities)
    if tasks.declares(capabilities):
        found["extensions"] = {**found.get("extensions", {}), **tasks.EXTENSION["extensions"]}
    return Raw(jsonrpc.encode(found))


def shared(capabilities: Mapping[str, Any]) -> tuple[Mapping[str, Any], Raw]:
    """The same and what servers hear of it, as others had it who declare the same: there are thousands of sessions, and
    few kinds of clients."""
    written = jsonrpc.encode(capabilities)
    found = _shared.get(written)
    if not found:
        found = capabilities, told(capabilities)
        if len(_shared) >= MOST_REPEATED:
            _shared.clear()
        if len(written) <= LONGEST_REPEATED:
            _shared[written] = found
    return found


_shared: dict[bytes, tuple[Mapping[str, Any], Raw]] = {}
_VERSIONS = {date: Raw(jsonrpc.encode(date)) for date in SERVED}


def write_answers(params: Params, answers: Mapping[str, Answer], state: str | None) -> Params:
    """The parameters of a retry. Raises `Fault` where a client failed to answer: this era has no word for that."""
    for answer in answers.values():
        if answer.error:
            raise Fault("UPSTREAM_ERROR", f"The client could not answer: {answer.error.message}", reach="executed")
    if answers:
        params["inputResponses"] = Raw(jsonrpc.encode({key: answer.result for key, answer in answers.items()}))
    if state is not None:
        params["requestState"] = Raw(jsonrpc.encode(state))
    return params


def read_result(call: Call, body: Raw) -> Done | Accepted | Required:
    """What a modern server's result means. Raises `Fault` for one that breaks the protocol."""
    try:
        is_too_much = len(body) > counting.LARGE and counting.is_too_much(body)
        try:
            peek = _strict_type_peek(body) if is_too_much else _strict_result_peek(body)
        except msgspec.DecodeError:
            peek = _type_peek.decode(body) if is_too_much else _result_peek.decode(body)
    except jsonrpc.UNREADABLE as error:
        raise Fault("UPSTREAM_ERROR", f"The server's result is malformed: {error}", reach="executed") from None
    if peek.resultType == "complete" and not peek.inputRequests:  # most say no more
        return Done(body, typed=None if call.method in mcp.CACHED else body)
    is_of_task = peek.inputRequests and call.kind == "tasks"  # which goes to the client as it is
    questions = _read_questions(peek, call.client) if is_of_task or peek.resultType == "input_required" else ()
    if peek.resultType in ("complete", UNSET):
        return Done(body, typed=None if peek.resultType is UNSET or call.method in mcp.CACHED else body)
    if peek.resultType == "task":
        return _read_task(call, body)
    if peek.resultType != "input_required":
        return Done(body, is_foreign=True)
    assert isinstance(peek, _ResultPeek)  # or it had too much in it
    state = peek.requestState
    if isinstance(state, bool):
        raise _wants_too_much_back()
    if not questions and state is None:
        raise Fault("UPSTREAM_ERROR", "The server asked for input but did not say which one", reach="executed")
    return Required(questions, state)


def _wants_too_much_back() -> Fault:
    message = (
        f"The server's result is malformed: its requestState must be a string of at most {LONGEST_STATE:,} characters, "
        f"in a large answer of {jsonrpc.LONGEST_MEMBER:,} bytes"
    )
    return Fault("UPSTREAM_ERROR", message, reach="executed")


def _read_questions(peek: _TypePeek | _ResultPeek, client: Client) -> tuple[Ask, ...]:
    """Raises `Fault`."""
    found = peek.inputRequests if isinstance(peek, _ResultPeek) else False
    asked = {} if found is None else found
    if isinstance(asked, bool) or len(asked) > asks.MOST_OPEN:
        raise _asked_too_much()
    questions = tuple(
        Ask(key, ask.method, jsonrpc.given(ask.params) or jsonrpc.EMPTY_OBJECT) for key, ask in asked.items()
    )
    has_large = any(asks.is_too_large(ask) or len(ask.key) > jsonrpc.LONGEST_ID for ask in questions)
    if has_large or asks.is_too_long(*questions):
        raise _asked_too_much()
    for ask in questions:
        try:
            jsonrpc.members(ask.params)
        except jsonrpc.UNREADABLE:
            message = f"The server's result is malformed: the params of {ask.method} must be an object"
            raise Fault("UPSTREAM_ERROR", message, reach="executed") from None
        asks.check_url(ask)
        if not asks.is_answerable(ask, client.capabilities):
            message = f"The server asked for {ask.method}, which its client did not declare"
            raise Fault("UPSTREAM_ERROR", message, reach="executed")
    return questions


def _asked_too_much() -> Fault:
    most = (
        f"{asks.MOST_OPEN} questions of {asks.MOST_VALUES:,} JSON values, with keys of {jsonrpc.LONGEST_ID:,} bytes, "
        f"{asks.MOST_BYTES:,} bytes together ({jsonrpc.LONGEST_MEMBER:,} in a large answer) and {asks.MOST_ESCAPES:,} "
        f"escapes, and {asks.MOST_TO_READ:,} bytes of those to a person"
    )
    return Fault("UPSTREAM_ERROR", f"The server asked for too much at once: the limit is {most}", reach="executed")


def _read_task(call: Call, body: Raw) -> Done | Accepted:
    """A new task; on looking at one that there is, some servers say the same word."""
    if call.kind == "tasks":
        return Done(body)
    if call.method != "tools/call" or not tasks.declares(call.client.capabilities):
        raise Fault("UPSTREAM_ERROR", "The server created a task for a client without task support", reach="executed")
    tasks.read_id(body)
    return Accepted(body)


def read_discovered(body: Raw) -> Discovered:
    """Raises `Fault` where the answer is none."""
    try:
        return _discovered.decode(body)
    except jsonrpc.UNREADABLE as error:
        raise Fault("UPSTREAM_ERROR", f"The answer to server/discover is malformed: {error}") from None


def _read_in_ours(revision: Revision, call: Call, body: Raw) -> Done | Accepted | Required:
    """The same of a server whose revision has other names than ours for something."""
    found = read_result(call, body)
    if isinstance(found, Required):
        asked = tuple(read_question(ask, revision) for ask in found.asks)
        return msgspec.structs.replace(found, asks=asked)
    if isinstance(found, Accepted) or found.is_foreign:
        return found
    return msgspec.structs.replace(found, body=naming.read(call.method, found.body, revision))


class ToServer:
    """How this era is spoken to one server: each request carries its caller's own capabilities and who we are (`info`);
    questions come back as results."""

    closing_cancels = True
    hears_of_roots = False
    runs_tasks = False  # it decides itself

    def __init__(self, revision: Revision, found: Discovered, info: Raw) -> None:
        self.revision = revision
        self._info = info
        self.resource_missing = revision.resource_missing
        self.capabilities = listed.capabilities(found.capabilities)
        self.instructions = found.instructions or ""
        self.read = partial(_read_in_ours, revision) if revision.names else read_result

    def call(self, call: Call, id: int) -> tuple[Params, Headers]:
        level = call.log_level or (DEFAULT_LEVEL if call.wants_logs else None)
        meta = envelope_meta(self.revision, call.client, self._info, level)
        if call.wants_progress:
            meta[mcp.PROGRESS_KEY] = Raw(b"%d" % id)
        params = calls.write_params(call, meta)
        if call.resumption:
            write_answers(params, call.resumption.answers, call.resumption.state)
        elif call.volunteered:
            params["inputResponses"] = call.volunteered
        told = headers.for_request(self.revision, call.method, call.target if call.method in mcp.NAMED else None)
        if call.tool_info and call.tool_info.header_arguments:
            told = (*told, *header_arguments.write(call.tool_info.header_arguments, call.arguments))
        return params, told

    def listing(self, method: str, cursor: str | None, client: Client) -> tuple[Members, Headers]:
        meta = Raw(jsonrpc.encode(envelope_meta(self.revision, client, self._info)))
        return {"_meta": meta, **calls.write_cursor(cursor)}, headers.for_request(self.revision, method, None)

    def ping(self) -> tuple[str, Members, Headers]:
        return mcp.DISCOVER, *self.listing(mcp.DISCOVER, None, Client())

    def other(self) -> Headers:
        return ((b"MCP-Protocol-Version", self.revision.date.encode()),)
