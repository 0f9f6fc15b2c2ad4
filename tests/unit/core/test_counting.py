"""Counting the values of JSON without reading it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core import counting, jsonrpc
from toolgate.core.counting import has_more_values

TEXTS = st.text('ab,[]{}"\\: \n\té', max_size=8)
SHORT = st.integers(-(10**30), 10**30)  # a longer number counts for more than one
VALUES = st.recursive(
    st.none() | st.booleans() | SHORT | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def values(found: Any) -> int:
    inner = found if isinstance(found, list) else found.values() if isinstance(found, dict) else ()
    return 1 + sum(map(values, inner))


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 65536])
@given(VALUES, st.sampled_from([None, 1]))
def test_what_is_counted_is_what_a_reader_finds(piece: int, value: Any, indent: int | None) -> None:
    count = values(value)
    written = json.dumps(value, indent=indent, ensure_ascii=False).encode() + b" " * 2 * count
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(counting, "PIECE", piece)
        assert not has_more_values(written, count)
        assert count == 1 or has_more_values(written, count - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b"{}," * 200_000 + b"{}]",
        b"[" * 200_001,
        b"{" + b'"a":1,' * 200_000 + b'"b":1}',
        b'"' * 1_000_000,  # no JSON
    ],
)
def test_what_has_too_many_is_looked_at_no_further(data: bytes) -> None:
    assert has_more_values(data + b"x" * 100, 100_000)


@pytest.mark.parametrize("text", [b"a, b, c" * 200_000, rb"\"," * 400_000, b"\\\\" * 500_000, rb"\n[" * 400_000])
def test_a_text_is_one_value_whatever_stands_in_it(text: bytes) -> None:
    assert not has_more_values(b'{"text":"%b"}' % text, 100_000)


def test_what_is_short_is_not_looked_at() -> None:
    class Never(bytes):
        def __getitem__(self, _: Any) -> Any:
            raise AssertionError("it was looked at")

    assert not has_more_values(Never(b"[" * 199_999), 100_000)


@pytest.mark.parametrize(("number", "is_more"), [(b"-1.2345678901234567e-100", False), (b"1" * 40, True)])
def test_numbers_without_end_count_as_several(number: bytes, is_more: bool) -> None:
    assert has_more_values(b"[%b]" % b",".join([number] * 90_000), 100_000) is is_more
    assert not has_more_values(b"[%b]" % b"\n".join([b" " * 200 + b"1,"] * 90_000), 100_000)


@pytest.mark.parametrize("piece", [1, 7, 65536])
@given(st.text('a"\\\n\t\x01\x1fé🙂\x7f', max_size=20))
def test_a_text_takes_so_many_bytes_in_a_text_and_in_one_within_one(piece: int, text: str) -> None:
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(counting, "PIECE", piece)
        written = jsonrpc.encode(text)[1:-1]
        assert counting.size_in_text(text.encode()) == len(written)
        assert counting.size_in_inner_text(text.encode()) == len(jsonrpc.encode(written.decode())) - 2
