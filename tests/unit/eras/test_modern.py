"""Revision 2026-07-28 as a translation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.listing import Listing
from toolgate.core.model import Accepted, Answer, Ask, Call, Client, Done, Required
from toolgate.eras import modern

NOW = mcp.REVISIONS["2026-07-28"]
CLIENT = Client(revision=NOW)
META = {mcp.VERSION_KEY: b'"2026-07-28"', mcp.CAPABILITIES_KEY: b"{}"}
FORM = {"elicitation": {"form": {}}}


def envelope(**more: bytes) -> modern.Envelope:
    found = {**META, **{mcp.PREFIX + key: value for key, value in more.items()}}
    return modern.read_envelope(Raw(jsonrpc.encode({key: Raw(value) for key, value in found.items()})))


def params(**members: Any) -> Raw:
    return Raw(json.dumps(members).encode())


# From and to clients.


@pytest.mark.promise("b.001.era")
def test_the_header_or_the_meta_says_that_a_request_is_modern() -> None:
    in_meta = params(_meta={mcp.VERSION_KEY: "2026-07-28"})
    assert modern.speaks_modern("2026-07-28", jsonrpc.NOTHING)
    assert modern.speaks_modern(None, in_meta)
    assert modern.speaks_modern("2025-06-18", in_meta)
    assert modern.speaks_modern("2027-01-01", jsonrpc.NOTHING)


@pytest.mark.promise("b.001.era")
@pytest.mark.parametrize("found", [{}, {"_meta": {}}, {"_meta": {"x": mcp.VERSION_KEY}}, {"x": {mcp.VERSION_KEY: "1"}}])
def test_any_other_request_is_legacy(found: dict[str, Any]) -> None:
    assert not modern.speaks_modern(None, params(**found))
    assert not modern.speaks_modern("2025-11-25", params(**found))
    assert not modern.speaks_modern("nonsense", params(**found))


def test_an_envelope_says_who_asks() -> None:
    found = envelope(clientInfo=b'{"name":"a"}', logLevel=b'"error"', clientCapabilities=b'{"roots":{}}')
    assert (found.version, found.log_level) == ("2026-07-28", "error")
    assert found.capabilities == {"roots": {}}
    assert not found.meta.progress_token


@pytest.mark.promise("spec.2026.envelope.required")
@pytest.mark.parametrize("key", META)
def test_an_envelope_that_lacks_a_key_is_refused_by_its_name(key: str) -> None:
    with pytest.raises(Fault, match=key) as caught:
        modern.read_envelope(Raw(jsonrpc.encode({name: Raw(value) for name, value in META.items() if name != key})))
    assert caught.value.rpc == jsonrpc.INVALID_PARAMS


@pytest.mark.parametrize(
    "wrong",
    [{"protocolVersion": b"7"}, {"clientCapabilities": b"[]"}, {"clientInfo": b'""'}, {"logLevel": b'"loud"'}],
)
def test_an_envelope_out_of_shape_is_refused(wrong: dict[str, bytes]) -> None:
    with pytest.raises(Fault) as caught:
        envelope(**wrong)
    assert caught.value.rpc == jsonrpc.INVALID_PARAMS


def test_a_version_that_is_not_served_is_answered_with_those_that_are() -> None:
    assert envelope().revision is mcp.REVISIONS["2026-07-28"]
    assert envelope(protocolVersion=b'"2030-01-01"').revision is None
    refusal = modern.unsupported("2030-01-01")
    assert refusal.rpc == mcp.UNSUPPORTED_VERSION
    assert refusal.extra == {"supported": list(mcp.dates("modern")), "requested": "2030-01-01"}


@pytest.mark.promise("spec.2026.results.type")
def test_what_an_older_server_left_out_of_its_result_is_put_in() -> None:
    assert modern.write_done("tools/call", b'{"content":[]}') == b'{"resultType":"complete","content":[]}'
    read = json.loads(modern.write_done("resources/read", b'{"contents":[],"ttlMs":5}'))
    assert read == {"resultType": "complete", "cacheScope": "private", "contents": [], "ttlMs": 5}


def test_a_result_that_has_everything_passes_byte_by_byte() -> None:
    body = b'{ "x" : 1.0, "resultType":"complete" }'
    assert modern.write_done("tools/call", body) == body


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"null"])
def test_a_result_that_is_no_object_is_the_servers_fault(body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        modern.write_done("tools/call", body)
    assert (caught.value.code, caught.value.reach) == ("UPSTREAM_ERROR", "executed")


def test_questions_become_a_result() -> None:
    ask = Ask("ask-1", "elicitation/create", params(message="?", elicitationId="7", task={}))
    found = json.loads(modern.write_required(modern.write_questions(CLIENT, [ask]), "sealed"))
    assert found == {
        "resultType": "input_required",
        "inputRequests": {"ask-1": {"method": "elicitation/create", "params": {"message": "?"}}},
        "requestState": "sealed",
    }
    assert json.loads(modern.write_required(modern.write_questions(CLIENT, []), "sealed")) == {
        "resultType": "input_required",
        "requestState": "sealed",
    }


def test_a_retry_brings_answers_and_state() -> None:
    found = jsonrpc.members(b'{"inputResponses":{"ask-1":{"action":"accept"}},"requestState":"sealed"}')
    assert modern.read_state(found) == "sealed"
    assert modern.read_answers(found) == {"ask-1": Answer(result=Raw(b'{"action":"accept"}'))}
    assert modern.read_state({}) is None
    assert modern.read_answers({}) == {}


@pytest.mark.parametrize("found", [b'{"requestState":7}', b'{"inputResponses":[]}'])
def test_a_retry_out_of_shape_is_refused(found: bytes) -> None:
    with pytest.raises(Fault) as caught:
        modern.read_answers(jsonrpc.members(found))
        modern.read_state(jsonrpc.members(found))
    assert caught.value.rpc == jsonrpc.INVALID_PARAMS


@pytest.mark.promise("spec.2026.caching.hints")
def test_a_list_says_that_it_is_private_and_what_it_lacks() -> None:
    listing = Listing("tools", (Raw(b'{"name":"a"}'),), failures=(("bad", "it broke"),), pending=("slow",))
    found = json.loads(modern.write_listing(CLIENT, listing, {"name": "toolgate"}))
    assert (found["resultType"], found["ttlMs"], found["cacheScope"]) == ("complete", 0, "private")
    assert found["_meta"] == {
        "partial_failure": True,
        "failures": [{"server_id": "bad", "error": "it broke"}],
        "pending": ["slow"],
        mcp.SERVER_INFO_KEY: {"name": "toolgate"},
    }


@pytest.mark.promise("b.001.relayed-mapped")
def test_codes_that_this_era_does_not_know_are_translated() -> None:
    def code(rpc: int) -> int:
        return modern.error_code(Fault("UPSTREAM_ERROR", "", upstream=jsonrpc.RpcError(rpc)))

    assert [code(rpc) for rpc in (-32002, -32042, -32601, 5)] == [-32602, -32603, -32601, 5]


# To and from servers.


def result_of(body: bytes, capabilities: dict[str, Any] | None = None) -> Done | Accepted | Required:
    return modern.read_result(Call("tools/call", "t", Client(capabilities=capabilities or {})), Raw(body))


@pytest.mark.promise("spec.2026.results.type")
def test_a_result_is_done_whether_it_says_so_or_not() -> None:
    for body, is_typed in ((b'{"resultType":"complete","content":[]}', True), (b'{"content":[]}', False)):
        found = result_of(body)
        assert isinstance(found, Done) and bytes(found.body) == body and (found.typed is found.body) is is_typed


def test_a_result_may_ask_what_its_client_can_answer() -> None:
    body = b'{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}'
    assert result_of(body, FORM) == Required((Ask("a", "elicitation/create", Raw(b"{}")),))
    with pytest.raises(Fault, match="did not declare"):
        result_of(body)


@pytest.mark.parametrize("method", ["roots/list", "elicitation/create"])
@pytest.mark.parametrize("params", [b'"x"', b"[1]", b"1.5"])
def test_a_question_whose_parameters_are_no_object_is_the_servers_fault(method: str, params: bytes) -> None:
    asked = b'{"resultType":"input_required","inputRequests":{"a":{"method":"%b","params":%b}}}'
    with pytest.raises(Fault, match=f"the params of {method} must be an object"):
        result_of(asked % (method.encode(), params), FORM | {"roots": {}})


@pytest.mark.promise("spec.2026.mrtr.something")
def test_a_result_may_want_nothing_but_its_state_back() -> None:
    assert result_of(b'{"resultType":"input_required","requestState":"s"}') == Required((), "s")
    nothing = b'{"resultType":"input_required","inputRequests":null,"requestState":"s"}'
    assert result_of(nothing) == Required((), "s")


@pytest.mark.promise("spec.2026.results.type-unknown")
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"resultType":"input_required"}',
        b'{"resultType":"input_required","inputRequests":[]}',
        b'{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call"}}}',
        b'{"resultType":7}',
    ],
)
def test_a_result_that_breaks_the_protocol_is_the_servers_fault(body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        result_of(body, FORM)
    assert (caught.value.code, caught.value.reach) == ("UPSTREAM_ERROR", "executed")


def test_a_request_carries_its_own_clients_capabilities() -> None:
    meta = modern.envelope_meta(
        NOW, Client(capabilities={"elicitation": {}, "x": {}}), Raw(b'{"name":"toolgate"}'), "info"
    )
    found = {key: json.loads(bytes(value)) for key, value in meta.items()}
    assert found == {
        mcp.VERSION_KEY: "2026-07-28",
        mcp.CLIENT_INFO_KEY: {"name": "toolgate"},
        mcp.CAPABILITIES_KEY: FORM,
        mcp.LOG_LEVEL_KEY: "info",
    }


def test_answers_are_written_into_a_retry_and_an_error_is_no_answer() -> None:
    found = modern.write_answers({}, {"a": Answer(result=Raw(b"{}"))}, "s")
    assert {key: json.loads(bytes(value)) for key, value in found.items()} == {
        "inputResponses": {"a": {}},
        "requestState": "s",
    }
    with pytest.raises(Fault, match="could not answer"):
        modern.write_answers({}, {"a": Answer(error=jsonrpc.RpcError(-1, "no"))}, None)


def test_an_answer_to_discover_out_of_shape_is_a_fault() -> None:
    assert modern.read_discovered(Raw(b'{"supportedVersions":["2026-07-28"]}')).supportedVersions == ("2026-07-28",)
    for body in (b"{}", b"[]", b'{"supportedVersions":"2026-07-28"}'):
        with pytest.raises(Fault):
            modern.read_discovered(Raw(body))
