"""One answer or question of a server has so many parts, or two of its things are so long, that it takes seconds to hold
each of the one against the other: parts are counted before they are looked at, and what is the same for all is read
once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from inmemory import LATEST, MODERN, Refusal, Scripted, Visitor, gateway, said, tools
from msgspec import Raw

from toolgate.config import Config, Limits
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Ask
from toolgate.core.redaction import Redactor
from toolgate.eras import legacy, questions, revisions
from toolgate.surfaces import uris
from toolgate.surfaces.controls import base

MIB = 1024 * 1024
OLDEST, BEFORE = "2024-11-05", "2025-06-18"
FEW = 60_000  # steps of Python: some tens of milliseconds


def filled(part: bytes, before: bytes, after: bytes, size: int = MIB - 200) -> bytes:
    return before + b",".join([part] * (size // (len(part) + 1))) + after


def steps(work: Callable[[], object]) -> int:
    """How many functions are called, those of C among them."""
    found = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


# Pages of an error.

SOUND = b'{"mode":"url","message":"?","url":"https://a.example/","elicitationId":"1"}'
ERRORS = {
    "empty pages": filled(b"{}", b'{"elicitations":[', b"]}"),
    "sound pages": filled(SOUND, b'{"elicitations":[', b"]}"),
    "seventeen": filled(SOUND, b'{"elicitations":[', b"]}", 17 * (len(SOUND) + 1)),
    "one page of many members": b'{"elicitations":[{"url":"https://a.example/"'
    + b"".join(b',"%d":0' % n for n in range(10**5, 2 * 10**5)) + b"}]}",
    "members beside them": b'{"elicitations":[' + SOUND + b"]" + b"".join(b',"%d":0' % n for n in range(10**5)) + b"}",
    "in another case": filled(SOUND, b'{"Elicitations":[', b"]}"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_pages_of_an_error_are_counted_before_they_are_looked_at(case: str) -> None:
    error = jsonrpc.RpcError(mcp.URL_ELICITATION_REQUIRED, "Sign in", Raw(ERRORS[case]))
    fault = Fault("UPSTREAM_ERROR", "Sign in", upstream=error)
    assert steps(lambda: (legacy.pages(error), legacy.may_name_pages(error), legacy.read_pages(fault))) < 1_000
    assert not legacy.pages(error) and legacy.may_name_pages(error) and not legacy.read_pages(fault)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("count", [1, asks.MOST_OPEN, asks.MOST_OPEN + 1, 5_000])
async def test_as_many_pages_are_passed_on_as_a_user_may_be_asked_for(
    count: int, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Raw] = []
    check = asks.check_page
    monkeypatch.setattr(asks, "check_page", lambda page: (looks.append(page), check(page))[1])
    pages = [json.loads(SOUND) | {"elicitationId": str(number)} for number in range(count)]
    refusal = Refusal(mcp.URL_ELICITATION_REQUIRED, "Sign in", {"elicitations": pages})
    script = Scripted(tools_list=tools("act"), tools_call=refusal)
    async with gateway(scripts={"wild": script}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        asking = visitor.ask if revision == LATEST else visitor.ask_modern
        error = (await asking("tools/call", name="wild__act", arguments={})).error
    is_few = count <= asks.MOST_OPEN
    assert len(looks) == (count if is_few else 0)
    if revision == LATEST:
        assert error["code"] == mcp.URL_ELICITATION_REQUIRED
        assert error.get("data") == ({"elicitations": pages} if is_few else None)


# Structured content that is no object, beside many texts.


class Read:
    """How many bytes of JSON are read as values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        value = jsonrpc.value

        def counted(raw: Any) -> Any:
            self.bytes += len(memoryview(raw))
            return value(raw)

        monkeypatch.setattr(jsonrpc, "value", counted)


LONG = b"[" + b",".join([b'"ssssssss"'] * 20_000) + b"]"
TEXTS = {
    "other values": b'{"type":"text","text":"0"}',
    "as long as it": b'{"type":"text","text":%b}' % json.dumps("[" + "7," * 500 + "7]").encode(),
    "the same beginning": b'{"type":"text","text":"[\\"ssssssss\\"]"}',
    "no JSON": b'{"type":"text","text":"[harmless"}',
}


@pytest.mark.parametrize("revision", [OLDEST, BEFORE, LATEST])
@pytest.mark.parametrize("case", TEXTS)
def test_a_structured_value_is_read_once_however_many_texts_stand_beside_it(
    case: str, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Read(monkeypatch)
    blocks = b",".join([TEXTS[case]] * 4_000)
    body = b'{"content":[%b],"structuredContent":%b}' % (blocks, LONG)
    written = json.loads(bytes(revisions.write_result(body, mcp.REVISIONS[revision])))
    assert read.bytes <= len(body)
    assert "structuredContent" not in written
    assert json.loads(written["content"][-1]["text"]) == json.loads(LONG) and len(written["content"]) == 4_001


@pytest.mark.parametrize("place", [0, 1_999])
def test_a_text_that_says_it_is_found_among_many(place: int) -> None:
    texts = [json.dumps([number]) for number in range(2_000)]
    texts[place] = json.dumps([1, {"a": "\u00e9"}], indent=2)
    blocks = [{"type": "text", "text": text} for text in texts]
    body = json.dumps({"content": blocks, "structuredContent": [1, {"a": "\u00e9"}]}).encode()
    written = json.loads(bytes(revisions.write_result(body, mcp.REVISIONS[BEFORE])))
    assert written == {"content": blocks}


def test_texts_of_many_values_are_read_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Read(monkeypatch)
    text = "[" + "[]," * (MIB // 8) + "[]]"
    body = json.dumps({"content": [{"type": "text", "text": text}] * 20, "structuredContent": [1]}).encode()
    revisions.write_result(body, mcp.REVISIONS[BEFORE])
    assert read.bytes <= revisions.LONGEST_SAID + 1_000


# Many parts, each of which takes a step.

RESULTS = {
    "blocks": filled(b'{"type":"audio"}', b'{"x":"resource_link","y":{"resource":1},"content":[', b"]}"),
    "empty blocks": filled(b"{}", b'{"x":"audio","y":{"resource_link":1},"structuredContent":[],"content":[', b"]}"),
    "texts": filled(
        b'{"type":"text","text":"0"}', b'{"structuredContent":[0],"content":[{"type":"resource_link","uri":"a"},', b"]}"
    ),
}


@pytest.mark.parametrize("case", RESULTS)
@pytest.mark.parametrize("revision", [OLDEST, BEFORE])
def test_blocks_of_a_result_are_counted_before_they_are_looked_at(case: str, revision: str) -> None:
    body = RESULTS[case]
    assert steps(lambda: revisions.write_result(body, mcp.REVISIONS[revision])) < FEW
    assert steps(lambda: uris.rewrite("tools/call", body, lambda uri: "x" + uri)) < FEW
    assert uris.rewrite("tools/call", body, lambda uri: "x" + uri) is body


def test_so_are_the_contents_of_a_resource_and_the_messages_of_a_prompt() -> None:
    contents = filled(b'{"uri":"a"}', b'{"contents":[', b"]}")
    messages = filled(b'{"content":{"type":"resource_link","uri":"a"}}', b'{"messages":[', b"]}")
    for method, body in (("resources/read", contents), ("prompts/get", messages)):
        assert steps(lambda: uris.rewrite(method, body, lambda uri: "x" + uri)) < FEW


def test_as_many_links_as_anybody_has_are_renamed() -> None:
    links = [{"type": "resource_link", "uri": f"a:{number}", "name": "a"} for number in range(4_000)]
    body = json.dumps({"content": links}).encode()
    renamed = json.loads(bytes(uris.rewrite("tools/call", body, lambda uri: "x" + uri)))
    assert {link["uri"][:3] for link in renamed["content"]} == {"xa:"}


@pytest.mark.parametrize("limits", [Limits(result_limit=10_000), Limits(result_tokens=100)])
@pytest.mark.parametrize("block", [b'{"type":"x"}', b'{"type":"text","text":"a"}'])
async def test_a_result_of_very_many_blocks_is_kept_as_a_whole(limits: Limits, block: bytes) -> None:
    result = filled(block, b'{"content":[', b"]}", 400 * 1024)
    script = Scripted(tools_list=tools("act"), tools_call=result)
    async with gateway(scripts={"wild": script}, config=Config(limits=limits)) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        notice, link = (await visitor.ask("tools/call", name="wild__act", arguments={})).result["content"]
    assert "a result with too many values to describe" in notice["text"] and link["size"] == len(result)


@pytest.mark.parametrize("size", [MIB // 2, 4 * MIB])
@pytest.mark.parametrize("block", [b"{}", b'{"type":"text","text":"a"}'])
@pytest.mark.parametrize(
    ("control", "named"),
    [
        ("execute_child_tool", {"server_id": "wild", "tool_name": "act", "arguments": {}}),
        ("call_tool", {"server_name": "wild", "tool_name": "act"}),
        ("mcp_call", {"server": "wild", "tool": "act"}),
    ],
)
async def test_what_a_control_tool_has_called_is_not_taken_apart_where_it_has_too_many_parts(
    control: str, named: dict[str, Any], block: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    apart = base.take_apart
    monkeypatch.setattr(base, "take_apart", lambda body: (found := apart(body), taken.append(len(found.others)))[0])
    result = filled(block, b'{"content":[', b"]}", size)
    async with gateway(scripts={"wild": Scripted(tools_list=tools("act"), tools_call=result)}) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        response = await visitor.post(visitor.request("tools/call", name=control, arguments=named))
    assert not taken and response.body.count(block) >= result.count(block)


@pytest.mark.parametrize("revision", [OLDEST, BEFORE])
@pytest.mark.parametrize(
    "block", [b'{"type":"audio"}', b'{"type":"resource_link","uri":"a"}', b'{"type":"text","text":"a"}']
)
def test_what_a_model_says_in_many_blocks_is_not_put_into_other_words(block: bytes, revision: str) -> None:
    """A client answers sixteen questions at once."""
    ask, said = Ask("a", "sampling/createMessage", Raw(b"{}")), b'{"role":"assistant","content":[%b]}'
    answers = {n: Answer(Raw(said % b",".join([block] * n))) for n in (2, 1_000, 1_001, 9_999)}
    written: dict[int, Answer] = {}

    def write() -> None:
        for count, answer in answers.items():
            written[count] = questions.write_model_answer(ask, answer, mcp.REVISIONS[revision])

    assert steps(write) < FEW
    assert {count for count in answers if written[count] == answers[count]} == {1_001, 9_999}
    assert all(json.loads(bytes(written[count].result))["content"]["type"] == "text" for count in (2, 1_000))


# Questions.


def test_a_message_of_many_blocks_says_all_else_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For clients that know one block in each message it becomes as many messages: of 1 MB each it would be 4 GB."""
    blocks = [{"type": "text", "text": str(number)} for number in range(4_000)]
    message = {"role": "user", "content": blocks, "more": "x" * 1_000_000}
    ask = Ask("a", "sampling/createMessage", Raw(jsonrpc.encode({"messages": [message], "maxTokens": 1})))
    written = questions.write_question(ask, mcp.REVISIONS[BEFORE])["messages"]
    assert len(memoryview(written)) < 2 * len(memoryview(ask.params))
    found = json.loads(bytes(written))
    assert [each["content"] for each in found] == blocks
    assert {each["role"] for each in found} == {"user"} and [("more" in each) for each in found].count(True) == 1


QUESTIONS = {
    "messages": {"messages": [{"role": "user", "content": {"type": "text"}}] * 12_000, "maxTokens": 1},
    "a role without end": {
        "messages": [{"role": "u" * 500_000, "content": [{"type": "text", "text": ""}] * 4_000}], "maxTokens": 1,
    },
    "blocks": {"messages": [{"role": "user", "content": [{"type": "text"}] * 24_000}], "maxTokens": 1},
    "tools": {"messages": [], "tools": [{}] * 49_000, "maxTokens": 1},
}  # fmt: skip


@pytest.mark.parametrize("case", QUESTIONS)
@pytest.mark.parametrize("revision", [OLDEST, BEFORE, LATEST])
def test_a_question_of_very_many_parts_passes_as_it_is(case: str, revision: str) -> None:
    ask = Ask("a", "sampling/createMessage", Raw(jsonrpc.encode(QUESTIONS[case])))
    found: list[jsonrpc.Members] = []
    assert steps(lambda: found.append(questions.write_question(ask, mcp.REVISIONS[revision]))) < FEW
    assert sum(len(memoryview(each)) for each in found[0].values()) < 2 * len(memoryview(ask.params))


@pytest.mark.parametrize("revision", [OLDEST, BEFORE, LATEST])
def test_so_does_a_form_of_very_many_fields(revision: str) -> None:
    fields = {str(number): {"type": "string", "default": "a"} for number in range(1_500)}
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": fields}}
    ask = Ask("a", "elicitation/create", Raw(jsonrpc.encode(form)))
    assert not asks.is_too_large(ask)
    assert steps(lambda: questions.write_question(ask, mcp.REVISIONS[revision])) < FEW


# Secrets that are numbers, in an answer of very many values, which is read where a cut has broken it.


@pytest.mark.parametrize("secrets", [1, 200])
@pytest.mark.parametrize("part", [b'"a"', b"{}", b"[]", b'{"a":"b"}'])
def test_an_answer_is_read_as_far_as_there_are_secrets_to_look_for(part: bytes, secrets: int) -> None:
    redactor = Redactor(["12345678", *(f"secret-of-nobody-{number}" for number in range(secrets))])
    body = filled(part, b'{"isError":true,"a":12345678,"content":[', b"]}", 512 * 1024)
    found: list[bytes] = []
    assert steps(lambda: found.append(redactor.body(body))) < 3_000_000
    assert b"12345678" not in found[0] and json.loads(found[0])


def test_of_an_answer_of_a_few_values_all_else_is_left() -> None:
    redactor = Redactor(["12345678", *(f"secret-of-nobody-{number}" for number in range(900))])
    body = {"content": [{"type": "text", "text": "harmless"}], "a": [12345678], "b": 7}
    assert json.loads(redactor.body(json.dumps(body).encode())) == body | {"a": ["[secret]"]}


def test_an_answer_of_few_blocks_is_still_told_in_the_words_of_a_control_tool() -> None:
    assert base.take_apart(json.dumps(said("fine")).encode()).text == "fine"
