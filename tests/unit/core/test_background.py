"""What is looked at again and again is so whatever one look comes to."""

from __future__ import annotations

import asyncio
import logging

import pytest
from virtualtime import FakeClock

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
