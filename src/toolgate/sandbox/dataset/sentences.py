"""The closed grammar: how operations are said, as a table of forms (see `parser` for the notation).

A sentence is stages with what follows them; each stage is a tuple of steps, nearly as `steps` has them: what sorts
may still name a measure, or `it`, the one measure of the sentence. `compose` puts them in their order.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (the functions of a table of forms get whatever their parts mean)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolgate.sandbox.dataset import rows as which_rows
from toolgate.sandbox.dataset.rows import (
    Condition,
    Measured,
    Rows,
    Stage,
    constant,
    missing,
    not_so,
    some,
    without,
)
from toolgate.sandbox.dataset.scope import Form, Scope
from toolgate.sandbox.dataset.tables import quoted

# Columns.


def _bare_sort(key: Mapping[str, Any], descending: bool | None) -> Mapping[str, Any]:
    return key if descending is None else {**key, "descending": descending}


def _keys(
    scope: Scope, first: Mapping[str, Any], others: tuple[Mapping[str, Any], ...]
) -> tuple[Mapping[str, Any], ...] | None:
    """ "by a and b descending" may mean both or the last."""
    if ("descending" in first) != ("descending" in others[0]):
        scope.problem(
            99,
            "The direction may be meant for one column or for all",
            "sort by status ascending, then by price descending",
        )
        return None
    return (first, *others)


def _by_date(scope: Scope, column: str | None, descending: bool) -> Mapping[str, Any] | None:
    column = column or scope.date_column()
    if column is None or not scope.table.is_dates(column):
        return None
    return {"column": column, "descending": descending}


def _values_of(scope: Scope, columns: Sequence[str], rows: Rows | None) -> Stage | None:
    """Columns of rows: the values of one, or objects of several."""
    shown: Mapping[str, Any] = {"values": columns[0]} if len(columns) == 1 else {"select": list(columns)}
    return (*(rows.steps() if rows else ()), shown)


def _unique(scope: Scope, columns: Sequence[str], rows: Rows | None) -> Stage:
    """The different values; null is none of them."""
    start = rows.steps() if rows else ()
    if len(columns) > 1:
        return (*start, {"select": list(columns)}, {"distinct": list(columns)})
    column = columns[0]
    no_null: Stage = ({"filter": {"column": column, "null": False}},) if scope.table.nulls(column) else ()
    return (*start, *no_null, {"distinct": [column]}, {"values": column})


_COLUMNS: list[Form] = [
    ("column_list", "<named>", lambda s, column: (column,)),
    (
        "column_list",
        "both? <named> AND <column_list>",
        lambda s, first, others: (first, *others) if first not in others else None,
    ),
    ("direction", "DESC", constant(True)),
    ("direction", "ASC", constant(False)),
    ("key", "<named> ,? <direction>?", lambda s, column, down: _bare_sort({"column": column}, down)),
    ("key", "<measured> ,? <direction>?", lambda s, measured, down: _bare_sort({"measured": measured}, down)),
    ("key", "<named> ,? NEWFIRST", lambda s, column: _by_date(s, column, True)),
    ("key", "<named> ,? OLDFIRST", lambda s, column: _by_date(s, column, False)),
    ("keys", "<key> AND <keys>", lambda s, first, others: _keys(s, first, others)),
    ("keys", "<key> AND by <keys>", lambda s, first, others: (first, *others)),
    ("keys", "<key> AND? then by <keys>", lambda s, first, others: (first, *others)),
    ("keys", "<key> ,? then <keys>", lambda s, first, others: (first, *others)),
    ("keys", "<key>", lambda s, key: (key,)),
    ("renames", "COLUMN? <named> ASC_OF <newname>", lambda s, old, new: ((old, new),)),
    ("renames", "COLUMN? <named> ASC_OF <newname> AND <renames>", lambda s, old, new, others: ((old, new), *others)),
]

# Figures.


def _measure(scope: Scope, measure: str, column: str) -> Measured | None:
    """Earliest and latest are for dates, most others for numbers."""
    kinds, dates = scope.table.kinds(column), scope.table.is_dates(column)
    fits = not kinds - {"number"} or (dates and measure in ("min", "max"))
    if not fits:
        hint = (f"convert {column} to numbers, then sort by {column}",) if kinds == {"text"} and not dates else ()
        scope.problem(
            99, f"Column {quoted(column)} holds {' and '.join(sorted(kinds))}, of which there is no {measure}", *hint
        )
    return Measured(measure, column) if fits else None


def _when(scope: Scope, measure: str, column: str) -> Measured | None:
    return Measured(measure, column) if scope.table.is_dates(column) else None


def _several(scope: Scope, measures: tuple[str, ...], column: str) -> tuple[Measured, ...] | None:
    made = [_measure(scope, each, column) for each in measures]
    return tuple(each for each in made if each) if all(made) else None


def _figures(
    scope: Scope, measures: tuple[Measured, ...], rows: Rows | None, by: tuple[Any, ...] | None
) -> Stage | None:
    if len(set(measures)) != len(measures):
        return None
    start = rows.steps() if rows else ()
    return (*start, {"group": (by, measures)} if by else {"aggregate": measures})


def _period(scope: Scope, part: str, column: str | None) -> tuple[str, str] | None:
    """A period as something to group by; where a column has that name, it is what is meant."""
    if column is None and (scope.table.columns.keys() & {part, f"{part}s"}):
        return None
    column = column or scope.date_column()
    return (part, column) if column is not None and scope.table.is_dates(column) else None


def _each(scope: Scope, rows: Rows | None, by: tuple[Any, ...]) -> Stage:
    return _figures(scope, (Measured("count"),), rows, by) or ()


_FIGURES: list[Form] = [
    ("agg", "SUM", constant("sum")),
    ("agg", "MEAN", constant("mean")),
    ("agg", "MEDIAN", constant("median")),
    ("agg", "MIN", constant("min")),
    ("agg", "MAX", constant("max")),
    ("agg", "STDDEV", constant("stddev")),
    ("measured", "<agg> <named>", _measure),
    ("measured", "earliest|oldest <named>", lambda s, column: _when(s, "min", column)),
    ("measured", "latest|newest <named>", lambda s, column: _when(s, "max", column)),
    ("measured", "NDISTINCT <named>", lambda s, column: Measured("distinct", column)),
    ("measured", "PLAINCOUNT", constant(Measured("count"))),
    ("measured", "COUNT <unnamed>", lambda s, noun: Measured("count")),
    ("unnamed", "ALL? ROWS", constant("")),
    ("unnamed", "ALL? <noun>", lambda s, noun: noun),
    ("aggs", "<agg> AND <aggs>", lambda s, first, others: (first, *others) if first not in others else None),
    ("aggs", "<agg>", lambda s, agg: (agg,)),
    ("measures", "<measured>", lambda s, measured: (measured,)),
    ("measures", "<measured> AND <measures>", lambda s, first, others: (first, *others)),
    (
        "measures",
        "both? <agg> AND <aggs> of? <named>",
        lambda s, first, others, column: _several(s, (first, *others), column),
    ),
    ("measures", "<agg> <named> AND <named>", lambda s, agg, one, two: _same(s, agg, one, two)),
    ("period", "day|date", constant("day")),
    ("period", "month|months", constant("month")),
    ("period", "year|years", constant("year")),
    ("by_one", "<named>", lambda s, column: column),
    ("by_one", "the? <period>", lambda s, part: _period(s, part, None)),
    ("by_one", "the? <period> of|in <named>", _period),
    ("by", "<by_one>", lambda s, one: (one,)),
    ("by", "<by_one> AND BY? <by>", lambda s, first, others: (first, *others) if first not in others else None),
    ("over", "FOR <rows>", lambda s, rows: rows),
    ("figures", "<measures> <over>?", lambda s, measures, rows: _figures(s, measures, rows, None)),
    ("figures", "<measures> <over>? BY <by>", _figures),
    ("figures", "<measures> BY <by> <over>", lambda s, measures, by, rows: _figures(s, measures, rows, by)),
    ("figures", "BY <by> ,|:? GIVE? THE? <measures>", lambda s, by, measures: _figures(s, measures, None, by)),
    (
        "figures",
        "GROUP <by> ,|and|with|:? GIVE? THE? <measures>",
        lambda s, by, measures: _figures(s, measures, None, by),
    ),
    (
        "figures",
        "GROUP <by> ,|and|: show|compute|calculate|give|return|get|take the|a? <measures>",
        lambda s, by, ms: _figures(s, ms, None, by),
    ),
    (
        "figures",
        "group <rows> BY <by> ,|and|with|:? GIVE? THE? <measures>",
        lambda s, rows, by, ms: _figures(s, ms, rows, by),
    ),
    ("figures", "COUNT <headed>", lambda s, rows: _figures(s, (Measured("count"),), rows, None)),
    ("figures", "COUNT <rows> are|is there", lambda s, rows: _figures(s, (Measured("count"),), rows, None)),
    ("figures", "COUNT <rows> do we have", lambda s, rows: _figures(s, (Measured("count"),), rows, None)),
    ("figures", "COUNT <plainrows> are|is <bare>", lambda s, rows, one: _counted(s, rows, one)),
    ("figures", "COUNT <plainrows> are|is not <bare>", lambda s, rows, one: _counted(s, rows, not_so(s, one))),
    ("figures", "COUNT <plainrows> have|has|contain <have>", lambda s, rows, one: _counted(s, rows, one)),
    (
        "figures",
        "COUNT <plainrows> do not have a|an|any? <column>",
        lambda s, rows, column: _counted(s, rows, missing(column)),
    ),
    ("figures", "COUNT <rows>? are|is there? BY <by>", _each),
    ("figures", "COUNT <rows>? BY <by>", _each),
    ("figures", "BY <by> ,|:? COUNT <rows>", lambda s, by, rows: _each(s, rows, by)),
    ("figures", "GROUP <by> ,|and|:? COUNT <rows>", lambda s, by, rows: _each(s, rows, by)),
    ("figures", "TALLY <by>", lambda s, by: _each(s, None, by)),
    ("figures", "<named> counts", lambda s, column: _each(s, None, (column,))),
    ("figures", "<named> distribution", lambda s, column: _each(s, None, (column,))),
]


def _same(scope: Scope, agg: str, one: str, two: str) -> tuple[Measured, ...] | None:
    """ "average of price and cost": one measure of two columns."""
    first, second = _measure(scope, agg, one), _measure(scope, agg, two)
    return (first, second) if first and second else None


def _counted(scope: Scope, rows: Rows, condition: Condition | None) -> Stage | None:
    return (
        _figures(scope, (Measured("count"),), Rows((*rows.conditions, condition), rows.noun), None)
        if condition
        else None
    )


# The first rows by something.


def _whole(number: Any) -> bool:
    return isinstance(number, int) and number > 0


def _top(scope: Scope, number: Any, rows: Rows | None, key: Mapping[str, Any], descending: bool) -> Stage | None:
    if not _whole(number) or "descending" in key:
        return None
    return (*(rows.steps() if rows else ()), {"top": {"count": number, "sort": [{**key, "descending": descending}]}})


def _top_named(
    scope: Scope, number: Any, rows: Rows, column: str, posts: tuple[Condition, ...] | None, descending: bool
) -> Stage | None:
    whole = Rows((*rows.conditions, *(posts or ())), rows.noun)
    return _top(scope, number, whole, {"column": column}, descending)


def _top_date(scope: Scope, number: Any, rows: Rows, descending: bool) -> Stage | None:
    key = _by_date(scope, None, descending)
    if scope.table.columns.keys() & {"age", "Age"}:
        scope.problem(99, "Oldest and newest may mean the age or the date", "Name the column: top 3 by age")
        return None
    return _top(scope, number, rows, {"column": key["column"]}, descending) if key else None


def _top_groups(
    scope: Scope, number: Any, by: str, measured: Measured, rows: Rows | None, descending: bool
) -> Stage | None:
    """ "top 3 categories by average price": groups, not rows."""
    if not _whole(number):
        return None
    start = rows.steps() if rows else ()
    order = {"measured": measured, "descending": descending}
    return (*start, {"group": ((by,), (measured,))}, {"top": {"count": number, "sort": [order]}})


def _literal(scope: Scope, step: str, number: Any, rows: Rows | None) -> Stage | None:
    """The first rows as they stand. "the last 5 orders" of rows that have a date may mean the latest."""
    if not _whole(number):
        return None
    if rows and rows.noun and scope.date_column():
        scope.problem(
            99,
            "First and last may mean the order of the data or that of the dates",
            f"first {number} rows, or {number} latest rows",
        )
        return None
    return (*(rows.steps() if rows else ()), {step: number})


def _priced(scope: Scope, number: Any, rows: Rows, descending: bool) -> Stage | None:
    found = [column for column in scope.table.columns if column.casefold() == "price"]
    return _top(scope, number, rows, {"column": found[0]}, descending) if len(found) == 1 else None


_TOPS: list[Form] = [
    ("upto", "TOP", constant(True)),
    ("upto", "BOTTOM", constant(False)),
    ("most", "MOST", constant(True)),
    ("most", "LEAST", constant(False)),
    ("age", "NEWEST", constant(True)),
    ("age", "OLDEST", constant(False)),
    (
        "tops",
        "<upto> <number> <rows>? by <named> <posts>?",
        lambda s, up, n, rows, c, posts: _top_named(s, n, rows or Rows((), None), c, posts, up),
    ),
    ("tops", "<upto> <number> <rows>? by <measured>", lambda s, up, n, rows, m: _top(s, n, rows, {"measured": m}, up)),
    (
        "tops",
        "THE? <number> <plainrows> with THE? <most> <named> <posts>?",
        lambda s, n, rows, up, c, posts: _top_named(s, n, rows, c, posts, up),
    ),
    (
        "tops",
        "THE? <one> with THE? <most> <named> <posts>?",
        lambda s, rows, up, c, posts: _top_named(s, 1, rows, c, posts, up),
    ),
    ("tops", "which <one> has THE? <most> <named>", lambda s, rows, up, c: _top_named(s, 1, rows, c, (), up)),
    ("tops", "THE? <number> <age> <rows>", lambda s, n, new, rows: _top_date(s, n, rows, new)),
    ("tops", "<age> <number> <rows>", lambda s, new, n, rows: _top_date(s, n, rows, new)),
    ("tops", "THE? <age> <one>", lambda s, new, rows: _top_date(s, 1, rows, new)),
    ("tops", "THE? <number> most expensive <rows>", lambda s, n, rows: _priced(s, n, rows, True)),
    ("tops", "THE? <number> cheapest <rows>", lambda s, n, rows: _priced(s, n, rows, False)),
    ("tops", "THE? most expensive <one>", lambda s, rows: _priced(s, 1, rows, True)),
    ("tops", "THE? cheapest <one>", lambda s, rows: _priced(s, 1, rows, False)),
    (
        "tops",
        "<upto> <number> <named> by <measured> <over>?",
        lambda s, up, n, by, m, rows: _top_groups(s, n, by, m, rows, up),
    ),
    (
        "tops",
        "which <named> has|have THE? <most> <measured> <over>?",
        lambda s, by, up, m, rows: _top_groups(s, 1, by, m, rows, up),
    ),
    (
        "tops",
        "THE? <number> <named> with THE? <most> <measured> <over>?",
        lambda s, n, by, up, m, rows: _top_groups(s, n, by, m, rows, up),
    ),
    (
        "tops",
        "THE? <named> with THE? <most> <measured> <over>?",
        lambda s, by, up, m, rows: _top_groups(s, 1, by, m, rows, up),
    ),
    (
        "tops",
        "THE? <number> <named> with THE? <most> rows|records|entries",
        lambda s, n, by, up: _top_groups(s, n, by, Measured("count"), None, up),
    ),
    (
        "tops",
        "THE? <named> with THE? <most> rows|records|entries",
        lambda s, by, up: _top_groups(s, 1, by, Measured("count"), None, up),
    ),
    (
        "tops",
        "which <named> has|have THE? most rows|records|entries",
        lambda s, by: _top_groups(s, 1, by, Measured("count"), None, True),
    ),
    (
        "tops",
        "THE? <number>? COMMON <named>",
        lambda s, n, by: _top_groups(s, n or 1, by, Measured("count"), None, True),
    ),
    ("tops", "<number> COMMON <named>", lambda s, n, by: _top_groups(s, n, by, Measured("count"), None, True)),
    ("tops", "top <number> COMMON <named>", lambda s, n, by: _top_groups(s, n, by, Measured("count"), None, True)),
    ("tops", "FIRST <number> <rows>?", lambda s, n, rows: _literal(s, "limit", n, rows)),
    ("tops", "LAST <number> <rows>?", lambda s, n, rows: _literal(s, "last", n, rows)),
    ("tops", "SKIP <number> ROWS?", lambda s, n: ({"skip": n},) if _whole(n) else None),
]

# Sentences.


def _having(scope: Scope, measured: Measured, test: str, number: Any) -> Stage:
    return ({"having": (measured, {test: number})},)


def _first_groups(scope: Scope, by: str, test: str, number: Any) -> Stage:
    """ "countries with more than 5 rows"."""
    count = Measured("count")
    return ({"group": ((by,), (count,))}, {"having": (count, {test: number})})


_SENTENCES: list[Form] = [
    ("after", "WHERE <condition>", lambda s, condition: ({"filter": condition},)),
    ("after", "WHERE <measured> <more> <number>", _having),
    ("after", "with <measured> <more> <number>", _having),
    ("after", "ORDERED <keys>", lambda s, keys: ({"sort": keys},)),
    ("after", "<direction>", lambda s, down: ({"sort": ({"it": True, "descending": down},)},)),
    ("after", "NEWFIRST", lambda s: _date_first(s, True)),
    ("after", "OLDFIRST", lambda s: _date_first(s, False)),
    ("after", "top|limit <number> only?", lambda s, n: ({"best": n},) if _whole(n) else None),
    ("after", "only? the? top <number>", lambda s, n: ({"best": n},) if _whole(n) else None),
    ("after", "FIRST <number> only?", lambda s, n: ({"limit": n},) if _whole(n) else None),
    ("stage", "<after>", lambda s, stage: stage),
    ("stage", "KEEP <headed>", some),
    ("opening", "<headed>", some),
    ("opening", "<condition>", lambda s, condition: ({"filter": condition},)),
    ("opening", "<stage>", lambda s, stage: stage),
    ("stage", "GIVE <headed>", some),
    ("stage", "KEEP ROWS? by|on|for? <condition>", lambda s, condition: ({"filter": condition},)),
    ("stage", "KEEP ROWS? WHERE <condition>", lambda s, condition: ({"filter": condition},)),
    (
        "stage",
        "KEEP ROWS? by|on|for? THE? <column> <value:0>",
        lambda s, column, value: ({"filter": {"column": column, "is": value}},),
    ),
    ("stage", "GROUP <by>", lambda s, by: _say_what(s)),
    ("stage", "which|what <plainrows> are|is <bare>", lambda s, rows, one: Rows((*rows.conditions, one), None).steps()),
    (
        "stage",
        "which|what <plainrows> have|has <have>",
        lambda s, rows, one: Rows((*rows.conditions, one), None).steps(),
    ),
    ("stage", "which|what <headed>", some),
    ("stage", "REMOVE WHERE <condition>", lambda s, condition: ({"filter": {"not": condition}},)),
    ("stage", "REMOVE <headed>", without),
    ("stage", "GIVE? <tops>", lambda s, stage: stage),
    ("stage", "KEEP <tops>", lambda s, stage: stage),
    ("stage", "SORT by? <keys>", lambda s, keys: ({"sort": keys},)),
    ("stage", "sort|order <plainrows> by <keys>", lambda s, rows, keys: (*rows.steps(), {"sort": keys})),
    ("stage", "KEEPCOLUMNS COLUMNS? <column_list> COLUMNS?", lambda s, columns: ({"select": list(columns)},)),
    ("stage", "GIVE|only only|just? COLUMNS? <column_list> COLUMNS?", lambda s, columns: ({"select": list(columns)},)),
    ("stage", "GIVE only|just? COLUMNS? <column_list> COLUMNS? <over>?", _values_of),
    ("stage", "only|just? <column_list> <over>", _values_of),
    ("stage", "TRIM COLUMNS? <column_list> COLUMNS?", lambda s, columns: ({"drop": list(columns)},)),
    (
        "stage",
        "rename <renames>",
        lambda s, pairs: ({"rename": dict(pairs)},) if len(dict(pairs)) == len(pairs) else None,
    ),
    ("stage", "DEDUPE", constant(({"distinct": []},))),
    ("stage", "UNIQUE rows|records|entries|items", constant(({"distinct": []},))),
    ("stage", "DEDUPE DEDUPEBY <column_list>", lambda s, columns: ({"distinct": list(columns)},)),
    ("stage", "GIVE? UNIQUE <column_list> <over>?", _unique),
    (
        "stage",
        "GIVE? THE? UNIQUE|different combinations|pairs of <column_list>",
        lambda s, columns: _unique(s, columns, None),
    ),
    (
        "stage",
        "GIVE? THE? unique|distinct|different|all combinations|pairs of <column_list>",
        lambda s, c: _unique(s, c, None),
    ),
    (
        "stage",
        "GIVE? UNIQUE rows|records by|based on? <column_list>",
        lambda s, columns: ({"distinct": list(columns)},),
    ),
    ("stage", "GIVE? THE? <figures>", lambda s, stage: stage),
    ("stage", "GIVE? ALL? <named> with <more> <number> ROWS", _first_groups),
    ("stage", "flatten", constant(({"flatten": []},))),
    ("stage", "flatten ALL? the? nested? rows|objects|data|fields|structure|it", constant(({"flatten": []},))),
    ("stage", "flatten <column_list>", lambda s, columns: ({"flatten": list(columns)},)),
    (
        "stage",
        "convert|turn|treat|parse|read|cast|change|make <column_list> to|into|as a? number|numbers|numeric|numerical",
        lambda s, c: ({"number": list(c)},),
    ),
    ("tail", "SOFT <stage>", lambda s, stage: (True, stage)),
    ("tail", "<after>", lambda s, stage: (False, stage)),
    ("tails", "<tail> <tails>?", lambda s, first, others: (first, *(others or ()))),
    (
        "sentence",
        "please? can|could|would? you? please? <opening> <tails>?",
        lambda s, stage, tails: ((True, stage), *(tails or ())),
    ),
]


def _say_what(scope: Scope) -> None:
    scope.problem(
        100, "It is not clear what to compute for each group", "group by status and count", "average price by status"
    )


def _date_first(scope: Scope, descending: bool) -> Stage | None:
    key = _by_date(scope, None, descending)
    return ({"sort": (key,)},) if key else None


FORMS: Sequence[Form] = [*which_rows.FORMS, *_COLUMNS, *_FIGURES, *_TOPS, *_SENTENCES]
