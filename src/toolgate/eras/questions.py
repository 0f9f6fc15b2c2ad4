"""What the revisions know of questions: what a client can be asked, in which words, and how its answer is read.

The rules this file keeps: a question that a client's revision has other words for is asked in those; and nothing in it
is taken for another question by a reader that does not mind case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.jsonrpc import Members
from toolgate.core.mcp import Revision
from toolgate.core.model import Answer, Ask
from toolgate.eras import naming, tasks
from toolgate.eras.calls import by_folded, folded, without_lookalikes
from toolgate.eras.repair import (
    FLAG,
    NUMBER,
    TEXT,
    Repair,
    each_of,
    is_same,
    kept,
    object_of,
    of_type,
    optional,
    options,
    rewritten,
    unseen,
)
from toolgate.eras.revisions import as_one_block, write_content, write_item

_WITH_PAGES = next(each for each in mcp.REVISIONS.values() if "mode" in each.question_members)
_ASKS = frozenset(method.capability for method in mcp.ASKS.values())


def known_capabilities(declared: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    """Of what a client of this revision declares what it can mean. An empty `elicitation` means forms. A client that
    names `url` knows it, whatever its revision: there are such (Codex), and they are sent to pages in the words of the
    first revision that has them."""
    known = tasks.without_extension(declared)
    found = {name: value for name, value in known.items() if name in revision.asks or name not in _ASKS}
    if not revision.has_parts_of_asks:
        for name in found.keys() & {"elicitation", "sampling"}:
            knows_url = name == "elicitation" and "url" in found[name]
            found[name] = {"form": {}, "url": {}} if knows_url else {}
    return found


_CONTEXT = folded("includeContext")
OF_PERSONS = ("message", "requestedSchema", "mode", "title", "url", "elicitationId", "_meta", "task")
_OF_MODELS = (
    *("messages", "modelPreferences", "systemPrompt", "temperature", "maxTokens", "stopSequences", "metadata"),
    *("tools", "toolChoice", "_meta", "task"),
)
_MEMBERS = {
    "elicitation/create": by_folded(OF_PERSONS),
    "sampling/createMessage": by_folded(_OF_MODELS),
    "roots/list": by_folded(("_meta", "task")),
}
_PAGE = folded("url")


def _is_page(params: Members) -> bool:
    return jsonrpc.value(params.get("mode", b'"form"')) == "url"


def plain(method: str, params: Members) -> Members:
    """The parameters of a question, without what some readers take for another one: members in another case, and the
    URL of a page where it is a form that is asked for; and without those that are left out by `null`, which their
    readers need not know. Raises `jsonrpc.UNREADABLE`."""
    # `includeContext`, in any spelling, is dropped: what a client has of "this server" is of all servers behind us.
    known = _MEMBERS.get(method, {}).values()
    given = {name: raw for name, raw in params.items() if jsonrpc.given(raw) or name not in known}
    found = {name: raw for name, raw in given.items() if folded(name) != _CONTEXT}
    if method == "elicitation/create" and not _is_page(found):
        found = {name: raw for name, raw in found.items() if folded(name) != _PAGE}
    return without_lookalikes(found, _MEMBERS.get(method, {}))


def write_question(ask: Ask, revision: Revision) -> Members:
    """The parameters of a question for a client of this revision."""
    found = plain(ask.method, jsonrpc.members(ask.params))
    if _is_page(found) and "mode" not in revision.question_members:
        revision = _WITH_PAGES  # only who names it is asked so
    unknown = mcp.QUESTION_MEMBERS - revision.question_members
    known = {name: raw for name, raw in found.items() if name not in unknown}
    repairs = _QUESTIONS.get(ask.method, {})
    written = {name: kept(repairs[name](revision))(raw) if name in repairs else raw for name, raw in known.items()}
    return {name: raw for name, raw in written.items() if raw}


def _own_meta(_revision: Revision) -> Repair:
    """How a question was addressed on its own hop is no one else's."""
    of_hop = object_of({key: lambda _raw: jsonrpc.NOTHING for key in mcp.HOP_KEYS})
    return lambda raw: jsonrpc.NOTHING if bytes(found := of_hop(raw)) == b"{}" else found


def _form(revision: Revision) -> Repair:
    field = _field if revision.has_choices_with_titles else _older_field
    return object_of({"properties": object_of({}, any_other=field), "$schema": optional(TEXT)})


class _Field(msgspec.Struct):
    type: str


_DEFAULTS: Mapping[str, Repair] = {
    "string": options(default=TEXT),
    "number": options(default=NUMBER),
    "integer": options(default=NUMBER),
    "boolean": options(default=FLAG),
    "array": options(default=of_type(list[str])),
}


def _field(raw: Raw) -> Raw:
    """A field of a form. Where defaults are known, it is for all types, and they must be of them."""
    return _DEFAULTS.get(jsonrpc.read(raw, type=_Field).type, unseen)(raw)


def _older_field(raw: Raw) -> Raw:
    """A field for those who know choices by `enum` and `enumNames` only, and one at a time (see `read_choices`)."""
    repaired = _field(raw)
    field = jsonrpc.members(repaired)
    if jsonrpc.value(field["type"]) == "array":
        return Raw(jsonrpc.encode(_choice(field, jsonrpc.members(field.get("items", jsonrpc.EMPTY_OBJECT)), "anyOf")))
    return Raw(jsonrpc.encode(_choice(field, field, "oneOf"))) if "oneOf" in field else repaired


class _Option(msgspec.Struct):
    const: str
    title: str


def _choice(field: Members, options: Members, titled: str) -> dict[str, Any]:
    shown: dict[str, Any] = {name: field[name] for name in ("title", "description") if name in field}
    shown["type"] = "string"
    if titled not in options:
        return {**shown, "enum": options["enum"]} if "enum" in options else shown
    found = jsonrpc.read(options[titled], type=list[_Option])
    return {**shown, "enum": [option.const for option in found], "enumNames": [option.title for option in found]}


def _messages(revision: Revision) -> Repair:
    write, in_theirs = write_content(revision), naming.writer(mcp.CONTENT, revision) or unseen
    content = each_of(lambda raw: in_theirs(write(raw)))

    def repair(raw: Raw) -> Raw:
        old = jsonrpc.items(raw)
        new = [each for message in old for each in _split(message, content, revision)]
        return rewritten(raw, new, len(old) == len(new) and is_same(old, new))

    return repair


class _Message(msgspec.Struct):
    role: Literal["user", "assistant"]
    content: Raw


_message = jsonrpc.Decoder(_Message)


def _split(raw: Raw, content: Repair, revision: Revision) -> list[Raw]:
    """A message of a conversation. One of several blocks is several messages for those who know one block only: what
    else it says stands in the first of them."""
    said = _message.decode(raw)
    message, told = jsonrpc.members(raw), said.content
    is_many = memoryview(told)[0] == 0x5B
    blocks = content(told if is_many else Raw(b"[%b]" % told))
    if is_many and revision.has_messages_of_blocks:
        return [rewritten(raw, {**message, "content": blocks}, blocks is told)]
    each = jsonrpc.items(blocks)
    if not is_many and bytes(each[0]) == bytes(told):
        return [raw]
    whole = [{**message, "content": block} for block in each[:1]]
    return [Raw(jsonrpc.encode(one)) for one in (*whole, *({"role": said.role, "content": it} for it in each[1:]))]


_QUESTIONS: Mapping[str, Mapping[str, Callable[[Revision], Repair]]] = {
    "elicitation/create": {"_meta": _own_meta, "requestedSchema": _form},
    "sampling/createMessage": {
        "_meta": _own_meta,
        "messages": _messages,
        "tools": lambda revision: each_of(lambda raw: write_item("tools", raw, revision)),
    },
    "roots/list": {"_meta": _own_meta},
}


def read_question(ask: Ask, revision: Revision) -> Ask:
    """A question of a server of this revision, in our words."""
    if not revision.names or ask.method != "sampling/createMessage":
        return ask
    tool, block = (naming.reader(of, revision) or unseen for of in ("tools", mcp.CONTENT))
    messages = each_of(object_of({"content": naming.one_or_many(block)}))
    params = kept(options(tools=each_of(tool), messages=messages))(ask.params)
    return ask if params is ask.params else Ask(ask.key, ask.method, params)


# Answers.


class _Form(msgspec.Struct):
    properties: dict[str, _Field] = {}


class _Asked(msgspec.Struct):
    requestedSchema: _Form


def read_choices(ask: Ask, answer: Answer, revision: Revision) -> Answer:
    """A client that could choose one only where many were asked for: its choice as the list that the server expects."""
    if ask.method != "elicitation/create" or revision.has_choices_with_titles or not answer.result:
        return answer
    return Answer(kept(lambda raw: _with_lists(ask.params, raw))(answer.result))


def write_model_answer(ask: Ask, answer: Answer, revision: Revision | None) -> Answer:
    """What a model said, for a server of this revision: several blocks are one for those who know one block only."""
    if ask.method != "sampling/createMessage" or not revision or revision.has_messages_of_blocks or not answer.result:
        return answer
    return Answer(kept(object_of({"content": as_one_block(revision)}))(answer.result))


def _with_lists(asked: Raw, result: Raw) -> Raw:
    fields = jsonrpc.read(asked, type=_Asked).requestedSchema.properties
    lists = {name: _one_as_list for name, field in fields.items() if field.type == "array"}
    return object_of({"content": object_of(lists)})(result)


def _one_as_list(raw: Raw) -> Raw:
    return Raw(b"[%b]" % TEXT(raw))
