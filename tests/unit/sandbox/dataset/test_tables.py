"""Which data is a table, and as what; what is no table is refused."""

from typing import Any

import pytest

from toolgate.sandbox.dataset.runner import process
from toolgate.sandbox.dataset.tables import Refused, nearest, table_of


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        ([], []),
        ({}, []),
        ([{"a": 1}, {"b": 2}], [{"a": 1}, {"b": 2}]),
        ([1, None, "x"], [{"value": 1}, {"value": None}, {"value": "x"}]),
        ([["n", "t"], [1, "x"]], [{"n": 1, "t": "x"}]),
        ([[1, "x"], [2, "y"]], [{"column_1": 1, "column_2": "x"}, {"column_1": 2, "column_2": "y"}]),
        ({"a": [1, 2], "b": ["x", "y"]}, [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
        ({"total": 1, "items": [{"a": 1}]}, [{"a": 1}]),
        ({"x": {"a": 1}, "y": {"a": 2}}, [{"key": "x", "a": 1}, {"key": "y", "a": 2}]),
        ({"x": 1, "y": 2.5}, [{"key": "x", "value": 1}, {"key": "y", "value": 2.5}]),
    ],
)
def test_data_is_a_table(data: Any, rows: list[dict[str, Any]]):
    if data == {"x": 1, "y": 2.5}:
        with pytest.raises(Refused):
            table_of({**data, "z": "text"})
    assert table_of(data).rows == rows


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "array or an object"),
        ("text", "array or an object"),
        (5, "array or an object"),
        ([{"a": 1}, 2], "mixes"),
        ([[1], [2, 3]], "Row 2"),
        ([["a", "b"], ["c", "d"]], "names of columns or values"),
        ({"a": [{"x": 1}], "b": [{"x": 1}, {"x": 2}]}, "several arrays"),
        ({"a": 1, "b": "x"}, "one object"),
        ({"x": {"key": 1}}, "field key"),
    ],
)
def test_what_is_no_table_is_refused(data: Any, reason: str):
    with pytest.raises(Refused, match=reason):
        table_of(data)


def test_a_path_leads_to_the_rows():
    reply = process({"data": {"a": {"b": [1, 2]}, "c": [3]}, "operation": "count", "parameters": {"path": "a.b"}})
    assert reply["result"] == 2
    with pytest.raises(Refused, match='no "x"'):
        table_of({"a": []}, "a.x")


def test_whether_the_first_array_is_names_can_be_said():
    data = [["a", "b"], ["c", "d"]]
    assert table_of(data, header=True).rows == [{"a": "c", "b": "d"}]
    assert len(table_of(data, header=False).rows) == 2


def test_fields_of_nested_objects_are_columns():
    table = table_of([{"a": {"b": {"c": 1}}}, {"a": None}, {"a": {"b": 5}}])
    assert table.held("a.b.c") == [1, None, None]
    assert "a.b" in table.paths


def test_a_column_with_a_point_is_itself():
    assert table_of([{"a.b": 1, "a": {"b": 2}}]).held("a.b") == [1]


@pytest.mark.parametrize("name", ["__class__", "__dict__", "a.__class__", "keys", "a.keys", "..", "."])
def test_names_of_python_are_no_columns(name: str):
    with pytest.raises(Refused):
        table_of([{"a": {"b": 1}}]).getter(name)
    assert table_of([{"__class__": 3}]).held("__class__") == [3]


def test_a_hundred_thousand_columns_are_columns():
    rows = [{f"column{number}": number for number in range(100_000)}]
    reply = process({"data": rows, "operation": "keep only column77777 and column5"})
    assert reply["result"] == [{"column77777": 77777, "column5": 5}]
    assert not process({"data": rows, "operation": "sum of colum5"})["success"]


def test_deep_data_is_done_or_refused():
    deep: Any = 1
    for _ in range(900):
        deep = {"a": [deep]}
    for operation in ("count", "flatten", "remove duplicates", "sort by a", "count by a"):
        assert process({"data": [{"a": deep}, {"a": deep}], "operation": operation})["success"] in (True, False)
    assert "paths" not in process({"data": [{"a": deep}], "operation": "", "parameters": {"sql": "select 1"}})


def test_columns_of_dates_are_known():
    def dates(*values: Any) -> bool:
        return table_of([{"d": value} for value in values]).is_dates("d")

    assert dates("2024-01-01", "2024-12-31", None)
    assert dates("2024-01-01T10:00:00Z", "2024-01-01T11:00:00Z")
    assert not dates("2024-01-01", "2024-01-01T10:00:00Z")
    assert not dates("2024-01-01T10:00:00Z", "2024-01-01T10:00:00+02:00")
    assert not dates("2024-01-01T10:00:00Z", "2024-01-01T10:00:00.5Z")
    assert not dates("2024-13-01", "2024-01-01")
    assert not dates(None)


def test_names_that_are_nearly_right_are_suggested():
    assert nearest("staus", ["status", "state", "price"])[0] == "status"
    assert nearest("created", ["created_at", "id"]) == ["created_at"]
    assert nearest("xyz", ["status"]) == []
