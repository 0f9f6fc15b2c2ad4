"""Batches: of revision 2025-03-26, and of clients that have not shaken hands yet; at the HTTP door and on one pipe."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from doors.pipes import WebSocket
from inmemory import ENVELOPE, MODERN, Response, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.frontends import batches

Json = dict[str, Any]
BATCHING = "2025-03-26"
NOTE: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
RESPONSE: Json = {"jsonrpc": "2.0", "id": 99, "result": {}}


def request(id: Any, method: str = "ping", **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def answers(response: Response) -> dict[Any, Json]:
    [found] = response.messages
    return {each["id"]: each for each in found}


@asynccontextmanager
async def visiting(version: str = BATCHING, **more: Any) -> AsyncGenerator[Visitor]:
    async with gateway(**more) as app:
        visitor = Visitor(app)
        await visitor.initialize(version)
        yield visitor


@pytest.mark.promise("spec.legacy.batches")
async def test_each_message_is_handled_as_if_alone_and_the_answers_come_in_one_array() -> None:
    async with visiting() as visitor:
        greet = request("g", "tools/call", name="greeter__greet", arguments={"name": "Ada"})
        response = await visitor.post([request(1), NOTE, greet, request(2, "nope"), RESPONSE])
        found = answers(response)
        assert response.status == 200 and set(found) == {1, "g", 2}
        assert found["g"]["result"] == said("Hello, Ada!")
        assert found[2]["error"]["code"] == -32601


@pytest.mark.promise("spec.legacy.batches")
async def test_a_client_that_has_not_shaken_hands_may_send_one() -> None:
    async with gateway() as app:
        visitor = Visitor(app)
        response = await visitor.post([request(1), request(2)])
        assert set(answers(response)) == {1, 2}
        assert len(app.sessions.all()) == 1
        again = await visitor.post([request(3)], headers={"mcp-session-id": response.headers["mcp-session-id"]})
        assert set(answers(again)) == {3}


@pytest.mark.promise("spec.legacy.batches")
async def test_notifications_and_answers_alone_are_taken_with_202() -> None:
    async with visiting() as visitor:
        response = await visitor.post([NOTE, RESPONSE])
        assert (response.status, response.body) == (202, b"")
    async with gateway() as app:
        assert (await Visitor(app).post([NOTE])).status == 202
        assert not app.sessions.all()


@pytest.mark.promise("spec.legacy.batches")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_batch_of_another_revision_is_refused(version: str) -> None:
    async with visiting(version) as visitor:
        response = await visitor.post([request(1)])
        assert response.status == 400 and response.error["code"] == -32600
    async with gateway() as app:
        response = await Visitor(app).post([request(1)], headers={"mcp-protocol-version": version})
        assert response.status == 400 and response.error["code"] == -32600


@pytest.mark.promise("spec.legacy.batches", "spec.2026.http.batch")
async def test_a_modern_batch_is_refused() -> None:
    async with gateway() as app:
        response = await Visitor(app).post([request(1)], headers={"mcp-protocol-version": MODERN})
        assert response.status == 400 and response.error["code"] == -32600
        mixed = await Visitor(app).post([request(1, "tools/list", _meta=ENVELOPE), request(2)])
        assert answers(mixed)[1]["error"]["code"] == -32600
        assert answers(mixed)[2]["result"] == {}


@pytest.mark.promise("spec.legacy.batches")
@pytest.mark.parametrize(
    "batch",
    [[], [request(1)] * (batches.MOST + 1), [request(1), request(2, "initialize")]],
    ids=["empty", "too long", "with initialize"],
)
async def test_what_is_no_proper_batch_is_refused_as_a_whole(batch: list[Json]) -> None:
    async with visiting() as visitor:
        response = await visitor.post(batch)
        assert response.status == 400 and response.error["code"] == -32600 and response.last["id"] is None


async def test_a_faulty_message_has_an_error_of_its_own() -> None:
    async with visiting() as visitor:
        [found] = (await visitor.post([1, {}, request(1), {"jsonrpc": "2.0", "id": 5, "method": 7}])).messages
        assert sorted((str(each["id"]), "error" in each) for each in found) == [
            ("1", False),
            ("5", True),
            ("None", True),
            ("None", True),
        ]


async def test_an_id_that_stands_twice_in_a_batch_is_taken_once() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=said("done"))
    async with visiting(scripts={"docs": script}) as visitor:
        call = request(1, "tools/call", name="docs__t")
        [found] = (await visitor.post([call, call])).messages
        assert sorted("error" in each for each in found) == [False, True]


async def test_a_batch_waits_for_all_its_answers_and_one_of_them_may_be_cancelled() -> None:
    async with visiting(scripts={"docs": Scripted(tools_list=tools("t"), tools_call=...)}) as visitor:
        batch = [request(1, "tools/call", name="docs__t"), request(2)]
        running = visitor.begin("POST", json.dumps(batch).encode())
        await settle()
        assert not running.work.done()
        await visitor.post([{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}])
        found = answers(await running.response())
        assert "cancelled" in found[1]["error"]["message"] and found[2]["result"] == {}


async def test_progress_of_a_batch_makes_a_stream_that_ends_with_the_array() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with visiting(scripts={"docs": script}) as visitor:
        call = request(1, "tools/call", name="docs__t", _meta={"progressToken": "p"})
        running = visitor.begin("POST", json.dumps([call, request(2)]).encode())
        await settle()
        token = script.requests[-1]["params"]["_meta"]["progressToken"]
        script.tell("notifications/progress", progressToken=token, progress=1)
        script.answer_last(said("done"))
        response = await running.response()
        progress, found = response.messages
        assert response.is_stream and progress["params"]["progressToken"] == "p"
        assert {each["id"] for each in found} == {1, 2}


@pytest.mark.promise("spec.legacy.batches")
async def test_a_batch_on_one_pipe_is_answered_by_one_array() -> None:
    async with gateway() as app:
        heard: list[Any] = []
        socket = WebSocket(app.http, on_message=lambda data: heard.append(json.loads(data)))
        socket.say(json.dumps([request(1), NOTE, 7, request(2)]))
        socket.say(json.dumps([NOTE]))
        socket.say("[]")
        await settle()
        empty, whole = heard
        assert {each["id"] for each in whole} == {1, 2, None}
        assert empty["error"]["code"] == -32600
        await socket.leave()
