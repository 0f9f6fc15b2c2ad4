"""Lone surrogates: whatever stands around them, what is read and written is what stood there."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolgate.core import jsonrpc, surrogates

PIECES = [
    *(r"\ud83d", r"\uD83D", r"\ude00", r"\uDe00", r"\ud83d\ude00", r"\udb80\udc00", r"\udb80\udc01", r"\ufffd"),
    *(
        r"\\",
        r"\"",
        r"\n",
        r"\u0000",
        "u",
        "ud83d",
        "\\\\ud83d",
        "d",
        "é",
        "\U0001f600",
        "\U000f0000",
        "\U000f0001",
        "x",
    ),
]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map(lambda pieces: f'"{"".join(pieces)}"')
values = st.recursive(
    texts | st.sampled_from(["1", "null", "1e400"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
        | st.lists(st.tuples(texts, inner), max_size=3).map(lambda each: f"{{{','.join(f'{k}:{v}' for k, v in each)}}}")
    ),
    max_leaves=8,
)


@given(values)
def test_a_raw_member_is_the_bytes_that_it_came_in(text: str) -> None:
    data = f'{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{text}}}}}'.encode()
    message = jsonrpc.decode(data)
    assert bytes(message.params) == b'{"a":%b}' % text.encode()
    assert bytes(jsonrpc.members(message.params)["a"]) == text.encode()


@given(texts)
def test_a_text_is_read_as_python_reads_it(text: str) -> None:
    assert jsonrpc.value(text.encode()) == json.loads(text)
    assert jsonrpc.read(b"[%b]" % text.encode(), list[str]) == [json.loads(text)]


@given(values.filter(lambda text: "1e400" not in text))
def test_what_is_written_is_read_back(text: str) -> None:
    value = json.loads(text)
    for written in (jsonrpc.encode(value), jsonrpc.canonical(value)):
        assert json.loads(written) == value
        assert written.isascii() or surrogates.is_in(written.decode()) is False
    assert surrogates.unpack(surrogates.pack([value]), list[Any]) == [value]


@given(values)
def test_with_stand_ins_any_reader_can_read_it(text: str) -> None:
    shown = surrogates.replaced(text.encode())
    msgspec.json.decode(shown, type=Raw)
    if "1e400" not in text:
        assert msgspec.json.decode(shown) == _shown(json.loads(text))


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {surrogates.shown(name): _shown(each) for name, each in value.items()}
    return (
        surrogates.shown(value)
        if isinstance(value, str)
        else list(map(_shown, value))
        if isinstance(value, list)
        else value
    )


class _Item(msgspec.Struct):
    name: str = ""
    schema: Raw = Raw()


def test_a_struct_has_its_texts_and_its_raw_members() -> None:
    found = jsonrpc.read(rb'[{"name":"a\ud83d","schema":{"d":"\udc00"}}]', list[_Item])
    assert (found[0].name, bytes(found[0].schema)) == ("a\ud83d", rb'{"d":"\udc00"}')


def test_a_struct_is_written_as_ever() -> None:
    assert jsonrpc.encode(_Item("a\ud83d", Raw(b"1"))) == rb'{"name":"a\ud83d","schema":1}'


@pytest.mark.parametrize(
    "data", [rb'{"a":"\ud83d"', rb'{"a":"\ud83d",}', rb'"\ud83d\q"', b'"\xff\\ud83d"', rb'"\ud83"']
)
def test_what_is_no_json_stays_none(data: bytes) -> None:
    with pytest.raises(jsonrpc.UNREADABLE):
        jsonrpc.read(data, Any)


def test_more_of_them_than_anybody_means_are_refused_under_the_messages_id() -> None:
    data = rb'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"%b"}}' % (rb"\ud83d" * (surrogates.MOST + 1))
    with pytest.raises(jsonrpc.Malformed) as refused:
        jsonrpc.decode(data)
    assert (refused.value.rpc, refused.value.id) == (jsonrpc.PARSE_ERROR, b"7")


def test_a_text_that_is_json_is_escaped_where_it_must_be() -> None:
    assert surrogates.escaped('{"a":"\ud83d é"}') == r'{"a":"\ud83d é"}'.encode()
