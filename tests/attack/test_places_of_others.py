"""Where a server takes only so many calls at once, nobody has all places while somebody else calls now and then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attack.test_results_on_their_way import answer_all, call, identify
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.upstreams.concurrency import MEMORY, ConcurrencyLimit

DONE: dict[str, Any] = {"resultType": "complete", **said("done")}


@pytest.mark.parametrize("server", [LATEST, MODERN])
@pytest.mark.parametrize("places", [2, 4])
async def test_who_has_called_of_late_finds_a_place_whatever_others_have_under_way(server: str, places: int) -> None:
    script = Scripted(server, tools_list=tools("t"), tools_call=DONE)
    docs = Server(id="docs", name="docs", type="stdio", command="memory", concurrency=places, timeout=1000)
    async with gateway(docs, scripts={"docs": script}, identify=identify) as app:
        ann, bob = (Visitor(app, authorization=name) for name in ("ann", "bob"))
        assert "result" in (await call(bob, MODERN, 1).response()).last
        script.answers["tools/call"] = ...
        script.requests.clear()
        hers = [call(ann, MODERN, 100 + each) for each in range(12)]
        await settle()
        assert len(script.requests) == places - 1
        script.answers["tools/call"] = DONE
        assert "result" in (await call(bob, MODERN, 2).response()).last, "at once, in virtual time"
        assert not any(each.work.done() for each in hers)
        while not all(each.work.done() for each in hers):
            answer_all(script, DONE)
            await settle()
        for each in hers:
            assert "result" in (await each.response()).last


def take(limit: ConcurrencyLimit, *whose: str) -> list[asyncio.Task[None]]:
    return [asyncio.ensure_future(limit.take(1000, each)) for each in whose]


async def test_who_calls_alone_has_all_places_and_again_a_minute_after_others() -> None:
    clock = FakeClock()
    limit = ConcurrencyLimit("slow", 4, clock)
    alone = take(limit, *["ann"] * 4)
    await settle()
    assert all(each.done() for each in alone)
    [his] = take(limit, "bob")
    limit.give_back("ann")
    await settle()
    assert his.done()
    limit.give_back("bob")
    again = take(limit, "ann")
    await settle()
    assert not again[0].done(), "the last place is kept free"
    await clock.sleep(MEMORY + 1)
    limit.give_back("ann")
    more = take(limit, "ann")
    await settle()
    assert again[0].done() and more[0].done(), "all four"


async def test_one_place_goes_to_everybody_in_turn() -> None:
    limit = ConcurrencyLimit("slow", 1, FakeClock())
    first, his, second = take(limit, "ann", "bob", "ann")
    for each in (first, his, second):
        await settle()
        assert each.done()
        limit.give_back("bob" if each is his else "ann")


async def test_places_that_are_given_up_are_free_again() -> None:
    limit = ConcurrencyLimit("slow", 2, FakeClock())
    [his] = take(limit, "bob")
    await settle()
    limit.give_back("bob")
    hers = take(limit, *["ann"] * 3)
    await settle()
    assert [each.done() for each in hers] == [True, False, False] and his.done()
    hers[1].cancel()
    await settle()
    limit.give_back("ann")
    await settle()
    assert hers[2].done() and not limit.waiting
    assert limit.take_now("bob")
