"""Clients read the list of their tasks as a whole: a task of one server that some client cannot read would cost it all
tasks, those of other servers too."""

from __future__ import annotations

import json
from typing import Any

import mcp.types
import pytest
from inmemory import LATEST, Json, Scripted, Visitor, gateway, tools

TIME = "2026-11-27T06:00:00Z"
GOOD: Json = {"taskId": "1", "status": "working", "createdAt": TIME, "lastUpdatedAt": TIME, "ttl": 60_000}
DIGITS = "9" * 5_000
LEFT_OUT: list[tuple[str, Any]] = [
    ("status", "paused"),
    ("status", None),
    ("status", ["working"]),
    ("createdAt", 1_700_000_000),
    ("createdAt", ...),
    ("createdAt", "\ud83d"),
    ("x", "DIGITS"),
    ("x", "1e999"),
    ("_meta", {"a": "\udc00"}),
]
MENDED: list[tuple[str, Any, Any]] = [
    ("ttl", ..., None),
    ("ttl", "60000", None),
    ("ttl", 1.5, None),
    ("ttl", -1, None),
    ("ttl", "1e300", None),
    ("ttl", {}, None),
    ("ttl", None, None),
    ("ttl", 0, 0),
    ("lastUpdatedAt", ..., TIME),
    ("lastUpdatedAt", 5, TIME),
    ("lastUpdatedAt", None, TIME),
    ("pollInterval", "soon", ...),
    ("pollInterval", None, ...),
    ("pollInterval", 0.5, ...),
    ("pollInterval", 500, 500),
    ("statusMessage", None, ...),
    ("statusMessage", {"a": 1}, ...),
    ("_meta", 5, ...),
    ("x-more", [1], [1]),
]


def making(task: bytes) -> Scripted:
    made = tools("work", execution={"taskSupport": "optional"})
    there = Scripted(tools_list=made, tools_call={"task": GOOD}, tasks_get=task)
    there.answers["initialize"]["capabilities"]["tasks"] = {"list": {}, "requests": {"tools": {"call": {}}}}
    return there


def task(member: str, value: Any) -> bytes:
    found = {**GOOD, member: value}
    if value is ...:
        del found[member]
    return (
        json.dumps(found).replace('"DIGITS"', DIGITS).replace('"1e999"', "1e999").replace('"1e300"', "1e300").encode()
    )


async def listed(app: Any) -> list[Json]:
    """The list of a client that has made a task at each server, as strict readers have it."""
    visitor = Visitor(app)
    await visitor.initialize(LATEST)
    for server in ("evil", "quiet"):
        await visitor.ask("tools/call", name=f"{server}__work", arguments={}, task={})
    response = await visitor.post(visitor.request("tasks/list"))
    result = mcp.types.JSONRPCResponse.model_validate_json(response.body).result
    mcp.types.ListTasksResult.model_validate(result)
    return list(json.loads(response.body)["result"]["tasks"])


def servers(bad: bytes) -> dict[str, Scripted]:
    return {"evil": making(bad), "quiet": making(json.dumps(GOOD).encode())}


@pytest.mark.parametrize(("member", "value"), LEFT_OUT)
async def test_a_task_that_clients_cannot_read_is_left_out(
    member: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(scripts=servers(task(member, value))) as app:
        [one] = await listed(app)
        assert {**one, "taskId": "1"} == GOOD
    assert "evil: ignored a task: The server's task is malformed" in caplog.text


@pytest.mark.parametrize(("member", "value", "shown"), MENDED)
async def test_what_can_be_left_open_costs_nobody_the_task(member: str, value: Any, shown: Any) -> None:
    async with gateway(scripts=servers(task(member, value))) as app:
        first, second = await listed(app)
        assert first.get(member, ...) == shown
        assert {**second, "taskId": "1"} == GOOD


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"task":{}}', b'{"taskId":5}', b"{}", b'"x"'])
async def test_what_is_no_task_at_all_is_left_out(body: bytes) -> None:
    async with gateway(scripts=servers(body)) as app:
        assert len(await listed(app)) == 1


async def test_a_task_in_whose_words_nothing_is_to_be_mended_is_the_servers() -> None:
    more = {**GOOD, "pollInterval": 500, "statusMessage": "é", "_meta": {"a": [1.0]}, "x": {"y": None}}
    async with gateway(scripts=servers(json.dumps(more).encode())) as app:
        assert {**(await listed(app))[0], "taskId": "1"} == more
