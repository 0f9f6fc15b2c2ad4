"""Numbers near the ends of what a double can hold, such as 1e300: the reader of JSON that we use takes a thousand times
as long for one of them, so that 100 KB of them stopped the gateway for half a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.catalog import prints
from toolgate.core import jsonrpc, plain
from toolgate.core.redaction import Redactor
from toolgate.policy import schemas

NUMBERS = b'{"type":"object","properties":{"all":{"type":"array","items":{"type":"number"}}}}'


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
@example(1.7976931348623157e308)
@example(2.2250738585072011e-308)
@example(1e23)
def test_each_number_is_read_as_it_was_meant(number: float) -> None:
    for written in (repr(number), f"{number:.17e}", f"{number:.20g}"):
        data = written.encode()
        read: list[Any] = [jsonrpc.value(data), plain.read(data), schemas.decode(data)]
        assert read == [json.loads(written)] * 3


@pytest.mark.parametrize("written", ["1e309", "-1e400", "1e999999", "1" * 400 + ".0"])
def test_a_number_that_no_double_can_hold_is_refused_and_in_arguments_left_to_the_server(written: str) -> None:
    for read in (jsonrpc.value, plain.read):
        with pytest.raises(msgspec.DecodeError):
            read(written.encode())
    assert schemas.compiled(NUMBERS).judge(b'{"all":[%b]}' % written.encode()) is schemas.FINE
    assert schemas.compiled(NUMBERS).judge(b'{"all":["1e309"]}').wrong


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The numbers that Python was given to read."""
    numbers: list[str] = []

    def noted(written: str) -> float:
        numbers.append(written)
        return float(written)

    monkeypatch.setattr(plain, "number", noted)
    plain._reader.cache_clear()
    yield numbers
    plain._reader.cache_clear()


def test_msgspec_reads_no_number_with_an_exponent_itself(seen: list[str]) -> None:
    assert jsonrpc.Decoder(list[Any]).decode(b"[1e300, 5e-324, 1]") == [1e300, 5e-324, 1]
    assert plain.read(b"[9e307]") == [9e307]
    assert seen == ["1e300", "5e-324", "9e307"]
    assert schemas.decode.__self__.float_hook is float  # type: ignore[attr-defined]


def test_what_is_read_again_for_a_secret_in_an_escape_is_read_so_too(seen: list[str]) -> None:
    shown = Redactor(["41ab9Zk3kq8vXw2"]).body(rb'{"a":"\u0041ab9Zk3kq8vXw2","b":[1e300]}')
    assert json.loads(shown) == {"a": "Aab9Zk3kq8vXw2", "b": [1e300]} and seen == ["1e300"]


def test_a_tool_that_is_pinned_is_read_so_too(seen: list[str]) -> None:
    tool = b'{"name":"a","inputSchema":{"type":"object","default":[1e300]}}'
    assert prints.told_of(tool).whole == '{"inputSchema": {"default": [1e+300], "type": "object"}, "name": "a"}'
    assert seen == ["1e300"]
