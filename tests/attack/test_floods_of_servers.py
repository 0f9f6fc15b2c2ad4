"""A server that sends much for the gateway to read, or asks without end: everybody else is served meanwhile, and none
of it is kept."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from attack.floods import beside
from inmemory import ENVELOPE, LATEST, MODERN, Scripted, Visitor, gateway, said, tools
from msgspec import Raw
from processes.ground import real
from virtualtime import FakeClock, settle

from toolgate.config import CatalogLimits, Config, Limits, Server
from toolgate.core import asks, bodies, counting, jsonrpc, mcp, sse
from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.core.lines import Lines
from toolgate.core.steps import at_once
from toolgate.eras import tasks
from toolgate.policy import schemas
from toolgate.policy.schemas import FINE, compiled
from toolgate.upstreams.component import metadata
from toolgate.upstreams.links import http
from toolgate.upstreams.links.base import LONGEST_MESSAGE
from toolgate.upstreams.links.receipts import MOST as MOST_RECEIPTS
from toolgate.upstreams.links.receipts import Receipts
from toolgate.upstreams.links.stdio import StdioLink
from toolgate.upstreams.mcp.large_notes import LONGEST_NOTE, MOST_ESCAPES, MOST_VALUES, LargeNotes, has_too_many_values
from toolgate.upstreams.mcp.questions import MOST_TAKEN_BACK
from toolgate.upstreams.mcp.requests import MOST_ANSWERS, TELLING
from toolgate.upstreams.process.supervisor import Supervisor


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def patterns(pattern: str, count: int) -> bytes:
    return dumped({"properties": {"a": {"anyOf": [{"pattern": f"{pattern}{number}"} for number in range(count)]}}})


# Schemas.


@pytest.mark.parametrize(
    "text",
    [
        patterns(r"\pL{100}", 150),
        patterns(r"(?=\pL{100})\pL{100}", 100),
        dumped({"patternProperties": {rf"\pL{{60}}{number}": {} for number in range(1000)}}),
        patterns("^[a-z]+", 5000),
        dumped({"allOf": [{}] * 60_000}),
        dumped({"$defs": {str(n): {"$anchor": "a"} for n in range(3000)}, "allOf": [{"$ref": "#a"}] * 5000}),
    ],
    ids=["letters", "look around", "names", "many", "values", "anchors"],
)
def test_a_schema_that_would_take_long_to_compile_is_not_used(text: bytes) -> None:
    assert compiled(text).problem


def test_patterns_as_servers_have_them_are_used() -> None:
    for pattern in (r"^[\w.-]{1,255}$", r"^\p{L}+$", r"^.{1,4096}$", r"^(?=.*[A-Z])(?=.*[0-9]).{8,}$", r"\pL{100}"):
        schema = compiled(dumped({"properties": {"a": {"pattern": pattern}}}))
        assert not schema.problem
        assert schema.judge(dumped({"a": ""})) != FINE


def test_what_compiled_schemas_take_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "_kept", kept := schemas.Kept())
    texts = [patterns(rf"\pL{{80}}{number}", 1) for number in range(40)]
    made = [compiled(text) for text in texts]
    assert not any(each.problem for each in made)
    still = [each for text, each in zip(texts, made, strict=True) if kept.found.get(("", text)) is each]
    assert kept.size == sum(each.size for each in still) <= schemas.MOST_KEPT
    assert 5 < len(still) < 40


@pytest.mark.parametrize("pattern", [r"(?=a)(a|b)*c$", r"[01].{1000}!", r"^(a+)+\1$"])
def test_a_long_text_is_not_held_against_a_pattern_that_takes_long(pattern: str) -> None:
    schema = compiled(dumped({"properties": {"a": {"pattern": pattern}}}))
    assert schema.judge(dumped({"a": "b"})).wrong
    assert schema.judge(dumped({"a": "ab01" * 1_000_000})) == FINE  # after an hour, otherwise


def test_arguments_nested_deeper_than_the_validator_goes_are_left_to_the_server() -> None:
    schema = compiled(dumped({"properties": {"a": {"items": {"type": "string"}}}}))
    assert schema.judge(b'{"a":[%b%b]}' % (b"[" * 500, b"]" * 500)) == FINE


# Lists.


def endless(params: Any) -> Any:
    page = int(params.get("cursor", 0))
    return tools(*(f"t{page}_{number}" for number in range(1000))) | {"nextCursor": str(page + 1)}


LONG: dict[str, Any] = {
    "too many items": tools(*(f"tool_{number}" for number in range(10_001))),
    "too many bytes": tools("act", description="x" * 8_500_000),
    "too many values": b'{"tools":[' + b"{}," * 1_100_000 + b"{}]}",
    "no end": endless,
}


@pytest.mark.parametrize("kind", LONG)
async def test_a_list_that_is_too_long_is_not_read_and_the_others_are_shown(kind: str) -> None:
    scripts = {"calm": Scripted(tools_list=tools("rest")), "wild": Scripted(tools_list=LONG[kind])}
    async with gateway(scripts=scripts) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        listed = (await visitor.ask("tools/list")).result
        assert [tool["name"] for tool in listed["tools"]] == ["calm__rest"]
        [failure] = listed["_meta"]["failures"]
        assert failure["server_id"] == "wild"
        assert "too long" in failure["error"]
        asked = [request for request in scripts["wild"].requests if request["method"] == "tools/list"]
        assert len(asked) <= 2 * 11  # once to introduce it, and once more


async def test_how_long_a_list_may_be_is_configured() -> None:
    few = Config(catalog=CatalogLimits(items=2))
    for names, is_read in ((("a", "b"), True), (("a", "b", "c"), False)):
        async with gateway(scripts={"there": Scripted(tools_list=tools(*names))}, config=few) as app:
            visitor = Visitor(app)
            await visitor.initialize()
            response = await visitor.ask("tools/list")
            assert ("result" in response.last) is is_read
            assert is_read or "more than 2 items (catalog.items)" in response.error["message"]


async def test_as_many_tools_as_may_be_are_listed_and_called() -> None:
    names = [f"tool_{number}" for number in range(10_000)]
    script = Scripted(tools_list=tools(*names), tools_call=said("called"))
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert len((await visitor.ask("tools/list")).result["tools"]) == 1000
        called = await visitor.ask("tools/call", name="there__tool_9999", arguments={})
        assert called.result["content"] == said("called")["content"]


# Questions.

FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


async def test_a_call_has_only_so_many_questions_open_and_goes_on() -> None:
    script = Scripted(tools_list=tools("ask"), tools_call=...)
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(elicitation={})
        call = visitor.request("tools/call", name="there__ask", arguments={})
        asking = visitor.begin("POST", dumped(call))
        await settle()
        for number in range(50):
            message = {"jsonrpc": "2.0", "id": f"q{number}", "method": "elicitation/create", "params": FORM}
            script.say(dumped(message))
        await settle()
        put = [each for each in asking.so_far.messages if each.get("method") == "elicitation/create"]
        assert len(put) == asks.MOST_OPEN
        refused = [each for each in script.requests if "error" in each]
        assert [each["id"] for each in refused] == [f"q{number}" for number in range(asks.MOST_OPEN, 50)]
        assert "ask again when they are answered" in refused[0]["error"]["message"]
        await visitor.post({"jsonrpc": "2.0", "id": put[0]["id"], "result": {"action": "decline"}})
        script.say(dumped({"jsonrpc": "2.0", "id": "one more", "method": "elicitation/create", "params": FORM}))
        await settle()
        put = [each for each in asking.so_far.messages if each.get("method") == "elicitation/create"]
        assert len(put) == asks.MOST_OPEN + 1
        asked = next(each for each in script.requests if each.get("method") == "tools/call")
        script.say(dumped({"jsonrpc": "2.0", "id": asked["id"], "result": said("done")}))
        assert (await asking.response()).last["result"]["content"] == said("done")["content"]


@pytest.mark.parametrize("size", [1, 20_000])
async def test_a_call_has_only_so_many_questions_that_its_server_takes_back(size: int) -> None:
    script = Scripted(tools_list=tools("ask"), tools_call=...)
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(elicitation={})
        asking = visitor.begin("POST", dumped(visitor.request("tools/call", name="there__ask", arguments={})))
        await settle()
        many = MOST_TAKEN_BACK + 10
        for number in range(many):
            params = FORM | {"message": "?" * size}
            script.say(dumped({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params}))
            script.say(dumped({"jsonrpc": "2.0", "method": mcp.CANCELLED, "params": {"requestId": number}}))
            await settle()
        refused = [each["id"] for each in script.requests if "error" in each]
        most = MOST_TAKEN_BACK if size == 1 else MOST_TAKEN_BACK // 5 + 1
        assert refused == [*range(most, many)]
        asked = next(each for each in script.requests if each.get("method") == "tools/call")
        script.say(dumped({"jsonrpc": "2.0", "id": asked["id"], "result": said("done")}))
        assert (await asking.response()).last["result"]["content"] == said("done")["content"]


class Link:
    """Whoever owns the answer to a message."""

    def __init__(self) -> None:
        self.heard: list[tuple[bytes, int | None]] = []
        self.broken: list[str] = []

    def received(self, data: bytes, origin: int | None) -> None:
        self.heard.append((data, origin))

    def broke(self, origin: int | None, what: str, reach: str = "") -> None:
        self.broken.append(what)

    def awaits(self, origin: int) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


async def test_an_answer_that_cannot_be_read_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []
    look = jsonrpc._envelope
    monkeypatch.setattr(jsonrpc, "_envelope", lambda data, tokens: looked.append(data) or look(data, tokens))
    script = Scripted(tools_list=tools("x"), tools_call=...)
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        calling = visitor.begin("POST", dumped(visitor.request("tools/call", name="there__x", arguments={})))
        await settle()
        asked = next(each for each in script.requests if each.get("method") == "tools/call")
        looked.clear()
        script.say(b'{"jsonrpc":"2.0","id":%d,"result":' % asked["id"] + b"[" * 1000)
        error = (await calling.response()).last["error"]
    assert "cannot be read" in error["message"] and error["data"]["outcome"] == "executed"
    assert len(looked) == 1


ASKED = dumped({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": FORM})
NOTED = dumped({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_request_on_the_answer_to_an_answer_is_put_to_nobody(is_stream: bool) -> None:
    for origin, heard in ((None, [NOTED]), (3, [ASKED, NOTED])):
        link = Link()
        for message in (ASKED, NOTED):
            reply = http._Reply(cast(Any, link), origin)
            reply.head(200, {b"content-type": b"text/event-stream" if is_stream else b"application/json"})
            reply.body(b"data: %b\n\n" % message if is_stream else message)
            reply.complete()
        assert link.heard == [(message, origin) for message in heard]


# Results and questions of very many values.

LINK = b'{"type":"resource_link","uri":"a:b","name":"a"}'
KEYS = b'{"a":1' + b"".join(b',"%d":1' % number for number in range(100_000, 250_000)) + b"}"


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("spoken", [LATEST, MODERN])
@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (b'{"content":[' + b",".join([LINK] * 40_000) + b"]}", LINK),
        (b'{"content":[],"structuredContent":[' + b"{}," * 400_000 + b"{}]}", b"{},{},"),
    ],
    ids=["links", "structured"],
)
async def test_a_result_of_very_many_values_is_passed_on_without_a_look(
    result: bytes, kept: bytes, spoken: str, revision: str
) -> None:
    async with gateway(scripts={"wild": Scripted(spoken, tools_list=tools("act"), tools_call=result)}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        asking = visitor.request if revision == LATEST else visitor.modern_request
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "wild__act"}
        response = await visitor.post(
            asking("tools/call", name="wild__act", arguments={}), headers=headers if revision == MODERN else {}
        )
        assert response.body.count(kept) == result.count(kept)
        assert b"resultType" in response.body if revision == MODERN else True


async def test_a_result_of_very_many_values_that_is_too_large_is_kept_as_a_whole() -> None:
    result = b'{"content":[' + b",".join([LINK] * 40_000) + b'],"isError":true}'
    script = Scripted(tools_list=tools("act"), tools_call=result)
    async with gateway(scripts={"wild": script}, config=Config(limits=Limits(result_limit=10_000))) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        called = (await visitor.ask("tools/call", name="wild__act", arguments={})).result
        notice, link = called["content"]
        assert "a result with too many values to describe" in notice["text"] and called["isError"]
        assert link["size"] == len(result)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", b'{"message":"?","requestedSchema":{"type":"object","properties":' + KEYS + b"}}"),
        ("sampling/createMessage", b'{"maxTokens":1,"messages":[' + b"{}," * 100_000 + b"{}]}"),
        ("sampling/createMessage", KEYS),
    ],
    ids=["form", "messages", "members"],
)
async def test_a_question_of_very_many_values_is_refused_before_it_is_looked_into(method: str, params: bytes) -> None:
    script = Scripted(tools_list=tools("act"), tools_call=...)
    async with gateway(scripts={"wild": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize(elicitation={}, sampling={})
        asking = visitor.begin("POST", dumped(visitor.request("tools/call", name="wild__act", arguments={})))
        await settle()
        asked = next(each for each in script.requests if each.get("method") == "tools/call")
        script.say(b'{"jsonrpc":"2.0","id":"q","method":"%b","params":%b}' % (method.encode(), params))
        await settle()
        [refused] = [each for each in script.requests if each.get("id") == "q"]
        assert refused["error"]["message"].startswith("A question may have at most 4,194,304 bytes (65,536 of one to")
        assert "10,000 JSON values" in refused["error"]["message"]
        script.say(dumped({"jsonrpc": "2.0", "id": asked["id"], "result": said("done")}))
        assert (await asking.response()).last["result"]["content"] == said("done")["content"]


@pytest.mark.parametrize(
    "requests",
    [
        {f"q{number}": {"method": "roots/list"} for number in range(17)},
        {f"q{number}": {"method": "roots/list"} for number in range(100_000)},
        {"q": {"method": "elicitation/create", "params": {"message": "?", "more": [0] * 60_000}}},
    ],
    ids=["more than may be open", "very many", "large"],
)
async def test_a_modern_server_that_asks_too_much_at_once_ends_its_call(requests: Any) -> None:
    required = {"resultType": "input_required", "inputRequests": requests}
    async with gateway(scripts={"wild": Scripted(MODERN, tools_list=tools("act"), tools_call=required)}) as app:
        visitor = Visitor(app)
        await visitor.initialize(elicitation={}, roots={})
        response = await visitor.ask("tools/call", name="wild__act", arguments={})
        assert response.error["message"].startswith("The server asked for too much at once")


@pytest.mark.parametrize("spoken", [LATEST, MODERN])
async def test_a_server_that_says_very_much_of_itself_is_not_read(spoken: str) -> None:
    script = Scripted(spoken, tools_list=tools("act"))
    method = "initialize" if spoken == LATEST else "server/discover"
    script.answers[method] = dumped(script.answers[method])[:-1] + b',"capabilities":{"tools":' + KEYS + b"}}"
    async with gateway(scripts={"wild": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        response = await visitor.ask("tools/call", name="wild__act", arguments={})
        assert "error" in response.last


def test_a_component_that_lists_very_much_is_not_read() -> None:
    with pytest.raises(metadata.NoTools):
        at_once(metadata.read(b"[" + b"0," * 200_000 + b"0]"))


async def test_what_tells_of_a_task_in_very_many_values_is_told_by_the_members_that_are_known() -> None:
    told = tasks.with_id(b'{"taskId":"a","status":"working",' + KEYS[1:], "b", lambda raw: raw)
    assert told == b'{"taskId":"b","status":"working"}'


# Bytes without end.


def _lines() -> Callable[[bytes], object]:
    return Lines().feed


def _events() -> Callable[[bytes], object]:
    return sse.Reader(LONGEST_MESSAGE).feed


def _body() -> Callable[[bytes], object]:
    reply = http._Reply(cast(Any, Link()), 1)
    reply.head(200, {})
    return reply.body


@pytest.mark.parametrize("reader", [_lines, _events, _body])
def test_a_flood_of_small_chunks_takes_no_more_memory_than_its_bytes(reader: Callable[[], Any]) -> None:
    feed = reader()
    tracemalloc.start()
    try:
        for number in range(200_000):
            feed(b"%d" % (10 + number % 90))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_lines_of_an_event_that_are_empty_count_as_what_they_take() -> None:
    reader = sse.Reader(1_000_000)
    with pytest.raises(sse.TooLong):
        for _ in range(100):
            reader.feed(b"data:\n" * 1000)


def test_an_answer_without_end_is_given_up_when_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_BODY", 1000)
    monkeypatch.setattr(http, "LONGEST_UNAWAITED", 1000)
    link = Link()
    reply = http._Reply(cast(Any, link), 1)
    reply.head(200, {})
    for _ in range(10):
        reply.body(b"x" * 100)
    with pytest.raises(sse.TooLong):  # then nobody reads on
        reply.body(b"x")
    assert link.broken == ["sent an answer of more than 1000 bytes"]
    assert not reply._more and not reply._body


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_progress_token_that_each_note_would_repeat_is_bounded(revision: str) -> None:
    async with gateway(scripts={"there": Scripted(tools_list=tools("act"), tools_call=said("done"))}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        for size, is_taken in ((900, True), (1_000_000, False)):
            meta = {"progressToken": "t" * size}
            if revision == LATEST:
                response = await visitor.ask("tools/call", name="there__act", arguments={}, _meta=meta)
            else:
                response = await visitor.ask_modern(
                    "tools/call", name="there__act", arguments={}, _meta=ENVELOPE | meta
                )
            assert ("result" in response.last) is is_taken
            assert is_taken or "at most 4,096 bytes" in response.error["message"]


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "x" * LONGEST_NOTE, "\u0085" * 200_000, "\u2028" * 200_000, "\u00e9" * 450_000], ids=len
)
async def test_a_note_without_end_is_dropped_and_said(
    caplog: pytest.LogCaptureFixture, revision: str, text: str
) -> None:
    """What some take for the end of a line is written as an escape, which is longer."""

    there = Scripted(revision, tools_list=tools("act"), tools_call=...)
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        call = visitor.request("tools/call", name="there__act", arguments={}, _meta={"progressToken": 1})
        begun = visitor.begin("POST", dumped(call))
        await settle()
        token = there.requests[-1]["params"]["_meta"]["progressToken"]
        for method, params in (
            ("notifications/progress", {"progressToken": token, "progress": 1, "message": text}),
            ("notifications/message", {"level": "error", "data": text}),
        ):
            there.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}, ensure_ascii=False).encode())
        there.answer_last(said("done") | ({"resultType": "complete"} if revision == MODERN else {}))
        heard = [each.get("method") for each in (await begun.response()).messages]
    is_dropped = text[0] not in ("x", "\u00e9") or len(text) == LONGEST_NOTE
    assert ("notifications/progress" in heard) is not is_dropped
    assert ("notifications/message" in heard) is not is_dropped
    assert sum("dropped, because" in each.getMessage() for each in caplog.records) == 2 * is_dropped


MANY = {f"{number:x}": 1 for number in range(90_000)}
NAMING = {  # what the gateway reads of each note
    "notifications/progress": {"progressToken": 1, "progress": 1},
    "notifications/message": {"level": "error", "data": "x"},
    "notifications/resources/updated": {"uri": "x://a"},
    "notifications/elicitation/complete": {"elicitationId": "a"},
    "notifications/tasks": {"taskId": "mine", "status": "working"},
    "notifications/tasks/status": {"taskId": "mine", "status": "working"},
}
RELATED = {"io.modelcontextprotocol/related-task": {"taskId": "mine"}}


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("method", NAMING)
@pytest.mark.parametrize("more", [MANY, {"_meta": MANY | RELATED}, {"x": MANY}], ids=["beside", "meta", "inside"])
async def test_a_note_of_very_many_members_is_not_taken_apart(
    revision: str, method: str, more: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Scripted(revision, tools_list=tools("act"), tools_call=...)
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        visitor.begin("POST", dumped(visitor.request("tools/call", name="there__act", arguments={})))
        await settle()
        taken: list[int] = []
        apart = jsonrpc._strict_members
        monkeypatch.setattr(jsonrpc, "_strict_members", lambda raw: taken.append(len(memoryview(raw))) or apart(raw))
        there.tell(method, **NAMING[method] | more)
        assert not [size for size in taken if size > 100_000]
    assert f"sent a {method} of" in caplog.text and "values" in caplog.text


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_log_line_of_many_values_is_heard_and_one_of_very_many_is_not(revision: str) -> None:
    there = Scripted(revision, tools_list=tools("act"), tools_call=...)
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        begun = visitor.begin("POST", dumped(visitor.request("tools/call", name="there__act", arguments={})))
        await settle()
        for number, many in enumerate((10_000, counting.MANY, 50_000)):
            there.tell("notifications/message", level="error", logger=str(number), data=[{}] * many)
        there.answer_last(said("done") | ({"resultType": "complete"} if revision == MODERN else {}))
        heard = [each["params"] for each in (await begun.response()).messages if "method" in each]
    assert [each["logger"] for each in heard] == ["0", "2"]
    assert [len(each["data"]) for each in heard] == [10_000, 50_000]


def test_of_a_task_its_result_may_have_many_values_and_nothing_beside_it() -> None:
    told = {"taskId": "mine", "status": "completed", "result": {"structuredContent": MANY}}
    assert not has_too_many_values(Raw(dumped(told)))
    assert not has_too_many_values(Raw(dumped(told | {"statusMessage": "x" * MOST_VALUES})))
    few = {f"{number:x}": 1 for number in range(MOST_VALUES)}
    assert has_too_many_values(Raw(dumped(told | few)))
    assert has_too_many_values(Raw(dumped(told | {"statusMessage": few})))
    assert has_too_many_values(Raw(dumped(few | {"result": {}})))
    twice = dumped(told)[:-1] + b', "result": {}}'
    assert has_too_many_values(Raw(twice)), "the last one is the result"
    assert has_too_many_values(Raw(dumped(told | {"statusMessage": "\x07" * (MOST_ESCAPES + 1)})))


BODY = b'"result":{"a":[' + b"{}," * LONGEST_NOTE + b"{}]}}}"


def note(method: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":{%b,%b' % (method, params, BODY)


@pytest.mark.parametrize(
    "data",
    [
        note(b"notifications/progress", b'"progressToken":1'),
        note(b"notifications/tasks", b'"taskId":"other"'),
        note(b"notifications/tasks", b'"x":"mine"'),
        note(b"notifications/tasks", b'"x":[%b],"taskId":"mine"' % (b"1," * 10_000 + b"1")),
        note(b"notifications/tasks/status", b'"taskId":"mine"'),
        note(b"notifications/anything", b'"taskId":"mine"'),
    ],
)
async def test_a_large_note_is_not_even_read(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(tools_list=tools("act"))
    async with gateway(scripts={"there": script}) as app:
        await Visitor(app).ask("tools/list")
        read: list[bytes] = []
        decode = jsonrpc.decode
        monkeypatch.setattr(jsonrpc, "decode", lambda data, **more: read.append(data) or decode(data, **more))
        script.say(data)
        await settle()
        assert not read


def test_a_task_is_told_of_at_length_once_and_where_somebody_watches_it() -> None:
    notes = LargeNotes(lambda id: id in ("mine", "m\u00e9"))
    mine = note(b"notifications/tasks", b'"taskId":"mine"')
    assert notes.refused(mine) == "" and notes.has_passed
    assert notes.refused(mine) == "notifications/tasks" and not notes.has_passed
    assert notes.refused(note(b"notifications/tasks", b'"status":"completed", "taskId" : "m\\u00e9"')) == ""
    assert notes.refused(note(b"sampling/createMessage", b'"taskId":"mine"')) == "", "which may have an id at its end"
    assert not notes.has_passed


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","params":{"taskId":"T",%b,"method":"notifications/tasks"}' % BODY[:-1],
        note(b"notifications\\/tasks", b'"taskId":"T"'),
        b'{"jsonrpc":"2.0","x":[%b],' % (b"1," * 9000 + b"1") + note(b"notifications/tasks", b'"taskId":"T"')[17:],
    ],
)
async def test_a_large_note_whose_beginning_does_not_tell_is_dropped_all_the_same(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    script = Scripted(tools_list=tools("act"))
    async with gateway(scripts={"there": script}) as app:
        await Visitor(app).ask("tools/list")
        script.say(data)
        await settle()
        assert "sent a notifications/tasks of" in caplog.text


@pytest.mark.parametrize("id", [b"1" * 5000, b'"%b"' % (b"x" * 5000)])
async def test_an_id_that_each_answer_would_repeat_is_bounded(id: bytes) -> None:
    async with gateway() as app:
        response = await Visitor(app).post(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % id)
        assert response.status == 400
        assert response.last["id"] is None
        assert "an id must have at most 4,096 bytes" in response.error["message"]


# Beside whom others call.

LISTED = ["descriptions", "descriptions of blanks", "tools", "long tools", "as many tools as may be", "endless list"]
CALLED = ["patterns", "patterns that look back", "large patterns", "long number", "long token", "line without an end"]
OVER_HTTP = ["chunks", "chunks of an event", "empty events"]


@pytest.mark.attack
@pytest.mark.parametrize(("wild", "kind"), [*((each, "list") for each in LISTED), *((each, "call") for each in CALLED)])
def test_calls_beside_the_flood_of_a_server_wait_no_longer(tmp_path: Path, wild: str, kind: str) -> None:
    beside.check(tmp_path, wild, kind)


@pytest.mark.attack
def test_calls_beside_questions_without_end_wait_no_longer(tmp_path: Path) -> None:
    beside.check(tmp_path, "questions", "answers")


@pytest.mark.attack
def test_calls_beside_questions_on_the_answers_to_answers_wait_no_longer(tmp_path: Path) -> None:
    with beside.over_http("questions in answers") as wild:
        beside.check(tmp_path, wild, "answers")


@pytest.mark.attack
@pytest.mark.parametrize("kind", OVER_HTTP)
def test_calls_beside_a_flood_over_http_wait_no_longer(tmp_path: Path, kind: str) -> None:
    with beside.over_http(kind) as wild:
        beside.check(tmp_path, wild, "call")


async def test_a_server_that_asks_without_end_has_few_answers_on_their_way() -> None:
    there = Scripted(tools_list=tools("act"))
    async with gateway(scripts={"there": there}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        await visitor.ask("tools/list")
        before = asyncio.all_tasks()
        for number in range(10_000):
            there.say(b'{"jsonrpc":"2.0","id":"p%d","method":"ping"}' % number)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks() - before) <= 1
        await settle()
        answered = [each["id"] for each in there.requests if "result" in each]
        assert answered == [f"p{number}" for number in range(MOST_ANSWERS)]
        there.say(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
        await settle()
        assert there.requests[-1]["id"] == "last"


async def test_few_messages_are_on_their_way_to_a_server_that_does_not_take_them() -> None:
    receipts = Receipts(FakeClock())
    for number in range(MOST_RECEIPTS):
        await receipts.expect(number)
    waiting = asyncio.ensure_future(receipts.expect("one more"))
    await settle()
    assert not waiting.done()
    receipts.note(3)
    await waiting
    async with asyncio.timeout(TELLING / 2):  # of a server that gives none nobody waits for them any more
        await receipts.expect("another")
    receipts.note("another")
    await receipts.all()


class _Heard:
    """Whoever hears a link's messages."""

    def received(self, data: bytes, origin: int | None) -> None: ...

    def closed(self, fault: Fault) -> None: ...


@real
async def test_a_child_that_writes_without_end_is_read_no_faster_than_it_is_heard() -> None:
    code = "import os\nwhile True: os.write(1, b'{}\\n' * 20_000)"
    supervisor = Supervisor(SystemClock(), {})
    server = Server(id="there", name="there", type="stdio", command=sys.executable, args=("-I", "-S", "-c", code))
    link = StdioLink(server, _Heard(), SystemClock(), IntakeQueue())
    await link.connect(supervisor)
    try:
        for signs in range(1, 30):
            while (link.signs_of_life or 0) < signs:
                await asyncio.sleep(0)
            assert len(link._intake._waiting) < 2_000  # pieces of one read
        assert link._intake.transport
    finally:
        await link.close()
        await supervisor.close()


async def test_lines_that_many_children_of_a_server_begin_and_do_not_end_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 1000 * 1024)
    unended = bodies.Bodies()
    server = Server(id="wild", name="wild", type="stdio", command="x")
    links = [StdioLink(server, _Heard(), SystemClock(), IntakeQueue(), unended=unended) for _ in range(10)]
    for _ in range(50):
        for link in links:
            link._output(b"x" * 64 * 1024)
        await asyncio.sleep(0)
    begun = [link._lines.pending for link in links]
    assert max(begun) == begun[0] == 50 * 64 * 1024  # the oldest is read on
    assert sum(begun[1:]) < 1000 * 1024 + 10 * 128 * 1024
    links[0]._output(b"\n")
    links[0]._exited("it ends")
    async with asyncio.timeout(30):
        while links[1]._lines.pending < 50 * 64 * 1024:  # now another is the oldest
            await asyncio.sleep(0)
    for link in links[1:]:
        link._exited("it ends")
    async with asyncio.timeout(30):
        while unended._kept:
            await asyncio.sleep(0)
