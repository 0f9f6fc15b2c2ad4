"""Questions that say which server asks. Clients know one server, the gateway: a person may take a question for that of
another server behind it, and give an answer that was not meant for this one.

The rules this file keeps: what a person reads begins with who asks, on a line that no server writes, and so does the
title of each field of a form, since clients show these one by one; what says so to a program is set by us, whatever the
server had said there; of what a person reads, what would move a cursor is written out, and what MCP does not define is
left out (`elicitation`). Texts that are for a model (sampling) say it to programs only. At the path of one server, and
where there is only one, nothing is said: there its client knows whom it has asked.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from toolgate.auth import safe_text
from toolgate.core import asks, jsonrpc, mcp, names
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members
from toolgate.core.model import Ask, Asker, Client
from toolgate.eras import legacy, questions, tasks
from toolgate.eras.calls import by_folded, without_lookalikes
from toolgate.surfaces import elicitation

KEY = "toolgate/server"  # in the `_meta` of a question: the id of the server that asks
_OURS = "toolgate/"  # how all begins that the gateway says there
_READ_BY_PERSONS = "elicitation/create"
_BY_NOBODY = "roots/list"


def shown(asker: Asker, asked: tuple[Ask, ...], is_alone: bool) -> tuple[Ask, ...]:
    """The questions of a server, or of ourselves, at a path of many servers or of one that `is_alone`."""
    is_ours = asker.kind != "upstream" or asker.name == names.OWN or asker.name in names.INTERNAL
    is_known = is_alone or is_ours  # what a server asks of our own has its name already
    return asked if is_known else tuple(named(ask, asker.name) for ask in asked)


def named(ask: Ask, server: str) -> Ask:
    """What is out of shape is left out, since some clients would not mind; one that is no object stays as it is: no
    client can show it."""
    if ask.method == _BY_NOBODY:
        return ask
    try:
        params = questions.plain(ask.method, jsonrpc.members(ask.params))
    except jsonrpc.UNREADABLE:
        return ask
    if ask.method == _READ_BY_PERSONS:
        params = {name: raw for name, raw in params.items() if name in questions.OF_PERSONS}
        title = elicitation.text_of(params.pop("title", None))
        params |= {"title": Raw(jsonrpc.encode(elicitation.named(title, server)))} if title else {}
        params["message"] = Raw(jsonrpc.encode(_said(elicitation.text_of(params.get("message")) or "", server)))
        if "requestedSchema" in params:
            params["requestedSchema"] = elicitation.shown(params["requestedSchema"], server)
    return msgspec.structs.replace(ask, params=Raw(jsonrpc.encode({**params, "_meta": _meta(params, server)})))


def _meta(params: Members, server: str) -> Members:
    theirs = _object(params.get("_meta", jsonrpc.NOTHING))
    left = {name: raw for name, raw in theirs.items() if not name[: len(_OURS)].casefold().startswith(_OURS)}
    return {**left, KEY: Raw(jsonrpc.encode(server))}


def _object(raw: Raw) -> Members:
    """The members of an object; none of what is none."""
    return jsonrpc.members(raw) if bytes(raw).startswith(b"{") else {}


def _said(message: str, server: str) -> str:
    return f"The server {server} asks:\n\n{safe_text.cited(message)}"


class _Question(msgspec.Struct):
    method: str
    params: Raw = jsonrpc.EMPTY_OBJECT


_OF_TASKS = by_folded(("inputRequests", "taskId", "status", "statusMessage", "resultType", "result", "error", "_meta"))


def told_of_task(body: Raw | bytes, client: Client, server: str, is_alone: bool) -> bytes:
    """The same of what a task of the extension asks, which stands in what is told of the task. Nothing is left of more
    questions than may be asked at once, of one that is refused, that this client cannot answer or that is out of shape,
    nor of pages in an error that are refused. Raises `Fault`."""
    told = without_lookalikes(tasks.members(body), _OF_TASKS)
    if "inputRequests" in told:
        asked = _questions(_object(told["inputRequests"]))
        written = {key: _of_task(ask, client, server, is_alone) for key, ask in asked.items()}
        told["inputRequests"] = Raw(jsonrpc.encode({key: question for key, question in written.items() if question}))
    if "error" in told:
        told["error"] = _error(told["error"], server)
    return jsonrpc.encode(told)


def _error(raw: Raw, server: str) -> Raw:
    error = jsonrpc.read_error(raw, server)
    try:
        error = legacy.with_web_pages(error) if error.code == mcp.URL_ELICITATION_REQUIRED else error
    except Fault:
        error = jsonrpc.RpcError(error.code, error.message)
    data = {"data": error.data} if error.data else {}
    return Raw(jsonrpc.encode({"code": error.code, "message": error.message, **data}))


def _questions(asked: Members) -> dict[str, Ask]:
    """Those that are none are left out; and all of them, where they are more than may be asked at once."""
    if len(asked) > asks.MOST_OPEN or any(len(key) > jsonrpc.LONGEST_ID for key in asked):
        return {}
    found = {key: ask for key, raw in asked.items() if (ask := _question(key, raw)) and not asks.is_too_large(ask)}
    return {} if asks.is_too_long(*found.values()) else found


def _question(key: str, raw: Raw) -> Ask | None:
    try:
        question = jsonrpc.read(raw, type=_Question)
    except jsonrpc.UNREADABLE:
        return None
    return Ask(key, question.method, question.params)


def _of_task(ask: Ask, client: Client, server: str, is_alone: bool) -> Raw:
    """Nothing for one that is refused, or that this client cannot answer."""
    try:
        asks.check_url(ask)
        if not asks.is_answerable(ask, client.capabilities):
            return jsonrpc.NOTHING
        shown = ask if is_alone else named(ask, server)
        params = questions.plain(ask.method, jsonrpc.members(shown.params))
    except (Fault, *jsonrpc.UNREADABLE):
        return jsonrpc.NOTHING
    return Raw(jsonrpc.encode({"method": ask.method, "params": params}))
