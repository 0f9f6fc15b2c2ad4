"""Large requests are kept until they are answered: by no client without bound, and by none so that others have none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doors.pipes import WebSocket
from inmemory import ENVELOPE, LATEST, MODERN, Scripted, Visitor, gateway, tools
from virtualtime import settle

from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.frontends import unanswered
from toolgate.frontends.guards import Headers
from toolgate.frontends.unanswered import LARGE, Unanswered

SIZE = 1024 * 1024  # bytes of a request


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unanswered, "MOST_OF_ONE", 4 * SIZE)
    monkeypatch.setattr(unanswered, "MOST", 6 * SIZE)


async def identify(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers.get("authorization", "nobody"), address, client=headers.get("authorization", "nobody"))


def call(visitor: Visitor, revision: str, id: int, size: int = SIZE) -> Any:
    params: dict[str, Any] = {"name": "docs__t", "arguments": {"text": "x" * size}}
    headers: dict[str, Any] = {}
    if revision == MODERN:
        params["_meta"] = ENVELOPE
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "docs__t"}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return visitor.begin("POST", json.dumps(message).encode(), headers=headers)


@pytest.mark.promise("b.attacks.unanswered")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_what_one_client_has_under_way_is_bounded_and_leaves_others_theirs(revision: str) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        mal, ann = Visitor(app, authorization="mal"), Visitor(app, authorization="ann")
        for each in (mal, ann):
            await each.initialize()
            await each.ask("tools/list")
        begun = [call(mal, revision, number) for number in range(10, 16)]
        await settle()
        refused = [each for each in begun if each.so_far.status == 429]
        assert len(refused) == 3 and len(script.requests) >= 3
        error = json.loads(refused[0].so_far.body)
        assert error["error"]["data"]["code"] == "RATE_LIMITED" and error["id"] == 13
        theirs = call(ann, revision, 20)
        await settle()
        assert theirs.so_far.status != 429
        small = call(mal, revision, 30, 100)
        await settle()
        assert small.so_far.status != 429
        for each in (*begun, theirs, small):
            await each.gone()


async def test_a_large_answer_to_a_question_is_taken_whatever_is_under_way() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        mal = Visitor(app, authorization="mal")
        await mal.initialize()
        await mal.ask("tools/list")
        begun = [call(mal, LATEST, number) for number in range(10, 14)]
        await settle()
        assert [each.so_far.status for each in begun][-1] == 429
        answer = {"jsonrpc": "2.0", "id": 77, "result": {"content": {"type": "text", "text": "x" * SIZE}}}
        assert (await mal.post(json.dumps(answer).encode())).status == 202
        for each in begun:
            await each.gone()


def test_each_principal_can_have_one_whatever_others_have() -> None:
    kept = Unanswered()
    ended = [kept.begun(who, 2 * SIZE) for who in ("a", "b", "c")]
    last = kept.begun("d", 100 * SIZE)
    with pytest.raises(Fault, match="Too much is under way"):
        kept.begun("a", LARGE + 1)
    for each in (*ended, last):
        each()
    assert kept.begun("a", 3 * SIZE)


async def test_over_a_websocket_too() -> None:
    heard: list[dict[str, Any]] = []
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}) as app:
        socket = WebSocket(app.http, on_message=lambda data: heard.append(json.loads(data)))
        info = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "mal", "version": "1"}}
        socket.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info})
        socket.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        await settle()
        for number in range(10, 16):
            params = {"name": "docs__t", "arguments": {"text": "x" * SIZE}}
            socket.say({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        await settle()
        errors = {each["id"]: each["error"]["data"]["code"] for each in heard if "error" in each}
        assert errors == dict.fromkeys((13, 14, 15), "RATE_LIMITED")
        await socket.leave()
