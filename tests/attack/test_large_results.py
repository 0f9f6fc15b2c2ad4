"""Results of megabytes are read, changed and written in threads, piece by piece: nobody else waits for that."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attack.floods import beside
from inmemory import LATEST, MODERN, Json, Scripted, Visitor, gateway, said, tools
from msgspec import Raw
from scripts_room import Code, room
from scripts_room import script as stored_script
from virtualtime import VirtualTimeLoop, settle

from toolgate.core import concurrency, counting, jsonrpc, mcp
from toolgate.core.inflow import Intake, IntakeQueue
from toolgate.core.large import IN_MEMORY, Gathering, Mapped, Whole
from toolgate.core.model import Done
from toolgate.core.steps import at_once
from toolgate.eras import legacy, modern, tasks
from toolgate.frontends import responses
from toolgate.policy import endings, scrub
from toolgate.surfaces import uris
from toolgate.surfaces.controls import base, scripts
from toolgate.upstreams import bounds
from toolgate.upstreams.component import answers as answers_of_components
from toolgate.upstreams.links.base import LONGEST_MESSAGE
from toolgate.upstreams.links.whole import WholeAnswer
from toolgate.upstreams.mcp import requests

SIZE = 1024 * 1024
LARGE = 256 * 1024  # bytes that are looked at in one go, at most
LINK = {"type": "resource_link", "uri": "x://a", "name": "a"}
DEEP = b"[" * 400 + b"]" * 400
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
WAYS: dict[str, tuple[str, Json]] = {
    "tools/call": ("tools/call", {"name": "there__act", "arguments": {}}),
    "mcp_call": ("tools/call", {"name": "mcp_call", "arguments": {"server": "there", "tool": "act"}}),
    "call_tool": ("tools/call", {"name": "call_tool", "arguments": {"server_name": "there", "tool_name": "act"}}),
    "execute_child_tool": (
        "tools/call",
        {"name": "execute_child_tool", "arguments": {"server_id": "there", "tool_name": "act", "arguments": {}}},
    ),
    "resources/read": ("resources/read", {"uri": "x://a"}),
    "prompts/get": ("prompts/get", {"name": "there__p"}),
}


def of_tool(text: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": text}, LINK], "_meta": {"a": 1}, **more}


def answers(text: str, era: str, **more: Any) -> Any:
    complete = {"resultType": "complete"} if era == MODERN else {}
    listed = complete | ({"ttlMs": 0, "cacheScope": "private"} if complete else {})
    return {
        "tools_list": tools("act") | listed,
        "resources_list": {"resources": [{"uri": "x://a", "name": "a"}]} | listed,
        "prompts_list": {"prompts": [{"name": "p"}]} | listed,
        "tools_call": of_tool(text, **more) | complete,
        "resources_read": {"contents": [{"uri": "x://a", "text": text}]} | listed,
        "prompts_get": {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]} | complete,
    }


async def asked(app: Any, revision: str, method: str, params: Json) -> Any:
    visitor = Visitor(app)
    if revision == MODERN:
        return (await visitor.ask_modern(method, **params)).last
    await visitor.initialize(revision)
    return (await visitor.ask(method, **params)).last


class Looks:
    """How much is looked at in one go where others wait."""

    FUNCTIONS = (
        (jsonrpc, "decode"),
        (jsonrpc, "members"),
        (modern, "write_done"),
        (legacy, "write_done"),
        (counting, "has_more_values"),
        (counting, "is_deeper"),
        (uris, "rewrite"),
        (base, "wrapped"),
        (scrub.Scrubber, "body"),
        (scripts, "value_of"),
        (endings, "has_failed"),
        (answers_of_components, "result"),
        (tasks, "read_task"),
        (tasks, "with_related"),
        (tasks, "with_id"),
    )

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.large: list[tuple[str, int]] = []
        for owner, name in self.FUNCTIONS:
            monkeypatch.setattr(owner, name, self._noted(name, getattr(owner, name)))

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            size = max(map(self._size, given), default=0)
            is_here = threading.current_thread() is threading.main_thread() and not VirtualTimeLoop.is_aside
            if size > LARGE and is_here and not getattr(given[0], "frame", b""):
                self.large.append((name, size))
            return function(*given, **named)

        return noted

    def _size(self, given: Any) -> int:
        given = given.body if isinstance(given, Done | WholeAnswer) else given
        return len(memoryview(given)) if isinstance(given, bytes | Raw) else 0


@pytest.mark.promise("b.attacks.large")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("spoken", [LATEST, MODERN])
async def test_nobody_waits_while_a_large_result_is_looked_at(
    way: str, revision: str, spoken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Scripted(spoken, **answers('\u00e9 "x" \\u0041 ' * (SIZE // 12), spoken))
    async with gateway(scripts={"there": script}) as app:
        await Visitor(app).ask("tools/list")
        looks = Looks(monkeypatch)
        reply = await asked(app, revision, *WAYS[way])
        assert len(json.dumps(reply["result"])) > SIZE
        assert not looks.large


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_nor_where_it_comes_after_a_question(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(**answers("x" * SIZE, LATEST) | {"tools_call": ..., "prompts_get": ...})
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(elicitation={})
        await visitor.ask("tools/list")
        looks = Looks(monkeypatch)
        calling = visitor.begin("POST", json.dumps(visitor.request(method, **WAYS[method][1])).encode())
        await settle()
        call = script.requests[-1]["id"]
        script.say(json.dumps({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM}).encode())
        await settle()
        [question] = [each for each in calling.so_far.messages if each.get("method") == "elicitation/create"]
        await visitor.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        body = script.answers["resources/read"] if method == "resources/read" else of_tool("x" * SIZE)
        if method == "prompts/get":
            body = {"messages": [{"role": "user", "content": {"type": "text", "text": "x" * SIZE}}]}
        script._answer(call, body)
        assert len(json.dumps((await calling.response()).last["result"])) > SIZE
        assert not looks.large


@pytest.mark.parametrize("shape", ["text", "JSON in a text", "structured"])
@pytest.mark.parametrize("tool", ["mcp_execute", "execute_code"])
async def test_nor_where_a_script_gets_it(tool: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(["\u00e9 x"] * (SIZE // 10)) if shape == "JSON in a text" else '\u00e9 "x" ' * (SIZE // 7)
    more = {"structuredContent": {"a": text}} if shape == "structured" else {}
    code, script = Code(), Scripted(**answers(text, LATEST, **more))
    async with gateway(scripts={"there": script}, engines=code.engines) as app:
        await Visitor(app).ask("tools/list")
        looks = Looks(monkeypatch)
        arguments = {"code": json.dumps([["there", "act", {}]])}
        reply = await asked(app, LATEST, "tools/call", {"name": tool, "arguments": arguments})
        assert not reply["result"].get("isError")
        assert code.ran and not looks.large


@pytest.mark.parametrize("path", ["/mcp", "/mcp/meta"])
async def test_nor_where_a_stored_script_gives_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with room() as there:
        there.servers["shop"].answers["tools/call"] = said('\u00e9 "x" ' * (SIZE // 7))
        await there.approve(stored_script("much", ["shop", "buy", {}]))
        assert "gobby-scripts__much" in await there.listed()
        looks = Looks(monkeypatch)
        if path == "/mcp":
            [came] = await there.call("gobby-scripts__much")
        else:
            reply = await there.visitor("", path).ask(
                "tools/call", name="mcp_call", arguments={"server": "gobby-scripts", "tool": "much", "args": {}}
            )
            came = json.dumps(reply.last["result"])
        assert len(came) > SIZE // 2
        assert not looks.large


SHAPES: dict[str, Any] = {
    "plain": {},
    "structured": {"structuredContent": {"b": [1, {"c": None}]}},
    "list": {"structuredContent": [1, 2]},
    "failed": {"isError": True},
    "of another type": {"resultType": "other"},
    "incomplete": {"resultType": "input_required", "inputRequests": {}},
    "asking": {"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}, "requestState": "s"},
    "odd": {"resultType": 7, "ttlMs": "x", "cacheScope": None},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("revision", ["2024-11-05", LATEST, MODERN])
@pytest.mark.parametrize("spoken", [LATEST, MODERN])
async def test_what_is_large_is_told_as_what_is_small(
    shape: str, way: str, revision: str, spoken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    for least in (LARGE, 1):
        for module in (requests, responses, scrub):
            monkeypatch.setattr(module, "LARGE", least)
        monkeypatch.setattr(bounds, "LITTLE", least)
        script = Scripted(spoken, **answers("some \u00e9\n text", spoken))
        for method in ("tools/call", "resources/read", "prompts/get"):
            script.answers[method] = script.answers[method] | SHAPES[shape]
        async with gateway(scripts={"there": script}) as app:
            reply = await asked(app, revision, *WAYS[way])
            told.append(reply.get("result") or {**reply["error"], "data": None})
    assert told[0] == told[1]


async def test_an_answer_that_is_being_read_has_come_when_its_connection_ends() -> None:
    script = Scripted(**answers("x" * SIZE, LATEST) | {"tools_call": ...})
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        begun = [
            visitor.begin("POST", json.dumps(visitor.request("tools/call", name="there__act", arguments={})).encode())
            for _ in range(2)
        ]
        await settle()
        script._answer(script.requests[-2]["id"], said("x" * SIZE))
        script.hang_up("it has ended")
        first, second = [(await each.response()).last for each in begun]
        assert len(first["result"]["content"][0]["text"]) == SIZE
        assert second["error"]["data"]["outcome"] == "sent_unknown"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":"%b"}', "truncated"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":["%b",]}}', "trailing comma"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":"%b"},"error":{}}', "must have a method, a result or an error"),
        (b'{"jsonrpc":"1.0","id":%d,"result":{"a":"%b"}}', '"jsonrpc" must be "2.0"'),
        (b'{"jsonrpc":"2.0","id":%d,"result":["%b"]}', "not a JSON object"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":"%b\xff"}}', "utf-8"),
    ],
)
async def test_a_large_answer_that_cannot_be_read_fails_its_call(answer: bytes, why: str) -> None:
    error = await failed(lambda id: answer % (id, b"x" * SIZE))
    assert why in error["message"] and error["data"]["outcome"] == "executed"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"jsonrpc":"2.0","id":%%d,"result":{"a":[%%b0],"b":%b}}' % DEEP, "nested more than 256 levels"),
        (b'{"id":%%d,"result":{"a":[%%b0],"b":%b}}' % DEEP, "nested more than 256 levels"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":[%b0],"b":[,]}}', "malformed"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"a":[%b0],"b":"\\ud800","c":[,]}}', "malformed"),
    ],
)
@pytest.mark.parametrize("size", [SIZE // 2, 2 * SIZE, 5 * SIZE])
async def test_nor_does_one_hang_that_waits_in_a_file(answer: bytes, why: str, size: int) -> None:
    error = await failed(lambda id: in_file(answer % (id, b"0," * (size // 2))))
    assert why in error["message"] and error["data"]["code"] == "UPSTREAM_ERROR"


@pytest.mark.parametrize("much", [b"{},", b"[],", b'"\\ud800",', b"0,"])
@pytest.mark.parametrize("size", [2 * SIZE, 4 * SIZE - 100, 5 * SIZE])
def test_what_is_no_message_is_refused_wherever_it_waits(much: bytes, size: int) -> None:
    with pytest.raises(jsonrpc.Malformed, match="Expected `object`"):
        at_once(jsonrpc.decoding(in_file(b"[%b0]" % (much * (size // len(much)))), mcp.OF_RESULTS))


def test_a_lone_surrogate_is_replaced_wherever_it_waits() -> None:
    written = b'{"jsonrpc":"2.0","id":7,"result":{"a":"\\ud800%b"}}' % (b"x" * 2 * SIZE)
    found, _ = at_once(jsonrpc.decoding(in_file(written), mcp.OF_RESULTS))
    assert bytes(found.result) == b'{"a":"\\ufffd%b"}' % (b"x" * 2 * SIZE)


def in_file(written: bytes) -> Whole:
    gathering = Gathering(b"")
    gathering.add(written)
    found = gathering.taken()
    assert isinstance(found, Mapped) == (len(written) > IN_MEMORY)
    return found


async def failed(answer: Callable[[int], Any]) -> Json:
    """What a client is told of a call that is answered so."""
    script = Scripted(**answers("", LATEST) | {"tools_call": ...})
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        call = visitor.begin(
            "POST", json.dumps(visitor.request("tools/call", name="there__act", arguments={})).encode()
        )
        await settle()
        script.say(answer(script.requests[-1]["id"]))
        return (await call.response()).last["error"]


async def test_a_large_error_is_cut_as_any_other() -> None:
    script = Scripted(**answers("", LATEST) | {"tools_call": ...})
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        call = visitor.begin(
            "POST", json.dumps(visitor.request("tools/call", name="there__act", arguments={})).encode()
        )
        await settle()
        error = {"code": -5, "message": "m" * SIZE, "data": {"x": "y" * 2 * SIZE}}
        script.say(json.dumps({"jsonrpc": "2.0", "id": script.requests[-1]["id"], "error": error}).encode())
        told = (await call.response()).last["error"]
        assert "cut by toolgate" in told["message"] and len(json.dumps(told)) < 10_000


async def test_nothing_more_of_a_pipe_is_taken_while_a_large_answer_is_read() -> None:
    taken: list[bytes] = []
    intake = Intake(taken.append, None, 4, IntakeQueue(), lambda: "there")
    reading: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    intake.put(b"abcd")
    intake.hold_until(reading)
    intake.put(b"efgh" * 3)
    await settle()
    assert taken == [b"abcd"]
    reading.set_result(None)
    await settle()
    assert taken == [b"abcd", *[b"efgh"] * 3]


# Beside whom others call.

LARGEST = LONGEST_MESSAGE * 31 // 32
TOLD = [  # carrier, era and shape of the server, and how its client asks
    *(
        ("http", "modern", shape, "modern", "tools/call")
        for shape in ("text", "numbers", "objects", "items", "escapes")
    ),
    *(("http", "legacy", shape, "legacy", "tools/call") for shape in ("letters", "deep texts", "list", "members")),
    *(("http", "modern", "text", "modern", way) for way in ("mcp_call", "call_tool", "execute_child_tool", "head")),
    *(("http", "modern", "text", "modern", way) for way in ("resources/read", "prompts/get", "read_mcp_resource")),
    ("events", "modern", "structured", "modern", "tools/call"),
    ("stdio", "legacy", "fewer items", "modern", "tools/call"),
    ("stdio", "legacy", "text", "legacy", "after a question"),
    ("ws", "legacy", "long texts", "ws", "tools/call"),
    *(("component", "legacy", shape, "modern", "tools/call") for shape in ("text", "structured")),
    *(("http", "modern", "text", "modern", way) for way in ("execute_code", "mcp_execute", "printing", "returning")),
    ("sse", "legacy", "text", "sse", "tools/call"),
]


@pytest.mark.attack
@pytest.mark.parametrize(("carrier", "era", "shape", "client", "way"), TOLD)
def test_calls_beside_large_results_wait_no_longer(
    tmp_path: Path, carrier: str, era: str, shape: str, client: str, way: str
) -> None:
    with beside.large(carrier, shape, LARGEST, era) as wild:
        beside.check(tmp_path, wild, beside.asking(client, way))


async def test_a_result_waits_for_no_server_whose_results_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six clients that had one server answer with 30 MB had others wait for seconds, with 1.2 MB as with less."""
    now, order = [0.0], list[str]()
    monkeypatch.setattr(concurrency, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    turns = concurrency.BySize(1).of(30 * SIZE)
    turns._by_use._now = lambda: now[0]  # type: ignore[reportPrivateUsage]

    def takes(whose: str, seconds: float) -> Callable[[], None]:
        def work() -> None:
            now[0] += seconds
            order.append(whose)

        return work

    await turns.in_thread("mallory\nwild", takes("first", 0.5))
    await settle()
    await turns.turn("holds them up")
    async with asyncio.TaskGroup() as together:
        for who, server in (("mallory", "wild"), ("ann", "wild"), ("bob", "wild"), ("cid", "good")):
            together.create_task(turns.in_thread(f"{who}\n{server}", takes(who, 0.5)))
        await settle()
        turns.give_back()
    assert order[:2] == ["first", "cid"], order


@pytest.mark.parametrize("size", [600_000, 1_000_000])
async def test_a_result_of_a_megabyte_waits_for_no_larger_one_of_anybody(size: int) -> None:
    """Six clients that had one server answer with 30 MB had others wait for seconds."""
    there = Scripted(tools_list=tools("act"), tools_call=said("x" * size))
    async with gateway(scripts={"wild": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        for turns in (app.gateway.in_turns, app._link_deps.bounds.answers._turns):  # type: ignore[reportPrivateUsage]
            await turns.of(30 * SIZE).turn("mallory")
        async with asyncio.timeout(60):
            result = (await visitor.ask("tools/call", name="wild__act", arguments={})).result
        assert len(result["content"][0]["text"]) == size
