"""A gateway that is told to end: what is under way may end, what is new is refused, and what is left is failed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable

import pytest
from inmemory import ENVELOPE, THE_SOCKET, Exchange, Json, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.app import App
from toolgate.config import Config

SLOW = {"name": "slow__work", "arguments": {}}
HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "slow__work"}


def slow() -> Scripted:
    return Scripted(tools_list=tools("work"), tools_call=...)


def legacy(visitor: Visitor) -> Exchange:
    return visitor.begin("POST", json.dumps(visitor.request("tools/call", **SLOW)).encode())


def modern(visitor: Visitor) -> Exchange:
    return visitor.begin("POST", json.dumps(visitor.modern_request("tools/call", **SLOW)).encode(), headers=HEADERS)


ERAS = pytest.mark.parametrize("call", [legacy, modern], ids=["legacy", "modern"])
Call = Callable[[Visitor], Exchange]


@pytest.mark.promise("b.lifecycle.drain")
@ERAS
async def test_a_call_that_is_under_way_ends_as_if_nothing_was(call: Call) -> None:
    server = slow()
    async with gateway(scripts={"slow": server}) as app:
        under_way = call(Visitor(app))
        await settle()
        draining = asyncio.ensure_future(app.drain())
        await settle()
        assert not draining.done()
        server.answer_last(said("done"))
        await draining
        assert (await under_way.response()).result["content"] == said("done")["content"]


def by_operator(app: App) -> Exchange:
    called = json.dumps({"tool": "slow__work", "arguments": {}}).encode()
    return Visitor(app).begin("POST", called, path="/admin/call", client=THE_SOCKET)


@pytest.mark.promise("b.lifecycle.drain")
async def test_a_call_of_the_operator_has_its_time_as_well() -> None:
    server = slow()
    async with gateway(scripts={"slow": server}) as app:
        watching = Visitor(app).begin("POST", b"{}", path="/admin/traffic", client=THE_SOCKET)
        under_way = by_operator(app)
        await settle()
        draining = asyncio.ensure_future(app.drain())
        await settle()
        assert not draining.done()
        server.answer_last(said("done"))
        await draining
        assert json.loads((await under_way.response()).body)["result"] == said("done")
        assert not watching.work.done()
        await watching.gone()


@pytest.mark.promise("b.lifecycle.drain")
async def test_a_call_of_the_operator_that_has_not_ended_in_time_is_failed_with_a_code() -> None:
    async with gateway(scripts={"slow": slow()}, config=Config(drain=3.0)) as app:
        under_way = by_operator(app)
        await settle()
        began = app.clock.now()
        await app.drain()
        assert app.clock.now() - began == pytest.approx(3.0)
        told = json.loads((await under_way.response()).body)
        assert (told["code"], told["outcome"]) == ("SHUTTING_DOWN", "sent_unknown")


@pytest.mark.promise("b.lifecycle.drain")
@ERAS
async def test_a_new_call_is_refused_and_may_be_made_again_later(call: Call) -> None:
    async with gateway(scripts={"slow": slow()}) as app:
        visitor = Visitor(app)
        call(visitor)
        await settle()
        draining = asyncio.ensure_future(app.drain())
        await settle()
        data = (await call(visitor).response()).error["data"]
        assert (data["code"], data["retryable"], data["outcome"]) == ("SHUTTING_DOWN", True, "not_sent")
        await draining


@pytest.mark.promise("b.lifecycle.drain")
@ERAS
async def test_what_has_not_ended_in_time_is_failed_with_a_code(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolgate")
    async with gateway(scripts={"slow": slow()}, config=Config(drain=3.0)) as app:
        under_way = call(Visitor(app))
        await settle()
        began = app.clock.now()
        await app.drain()
        assert app.clock.now() - began == pytest.approx(3.0)
        data = (await under_way.response()).error["data"]
        assert (data["code"], data["retryable"], data["outcome"]) == ("SHUTTING_DOWN", True, "sent_unknown")
    told = " / ".join(record.message for record in caplog.records)
    assert "calls in progress: 1" in told and "calls cancelled: 1" in told


async def test_a_second_signal_does_not_wait() -> None:
    async with gateway(scripts={"slow": slow()}) as app:
        under_way = legacy(Visitor(app))
        await settle()
        began, hurry = app.clock.now(), asyncio.Event()
        draining = asyncio.ensure_future(app.drain(hurry))
        hurry.set()
        await draining
        assert app.clock.now() - began < 1
        assert (await under_way.response()).error["data"]["code"] == "SHUTTING_DOWN"


async def test_nothing_under_way_ends_at_once_whoever_listens() -> None:
    async with gateway(scripts={"slow": slow()}) as app:
        visitor = Visitor(app)
        wanted = visitor.modern_request("subscriptions/listen", notifications={"toolsListChanged": True})
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
        listening = visitor.begin("POST", json.dumps(wanted).encode(), headers=headers)
        await settle()
        began = app.clock.now()
        await app.drain()
        assert app.clock.now() == began
        app.http.close()
        await listening.response()


@pytest.mark.promise("b.lifecycle.drain")
@pytest.mark.parametrize("meta", [{}, {"_meta": ENVELOPE}], ids=["legacy", "modern"])
async def test_a_client_over_stdio_is_told_the_same(meta: Json) -> None:
    lines: list[bytes] = []
    async with gateway(scripts={"slow": slow()}, config=Config(drain=1.0)) as app:
        door = app.stdio(lines.append)

        def ask(id: int) -> None:
            request = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": SLOW | meta}
            door.data_received(json.dumps(request).encode() + b"\n")

        ask(1)
        await settle()
        draining = asyncio.ensure_future(app.drain())
        await settle()
        ask(2)
        await draining
        answers = {each["id"]: each["error"]["data"] for each in map(json.loads, lines)}
        assert [answers[id]["code"] for id in (1, 2)] == ["SHUTTING_DOWN", "SHUTTING_DOWN"]
        assert [answers[id]["outcome"] for id in (1, 2)] == ["sent_unknown", "not_sent"]
        await door.close()


async def test_a_question_is_still_answered_while_calls_end() -> None:
    """The answer of a legacy client comes on a request of its own."""
    async with gateway() as app:
        visitor = Visitor(app)
        await visitor.initialize(elicitation={})
        call = visitor.request("tools/call", name="greeter__greet", arguments={})
        asking = visitor.begin("POST", json.dumps(call).encode())
        await settle()
        draining = asyncio.ensure_future(app.drain())
        await settle()
        question = asking.so_far.last
        assert question["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"name": "Ada"}}
        await visitor.post({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        await draining
        assert "Ada" in json.dumps((await asking.response()).result)
