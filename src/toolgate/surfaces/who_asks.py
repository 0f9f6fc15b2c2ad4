"""Questions that say which server asks. Clients know one server, the gateway: a person may take a question for that of
another server behind it, and give an answer that was not meant for this one.

The rules this file keeps: what a person reads begins with who asks, on a line that no server writes, and so does the
title of each field of a form, since clients show these one by one; what says so to a program is set by us, whatever the
server had said there; nothing else of a question is changed, but for what would move a cursor. Texts that are for a
model (sampling) say it to programs only. At the path of one server, and where there is only one, nothing is said: there
its client knows whom it has asked.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.core import counting, jsonrpc, names
from toolgate.core.jsonrpc import Members
from toolgate.core.model import Ask, Asker

KEY = "toolgate/server"  # in the `_meta` of a question: the id of the server that asks
_READ_BY_PERSONS = "elicitation/create"
_BY_NOBODY = "roots/list"


def shown(asker: Asker, asks: tuple[Ask, ...], is_alone: bool) -> tuple[Ask, ...]:
    """The questions of a server, or of ourselves, at a path of many servers or of one that `is_alone`."""
    is_known = is_alone or asker.kind != "upstream" or asker.name == names.OWN
    return asks if is_known else tuple(named(ask, asker.name) for ask in asks)


def named(ask: Ask, server: str) -> Ask:
    """One that is out of shape stays as it is: its client cannot show it either."""
    if ask.method == _BY_NOBODY:
        return ask
    try:
        params = jsonrpc.members(ask.params)
        meta = Raw(jsonrpc.with_members(_object(params.get("_meta")), {KEY: jsonrpc.encode(server)}))
        if ask.method == _READ_BY_PERSONS:
            params["message"] = Raw(jsonrpc.encode(_said(jsonrpc.read(params["message"], type=str), server)))
            params |= _titled(params, server)
            if "requestedSchema" in params:
                params["requestedSchema"] = _form(params["requestedSchema"], server)
    except (KeyError, *jsonrpc.UNREADABLE):
        return ask
    return msgspec.structs.replace(ask, params=Raw(jsonrpc.encode({**params, "_meta": meta})))


def _object(raw: Raw | None) -> Raw:
    return raw if raw is not None and bytes(raw).startswith(b"{") else jsonrpc.EMPTY_OBJECT


def _said(message: str, server: str) -> str:
    return f"The server {server} asks:\n\n{safe_text.cited(message)}"


_NO_FIELDS = Raw(b'{"type":"object","properties":{}}')
_TEXTS = ("title", "description")


def _form(raw: Raw, server: str) -> Raw:
    """One that cannot be read has no fields."""
    try:
        form = _shown(raw)
        fields = jsonrpc.members(form.get("properties", jsonrpc.EMPTY_OBJECT))
        own = {name: _field(name, each, server) for name, each in fields.items()}
        return Raw(jsonrpc.encode({**form, **_titled(form, server), "properties": own}))
    except jsonrpc.UNREADABLE:
        return _NO_FIELDS


def _field(name: str, raw: Raw, server: str) -> Members:
    field = _shown(raw)
    return {**field, **_titled({"title": field.get("title") or Raw(jsonrpc.encode(name))}, server)}


def _titled(members: Members, server: str) -> Members:
    if "title" not in members:
        return {}
    title = safe_text.in_one_line(jsonrpc.read(members["title"], type=str))
    return {"title": Raw(jsonrpc.encode(f"{server}: {title}"))}


def _shown(raw: Raw) -> Members:
    """A schema whose texts have a line each; what should be one and is no text is left out."""
    found = jsonrpc.members(raw)
    for name in found.keys() & _TEXTS:
        text = _line(found.pop(name))
        if text is not None:
            found[name] = text
    if "enumNames" in found:
        names = map(_line, jsonrpc.items(found["enumNames"]))
        found["enumNames"] = Raw(jsonrpc.encode([name or Raw(b'""') for name in names]))
    for name in found.keys() & {"oneOf", "anyOf"}:
        found[name] = Raw(jsonrpc.encode([_shown(each) for each in jsonrpc.items(found[name])]))
    if "items" in found:
        found["items"] = Raw(jsonrpc.encode(_shown(found["items"])))
    return found


def _line(raw: Raw) -> Raw | None:
    if not bytes(raw).startswith(b'"'):
        return None
    return Raw(jsonrpc.encode(safe_text.in_one_line(jsonrpc.read(raw, type=str))))


class _Question(msgspec.Struct):
    method: str
    params: Raw = jsonrpc.EMPTY_OBJECT


class _OfTask(msgspec.Struct):
    inputRequests: dict[str, Raw]


def named_in_task(body: Raw | bytes, server: str) -> Raw | bytes:
    """The same of what a task of the extension asks, which stands in what is told of the task."""
    if counting.is_too_much(body) or not _may_ask(bytes(body)):
        return body
    try:
        asked = jsonrpc.read(body, type=_OfTask).inputRequests
        written = {key: _with_name(raw, server) for key, raw in asked.items()}
        return jsonrpc.with_members(body, {"inputRequests": jsonrpc.encode(written)})
    except jsonrpc.UNREADABLE:
        return body


def _may_ask(body: bytes) -> bool:
    return b"inputRequests" in body or b"\\u00" in body  # or with a letter escaped


def _with_name(raw: Raw, server: str) -> Raw:
    question = jsonrpc.read(raw, type=_Question)
    ask = named(Ask("", question.method, question.params), server)
    return Raw(jsonrpc.with_members(raw, {"params": ask.params}))
