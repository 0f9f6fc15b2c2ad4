"""The shape of results: small, without their values, and without keys that are data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.search import shapes, signatures

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=40), inner, max_size=6),
    max_leaves=40,
)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([{"id": 1, "name": "x"}], "{\n  id: number;\n  name: string;\n}"),
        ([{"id": 1, "name": "x"}, {"id": 2}], "{\n  id: number;\n  name?: string;\n}"),
        ([[{"id": 1}, {"id": None}]], "Array<{\n    id: null | number;\n  }>"),
        ([[]], "unknown[]"),
        ([{}], "Record<string, unknown>"),
        (["x", 1], "number | string"),
        ([{"ann@example.org": 1, "bea@example.org": 2}], "Record<string, number>"),
        ([{"user_100234": {"a": 1}}], None),
        ([{"a": 1}, {"not a name": 2}], "Record<string, number>"),
    ],
)
def test_what_is_told_of_results(values: list[Any], told: str | None) -> None:
    schema = json.dumps(shapes.merged(map(shapes.of, values))).encode()
    written = signatures.typescript(signatures.Tool("t", observed=schema))
    assert told is None or f"Promise<{told}>" in written
    assert "user_100234" not in written and "ann" not in written
    assert "as observed" in written
    assert "as observed" in signatures.python(signatures.Tool("t", observed=schema))


def test_what_a_tool_declares_is_not_replaced_by_what_was_seen() -> None:
    tool = signatures.Tool("t", output_schema=b'{"type":"string"}', observed=b'{"type":"number"}')
    assert signatures.typescript(tool) == "declare function t(args?: {}): Promise<string>;"


@pytest.mark.parametrize(
    "data",
    [{f"k{n:02}x": n for n in range(41)}, {"4711": 1}, {"a b": 1}, {"é": 1}, {"x" * 33: 1}, {"ab123": 1}, {"*/": 1}],
)
def test_keys_that_may_be_data_are_not_told(data: dict[str, Any]) -> None:
    assert shapes.of(data) == {"type": "object", "additionalProperties": NUMBER}


@given(st.lists(ANY_JSON, max_size=5))
def test_no_value_stands_in_a_shape_and_it_is_the_same_in_any_order(values: list[Any]) -> None:
    told = shapes.merged(map(shapes.of, values))
    texts = set(_strings(told)) - {"string", "number", "boolean", "null", "object", "array"}
    assert texts <= set(_keys(values))
    assert shapes.merged(map(shapes.of, values)) == told
    assert signatures.typescript(signatures.Tool("t", observed=json.dumps(told).encode()))


def _strings(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _strings(each)
            if name == "properties":
                yield from each
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _keys(each)
