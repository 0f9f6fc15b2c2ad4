"""What is looked at again and again is so whatever one look comes to."""

from __future__ import annotations

import asyncio
import logging

import pytest
from virtualtime import FakeClock, settle

from toolgate.core import background
from toolgate.core.background import rounds


async def test_a_look_that_fails_is_said_and_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    looks: list[float] = []
    clock = FakeClock()

    async def look() -> None:
        looks.append(clock.now())
        if len(looks) == 2:
            raise ValueError("a surprise")

    work = asyncio.ensure_future(rounds(clock, 10.0, look, "look at what is there"))
    with caplog.at_level(logging.ERROR, "toolgate"):
        await clock.sleep(45)
    assert len(looks) == 4
    assert [record.message for record in caplog.records] == ["failed, and is tried again: look at what is there"]
    work.cancel()
    await asyncio.wait([work])


async def test_thousands_that_end_together_leave_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AT_ONCE", 2)
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(number)

    tasks = [asyncio.ensure_future(work(number)) for number in range(5)]
    await settle()
    ending, rounds = asyncio.ensure_future(background.end_all(tasks)), list[int]()
    while not ending.done():
        await asyncio.sleep(0)
        rounds.append(len(ended))
    assert max(after - before for before, after in zip([0, *rounds], rounds, strict=False)) <= 2
    assert sorted(ended) == [0, 1, 2, 3, 4] and all(task.cancelled() for task in tasks)


async def test_all_of_them_end_though_nobody_waits_for_that_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AT_ONCE", 1)
    tasks = [asyncio.ensure_future(asyncio.sleep(60)) for _ in range(5)]
    await settle()
    ending = asyncio.ensure_future(background.end_all(tasks))
    await asyncio.sleep(0)
    ending.cancel()
    await settle()
    assert all(task.cancelled() for task in tasks)
