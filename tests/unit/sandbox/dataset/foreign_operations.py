"""Operations in the words of somebody who has not seen the grammar, each with all answers that would be right: one of
them comes, or a refusal. What is right is computed here from the rows, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import mean, median
from typing import Any

Row = dict[str, Any]

# id, customer, city, status, category, price, quantity, ordered, express, email, note
_COLUMNS = ("id", "customer", "city", "status", "category", "price", "quantity", "ordered", "express", "email", "note")
_ROWS = (
    (1, "Ada", "London", "open", "book", 12.5, 2, "2024-01-15", True, "ada@example.org", "gift"),
    (2, "Grace", "New York", "closed", "toy", 99.0, 1, "2024-02-03", False, "grace@navy.mil", ""),
    (3, "Alan", "London", "open", "game", 59.99, 3, "2023-12-31", False, "alan@example.org", None),
    (4, "Edsger", "Rotterdam", "cancelled", "book", 30.0, 1, "2024-03-10", True, None, "late"),
    (5, "Barbara", "Boston", "closed", "book", 45.0, 2, "2024-01-02", False, "barbara@mit.edu", "open"),
    (6, "Donald", "Palo Alto", "open", "toy", 5.0, 10, "2024-02-29", True, "don@example.org", "gift"),
    (7, "Ada", "London", "closed", "game", 59.99, 1, "2024-03-01", False, "ada@example.org", "price"),
    (8, "Margaret", "Boston", "open", "book", 100.0, 1, "2024-01-20", True, "margaret@mit.edu", None),
    (9, "Linus", "Portland", "closed", "toy", 0.0, 5, "2023-11-11", False, None, "free"),
    (10, "Ken", "New York", "cancelled", "game", 120.0, 2, "2024-02-14", True, "ken@bell.com", "late"),
    (11, "Grace", "New York", "open", "book", None, 4, "2024-03-05", False, "grace@navy.mil", "gift"),
    (12, "Barbara", "Boston", "closed", "toy", 45.0, 7, "2024-01-31", True, "barbara@mit.edu", ""),
)
ROWS: list[Row] = [dict(zip(_COLUMNS, row, strict=True)) for row in _ROWS]


def rows(*found: Row) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found]


def where(test: Any) -> list[Row]:
    return [row for row in ROWS if test(row)]


def priced(given: list[Row] | None = None) -> list[Row]:
    return [row for row in (ROWS if given is None else given) if row["price"] is not None]


def by(column: str, given: list[Row] | None = None) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in ROWS if given is None else given:
        found[row[column]].append(row)
    return found


def price(row: Row) -> float:
    return row["price"]


class AnyOrder(list[Any]):
    """Rows in whatever order."""


class InOrder(list[Any]):
    """Rows in this order."""


def one(value: Any) -> InOrder:
    return InOrder([(value,)])


def kept(test: Any) -> AnyOrder:
    return AnyOrder(rows(*where(test)))


def only(*columns: str, given: list[Row] | None = None, kind: Any = AnyOrder) -> Any:
    return kind([tuple(row[each] for each in columns) for row in (ROWS if given is None else given)])


def groups(column: str, what: Any, given: list[Row] | None = None) -> AnyOrder:
    return AnyOrder([(key, what(each)) for key, each in by(column, given).items()])


def distinct(column: str, given: list[Row] | None = None) -> AnyOrder:
    return AnyOrder([(key,) for key in by(column, given)])


OPEN = where(lambda r: r["status"] == "open")
CLOSED = where(lambda r: r["status"] == "closed")
BOOKS = where(lambda r: r["category"] == "book")
CHEAP_FIRST = sorted(priced(), key=price)
DEAR_FIRST = sorted(priced(), key=price, reverse=True)
BY_DATE = sorted(ROWS, key=lambda r: r["ordered"])


def total(given: list[Row]) -> float:
    return sum(map(price, priced(given)))


def average(given: list[Row]) -> float:
    return mean(map(price, priced(given)))


# An operation, and all its right answers. None at all: it cannot be done with these columns, or means too much.
OPERATIONS: list[tuple[str, list[Any]]] = [
    # Picking rows.
    ("show me only the orders that are still open", [kept(lambda r: r["status"] == "open")]),
    ("keep orders from London", [kept(lambda r: r["city"] == "London")]),
    ("everything that isn't a book", [kept(lambda r: r["category"] != "book")]),
    ("drop the cancelled ones", [kept(lambda r: r["status"] != "cancelled")]),
    (
        "exclude rows where status is cancelled or category is toy",
        [kept(lambda r: not (r["status"] == "cancelled" or r["category"] == "toy"))],
    ),
    (
        "rows where price is at least 45 and at most 100",
        [kept(lambda r: r["price"] is not None and 45 <= r["price"] <= 100)],
    ),
    ("price between 30 and 60", [kept(lambda r: r["price"] is not None and 30 <= r["price"] <= 60)]),
    ("orders with more than 3 items", [kept(lambda r: r["quantity"] > 3)]),
    ("quantity no more than 2", [kept(lambda r: r["quantity"] <= 2)]),
    ("quantity not less than 5", [kept(lambda r: r["quantity"] >= 5)]),
    ("where price is missing", [kept(lambda r: r["price"] is None)]),
    ("only rows that have an email", [kept(lambda r: r["email"] is not None)]),
    ("rows without a note", [kept(lambda r: r["note"] is None), kept(lambda r: not r["note"])]),
    (
        "rows whose note is empty",
        [kept(lambda r: not r["note"]), kept(lambda r: r["note"] == ""), kept(lambda r: r["note"] is None)],
    ),
    ("email ends with .edu", [kept(lambda r: (r["email"] or "").endswith(".edu"))]),
    (
        "email ends with example.org or mit.edu",
        [kept(lambda r: (r["email"] or "").endswith(("example.org", "mit.edu")))],
    ),
    ("customer starts with A", [kept(lambda r: r["customer"].startswith("A"))]),
    ("customer does not start with A", [kept(lambda r: not r["customer"].startswith("A"))]),
    (
        "city contains 'on' and status is closed",
        [kept(lambda r: "on" in r["city"].lower() and r["status"] == "closed")],
    ),
    ("status in (open, cancelled)", [kept(lambda r: r["status"] in ("open", "cancelled"))]),
    ("status is neither open nor closed", [kept(lambda r: r["status"] == "cancelled")]),
    (
        "open books or closed toys",
        [kept(lambda r: (r["status"], r["category"]) in (("open", "book"), ("closed", "toy")))],
    ),
    (
        "status open and (category book or category toy)",
        [kept(lambda r: r["status"] == "open" and r["category"] in ("book", "toy"))],
    ),
    (
        "status is open and category is book or toy",
        [kept(lambda r: r["status"] == "open" and r["category"] in ("book", "toy"))],
    ),
    (
        "category is book or status is open and quantity > 5",
        [kept(lambda r: r["category"] == "book" or (r["status"] == "open" and r["quantity"] > 5))],
    ),
    ("express orders only", [kept(lambda r: r["express"])]),
    ("where express is false", [kept(lambda r: not r["express"])]),
    ("not express and price above 50", [kept(lambda r: not r["express"] and (r["price"] or 0) > 50)]),
    ("price is not 45", [kept(lambda r: r["price"] != 45), kept(lambda r: r["price"] not in (45, None))]),
    ("note is price", [kept(lambda r: r["note"] == "price")]),
    ("note is 'open'", [kept(lambda r: r["note"] == "open")]),
    ("note equals gift and price under 10", [kept(lambda r: r["note"] == "gift" and (r["price"] or 99) < 10)]),
    ("city is new york", [kept(lambda r: r["city"] == "New York"), AnyOrder([])]),
    ("customer is Ada or Alan", [kept(lambda r: r["customer"] in ("Ada", "Alan"))]),
    ("customer isn't Ada", [kept(lambda r: r["customer"] != "Ada")]),
    ("price = 0", [kept(lambda r: r["price"] == 0)]),
    ("price is greater than quantity", [kept(lambda r: r["price"] is not None and r["price"] > r["quantity"])]),
    ("orders above the average price", [kept(lambda r: (r["price"] or 0) > average(ROWS))]),
    ("orders of customers with more than one order", [kept(lambda r: len(by("customer")[r["customer"]]) > 1)]),
    # Dates.
    ("ordered before 2024", [kept(lambda r: r["ordered"] < "2024")]),
    ("ordered in 2023", [kept(lambda r: r["ordered"].startswith("2023"))]),
    ("ordered after 2024-02-14", [kept(lambda r: r["ordered"] > "2024-02-14")]),
    ("ordered on or after 2024-03-01", [kept(lambda r: r["ordered"] >= "2024-03-01")]),
    ("ordered since February 2024", [kept(lambda r: r["ordered"] >= "2024-02")]),
    ("ordered in January 2024", [kept(lambda r: r["ordered"].startswith("2024-01"))]),
    ("ordered between 2024-01-15 and 2024-02-14", [kept(lambda r: "2024-01-15" <= r["ordered"] <= "2024-02-14")]),
    ("orders per month", [AnyOrder(Counter(r["ordered"][:7] for r in ROWS).items())]),
    (
        "count by year of ordered",
        [
            AnyOrder(Counter(r["ordered"][:4] for r in ROWS).items()),
            AnyOrder(Counter(int(r["ordered"][:4]) for r in ROWS).items()),
        ],
    ),
    ("the newest 2 orders", [InOrder(rows(*BY_DATE[:-3:-1]))]),
    ("the latest 3 by ordered", [InOrder(rows(*BY_DATE[:-4:-1]))]),
    ("oldest order", [InOrder(rows(BY_DATE[0]))]),
    ("earliest ordered date", [one(BY_DATE[0]["ordered"]), InOrder(rows(BY_DATE[0]))]),
    ("orders in the last week", []),
    # Sorting and cutting.
    ("sort by price", [InOrder(rows(*CHEAP_FIRST, ROWS[10])), InOrder(rows(ROWS[10], *CHEAP_FIRST))]),
    (
        "sort by city then price from high to low",
        [
            InOrder(rows(*sorted(ROWS, key=lambda r: (r["city"], -(r["price"] or -1))))),
        ],
    ),
    ("order by quantity desc, id desc", [InOrder(rows(*sorted(ROWS, key=lambda r: (-r["quantity"], -r["id"]))))]),
    ("alphabetically by customer", [InOrder(rows(*sorted(ROWS, key=lambda r: r["customer"])))]),
    ("the 3 most expensive orders", [InOrder(rows(*DEAR_FIRST[:3]))]),
    ("three cheapest", [InOrder(rows(*CHEAP_FIRST[:3]))]),
    ("cheapest 3 books", [InOrder(rows(*sorted(priced(BOOKS), key=price)[:3]))]),
    ("the second most expensive order", [InOrder(rows(DEAR_FIRST[1]))]),
    ("bottom 2 by price", [InOrder(rows(*CHEAP_FIRST[:2])), InOrder(rows(*CHEAP_FIRST[1::-1]))]),
    ("top 25% by price", [InOrder(rows(*DEAR_FIRST[:3])), InOrder(rows(*DEAR_FIRST[:2]))]),
    ("first 4 rows", [InOrder(rows(*ROWS[:4]))]),
    ("last 4 rows", [InOrder(rows(*ROWS[-4:]))]),
    ("all but the first 10", [InOrder(rows(*ROWS[10:]))]),
    ("skip 2 and take 3", [InOrder(rows(*ROWS[2:5]))]),
    ("every third row", [InOrder(rows(*ROWS[2::3])), InOrder(rows(*ROWS[::3]))]),
    ("reverse the rows", [InOrder(rows(*ROWS[::-1]))]),
    ("5 random rows", []),
    ("top 2 open orders by price", [InOrder(rows(*sorted(priced(OPEN), key=price, reverse=True)[:2]))]),
    (
        "most expensive order in each category",
        [AnyOrder(rows(*(max(priced(each), key=price) for each in by("category").values())))],
    ),
    ("the largest price per city", [groups("city", lambda g: max(map(price, priced(g)), default=None))]),
    (
        "first two orders of each city",
        [
            AnyOrder(rows(*(row for each in by("city").values() for row in each[:2]))),
            AnyOrder(
                rows(*(row for each in by("city").values() for row in sorted(each, key=lambda r: r["ordered"])[:2]))
            ),
        ],
    ),
    (
        "sort by price and keep the first 3 but only books",
        [
            InOrder(rows(*sorted(priced(BOOKS), key=price)[:3])),
            InOrder(rows(*(row for row in CHEAP_FIRST[:3] if row["category"] == "book"))),
        ],
    ),
    # Columns.
    (
        "just the customers and their cities",
        [only("customer", "city"), AnyOrder(dict.fromkeys((r["customer"], r["city"]) for r in ROWS))],
    ),
    ("keep id and price of closed orders", [only("id", "price", given=CLOSED)]),
    ("remove email and note", [AnyOrder([tuple(v for k, v in r.items() if k not in ("email", "note")) for r in ROWS])]),
    ("everything except the notes", [AnyOrder([tuple(v for k, v in r.items() if k != "note") for r in ROWS])]),
    ("list unique cities", [distinct("city")]),
    ("distinct customer of open orders", [distinct("customer", OPEN)]),
    ("which statuses are there", [distinct("status"), groups("status", len)]),
    (
        "deduplicate by email",
        [
            AnyOrder(rows(*(each[0] for each in by("email").values()))),
            AnyOrder(rows(*(each[0] for key, each in by("email").items() if key), *by("email")[None])),
        ],
    ),
    ("price times quantity for each order", [AnyOrder([(r["price"] and r["price"] * r["quantity"],) for r in ROWS])]),
    (
        "add a column total = price * quantity",
        [AnyOrder([(*r.values(), None if r["price"] is None else r["price"] * r["quantity"]) for r in ROWS])],
    ),
    ("rename price to cost and keep id and cost", [only("id", "price")]),
    # Numbers.
    ("how many orders are there", [one(12)]),
    ("how many orders are closed", [one(len(CLOSED))]),
    ("number of different customers", [one(len(by("customer")))]),
    ("how many customers are from London", [one(3), one(2)]),
    ("how many orders have no email", [one(2)]),
    ("total price", [one(total(ROWS))]),
    ("sum of price for open orders", [one(total(OPEN))]),
    ("total of price and quantity", [InOrder([(total(ROWS), sum(r["quantity"] for r in ROWS))])]),
    ("sum of price times quantity", [one(sum(r["price"] * r["quantity"] for r in priced()))]),
    ("average price", [one(average(ROWS))]),
    ("mean price of express books", [one(average([r for r in BOOKS if r["express"]]))]),
    ("median price", [one(median(map(price, priced())))]),
    ("average of the 3 highest prices", [one(mean(map(price, DEAR_FIRST[:3])))]),
    ("lowest price", [one(0.0), InOrder(rows(CHEAP_FIRST[0]))]),
    ("min and max price", [InOrder([(0.0, 120.0)])]),
    ("range of price", [one(120.0), InOrder([(0.0, 120.0)])]),
    ("price of the order with the highest quantity", [one(5.0)]),
    ("share of open orders", [one(len(OPEN) / 12), one(len(OPEN) / 12 * 100)]),
    ("percentage of orders that are express", [one(50.0), one(50)]),
    ("total price without cancelled orders", [one(total([r for r in ROWS if r["status"] != "cancelled"]))]),
    (
        "number of orders over 50 that are not open",
        [one(sum((r["price"] or 0) > 50 and r["status"] != "open" for r in ROWS))],
    ),
    # Groups.
    ("count per category", [groups("category", len)]),
    ("number of orders for each customer, most first", [groups("customer", len)]),
    (
        "how many orders per city and status",
        [AnyOrder([(*key, n) for key, n in Counter((r["city"], r["status"]) for r in ROWS).items()])],
    ),
    (
        "average price by category, highest first",
        [InOrder(sorted(((key, average(each)) for key, each in by("category").items()), key=lambda found: -found[1]))],
    ),
    (
        "total quantity per category for closed orders",
        [groups("category", lambda g: sum(r["quantity"] for r in g), CLOSED)],
    ),
    (
        "cities with at least two orders",
        [
            AnyOrder([(key, len(each)) for key, each in by("city").items() if len(each) > 1]),
            AnyOrder([(key,) for key, each in by("city").items() if len(each) > 1]),
        ],
    ),
    ("count by status where price is over 40", [groups("status", len, where(lambda r: (r["price"] or 0) > 40))]),
    (
        "which category has the highest average price",
        [InOrder([("game", average(by("category")["game"]))]), one("game")],
    ),
    (
        "the most common status",
        [
            AnyOrder([("open", 5)]),
            one("open"),
            one("closed"),
            AnyOrder([("closed", 5)]),
            AnyOrder([("open", 5), ("closed", 5)]),
            AnyOrder([("open",), ("closed",)]),
        ],
    ),
    (
        "top 3 cities by number of orders",
        [InOrder([("London", 3), ("New York", 3), ("Boston", 3)]), InOrder([("London",), ("New York",), ("Boston",)])],
    ),
    (
        "distinct customers per city",
        [
            groups("city", lambda g: len({r["customer"] for r in g})),
            AnyOrder(dict.fromkeys((r["city"], r["customer"]) for r in ROWS)),
        ],
    ),
    (
        "min, max and average price per status",
        [
            AnyOrder(
                [
                    (key, min(map(price, priced(each))), max(map(price, priced(each))), average(each))
                    for key, each in by("status").items()
                ]
            )
        ],
    ),
    (
        "sum of quantity by customer, only those above 5",
        [AnyOrder([(key, n) for key, each in by("customer").items() if (n := sum(r["quantity"] for r in each)) > 5])],
    ),
    (
        "customers who have never bought a book",
        [distinct("customer", [r for r in ROWS if r["customer"] not in {b["customer"] for b in BOOKS}])],
    ),
    ("group by status", [groups("status", len), AnyOrder(rows(*ROWS))]),
    ("running total of price", []),
    ("price rank within category", []),
    # What these rows cannot answer, or nobody can say.
    ("find suspicious orders", []),
    ("sort by colour", []),
    ("average rating by category", []),
    ("open orders by customers called Smith and Wesson", [AnyOrder([])]),
    ("translate the notes into French", []),
    ("summarize", []),
    ("top", []),
    ("orders around 50", []),
    ("the best customers", []),
    ("status is opne", [AnyOrder([])]),
    ("count where price is bok", [one(0)]),
    ("cheap express orders", []),
    ("join with customers", []),
    ("delete all rows", [AnyOrder([])]),
]
