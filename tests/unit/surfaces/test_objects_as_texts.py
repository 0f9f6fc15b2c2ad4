"""Arguments of another tool that a model wrote as a text."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.surfaces.controls import base


def nested(levels: int) -> Raw:
    return Raw(json.dumps('{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}").encode())


def test_they_are_nested_no_deeper_than_what_a_client_may_send() -> None:
    assert bytes(base._object(nested(200)))[:6] == b'{"a":['
    for levels in (jsonrpc.DEEPEST + 1, 900):
        with pytest.raises(ValueError):
            base._object(nested(levels))
