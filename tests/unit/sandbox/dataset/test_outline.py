"""What a model is shown of data: its shape, and samples, and never more than is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.sandbox.dataset.outline import outline

TEXT = st.text("aZ9é中²٣_- \n", max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=30,
)


def shape(data: Any) -> Any:
    return outline(data, "none")["data"]


def test_rows_are_told_by_their_columns_and_types() -> None:
    rows = [
        {"id": number, "at": f"2026-01-{number:02}", "by": None if number % 2 else "ann"} for number in range(1, 31)
    ]
    assert shape(rows) == {"list of": {"id": "number", "at": "text (ISO dates)", "by": ["null", "text"]}, "items": 30}


def test_lists_and_objects_within_are_told_too() -> None:
    data = {"orders": [{"lines": [{"price": 1}, {"price": 2.5}]}, {"lines": []}], "total": 2}
    lines = {"list of": {"price": "number"}, "items": "0 to 2"}
    assert shape(data) == {"orders": {"list of": {"lines": lines}, "items": 2}, "total": "number"}


def test_keys_that_are_data_are_counted_and_not_shown() -> None:
    data = {f"ann{number}@example.org": {"age": number} for number in range(60)}
    assert shape(data) == {"object with keys": 60, "values": {"age": "number"}}
    assert "ann" not in json.dumps(outline(data, "masked"))


def test_samples_are_the_first_the_middle_and_the_last() -> None:
    rows = [{"n": number} for number in range(9)]
    assert outline(rows, "plain")["samples"] == [{"n": 0}, {"n": 4}, {"n": 8}]
    assert outline(rows, "masked")["samples"] == [{"n": "9"}] * 3
    assert "samples" not in outline(rows, "none")


def test_long_texts_are_cut_in_plain_samples() -> None:
    assert outline(["x" * 5_000], "plain")["samples"] == ["x" * 60]


@pytest.mark.parametrize("size", [10_000, 100_000])
def test_an_outline_of_much_is_small(size: int) -> None:
    wide = [{f"column {number}": number for number in range(size // 100)} for _ in range(100)]
    deep: Any = 1
    for _ in range(500):
        deep = {"inner": [deep]}
    for data in (wide, deep, [[number] for number in range(size)], {str(number): number for number in range(size)}):
        assert len(json.dumps(outline(data, "masked"))) < 64 * 1024


@given(VALUES)
def test_a_masked_outline_has_no_letter_and_no_digit_of_a_value(data: Any) -> None:
    found = outline(data, "masked").get("samples", [])

    def values(of: Any) -> list[str]:
        if isinstance(of, dict):
            return [each for value in of.values() for each in values(value)]
        if isinstance(of, list):
            return [each for value in of for each in values(value)]
        return [of] if isinstance(of, str) else []

    assert all(not letter.isalnum() or letter in "xX9" for each in values(found) for letter in each)


@pytest.mark.parametrize(
    "data",
    [
        [{f"patient {at}": at} for at in range(60)],
        {"rows": [{f"patient {at}": {"age": at}} for at in range(60)]},
        [{"by": {f"patient {at}": 1, f"patient {at + 1}": 2}} for at in range(60)],
        [{"a": {"b": {"c": {f"patient {at}": 1 for at in range(3)}}}}] * 2
        + [{"x": {"y": [{"patient 7": 1}] * 3}}] * 500,
        {"a": {f"patient {at}": at for at in range(60)}},
    ],
)
def test_keys_that_are_data_are_masked_however_few_an_object_has(data: Any) -> None:
    shown = json.dumps(outline(data, "masked"))
    shape = json.dumps(outline(data, "none"))
    for at in range(61):
        assert f'"patient {at}"' not in shown or f'"patient {at}"' in shape
    assert any(f'"patient {at}"' in json.dumps(outline(data, "plain")) for at in range(61))


def test_keys_of_the_shape_are_shown_in_a_sample() -> None:
    (first, *_) = outline([{"name": "Ann", "age": 7}] * 5, "masked")["samples"]
    assert first == {"name": "Xxx", "age": "9"}
