"""Bodies whose end is never sent fill no memory, and keep nobody else's from being read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from inmemory import MODERN, Exchange, Visitor, gateway
from virtualtime import settle

from toolgate.core import bodies
from toolgate.core.model import Principal

PART = b" " * bodies.FREE
PARTS = 8  # of each body that does not end
HEADERS = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}


@pytest.fixture(autouse=True)
def small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 20 * bodies.FREE)
    monkeypatch.setattr(bodies, "MOST", 40 * bodies.FREE)


async def by_name(headers: Mapping[str, str], *_: Any) -> Principal:
    return Principal(headers["authorization"], client=headers["authorization"])


def endless(visitor: Visitor) -> Exchange:
    return visitor.begin("POST", *[PART] * PARTS, None, headers=HEADERS)


def large(visitor: Visitor, parts: int = PARTS) -> Exchange:
    """One that has an end."""
    request = json.dumps(visitor.modern_request("tools/list")).encode()
    return visitor.begin("POST", *[PART] * parts, request, headers=HEADERS)


def read(exchanges: list[Exchange]) -> int:
    """How many parts of bodies without end were read."""
    return sum(PARTS - each.parts_left for each in exchanges)


async def test_of_bodies_without_end_little_is_kept_and_the_rest_is_not_read() -> None:
    async with gateway(identify=by_name) as app:
        ann = [endless(Visitor(app, authorization="ann")) for _ in range(30)]
        await settle()
        assert 20 <= read(ann) <= 20 + PARTS + 2 * len(ann)  # the budget, the oldest, and what each is read at once
        for each in ann:
            await each.gone()


async def test_others_are_read_while_a_client_has_more_than_it_may() -> None:
    async with gateway(identify=by_name) as app:
        stuck = [endless(Visitor(app, authorization=name)) for name in ("ann", "bob", "cid") for _ in range(20)]
        await settle()
        eve = Visitor(app, authorization="eve")
        for parts in (0, 1, PARTS):
            assert "tools" in (await large(eve, parts).response()).result
        for each in stuck:
            await each.gone()


async def test_who_waits_is_read_once_others_have_ended_or_gone() -> None:
    async with gateway(identify=by_name) as app:
        ann = Visitor(app, authorization="ann")
        stuck = [endless(ann) for _ in range(10)]
        waiting = [large(ann) for _ in range(10)]
        await settle()
        assert not any(each.work.done() for each in waiting)
        for each in stuck:
            await each.gone()
        for each in waiting:
            assert "tools" in (await each.response()).result
        assert not app.http.bodies._by and not app.http.bodies._kept
