"""`params` ↔ `Call`: what both eras share.

The rules this file keeps: only the members that a decision needs are taken out; all others, known or not, travel in
`extra` and `meta` as the bytes they came in; and none of these can be taken for one of the former by a reader that does
not mind case, as Go's `encoding/json` does: it would do other things than were decided on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp, spelling, surrogates, templates
from toolgate.core.fault import Fault, Reached
from toolgate.core.jsonrpc import Members, Message, Params
from toolgate.core.model import Call, Client
from toolgate.core.notes import Notes

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]  # of HTTP

LONGEST_NAME = 16 * 1024  # characters
LONGEST_META = 1024 * 1024  # bytes; those of real requests have some hundreds
LONGEST_COMPLETION = 256 * 1024  # bytes: it is looked at a dozen times
MOST_CHOSEN = 100  # arguments that were chosen before the one that is being completed
SPELLED = 256 * 1024  # bytes
LONGEST_OF_OURS = 64  # characters of any name that means something here; to fold one makes it no shorter
LONGEST_QUOTE = 100  # characters of one in an error

# All signs beyond ASCII that are ASCII without case, as `ſ`, the Kelvin sign, `ß`, two of `i` and ligatures.
_becomes_ascii = re.compile("[\x00-\x7f\u00df\u0130\u0131\u017f\u1e9e\u212a\ufb00-\ufb06]*").fullmatch
_strict_text = msgspec.json.Decoder(str).decode
_strict_members = msgspec.json.Decoder(Members).decode


def read_members(raw: Raw, what: str) -> Members:
    """An object's members. Raises `Fault` INVALID_ARGS that names `what` where it is no object, or has too many."""
    try:
        try:
            found = _strict_members(raw)  # not by `Decoder`: two of these are read in a call
        except msgspec.DecodeError:
            found = jsonrpc.members(raw)
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid params: {what} must be an object ({error})") from None
    if len(found) > jsonrpc.MOST_MEMBERS:  # before anything is done with each
        message = f"Invalid params: {what} has {len(found):,} members; the limit is {jsonrpc.MOST_MEMBERS:,}"
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    return found


def read_text(found: Members, name: str, most: int = LONGEST_NAME) -> str:
    """A required string parameter. Raises `Fault` INVALID_ARGS."""
    try:
        try:
            text = _strict_text(found[name])  # not by `Decoder`: two of these are read in a call
        except msgspec.DecodeError as refusal:
            text = surrogates.decode(bytes(found[name]), _strict_text, refusal)
    except (KeyError, *jsonrpc.UNREADABLE):
        raise Fault("INVALID_ARGS", f'Invalid params: "{name}" must be a string') from None
    return bounded(text, name, most) if len(text) > LONGEST_NAME else text


def bounded(text: str, name: str, most: int = LONGEST_NAME) -> str:
    """A name or a URI, which much of what is remembered or noted goes by. Raises `Fault` INVALID_ARGS."""
    if len(text) > most:
        message = f'Invalid params: "{name}" has {len(text):,} characters; the limit is {most:,}'
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    return text


def check_level(level: str) -> str:
    """Raises `Fault` INVALID_ARGS for a log level that the protocol does not have."""
    if level not in mcp.LOG_LEVELS:
        raise Fault("INVALID_ARGS", f"Invalid params: unknown log level {level!r}; one of {', '.join(mcp.LOG_LEVELS)}")
    return level


def refuse_lookalikes(found: Iterable[str], decisive: Mapping[str, str], where: str) -> None:
    """Raises `Fault` INVALID_ARGS for a member that a lenient reader takes for one of these, which are by `folded`."""
    for name in found:
        meant = decisive.get(folded(name))
        if meant and name != meant:
            message = f'Invalid params: {name[:LONGEST_QUOTE]!r} in {where} looks like "{meant}"; write "{meant}"'
            raise Fault("INVALID_ARGS", message, reach="not_sent")


def by_folded(names: Iterable[str]) -> Mapping[str, str]:
    """These by what a lenient reader knows them by."""
    return {folded(name): name for name in names}


def without_lookalikes(found: Members, known: Mapping[str, str]) -> Members:
    """These members without those that a lenient reader takes for one that is `known`, by `folded`; the same object
    where there are none."""
    left = {name: raw for name, raw in found.items() if known.get(folded(name), name) == name}
    return found if len(left) == len(found) else left


def folded(name: str) -> str:
    """Without case, and without the signs that some readers pass over, or what stands behind a zero, where some end;
    but `_meta` and `meta` are two. A name that can mean none of ours stays as it is: to fold thousands of long ones
    takes others' time."""
    bare = name.partition("\0")[0].replace("_", "").replace("-", "")
    if len(bare) > LONGEST_OF_OURS or not (bare.isascii() or _becomes_ascii(bare)):
        return name
    bare = spelling.with_plain_i(bare.casefold())
    return name[:1] + "meta" if bare == "meta" and name[:1] in "_-" else bare


class PlainParams(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    name: Raw
    arguments: Raw
    meta: Raw = msgspec.field(default=jsonrpc.NOTHING, name="_meta")


class PlainCall(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A request as most are: a call of a tool that says nothing of which no call like it could say as much."""

    jsonrpc: Literal["2.0"]
    id: Annotated[int, msgspec.Meta(ge=0, lt=10**15)]
    method: Literal["tools/call"]
    params: PlainParams

    @property
    def message(self) -> Message:
        """As which it is answered: without its parameters, which were read."""
        return Message(self.jsonrpc, Raw(b"%d" % self.id), self.method)


_plain_call = msgspec.json.Decoder(PlainCall).decode


def read_plain_call(data: bytes) -> PlainCall | None:
    """None for what may be no such call: whoever gets that reads it as any other message."""
    if data.count(b"[") + data.count(b"{") >= jsonrpc.DEEPEST:
        return None
    try:
        if not data.isascii():
            data.decode()  # msgspec skips over raw members without looking at their encoding
        call = _plain_call(data)
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
        return None
    return call if memoryview(call.params.arguments)[0] == 0x7B else None


def read_plain(message: Message) -> tuple[bytes, bytes] | None:
    """What a call says beside its arguments, where it is as `PlainCall` has it, and that is short: its name for the
    tool and its `_meta`, as they are written."""
    try:
        params = _plain_params(message.params) if message.method == mcp.CALL else None
    except jsonrpc.UNREADABLE:
        return None
    return (bytes(params.name), bytes(params.meta)) if params and len(params.name) + len(params.meta) < SHORT else None


_plain_params = msgspec.json.Decoder(PlainParams).decode
SHORT = 512  # bytes of what calls say beside their arguments


class Meta(msgspec.Struct, frozen=True):
    """The `_meta` of a request. `passed_on` is what goes with the call; all else belongs to the hop that it came over.
    `progress_token` is empty where the client wants no progress."""

    members: Members
    passed_on: Members
    progress_token: Raw


def read_meta(raw: Raw | None) -> Meta:
    """Raises `Fault` INVALID_ARGS."""
    if not raw or bytes(raw) == b"null":
        return _NO_META
    if len(raw) > LONGEST_META:
        message = f"Invalid params: _meta has {len(raw):,} bytes; the limit is {LONGEST_META:,}"
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    found = read_members(raw, "_meta")
    token = found.get(mcp.PROGRESS_KEY, jsonrpc.NOTHING)
    if len(token) > jsonrpc.LONGEST_ID:
        message = (
            f'Invalid params: "{mcp.PROGRESS_KEY}" must have at most {jsonrpc.LONGEST_ID:,} bytes'  # each note has it
        )
        raise Fault("INVALID_ARGS", message, reach="not_sent")
    passed_on = {name: member for name, member in found.items() if name not in mcp.HOP_KEYS}
    for name, longest in mcp.LONGEST_OF_TRACE.items():
        if name in passed_on and len(passed_on[name]) > longest:
            del passed_on[name]
    refuse_lookalikes(passed_on, _FOLDED_HOP_KEYS, "_meta")
    return Meta(found, passed_on, token)


_FOLDED_HOP_KEYS = {folded(name): name for name in mcp.HOP_KEYS}
_NO_META = Meta({}, {}, jsonrpc.NOTHING)


def read_call(
    method: str,
    params: Members,
    meta: Meta,
    client: Client,
    notes: Notes,
    log_level: str | None,
    wants_logs: bool = False,
    headers: Mapping[str, str] | None = None,
    passed_on: Mapping[str, str] = {},
    named: str | None = None,
) -> Call:
    """The canonical call of a method of `mcp.TARGETED`. Its `target` is still the client's name for it; `named` is that
    where it was read already."""
    target_key = mcp.TARGETED[method].target
    reference, target = ("", named) if named is not None else _read_target(params, target_key)
    arguments = params.get("arguments", jsonrpc.NOTHING)
    if arguments and memoryview(arguments)[0] != 0x7B and bytes(arguments) == b"null":
        arguments = jsonrpc.NOTHING
    if arguments and memoryview(arguments)[0] != 0x7B:
        raise Fault("INVALID_ARGS", 'Invalid arguments: "arguments" must be an object')
    taken = _TAKEN[method]
    extra = {} if params.keys() <= taken else {name: params[name] for name in params if name not in taken}
    if reference:
        if sum(len(memoryview(raw)) for raw in extra.values()) > LONGEST_COMPLETION:
            message = f"Invalid params: the parameters of a completion may have {LONGEST_COMPLETION:,} bytes together"
            raise Fault("INVALID_ARGS", message, reach="not_sent")
        extra["ref"] = _reference_alone(reference, extra["ref"])
        if mcp.REFERENCES[reference].target == "uri":
            extra |= _completion_alone(extra)
    if extra:
        refuse_lookalikes(extra, _DECISIVE, "params")
    return Call(
        method=method,
        target=target,
        client=client,
        arguments=arguments,
        extra=extra,
        meta=meta.passed_on,
        reference=reference,
        notes=notes,
        wants_progress=bool(meta.progress_token),
        headers=headers,
        passed_on=passed_on,
        wants_logs=wants_logs,
        log_level=log_level,
        reached=Reached(),
    )


_OF_A_RETRY = ("inputResponses", "requestState")
_TAKEN = {  # of the parameters, by the call's own members
    method: frozenset({each.target, "arguments", "_meta", *(_OF_A_RETRY if method in mcp.CALLS else ())})
    - {"ref"}  # which may have a title
    for method, each in mcp.TARGETED.items()
}
_DECISIVE = {
    folded(name): name
    for name in (*(each.target for each in mcp.TARGETED.values()), "arguments", "_meta", "task", "cursor", *_OF_A_RETRY)
}
_DECISIVE_ALWAYS = {folded(name): name for name in ("_meta", *_OF_A_RETRY)}  # for a method that MCP does not define
_OF_A_REFERENCE = {folded(name): name for name in ("type", "title", *(each.target for each in mcp.REFERENCES.values()))}


def _read_target(params: Members, key: str) -> tuple[str, str]:
    return _read_reference(params) if key == "ref" else ("", read_text(params, key))


def _read_reference(params: Members) -> tuple[str, str]:
    """What a completion is for (spec: server/utilities/completion): the type of the reference, and what it names."""
    reference = read_members(params.get("ref", jsonrpc.NOTHING), "ref")
    type = read_text(reference, "type")
    if type not in mcp.REFERENCES:
        raise Fault("INVALID_ARGS", f"Invalid params: unknown type of ref {type!r}; one of {', '.join(mcp.REFERENCES)}")
    return type, read_text(reference, mcp.REFERENCES[type].target)


def _reference_alone(type: str, raw: Raw) -> Raw:
    """Without what names something by another type: what is asked for is what was decided on."""
    found = read_members(raw, "ref")
    refuse_lookalikes(found, _OF_A_REFERENCE, "ref")
    others = {each.target for each in mcp.REFERENCES.values()} - {mcp.REFERENCES[type].target}
    kept = {name: member for name, member in found.items() if name not in others}
    return raw if len(kept) == len(found) else Raw(jsonrpc.encode(kept))


def _completion_alone(extra: Members) -> Members:
    """What is completed, and by what, each once and in shape: what it makes of a template is decided on."""
    refuse_lookalikes(extra, _OF_A_COMPLETION["params"], "params")
    alone: Members = {}
    for name in ("argument", "context"):
        if name in extra:
            found = read_members(extra[name], name)
            refuse_lookalikes(found, _OF_A_COMPLETION[name], name)
            alone[name] = Raw(jsonrpc.encode(found))
    if given := read_members(alone.get("context", jsonrpc.NOTHING), "context").get("arguments"):
        chosen = read_members(given, "context.arguments")
        alone["context"] = Raw(jsonrpc.with_members(alone["context"], {"arguments": jsonrpc.encode(chosen)}))
        if spelling.are_too_long(chosen):
            raise Fault("INVALID_ARGS", 'Invalid params: names in "context.arguments" are too long', reach="not_sent")
        if len(chosen) > MOST_CHOSEN or len(set(map(templates.same, chosen))) < len(chosen):
            message = (
                f'Invalid params: "context.arguments" must have at most {MOST_CHOSEN} names, all of them different'
            )
            raise Fault("INVALID_ARGS", message, reach="not_sent")
    try:
        found = templates.completing(alone.get("argument", jsonrpc.NOTHING), alone.get("context", jsonrpc.NOTHING))
        if spelling.are_too_long((found.name,)):
            raise Fault("INVALID_ARGS", 'Invalid params: the name of "argument" is too long', reach="not_sent")
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid params: {error}", reach="not_sent") from None
    return alone


_OF_A_COMPLETION = {
    "params": {each: each for each in ("argument", "context")},
    "argument": {each: each for each in ("name", "value")},
    "context": {"arguments": "arguments"},
}


def read_told(params: Raw) -> Raw:
    """The parameters of a notification, without what belongs to the hop that it came over."""
    found = jsonrpc.members(params)
    meta = read_meta(found.get("_meta"))
    if len(meta.passed_on) == len(meta.members) and bytes(found.get("_meta", b"")) != b"null":
        return params
    del found["_meta"]
    return Raw(jsonrpc.encode(found | ({"_meta": meta.passed_on} if meta.passed_on else {})))


def write_params(call: Call, meta: Mapping[str, Raw]) -> Params:
    """The parameters for a server, in its own names. `meta` is what this hop adds to the call's own. Raises `Fault`."""
    params: Params = dict(call.extra)
    if "\0" in call.target and call.kind in ("tools", "prompts"):  # where some end: another name than was judged
        raise Fault("INVALID_ARGS", "A name must not have the character U+0000", reach="not_sent")
    if call.asked_in:
        params = dict(jsonrpc.members(call.arguments))
    elif call.reference:
        target = {mcp.REFERENCES[call.reference].target: jsonrpc.encode(call.target)}
        params["ref"] = Raw(jsonrpc.with_members(call.extra["ref"], target))
    else:
        params[mcp.TARGETED[call.method].target] = call.target
    if call.arguments and not call.asked_in:
        params["arguments"] = call.arguments
    merged = {**call.meta, **meta}
    if merged:
        params["_meta"] = merged
    return params


_FOLDED_METHODS = by_folded((*mcp.METHODS, *mcp.NOTIFICATIONS))


def read_undefined(
    method: str,
    params: Members,
    meta: Meta,
    client: Client,
    notes: Notes | None,
    era: Literal["legacy", "modern"],
    **more: Any,
) -> Call:
    """The call of a method that MCP does not define: all its parameters are its arguments. `more` are other members."""
    if meant := _FOLDED_METHODS.get(folded(method.strip())):  # a server may carry it out, and nothing would be judged
        how = "needs an id" if meant in mcp.METHODS else "has none"
        message = f"Method not found: {method[:LONGEST_QUOTE]!r}; {meant} {how}"
        raise Fault("METHOD_NOT_FOUND", message, reach="not_sent")
    taken = {"_meta", *(_OF_A_RETRY if era == "modern" else ())}
    refuse_lookalikes(params, _DECISIVE_ALWAYS, "params")
    return Call(
        method=method,
        target="",
        client=client,
        arguments=Raw(jsonrpc.encode({name: member for name, member in params.items() if name not in taken})),
        meta=meta.passed_on,
        notes=notes,
        asked_in=era,
        reached=Reached(),
        wants_progress=bool(meta.progress_token),
        **more,
    )


def digest(call: Call) -> bytes:
    """What a retry must repeat: method, target, arguments and what else goes to the server, however it is spelled; of
    `SPELLED` bytes and more as it is spelled, since others wait while it is read."""
    arguments, extra = bytes(call.arguments or b"{}"), jsonrpc.encode(call.extra)
    if len(arguments) + len(extra) < SPELLED:
        try:
            arguments, extra = (jsonrpc.canonical(jsonrpc.value(each)) for each in (arguments, extra))
        except jsonrpc.UNREADABLE as error:
            raise Fault("INVALID_ARGS", f"Invalid params: {error}") from None
    parts = call.method.encode(), surrogates.utf8(call.target), arguments, extra
    return hashlib.sha256(b"\0".join(parts)).digest()


def read_cancelled(message: Message, known: Container[str | int | float]) -> str | int | float | None:
    """The request, of those known, that `notifications/cancelled` names: by its id, or else by the number that this
    stands for. None for any other message, or one out of shape."""
    if message.method != mcp.CANCELLED:
        return None
    try:
        id = jsonrpc.named_id(_cancelled.decode(message.params).requestId)
    except jsonrpc.UNREADABLE:
        return None
    return next((each for each in (id, jsonrpc.number_of(id)) if each is not None and each in known), None)


class _Cancelled(msgspec.Struct):
    requestId: Raw


_cancelled = jsonrpc.Decoder(_Cancelled)


def write_cursor(cursor: str | None) -> Members:
    """What asks for a page of a list; None for the first."""
    return {"cursor": Raw(jsonrpc.encode(cursor))} if cursor is not None else {}
