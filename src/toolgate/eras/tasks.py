"""Tasks as both eras know them: what can be told of one, and the places where its id stands.

2025-11-25 has them as an experiment that clients ask for (`task` in `tools/call`), 2026-07-28 as an extension by which
servers decide. The rule this file keeps: on each hop a task goes by one id of that hop's own, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import Raw

from toolgate.core import counting, jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members, Params
from toolgate.core.mcp import Revision
from toolgate.core.model import Call
from toolgate.eras import listed

EXTENSION: Mapping[str, Any] = {"extensions": {mcp.TASKS_EXTENSION: {}}}
# What a server that is not up yet may turn out to offer.
MAYBE: Mapping[str, Any] = {**EXTENSION, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
LEAST_LASTS, MOST_LASTS = 3600.0, 24 * 3600.0  # seconds that a task may run, whatever its `ttl`
_KEY = b"related-task"  # whoever wrote it may have escaped the slash in front


Id = Annotated[str, msgspec.Meta(max_length=jsonrpc.LONGEST_ID)]  # which the server chooses, and we keep


class Task(msgspec.Struct, frozen=True):
    """A task, as far as waiting for it needs; times in milliseconds. The extension has other names for both."""

    taskId: Id
    status: str = "working"
    ttl: float | None = None
    ttlMs: float | None = None
    pollInterval: float | None = None
    pollIntervalMs: float | None = None

    @property
    def is_over(self) -> bool:
        return self.status in mcp.TASK_ENDS

    @property
    def lasts(self) -> float:
        """Seconds for which it may run: what its server says, where that is a time in which somebody waits."""
        return min(max(LEAST_LASTS, (self.ttl or self.ttlMs or 0.0) / 1000), MOST_LASTS)

    @property
    def pause(self) -> float | None:
        """Seconds between two looks, where its server says them."""
        wanted = self.pollIntervalMs if self.pollInterval is None else self.pollInterval
        return None if wanted is None else wanted / 1000


class _Made(msgspec.Struct):
    task: Task


class _Told(msgspec.Struct):
    """What tells of a task: the members that MCP has for it, the rest left out."""

    task: Raw = jsonrpc.NOTHING
    taskId: Raw = jsonrpc.NOTHING
    status: Raw = jsonrpc.NOTHING
    statusMessage: Raw = jsonrpc.NOTHING
    createdAt: Raw = jsonrpc.NOTHING
    lastUpdatedAt: Raw = jsonrpc.NOTHING
    ttl: Raw = jsonrpc.NOTHING
    ttlMs: Raw = jsonrpc.NOTHING
    pollInterval: Raw = jsonrpc.NOTHING
    pollIntervalMs: Raw = jsonrpc.NOTHING
    resultType: Raw = jsonrpc.NOTHING
    result: Raw = jsonrpc.NOTHING
    error: Raw = jsonrpc.NOTHING
    inputRequests: Raw = jsonrpc.NOTHING
    meta: Raw = msgspec.field(default=jsonrpc.NOTHING, name="_meta")


class _Related(msgspec.Struct):
    taskId: Id


# Who offers and who declares what.


def declares(capabilities: Mapping[str, Any]) -> bool:
    """Whether a client, by what this very request of it says, or a server knows the extension."""
    return _part(capabilities, "extensions", mcp.TASKS_EXTENSION) is not None


def offers_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server of 2025-11-25 runs tools as tasks."""
    return _part(capabilities, "tasks", "requests", "tools", "call") is not None


def offers(capabilities: Mapping[str, Any], what: str) -> bool:
    """Whether a server of 2025-11-25 can do this with tasks (`list`, `cancel`)."""
    return _part(capabilities, "tasks", what) is not None


def _part(found: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(found, dict):
            return None
        found = cast("dict[str, Any]", found).get(name)
    return found


def relayed(offered: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What the clients of these servers can be offered. Each era's writer leaves out what is not of its revision."""
    found: dict[str, Any] = {}
    if any(declares(each) for each in offered):
        found["extensions"] = EXTENSION["extensions"]
    able = [each for each in offered if offers_tasks(each)]
    if able:
        found["tasks"] = {"list": {}, "requests": {"tools": {"call": {}}}}
        if any(offers(each, "cancel") for each in able):
            found["tasks"]["cancel"] = {}
    return found


def known_to(revision: Revision, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities without what is not of this revision."""
    known = dict(capabilities) if revision.tasks == "extension" else without_extension(capabilities)
    if revision.tasks != "experimental":
        known.pop("tasks", None)
    return known


def check_declared(capabilities: Mapping[str, Any]) -> None:
    """Raises `Fault` MISSING_CAPABILITY for a client that does not declare the extension."""
    if not declares(capabilities):
        extra = {"requiredCapabilities": EXTENSION}
        raise Fault("MISSING_CAPABILITY", f"The client did not declare {mcp.TASKS_EXTENSION}", extra=extra)


def without_extension(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """What a side of a handshake revision declares, or is told: the extension is not for it."""
    if not declares(capabilities):
        return dict(capabilities)
    known = dict(capabilities)
    rest = {name: value for name, value in known.pop("extensions").items() if name != mcp.TASKS_EXTENSION}
    return known | ({"extensions": rest} if rest else {})


def not_found() -> Fault:
    """For a task that is not there, or not for this client: the two look alike."""
    return Fault("INVALID_ARGS", "Task not found", reach="not_sent")


def not_as_task(tool: str) -> Fault:
    return Fault("METHOD_NOT_FOUND", f"The tool {tool} does not run as a task", reach="not_sent")


# Messages.


def asked(call: Call, revision: Revision, is_offered: bool) -> Call:
    """A client's call that wishes for a task, with that taken out; it counts only where tasks were offered (spec: a
    receiver that does not offer them processes the request as any other)."""
    if call.method != "tools/call" or revision.tasks != "experimental":
        return call
    extra = {name: raw for name, raw in call.extra.items() if name != "task"}
    return msgspec.structs.replace(call, extra=extra, task=call.extra["task"] if is_offered else jsonrpc.NOTHING)


def write_wish(call: Call, params: Params) -> Params:
    """The parameters for a server of 2025-11-25: as a task only where one is wanted."""
    if call.method == "tools/call":
        params.pop("task", None)
        if call.task:
            params["task"] = call.task
    return params


def is_made(body: Raw) -> bool:
    """Whether a server of 2025-11-25 has made a task of a call that it was to run as one."""
    return bool(_told(body).task)


def read_made(body: Raw | bytes) -> Task:
    """The new task in a `CreateTaskResult` of 2025-11-25. Raises `Fault`."""
    try:
        return jsonrpc.read(body, type=_Made).task
    except jsonrpc.UNREADABLE as error:
        raise _misshapen(error) from None


def read_task(body: Raw | bytes) -> Task:
    """Raises `Fault`."""
    try:
        return jsonrpc.read(body, type=Task)
    except jsonrpc.UNREADABLE as error:
        raise _misshapen(error) from None


def read_id(body: Raw | bytes) -> str:
    """The id in anything that tells of one task. Raises `Fault`."""
    try:
        return jsonrpc.read(_told(body).task or Raw(body), type=_Related).taskId
    except jsonrpc.UNREADABLE as error:
        raise _misshapen(error) from None


def check_listed(body: Raw | bytes) -> None:
    """Raises `Fault` for a task that some client could not read, and the whole list with it."""
    read_id(body)
    if counting.is_deeper(bytes(body), jsonrpc.DEEPEST_ITEM):
        raise _misshapen(f"more than {jsonrpc.DEEPEST_ITEM} levels")
    if why := listed.why_unreadable("tasks", Raw(body)):
        raise _misshapen(why)


def _misshapen(error: Exception | str) -> Fault:
    return Fault("UPSTREAM_ERROR", f"The server's task is malformed: {error}", reach="executed")


def with_id(body: Raw | bytes, id: str, leave: Callable[[Raw], Raw | bytes]) -> Raw | bytes:
    """What tells of one task, under another id; `leave` has the last word on the result of a task that is over."""
    found = members(body)
    if jsonrpc.has_many_members(found.get("result", b"")) or jsonrpc.has_many_members(found.get("task", b"")):
        raise _misshapen(jsonrpc.MANY_MEMBERS)
    if "taskId" in found:
        found["taskId"] = Raw(jsonrpc.encode(id))
        if "result" in found:
            found["result"] = Raw(leave(found["result"]))
    elif "task" in found:
        found["task"] = Raw(jsonrpc.encode(members(found["task"]) | {"taskId": id}))
    else:
        return body
    return jsonrpc.encode(found)


def members(body: Raw | bytes) -> Members:
    """Of what is told of a task; where there are very many values, those that we know. Raises `Fault`."""
    if counting.is_too_much(body):
        told = _told(body)
        names = zip(told.__struct_fields__, told.__struct_encode_fields__, strict=True)
        return {written: raw for name, written in names if (raw := getattr(told, name))}
    try:
        return jsonrpc.members(body)
    except jsonrpc.UNREADABLE as error:
        raise _misshapen(error) from None


def _told(body: Raw | bytes) -> _Told:
    try:
        return jsonrpc.read(body, type=_Told)
    except jsonrpc.UNREADABLE as error:
        raise _misshapen(error) from None


def related(raw: Raw) -> str:
    """The id of the task that parameters or a result are of; empty where they say nothing of one."""
    if _KEY not in memoryview(raw).tobytes():
        return ""
    try:
        return jsonrpc.read(_meta(raw)[mcp.RELATED_TASK_KEY], type=_Related).taskId
    except (KeyError, *jsonrpc.UNREADABLE):
        return ""


def with_related(raw: Raw | bytes, id: str) -> Raw:
    """The same, said to be of the task of this id; of none where the id is empty."""
    whole = bytes(raw)
    if (not id and _KEY not in whole) or counting.is_too_much(raw):
        return Raw(raw)
    try:
        meta = _meta(raw)
        meta.pop(mcp.RELATED_TASK_KEY, None)
        if id:
            meta[mcp.RELATED_TASK_KEY] = Raw(jsonrpc.encode({"taskId": id}))
        rest = jsonrpc.members(raw)
        rest.pop("_meta", None)
        return Raw(jsonrpc.encode({**rest, "_meta": meta} if meta else rest))
    except jsonrpc.UNREADABLE:
        return Raw(raw)


def _meta(raw: Raw | bytes) -> Members:
    return jsonrpc.members(jsonrpc.members(raw).get("_meta", jsonrpc.EMPTY_OBJECT))
