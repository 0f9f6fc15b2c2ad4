"""Whatever the text, the answer is a refusal or what the interpretation says, by the other opinion of SQL."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from unit.sandbox.dataset.in_sql import evaluated
from unit.sandbox.dataset.operations import CASES, ORDERS

from toolgate.sandbox.dataset import grammar, steps
from toolgate.sandbox.dataset.runner import process
from toolgate.sandbox.dataset.sentences import FORMS
from toolgate.sandbox.dataset.tables import Refused, Table, table_of
from toolgate.sandbox.dataset.words import PHRASES

PLAIN = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

PHRASE_WORDS = sorted({" ".join(phrase) for phrases in PHRASES.values() for phrase in phrases})
FORM_WORDS = sorted(
    {
        word
        for _, pattern, _ in FORMS
        for part in pattern.split()
        for word in part.rstrip("?").split("|")
        if word.isalpha()
    }
)
WORDS = st.one_of(
    st.sampled_from(PHRASE_WORDS),
    st.sampled_from([word for word in FORM_WORDS if word.islower()]),
    st.sampled_from([*ORDERS[0], "orders", "customers", "open", "shipped", "Berlin", "New York", "DE", "Ann", "month"]),
    st.sampled_from(
        [
            "3",
            "20",
            "100",
            "2024-02-01",
            "2024",
            '"open"',
            "(",
            ")",
            ",",
            ">",
            "<",
            "=",
            ";",
            ".",
            "and",
            "or",
            "by",
            "rows",
        ]
    ),
)
TEXTS = st.one_of(
    st.lists(WORDS, max_size=12).map(" ".join),
    st.lists(st.sampled_from([word for case in CASES for word in case.text.split()]), max_size=10).map(" ".join),
    st.tuples(st.sampled_from(CASES), st.sampled_from(CASES), st.sampled_from([" ", ", ", " and ", ", then "])).map(
        lambda two: f"{two[0].text}{two[2]}{two[1].text}"
    ),
    st.text(max_size=80),
)


def as_rows(table: Table) -> list[list[Any]]:
    return [[_cell(row.get(column)) for column in table.columns] for row in table.rows]


def _cell(value: Any) -> Any:
    return ("#true" if value else "#false") if isinstance(value, bool) else value


def same(ours: list[list[Any]], theirs: list[list[Any]]) -> bool:
    def equal(one: Any, other: Any) -> bool:
        if isinstance(one, int | float) and isinstance(other, int | float):
            return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
        return type(one) is type(other) and one == other

    return len(ours) == len(theirs) and all(
        len(row) == len(other) and all(map(equal, row, other)) for row, other in zip(ours, theirs, strict=True)
    )


BEYOND_SQL = {"median", "stddev"}


@PLAIN
@given(TEXTS)
def test_any_text_is_refused_or_is_what_its_steps_say_in_sql(text: str):
    try:
        found = grammar.understood(text, table_of(ORDERS))
    except Refused:
        return
    measures = {
        each["measure"]
        for step in found.steps
        for each in (step.get("aggregate") or step.get("group", {}).get("measures", []))
    }
    if measures & BEYOND_SQL or any(step.keys() & {"rename", "flatten", "number"} for step in found.steps):
        return
    columns, rows = evaluated(found.steps, ORDERS)
    assert list(found.table.columns) == columns
    assert same(as_rows(found.table), rows), (text, found.steps)


@PLAIN
@example("COUNT,THEN COUNT")
@given(TEXTS)
def test_the_steps_of_a_reply_make_the_same_reply(text: str):
    reply = process({"data": ORDERS, "operation": text})
    if reply["success"]:
        again = process({"data": ORDERS, "operation": "", "parameters": {"steps": reply["steps"]}})
        assert again["result"] == reply["result"]
        assert again["interpretation"] == reply["interpretation"]


# Steps of any kind on rows of any kind.

ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.one_of(st.none(), st.integers(-5, 5)),
            "f": st.one_of(st.none(), st.floats(-3, 3, width=16)),
            "t": st.one_of(st.none(), st.sampled_from(["", " ", "a", "A", "b", "ab", "é", "it's"])),
            "b": st.one_of(st.none(), st.booleans()),
            "d": st.one_of(st.none(), st.sampled_from(["2024-01-01", "2024-01-31", "2023-12-31"])),
        },
    ),
    max_size=12,
)
COLUMN = st.sampled_from(["n", "f", "t", "b", "d"])
LEAF = st.one_of(
    st.builds(
        lambda test, value: {"column": "n", test: value},
        st.sampled_from(["above", "at_least", "below", "at_most", "is", "is_not"]),
        st.integers(-5, 5),
    ),
    st.builds(lambda a, b: {"column": "n", "between": sorted([a, b])}, st.integers(-5, 5), st.integers(-5, 5)),
    st.builds(
        lambda test, value: {"column": "d", test: value},
        st.sampled_from(["above", "below", "at_least", "is"]),
        st.sampled_from(["2024-01-01", "2024-01", "2024"]),
    ),
    st.builds(
        lambda test, value: {"column": "t", test: value},
        st.sampled_from(["contains", "starts_with", "ends_with", "is", "is_not"]),
        st.sampled_from(["a", "A", "b", "ab"]),
    ),
    st.builds(
        lambda test, values: {"column": "t", test: values},
        st.sampled_from(["in", "not_in"]),
        st.lists(st.sampled_from(["a", "b", ""]), min_size=1),
    ),
    st.builds(lambda column, value: {"column": column, "null": value}, COLUMN, st.booleans()),
    st.builds(lambda value: {"column": "t", "missing": value}, st.booleans()),
    st.builds(lambda value: {"column": "b", "is": value}, st.booleans()),
)
CONDITION = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"all": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"any": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)
KEYS = st.lists(
    st.builds(lambda column, down: {"column": column, "descending": down}, COLUMN, st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda key: key["column"],
)
MEASURES = st.lists(
    st.one_of(
        st.just({"measure": "count", "as": "count"}),
        st.builds(
            lambda measure, column: {"measure": measure, "column": column, "as": f"{measure}_{column}"},
            st.sampled_from(["sum", "mean", "min", "max", "distinct"]),
            st.sampled_from(["n", "f"]),
        ),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each["as"],
)
COLUMNS = st.lists(COLUMN, min_size=1, max_size=3, unique=True)
STEP = st.one_of(
    st.builds(lambda c: {"filter": c}, CONDITION),
    st.builds(lambda keys: {"sort": keys}, KEYS),
    st.builds(lambda count, keys: {"top": {"count": count, "sort": keys}}, st.integers(0, 6), KEYS),
    st.builds(lambda step, count: {step: count}, st.sampled_from(["limit", "skip", "last"]), st.integers(0, 6)),
    st.builds(lambda names: {"distinct": names}, st.one_of(COLUMNS, st.just([]))),
    st.builds(lambda names: {"select": names}, COLUMNS),
    st.builds(lambda names: {"drop": names}, COLUMNS),
    st.just({"date": {"column": "d", "part": "month", "as": "month"}}),
)
LAST = st.one_of(
    st.builds(lambda by, measures: {"group": {"by": by, "measures": measures}}, COLUMNS, MEASURES),
    st.builds(lambda measures: {"aggregate": measures}, MEASURES),
    st.builds(lambda column: {"values": column}, COLUMN),
)
STEPS = st.builds(lambda first, last: [*first, *last], st.lists(STEP, max_size=4), st.lists(LAST, max_size=1)).filter(
    bool
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, ROWS)
def test_steps_are_refused_or_make_what_they_say_in_sql(given_steps: list[dict[str, Any]], rows: list[dict[str, Any]]):
    try:
        made = steps.run(given_steps, Table(rows))
    except Refused:
        return
    assume(Table(rows).columns)
    columns, theirs = evaluated(given_steps, rows)
    assert list(made.columns) == columns
    assert same(as_rows(made), theirs)
    assert steps.interpretation(given_steps)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [*steps.OPERATIONS, "column", "by", "measures", "count", "all", "any", "not", "is", "in", "a", "as", "part"]
)
HOSTILE = st.recursive(
    JSON, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)), max_leaves=12
)


@PLAIN
@given(JSON, st.text(max_size=30), st.one_of(st.none(), HOSTILE, st.builds(lambda value: {"steps": value}, HOSTILE)))
def test_nothing_but_a_reply_comes_of_any_request(data: Any, operation: str, parameters: Any):
    reply = process({"data": data, "operation": operation, "parameters": parameters})
    assert reply["success"] in (True, False)
