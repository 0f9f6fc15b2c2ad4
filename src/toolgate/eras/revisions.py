"""What the revisions know, as tables, and what is written in place of what one does not know (ruling 13).

The rules this file keeps: what is valid for its reader passes as the bytes that it came in; what is out of shape for
everybody passes too; a member that a revision does not know passes, if it is what later revisions mean by that name.
The schemas of the handshake revisions only ever grew by members, so one shape of a list item serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.model import Answer, Ask
from toolgate.wire import jsonrpc, mcp
from toolgate.wire.jsonrpc import Members

Mend: TypeAlias = Callable[[Raw], Raw]
"""The value as its reader's revision allows it, the same object where nothing is to be done; `NOTHING` leaves it out.
Raises `jsonrpc.UNREADABLE` where nobody could make it fit."""


def _is(kind: Any) -> Mend:
    decode = msgspec.json.Decoder(kind).decode

    def mend(raw: Raw) -> Raw:
        decode(raw)
        return raw

    return mend


def _optional(mend: Mend) -> Mend:
    def mend_or_leave_out(raw: Raw) -> Raw:
        try:
            return mend(raw)
        except jsonrpc.UNREADABLE:
            return jsonrpc.NOTHING

    return mend_or_leave_out


def _kept(mend: Mend) -> Mend:
    def mend_or_keep(raw: Raw) -> Raw:
        try:
            return mend(raw)
        except jsonrpc.UNREADABLE:
            return raw

    return mend_or_keep


def _list(mend: Mend) -> Mend:
    def mend_each(raw: Raw) -> Raw:
        old = msgspec.json.decode(raw, type=list[Raw])
        new = [mend(item) for item in old]
        return _written(raw, [item for item in new if item], _is_same(old, new))

    return mend_each


def _object(members: Mapping[str, Mend], *, any_other: Mend | None = None) -> Mend:
    def mend_members(raw: Raw) -> Raw:
        old = jsonrpc.members(raw)
        keep = any_other or _unseen
        new = {name: members.get(name, keep)(value) for name, value in old.items()}
        return _written(
            raw, {name: value for name, value in new.items() if value}, _is_same(old.values(), new.values())
        )

    return mend_members


def _options(**members: Mend) -> Mend:
    """An object that can do without any of these."""
    return _object({name: _optional(mend) for name, mend in members.items()})


def _unseen(raw: Raw) -> Raw:
    return raw


def _is_same(old: Any, new: Any) -> bool:
    return all(before is after for before, after in zip(old, new, strict=True))


def _written(raw: Raw, new: Any, is_same: bool) -> Raw:
    return raw if is_same else Raw(jsonrpc.encode(new))


# Items of lists.

_text, _flag, _number = _is(str), _is(bool), _is(float)
_any_object = _is(dict[str, Raw])
_uri = _is(Annotated[str, msgspec.Meta(pattern=r"""^[A-Za-z][A-Za-z0-9+.-]*:[^\s"<>\\^`{|}]*$""")])


class _Typed(msgspec.Struct):
    type: Literal["object"]


def _subschema(raw: Raw) -> Raw:
    """JSON Schema has `true` and `false` for schemas, the handshake revisions have not."""
    return Raw(_BOOLEAN_SCHEMAS.get(bytes(raw), b"")) or _any_object(raw)


_BOOLEAN_SCHEMAS = {b"true": b"{}", b"false": b'{"not":{}}'}
_properties = _object({}, any_other=_optional(_subschema))
_schema_now = _options(**{"$schema": _text})
_schema_before = _options(**{"$schema": _text, "properties": _properties, "required": _is(list[str])})


def _arguments_schema(of_revision: Mend) -> Mend:
    """Arguments are an object, whether their schema says so or not."""

    def mend(raw: Raw) -> Raw:
        if "type" not in jsonrpc.members(raw):
            raw = Raw(jsonrpc.with_members(raw, {"type": b'"object"'}))
        return of_revision(raw)

    return _kept(mend)


def _object_schema(raw: Raw) -> Raw:
    """A tool with any other schema is listed without: clients would refuse results that have no object."""
    msgspec.json.decode(raw, type=_Typed)
    return _schema_before(raw)


_icon = _object(
    {
        "src": _uri,
        "mimeType": _optional(_text),
        "sizes": _optional(_is(list[str])),
        "theme": _optional(_is(Literal["dark", "light"])),
    }
)
_about = {"title": _text, "description": _text, "icons": _list(_optional(_icon)), "_meta": _any_object}
_audience = _options(
    audience=_is(list[Literal["user", "assistant"]]),
    priority=_is(Annotated[float, msgspec.Meta(ge=0, le=1)]),
    lastModified=_text,
)
_hints = _options(title=_text, readOnlyHint=_flag, destructiveHint=_flag, idempotentHint=_flag, openWorldHint=_flag)
_task_support = _options(taskSupport=_is(Literal["forbidden", "optional", "required"]))
_argument = _options(title=_text, description=_text, required=_flag)


def _tool(input_schema: Mend, output_schema: Mend) -> Mend:
    rest = {"annotations": _hints, "execution": _task_support, "outputSchema": output_schema, **_about}
    optional = {name: _optional(mend) for name, mend in rest.items()}
    return _object({"inputSchema": _arguments_schema(input_schema), **optional})


_resource = _options(mimeType=_text, annotations=_audience, **_about)
_ITEMS: Mapping[str, Mend] = {
    "tools": _tool(_schema_before, _object_schema),
    "resources": _resource,
    "resourceTemplates": _resource,
    "prompts": _options(arguments=_list(_kept(_argument)), **_about),
}
_ITEMS_NOW: Mapping[str, Mend] = {**_ITEMS, "tools": _tool(_schema_now, _schema_now)}

_MOST_REMEMBERED = 4096
_remembered: dict[tuple[int, bool], tuple[Raw, Raw]] = {}  # an item is the same object as long as its list is not new


def write_item(kind: str, raw: Raw, revision: str) -> Raw:
    """An item of a list for a client of this revision, without what its schema does not allow."""
    is_now = revision == mcp.MODERN
    key = (id(raw), is_now)
    found = _remembered.get(key)
    if found and found[0] is raw:
        return found[1]
    if len(_remembered) >= _MOST_REMEMBERED:
        _remembered.clear()
    written = _kept((_ITEMS_NOW if is_now else _ITEMS)[kind])(raw)
    _remembered[key] = raw, written
    return written


# Content.

_KIND_SINCE = {
    "audio": "2025-03-26",
    "resource_link": "2025-06-18",
    "tool_use": "2025-11-25",
    "tool_result": "2025-11-25",
}


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    name: str = ""
    uri: str = ""
    mimeType: str = ""
    input: Raw = jsonrpc.EMPTY_OBJECT
    content: Raw = Raw(b"[]")
    annotations: Raw = jsonrpc.NOTHING


_block = msgspec.json.Decoder(_Block)
_blocks = msgspec.json.Decoder(list[_Block])

_SAID: Mapping[str, Callable[[_Block], str]] = {
    "audio": lambda block: f"[audio] {block.mimeType}".strip(),
    "resource_link": lambda block: f"[{block.name or 'resource'}] {block.uri}",
    "tool_use": lambda block: f"[tool_use] {block.name} {_decoded(block.input)}",
    "tool_result": lambda block: f"[tool_result] {' '.join(part.text for part in _blocks.decode(block.content))}",
}


def _decoded(raw: Raw) -> str:
    return bytes(raw).decode()


def _content(revision: str) -> Mend:
    """A block of content. One of a kind that the revision does not know becomes text."""

    def mend(raw: Raw) -> Raw:
        block = _block.decode(raw)
        if _KIND_SINCE.get(block.type, "") > revision:
            return _said(block)
        is_old_result = block.type == "tool_result" and revision < mcp.MODERN
        return _object_in_result(raw) if is_old_result else raw

    return mend


_object_in_result = _options(structuredContent=_any_object)


def _said(block: _Block) -> Raw:
    annotations = {"annotations": block.annotations} if block.annotations else {}
    return _text_block(_SAID[block.type](block), annotations)


def _text_block(text: str, more: Mapping[str, Raw] = {}) -> Raw:
    return Raw(jsonrpc.encode({"type": "text", "text": text, **more}))


# Results.


def _result(revision: str) -> Mend:
    content = _content(revision)
    return _object({"content": _list(content), "messages": _list(_object({"content": content}))})


_UNKNOWN = {
    revision: tuple(b'"%b"' % kind.encode() for kind in ("resource_link", "audio") if _KIND_SINCE[kind] > revision)
    for revision in mcp.HANDSHAKE_REVISIONS
}
_RESULTS = {revision: _result(revision) for revision in mcp.HANDSHAKE_REVISIONS}


def write_result(body: Raw | bytes, revision: str) -> Raw | bytes:
    """A result for a client of a handshake revision. Content of a kind that it does not know becomes text; structured
    content that is no object is left out, and stands in the text."""
    whole = bytes(body)
    raw = written = Raw(body)
    if any(word in whole for word in _UNKNOWN[revision]):
        written = _kept(_RESULTS[revision])(written)
    if b'"structuredContent"' in whole:
        written = _kept(_with_object_only)(written)
    return body if written is raw else written


def _with_object_only(raw: Raw) -> Raw:
    result = jsonrpc.members(raw)
    structured = result.get("structuredContent")
    if not structured or memoryview(structured)[0] == 0x7B:
        return raw
    del result["structuredContent"]
    content = msgspec.json.decode(result.get("content", b"[]"), type=list[Raw])
    if not any(_says(block, structured) for block in content):
        content.append(_text_block(_decoded(structured)))
    result["content"] = Raw(jsonrpc.encode(content))
    return Raw(jsonrpc.encode(result))


def _says(raw: Raw, structured: Raw) -> bool:
    """Whether a block holds this value, as JSON or, for a text, as it is."""
    block = _block.decode(raw)
    value = jsonrpc.value(structured)
    if block.type != "text" or block.text == value:
        return block.type == "text"
    try:
        return jsonrpc.canonical(jsonrpc.value(block.text.encode())) == jsonrpc.canonical(value)
    except (ValueError, RecursionError):
        return False


MOST_COMPLETIONS = 100  # a rule in words at first, in the schema since 2026-07-28


class _Completion(msgspec.Struct):
    values: list[Raw]


def write_completion(raw: Raw) -> Raw:
    """The `completion` of a result for a modern client."""
    values = msgspec.json.decode(raw, type=_Completion).values
    if len(values) <= MOST_COMPLETIONS:
        return raw
    shown = jsonrpc.encode(values[:MOST_COMPLETIONS])
    return Raw(jsonrpc.with_members(raw, {"values": shown, "hasMore": b"true"}))


_RESULTS_NOW: Mapping[str, Mend] = {
    "resources/read": _options(
        ttlMs=_is(Annotated[int, msgspec.Meta(ge=0)]), cacheScope=_is(Literal["private", "public"])
    ),
    "completion/complete": _object({"completion": write_completion}),
}


def write_modern_result(method: str, body: Raw | bytes) -> Raw | bytes:
    """A result for a modern client, without what an older server meant otherwise."""
    mend = _RESULTS_NOW.get(method)
    if not mend:
        return body
    raw = Raw(body)
    written = _kept(mend)(raw)
    return body if written is raw else written


# Notes.


class _ProgressNote(msgspec.Struct):
    message: str = ""
    total: float = 0.0


class _LogNote(msgspec.Struct):
    logger: str = ""


_NOTES: Mapping[str, tuple[msgspec.json.Decoder[Any], Mend]] = {
    "progress": (msgspec.json.Decoder(_ProgressNote), _options(message=_text, total=_number)),
    "log": (msgspec.json.Decoder(_LogNote), _options(logger=_text)),
}


def write_note(kind: str, params: Raw) -> Raw:
    """The parameters of a note. The message of progress is known since 2025-03-26, and must be a text."""
    fitting, mend = _NOTES[kind]
    try:
        fitting.decode(params)
        return params
    except jsonrpc.UNREADABLE:
        return _kept(mend)(params)


# Questions, and what clients can be asked.

_CAPABILITY_SINCE = {"elicitation": "2025-06-18"}
_PARTS_SINCE = "2025-11-25"  # `elicitation` and `sampling` have members that mean something


def known_capabilities(declared: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Of what a client of this revision declares what it can mean. An empty `elicitation` means forms."""
    found = {name: value for name, value in declared.items() if _CAPABILITY_SINCE.get(name, "") <= revision}
    if revision < _PARTS_SINCE:
        for name in found.keys() & {"elicitation", "sampling"}:
            found[name] = {} if isinstance(found[name], Mapping) else found[name]
    return found


# The first and the last revision that knows a member of a question; of any other hop than its own none knows `task`.
_SPANS = {
    "mode": (_PARTS_SINCE, mcp.MODERN),
    "tools": (_PARTS_SINCE, mcp.MODERN),
    "toolChoice": (_PARTS_SINCE, mcp.MODERN),
    "elicitationId": (_PARTS_SINCE, _PARTS_SINCE),
    "task": (mcp.MODERN, ""),
}


def write_question(ask: Ask, revision: str) -> Members:
    """The parameters of a question for a client of this revision."""
    found = jsonrpc.members(ask.params)
    known = {name: raw for name, raw in found.items() if name not in _SPANS or _is_within(revision, _SPANS[name])}
    mends = _QUESTIONS.get(ask.method, {})
    written = {name: _kept(mends[name](revision))(raw) if name in mends else raw for name, raw in known.items()}
    return {name: raw for name, raw in written.items() if raw}


def _is_within(revision: str, span: tuple[str, str]) -> bool:
    return span[0] <= revision <= span[1]


def _own_meta(_revision: str) -> Mend:
    """How a question was addressed on its own hop is no one else's."""
    of_hop = _object({key: lambda _raw: jsonrpc.NOTHING for key in mcp.HOP_KEYS})
    return lambda raw: jsonrpc.NOTHING if bytes(found := of_hop(raw)) == b"{}" else found


def _form(revision: str) -> Mend:
    field = _field if revision >= _PARTS_SINCE else _older_field
    return _object({"properties": _object({}, any_other=field), "$schema": _optional(_text)})


class _Field(msgspec.Struct):
    type: str


_DEFAULTS: Mapping[str, Mend] = {
    "string": _options(default=_text),
    "number": _options(default=_number),
    "integer": _options(default=_number),
    "boolean": _options(default=_flag),
    "array": _options(default=_is(list[str])),
}


def _field(raw: Raw) -> Raw:
    """A field of a form. Defaults are known since 2025-11-25 for all types, and must be of them."""
    return _DEFAULTS.get(msgspec.json.decode(raw, type=_Field).type, _unseen)(raw)


def _older_field(raw: Raw) -> Raw:
    """A field for those who know choices by `enum` and `enumNames` only, and one at a time (see `read_choices`)."""
    mended = _field(raw)
    field = jsonrpc.members(mended)
    if jsonrpc.value(field["type"]) == "array":
        return Raw(jsonrpc.encode(_choice(field, jsonrpc.members(field["items"]), "anyOf")))
    return Raw(jsonrpc.encode(_choice(field, field, "oneOf"))) if "oneOf" in field else mended


class _Option(msgspec.Struct):
    const: str
    title: str


def _choice(field: Members, options: Members, titled: str) -> dict[str, Any]:
    shown: dict[str, Any] = {name: field[name] for name in ("title", "description") if name in field}
    shown["type"] = "string"
    if titled not in options:
        return {**shown, "enum": options["enum"]}
    found = msgspec.json.decode(options[titled], type=list[_Option])
    return {**shown, "enum": [option.const for option in found], "enumNames": [option.title for option in found]}


def _messages(revision: str) -> Mend:
    content = _list(_content(revision))

    def mend(raw: Raw) -> Raw:
        old = msgspec.json.decode(raw, type=list[Raw])
        new = [each for message in old for each in _split(message, content, revision)]
        return _written(raw, new, len(old) == len(new) and _is_same(old, new))

    return mend


def _split(raw: Raw, content: Mend, revision: str) -> list[Raw]:
    """A message of a conversation. One of several blocks is several messages for those who know one block only."""
    message = jsonrpc.members(raw)
    told = message["content"]
    is_many = memoryview(told)[0] == 0x5B
    blocks = content(told if is_many else Raw(b"[%b]" % told))
    if is_many and revision >= _PARTS_SINCE:
        return [_written(raw, {**message, "content": blocks}, blocks is told)]
    each = msgspec.json.decode(blocks, type=list[Raw])
    if not is_many and bytes(each[0]) == bytes(told):
        return [raw]
    return [Raw(jsonrpc.encode({**message, "content": block})) for block in each]


_QUESTIONS: Mapping[str, Mapping[str, Callable[[str], Mend]]] = {
    "elicitation/create": {"_meta": _own_meta, "requestedSchema": _form},
    "sampling/createMessage": {
        "_meta": _own_meta,
        "messages": _messages,
        "tools": lambda revision: _list(lambda raw: write_item("tools", raw, revision)),
    },
    "roots/list": {"_meta": _own_meta},
}


# Answers.


class _Form(msgspec.Struct):
    properties: dict[str, _Field] = {}


class _Asked(msgspec.Struct):
    requestedSchema: _Form


def read_choices(ask: Ask, answer: Answer, revision: str) -> Answer:
    """A client that could choose one only where many were asked for: its choice as the list that the server expects."""
    if ask.method != "elicitation/create" or revision >= _PARTS_SINCE or not answer.result:
        return answer
    return Answer(_kept(lambda raw: _with_lists(ask.params, raw))(answer.result))


def _with_lists(asked: Raw, result: Raw) -> Raw:
    fields = msgspec.json.decode(asked, type=_Asked).requestedSchema.properties
    lists = {name: _one_as_list for name, field in fields.items() if field.type == "array"}
    return _object({"content": _object(lists)})(result)


def _one_as_list(raw: Raw) -> Raw:
    return Raw(b"[%b]" % _text(raw))
