"""The parts of a sentence as steps, or None where they do not fit together in one way.

A filter belongs before what sorts, cuts, groups or shows, wherever the sentence has it; where that would matter
(after "first
10", after duplicates are removed, on a column that is also summed up) the sentence can be read in two ways, which is a
problem and no steps. Only "then" makes an order that is always the order of the steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolgate.sandbox.dataset.conditions import columns_in
from toolgate.sandbox.dataset.measures import default_name
from toolgate.sandbox.dataset.rows import MIXED, Measured, Stage, tidy
from toolgate.sandbox.dataset.scope import Scope
from toolgate.sandbox.dataset.tables import Step

_PREPARES = {"filter", "number", "flatten", "rename", "date"}  # steps before which a filter need not be
_CUTS = {"limit", "last", "skip", "top"}


class _Unfit(Exception):
    """The parts do not fit together."""


def compose(scope: Scope, parts: Sequence[tuple[bool, Stage]]) -> list[Step] | None:
    """Stages in the order of the sentence, each with whether a comma or `and` stands before it."""
    draft = _Draft(scope)
    try:
        for is_apart, stage in parts:
            for step in stage:
                ((name, operand),) = step.items()
                getattr(draft, f"add_{name}")(operand, is_apart)
    except _Unfit:
        return None
    return _merged(draft.steps) or None


def _merged(steps: Sequence[dict[str, Any]]) -> list[Step]:
    """Filters beside each other as one, so that the same reading is the same steps."""
    made: list[Step] = []
    for step in map(tidy, steps):
        if "filter" in step and made and "filter" in made[-1]:
            made[-1] = {"filter": {"all": [*_parts(made[-1]["filter"]), *_parts(step["filter"])]}}
        elif "filter" in step:
            parts = _parts(step["filter"])
            made.append({"filter": parts[0] if len(parts) == 1 else {"all": parts}})
        else:
            made.append(step)
    return made


def _parts(condition: Any) -> list[Any]:
    return [part for each in condition["all"] for part in _parts(each)] if "all" in condition else [condition]


class _Draft:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.steps: list[dict[str, Any]] = []
        self.columns: set[str] = {*scope.table.columns, *scope.table.paths}  # of the result so far
        self.measured: dict[Measured, str] = {}  # by measure, its column
        self.by: list[str] = []

    def _has(self, *names: str) -> bool:
        return any(step.keys() & set(names) for step in self.steps)

    def _need(self, fits: Any, problem: str = "", *hints: str) -> None:
        if not fits:
            if problem:
                self.scope.problem(99, problem, *hints)
            raise _Unfit

    # Rows.

    def add_filter(self, condition: Any, is_apart: bool) -> None:
        is_loose = '"loose"' in json.dumps([condition, *(step["filter"] for step in self.steps if "filter" in step)])
        self._need(not (is_apart and is_loose and self._has("filter")), *MIXED)
        columns = columns_in(condition)
        inputs = {*self.scope.table.columns, *self.scope.table.paths}
        self._need(columns <= inputs and not self._has("rename", "flatten"))
        cuts = [step for step in self.steps if step.keys() & _CUTS]
        is_unclear = any("top" not in step for step in cuts) or (cuts and is_apart)
        self._need(
            not is_unclear,
            "A condition after a number of rows may be meant before or after they are taken",
            "only rows where price > 5, then first 10 rows",
            "first 10 rows, then only rows where price > 5",
        )
        removes_duplicates = self._has("distinct") and not self._has("select", "values")
        self._need(
            not removes_duplicates,
            "A condition may be meant before or after duplicates are removed",
            "only rows where price > 5, then remove duplicates",
        )
        sources = {measured.column for measured in self.measured} if self.by else set[Any]()
        self._need(
            not columns & sources,
            f"A condition on {', '.join(sorted(columns))} may be meant for the rows or for the figure of each group",
            "only rows where price > 5, then total price by status",
            "total price by status, then only rows where price > 5",
        )
        index = next((i for i, step in enumerate(self.steps) if not step.keys() & _PREPARES), len(self.steps))
        self.steps.insert(index, {"filter": condition})

    def add_having(self, operand: Any, is_apart: bool) -> None:
        measured, test = operand
        self._need(measured in self.measured and self.by and not self._has(*_CUTS, "select"))
        self.steps.append({"filter": {"column": self.measured[measured], **test}})

    def add_limit(self, count: int, is_apart: bool) -> None:
        self._need(not self._has("limit", "last", "top", "aggregate"))
        self._append_row_step({"limit": count})

    def add_last(self, count: int, is_apart: bool) -> None:
        self._need(not self._has(*_CUTS, "aggregate", "sort"))
        self._append_row_step({"last": count})

    def add_skip(self, count: int, is_apart: bool) -> None:
        self._need(not self._has(*_CUTS, "aggregate"))
        self._append_row_step({"skip": count})

    def _append_row_step(self, step: dict[str, Any]) -> None:
        self.steps.insert(len(self.steps) - self._has("values"), step)

    def add_best(self, count: int, is_apart: bool) -> None:
        """ "top 5" at the end: of what is sorted, or of the groups by their one figure."""
        self._need(not self._has(*_CUTS, "aggregate"))
        if self._has("sort"):
            keys = next(step["sort"] for step in self.steps if "sort" in step)
            self._need(
                "descending" in keys[0],
                "Top after a sort without a direction is not clear",
                "sort by price, highest first, top 5",
            )
            return self._append_row_step({"limit": count})
        self._need(
            len(self.measured) == 1 and self.by, "It is not clear by what to take the top rows", "top 5 by price"
        )
        key = {"column": next(iter(self.measured.values())), "descending": True}
        self.steps.append({"top": {"count": count, "sort": [key]}})

    def add_top(self, operand: Any, is_apart: bool) -> None:
        self._need(not self._has(*_CUTS, "sort", "aggregate", "values"))
        keys = self._keys(operand["sort"])
        self._need({key["column"] for key in keys} <= self.columns)
        self.steps.append({"top": {"count": operand["count"], "sort": keys}})

    def add_sort(self, operand: Iterable[Mapping[str, Any]], is_apart: bool) -> None:
        self._need(not self._has("sort", "aggregate", "skip"))
        self._need(
            not self._has("limit", "last"),
            "A sort after a number of rows may be meant before or after they are taken",
            "sort by price, then first 10 rows",
            "first 10 rows, then sort by price",
        )
        keys = self._keys(operand)
        columns = {key["column"] for key in keys}
        self._need(len(columns) == len(keys))
        if columns <= self.columns and not self._has("values"):
            self.steps.append({"sort": keys})
            return
        self._need(not self.by and not self._has("top", "rename", "flatten"))
        self._need(columns <= {*self.scope.table.columns, *self.scope.table.paths})
        at = next(i for i, step in enumerate(self.steps) if step.keys() & {"select", "values", "distinct", "drop"})
        shown = [step for step in self.steps[at:] if "distinct" in step]
        self._need(not shown or columns <= {*shown[0]["distinct"]})
        self.steps.insert(at, {"sort": keys})

    def _keys(self, given: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for key in given:
            order = {"descending": key["descending"]} if "descending" in key else {}
            if "it" in key:
                self._need(
                    len(self.measured) == 1 and self.by and not made,
                    "It is not clear what to sort by",
                    "sort by price, highest first",
                )
                made.append({"column": next(iter(self.measured.values())), **order})
            elif "measured" in key:
                self._need(key["measured"] in self.measured and self.by)
                made.append({"column": self.measured[key["measured"]], **order})
            else:
                made.append(dict(key))
        return made

    def add_distinct(self, columns: list[str], is_apart: bool) -> None:
        self._need(
            not self._has(*_CUTS, "distinct", "aggregate", "group", "values", "sort") and set(columns) <= self.columns
        )
        self.steps.append({"distinct": columns})

    # Columns.

    def add_select(self, columns: list[str], is_apart: bool) -> None:
        self._need(not self._has("select", "values", "drop", "aggregate") and set(columns) <= self.columns)
        self._need(len(set(columns)) == len(columns))
        self.steps.append({"select": columns})
        self.columns = set(columns)

    def add_values(self, column: str, is_apart: bool) -> None:
        self._need(not self._has("select", "values", "drop", "aggregate", "group") and column in self.columns)
        self.steps.append({"values": column})
        self.columns = {column}

    def add_drop(self, columns: list[str], is_apart: bool) -> None:
        self._need(not self._has("values", "aggregate", "drop") and set(columns) <= self.columns)
        self._need(
            set(columns) <= {*self.scope.table.columns}, f"Only whole columns can be left out, not {', '.join(columns)}"
        )
        self.steps.append({"drop": columns})
        self.columns -= set(columns)

    def add_rename(self, names: dict[str, str], is_apart: bool) -> None:
        self._need(not self._has("values", "aggregate", "rename", "drop") and names.keys() <= self.columns)
        self.steps.append({"rename": names})
        self.columns = self.columns - names.keys() | set(names.values())

    def add_flatten(self, columns: list[str], is_apart: bool) -> None:
        self._need(not self.steps or self.steps[-1].keys() & _PREPARES)
        self.steps.append({"flatten": columns})

    def add_number(self, columns: list[str], is_apart: bool) -> None:
        self._need(not self._has("values", "aggregate", "group") and set(columns) <= self.columns)
        self.steps.append({"number": columns})

    # Figures.

    def add_group(self, operand: Any, is_apart: bool) -> None:
        by, measures = operand
        self._need(
            not self._has(*_CUTS),
            "A figure after a number of rows may be meant of them or of all",
            "first 10 rows, then count by status",
        )
        self._need(not self._has("group", "aggregate", "values", "sort"))
        named = [self._group_column(each) for each in by]
        self._need(set(named) <= self.columns and len(set(named)) == len(named))
        self._measure(measures, named)
        self.by = named
        self.steps.append({"group": {"by": named, "measures": self._rows_of(measures)}})
        self.columns = {*named, *self.measured.values()}

    def _group_column(self, each: Any) -> str:
        if isinstance(each, str):
            return each
        part, column = each
        name = part if part not in self.columns else f"{column}_{part}"
        self._need(name not in self.columns and column in self.columns)
        self.steps.append({"date": {"column": column, "part": part, "as": name}})
        self.columns.add(name)
        return name

    def add_aggregate(self, measures: Sequence[Measured], is_apart: bool) -> None:
        self._need(
            not self._has(*_CUTS),
            "A figure after a number of rows may be meant of them or of all",
            "first 10 rows, then count by status",
        )
        self._need(not self._has("group", "aggregate", "values", "sort"))
        self._measure(measures, [])
        self.steps.append({"aggregate": self._rows_of(measures)})
        self.columns = set()

    def _measure(self, measures: Sequence[Measured], taken: list[str]) -> None:
        for measured in measures:
            self._need(measured.column is None or measured.column in self.columns)
            name = default_name(measured.measure, measured.column)
            while name in [*taken, *self.measured.values()]:
                name += "_2"
            self.measured[measured] = name

    def _rows_of(self, measures: Sequence[Measured]) -> list[dict[str, str]]:
        made: list[dict[str, str]] = []
        for each in measures:
            column = {} if each.column is None else {"column": each.column}
            made.append({"measure": each.measure, **column, "as": self.measured[each]})
        return made
