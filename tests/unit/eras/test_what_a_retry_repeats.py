"""What a retry must repeat is compared in few bytes, whatever the size of its arguments."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.model import Call, Client
from toolgate.eras import calls


def digest(arguments: bytes) -> bytes:
    return calls.digest(Call("tools/call", "t", Client(), arguments=Raw(arguments)))


def test_small_arguments_may_be_spelled_in_another_way() -> None:
    assert digest(b'{"a": 1, "b": "\\u0041"}') == digest(b'{"b":"A","a":1}') != digest(b'{"b":"A","a":2}')


def test_large_ones_are_repeated_letter_by_letter_and_are_not_read_for_that(monkeypatch: Any) -> None:
    text = b"x" * calls.SPELLED
    one, other = b'{"a":1,"b":"%b"}' % text, b'{"b":"%b","a":1}' % text

    def read(_data: Any) -> Any:
        pytest.fail("they were read")

    with monkeypatch.context() as patched:
        patched.setattr(jsonrpc, "value", read)
        assert digest(one) == digest(bytes(one)) != digest(other)
