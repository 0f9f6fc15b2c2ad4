"""Timers of the system's clock: due in their order, not before their time, and nothing is left of those cancelled."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from toolgate.core import clock as clock_module
from toolgate.core.clock import TICKS, SystemClock

BOUND = 20.0  # seconds


def by_the_systems_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@by_the_systems_time
async def test_timers_are_called_in_their_order_and_not_before_their_time() -> None:
    clock, called, over = SystemClock(), list[tuple[float, bool]](), asyncio.Event()
    begun = clock.now()
    for seconds in (0.2, 0.0, 0.1, 0.3):
        clock.call_later(seconds, lambda due=seconds: called.append((due, clock.now() >= begun + due)))
    clock.call_later(0.3 + 2 / TICKS, over.set)
    await asyncio.wait_for(over.wait(), BOUND)
    assert called == [(0.0, True), (0.1, True), (0.2, True), (0.3, True)]


@by_the_systems_time
async def test_an_earlier_timer_does_not_wait_for_a_later_one_that_was_there_before() -> None:
    clock, over = SystemClock(), asyncio.Event()
    late = clock.call_later(3600, over.set)
    clock.call_later(0.01, over.set)
    await asyncio.wait_for(over.wait(), BOUND)
    late.cancel()


@by_the_systems_time
async def test_a_timer_that_is_cancelled_is_not_called_even_by_one_of_its_own_tick() -> None:
    clock, called, over = SystemClock(), list[str](), asyncio.Event()

    def first() -> None:
        called.append("first")
        for each in timers:
            each.cancel()

    timers = [clock.call_later(0.01, first), clock.call_later(0.01, first)]
    clock.call_later(0.1, over.set)
    await asyncio.wait_for(over.wait(), BOUND)
    assert len(called) == 1


@by_the_systems_time
async def test_what_a_timer_that_was_cancelled_would_have_called_is_let_go() -> None:
    class Held:
        def due(self) -> None: ...

    clock, held = SystemClock(), Held()
    gone = weakref.ref(held)
    clock.call_later(3600, held.due).cancel()
    del held
    gc.collect()
    assert gone() is None


@by_the_systems_time
async def test_what_one_timer_raises_is_no_matter_to_the_others() -> None:
    def fails() -> None:
        raise ValueError("a bug")

    told = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    clock, over = SystemClock(), asyncio.Event()
    clock.call_later(0.01, fails)
    clock.call_later(0.01, over.set)
    await asyncio.wait_for(over.wait(), BOUND)
    assert told == ["a bug"]


@by_the_systems_time
async def test_timers_of_very_long_times_that_are_cancelled_leave_a_bounded_number_of_ticks() -> None:
    clock, now = SystemClock(), [0.0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clock_module.time, "monotonic", lambda: now[0])
        for _ in range(50_000):
            now[0] += 1 / TICKS
            clock.call_later(24 * 3600.0, int).cancel()
        clock.call_later(float("inf"), int).cancel()
    assert len(clock._ticks) == len(clock._timers) < 2_000
