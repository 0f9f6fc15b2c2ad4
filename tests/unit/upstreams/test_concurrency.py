"""FairLimit: how many calls are in flight at once."""

from __future__ import annotations

import asyncio

import pytest
from virtualtime import FakeClock, settle

from toolgate.core.fault import Fault
from toolgate.upstreams.concurrency import ConcurrencyLimit


def waiting(turns: ConcurrencyLimit, patience: float = 60) -> asyncio.Task[None]:
    return asyncio.ensure_future(turns.take(patience))


@pytest.mark.promise("b.lifecycle.multiplex")
async def test_without_a_limit_nobody_waits() -> None:
    turns = ConcurrencyLimit("slow", None, FakeClock())
    for _ in range(100):
        await turns.take(0)


@pytest.mark.promise("000.sessions.queue")
async def test_turns_are_given_in_the_order_that_they_were_asked_for() -> None:
    turns = ConcurrencyLimit("slow", 1, FakeClock())
    await turns.take(0)
    second, third = waiting(turns), waiting(turns)
    await settle()
    assert not second.done() and not third.done()
    turns.give_back()
    await settle()
    assert second.done() and not third.done()
    turns.give_back()
    await third


@pytest.mark.promise("b.fair.turns")
async def test_a_principal_with_one_call_waits_for_one_of_another_that_has_fifty() -> None:
    turns, served = ConcurrencyLimit("slow", 1, FakeClock()), list[str]()

    async def call(whose: str) -> None:
        await turns.take(60, whose)
        served.append(whose)
        turns.give_back()

    await turns.take(0, "greedy")
    calls = [asyncio.ensure_future(call("greedy")) for _ in range(50)]
    await settle()
    calls.append(asyncio.ensure_future(call("modest")))
    await settle()
    assert turns.waiting == 51
    turns.give_back()
    await asyncio.gather(*calls)
    assert served.index("modest") <= 1 and turns.waiting == 0


async def test_who_comes_later_does_not_pass_who_waits() -> None:
    turns = ConcurrencyLimit("slow", 1, FakeClock())
    await turns.take(0)
    second = waiting(turns)
    await settle()
    turns.give_back()
    third = waiting(turns)
    await settle()
    assert second.done() and not third.done()
    third.cancel()


async def test_a_wait_that_is_too_long_ends_and_nothing_was_sent() -> None:
    clock = FakeClock()
    turns = ConcurrencyLimit("slow", 1, clock)
    await turns.take(0)
    second = waiting(turns, 5)
    await clock.advance(5)
    with pytest.raises(Fault, match="slow was busy") as caught:
        await second
    assert (caught.value.code, caught.value.reach) == ("TIMEOUT", "not_sent")
    turns.give_back()
    await turns.take(0)


async def test_a_turn_that_comes_to_one_who_just_left_is_passed_on() -> None:
    turns = ConcurrencyLimit("slow", 1, FakeClock())
    await turns.take(0)
    second, third = waiting(turns), waiting(turns)
    await settle()
    turns.give_back()
    second.cancel()
    await third


async def test_a_limit_that_is_lowered_holds_from_the_next_call_on() -> None:
    turns = ConcurrencyLimit("slow", None, FakeClock())
    await turns.take(0)
    await turns.take(0)
    turns.limit = 1
    third = waiting(turns)
    turns.give_back()
    await settle()
    assert not third.done()
    turns.give_back()
    await third
