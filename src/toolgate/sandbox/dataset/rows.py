"""The closed grammar of which rows are meant, as a table of forms (see `parser` for the notation).

Conditions are those of `conditions`. One that is a list with or carries the mark `loose` until it is known that
nothing is joined to it by and, which could be read in two ways.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (the functions of a table of forms get whatever their parts mean)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from toolgate.sandbox.dataset.scope import Form, Scope
from toolgate.sandbox.dataset.tables import is_array, is_object, quoted

Condition = dict[str, Any]
Stage = tuple[Mapping[str, Any], ...]


class Rows(NamedTuple):
    """What a phrase says of the rows: the conditions on them, and what they are called ("" for nothing special)."""

    conditions: tuple[Condition, ...]
    noun: str | None

    def steps(self) -> Stage:
        return ({"filter": _all(self.conditions)},) if self.conditions else ()


class Measured(NamedTuple):
    measure: str
    column: str | None = None


def _all(conditions: Sequence[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else {"all": list(conditions)}


def constant(value: Any) -> Callable[..., Any]:
    def give(scope: Scope) -> Any:
        return value

    return give


# Conditions.


def _compare(scope: Scope, column: str, test: str, number: Any) -> Condition | None:
    kinds = scope.table.kinds(column)
    if kinds - {"number"}:
        kind = " and ".join(sorted(kinds))
        hint = (f"convert {column} to numbers, then sort by {column}",) if kinds == {"text"} else ()
        scope.problem(99, f"Column {quoted(column)} holds {kind}, which is not more or less than a number", *hint)
        return None
    return {"column": column, test: number}


def _compare_twice(scope: Scope, column: str, test: str, number: Any, other: str, second: Any) -> Condition | None:
    first, then = _compare(scope, column, test, number), _compare(scope, column, other, second)
    return {"all": [first, then]} if first and then and test != other else None


def _between(scope: Scope, column: str, low: Any, high: Any) -> Condition | None:
    return _compare(scope, column, "between", [low, high]) if low <= high else None


def _dated(scope: Scope, column: str | None, word: str, when: str) -> Condition | None:
    """A comparison with a date, a month or a year, whose end is that of the whole period."""
    column = column or scope.date_column()
    if column is None or not scope.table.is_dates(column):
        return None
    is_whole = len(scope.table.present(column)[0]) == len(when)
    first, after = when, when if is_whole and len(when) > 10 else _next(when)
    if after is None:
        return None
    if len(when) > 10 and not is_whole:
        scope.problem(99, f"{quoted(when)} has not the form of the dates in {quoted(column)}")
        return None
    if len(when) > 10:
        test = {"after": "above", "since": "at_least", "before": "below", "until": "at_most", "during": "is"}[word]
        return {"column": column, test: when}
    return {
        "after": {"column": column, "at_least": after},
        "since": {"column": column, "at_least": first},
        "before": {"column": column, "below": first},
        "until": {"column": column, "below": after},
        "during": {"all": [{"column": column, "at_least": first}, {"column": column, "below": after}]},
    }[word]


def _next(when: str) -> str | None:
    """The day, month or year after one."""
    parts = [int(part) for part in when[:10].split("-")]
    try:
        if len(parts) == 3:
            return (date(*parts) + timedelta(days=1)).isoformat()
        if len(parts) == 2:
            return f"{parts[0] + parts[1] // 12:04}-{parts[1] % 12 + 1:02}"
        return f"{parts[0] + 1:04}" if 1000 <= parts[0] < 9999 else None
    except (ValueError, OverflowError):
        return None


def _dated_between(scope: Scope, column: str | None, low: str, high: str) -> Condition | None:
    since, until = _dated(scope, column, "since", low), _dated(scope, column, "until", high)
    return {"all": [since, until]} if since and until and len(low) == len(high) and low <= high else None


_DATE_WORDS = {"above": "after", "at_least": "since", "below": "before", "at_most": "until"}


def _equal(scope: Scope, column: str, values: tuple[tuple[Any, ...], str]) -> Condition | None:
    """`is A` or `is A or B`; `is A and B` would be true of none."""
    given, joiner = values
    if joiner not in ("", "or"):
        return None
    return (
        {"column": column, "is": given[0]} if len(given) == 1 else {"column": column, "in": list(given), "loose": True}
    )


def _unequal(scope: Scope, column: str, value: Any) -> Condition | None:
    return {"column": column, "is_not": value}


def _among(scope: Scope, column: str, values: tuple[tuple[Any, ...], str], test: str = "in") -> Condition | None:
    return {"column": column, test: list(values[0])}


def _in_column(scope: Scope, column: str, test: str, text: str) -> Condition | None:
    if scope.table.kinds(column) - {"text"}:
        scope.problem(99, f"Column {quoted(column)} holds no text to search in")
        return None
    return {"column": column, test: text}


def _negated(condition: Condition | None) -> Condition | None:
    return {"not": condition} if condition else None


MIXED = ("and with or can be read in two ways", "put one part in ( )", "status in (open, closed) and price > 5")


def _joined(scope: Scope, first: Condition, others: tuple[Condition, ...], word: str) -> Condition | None:
    """Conditions joined by one word. A list of values with or between conditions with and could be read in two ways."""
    parts = (first, *others)
    if word == "all" and any(map(_is_loose, parts)):
        scope.problem(99, *MIXED)
        return None
    return {word: list(parts)} if word == "all" else {word: list(parts), "loose": True}


def _is_loose(condition: Condition) -> bool:
    return "loose" in condition


def tidy(condition: Any) -> Any:
    """Without the mark of a list that could be read in two ways."""
    if is_object(condition):
        return {key: tidy(value) for key, value in condition.items() if key != "loose"}
    return [tidy(each) for each in condition] if is_array(condition) else condition


_CONDITIONS: list[Form] = [
    ("more", "ABOVE", constant("above")),
    ("more", "ATLEAST", constant("at_least")),
    ("more", "BELOW", constant("below")),
    ("more", "ATMOST", constant("at_most")),
    ("when", "AFTER", constant("after")),
    ("when", "BEFORE", constant("before")),
    ("when", "SINCE", constant("since")),
    ("when", "UNTIL", constant("until")),
    ("when", "DURING", constant("during")),
    ("search", "CONTAINS", constant("contains")),
    ("search", "STARTS", constant("starts_with")),
    ("search", "ENDS", constant("ends_with")),
    ("named", "THE? column|field? <column> COLUMN?", lambda s, column: column),
    ("atom", "<named> <more> <number>", _compare),
    ("atom", "<named> <more> <number> BOTHAND <more> <number>", _compare_twice),
    ("atom", "<named> <more> <date>", lambda s, column, test, when: _dated(s, column, _DATE_WORDS[test], when)),
    ("atom", "<named> BETWEEN <number> and|to <number>", _between),
    ("atom", "<named> BETWEEN <date> and|to <date>", _dated_between),
    ("atom", "<named> is|was|are? <when> <date>", _dated),
    ("atom", "<named> IS <values:0>", _equal),
    ("atom", "<named> ISNOT <value:0>", _unequal),
    ("atom", "<named> IN <values:0>", _among),
    ("atom", "<named> IN ( <values:0> )", _among),
    ("atom", "<named> IN [ <values:0> ]", _among),
    ("atom", "<named> NOTIN <values:0>", lambda s, column, values: _among(s, column, values, "not_in")),
    ("atom", "<named> NOTIN ( <values:0> )", lambda s, column, values: _among(s, column, values, "not_in")),
    ("atom", "<named> NOTIN [ <values:0> ]", lambda s, column, values: _among(s, column, values, "not_in")),
    ("atom", "<named> <search> <text>", _in_column),
    ("atom", "<named> LACKS <text>", lambda s, column, text: _negated(_in_column(s, column, "contains", text))),
    (
        "atom",
        "<named> does|do not start with <text>",
        lambda s, column, text: _negated(_in_column(s, column, "starts_with", text)),
    ),
    (
        "atom",
        "<named> does|do not end with <text>",
        lambda s, column, text: _negated(_in_column(s, column, "ends_with", text)),
    ),
    ("atom", "<named> MISSING", lambda s, column: missing(column)),
    ("atom", "<named> PRESENT", lambda s, column: present(column)),
    ("atom", "is|are|they're|it's? <flag>", lambda s, column: {"column": column, "is": True}),
    ("atom", "is|are? not <flag>", lambda s, column: not_so(s, {"column": column, "is": True})),
    ("atom", "isn't|aren't <flag>", lambda s, column: not_so(s, {"column": column, "is": True})),
    ("atom", "( <condition> )", lambda s, condition: {"all": [tidy(condition)]}),
    ("ands", "<atom> BOTHAND <ands>", lambda s, first, others: (first, *others)),
    ("ands", "<atom>", lambda s, atom: (atom,)),
    ("ors", "<atom> EITHER <ors>", lambda s, first, others: (first, *others)),
    ("ors", "<atom>", lambda s, atom: (atom,)),
    ("condition", "<atom> BOTHAND <atom> EITHER <ors>", lambda s, *atoms: s.problem(99, *MIXED)),
    ("condition", "<atom> EITHER <atom> BOTHAND <ands>", lambda s, *atoms: s.problem(99, *MIXED)),
    ("condition", "<atom>", lambda s, atom: atom),
    ("condition", "both? <atom> BOTHAND <ands>", lambda s, first, others: _joined(s, first, others, "all")),
    ("condition", "either? <atom> EITHER <ors>", lambda s, first, others: _joined(s, first, others, "any")),
    # What is had: "with status open", "with an email", "with no email".
    ("had", "<atom>", lambda s, atom: atom),
    ("had", "THE? <column> <values:0>", _equal),
    ("had", "NO <named>", lambda s, column: missing(column)),
    ("had", "a|an <column>", lambda s, column: present(column)),
    ("all_had", "<had> BOTHAND <all_had>", lambda s, first, others: (first, *others)),
    ("all_had", "<had>", lambda s, had: (had,)),
    ("any_had", "<had> EITHER <any_had>", lambda s, first, others: (first, *others)),
    ("any_had", "<had>", lambda s, had: (had,)),
    ("have", "<had>", lambda s, had: had),
    ("have", "both? <had> BOTHAND <all_had>", lambda s, first, others: _joined(s, first, others, "all")),
    ("have", "either? <had> EITHER <any_had>", lambda s, first, others: _joined(s, first, others, "any")),
]

# Which rows.


def _rows(
    scope: Scope, adjectives: tuple[Condition, ...] | None, noun: str | None, posts: tuple[Condition, ...] | None
) -> Rows | None:
    if posts and len(posts) > 1 and any(map(_is_loose, posts)):
        scope.problem(99, *MIXED)
        return None
    conditions = (*(adjectives or ()), *(posts or ()))
    return Rows(conditions, noun) if conditions or noun is not None else None


def missing(column: str) -> Condition:
    return {"column": column, "missing": True}


def present(column: str) -> Condition:
    return {"column": column, "missing": False}


def not_so(scope: Scope, condition: Condition) -> Condition | None:
    """Not a value that stands alone. Where a true-or-false column has nulls, what is not true is not clear."""
    column = condition["column"]
    if condition["is"] is not True:
        return {"column": column, "is_not": condition["is"]}
    if scope.table.nulls(column):
        scope.problem(
            99,
            f"Column {quoted(column)} has nulls, which are neither true nor false",
            f"{column} is false, or {column} is missing",
        )
        return None
    return {"column": column, "is": False}


def _either(one: Condition, other: Condition) -> Condition | None:
    """ "open or pending orders": two values of one column."""
    same = one["column"] == other["column"] and one["is"] != other["is"]
    return {"column": one["column"], "in": [one["is"], other["is"]]} if same else None


def _adjectives(first: Condition, others: tuple[Condition, ...]) -> tuple[Condition, ...] | None:
    """All of them hold; two values of one column cannot."""
    return (first, *others) if first["column"] not in {each["column"] for each in others} else None


def some(scope: Scope, rows: Rows) -> Stage | None:
    """Rows that are kept: those that are not restricted would be all."""
    return rows.steps() or None


def without(scope: Scope, rows: Rows) -> Stage | None:
    return ({"filter": {"not": _all(rows.conditions)}},) if rows.conditions else None


_ROWS: list[Form] = [
    ("adjective", "<bare>", lambda s, condition: condition),
    ("adjective", "not|non <bare>", lambda s, condition: not_so(s, condition)),
    ("adjective", "<bare> or <bare>", lambda s, one, other: _either(one, other)),
    ("adjectives", "<adjective> ,? <adjectives>", lambda s, first, others: _adjectives(first, others)),
    ("adjectives", "<adjective>", lambda s, one: (one,)),
    ("head", "ROWS", constant("")),
    ("head", "ONES", constant("")),
    ("head", "<noun>", lambda s, noun: noun),
    ("post", "WHERE <condition>", lambda s, condition: condition),
    ("post", "WHERE they are <bare>", lambda s, condition: condition),
    ("post", "WITH <have>", lambda s, condition: condition),
    ("post", "THATARE <bare>", lambda s, condition: condition),
    ("post", "THATARE not <bare>", lambda s, condition: not_so(s, condition)),
    ("post", "not <bare>", lambda s, condition: not_so(s, condition)),
    ("post", "THATARE <condition>", lambda s, condition: condition),
    ("post", "that|which|who <condition>", lambda s, condition: condition),
    ("post", "NO <column>", lambda s, column: missing(column)),
    ("post", "from|in|for|of <bare>", lambda s, condition: condition),
    ("post", "from|in|for|of the|all? <named> <value:0>", lambda s, column, value: {"column": column, "is": value}),
    ("post", "<when> <date>", lambda s, word, when: _dated(s, None, word, when)),
    ("post", "between|from <date> and|to <date>", lambda s, low, high: _dated_between(s, None, low, high)),
    ("posts", "<post> BOTHAND? <posts>", lambda s, first, others: (first, *others)),
    ("posts", "<post>", lambda s, one: (one,)),
    # Named in some way: "without email" alone may be about the column.
    ("headed", "ALL? <adjectives>? <head> <posts>?", _rows),
    ("headed", "ALL? <adjectives> <posts>?", lambda s, adjectives, posts: _rows(s, adjectives, None, posts)),
    ("rows", "ALL? <adjectives>? <head>? <posts>?", _rows),
    ("one", "<adjectives>? <single>", lambda s, adjectives, noun: _rows(s, adjectives, noun, None)),
    ("plainrows", "ALL? <adjectives>? <head>?", lambda s, adjectives, noun: _rows(s, adjectives, noun, None)),
]

FORMS: Sequence[Form] = [*_CONDITIONS, *_ROWS]
