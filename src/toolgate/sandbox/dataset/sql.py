"""The data as the table `data` of SQLite in memory, and one SELECT on it.

Everything but reading that table by the functions of FUNCTIONS is closed by SQLite's authorizer. Nested values are JSON
text (`json_extract` reads them), true and false are 1 and 0. Names that SQLite takes for one, since it ignores case,
get a number. The time is bounded by a deadline, a text in the middle by SQLite's limits, the result by its size.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from toolgate.sandbox.dataset.tables import Refused, Row, Table, listed, nearest, quoted

MOST_COLUMNS = 1_000
_LONGEST = 50 * 1024  # characters of a statement
_MOST_RESULT = 10 * 1024 * 1024  # characters of texts and cells, eight for each other cell
_LONGEST_VALUE = 10 * 1024 * 1024  # bytes
_MOST_INTEGER = 2**63 - 1

FUNCTIONS = frozenset(
    [
        "abs",
        "avg",
        "ceil",
        "ceiling",
        "char",
        "coalesce",
        "concat",
        "concat_ws",
        "count",
        "cume_dist",
        "date",
        "datetime",
        "dense_rank",
        "exp",
        "first_value",
        "floor",
        "format",
        "group_concat",
        "hex",
        "ifnull",
        "iif",
        "instr",
        "json",
        "json_array",
        "json_array_length",
        "json_each",
        "json_extract",
        "json_group_array",
        "json_group_object",
        "json_object",
        "json_quote",
        "json_tree",
        "json_type",
        "json_valid",
        "julianday",
        "lag",
        "last_value",
        "lead",
        "length",
        "like",
        "likelihood",
        "likely",
        "ln",
        "log",
        "log10",
        "log2",
        "lower",
        "ltrim",
        "max",
        "min",
        "mod",
        "nth_value",
        "ntile",
        "nullif",
        "octet_length",
        "percent_rank",
        "pi",
        "pow",
        "power",
        "printf",
        "quote",
        "radians",
        "degrees",
        "rank",
        "replace",
        "round",
        "row_number",
        "rtrim",
        "sign",
        "sqrt",
        "strftime",
        "string_agg",
        "substr",
        "substring",
        "sum",
        "time",
        "timediff",
        "total",
        "trim",
        "trunc",
        "typeof",
        "unicode",
        "unixepoch",
        "unlikely",
        "upper",
        "->",
        "->>",
        "acos",
        "asin",
        "atan",
        "atan2",
        "cos",
        "cosh",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ]
)

_READABLE = {"data", "json_each", "json_tree"}

_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE),
    (sqlite3.SQLITE_LIMIT_COLUMN, MOST_COLUMNS + 10),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (sqlite3.SQLITE_LIMIT_VDBE_OP, 100_000),
    (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 100),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)


def run(statement: Any, table: Table, seconds: float) -> Table:
    """The rows that a SELECT gives, as another table. Raises `Refused`."""
    if not isinstance(statement, str) or not statement.strip() or len(statement) > _LONGEST:
        raise Refused(f"parameters.sql is one SELECT of at most {_LONGEST} characters")
    deadline = time.monotonic() + seconds
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    try:
        notes = _fill(connection, table)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        connection.set_authorizer(_allowed)
        return Table(_rows(connection, statement), "objects", [*table.notes, *notes])
    except sqlite3.Error as error:
        if time.monotonic() > deadline:
            raise Refused(f"The SELECT takes longer than {seconds:g} s") from None
        raise _failed(error, table) from None
    except (UnicodeError, ValueError, OverflowError) as error:
        raise Refused(f"SQL cannot hold this: {str(error)[:200]}") from None
    finally:
        connection.close()


def interpretation(statement: str, table: Table) -> str:
    return f"Run this SELECT on all {len(table.rows)} rows, as table data: {' '.join(statement.split())}"


def names_in_sql(table: Table) -> dict[str, str]:
    """By column, its name in SQL: another one only where two differ in case alone, or the name has no letters."""
    made: dict[str, str] = {}
    taken: set[str] = set()
    for column in table.columns:
        name = column.replace("\0", "") or "column"
        number, unique = 2, name
        while _folded(unique) in taken:
            unique, number = f"{name}_{number}", number + 1
        taken.add(_folded(unique))
        made[column] = unique
    return made


def _folded(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: letter[0].lower(), name)


def _fill(connection: sqlite3.Connection, table: Table) -> list[str]:
    names = names_in_sql(table)
    if not names:
        raise Refused("The data is empty: it has no columns")
    if len(names) > MOST_COLUMNS:
        raise Refused(f"The data has {len(names)} columns; SQL takes at most {MOST_COLUMNS}")
    for limit, value in _LIMITS:
        connection.setlimit(limit, value)
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")  # made once, before the authorizer closes that
    connection.create_function("like", 2, _like, deterministic=True)
    connection.create_function("like", 3, _like, deterministic=True)
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names.values())
    connection.execute(f"CREATE TABLE data ({columns})")
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO data VALUES ({', '.join('?' * len(names))})", _cells(table, list(names)))
    connection.execute("COMMIT")
    renamed = [f"Column {quoted(old)} is named {quoted(new)} in SQL" for old, new in names.items() if old != new]
    kinds = set[str]().union(*(table.kinds(column) for column in names))
    notes = ["Nested values are JSON text in SQL"] if kinds & {"list", "object"} else []
    return [*renamed, *notes, *(["true and false are 1 and 0 in SQL"] if "true or false" in kinds else [])]


def _cells(table: Table, columns: list[str]) -> Iterator[list[Any]]:
    for row in table.rows:
        yield [_cell(row.get(column)) for column in columns]


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused("The data holds values that are no finite numbers")
    if isinstance(value, int) and not -_MOST_INTEGER - 1 <= value <= _MOST_INTEGER:
        raise Refused(f"SQL cannot hold {quoted(value)}: integers have at most 64 bits there", "use parameters.steps")
    return value


def _allowed(action: int, one: str | None, two: str | None, database: str | None, inner: str | None) -> int:
    allowed = (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)
        or (action == sqlite3.SQLITE_READ and (one or "").lower() in _READABLE)
        or (action == sqlite3.SQLITE_READ and not two)  # a table of which no column is read: of no use for others
        or (action == sqlite3.SQLITE_FUNCTION and (two or "").lower() in FUNCTIONS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _rows(connection: sqlite3.Connection, statement: str) -> list[Row]:
    cursor = connection.execute(statement)
    if not cursor.description or statement.lstrip()[:7].lower() == "explain":
        raise Refused("parameters.sql must be one SELECT")
    names = [column[0] for column in cursor.description]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise Refused(f"Two columns of the result are named {listed(twice)}", "Give each a name of its own with AS")
    rows: list[Row] = []
    size = 0
    for cells in cursor:
        size += sum(len(cell) if isinstance(cell, str) else 8 for cell in cells)
        if size > _MOST_RESULT:
            raise Refused(f"The result is larger than {_MOST_RESULT} characters", "Aggregate more, or add LIMIT")
        if any(isinstance(cell, bytes) or (isinstance(cell, float) and math.isinf(cell)) for cell in cells):
            raise Refused("The result holds a blob or an infinite number, which JSON does not have")
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _failed(error: sqlite3.Error, table: Table) -> Refused:
    message = str(error)
    unknown = re.match(r"no such column: (?:\w+\.)?(.{1,200})", message)
    if unknown:
        near = nearest(unknown[1], list(table.columns))
        return Refused(
            f"{message}. The columns are {listed(table.columns)}", *(f"Did you mean {name}?" for name in near)
        )
    if "no such table" in message:
        return Refused(message, "The table is named data")
    if "not authorized" in message or "prohibited" in message or "one statement" in message:
        return Refused(f"parameters.sql must be one SELECT that reads data by SQLite's usual functions ({message})")
    return Refused(f"SQL error: {message[:500]}")


def _like(pattern: Any, text: Any, escape: Any = None) -> bool | None:
    """LIKE in time that is bounded by the length of the text: SQLite's own tries every way."""
    if pattern is None or text is None:
        return None
    return _matches(_pieces(_lowered(pattern), escape), _lowered(text))


def _lowered(value: Any) -> str:
    return _folded(value if isinstance(value, str) else str(value))


@lru_cache(maxsize=64)
def _pieces(pattern: str, escape: Any) -> tuple[re.Pattern[str], ...]:
    """What stands between the signs %, each with a fixed length."""
    pieces: list[str] = []
    piece, letters = "", iter(pattern)
    escape = _folded(escape) if isinstance(escape, str) else None
    for letter in letters:
        if letter == escape:
            piece += re.escape(next(letters, ""))
        elif letter == "%":
            pieces.append(piece)
            piece = ""
        else:
            piece += "." if letter == "_" else re.escape(letter)
    return tuple(re.compile(each, re.DOTALL) for each in (*pieces, piece))


def _matches(pieces: tuple[re.Pattern[str], ...], text: str) -> bool:
    first, *others = pieces
    if not others:
        return first.fullmatch(text) is not None
    found = first.match(text)
    for piece in others[:-1]:
        found = found and piece.search(text, found.end())
    if not found:
        return False
    last = others[-1].pattern
    length = len(re.sub(r"\\(.)", r"\1", last, flags=re.DOTALL))
    return len(text) - length >= found.end() and others[-1].fullmatch(text, len(text) - length) is not None
