"""What a server chooses and the gateway keeps has a length, and a time that a server chooses an end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inmemory import ENVELOPE, MODERN, Refusal, Scripted, Visitor, gateway, tools
from msgspec import Raw
from unit.upstreams.test_requests import opened

from toolgate.core import asks, jsonrpc, mcp, sse
from toolgate.core.fault import Fault
from toolgate.core.model import Ask, Call, Client, Principal, Required
from toolgate.eras import modern, tasks
from toolgate.eras.tasks import Task
from toolgate.upstreams.links.streams import LONGEST_RETRY, Cursor
from toolgate.upstreams.mcp.made_tasks import TaskOwners
from toolgate.upstreams.mcp.questions import Questions, _read_page
from toolgate.upstreams.mcp.sent_pages import MOST_PAGES

LONG = "i" * (jsonrpc.LONGEST_ID + 1)
FITS = "i" * (jsonrpc.LONGEST_ID - 2)
TIME = "2026-01-01T00:00:00Z"


def raw(**members: Any) -> Raw:
    return Raw(json.dumps(members).encode())


def task(id: str) -> dict[str, Any]:
    return {"taskId": id, "status": "working", "createdAt": TIME, "lastUpdatedAt": TIME, "ttl": None}


def page(id: str) -> dict[str, Any]:
    return {"mode": "url", "message": "m", "url": "https://a.example/", "elicitationId": id}


@pytest.mark.parametrize("id", [LONG, "\u00e9" * 5000, "i" * (4 << 20)])
def test_a_task_of_an_endless_id_is_malformed(id: str) -> None:
    made, extended = raw(task=task(id)), raw(**task(id), resultType="task")
    for read in (tasks.read_made, tasks.read_task, tasks.read_id):
        for body in (made, extended):
            with pytest.raises(Fault, match="task is malformed") as raised:
                read(body)
            assert raised.value.code == "UPSTREAM_ERROR" and len(raised.value.message) < 200
    assert tasks.related(raw(_meta={mcp.RELATED_TASK_KEY: {"taskId": id}})) == ""
    call = Call("tools/call", "t", Client(capabilities=tasks.EXTENSION))
    with pytest.raises(Fault, match="task is malformed"):
        modern.read_result(call, extended)
    assert tasks.read_made(raw(task=task(FITS))).taskId == FITS


async def test_a_client_hears_why_there_is_no_task_and_nothing_of_it_is_kept() -> None:
    able = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
    script = Scripted(tools_list=tools("t", execution={"taskSupport": "optional"}), tools_call={"task": task(LONG)})
    script.answers["initialize"]["capabilities"] = able
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        reply = await visitor.ask("tools/call", name="there__t", arguments={}, task={"ttl": 60000})
    assert "task is malformed" in str(reply.last) and LONG not in str(reply.last)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("id", [LONG, "\u00e9" * 2000, FITS])
async def test_a_page_of_an_endless_id_is_refused(version: str, id: str) -> None:
    error = Refusal(mcp.URL_ELICITATION_REQUIRED, "visit", {"elicitations": [page(id)]})
    script = Scripted(tools_list=tools("t"), tools_call=error)
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        if version == MODERN:
            reply = await visitor.ask_modern("tools/call", name="there__t", arguments={})
        else:
            await visitor.initialize(version, elicitation={"url": {}})
            reply = await visitor.ask("tools/call", name="there__t", arguments={})
    assert ("whose elicitationId has more than" in str(reply.last)) == (id != FITS)
    assert id == FITS or len(str(reply.last)) < 1000


@pytest.mark.parametrize("mode", ["url", "form"])
async def test_ids_of_pages_that_are_kept_have_a_length_whatever_asks_for_them(mode: str) -> None:
    requests, _ = opened()
    questions = Questions(requests, requests.server, True, lambda event: None)
    call = Call("tools/call", "t", Client(Principal("ann"), "s"))
    ask = Ask("", "elicitation/create", raw(**page(LONG) | {"mode": mode}))
    if mode == "url":
        with pytest.raises(Fault, match="elicitationId"):
            asks.check_url(ask)
    questions._keep_page(_read_page(ask.params), call)
    assert not questions._sent_to
    for number in range(2 * MOST_PAGES):
        questions._keep_page(_read_page(raw(**page(f"{number}"))), call)
    assert len(questions._sent_to) == MOST_PAGES


def test_a_question_and_the_token_of_its_progress_have_ids_that_can_be_repeated() -> None:
    with pytest.raises(jsonrpc.Malformed, match="an id must have"):
        jsonrpc.decode(bytes(raw(jsonrpc="2.0", id=LONG, method="elicitation/create", params={})))
    ask = Ask("", "roots/list", raw(_meta={mcp.PROGRESS_KEY: LONG}))
    assert not asks.progress_token(ask)
    assert asks.progress_token(Ask("", "roots/list", raw(_meta={mcp.PROGRESS_KEY: FITS})))


def test_what_a_modern_server_wants_back_has_a_length() -> None:
    client = Client(capabilities={"elicitation": {"form": {}}})
    ask = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {"type": "object"}}}

    def read(state: str, key: str) -> Any:
        result = raw(resultType="input_required", requestState=state, inputRequests={key: ask})
        return modern.read_result(Call("tools/call", "t", client), result)

    assert isinstance(read("s" * modern.LONGEST_STATE, "k" * jsonrpc.LONGEST_ID), Required)
    for state, key in (("s" * (modern.LONGEST_STATE + 1), "k"), ("", LONG)):
        with pytest.raises(Fault) as raised:
            read(state, key)
        assert raised.value.code == "UPSTREAM_ERROR" and len(raised.value.message) < 300


ABLE = {**ENVELOPE, mcp.CAPABILITIES_KEY: {"elicitation": {"form": {}}}}
BIGGEST = 250_000  # of what is in an answer of 256 KiB


@pytest.mark.parametrize(
    ("state", "is_fine"),
    [
        ("s" * 13_000, True),
        ("s" * 200_000, True),
        ("s" * BIGGEST, True),
        ("\u00e9" * 40_000, True),
        ("s" * (modern.LONGEST_STATE + 1), False),
        ("s" * 300_000, False),
        ("s" * 5_000_000, False),
        ("\U0001f600" * 100_000, False),
        (5, False),
    ],
    ids=range(9),
)
async def test_what_a_client_is_handed_is_taken_back_and_all_else_is_malformed(state: Any, is_fine: bool) -> None:
    form = {"type": "object", "properties": {}}
    ask = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": form}}
    brought: list[Any] = []

    def call(params: dict[str, Any]) -> dict[str, Any]:
        if "requestState" not in params:
            return {"resultType": "input_required", "requestState": state, "inputRequests": {"k": ask}}
        brought.append(params["requestState"])
        return {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}

    async with gateway(scripts={"there": Scripted(MODERN, tools_list=tools("t"), tools_call=call)}) as app:
        visitor = Visitor(app)
        reply = await visitor.ask_modern("tools/call", name="there__t", arguments={}, _meta=ABLE)
        if is_fine:
            told = reply.last["result"]
            again = {"requestState": told["requestState"], "inputResponses": {"k": {"action": "decline"}}}
            reply = await visitor.ask_modern("tools/call", name="there__t", arguments={}, _meta=ABLE, **again)
    assert brought == ([state] if is_fine else [])
    assert ("done" if is_fine else "malformed") in str(reply.last) and len(str(reply.last)) < 1000


# Times.


@pytest.mark.parametrize("ttl", [1e308, 10**18, -1e308, 0, None])
def test_a_task_lasts_as_long_as_somebody_could_wait(ttl: float | None) -> None:
    found = tasks.read_task(raw(**task("1") | {"ttl": ttl}))
    assert tasks.LEAST_LASTS <= found.lasts <= tasks.MOST_LASTS
    owners = TaskOwners()
    owners.add(found, Call("tools/call", "t", Client(Principal("ann"), "s")), 0.0)
    assert not owners.runs(tasks.MOST_LASTS + 1)


@pytest.mark.parametrize("written", ["NaN", "Infinity", "1e999"])
def test_what_is_no_number_is_no_time(written: str) -> None:
    with pytest.raises(Fault, match="malformed"):
        tasks.read_task(Raw(b'{"taskId":"1","ttl":%s}' % written.encode()))
    assert Task("1", ttl=float("inf")).lasts == tasks.MOST_LASTS


@pytest.mark.parametrize("retry", [0, 10**8, 999_999_999])
def test_a_stream_is_asked_for_again_within_an_hour_whatever_its_server_says(retry: int) -> None:
    cursor = Cursor()
    cursor.note(sse.Event(b"", retry=retry))
    assert 0 < cursor.pause(3) <= LONGEST_RETRY
