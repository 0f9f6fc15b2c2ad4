"""Data of a hundred thousand rows, sent to a gateway that takes requests of that size: each way to work on it works on
all of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from processes.ground import Client, Failed, real, toolgate

ROWS = [
    {"id": number, "shop": f"s{number % 97}", "price": number * 7919 % 100_003, "open": number % 3 == 0}
    for number in range(100_000)
]
RAISED = {"http": {"body_limit": "32MiB"}, "limits": {"values": 1_000_000}}

OPEN = Counter(row["shop"] for row in ROWS if row["open"])
BY_SHOP = [{"shop": shop, "count": count} for shop, count in sorted(OPEN.items())]
DEAREST = sorted(ROWS, key=lambda row: -row["price"])[:3]

COUNTED = "SELECT shop, count(*) AS count FROM data WHERE open GROUP BY shop ORDER BY shop"


async def processed(client: Client, operation: str, parameters: Any) -> Any:
    arguments = {"data": ROWS, "operation": operation, "parameters": parameters, "timeout": 100}
    return json.loads(await client.call("process_large_dataset", **arguments))


@real
async def test_each_way_works_on_all_of_a_hundred_thousand_rows() -> None:
    async with toolgate("serve", "--port", "0", "--surface", "daemon", config={}, **RAISED) as gateway:
        client = await gateway.until_it_serves()
        for operation, expected in (("top 3 by price", DEAREST), ("count by shop where open is true", BY_SHOP)):
            told = await processed(client, operation, {})
            assert told["method"] == "grammar"
            again = await processed(client, operation, {"steps": told["steps"]})
            for each in (told, again):
                assert sorted(each["result"], key=str) == sorted(expected, key=str)
                assert (each["original_size"], each["processed_size"]) == (100_000, len(expected))
        for parameters, expected in (
            ({"sql": COUNTED}, BY_SHOP),
            ({"sql": "SELECT * FROM data ORDER BY price DESC LIMIT 1"}, None),
            ({"code": "sorted(data, key=lambda row: -row['price'])[:3]"}, DEAREST),
        ):
            told = await processed(client, "", parameters)
            assert told["original_size"] == 100_000
            assert expected is None or told["result"] == expected, parameters


@real
async def test_without_these_limits_so_much_is_refused_with_what_to_raise() -> None:
    async with toolgate("serve", "--port", "0", "--surface", "daemon", config={}) as gateway:
        client = await gateway.until_it_serves()
        with pytest.raises(Failed, match="values"):
            await processed(client, "top 3 by price", {})
