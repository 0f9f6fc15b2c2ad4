"""Data of any accepted shape as rows with columns, and what a column holds.

An array of objects is its rows. An array of scalars is rows with one column, `value`. An array of arrays has the
columns
that its first row names, or `column_1`, `column_2`, … An object is a table of columns (arrays of the same length), a
mapping of records or of scalars (its keys are the column `key`), or a wrapper around one array. Anything else is
refused, and so is what can be read in two ways. A value that is absent counts as null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, TypeGuard

_DEEPEST = 8  # levels of nested objects whose fields are offered
_MOST_PATHS = 2_000

Row = dict[str, Any]
Step = Mapping[str, Any]  # one operation, as `steps` has them
Getter = Callable[[Row], Any]

KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
}

_DAY = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_MOMENT = re.compile(
    rf"{_DAY}(?:[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?P<zone>Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_DIGIT = re.compile(r"\d", re.ASCII)
PART_OF_DATE = re.compile(r"\d{4}(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?", re.ASCII)


class Refused(Exception):
    """An operation that is not done; the message says why. `hints` say what to write instead."""

    def __init__(self, message: str, *hints: str) -> None:
        super().__init__(message)
        self.hints = tuple(dict.fromkeys(hints))


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


class Table:
    """Rows, and what is known of their columns. Rows are never changed: a step makes another table.

    `form` says how the table is shown: `objects`; `values`, of its one column; `single`, its one row, which is shown
    as the value where it has one column. `notes` are told with the result.
    """

    def __init__(self, rows: list[Row], form: str = "objects", notes: Sequence[str] = (), name: str = "") -> None:
        self.rows = rows
        self.form = form
        self.notes = tuple(notes)
        self.name = name  # of the array inside its wrapper
        self._held: dict[str, list[Any]] = {}
        self._like: Table | None = None  # has the same columns

    def kept(self, rows: list[Row], *notes: str) -> Table:
        """Some of its rows, with all of its columns: there may be no row left that has them."""
        table = Table(rows, self.form, (*self.notes, *notes), self.name)
        table._like = self
        return table

    def made(self, rows: list[Row], columns: Iterable[str], form: str, *notes: str) -> Table:
        """Rows with other columns, made of its own."""
        table = Table(rows, form, (*self.notes, *notes), self.name)
        table.columns = dict.fromkeys(columns)
        return table

    @cached_property
    def columns(self) -> dict[str, None]:
        """The names of the columns, in the order in which they are first seen."""
        return self._like.columns if self._like else dict.fromkeys(chain.from_iterable(self.rows))

    @cached_property
    def paths(self) -> dict[str, None]:
        """Fields of nested objects as `outer.inner`, to a depth and a number."""
        if self._like:
            return self._like.paths
        found: dict[str, None] = {}
        level = [(name, [value for row in self.rows if is_object(value := row.get(name))]) for name in self.columns]
        for _ in range(_DEEPEST):
            below: list[tuple[str, list[Any]]] = []
            for path, objects in level:
                for key in dict.fromkeys(chain.from_iterable(objects)):
                    if "." in key or "." in path.rpartition(".")[0] or f"{path}.{key}" in self.columns:
                        continue
                    if len(found) == _MOST_PATHS:
                        return found
                    found[f"{path}.{key}"] = None
                    inner = [value for each in objects if is_object(value := each.get(key))]
                    below += [(f"{path}.{key}", inner)] if inner else []
            level = below
        return found

    def getter(self, column: str) -> Getter:
        """What reads a column, or a field of nested objects by its path. Raises `Refused` where there is none."""
        if column in self.columns:
            return lambda row: row.get(column)
        if column in self.paths:
            return _path_getter(column.split("."))
        raise self.unknown(column)

    def held(self, column: str) -> list[Any]:
        """The values of a column, one for each row."""
        if column not in self._held:
            self._held[column] = list(map(self.getter(column), self.rows))
        return self._held[column]

    def present(self, column: str) -> list[Any]:
        """The values of a column that are not null."""
        return [value for value in self.held(column) if value is not None]

    def kinds(self, column: str) -> set[str]:
        """What a column holds beside null, in words of `KINDS`."""
        return {KINDS[each] for each in set(map(type, self.held(column))) if each in KINDS}

    def kind(self, column: str, wanted_for: str) -> str:
        """The one kind of a column's values, `nothing` where all are null. Raises `Refused` where kinds are mixed."""
        kinds = sorted(self.kinds(column))
        if len(kinds) > 1:
            raise Refused(f"Column {quoted(column)} mixes {' and '.join(kinds)}, so {wanted_for} is not defined")
        return kinds[0] if kinds else "nothing"

    def is_dates(self, column: str) -> bool:
        """Whether all values are ISO dates or times of one form, so that they compare as text."""
        values = self.present(column)
        return bool(values) and self.kinds(column) == {"text"} and one_form_of_dates(set(values))

    def nulls(self, column: str) -> int:
        return sum(value is None for value in self.held(column))

    def unknown(self, column: str) -> Refused:
        near = nearest(column, [*self.columns, *self.paths])
        if not self.rows and not self.columns:
            return Refused(f"The data is empty: it has no column {quoted(column)}")
        known = f"The columns are {listed(self.columns)}"
        return Refused(f"There is no column {quoted(column)}. {known}", *(f"Did you mean {each}?" for each in near))


def table_of(data: Any, path: str | None = None, header: bool | None = None) -> Table:
    """The rows that data stands for. `path` leads to the rows inside it; `header` says whether the first array of an
    array of arrays has the names of the columns. Raises `Refused`."""
    name = ""
    for part in path.split(".") if path else ():
        if not is_object(data) or part not in data:
            raise Refused(f"parameters.path: there is no {quoted(part)} on the way {path}")
        data, name = data[part], part
    if is_array(data):
        return _of_array(data, header, name)
    if is_object(data):
        return _of_object(data, header)
    raise Refused("data must be an array or an object")


def _of_array(items: list[Any], header: bool | None, name: str = "") -> Table:
    kinds = set(map(type, items))
    if kinds <= {dict}:
        return Table(items, name=name)
    if kinds == {list}:
        return _of_arrays(items, header, name)
    if kinds & {list, dict}:
        mixed = " and ".join(sorted({KINDS.get(each, "null") for each in kinds}))
        raise Refused(f"The data mixes {mixed} in one array, which is no table")
    return Table([{"value": item} for item in items], "values", name=name)


def _of_arrays(items: list[list[Any]], header: bool | None, name: str) -> Table:
    width = len(items[0])
    for number, item in enumerate(items, 1):
        if len(item) != width:
            raise Refused(f"Row {number} has {len(item)} values, but the first has {width}")
    first = items[0]
    could_be_names = all(isinstance(cell, str) and cell for cell in first) and len(set(first)) == width > 0
    if header and not could_be_names:
        raise Refused(
            "parameters.header is true, but the first row does not name the columns: they must be different texts"
        )
    if header is None and could_be_names:
        if not any(not isinstance(cell, str) for item in items[1:] for cell in item):
            raise Refused(
                "The first row may be names of columns or values",
                "Add parameters.header: true or false",
            )
        header = True
    names = first if header else [f"column_{number}" for number in range(1, width + 1)]
    rows = [dict(zip(names, item, strict=True)) for item in (items[1:] if header else items)]
    note = "The first row was taken as names of columns" if header else f"The columns were named {listed(names)}"
    return Table(rows, notes=(note,), name=name)


def _of_object(data: dict[str, Any], header: bool | None) -> Table:
    values = list(data.values())
    arrays = [key for key, value in data.items() if is_array(value)]
    if not data:
        return Table([])
    if all(is_object(value) for value in values):
        return _of_records(data)
    if len(arrays) == len(data) and _are_columns(values):
        rows = [dict(zip(data, cells, strict=True)) for cells in zip(*values, strict=True)]
        return Table(rows, notes=(f"Each array was taken as a column: {listed(data)}",))
    if len(arrays) == 1:
        found = _of_array(data[arrays[0]], header, arrays[0])
        return Table(found.rows, found.form, (*found.notes, f"The rows are those of {quoted(arrays[0])}"), arrays[0])
    if arrays:
        raise Refused(
            f"The data has several arrays: {listed(arrays)}",
            *(f"Add parameters.path: {quoted(key)}" for key in arrays[:5]),
        )
    kinds = set(map(_kind, values))
    if len(kinds) == 1 and not kinds & {None, "object"}:
        rows = [{"key": key, "value": value} for key, value in data.items()]
        return Table(rows, notes=("The keys of the object were taken as column key, its values as column value",))
    raise Refused("The data is one object, and neither an array, nor arrays by column, nor records by key")


def _kind(value: Any) -> str | None:
    return next((word for kind, word in KINDS.items() if type(value) is kind), None)


def _are_columns(values: list[Any]) -> bool:
    return len({len(value) for value in values}) == 1 and not any(
        isinstance(cell, dict | list) for value in values for cell in value
    )


def _of_records(data: dict[str, Any]) -> Table:
    if any("key" in record for record in data.values()):
        raise Refused("The records have a field key, which would hide their own keys", "Give the data as an array")
    rows = [{"key": key, **record} for key, record in data.items()]
    return Table(rows, notes=("The keys of the object were taken as column key",))


def _path_getter(parts: list[str]) -> Getter:
    def get(row: Row) -> Any:
        value: Any = row
        for part in parts:
            if not is_object(value):
                return None
            value = value.get(part)
        return value

    return get


def one_form_of_dates(values: Iterable[str]) -> bool:
    forms: set[str] = set()
    for value in values:
        matched = _MOMENT.fullmatch(value)
        if not matched:
            return False
        zone = matched["zone"] or ""
        forms.add(_DIGIT.sub("9", value.removesuffix(zone)) + zone)
        if len(forms) > 1:
            return False
    return True


def quoted(text: Any) -> str:
    """A value as it is shown in messages, cut to a length."""
    if isinstance(text, str):
        return f'"{text}"' if len(text) <= 60 else f'"{text[:60]}…"'
    return (
        {True: "true", False: "false"}.get(text, str(text))
        if isinstance(text, bool)
        else "null"
        if text is None
        else _number(text)
    )


def _number(value: Any) -> str:
    try:
        shown = str(value)
    except ValueError:  # Python does not write integers of more than 4,300 digits
        return "a very long number"
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def listed(names: Iterable[str]) -> str:
    """Names in a message: the first twenty of them."""
    names = list(names)
    shown = ", ".join(name if len(name) <= 60 else f"{name[:60]}…" for name in names[:20])
    return f"{shown}, and {len(names) - 20} more" if len(names) > 20 else shown


def nearest(word: str, names: Sequence[str]) -> list[str]:
    """Up to three names that are spelt like a word, or contain it."""
    wanted = plain(word)[:60]
    if not wanted:
        return []
    ranked: list[tuple[float, str]] = []
    for name in names[:2_000]:
        has = plain(name)[:60]
        if not has:
            continue
        contains = len(wanted) > 2 and len(has) > 2 and (wanted in has or has in wanted)
        score = 0.0 if contains else _distance(wanted, has) / max(len(wanted), len(has))
        if score <= 0.34:
            ranked.append((score, name))
    return [name for _, name in sorted(ranked, key=lambda each: each[0])[:3]]


def plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _distance(one: str, other: str) -> int:
    """How many letters are to be changed, added, left out, or swapped with the next."""
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, another in enumerate(other, 1):
            best = min(above[column] + 1, line[-1] + 1, above[column - 1] + (letter != another))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == another:
                best = min(best, before[column - 2] + 1)
            line.append(best)
        before, above = above, line
    return above[-1]


def sizes(original: int, processed: int) -> dict[str, Any]:
    """How many rows there were, how many there are, and how many per cent fewer that is."""
    fewer = 100.0 * (original - processed) / original if original else 0.0
    return {"original_size": original, "processed_size": processed, "reduction_percent": round(fewer, 2)}
