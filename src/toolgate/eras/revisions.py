"""Lists, results and notes as a reader's revision allows them, and what is written in place of what it does not know
(ruling 13).

The rules this file keeps: what is valid for its reader passes as the bytes that it came in; what is out of shape for
everybody passes too; a member that a revision does not know passes, if it is what later revisions mean by that name.
The schemas of the handshake revisions only ever grew by members, so one shape of a list item serves them all.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, large, mcp
from toolgate.core.listing import Listing
from toolgate.core.mcp import Revision
from toolgate.eras import naming
from toolgate.eras.calls import folded
from toolgate.eras.repair import (
    ANY_OBJECT,
    FLAG,
    NUMBER,
    TEXT,
    Repair,
    each_of,
    kept,
    object_of,
    of_type,
    optional,
    options,
)

# Items of lists.


def _alone(repair: Repair, names: Iterable[str]) -> Repair:
    """An object in which no other member is taken for one of these: some readers do not mind case, and one of another
    type costs them the list. What only looks like one of them is left out."""
    known = frozenset(names)
    alike = frozenset(map(folded, known))

    def repair_alone(raw: Raw) -> Raw:
        found = jsonrpc.members(raw)
        others = [name for name in found.keys() - known if folded(name) in alike]
        for name in others:
            del found[name]
        return repair(Raw(jsonrpc.encode(found)) if others else raw)

    return repair_alone


def _flat(repair: Repair, names: Iterable[str]) -> Repair:
    """The same of an object that has texts and numbers only. Some readers refuse what is written twice: once is
    enough."""
    known = frozenset(names)
    alone = _alone(repair, known)

    def repair_flat(raw: Raw) -> Raw:
        found = jsonrpc.members(raw)
        written = sum(jsonrpc.value(Raw(text)) in known for text, colon in _texts.findall(raw) if colon)
        return alone(Raw(jsonrpc.encode(found)) if written > len(found.keys() & known) else raw)

    return repair_flat


def _once(raw: Raw) -> Raw:
    """The same of any object: of a member that is written twice the last one counts, here as for most readers. Nearly
    all are as one of two kinds of writers write them, which is seen at once."""
    found = jsonrpc.members(raw)
    count = len(found)
    others = len(memoryview(raw)) - sum(len(name) + 2 + len(memoryview(value)) for name, value in found.items())
    if others == 2 * count + 1:  # braces, colons and commas
        return raw
    spaced = b", ".join([b'"%b": %b' % (name.encode(), value) for name, value in found.items()])
    if others == 4 * count and bytes(raw) == b"{%b}" % spaced:
        return raw
    return Raw(jsonrpc.encode(found)) if _has_more_members(bytes(raw), count) else raw


def _has_more_members(data: bytes, count: int) -> bool:
    """Whether an object has more members of its own than so many, as they are written."""
    depth = colons = 0
    for found in _marks.finditer(data):
        mark = found[0]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
        elif mark == b":" and depth == 1:
            colons += 1
    return colons > count


_marks = re.compile(rb'[][{}:]|"(?:[^"\\]|\\.)*+"', re.DOTALL)
_texts = re.compile(rb'("(?:[^"\\]|\\.)*+")(\s*:)?', re.DOTALL)  # each once, whatever stands in it


_uri = of_type(Annotated[str, msgspec.Meta(pattern=r"""^[A-Za-z][A-Za-z0-9+.-]*:[^\s"<>\\^`{|}]*$""")])


class _Typed(msgspec.Struct):
    type: Literal["object"]


def _subschema(raw: Raw) -> Raw:
    """JSON Schema has `true` and `false` for schemas, the handshake revisions have not."""
    return Raw(_BOOLEAN_SCHEMAS.get(bytes(raw), b"")) or ANY_OBJECT(raw)


_BOOLEAN_SCHEMAS = {b"true": b"{}", b"false": b'{"not":{}}'}
_properties = object_of({}, any_other=optional(_subschema))
_OF_SCHEMA = ("$defs", "$schema", "additionalProperties", "definitions", "properties", "required", "type")
_schema_now = _alone(options(**{"$schema": TEXT}), _OF_SCHEMA)
_of_schema_before: Mapping[str, Repair] = {
    **{"$schema": TEXT, "properties": _properties, "required": of_type(list[str])},
    **{"$defs": ANY_OBJECT, "definitions": ANY_OBJECT},
}
_schema_before = _alone(options(**_of_schema_before), _OF_SCHEMA)
_schema_first = _alone(
    options(**_of_schema_before, additionalProperties=FLAG), _OF_SCHEMA
)  # so Java reads it up to 1.x


def _arguments_schema(of_revision: Repair) -> Repair:
    """Arguments are an object, whether their schema says so or not."""

    def repair(raw: Raw) -> Raw:
        if "type" not in jsonrpc.members(raw):
            raw = Raw(jsonrpc.with_members(raw, {"type": b'"object"'}))
        return of_revision(raw)

    return kept(repair)


def _object_schema(raw: Raw) -> Raw:
    """A tool with any other schema is listed without: clients would refuse results that have no object."""
    jsonrpc.read(raw, type=_Typed)
    return _schema_before(raw)


def _having(member: str, repair: Repair) -> Repair:
    """An object that is nothing without this member."""

    def repair_what_has_it(raw: Raw) -> Raw:
        if member not in jsonrpc.members(raw):
            raise msgspec.ValidationError(f"Object missing required field `{member}`")
        return repair(raw)

    return repair_what_has_it


_icon = _having(
    "src",
    _flat(
        object_of(
            {
                "src": _uri,
                "mimeType": optional(TEXT),
                "sizes": optional(of_type(list[str])),
                "theme": optional(of_type(Literal["dark", "light"])),
            }
        ),
        ("mimeType", "sizes", "src", "theme"),
    ),
)
_about = {"title": TEXT, "description": TEXT, "icons": each_of(optional(_icon)), "_meta": ANY_OBJECT}
_written = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,16})?"
    r"(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9]|[+-]14:00)"
)


def _moment(raw: Raw) -> Raw:
    """A date and a time with its zone, as RFC 3339 has it: some clients take no other form of ISO 8601. Of these,
    .NET's reader takes 16 digits of a fraction, zones within 14 hours, and what is in a year of four digits in UTC."""
    found = _written.fullmatch(jsonrpc.read(raw, type=str))
    try:
        day = datetime.date.fromisoformat(found[1] if found else "")
    except ValueError:
        day = datetime.date.min
    if not datetime.date.min < day < datetime.date.max:
        raise msgspec.ValidationError("Expected a date, a time and an offset")
    return raw


_audience = _flat(
    options(
        audience=of_type(list[Literal["user", "assistant"]]),
        priority=of_type(Annotated[float, msgspec.Meta(ge=0, le=1)]),
        lastModified=_moment,
    ),
    ("audience", "lastModified", "priority"),
)
_OF_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_hints = _flat(options(title=TEXT, **dict.fromkeys(_OF_HINTS, FLAG)), ("title", *_OF_HINTS))


def _support(raw: Raw) -> Raw:
    """No client needs to run a tool as a task: for those that do not, the gateway does."""
    said = _of_support(raw)
    return Raw(b'"optional"') if bytes(said) == b'"required"' else said


_of_support = of_type(Literal["forbidden", "optional", "required"])
_task_support = _flat(options(taskSupport=_support), ("taskSupport",))
_argument_members = {
    name: optional(repair) for name, repair in (("title", TEXT), ("description", TEXT), ("required", FLAG))
}
_name = of_type(Annotated[str, msgspec.Meta(min_length=1)])  # what has an empty one some readers refuse
_argument = _having("name", _flat(object_of({"name": _name, **_argument_members}), ("name", *_argument_members)))
_exact: jsonrpc.Decoder[float] = jsonrpc.Decoder(
    Annotated[float, msgspec.Meta(ge=0, lt=2**53)]
)  # what every reader has as a whole number


def _whole(raw: Raw) -> Raw:
    """As digits: `1e3` is a whole number as well, but no reader with types takes it for one."""
    number = _exact.decode(raw)
    if not number.is_integer():
        raise msgspec.ValidationError("Expected `int`, got `float`")
    return raw if bytes(raw).isdigit() else Raw(b"%d" % number)


def _whole_or_nothing(raw: Raw) -> Raw:
    return raw if bytes(raw) == b"null" else _whole(raw)


def _tool(input_schema: Repair, output_schema: Repair) -> Repair:
    rest = {"annotations": _hints, "execution": _task_support, "outputSchema": output_schema, **_about}
    wanted = {"inputSchema": _arguments_schema(input_schema)}
    members = {**wanted, **{name: optional(repair) for name, repair in rest.items()}}
    listed = _alone(object_of(members), ("name", *members))

    def repair(raw: Raw) -> Raw:
        if bytes(jsonrpc.members(raw).get("inputSchema", b"null")) == b"null":  # lenient clients list such a tool, too
            raw = Raw(jsonrpc.with_members(raw, {"inputSchema": b'{"type":"object"}'}))
        return listed(raw)

    return repair


# What most tools are: nothing is to be repaired in one that fits these, which is seen at once.


class _PlainHints(msgspec.Struct, forbid_unknown_fields=True):
    title: str | msgspec.UnsetType = msgspec.UNSET
    readOnlyHint: bool | msgspec.UnsetType = msgspec.UNSET
    destructiveHint: bool | msgspec.UnsetType = msgspec.UNSET
    idempotentHint: bool | msgspec.UnsetType = msgspec.UNSET
    openWorldHint: bool | msgspec.UnsetType = msgspec.UNSET


_plain_hints = msgspec.json.Decoder(_PlainHints)
_OTHERS_OF_SCHEMA = ("title", "description", "definitions", "anyOf", "oneOf", "allOf", "additionalProperties", "_defs")


def _plain_schema(of_type: Any, **members: Any) -> Any:
    fields = [(name, kind, msgspec.UNSET) for name, kind in members.items()]
    others = [(name, Raw, msgspec.UNSET) for name in _OTHERS_OF_SCHEMA if name not in members]
    own: list[Any] = [("type", of_type), ("_schema", str, msgspec.UNSET), *fields, *others]
    renamed = {name: name.replace("_", "$") for name, *_ in own}
    return msgspec.defstruct("_PlainSchema", own, forbid_unknown_fields=True, rename=renamed)


def _plain_tool(input_schema: Any, output_schema: Any) -> msgspec.json.Decoder[Any]:
    texts = [(name, str, msgspec.UNSET) for name in ("title", "description")]
    more: list[Any] = [("_meta", dict[str, Raw], msgspec.UNSET), ("annotations", Raw, msgspec.UNSET)]
    wanted = [("name", str), ("inputSchema", input_schema)]
    own = [*wanted, *texts, ("outputSchema", output_schema, msgspec.UNSET), *more]
    return msgspec.json.Decoder(msgspec.defstruct("_PlainTool", own, forbid_unknown_fields=True))


_any_schema = _plain_schema(Raw, properties=Raw, required=Raw)
_of_before: dict[str, Any] = {"properties": dict[str, dict[str, Raw]], "required": list[str]}
_of_before |= dict.fromkeys(("_defs", "definitions"), dict[str, Raw])
_output_before = _plain_schema(Literal["object"], **_of_before)

# By what schemas a revision takes: any, and what they say of arguments without a name.
_PLAIN_TOOLS = {
    (True, True): _plain_tool(_any_schema, _any_schema),
    (False, True): _plain_tool(_plain_schema(Raw, **_of_before), _output_before),
    (False, False): _plain_tool(_plain_schema(Raw, **_of_before, additionalProperties=bool), _output_before),
}


def _is_plain(tool: Raw, takes: tuple[bool, bool]) -> bool:
    try:
        found = _PLAIN_TOOLS[takes].decode(tool)
        return found.annotations is msgspec.UNSET or _are_plain(bytes(found.annotations))
    except msgspec.DecodeError:
        return False


def _are_plain(hints: bytes) -> bool:
    """Each is written once: every quotation mark is that of a name, or of the title."""
    written = msgspec.structs.asdict(_plain_hints.decode(hints))
    count = sum(value is not msgspec.UNSET for value in written.values())
    texts = count + (written["title"] is not msgspec.UNSET)
    return b"\\" not in hints and hints.count(b'"') == 2 * texts


_of_resource = {"mimeType": TEXT, "annotations": _audience, "size": _whole, **_about}
_resource = _alone(options(**_of_resource), ("name", "uri", "uriTemplate", *_of_resource))
_task_members = {"lastUpdatedAt": optional(TEXT), "ttl": optional(_whole_or_nothing)}
_task_options = _alone(
    options(statusMessage=TEXT, pollInterval=_whole, _meta=ANY_OBJECT),
    ("taskId", "status", "createdAt", "statusMessage", "pollInterval", "_meta", *_task_members),
)


def _task(raw: Raw) -> Raw:
    """A task must say when it was last changed, and how long it is kept: as far as that is known."""
    told = jsonrpc.members(raw)
    unsaid = {"lastUpdatedAt": told["createdAt"], "ttl": Raw(b"null")}
    filled = {name: other for name, other in unsaid.items() if not _task_members[name](told.get(name, jsonrpc.NOTHING))}
    return _task_options(Raw(jsonrpc.with_members(raw, filled)) if filled else raw)


_ITEMS: Mapping[str, Repair] = {
    **{name: _alone(options(**_about), (kind.key, *_about)) for name, kind in mcp.KINDS.items()},
    # What has more than these:
    "tools": _tool(_schema_before, _object_schema),
    "resources": _resource,
    "resourceTemplates": _resource,
    "prompts": _alone(options(arguments=each_of(optional(_argument)), **_about), ("name", "arguments", *_about)),
    "tasks": _task,
}
_TOOLS = {
    (True, True): _tool(_schema_now, _schema_now),
    (False, True): _ITEMS["tools"],
    (False, False): _tool(_schema_first, _object_schema),
}

_MOST_REMEMBERED = 4096
_MOST_BYTES = 16 * 1024 * 1024  # of all that is remembered
_LONGEST_REMEMBERED = 64 * 1024  # bytes of an item
_remembered: dict[tuple[int, str], tuple[Raw, Raw]] = {}  # an item is the same object as long as its list is not new
_bytes_remembered = 0


def _of_items(revision: Revision) -> tuple[tuple[bool, bool], frozenset[mcp.Renamed]]:
    """All by which items are written otherwise for one revision than for another."""
    return _takes(revision), frozenset(each for each in revision.names if each.of in _ITEMS)


def _takes(revision: Revision) -> tuple[bool, bool]:
    return revision.takes_any_schema, revision.takes_schema_of_others


# By date, the oldest revision for which items are written alike.
_ALIKE = {
    date: next(other.date for other in mcp.REVISIONS.values() if _of_items(other) == _of_items(revision))
    for date, revision in mcp.REVISIONS.items()
}


def write_item(kind: str, raw: Raw, revision: Revision) -> Raw:
    """An item of a list for a client of this revision, without what its schema does not allow, in its words."""
    key = (id(raw), _ALIKE[revision.date])
    found = _remembered.get(key)
    if found and found[0] is raw:
        return found[1]
    takes, in_theirs = _takes(revision), naming.writer(kind, revision)
    once = kept(_once)(raw)
    if kind == "tools" and not in_theirs and once is raw and _is_plain(raw, takes):
        return raw
    written = kept(_TOOLS[takes] if kind == "tools" else _ITEMS[kind])(once)
    written = in_theirs(written) if in_theirs else written
    size = len(memoryview(raw)) + len(memoryview(written))
    if size <= 2 * _LONGEST_REMEMBERED:
        global _bytes_remembered
        if len(_remembered) >= _MOST_REMEMBERED or _bytes_remembered + size > _MOST_BYTES:
            _remembered.clear()
            _bytes_remembered = 0
        _remembered[key] = raw, written
        _bytes_remembered += size
    return written


def write_items(listing: Listing, revision: Revision) -> Raw:
    """The items of a page for a client of this revision, as one array; what was written before is known."""
    key = _key_of(listing, revision)
    if listing.joined and (known := listing.joined.get(key)):
        return known
    written = Raw(jsonrpc.encode([write_item(listing.kind, item, revision) for item in listing.items]))
    if listing.joined is not None:
        listing.joined[key] = written
    return written


def has_written(listing: Listing, revision: Revision) -> bool:
    return bool(listing.joined) and _key_of(listing, revision) in listing.joined


def _key_of(listing: Listing, revision: Revision) -> tuple[int, int, str]:
    return listing.start, len(listing.items), _ALIKE[revision.date]


# Content.


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    name: str = ""
    uri: str = ""
    mimeType: str = ""
    input: Raw = jsonrpc.EMPTY_OBJECT
    content: Raw = Raw(b"[]")
    annotations: Raw = jsonrpc.NOTHING


_block = jsonrpc.Decoder(_Block)
_blocks = jsonrpc.Decoder(list[_Block])

_SAID: Mapping[str, Callable[[_Block], str]] = {
    "audio": lambda block: f"[audio] {block.mimeType}".strip(),
    "resource_link": lambda block: f"[{block.name or 'resource'}] {block.uri}",
    "tool_use": lambda block: f"[tool_use] {block.name} {_decoded(block.input)}",
    "tool_result": lambda block: f"[tool_result] {' '.join(part.text for part in _blocks.decode(block.content))}",
}


def _decoded(raw: Raw) -> str:
    return bytes(raw).decode()


def write_content(revision: Revision) -> Repair:
    """A block of content. One of a kind that the revision does not know becomes text."""

    def repair(raw: Raw) -> Raw:
        block = _block.decode(raw)
        if block.type in _SAID and block.type not in revision.content:
            return _said(block)
        is_object = block.type == "tool_result" and not revision.takes_any_schema
        return _object_in_result(raw) if is_object else raw

    return repair


MOST_SAID = 1000  # blocks of what a model says: about 10 ms, and sixteen models may answer at once


def as_one_block(revision: Revision) -> Repair:
    """A block of content, or several, as one block: what several say stands in one text. More than `MOST_SAID` pass as
    they are."""
    write = write_content(revision)

    def repair(raw: Raw) -> Raw:
        if memoryview(raw)[0] != 0x5B:
            return write(raw)
        items = jsonrpc.items(raw)
        if len(items) > MOST_SAID:
            return raw
        blocks = [write(block) for block in items]
        if len(blocks) == 1:
            return blocks[0]
        said = map(_block.decode, blocks)
        return _text_block("\n".join(block.text if block.type == "text" else f"[{block.type}]" for block in said))

    return repair


_object_in_result = options(structuredContent=ANY_OBJECT)


def _said(block: _Block) -> Raw:
    annotations = {"annotations": block.annotations} if block.annotations else {}
    return _text_block(_SAID[block.type](block), annotations)


def _text_block(text: str, more: Mapping[str, Raw] = {}) -> Raw:
    return Raw(jsonrpc.encode({"type": "text", "text": text, **more}))


# Results.


def _result(revision: Revision) -> Repair:
    content = kept(write_content(revision))  # what one part is out of shape for, others are not
    return object_of({"content": each_of(content), "messages": each_of(object_of({"content": content}))})


_OF_RESULTS = frozenset({"resource_link", "audio"})  # the other kinds are of questions
_UNKNOWN = {
    date: tuple(b'"%b"' % kind.encode() for kind in _OF_RESULTS - revision.content)
    for date, revision in mcp.REVISIONS.items()
}
_RESULTS = {date: _result(revision) for date, revision in mcp.REVISIONS.items()}


def write_result(body: Raw | bytes, revision: Revision) -> Raw | bytes:
    """A result for a client of a handshake revision. Content of a kind that it does not know becomes text; structured
    content that is no object is left out, and what it says stands in the text."""
    unknown = _UNKNOWN[revision.date]
    if large.is_view(body) and not large.holds_any(body, b'"structuredContent"', *unknown):
        return body
    whole = bytes(body)
    is_unknown = bool(unknown) and any(word in whole for word in unknown)
    is_structured = whole.find(b'"structuredContent"') >= 0
    if not (is_unknown or is_structured):
        return body
    raw = written = Raw(body)
    if is_unknown:
        written = kept(_RESULTS[revision.date])(written)
    if is_structured:
        written = kept(_with_object_only)(written)
    return body if written is raw else written


def _with_object_only(raw: Raw) -> Raw:
    result = jsonrpc.members(raw)
    structured = result.get("structuredContent")
    if not structured or memoryview(structured)[0] == 0x7B:
        return raw
    del result["structuredContent"]
    if not jsonrpc.given(structured):  # many programs write so what there is none of
        return Raw(jsonrpc.encode(result))
    content = jsonrpc.items(result.get("content", b"[]"))
    if not _is_said(structured, content):
        content.append(_text_block(_decoded(structured)))
    result["content"] = Raw(jsonrpc.encode(content))
    return Raw(jsonrpc.encode(result))


LONGEST_SAID = 1024 * 1024  # characters of texts that are read as JSON, of one result: about 50 ms at most


def _is_said(structured: Raw, content: list[Raw]) -> bool:
    """Whether a block of text holds this value, as JSON or, for a text, as it is. The value is read once, and texts no
    further than `LONGEST_SAID` together."""
    value = jsonrpc.value(structured)
    written, left = jsonrpc.canonical(value), LONGEST_SAID
    for raw in content:
        try:
            block = _block.decode(raw)
        except jsonrpc.UNREADABLE:
            continue  # out of shape
        if block.type != "text":
            continue
        if block.text == value:
            return True
        left -= len(block.text)
        if left >= 0 and jsonrpc.spelled(block.text) == written:
            return True
    return False


MOST_COMPLETIONS = 100  # a rule in words at first, in the schema since 2026-07-28


class _Completion(msgspec.Struct):
    values: list[Raw]


def write_completion(raw: Raw) -> Raw:
    """The `completion` of a result for a modern client."""
    values = jsonrpc.read(raw, type=_Completion).values
    if len(values) <= MOST_COMPLETIONS:
        return raw
    shown = jsonrpc.encode(values[:MOST_COMPLETIONS])
    return Raw(jsonrpc.with_members(raw, {"values": shown, "hasMore": b"true"}))


_cached = options(ttlMs=of_type(Annotated[int, msgspec.Meta(ge=0)]), cacheScope=of_type(Literal["private", "public"]))
MEANT_OTHERWISE: Mapping[str, Repair] = {
    **dict.fromkeys(mcp.CACHED, _cached),
    "completion/complete": object_of({"completion": write_completion}),
}


def write_modern_result(method: str, body: Raw | bytes) -> Raw | bytes:
    """A result of a method of `MEANT_OTHERWISE` for a modern client, without what an older server meant otherwise."""
    if counting.is_too_much(body):
        return body
    raw = Raw(body)
    written = kept(MEANT_OTHERWISE[method])(raw)
    return body if written is raw else written


# Notes.


class _ProgressNote(msgspec.Struct):
    message: str = ""
    total: float = 0.0


class _LogNote(msgspec.Struct):
    logger: str = ""


_NOTES: Mapping[str, tuple[jsonrpc.Decoder[Any], Repair]] = {
    "progress": (jsonrpc.Decoder(_ProgressNote), options(message=TEXT, total=NUMBER)),
    "log": (jsonrpc.Decoder(_LogNote), options(logger=TEXT)),
}


def write_note(kind: str, params: Raw) -> Raw:
    """The parameters of a note. The message of progress is known since 2025-03-26, and must be a text."""
    fitting, repair = _NOTES[kind]
    try:
        fitting.decode(params)
        return params
    except jsonrpc.UNREADABLE:
        return kept(repair)(params)
