"""What is spliced is what decoding, inserting and encoding would give, and what is written reads back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec import Raw
from properties.material import bodies, cut, ids, objects, values, written

from toolgate.core import jsonrpc, mcp
from toolgate.core.jsonrpc import Malformed
from toolgate.core.lines import Lines
from toolgate.eras import headers, legacy, modern
from toolgate.surfaces import uris

METHODS = list(mcp.CALLS)


def read(data: bytes | Raw) -> Any:
    return json.loads(bytes(data))


@given(written(objects), st.dictionaries(st.text(max_size=8), written(values), max_size=3))
def test_members_are_set_as_by_decoding_and_encoding(raw: bytes, new: dict[str, bytes]) -> None:
    expected = read(raw) | {name: read(value) for name, value in new.items()}
    found = jsonrpc.with_members(raw, new)
    assert read(found) == expected
    assert list(read(found)) == list(expected)


@given(written(objects), written(values))
def test_a_member_is_put_first_as_by_decoding_and_encoding(raw: bytes, value: bytes) -> None:
    name = "not there: " + "x" * 9
    member = jsonrpc.encode(name) + b":" + value
    found = jsonrpc.with_first_member(raw, member)
    assert read(found) == {name: read(value), **read(raw)}
    before, _, after = found.partition(member)
    assert before + after.removeprefix(b",") == raw


@given(st.sampled_from(METHODS), written(objects | objects.map(lambda found: {"resultType": "complete", **found})))
def test_a_result_gets_what_its_era_requires_and_keeps_all_that_it_had(method: str, body: bytes) -> None:
    required = {"resultType": "complete"}
    if method == "resources/read":
        required |= {"ttlMs": 0, "cacheScope": "private"}
    found = modern.write_done(method, body)
    assert read(found) == required | read(body)
    assert found.strip().endswith(body.strip().removeprefix(b"{").lstrip()[-1:])
    if required.keys() <= read(body).keys():
        assert found == body


@given(st.sampled_from(mcp.dates("legacy")), st.sampled_from(METHODS), written(objects))
def test_a_result_without_anything_to_translate_passes_byte_by_byte(revision: str, method: str, body: bytes) -> None:
    assume(not any(word in body for word in (b"resource", b"audio", b"structuredContent")))
    assert bytes(legacy.write_done(mcp.REVISIONS[revision], Raw(body))) == body
    if method != "resources/read":
        assert bytes(uris.rewrite(method, body, str.upper)) == body


@given(bodies)
@example(b'{"jsonrpc":"2.0","id":1e999,"method":"x"}')
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = jsonrpc.decode(data)
    except Malformed as error:
        assert error.rpc in (jsonrpc.PARSE_ERROR, jsonrpc.INVALID_REQUEST)
        read(jsonrpc.error(error.id, error.rpc, error.message))
        return
    json.loads(data.decode())  # what we take for JSON is JSON
    if message.is_request:
        jsonrpc.id_key(message.id)
    for member in (message.params, message.result, message.error):
        assert not member or bytes(member) in data


@given(ids.filter(lambda id: isinstance(id, int | str | float)), written(objects))
def test_a_result_is_read_back_with_its_id_and_its_bytes(id: Any, body: bytes) -> None:
    written_id = json.dumps(id).encode()
    message = jsonrpc.decode(jsonrpc.result(written_id, body.strip()))
    assert bytes(message.id) == written_id
    assert bytes(message.result) == body.strip()


@pytest.mark.promise("spec.2026.stdio.lines")
@given(written(values))
def test_a_message_on_one_line_is_the_same_message(data: bytes) -> None:
    line = jsonrpc.one_line(data)
    assert b"\n" not in line and b"\r" not in line
    assert read(line) == read(data)
    assert list(_strings(line)) == list(_strings(data))


def _strings(data: bytes) -> Any:
    return msgspec.json.decode(data) if isinstance(msgspec.json.decode(data), dict | list) else []


@given(st.binary().flatmap(lambda data: st.tuples(st.just(data), cut(data))))
def test_lines_are_the_same_wherever_they_are_cut(told: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = told
    lines = Lines()
    found = [line for piece in pieces for line in lines.feed(piece)]
    *expected, rest = whole.split(b"\n")
    assert (found, lines.pending) == (expected, len(rest))


@given(st.lists(st.binary(), max_size=5), st.lists(st.binary(), max_size=5))
def test_after_a_line_was_dropped_the_next_is_whole(before: list[bytes], after: list[bytes]) -> None:
    lines = Lines()
    for chunk in (*before, b"x"):
        lines.feed(chunk)
    lines.drop()
    found = [line for chunk in (*after, b"\n", b"next\n") for line in lines.feed(chunk)]
    assert found == [*b"".join((*after, b"\n")).split(b"\n")[1:-1], b"next"]


@given(st.text())
@example("=?base64?YQ==?=")
@example(" ")
def test_a_header_value_reads_back(value: str) -> None:
    found = headers.encode_value(value)
    assert headers.decode_value(found) == value
    found.encode("ascii")
    assert found == found.strip() and "\r" not in found and "\n" not in found


@given(st.text() | st.from_regex(r"=\?base64\?[A-Za-z0-9+/=]*\?="))
def test_any_header_value_is_read_or_refused(value: str) -> None:
    found = headers.decode_value(value)
    assert found is None or isinstance(found, str)
