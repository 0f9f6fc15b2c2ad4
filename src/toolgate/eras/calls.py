"""`params` ↔ `Call`: what both eras share.

The rule this file keeps: only the members that a decision needs are taken out; all others, known or not,
travel in `extra` and `meta` as the bytes they came in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.model import Answer, Ask, Call, Client, Fault, Notes
from toolgate.wire import jsonrpc, mcp
from toolgate.wire.jsonrpc import Members

_text = msgspec.json.Decoder(str)


def read_members(raw: Raw, what: str) -> Members:
    """An object's members. Raises `Fault` INVALID_ARGS that names `what` where it is no object."""
    try:
        return jsonrpc.members(raw)
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid params: {what} must be an object ({error})") from None


def read_text(found: Members, name: str) -> str:
    """A required string parameter. Raises `Fault` INVALID_ARGS."""
    try:
        return _text.decode(found[name])
    except (KeyError, *jsonrpc.UNREADABLE):
        raise Fault("INVALID_ARGS", f'Invalid params: "{name}" must be a string') from None


def read_meta(params: Members) -> Members:
    meta = params.get("_meta")
    return read_members(meta, "_meta") if meta else {}


def read_call(method: str, params: Members, meta: Members, client: Client, notes: Notes, log_level: str | None) -> Call:
    """The canonical call of a request of `mcp.CALLS`. Its `target` is still the client's name for it."""
    target_key = mcp.CALLS[method].target
    target = read_text(params, target_key)
    arguments = params.get("arguments", jsonrpc.NOTHING)
    if arguments and memoryview(arguments)[0] != 0x7B:
        raise Fault("INVALID_ARGS", 'Invalid params: "arguments" must be an object')
    taken = {target_key, "arguments", "_meta", "inputResponses", "requestState"}
    return Call(
        method=method,
        target=target,
        client=client,
        arguments=arguments,
        extra={name: member for name, member in params.items() if name not in taken},
        meta={name: member for name, member in meta.items() if name not in mcp.HOP_KEYS},
        notes=notes,
        wants_progress=mcp.PROGRESS_KEY in meta,
        log_level=log_level,
    )


def write_params(call: Call, meta: Mapping[str, Raw]) -> Members:
    """The parameters for a server, in its own names. `meta` is what this hop adds to the call's own."""
    params: Members = dict(call.extra)
    params[mcp.CALLS[call.method].target] = Raw(jsonrpc.encode(call.target))
    if call.arguments:
        params["arguments"] = call.arguments
    merged = {**call.meta, **meta}
    if merged:
        params["_meta"] = Raw(jsonrpc.encode(merged))
    return params


def canonical(value: Any) -> bytes:
    """JSON with its members in one order, so that equal values are equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def digest(call: Call) -> bytes:
    """What a retry must repeat: method, target and arguments, however the arguments are spelled."""
    try:
        arguments = canonical(jsonrpc.value(call.arguments or b"{}"))
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid params: {error}") from None
    return hashlib.sha256(b"\0".join((call.method.encode(), call.target.encode(), arguments))).digest()


class _Elicitation(msgspec.Struct):
    mode: str = "form"


class _Sampling(msgspec.Struct):
    tools: Raw = jsonrpc.NOTHING


def is_answerable(ask: Ask, capabilities: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities may be asked this (MRTR, server requirement 7)."""
    declared = capabilities.get(mcp.ASKS[ask.method].capability) if ask.method in mcp.ASKS else None
    if not isinstance(declared, Mapping):
        return False
    try:
        if ask.method == "elicitation/create":
            mode = msgspec.json.decode(ask.params, type=_Elicitation).mode
            return mode in declared or (mode == "form" and not declared)
        if ask.method == "sampling/createMessage":
            return not msgspec.json.decode(ask.params, type=_Sampling).tools or "tools" in declared
    except jsonrpc.UNREADABLE:
        return False
    return True


def declined(ask: Ask, why: str = "") -> Answer:
    """The answer of a client that cannot be asked, in the protocol's own way."""
    method = mcp.ASKS[ask.method]
    if method.declined is not None:
        return Answer(result=method.declined)
    return Answer(error=jsonrpc.RpcError(-1, why or method.refusal))


# What a client may declare that we relay questions for, and what each may hold.
_RELAYED = {"elicitation": ("form", "url"), "sampling": ("tools", "context"), "roots": ()}


def relayed_capabilities(capabilities: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of a client's capabilities those that we relay, without anything else in them. An empty `elicitation` means
    forms. Changes of roots are not relayed: each call asks anew."""
    found: dict[str, dict[str, Any]] = {}
    for name, known in _RELAYED.items():
        declared = capabilities.get(name)
        if isinstance(declared, Mapping):
            found[name] = {part: {} for part in known if part in declared}
    if found.get("elicitation") == {}:
        found["elicitation"] = {"form": {}}
    return found


class Listing(msgspec.Struct, frozen=True):
    """One list for one client: raw items, and what could not be had, as data that is shown."""

    kind: str
    items: tuple[Raw, ...]
    failures: tuple[tuple[str, str], ...] = ()  # (server, why)
    pending: tuple[str, ...] = ()  # servers that are still starting

    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        if self.failures:
            meta["partial_failure"] = True
            meta["failures"] = [{"server_id": server, "error": why} for server, why in self.failures]
        if self.pending:
            meta["pending"] = list(self.pending)
        return meta

    def members(self) -> dict[str, Any]:
        found: dict[str, Any] = {self.kind: self.items}
        meta = self.meta()
        return found | {"_meta": meta} if meta else found


def answer_value(answer: Answer) -> dict[str, Any]:
    """An answer's result, decoded; an error answers nothing."""
    try:
        return msgspec.json.decode(answer.result or b"{}", type=dict[str, Any])
    except jsonrpc.UNREADABLE:
        return {}
