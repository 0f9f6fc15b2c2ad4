"""A closed table of operations, as values of JSON. Each runs on a table, and says in English what it does.

    [{"filter": {"column": "price", "above": 100}}, {"sort": [{"column": "price", "descending": true}]}, {"limit": 5}]

A step is an object with one key of OPERATIONS. The whole list is checked against the data: a column that is not
there, or whose values the operation is not defined for, is refused. Order that nothing asks for is that of the data.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (the functions of a table get values of JSON)

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from toolgate.sandbox.dataset.conditions import check_of, counted, key_of, nulls_that_pass, said
from toolgate.sandbox.dataset.measures import check_measure, computed, default_name, measured_words
from toolgate.sandbox.dataset.tables import Getter, Refused, Row, Step, Table, is_array, is_object, listed, quoted

MOST_STEPS = 50
_MOST_KEYS = 1_000  # columns named in one step

PARTS = {"year": 4, "month": 7, "day": 10}  # how much of an ISO date each is
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class Operation(NamedTuple):
    run: Callable[[Table, Any], Table]  # raises Refused
    say: Callable[[Any], str]  # of a valid operand
    ends: bool = False  # whether nothing may follow


def run(steps: Any, table: Table) -> Table:
    """All steps, one after the other. Raises `Refused`."""
    if not is_array(steps) or not 0 < len(steps) <= MOST_STEPS:
        raise Refused(f"steps is an array of 1 to {MOST_STEPS} steps")
    for number, step in enumerate(steps, 1):
        if not is_object(step) or len(step) != 1 or not step.keys() <= OPERATIONS.keys():
            raise Refused(f"Step {number}: a step is an object with one key of {', '.join(OPERATIONS)}")
        ((name, operand),) = step.items()
        if OPERATIONS[name].ends and number < len(steps):
            raise Refused(f"Step {number}: nothing can follow {name}")
        table = OPERATIONS[name].run(table, operand)
    return table


def interpretation(steps: Sequence[Step]) -> str:
    """Valid steps as English sentences."""
    said_each = [OPERATIONS[name].say(operand) for step in steps for name, operand in step.items()]
    return " Then ".join(
        f"{text[0].lower() if index else text[0].upper()}{text[1:]}." for index, text in enumerate(said_each)
    )


def result(table: Table) -> Any:
    """The table as it is shown."""
    if table.form == "values":
        return [next(iter(row.values())) for row in table.rows]
    if table.form == "single":
        row = table.rows[0]
        return next(iter(row.values())) if len(row) == 1 else row
    return table.rows


# Rows.


def _filter(table: Table, operand: Any) -> Table:
    fits = check_of(operand, table)
    return table.kept([row for row in table.rows if fits(row)], *nulls_that_pass(operand, table))


def _count(operand: Any, name: str) -> int:
    if isinstance(operand, bool) or not isinstance(operand, int) or not 0 <= operand <= 10**9:
        raise Refused(f"{name} needs a whole number, not {quoted(operand)}")
    return operand


def _limit(table: Table, operand: Any) -> Table:
    return table.kept(table.rows[: _count(operand, "limit")])


def _skip(table: Table, operand: Any) -> Table:
    return table.kept(table.rows[_count(operand, "skip") :])


def _last(table: Table, operand: Any) -> Table:
    count = _count(operand, "last")
    return table.kept(table.rows[-count:] if count else [])


def _top(table: Table, operand: Any) -> Table:
    """Sorted and cut, and a note where rows that are left out are equal to the last one that is kept."""
    if not is_object(operand) or set(operand) != {"count", "sort"}:
        raise Refused("top needs count and sort")
    count = _count(operand["count"], "top")
    ordered = _sort(table, operand["sort"])
    kept, notes = ordered.rows[:count], []
    if 0 < count < len(ordered.rows):
        gets = [table.getter(key["column"]) for key in _keys(operand["sort"])]
        last = [key_of(get(kept[-1])) for get in gets]
        equal = sum([key_of(get(row)) for get in gets] == last for row in ordered.rows[count:])
        notes = (
            [f"{counted(equal)} left out {'is' if equal == 1 else 'are'} equal to the last one kept"] if equal else []
        )
    return ordered.kept(kept, *notes)


def _sort(table: Table, operand: Any) -> Table:
    """Stable, and nulls come last whatever the direction. Text is sorted without regard to case."""
    rows = table.rows
    notes: list[str] = []
    for key in reversed(_keys(operand)):
        column, descending = key["column"], key.get("descending", False)
        get = table.getter(column)
        kind = table.kind(column, "to sort by it")
        if kind in ("list", "object"):
            raise Refused(f"Column {quoted(column)} holds {kind}s, which have no order")
        if kind == "number":
            _check_finite(table, column)
        order = _alphabetical(get) if kind == "text" else get
        present = [row for row in rows if get(row) is not None]
        absent = [row for row in rows if get(row) is None]
        rows = sorted(present, key=order, reverse=descending) + absent
        notes += (
            [f"{counted(len(absent))} without {column} come{'s' if len(absent) == 1 else ''} last"] if absent else []
        )
    return table.kept(rows, *notes)


def _alphabetical(get: Getter) -> Getter:
    def order(row: Row) -> tuple[str, str]:
        text: str = get(row)
        return text.casefold(), text

    return order


def _check_finite(table: Table, column: str) -> None:
    if not all(math.isfinite(value) for value in table.present(column) if isinstance(value, float)):
        raise Refused(f"Column {quoted(column)} holds values that are no finite numbers")


def _keys(operand: Any) -> list[Mapping[str, Any]]:
    """What to sort by: names, or objects with column and descending."""
    given: list[Any] = operand if is_array(operand) else [operand]
    keys: list[Any] = [{"column": key} if isinstance(key, str) else key for key in given]
    for key in keys:
        if not is_object(key) or not {"column"} <= key.keys() <= {"column", "descending"}:
            raise Refused("sort needs an array of columns, or of objects with column and descending")
        if not isinstance(key["column"], str) or not isinstance(key.get("descending", False), bool):
            raise Refused("sort: column is a text, and descending true or false")
    if not 0 < len(keys) <= _MOST_KEYS:
        raise Refused(f"sort needs 1 to {_MOST_KEYS} columns")
    return keys


def _distinct(table: Table, operand: Any) -> Table:
    names = _names(operand, "distinct", least=0) or list(table.columns)
    gets = [table.getter(column) for column in names]
    kept: dict[Any, Row] = {}
    for row in table.rows:
        kept.setdefault(_identity([get(row) for get in gets]), row)
    return table.kept(list(kept.values()))


def _identity(values: list[Any]) -> Any:
    """Equal for values that are equal; an absent field is null."""
    return tuple(key_of(value) if not isinstance(value, list | dict) else _canonical(value) for value in values)


def _canonical(value: Any) -> Any:
    if is_object(value):
        return ("object", frozenset((key, _canonical(each)) for key, each in value.items() if each is not None))
    return ("list", tuple(map(_canonical, value))) if is_array(value) else key_of(value)


# Columns.


def _names(operand: Any, step: str, least: int = 1) -> list[str]:
    names: list[Any] = [operand] if isinstance(operand, str) else operand
    if not is_array(names) or not all(isinstance(name, str) for name in names):
        raise Refused(f"{step} needs an array of columns")
    if not least <= len(names) <= _MOST_KEYS:
        raise Refused(f"{step} needs {least} to {_MOST_KEYS} columns")
    if len(set(names)) != len(names):
        raise Refused(f"{step} names a column twice")
    return names


def _select(table: Table, operand: Any) -> Table:
    names = _names(operand, "select")
    gets = [(name, table.getter(name)) for name in names]
    return table.made([{name: get(row) for name, get in gets} for row in table.rows], names, "objects")


def _values(table: Table, operand: Any) -> Table:
    if not isinstance(operand, str):
        raise Refused("values needs one column")
    return table.made(_select(table, [operand]).rows, [operand], "values")


def _drop(table: Table, operand: Any) -> Table:
    names = set(_names(operand, "drop"))
    for name in names - table.columns.keys():
        raise table.unknown(name)
    if not table.columns.keys() - names:
        raise Refused("drop would leave no column")
    left = [column for column in table.columns if column not in names]
    return table.made(
        [{key: value for key, value in row.items() if key not in names} for row in table.rows], left, "objects"
    )


def _rename(table: Table, operand: Any) -> Table:
    if not is_object(operand) or not operand or not all(isinstance(new, str) and new for new in operand.values()):
        raise Refused("rename needs an object of new names by column")
    for name in operand.keys() - table.columns.keys():
        raise table.unknown(name)
    after = [operand.get(name, name) for name in table.columns]
    if len(set(after)) != len(after):
        raise Refused("rename would give two columns one name")
    rows = [{operand.get(key, key): value for key, value in row.items()} for row in table.rows]
    return table.made(rows, after, "objects")


def _flatten(table: Table, operand: Any) -> Table:
    """Fields of nested objects as columns of their own; the objects go."""
    named = _names(operand, "flatten", least=0)
    for name in set(named) - table.columns.keys():
        raise table.unknown(name)
    if not table.paths:
        raise Refused("There are no nested objects to flatten")
    for name in named:
        if not table.kinds(name) <= {"object"}:
            raise Refused(f"Column {quoted(name)} does not hold objects")
    chosen = set(named or table.columns)

    def flat(row: Row) -> Row:
        made: Row = {}
        for key, value in row.items():
            _spread(key, value, made) if key in chosen else _put(key, value, made)
        return made

    rows = [flat(row) for row in table.rows]
    return table.made(rows, chain.from_iterable(rows) if rows else table.columns, "objects")


def _spread(name: str, value: Any, into: Row, depth: int = 0) -> None:
    if not is_object(value) or not value:
        return _put(name, value, into)
    if depth == 8:
        raise Refused("The objects are nested more than 8 levels deep")
    for key, inner in value.items():
        _spread(f"{name}.{key}", inner, into, depth + 1)


def _put(name: str, value: Any, into: Row) -> None:
    if name in into:
        raise Refused(f"flatten would make two columns {quoted(name)}")
    into[name] = value


def _number(table: Table, operand: Any) -> Table:
    names = _names(operand, "number")
    for name in set(names) - table.columns.keys():
        raise table.unknown(name)
    for name in names:
        for value in table.present(name):
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise Refused(f"Column {quoted(name)} holds {quoted(value)}, which is no number")
            if isinstance(value, str) and (not _NUMBER.fullmatch(value.strip()) or len(value) > 300):
                raise Refused(
                    f"Column {quoted(name)} holds {quoted(value)}, which is not written as a number, such as -12.5"
                )
    chosen = set(names)
    rows = [{key: _as_number(value) if key in chosen else value for key, value in row.items()} for row in table.rows]
    return table.kept(rows)


def _as_number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    number = float(text) if set(text) & set(".eE") else int(text)
    if not math.isfinite(number):
        raise Refused(f"{quoted(text)} is too large a number")
    return number


def _date(table: Table, operand: Any) -> Table:
    if not is_object(operand) or set(operand) != {"column", "part", "as"} or operand["part"] not in PARTS:
        raise Refused(f"date needs column, part ({', '.join(PARTS)}) and as, the name of the new column")
    column, new, length = operand["column"], operand["as"], PARTS[operand["part"]]
    if not isinstance(column, str) or not isinstance(new, str) or not new or new in table.columns:
        raise Refused("date: column and as are texts, and as is a new name")
    get = table.getter(column)
    if table.present(column) and not table.is_dates(column):
        raise Refused(f"Column {quoted(column)} does not hold ISO dates of one form, such as 2026-11-24")
    rows = [{**row, new: value[:length] if (value := get(row)) is not None else None} for row in table.rows]
    return table.made(rows, [*table.columns, new], "objects")


# Groups.


def _measures(operand: Any, table: Table, taken: Sequence[str]) -> list[tuple[str, str, str | None]]:
    if not is_array(operand) or not 0 < len(operand) <= 100:
        raise Refused("measures is an array of 1 to 100 objects with measure, column and as")
    found: list[tuple[str, str, str | None]] = []
    for each in operand:
        if not is_object(each) or not {"measure"} <= each.keys() <= {"measure", "column", "as"}:
            raise Refused("A measure is an object with measure, column and as")
        check_measure(each["measure"], each.get("column"), table)
        if each.get("column") is not None and "number" in table.kinds(each["column"]):
            _check_finite(table, each["column"])
        name = each.get("as", default_name(each["measure"], each.get("column")))
        if not isinstance(name, str) or name in taken or name in [other for other, *_ in found]:
            raise Refused(
                f"Two columns of the result would be named {quoted(name)}: give one of them another name with as"
            )
        found.append((name, each["measure"], each.get("column")))
    return found


def _left_out(table: Table, measures: Sequence[tuple[str, str, str | None]]) -> list[str]:
    columns = dict.fromkeys(column for _, _, column in measures if column is not None)
    counts = {column: table.nulls(column) for column in columns}
    return [f"{counted(count)} without {column} left out of its figures" for column, count in counts.items() if count]


def _group(table: Table, operand: Any) -> Table:
    """One row for each different combination, in the order in which they first occur; null is a group of its own."""
    if not is_object(operand) or set(operand) != {"by", "measures"}:
        raise Refused("group needs by (columns) and measures")
    by = _names(operand["by"], "group")
    for column in by:
        if table.kinds(column) & {"list", "object"}:
            raise Refused(f"Column {quoted(column)} holds lists or objects, which make no groups")
    measures = _measures(operand["measures"], table, by)
    gets = [(column, table.getter(column)) for column in by]
    groups: dict[Any, list[Row]] = {}
    for row in table.rows:
        groups.setdefault(tuple([key_of(get(row)) for _, get in gets]), []).append(row)
    reads = [(name, measure, column, table.getter(column) if column else None) for name, measure, column in measures]
    rows = [
        {column: get(members[0]) for column, get in gets}
        | {
            name: computed(measure, column, list(map(get, members)) if get else members)
            for name, measure, column, get in reads
        }
        for members in groups.values()
    ]
    notes = [
        f"{counted(count)} without {column} make a group of null" for column in by if (count := table.nulls(column))
    ]
    return table.made(rows, [*by, *(name for name, *_ in measures)], "objects", *notes, *_left_out(table, measures))


def _aggregate(table: Table, operand: Any) -> Table:
    measures = _measures(operand, table, [])
    row = {
        name: computed(measure, column, table.held(column) if column is not None else table.rows)
        for name, measure, column in measures
    }
    return table.made([row], row, "single", *_left_out(table, measures))


# How each is said.


def _order(operand: Any) -> str:
    return ", then by ".join(
        f"{key['column']}, {'highest' if key.get('descending') else 'lowest'} first" for key in _keys(operand)
    )


def _say_distinct(operand: Any) -> str:
    names = _names(operand, "distinct", 0)
    return f"keep the first row of each different {' and '.join(names) or 'whole row'}"


def _say_measures(operand: Any) -> str:
    return " and ".join(measured_words(each) for each in operand)


def _say_rename(operand: Any) -> str:
    return "rename " + ", ".join(f"{old} to {new}" for old, new in operand.items())


OPERATIONS: Mapping[str, Operation] = {
    "filter": Operation(
        _filter,
        lambda o: f"leave out the rows where {said(o['not'])}" if "not" in o else f"keep the rows where {said(o)}",
    ),
    "limit": Operation(_limit, lambda o: f"keep the first {counted(o)}"),
    "last": Operation(_last, lambda o: f"keep the last {counted(o)}"),
    "skip": Operation(_skip, lambda o: f"leave out the first {counted(o)}"),
    "top": Operation(_top, lambda o: f"keep the first {counted(o['count'])} by {_order(o['sort'])}"),
    "sort": Operation(_sort, lambda o: f"sort by {_order(o)}"),
    "distinct": Operation(_distinct, _say_distinct),
    "select": Operation(_select, lambda o: f"keep only the columns {listed(_names(o, 'select'))}"),
    "drop": Operation(_drop, lambda o: f"leave out the columns {listed(_names(o, 'drop'))}"),
    "rename": Operation(_rename, _say_rename),
    "values": Operation(_values, lambda o: f"return the values of {o}", ends=True),
    "flatten": Operation(
        _flatten, lambda o: f"make columns of the fields of nested objects{' in ' + listed(o) if o else ''}"
    ),
    "number": Operation(_number, lambda o: f"read {listed(_names(o, 'number'))} as numbers"),
    "date": Operation(_date, lambda o: f"take the {o['part']} of {o['column']} as {o['as']}"),
    "group": Operation(
        _group, lambda o: f"for each {' and '.join(_names(o['by'], 'group'))} compute {_say_measures(o['measures'])}"
    ),
    "aggregate": Operation(_aggregate, lambda o: f"compute {_say_measures(o)}", ends=True),
}
