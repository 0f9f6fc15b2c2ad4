"""Which rows: conditions as values of JSON, compiled to a function of a row.

    {"column": "price", "above": 100}          one test of TESTS
    {"all": [...]}  {"any": [...]}  {"not": {...}}

A condition is true or false, never unknown: a test of null is false, but for `is_not`, `not_in` and those that ask for
null. Values compare within their kind: the number 5 is not the text "5". Only numbers, and dates that are ISO text of
one form throughout their column, are more or less than another; all else is refused.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (the functions of a table get values of JSON)

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolgate.sandbox.dataset.tables import (
    KINDS,
    PART_OF_DATE,
    Refused,
    Row,
    Table,
    is_array,
    is_object,
    one_form_of_dates,
    quoted,
)

_DEEPEST = 20
_MOST_VALUES = 10_000

Condition = Mapping[str, Any]
Check = Callable[[Row], bool]


class Test(NamedTuple):
    """A test of one column: what it does with a value of JSON, and how it is said."""

    accept: Callable[[Table, str, Any], Any]  # the operand, prepared; raises Refused
    holds: Callable[[Any, Any], bool]  # of a value that is not null, and the prepared operand
    words: Callable[[Any], str]
    of_null: bool = False  # what it says of null


def key_of(value: Any) -> Any:
    """A scalar so that equal ones of one kind have one key: true is not 1, and 1.0 is 1."""
    return (KINDS.get(type(value), "null"), value)


def _scalar(table: Table, column: str, operand: Any) -> Any:
    if operand is None or isinstance(operand, list | dict):
        raise Refused(
            f"A test of {quoted(column)} needs a text, a number, true or false; for null write missing or null"
        )
    return key_of(operand)


def _scalars(table: Table, column: str, operand: Any) -> Any:
    if not is_array(operand) or not operand:
        raise Refused(f"in and not_in of {quoted(column)} need an array of values")
    if len(operand) > _MOST_VALUES:
        raise Refused(f"in and not_in take at most {_MOST_VALUES} values")
    return frozenset(_scalar(table, column, each) for each in operand)


def _text(table: Table, column: str, operand: Any) -> str:
    if not isinstance(operand, str) or not operand:
        raise Refused(f"A search in {quoted(column)} needs a text that is not empty")
    if table.kind(column, "to search in it") not in ("text", "nothing"):
        raise Refused(f"Column {quoted(column)} holds no text to search in")
    return operand.casefold()


def _ordered(table: Table, column: str, operand: Any) -> Any:
    kind = table.kind(column, "to compare it")
    if isinstance(operand, bool) or not isinstance(operand, int | float | str):
        raise Refused(f"Column {quoted(column)} is compared with a number or a date, not with {quoted(operand)}")
    if kind == "nothing":
        return operand
    if kind == "number" and not isinstance(operand, str):
        if isinstance(operand, float) and not math.isfinite(operand):
            raise Refused("A number to compare with must be finite")
        return operand
    if kind == "text" and isinstance(operand, str) and table.is_dates(column):
        sample = table.present(column)[0]
        if PART_OF_DATE.fullmatch(operand) or one_form_of_dates([sample, operand]):
            return operand
        raise Refused(f"{quoted(operand)} is no date as those of column {quoted(column)}, such as {quoted(sample)}")
    if kind == "text" and not isinstance(operand, str):
        raise Refused(
            f"Column {quoted(column)} holds text, which is not more or less than a number",
            f"convert {column} to numbers, then sort by {column}",
        )
    raise Refused(f"Column {quoted(column)} ({kind}) cannot be compared with {quoted(operand)}")


def _two(table: Table, column: str, operand: Any) -> tuple[Any, Any]:
    if not is_array(operand) or len(operand) != 2:
        raise Refused(f"between of {quoted(column)} needs an array of two values")
    low, high = (_ordered(table, column, each) for each in operand)
    if type(low) is not type(high) and isinstance(low, str) != isinstance(high, str):
        raise Refused(f"between of {quoted(column)} needs two values of one kind")
    if low > high:
        raise Refused(f"between {quoted(low)} and {quoted(high)}: the first is the larger")
    return low, high


def _flag(table: Table, column: str, operand: Any) -> bool:
    if not isinstance(operand, bool):
        raise Refused(f"missing and null of {quoted(column)} are true or false")
    return operand


def _several(values: Sequence[Any]) -> str:
    shown = ", ".join(quoted(each) for each in values[:20])
    return shown + (f" and {len(values) - 20} more" if len(values) > 20 else "")


TESTS: Mapping[str, Test] = {
    "is": Test(_scalar, lambda value, wanted: key_of(value) == wanted, lambda o: f"is {quoted(o)}"),
    "is_not": Test(_scalar, lambda value, wanted: key_of(value) != wanted, lambda o: f"is not {quoted(o)}", True),
    "in": Test(
        _scalars,
        lambda value, wanted: _hashable(value) and key_of(value) in wanted,
        lambda o: f"is one of {_several(o)}",
    ),
    "not_in": Test(
        _scalars,
        lambda value, wanted: not _hashable(value) or key_of(value) not in wanted,
        lambda o: f"is none of {_several(o)}",
        True,
    ),
    "above": Test(_ordered, lambda value, bound: value > bound, lambda o: f"is more than {quoted(o)}"),
    "at_least": Test(_ordered, lambda value, bound: value >= bound, lambda o: f"is at least {quoted(o)}"),
    "below": Test(_ordered, lambda value, bound: value < bound, lambda o: f"is less than {quoted(o)}"),
    "at_most": Test(_ordered, lambda value, bound: value <= bound, lambda o: f"is at most {quoted(o)}"),
    "between": Test(
        _two,
        lambda value, two: two[0] <= value <= two[1],
        lambda o: f"is from {quoted(o[0])} to {quoted(o[1])}, both included",
    ),
    "contains": Test(
        _text, lambda value, part: part in value.casefold(), lambda o: f"contains {quoted(o)} (ignoring case)"
    ),
    "starts_with": Test(
        _text,
        lambda value, part: value.casefold().startswith(part),
        lambda o: f"starts with {quoted(o)} (ignoring case)",
    ),
    "ends_with": Test(
        _text, lambda value, part: value.casefold().endswith(part), lambda o: f"ends with {quoted(o)} (ignoring case)"
    ),
    "missing": Test(
        _flag,
        lambda value, missing: (isinstance(value, str) and not value.strip()) is missing,
        lambda o: "is missing (null or blank)" if o else "is not missing (neither null nor blank)",
    ),
    "null": Test(_flag, lambda value, null: not null, lambda o: "is null" if o else "is not null"),
}


def _hashable(value: Any) -> bool:
    return not isinstance(value, list | dict)


def check_of(condition: Any, table: Table, depth: int = 0) -> Check:
    """The function that says whether a row fits. Raises `Refused`."""
    if not is_object(condition) or depth > _DEEPEST:
        raise Refused("A condition is an object, and at most 20 levels deep")
    if set(condition) in ({"all"}, {"any"}):
        ((word, parts),) = condition.items()
        if not is_array(parts) or not parts or len(parts) > 1_000:
            raise Refused(f"{word} needs an array of conditions, at most 1000")
        checks = [check_of(part, table, depth + 1) for part in parts]
        whole = all if word == "all" else any
        return lambda row: whole(check(row) for check in checks)
    if set(condition) == {"not"}:
        inner = check_of(condition["not"], table, depth + 1)
        return lambda row: not inner(row)
    return _test(condition, table)


def _test(condition: Condition, table: Table) -> Check:
    names = condition.keys() - {"column"}
    if "column" not in condition or len(names) != 1 or not names <= TESTS.keys():
        raise Refused(f"A condition has column and one of {', '.join(TESTS)}; or it is all, any or not")
    (name,) = names
    column = condition["column"]
    if not isinstance(column, str):
        raise Refused("The column of a condition is a text")
    get, test = table.getter(column), TESTS[name]
    operand = test.accept(table, column, condition[name])
    holds = test.holds
    of_null = operand is True if name in ("missing", "null") else test.of_null
    return lambda row: of_null if (value := get(row)) is None else holds(value, operand)


def columns_in(condition: Condition) -> set[str]:
    """The columns that a valid condition looks at."""
    if "column" in condition:
        return {condition["column"]}
    parts = condition.get("all") or condition.get("any") or [condition["not"]]
    return set[str]().union(*(columns_in(part) for part in parts))


def nulls_that_pass(condition: Condition, table: Table) -> list[str]:
    """A sentence for each column whose nulls pass a negated test, which a reader may not expect."""
    if "column" in condition:
        column = condition["column"]
        count = table.nulls(column) if "is_not" in condition or "not_in" in condition else 0
        return [f"{counted(count)} without {column} fit{'s' if count == 1 else ''} that, too"] if count else []
    parts = condition.get("all") or condition.get("any") or [condition["not"]]
    return [] if "not" in condition else [note for part in parts for note in nulls_that_pass(part, table)]


def counted(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def said(condition: Condition, nested: bool = False) -> str:
    """A valid condition in English."""
    if "not" in condition:
        return f"it is not so that {said(condition['not'], True)}"
    if "column" in condition:
        (name,) = condition.keys() - {"column"}
        return f"{condition['column']} {TESTS[name].words(condition[name])}"
    word, parts = ("and", condition["all"]) if "all" in condition else ("or", condition["any"])
    text = f" {word} ".join(said(part, True) for part in parts)
    return f"({text})" if nested and len(parts) > 1 else text
