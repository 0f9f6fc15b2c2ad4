"""The handshake revisions as a translation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Ask
from toolgate.eras import legacy

LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
TEXT = {"type": "text", "text": "audio"}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


# From and to clients.


@pytest.mark.promise("001.lifecycle.initialize")
@pytest.mark.parametrize("revision", mcp.dates("legacy"))
def test_a_revision_that_we_know_is_spoken(revision: str) -> None:
    asked = legacy.read_initialize(raw({"protocolVersion": revision})).protocolVersion
    assert legacy.negotiate(asked) is mcp.REVISIONS[revision]


def test_a_revision_that_we_do_not_know_is_answered_with_our_latest() -> None:
    for unknown in ("2024-10-07", "2026-07-28", "2099-01-01"):
        asked = legacy.read_initialize(raw({"protocolVersion": unknown}))
        assert legacy.negotiate(asked.protocolVersion).date == "2025-11-25"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 7}, {"protocolVersion": "1.0"}, {"protocolVersion": ""}])
def test_a_version_that_is_no_date_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(Fault) as caught:
        legacy.read_initialize(raw(params))
    assert caught.value.rpc == jsonrpc.INVALID_PARAMS


def test_initialize_without_parameters_is_refused() -> None:
    with pytest.raises(Fault, match="protocolVersion"):
        legacy.read_initialize(jsonrpc.NOTHING)


@pytest.mark.promise("b.rulings.13-content")
def test_content_that_a_revision_does_not_know_becomes_text() -> None:
    body = raw({"content": [LINK, AUDIO, TEXT], "isError": False})

    def shown(revision: str) -> list[str]:
        return [
            block["type"] for block in json.loads(bytes(legacy.write_done(mcp.REVISIONS[revision], body)))["content"]
        ]

    assert shown("2024-11-05") == ["text", "text", "text"]
    assert shown("2025-03-26") == ["text", "audio", "text"]
    assert shown("2025-06-18") == ["resource_link", "audio", "text"]


def test_content_of_a_prompt_becomes_text_too() -> None:
    body = raw({"messages": [{"role": "user", "content": LINK}]})
    [message] = json.loads(bytes(legacy.write_done(mcp.REVISIONS["2025-03-26"], body)))["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": "[a] file:///a"}}


def test_a_result_that_holds_nothing_unknown_passes_byte_by_byte() -> None:
    body = Raw(b'{ "content" : [ {"type":"text","text":"an audio"} ], "x" : 1.0 }')
    for revision in mcp.dates("legacy"):
        assert legacy.write_done(mcp.REVISIONS[revision], body) is body


@pytest.mark.parametrize(
    "body",
    [
        b'["audio"]',
        b'{"content":"audio"}',
        b'{"content":[{"text":"audio"},{"kind":"audio"}]}',
        b'{"messages":[{"role":"audio"}]}',
        b'{"messages":[{"role":"audio","content":["audio"]}]}',
    ],
)
def test_a_result_out_of_shape_is_left_as_it_is(body: bytes) -> None:
    assert bytes(legacy.write_done(mcp.REVISIONS["2024-11-05"], body)) == body


def test_a_part_that_is_out_of_shape_keeps_no_other_from_becoming_text() -> None:
    parts = b'"content":[{"type":"audio","mimeType":"a/b"},7,{"type":5}]'
    body = b'{%b,"messages":[{"content":{"type":"audio"}},{"content":7}]}' % parts
    assert json.loads(bytes(legacy.write_done(mcp.REVISIONS["2024-11-05"], body))) == {
        "content": [{"type": "text", "text": "[audio] a/b"}, 7, {"type": 5}],
        "messages": [{"content": {"type": "text", "text": "[audio]"}}, {"content": 7}],
    }


def test_a_resource_that_is_not_found_has_the_code_of_its_time() -> None:
    own = Fault("RESOURCE_NOT_FOUND", "")
    servers = Fault("RESOURCE_NOT_FOUND", "", upstream=jsonrpc.RpcError(jsonrpc.INVALID_PARAMS))
    wrong = Fault("UPSTREAM_ERROR", "", upstream=jsonrpc.RpcError(jsonrpc.INVALID_PARAMS))
    for method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
        assert legacy.error_code(own, method) == legacy.error_code(servers, method) == -32002
    assert legacy.error_code(wrong, "resources/read") == legacy.error_code(wrong, "tools/call") == -32602
    assert legacy.error_code(Fault("TOOL_NOT_FOUND", ""), "tools/call") == -32602


@pytest.mark.promise("b.001.relayed-mapped")
def test_codes_that_came_later_are_internal_errors_here() -> None:
    for code in mcp.MODERN_ONLY_ERRORS:
        fault = Fault("UPSTREAM_ERROR", "", upstream=jsonrpc.RpcError(code))
        assert legacy.error_code(fault, "tools/call") == jsonrpc.INTERNAL_ERROR
    assert legacy.error_code(Fault("UPSTREAM_ERROR", "", upstream=jsonrpc.RpcError(-32042)), "tools/call") == -32042


def test_a_question_by_url_has_an_id_here() -> None:
    asked = legacy.write_ask(
        Ask("a", "elicitation/create", raw({"mode": "url", "url": "x:"})), mcp.REVISIONS["2025-11-25"]
    )
    assert json.loads(bytes(asked["elicitationId"]))
    own = legacy.write_ask(
        Ask("a", "elicitation/create", raw({"mode": "url", "elicitationId": "7"})), mcp.REVISIONS["2025-11-25"]
    )
    assert bytes(own["elicitationId"]) == b'"7"'


def test_a_form_says_its_mode_only_where_that_is_known() -> None:
    ask = Ask("a", "elicitation/create", raw({"mode": "form", "message": "?"}))
    assert set(legacy.write_ask(ask, mcp.REVISIONS["2025-11-25"])) == {"mode", "message"}
    assert set(legacy.write_ask(ask, mcp.REVISIONS["2025-06-18"])) == {"message"}


# To and from servers.


def test_a_servers_answer_to_initialize_is_read() -> None:
    revision, found = legacy.read_initialized(raw({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}}))
    assert (revision.date, found.capabilities) == ("2024-11-05", {"tools": {}})


def test_a_server_that_names_the_draft_speaks_the_first_revision() -> None:
    assert legacy.read_initialized(raw({"protocolVersion": "2024-10-07"}))[0].date == "2024-11-05"


@pytest.mark.promise("spec.legacy.initialize.upstream")
@pytest.mark.parametrize("answer", [{}, [], {"protocolVersion": "2030-01-01"}, {"protocolVersion": None}])
def test_a_server_that_speaks_nothing_that_we_know_has_failed(answer: Any) -> None:
    with pytest.raises(Fault) as caught:
        legacy.read_initialized(raw(answer))
    assert caught.value.code == "SERVER_FAILED"


def test_a_server_that_all_share_is_told_what_we_bridge() -> None:
    assert set(legacy.shared_capabilities(has_roots=False)) == {"elicitation", "sampling"}
    assert set(legacy.shared_capabilities(has_roots=True)) == {"elicitation", "sampling", "roots"}


def test_a_server_of_one_client_is_told_what_that_client_can_do() -> None:
    assert asks.relayed_capabilities({"roots": {"listChanged": True}, "tasks": {}}) == {"roots": {}}
    assert asks.relayed_capabilities({"elicitation": {}}) == {"elicitation": {"form": {}}}


def test_answers_are_written_and_read_back() -> None:
    for answer in (Answer(result=Raw(b'{"a":1}')), Answer(error=jsonrpc.RpcError(-1, "no", Raw(b"[1]")))):
        message = jsonrpc.decode(legacy.write_answer(Raw(b'"q"'), answer))
        assert bytes(message.id) == b'"q"'
        assert legacy.read_answer(message) == answer


def test_a_cancellation_names_the_request() -> None:
    assert json.loads(legacy.cancelled(7, "timed out")) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "timed out"},
    }


def test_what_is_kept_of_initialize_is_bounded() -> None:
    said = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x" * 300_000, "version": "1"}}
    with pytest.raises(Fault, match="the limit is"):
        legacy.read_initialize(Raw(json.dumps(said).encode()))
