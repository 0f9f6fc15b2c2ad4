"""Of very many that go on at the same moment few do in a round of the event loop, and principals take turns."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter

import pytest

from toolgate.core import crowds

MANY = 20 * crowds.FEW


class Rounds:
    """Which round of the event loop it is."""

    def __init__(self) -> None:
        self.number = 0
        self._loop = asyncio.get_running_loop()
        self._count()

    def _count(self) -> None:
        self.number += 1
        self._next = self._loop.call_soon(self._count)

    def stop(self) -> None:
        self._next.cancel()


async def test_a_few_go_on_at_once() -> None:
    went: list[int] = []
    for number in range(crowds.FIRST):
        crowds.in_turn(lambda number=number: went.append(number))
    assert went == list(range(crowds.FIRST))
    await asyncio.wait_for(crowds.turn(), 5)


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_of_many_few_do_in_each_round_in_the_order_that_they_came(is_awaited: bool) -> None:
    rounds, went = Rounds(), list[tuple[int, int]]()
    all_went = asyncio.Event()

    def go_on(number: int) -> None:
        went.append((rounds.number, number))
        if len(went) == MANY:
            all_went.set()

    async def waits(number: int) -> None:
        await crowds.turn()
        go_on(number)

    waiting = [asyncio.ensure_future(waits(number)) for number in range(MANY)] if is_awaited else []
    if not is_awaited:
        for number in range(MANY):
            crowds.in_turn(lambda number=number: go_on(number))
    async with asyncio.timeout(5):
        await all_went.wait()
        await asyncio.gather(*waiting)
    rounds.stop()
    assert [number for _, number in went] == list(range(MANY))
    assert max(Counter(round for round, _ in went).values()) <= 2 * crowds.FEW


async def test_who_has_few_among_them_does_not_wait_for_who_has_many() -> None:
    went: list[str] = []
    for _ in range(MANY):
        crowds.in_turn(lambda: went.append("mallory"), "mallory")
    ann = asyncio.ensure_future(crowds.turn("ann"))
    async with asyncio.timeout(5):
        await ann
    assert len(went) < 4 * crowds.FEW


async def test_who_gives_up_is_passed_over_and_who_fails_stops_nobody() -> None:
    failed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(str(context["exception"])))
    for _ in range(MANY):
        crowds.in_turn(lambda: None)
    leaves = asyncio.ensure_future(crowds.turn())
    crowds.in_turn(lambda: 1 / 0)
    stays = asyncio.ensure_future(crowds.turn())
    await asyncio.sleep(0)
    leaves.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(leaves, return_exceptions=True)
        await stays
    assert leaves.cancelled() and failed == ["division by zero"]


async def test_where_each_takes_long_one_goes_on_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, passed, went = asyncio.get_running_loop(), 0.0, Counter[float]()
    crowds._crowds.pop(loop, None)  # type: ignore[reportPrivateUsage]
    monkeypatch.setattr(loop, "time", lambda: passed)

    def takes_long() -> None:
        nonlocal passed
        went[passed // 1] += 1
        passed += 0.01

    def round_is_over() -> None:
        nonlocal passed
        passed = passed // 1 + 1
        if went.total() < MANY:
            loop.call_soon(round_is_over)

    loop.call_soon(round_is_over)
    for _ in range(MANY):
        crowds.in_turn(takes_long)
    while went.total() < MANY:
        await asyncio.sleep(0)
    crowds._crowds.pop(loop, None)  # type: ignore[reportPrivateUsage]
    assert [*went.values()][2:] == [1] * (len(went) - 2)


def test_a_loop_that_has_ended_is_held_by_nothing() -> None:
    async def crowded() -> None:
        for _ in range(MANY):
            crowds.in_turn(lambda: None)
        await crowds.turn()

    def used() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(crowded())
        loop.close()
        return weakref.ref(loop)

    gone = used()
    gc.collect()
    assert gone() is None


async def test_a_signal_goes_to_all_who_wait_and_to_who_comes_later() -> None:
    signal = crowds.Signal()
    waiting = [asyncio.ensure_future(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    signal.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting, signal.wait())


async def test_thousands_wait_for_the_end_of_one_thing_and_who_stops_is_not_searched_for_among_them() -> None:
    """The event loop searches all of a future's callbacks for the one of who stops: it has one of them all."""
    loop = asyncio.get_running_loop()
    one, other = loop.create_future(), loop.create_future()
    waiting = [asyncio.ensure_future(crowds.over(one, other)) for _ in range(MANY)]
    await asyncio.sleep(0)
    assert len(one._callbacks or ()) == len(other._callbacks or ()) == 1
    for each in waiting[1:]:
        each.cancel()
    await asyncio.wait(waiting[1:], timeout=10)
    assert not waiting[0].done() and len(crowds._ends[one]._waiting) == len(crowds._ends[other]._waiting) == 1
    other.set_exception(ValueError("whatever came of it"))
    await asyncio.wait_for(waiting[0], 10)
    await asyncio.wait_for(crowds.over(one, other), 10)
    assert not crowds._ends[one]._waiting
    assert isinstance(other.exception(), ValueError)
