"""The envelope: what is read of a message, what is refused, and what is written."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.jsonrpc import Malformed, decode


def refused(data: bytes) -> tuple[int, bytes]:
    with pytest.raises(Malformed) as caught:
        decode(data)
    return caught.value.rpc, caught.value.id


def test_a_message_is_a_request_a_notification_or_a_response() -> None:
    request = decode(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    notification = decode(b'{"jsonrpc":"2.0","method":"ping"}')
    response = decode(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert request.is_request and not request.is_notification and not request.is_response
    assert notification.is_notification and not notification.is_request
    assert response.is_response and not response.is_request and not response.is_notification


def test_params_are_the_bytes_that_they_came_in() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{ "b" : 1.50,\t"a":"\\u00e9" }}')
    assert bytes(message.params) == b'{ "b" : 1.50,\t"a":"\\u00e9" }'


@pytest.mark.promise("spec.2026.ids.echo")
def test_an_id_is_echoed_as_it_was_written_and_matched_by_its_value() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":"\\u0061","method":"x"}')
    assert bytes(message.id) == b'"\\u0061"'
    assert jsonrpc.id_key(message.id) == jsonrpc.id_key(b'"a"') == "a"
    assert jsonrpc.id_key(b"7") == 7


@pytest.mark.parametrize("data", [b"", b"{", b"nonsense", b'{"jsonrpc":"2.0","method":"\xff"}', b"\xef\xbb\xbf{}"])
def test_bytes_that_are_no_json_are_a_parse_error(data: bytes) -> None:
    assert refused(data) == (jsonrpc.PARSE_ERROR, b"null")


def test_bytes_that_are_no_text_are_a_parse_error_even_where_nobody_looks() -> None:
    assert refused(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xff"}}')[0] == jsonrpc.PARSE_ERROR


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"id":1,"method":"x"}',
        b'{"jsonrpc":"1.0","id":1,"method":"x"}',
        b'{"jsonrpc":"2.0","id":null,"method":"x"}',
        b'{"jsonrpc":"2.0","id":{},"method":"x"}',
        b'{"jsonrpc":"2.0","id":1e999,"method":"x"}',
        b'{"jsonrpc":"2.0","id":%b,"method":"x"}' % (b"9" * 5000),
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 100_000,
    ],
)
def test_json_that_is_no_message_is_an_invalid_request(data: bytes) -> None:
    assert refused(data)[0] == jsonrpc.INVALID_REQUEST


def test_the_id_of_a_faulty_message_is_salvaged_where_it_is_one() -> None:
    assert refused(b'{"id":"a","method":"x"}')[1] == b'"a"'
    assert refused(b'{"jsonrpc":"2.0","id":7,"method":[]}')[1] == b"7"
    assert refused(b'{"id":[],"method":"x"}')[1] == b"null"
    assert refused(b'{"id":1e999,"method":"x"}')[1] == b"null"


def test_an_error_out_of_shape_becomes_an_internal_error_that_does_not_quote_it() -> None:
    assert jsonrpc.read_error(Raw(b'{"code":-1,"message":"no","data":[1]}')).data == Raw(b"[1]")
    for code, told in ((2**63 - 1, 2**63 - 1), (2**63, -32603), (-(10**20), -32603), (10**400, -32603)):
        found = jsonrpc.read_error(Raw(b'{"code":%d,"message":"no"}' % code))
        assert (found.code, found.message) == (told, "no"), "Go's SDK ends the session for one that it cannot hold"
    found = jsonrpc.read_error(Raw(b'"it broke"'))
    assert found.code == jsonrpc.INTERNAL_ERROR
    assert "it broke" not in found.message  # the server's words are redacted where they come in, and this is not there


def test_members_of_nothing_are_none_and_a_list_has_none() -> None:
    assert jsonrpc.members(jsonrpc.NOTHING) == {}
    with pytest.raises(jsonrpc.UNREADABLE):
        jsonrpc.members(b"[]")


def test_a_member_is_set_without_a_look_at_the_others() -> None:
    assert jsonrpc.with_members(b'{"a": 1.0 ,"b":{"c" : 2}}', {"a": b"3"}) == b'{"a":3,"b":{"c" : 2}}'
    assert jsonrpc.with_members(jsonrpc.NOTHING, {"a": b"1"}) == b'{"a":1}'


@pytest.mark.parametrize(
    ("body", "spliced"), [(b"{}", b'{"x":1}'), (b" { } ", b' {"x":1 } '), (b'{"a":{}}', b'{"x":1,"a":{}}')]
)
def test_a_member_is_put_first(body: bytes, spliced: bytes) -> None:
    assert jsonrpc.with_first_member(body, b'"x":1') == spliced


def test_what_is_written_is_read_back() -> None:
    assert json.loads(jsonrpc.request(7, "x", b'{"a":1}')) == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "x",
        "params": {"a": 1},
    }
    assert json.loads(jsonrpc.notification("n")) == {"jsonrpc": "2.0", "method": "n", "params": {}}
    assert json.loads(jsonrpc.result(b'"a"', b"{}")) == {"jsonrpc": "2.0", "id": "a", "result": {}}
    error = json.loads(jsonrpc.error(b"null", -1, 'say "no"', {"why": "so"}))
    assert error == {"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": 'say "no"', "data": {"why": "so"}}}


def test_a_message_on_one_line_means_the_same() -> None:
    assert jsonrpc.one_line(b'{\r\n"a":1\n}') == b'{  "a":1 }'
    line = b'{"a":"\\n"}'
    assert jsonrpc.one_line(line) is line


def test_a_batch_is_read_no_further_than_it_may_be_long() -> None:
    assert jsonrpc.read_batch(b"[]") == []
    assert jsonrpc.read_batch(b'[1, {"a": [2]},"x"]') == [b"1", b'{"a": [2]}', b'"x"']
    tracemalloc.start()
    try:
        found = jsonrpc.read_batch(b"[" + b"1," * 200_000 + b"1]")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [b"1"] * (jsonrpc.LONGEST_BATCH + 1)
    assert most < 2_000_000
    for broken in (b"[1,", b"[1,]", b"[" + b"1," * 200 + b"]", b"{}", b"7", b"[" * 5000):
        assert jsonrpc.read_batch(broken) is None


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (rb'{"jsonrpc":"2.0","id":4,"result":{"text":"\q"}}', b"4"),
        (rb'{ "result" : {"text":"\q", "id": 9}, "jsonrpc" : "2.0", "id" : 4 }', b"4"),
        (rb'{"jsonrpc":"2.0","id":4,"error":{"code":1,"message":"\q"}}', b"4"),
        (b'{"jsonrpc":"2.0","id":4,"result":{"x":NaN}}', b"4"),
        (b'{"jsonrpc":"2.0","id":4,"result":{"text":"\xff"}}', b"4"),
        (b'{"jsonrpc":"2.0","id":4,"result":{"text":"cut off', b"4"),
        (rb'{"result":{"text":"\",\"id\":9,\q"},"id":4}', b"4"),  # what a string holds is no member
        (b'{"id":4,"result":' + b"[" * 50_000 + b"]" * 40_000, b"4"),
        (rb'{"jsonrpc":"2.0","id":"\ud800","result":{"text":"\q"}}', rb'"\ud800"'),
        (b'{"result":{"a":[1},"id":4}', b"null"),  # nobody knows what is inside what
        (rb'{"jsonrpc":"2.0","method":"x","params":{"id":4,"result":"\q"}}', b"null"),
        (b'{"jsonrpc":"2.0","id":NaN,"result":{}}', b"null"),
        (b'{"jsonrpc":"2.0","id":{},"result":NaN}', b"null"),
        (b'{"jsonrpc":"2.0","id":"\xff","result":NaN}', b"null"),
        (b'{"id":' + b"9" * 5000 + b',"result":{', b"null"),
        (b'[{"id":4,"result":NaN}]', b"null"),
        (b'"', b"null"),
        (b"", b"null"),
    ],
)
def test_the_id_of_what_cannot_be_read_is_found_by_its_envelope(data: bytes, id: bytes) -> None:
    assert jsonrpc.salvaged(data)[0] == id


def test_what_answers_is_told_from_what_asks_though_neither_can_be_read() -> None:
    assert jsonrpc.salvaged(rb'{"id":4,"result":"\q"}') == (b"4", True)
    assert jsonrpc.salvaged(rb'{"id":4,"method":"x","params":"\q","result":1}') == (b"4", False)
    assert jsonrpc.salvaged(rb'{"id":4,"params":"\q"}') == (b"4", False)


@pytest.mark.parametrize("ending", [b',"id":4}', b"}"])
def test_the_id_of_a_broken_message_is_looked_for_in_its_beginning_alone(ending: bytes) -> None:
    def broken(text: bytes) -> bytes:
        return b'{"method":"x","params":"%b"' % text + ending

    # One token, each escape of which takes a step.
    assert jsonrpc.salvaged(broken(rb"\x" * jsonrpc.SALVAGED)) == (b"null", False)
    assert jsonrpc.salvaged(b'{"id":7,' + broken(rb"\x" * jsonrpc.SALVAGED)[1:]) == (b"7", False)


def test_an_id_that_the_end_of_the_beginning_cuts_off_is_none() -> None:
    head = b'{"method":"x","params":"%b","id":12'
    text = b"x" * (jsonrpc.SALVAGED - len(head % b""))
    assert jsonrpc.salvaged(head % text) == (b"12", False)
    assert jsonrpc.salvaged(head % text + b"34}") == (b"null", False)


@pytest.mark.parametrize("part", [b'\\"', b'"', b"{", b'{"', b"a", b'":', b"\\"])
def test_however_long_a_broken_message_is_looking_for_its_id_ends_soon(part: bytes) -> None:
    assert jsonrpc.salvaged(b'"' + part * 3_000_000)[0] == b"null"
