"""What is computed of the values of a column: a closed table. Nulls are left out, and counted in a note.

Integers are summed exactly, other numbers with `math.fsum`. Of no values at all each measure but a count is null.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from toolgate.sandbox.dataset.conditions import key_of
from toolgate.sandbox.dataset.tables import Refused, Table, quoted


class Measure(NamedTuple):
    compute: Callable[[list[Any]], Any]  # of values that are not null
    needs: str  # "nothing", "scalars", "order", or "numbers"
    words: str  # with {} for the column


def _different(values: list[Any]) -> int:
    return len(set(map(key_of, values)))


def _sum(values: list[Any]) -> Any:
    if not values:
        return None
    return sum(values) if all(type(value) is int for value in values) else _finite(math.fsum(values))


def _mean(values: list[Any]) -> Any:
    total = _sum(values)
    return None if total is None else _finite(total / len(values))


def _median(values: list[Any]) -> Any:
    return _finite(statistics.median(values)) if values else None


def _deviation(values: list[Any]) -> Any:
    """Of a sample; in floats from the exact mean, in two passes."""
    if len(values) < 2:
        return None
    mean = _mean(values)
    return _finite(math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError
    return value


def _least(values: list[Any]) -> Any:
    return min(values, default=None)


def _most(values: list[Any]) -> Any:
    return max(values, default=None)


MEASURES: Mapping[str, Measure] = {
    "count": Measure(len, "nothing", "the number of rows"),
    "distinct": Measure(_different, "scalars", "the number of different values of {}"),
    "sum": Measure(_sum, "numbers", "the sum of {}"),
    "mean": Measure(_mean, "numbers", "the mean of {}"),
    "median": Measure(_median, "numbers", "the median of {}"),
    "min": Measure(_least, "order", "the least {}"),
    "max": Measure(_most, "order", "the greatest {}"),
    "stddev": Measure(_deviation, "numbers", "the standard deviation of {} (of a sample)"),
}


def computed(name: str, column: str | None, values: list[Any]) -> Any:
    """A measure of values, nulls left out. Raises `Refused` where a number becomes too large."""
    measure = MEASURES[name]
    if measure.needs == "nothing":
        return len(values)
    try:
        return measure.compute([value for value in values if value is not None])
    except (OverflowError, ValueError):
        raise Refused(
            f"{measure.words.format(quoted(column))} is too large, or of values that are no finite numbers"
        ) from None


def check_measure(name: Any, column: Any, table: Table) -> None:
    """Whether a measure is defined for what a column holds. Raises `Refused`."""
    if name not in MEASURES:
        raise Refused(f"A measure is one of {', '.join(MEASURES)}, not {quoted(name)}")
    measure = MEASURES[name]
    if measure.needs == "nothing":
        if column is not None:
            raise Refused("count counts rows and has no column; distinct counts different values")
        return
    if not isinstance(column, str):
        raise Refused(f"{name} needs a column")
    wanted = measure.words.format(quoted(column))
    if measure.needs == "scalars":
        if table.kinds(column) & {"list", "object"}:
            raise Refused(f"Column {quoted(column)} holds lists or objects, so {wanted} is not defined")
        return
    kind = table.kind(column, wanted)
    if kind in ("number", "nothing") or (measure.needs == "order" and table.is_dates(column)):
        return
    hints = [f"convert {column} to numbers, then sort by {column}"] if kind == "text" else []
    raise Refused(f"Column {quoted(column)} holds {kind}, so {wanted} is not defined", *hints)


def measured_words(measure: Mapping[str, Any]) -> str:
    return MEASURES[measure["measure"]].words.format(measure.get("column"))


def default_name(name: str, column: str | None) -> str:
    return name if column is None else f"{name}_{column}"
