"""Questions that say which server asks. Clients know one server, the gateway: a person may take a question for that of
another server behind it, and give an answer that was not meant for this one.

The rules this file keeps: what a person reads begins with who asks, on a line that no server writes; what says so to a
program is set by us, whatever the server had said there; and nothing else of a question is changed. Texts that are for
a model (sampling) say it to programs only. At the path of one server, and where there is only one, nothing is said:
there its client knows whom it has asked.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.core import counting, jsonrpc, names
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
    except (KeyError, *jsonrpc.UNREADABLE):
        return ask
    return msgspec.structs.replace(ask, params=Raw(jsonrpc.encode({**params, "_meta": meta})))


def _object(raw: Raw | None) -> Raw:
    return raw if raw is not None and bytes(raw).startswith(b"{") else jsonrpc.EMPTY_OBJECT


def _said(message: str, server: str) -> str:
    return f"The server {server} asks:\n\n{safe_text.cited(message)}"


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
