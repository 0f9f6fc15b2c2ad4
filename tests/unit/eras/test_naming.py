"""Members that a revision calls otherwise: both ways, for items, results and content."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolgate.core import counting, mcp
from toolgate.core.mcp import CALL, CONTENT, Renamed
from toolgate.core.model import Ask, Call, Client, Done, Required
from toolgate.eras import legacy, modern, naming, questions

OURS = mcp.REVISIONS["2026-07-28"]
ROW = msgspec.structs.replace(
    OURS,
    names=frozenset(
        {
            Renamed("tools", "inputSchema", "parameters"),
            Renamed(CALL, "structuredContent", "value"),
            Renamed(CALL, "isError", "failed"),
            Renamed("prompts/get", "messages", "said"),
            Renamed(CONTENT, "mimeType", "mediaType"),
            Renamed("tools/list", "nextCursor", "next"),
        }
    ),
)
SCHEMA = {"type": "object"}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def value(found: Raw | bytes) -> Any:
    return json.loads(bytes(found))


LINK, THEIR_LINK = ({"type": "resource_link", "uri": "a:b", name: "text/plain"} for name in ("mimeType", "mediaType"))
BOTH = [
    ("tools", {"name": "a", "inputSchema": SCHEMA}, {"name": "a", "parameters": SCHEMA}),
    (CALL, {"content": [], "structuredContent": 1, "isError": True}, {"content": [], "value": 1, "failed": True}),
    (
        CALL,
        {"content": [LINK, {"type": "text", "text": "a"}]},
        {"content": [THEIR_LINK, {"type": "text", "text": "a"}]},
    ),
    ("prompts/get", {"messages": [{"content": LINK}]}, {"said": [{"content": THEIR_LINK}]}),
    ("prompts/get", {"messages": [{"content": [LINK]}]}, {"said": [{"content": [THEIR_LINK]}]}),
    ("tools/list", {"tools": [], "nextCursor": "a"}, {"tools": [], "next": "a"}),
    (mcp.TASK_GET, {"taskId": "a", "result": {"isError": True}}, {"taskId": "a", "result": {"failed": True}}),
    (mcp.TASK_RESULT, {"isError": True}, {"failed": True}),
]


@pytest.mark.parametrize(("of", "ours", "theirs"), BOTH)
def test_what_a_peer_calls_otherwise_is_read_in_our_words_and_written_in_its_own(
    of: str, ours: Any, theirs: Any
) -> None:
    assert value(naming.read(of, raw(theirs), ROW)) == ours
    assert value(naming.write(of, raw(ours), ROW)) == theirs


@pytest.mark.parametrize(("of", "ours"), [(of, ours) for of, ours, _ in BOTH])
def test_where_nothing_is_renamed_the_bytes_stay_the_same_object(of: str, ours: Any) -> None:
    body = raw(ours)
    assert naming.read(of, body, OURS) is body and naming.write(of, body, OURS) is body
    assert naming.reader("prompts", ROW) is None and naming.writer("resources/read", ROW) is None
    plain = raw({"name": "a"})
    assert naming.read("tools", plain, ROW) is plain and naming.write("tools", plain, ROW) is plain


def test_a_member_that_means_nothing_in_one_revision_does_not_come_to_mean_something_in_another() -> None:
    """Nor does one that a reader takes for it who does not mind case."""
    assert value(naming.read("tools", raw({"name": "a", "inputSchema": SCHEMA}), ROW)) == {"name": "a"}
    assert value(naming.read("tools", raw({"parameters": SCHEMA, "input_schema": {}}), ROW)) == {"inputSchema": SCHEMA}
    assert value(naming.write("tools", raw({"name": "a", "Parameters": SCHEMA}), ROW)) == {"name": "a"}
    both = raw({"parameters": {}, "inputSchema": SCHEMA})
    assert value(naming.write("tools", both, ROW)) == {"parameters": SCHEMA}


def test_two_members_may_have_changed_their_names() -> None:
    swapped = frozenset({Renamed("tools", "title", "description"), Renamed("tools", "description", "title")})
    row = msgspec.structs.replace(OURS, names=swapped)
    assert value(naming.read("tools", raw({"title": "a", "description": "b"}), row)) == {
        "title": "b",
        "description": "a",
    }


@pytest.mark.parametrize("body", [b"[]", b"1", b'{"parameters":', b'"\xff"'])
def test_what_is_out_of_shape_stays_as_it_is(body: bytes) -> None:
    assert bytes(naming.read("tools", Raw(body), ROW)) == body


def test_of_a_result_with_very_many_values_no_more_is_read_than_mcp_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "LARGE", 100)
    monkeypatch.setattr(counting, "MANY", 10)
    body = raw({"content": [], "value": [0] * 100, "_meta": {}, "more": list(range(100))})
    assert value(naming.read(CALL, body, ROW)) == {"content": [], "structuredContent": [0] * 100, "_meta": {}}


def test_a_server_is_read_in_its_revision_and_one_of_the_handshake_too() -> None:
    call, body = Call(CALL, "t", Client()), raw({"resultType": "complete", "value": 1})
    there = modern.ToServer(ROW, modern.Discovered((ROW.date,)), Raw(b"{}"))
    done = there.read(call, body)
    assert isinstance(done, Done) and value(done.body) == {"resultType": "complete", "structuredContent": 1}
    foreign = raw({"resultType": "example/other", "value": 1})
    assert there.read(call, foreign) == Done(foreign, is_foreign=True)
    older = msgspec.structs.replace(mcp.LATEST["legacy"], names=ROW.names)
    done = legacy.ToServer(older, legacy.Initialized(older.date)).read(call, body)
    assert isinstance(done, Done) and value(done.body)["structuredContent"] == 1
    assert value(legacy.write_done(older, raw({"structuredContent": {}}), CALL)) == {"value": {}}


def test_a_question_about_a_model_is_read_in_our_words() -> None:
    message = {"role": "user", "content": THEIR_LINK}
    params = {"messages": [message], "tools": [{"name": "a", "parameters": SCHEMA}], "maxTokens": 1}
    asked = questions.read_question(Ask("a", "sampling/createMessage", raw(params)), ROW)
    found = value(asked.params)
    assert (asked.key, found["messages"][0]["content"], found["tools"][0]["inputSchema"]) == ("a", LINK, SCHEMA)
    form = Ask("a", "elicitation/create", raw({"message": "?"}))
    assert questions.read_question(form, ROW) is form and questions.read_question(asked, OURS) is asked


def test_what_a_modern_server_of_another_revision_asks_is_read_in_our_words() -> None:
    question = {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": THEIR_LINK}]}}
    body = raw({"resultType": "input_required", "inputRequests": {"a": question}})
    there = modern.ToServer(ROW, modern.Discovered((ROW.date,)), Raw(b"{}"))
    found = there.read(Call(CALL, "t", Client(capabilities={"sampling": {}})), body)
    assert isinstance(found, Required)
    assert value(found.asks[0].params)["messages"][0]["content"] == LINK
