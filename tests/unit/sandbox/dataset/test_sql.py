"""One SELECT on the data: what it may do, and what it may not."""

import sqlite3
import subprocess
import sys

import pytest
from unit.sandbox.dataset.operations import ORDERS

from toolgate.sandbox.dataset.runner import process
from toolgate.sandbox.dataset.sql import MOST_COLUMNS

CLOSED = [
    "attach ':memory:' as other",
    "attach database 'file:x?mode=rwc' as other",
    "detach main",
    "pragma table_info(data)",
    "pragma writable_schema = 1",
    "select * from pragma_table_info('data')",
    "select * from pragma_database_list",
    "select sql from sqlite_master",
    "select * from sqlite_schema",
    "select name from sqlite_temp_master",
    "select load_extension('x')",
    "select readfile('x')",
    "select writefile('x', 'y')",
    "select fts3_tokenizer('x')",
    "select zeroblob(1000000000)",
    "select randomblob(1000000000)",
    "select 1; select 2",
    "select 1; drop table data",
    "drop table data",
    "delete from data",
    "update data set price = 0",
    "insert into data (id) values (1)",
    "insert into data (id) values (1) returning id",
    "create table other (x)",
    "create temp table other (x)",
    "create view other as select 1",
    "create virtual table other using fts5(x)",
    "create trigger t after insert on data begin select 1; end",
    "alter table data rename to other",
    "vacuum",
    "vacuum into 'x'",
    "reindex",
    "analyze",
    "begin",
    "commit",
    "savepoint x",
    "explain select 1",
    "explain query plan select 1",
    "with x as (select 1) delete from data",
    "select product glob '*a*' from data",
    "select product regexp 'a' from data",
    "select product match 'a' from data",
    "select sqlite_version()",
    "select sqlite_compileoption_get(1)",
    "select last_insert_rowid()",
    "select 9e999",
    "select cast('a' as blob)",
    "select id, id from data",
    "select x'00'",
    "",
    "-- nothing",
    "not sql",
    "select " + "(" * 5_000 + "1" + ")" * 5_000,
    "select " + " union all select ".join(["1"] * 1_000),
    "select 1" + " " * 60_000,
]

ENDLESS = [
    "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c",
    "select count(*) from data a, data b, data c, data d, data e, data f, data g, data h, data i, data j",
    "with recursive c(x, y) as (select 1, 'a' union all select x + 1, y || y from c) select length(y) from c",
]

HUGE = [
    "with recursive c(x) as (select 1 union all select x + 1 from c) select printf('%.*c', 9000, x) y from c",
    "select a.*, b.id i2, c.id i3, d.id i4, e.id i5, f.id i6 from data a, data b, data c, data d, data e, data f",
]


def by_sql(statement: object, data: object = ORDERS, seconds: float = 30) -> dict:
    return process({"data": data, "operation": "", "parameters": {"sql": statement}, "seconds": seconds})


def test_a_select_is_run_on_all_rows():
    reply = by_sql("select country, count(*) orders, sum(revenue) revenue from data group by 1 order by 2 desc, 1")
    assert reply["result"] == [
        {"country": "DE", "orders": 4, "revenue": 450},
        {"country": "US", "orders": 4, "revenue": 644},
        {"country": "FR", "orders": 2, "revenue": 112},
    ]
    assert (reply["original_size"], reply["processed_size"], reply["reduction_percent"]) == (10, 3, 70.0)
    assert reply["method"] == "sql" and "all 10 rows" in reply["interpretation"]


@pytest.mark.parametrize("statement", CLOSED)
def test_all_else_is_refused(statement: str):
    assert not by_sql(statement)["success"]


@pytest.mark.parametrize("statement", ENDLESS)
def test_a_select_without_end_is_ended(statement: str):
    assert not by_sql(statement, seconds=0.2)["success"]


@pytest.mark.parametrize("statement", HUGE)
def test_a_result_has_a_bound(statement: str):
    assert "larger" in by_sql(statement)["error"]


def test_like_takes_time_by_the_length_of_the_text():
    rows = [{"t": "a" * 5_000}]
    assert by_sql("select count(*) as n from data where t like '" + "%a" * 400 + "%b'", rows)["result"] == [{"n": 0}]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a%", "abc"), ("a%", "ba"), ("%c", "abc"), ("%c", "cb"), ("a_c", "abc"), ("a_c", "ac"), ("%", ""), ("", ""),
        ("", "a"),
        ("_", ""), ("%a%a%", "a"), ("%a%a%", "aa"), ("ABC", "abc"), ("É", "é"), ("a%b%c", "a.b.c"), ("a%b%c",
        "a.c.b"), ("ab%ab", "ab"),
        ("%ab%", "xaby"), ("_%_", "a"), ("_%_", "ab"), ("a.c", "abc"), ("%\n", "a\n"), ("%[a]", "[a]"), ("%.", "a."),
        ("%x-y", "x-y"),
    ],
)  # fmt: skip
def test_like_is_that_of_sqlite(pattern: str, text: str):
    (expected,) = sqlite3.connect(":memory:").execute("select ? like ?", (text, pattern)).fetchone()
    given = pattern.replace("'", "''")
    assert by_sql(f"select t like '{given}' as n from data", [{"t": text}])["result"] == [{"n": expected}]


def test_like_with_a_sign_that_escapes():
    statement = "select t from data where t like '%!%' escape '!'"
    assert by_sql(statement, [{"t": "5%"}, {"t": "5"}])["result"] == [{"t": "5%"}]


def test_odd_names_are_columns():
    rows = [{"select": 1, 'a "b"': 2, "": 3, "Price": 4, "price": 5, "x;--": 6, "ß": 7}]
    reply = by_sql('select "select", "a ""b""" as b, "Price", price_2, "x;--", "ß" from data', rows)
    assert reply["result"] == [{"select": 1, "b": 2, "Price": 4, "price_2": 5, "x;--": 6, "ß": 7}]
    assert 'Column "price" is named "price_2" in SQL' in reply["notes"]


def test_nested_values_are_json():
    rows = [{"a": {"b": [1, 2]}, "t": [3, 4]}]
    reply = by_sql("select json_extract(a, '$.b[1]') b, (select sum(value) from json_each(data.t)) s from data", rows)
    assert reply["result"] == [{"b": 2, "s": 7}]


def test_an_unknown_column_is_told_with_what_there_is():
    reply = by_sql("select prices from data")
    assert "no such column: prices" in reply["error"] and reply["hints"] == ["Did you mean price?"]


@pytest.mark.parametrize("value", [2**63, float("nan"), float("inf"), "\ud800"])
def test_what_sql_cannot_hold_is_refused(value: object):
    assert not by_sql("select count(*) from data", [{"a": value}])["success"]


def test_too_many_columns_are_refused():
    assert "columns" in by_sql("select 1", [{f"c{number}": 1 for number in range(MOST_COLUMNS + 1)}])["error"]
    assert by_sql("select c5 from data", [{f"c{number}": 1 for number in range(MOST_COLUMNS)}])["success"]


MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (512 * 2**20,) * 2)
from toolgate.sandbox.dataset.runner import process
endless = "with recursive c(x) as (select 1 union all select x + 1 from c) "
for sql in (
    endless + "select count(distinct printf('%.*c', 900000, 'x') || x) n from c",
    "select length(group_concat(replace(printf('%.*c', 9000000, 'x'), 'x', 'yyyyyyyyyy'))) n from data",
    endless + "select json_group_array(x) n from c",
):
    reply = process({"data": [{"a": 1}, {"a": 2}], "operation": "", "parameters": {"sql": sql}, "seconds": 2})
    assert not reply["success"] or reply["result"][0]["n"] is None, reply
assert process({"data": [{"a": 1}], "operation": "count"})["result"] == 1
# Not by `getrusage`, which counts what the process was before it became this program.
[peak] = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
assert peak < 600_000, peak
print("alive")
"""


def test_memory_has_a_bound_and_the_next_run_is_fine():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.splitlines()[-1:] == ["alive"], done.stdout + done.stderr[-2_000:]
