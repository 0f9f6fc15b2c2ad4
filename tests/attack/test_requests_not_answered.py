"""Large requests are kept until they are answered: by no client without bound, and by none so that others have none."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import pytest
from doors.pipes import WebSocket
from inmemory import ENVELOPE, LATEST, MODERN, Scripted, Visitor, gateway, tools
from virtualtime import settle, soon

from toolgate.core.fault import Fault
from toolgate.core.model import Principal
from toolgate.frontends import active_requests
from toolgate.frontends.active_requests import EACH, FREE, Unanswered
from toolgate.frontends.guards import Headers

SIZE = 1024 * 1024  # bytes of a request


@pytest.fixture(autouse=True)
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_requests, "MOST_OF_ONE", 4 * SIZE)
    monkeypatch.setattr(active_requests, "MOST", 6 * SIZE)


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
    begun = [(who, kept.begun(who, size * SIZE)) for who, size in (("a", 2), ("b", 2), ("c", 2), ("d", 100))]
    with pytest.raises(Fault, match="Too many requests are in progress"):
        kept.begun("a", 1)
    begun += [("e", kept.begun("e", 1)) for _ in range(FREE // (EACH + 1))]
    for who, size in begun:
        kept.answered(who, size)
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


SMALL = 60 * 1024  # bytes of a request that is one of many
ROOM = 4 * SIZE // (SMALL + EACH)  # of these, at least


class Socket(WebSocket):
    """One of a client's, with the codes of the errors that came back, by request."""

    def __init__(self, app: Any, who: str) -> None:
        self.errors: dict[int, str] = {}
        super().__init__(app.http, headers=[("authorization", who)], on_message=self._heard)

    def _heard(self, data: bytes) -> None:
        found = json.loads(data)
        for each in found if isinstance(found, list) else [found]:
            if "error" in each:
                self.errors[each["id"]] = each["error"]["data"]["code"]

    async def initialize(self, revision: str) -> None:
        info = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "mal", "version": "1"}}
        self.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info})
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        await settle()


def small(id: int, revision: str, at: str = "arguments") -> dict[str, Any]:
    """A call of 60 KiB, which are in its arguments, in its `_meta`, or in a member that no message has."""
    params: dict[str, Any] = {"name": "docs__t", "arguments": {"id": id}, "_meta": {}}
    if revision == MODERN:
        params["_meta"] = dict(ENVELOPE)
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    {"arguments": params["arguments"], "_meta": params["_meta"], "beside": message}[at]["text"] = "x" * SMALL
    return message


@pytest.mark.parametrize("at", ["arguments", "_meta", "beside"])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_many_of_60_kib_on_many_websockets_count_together_wherever_their_bytes_stand(
    revision: str, at: str
) -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        sockets = [Socket(app, "mal") for _ in range(3)]
        for each in sockets:
            await each.initialize(LATEST)
        for number in range(100, 100 + ROOM + 10):
            sockets[number % 3].say(small(number, revision, at))
            await settle()
        refused = {number: code for socket in sockets for number, code in socket.errors.items()}
        assert set(refused.values()) == {"RATE_LIMITED"}
        assert 10 <= len(refused) <= 12  # the rest of a message is of some bytes, too
        assert min(refused) >= 100 + ROOM - 2
        ann = Socket(app, "ann")
        await ann.initialize(LATEST)
        hers = asyncio.Event()
        script.on_bytes = lambda data: hers.set() if b'"arguments":{"id": 5' in data else None
        ann.say(small(5, revision))
        await soon(hers.wait())
        assert "mal" in app.http._unanswered._by and not ann.errors
        for each in (*sockets, ann):
            await each.leave()
        assert not app.http._unanswered._by and not app.http._unanswered._all


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_small_ones_count_by_their_number_too(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_requests, "FREE", 0)
    monkeypatch.setattr(active_requests, "MOST_OF_ONE", 50 * EACH)
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        mal = Visitor(app, authorization="mal")
        await mal.initialize()
        await mal.ask("tools/list")
        begun = [call(mal, revision, number, 10) for number in range(10, 70)]
        await settle()
        assert 11 <= sum(each.so_far.status == 429 for each in begun) <= 20  # the lines of each head count as well
        for each in begun:
            await each.gone()


@pytest.mark.parametrize("door", ["http", "websocket"])
async def test_each_request_of_a_batch_counts_and_what_else_is_in_it_is_taken(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_requests, "FREE", 0)
    monkeypatch.setattr(active_requests, "MOST_OF_ONE", 60 * EACH)
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}, identify=identify) as app:

        def batch(first: int) -> list[dict[str, Any]]:
            params = {"name": "docs__t", "arguments": {}}
            calls = [
                {"jsonrpc": "2.0", "id": first + number, "method": "tools/call", "params": params}
                for number in range(40)
            ]
            return [*calls, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 100}}]

        if door == "websocket":
            mal = Socket(app, "mal")
            await mal.initialize("2025-03-26")
            for first in (100, 200):
                mal.say(json.dumps(batch(first)))
            await settle()
            assert mal.errors == dict.fromkeys(range(200, 240), "RATE_LIMITED")
            await mal.leave()
        else:
            visitor = Visitor(app, authorization="mal")
            await visitor.initialize("2025-03-26")
            await visitor.ask("tools/list")
            under_way = visitor.begin("POST", json.dumps(batch(100)).encode())
            await settle()
            answer = await visitor.post(batch(200))
            errors = json.loads(answer.body)
            assert [each["error"]["data"]["code"] for each in errors] == ["RATE_LIMITED"] * 40
            await visitor.send("DELETE")
            await under_way.gone()
        await settle()
        assert not app.http._unanswered._by


async def test_what_a_client_has_given_up_keeps_nothing_of_its_bytes() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with gateway(scripts={"docs": script}, identify=identify) as app:
        socket = Socket(app, "mal")
        await socket.initialize(LATEST)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(10, 40):
            socket.say(small(number, MODERN))
            await settle()
            cancelled = {"requestId": number, "_meta": ENVELOPE}
            socket.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
            await settle()
        script.requests.clear()
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        [connection] = app.gateway.snapshot.upstreams["docs"]._sessions.values()
        assert len(connection.live.requests.given_up) == 30  # they may still ask
        assert kept < 5 * SMALL
        await socket.leave()
