"""Steps said in SQL, by somebody who does not know how `steps` works: the other opinion of the property tests.

Each step is a SELECT over the one before. The rows keep their order by a column `_at`.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

AT = '"_at"'
TESTS = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<="}
SUMS = {"sum": "sum", "mean": "avg", "min": "min", "max": "max"}


def name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "'#true'" if value else "'#false'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def condition(each: dict[str, Any]) -> str:
    """An expression that is 1 or 0, never null."""
    if "not" in each:
        return f"(NOT {condition(each['not'])})"
    if "all" in each or "any" in each:
        return "(" + (" AND " if "all" in each else " OR ").join(map(condition, each.get("all") or each["any"])) + ")"
    column = name(each["column"])
    ((test, value),) = [(key, value) for key, value in each.items() if key != "column"]
    if test in TESTS:
        return f"coalesce({column} {TESTS[test]} {literal(value)}, 0)"
    if test == "between":
        return f"coalesce({column} BETWEEN {literal(value[0])} AND {literal(value[1])}, 0)"
    if test in ("is", "is_not"):
        return f"({column} {'IS' if test == 'is' else 'IS NOT'} {literal(value)})"
    if test in ("in", "not_in"):
        return f"({'NOT ' if test == 'not_in' else ''}coalesce({column} IN ({', '.join(map(literal, value))}), 0))"
    if test == "missing":
        return f"(coalesce(trim({column}, char(9,10,11,12,13,32)), '') {'=' if value else '<>'} '')"
    if test == "null":
        return f"({column} IS {'' if value else 'NOT '}NULL)"
    where = {"contains": "> 0", "starts_with": "= 1"}.get(test)
    if where:
        return f"coalesce(instr(lower({column}), lower({literal(value)})) {where}, 0)"
    return f"coalesce(substr(lower({column}), -length({literal(value)})) = lower({literal(value)}), 0)"


def order(keys: list[dict[str, Any]]) -> str:
    parts = []
    for key in keys:
        column, down = name(key["column"]), " DESC" if key.get("descending") else ""
        as_text = f"CASE typeof({column}) WHEN 'text' THEN lower({column}) ELSE {column} END"
        parts += [f"{column} IS NULL", f"{as_text}{down}", f"{column}{down}"]
    return ", ".join([*parts, AT])


def measure(each: dict[str, Any]) -> str:
    column = name(each.get("column") or "")
    if each["measure"] == "count":
        return "count(*)"
    if each["measure"] == "distinct":
        return f"count(DISTINCT {column})"
    return f"{SUMS[each['measure']]}({column})"


def select(step: dict[str, Any], before: str, columns: list[str]) -> tuple[str, list[str]]:
    ((operation, value),) = step.items()
    numbered = f"row_number() OVER (ORDER BY {AT}) - 1"
    if operation == "filter":
        return f"SELECT * FROM ({before}) WHERE {condition(value)}", columns
    if operation == "limit":
        return f"SELECT * FROM ({before}) ORDER BY {AT} LIMIT {value}", columns
    if operation == "skip":
        return f"SELECT * FROM ({before}) ORDER BY {AT} LIMIT -1 OFFSET {value}", columns
    if operation == "last":
        return f"SELECT * FROM ({before}) ORDER BY {AT} DESC LIMIT {value}", columns
    if operation in ("sort", "top"):
        keys = value["sort"] if operation == "top" else value
        names = ", ".join(map(name, columns))
        made = f"SELECT {names}, row_number() OVER (ORDER BY {order(keys)}) AS {AT} FROM ({before})"
        return (made + f" ORDER BY {AT} LIMIT {value['count']}" if operation == "top" else made), columns
    if operation == "distinct":
        names = ", ".join(map(name, value or columns))
        return f"SELECT * FROM ({before}) WHERE {AT} IN (SELECT min({AT}) FROM ({before}) GROUP BY {names})", columns
    if operation in ("select", "values"):
        kept = [value] if operation == "values" else value
        return f"SELECT {', '.join(map(name, kept))}, {AT} FROM ({before})", kept
    if operation == "drop":
        kept = [column for column in columns if column not in value]
        return f"SELECT {', '.join(map(name, kept))}, {AT} FROM ({before})", kept
    if operation == "date":
        length = {"year": 4, "month": 7, "day": 10}[value["part"]]
        return f"SELECT *, substr({name(value['column'])}, 1, {length}) AS {name(value['as'])} FROM ({before})", [
            *columns,
            value["as"],
        ]
    if operation == "group":
        by = ", ".join(map(name, value["by"]))
        measures = ", ".join(f"{measure(each)} AS {name(each['as'])}" for each in value["measures"])
        made = f"SELECT {by}, {measures}, min({AT}) AS {AT} FROM ({before}) GROUP BY {by}"
        return made, [*value["by"], *(each["as"] for each in value["measures"])]
    assert operation == "aggregate", (operation, numbered)
    measures = ", ".join(f"{measure(each)} AS {name(each['as'])}" for each in value)
    return f"SELECT {measures}, 0 AS {AT} FROM ({before})", [each["as"] for each in value]


def evaluated(steps: list[dict[str, Any]], rows: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """The columns, and the rows that the steps make of them."""
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["nothing"]
    connection = sqlite3.connect(":memory:")
    try:
        names = ", ".join(map(name, columns))
        connection.execute(f"CREATE TABLE data ({names}, {AT})")
        cells = [[_cell(row.get(column)) for column in columns] + [at] for at, row in enumerate(rows)]
        connection.executemany(f"INSERT INTO data VALUES ({', '.join('?' * (len(columns) + 1))})", cells)
        query = "SELECT * FROM data"
        for step in steps:
            query, columns = select(step, query, columns)
        shown = f"SELECT {', '.join(map(name, columns))} FROM ({query}) ORDER BY {AT}"
        return columns, [list(row) for row in connection.execute(shown)]
    finally:
        connection.close()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "#true" if value else "#false"
    return json.dumps(value) if isinstance(value, list | dict) else value
