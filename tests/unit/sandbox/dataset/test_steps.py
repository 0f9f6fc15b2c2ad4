"""Steps on rows: what each makes, what it notes, and what it refuses."""

from typing import Any

import pytest

from toolgate.sandbox.dataset import steps
from toolgate.sandbox.dataset.runner import process
from toolgate.sandbox.dataset.tables import Refused, table_of

ROWS = [
    {"n": 2, "t": "b", "b": True, "mix": 1, "deep": {"x": 1}, "list": [1], "num": "10", "d": "2024-01-31"},
    {"n": None, "t": "A", "b": False, "mix": "1", "deep": {"x": 2}, "list": [2], "num": " 2.5 ", "d": "2024-02-01"},
    {"n": 1, "t": None, "b": None, "mix": True, "deep": None, "list": [1], "num": None, "d": None},
]


def made(*given: Any, rows: Any = ROWS) -> Any:
    return steps.result(steps.run(list(given), table_of(rows)))


def noted(*given: Any) -> tuple[str, ...]:
    return steps.run(list(given), table_of(ROWS)).notes


def test_nulls_come_last_and_are_noted():
    for descending, order in ((False, [1, 2, None]), (True, [2, 1, None])):
        assert made({"sort": [{"column": "n", "descending": descending}]}, {"values": "n"}) == order
    assert noted({"sort": ["n"]}) == ("1 row without n comes last",)


def test_text_is_sorted_without_regard_to_case():
    assert made({"sort": ["t"]}, {"values": "t"}) == ["A", "b", None]


def test_a_kind_is_part_of_a_value():
    assert len(made({"filter": {"column": "mix", "is": 1}})) == 1
    assert len(made({"filter": {"column": "mix", "is": "1"}})) == 1
    assert len(made({"filter": {"column": "mix", "is": True}})) == 1
    assert len(made({"group": {"by": ["mix"], "measures": [{"measure": "count"}]}})) == 3
    assert len(made({"distinct": ["mix"]})) == 3


def test_what_is_not_a_value_has_no_value_too_and_that_is_noted():
    assert [row["n"] for row in made({"filter": {"column": "n", "is_not": 2}})] == [None, 1]
    assert noted({"filter": {"column": "n", "is_not": 2}}) == ("1 row without n fits that, too",)
    assert [row["n"] for row in made({"filter": {"not": {"column": "n", "above": 1}}})] == [None, 1]


def test_figures_leave_nulls_out_and_say_so():
    assert made({"aggregate": [{"measure": "mean", "column": "n"}]}) == 1.5
    assert noted({"aggregate": [{"measure": "mean", "column": "n"}]}) == ("1 row without n left out of its figures",)
    assert made({"aggregate": [{"measure": "sum", "column": "n"}]}, rows=[{"n": None}]) is None
    assert made({"aggregate": [{"measure": "count"}]}, rows=[]) == 0


def test_a_top_that_cuts_between_equals_says_so():
    rows = [{"n": 1}, {"n": 1}, {"n": 0}]
    assert steps.run([{"top": {"count": 1, "sort": [{"column": "n", "descending": True}]}}], table_of(rows)).notes == (
        "1 row left out is equal to the last one kept",
    )


def test_numbers_in_text_are_numbers_when_that_is_said():
    assert made({"number": ["num"]}, {"values": "num"}) == [10, 2.5, None]
    with pytest.raises(Refused, match="holds text"):
        made({"aggregate": [{"measure": "sum", "column": "num"}]})


@pytest.mark.parametrize("text", ["1,5", "12 €", "", "0x10", "1_000", "NaN", "inf", "١", "9" * 400, "1e999"])
def test_text_that_is_no_number_is_refused(text: str):
    with pytest.raises(Refused):
        made({"number": ["a"]}, rows=[{"a": text}])


def test_integers_are_summed_exactly():
    assert made({"aggregate": [{"measure": "sum", "column": "n"}]}, rows=[{"n": 2**70}, {"n": 1}]) == 2**70 + 1


def test_fields_of_nested_objects_become_columns():
    assert made({"flatten": ["deep"]})[0]["deep.x"] == 1
    assert made({"select": ["deep.x"]}) == [{"deep.x": 1}, {"deep.x": 2}, {"deep.x": None}]


def test_rows_that_are_left_keep_their_columns():
    assert made({"filter": {"column": "n", "above": 99}}, {"sort": ["t"]}, {"select": ["n"]}) == []


def test_the_data_is_not_changed():
    rows = [{"a": "1", "b": {"c": 2}}]
    made({"number": ["a"]}, {"flatten": []}, {"rename": {"a": "z"}}, rows=rows)
    assert rows == [{"a": "1", "b": {"c": 2}}]


@pytest.mark.parametrize(
    "step",
    [
        None,
        {},
        {"filter": None},
        {"filter": {"column": "n"}},
        {"filter": {"column": "n", "above": 1, "below": 3}},
        {"filter": {"column": "n", "above": "1"}},
        {"filter": {"column": "n", "above": True}},
        {"filter": {"column": "n", "above": float("nan")}},
        {"filter": {"column": "num", "above": 1}},
        {"filter": {"column": "mix", "above": 0}},
        {"filter": {"column": "t", "above": "a"}},
        {"filter": {"column": "d", "above": "31.1.2024"}},
        {"filter": {"column": "n", "is": None}},
        {"filter": {"column": "n", "in": []}},
        {"filter": {"column": "n", "between": [3, 1]}},
        {"filter": {"column": "n", "between": [1]}},
        {"filter": {"column": "n", "contains": "1"}},
        {"filter": {"column": "__class__", "is": "dict"}},
        {"filter": {"column": "deep.__class__", "is": "dict"}},
        {"filter": {"column": ["n"], "is": 1}},
        {"filter": {"all": []}},
        {"filter": {"any": "x"}},
        {"filter": {"eval": "1"}},
        {"limit": -1},
        {"limit": True},
        {"limit": 1.5},
        {"limit": "3"},
        {"top": {"count": 3}},
        {"sort": []},
        {"sort": ["mix"]},
        {"sort": ["list"]},
        {"sort": ["deep"]},
        {"sort": [{"column": "n", "descending": "yes"}]},
        {"select": []},
        {"select": ["n", "n"]},
        {"select": ["x"]},
        {"drop": ["n", "t", "b", "mix", "deep", "list", "num", "d"]},
        {"drop": ["x"]},
        {"rename": {"n": "t"}},
        {"rename": {"x": "y"}},
        {"rename": {"n": ""}},
        {"values": ["n"]},
        {"flatten": ["n"]},
        {"number": ["t"]},
        {"date": {"column": "t", "part": "month", "as": "m"}},
        {"date": {"column": "d", "part": "week", "as": "m"}},
        {"date": {"column": "d", "part": "month", "as": "n"}},
        {"group": {"by": [], "measures": [{"measure": "count"}]}},
        {"group": {"by": ["list"], "measures": [{"measure": "count"}]}},
        {"group": {"by": ["t"], "measures": []}},
        {"group": {"by": ["count"], "measures": [{"measure": "count"}]}},
        {"aggregate": [{"measure": "sum", "column": "t"}]},
        {"aggregate": [{"measure": "sum", "column": "b"}]},
        {"aggregate": [{"measure": "sum", "column": "mix"}]},
        {"aggregate": [{"measure": "max", "column": "t"}]},
        {"aggregate": [{"measure": "count", "column": "n"}]},
        {"aggregate": [{"measure": "mode", "column": "n"}]},
        {"aggregate": [{"measure": "count"}, {"measure": "count"}]},
        {"aggregate": [{"measure": "distinct", "column": "list"}]},
        {"eval": "1"},
        {"__class__": 1},
    ],
    ids=str,
)
def test_a_step_that_is_not_defined_is_refused(step: Any):
    with pytest.raises(Refused):
        made(step)


def test_nothing_follows_what_ends():
    with pytest.raises(Refused, match="nothing can follow"):
        made({"aggregate": [{"measure": "count"}]}, {"limit": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_values_that_are_no_finite_numbers_are_refused(value: Any):
    rows = [{"a": value}, {"a": 0.5}]
    for step in (
        {"aggregate": [{"measure": "sum", "column": "a"}]},
        {"aggregate": [{"measure": "stddev", "column": "a"}]},
    ):
        reply = process({"data": rows, "operation": "", "parameters": {"steps": [step]}})
        assert not reply["success"]


def test_conditions_have_a_depth_and_a_number():
    deep: Any = {"column": "n", "is": 1}
    for _ in range(30):
        deep = {"not": deep}
    with pytest.raises(Refused):
        made({"filter": deep})
    with pytest.raises(Refused):
        made(*[{"limit": 1}] * 51)


def test_unknown_parameters_are_refused():
    for parameters in (
        {"seed": 1},
        {"sql": "select 1", "steps": []},
        {"code": "1"},
        [],
        "x",
        {"path": 1},
        {"header": "yes"},
    ):
        assert not process({"data": ROWS, "operation": "count", "parameters": parameters})["success"]
