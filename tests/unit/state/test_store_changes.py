"""What other processes have changed in the store is heard of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from virtualtime import FakeClock

from toolgate.state import changes
from toolgate.state.base import NotKept
from toolgate.state.changes import StoreChanges
from toolgate.state.memory import MemoryStore


async def test_who_could_not_read_what_has_changed_hears_of_it_again() -> None:
    clock = FakeClock()
    store, heard = MemoryStore(clock), list[str]()
    follows = StoreChanges(store, clock)

    def reads() -> None:
        heard.append("keys")
        if len(heard) < 3:
            raise NotKept("it is locked")

    follows.listen("keys", reads)
    task = asyncio.ensure_future(follows.follow())
    await changes.tell(store, "keys")
    await clock.advance(10 * changes.LOOK)
    assert heard == ["keys"] * 3
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Failing(MemoryStore):
    fails = False

    def items(self, space: str) -> Mapping[str, bytes]:
        return {} if self.fails else super().items(space)


async def test_what_cannot_be_read_is_no_news_and_one_that_fails_keeps_nobody_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    store, heard = Failing(clock), list[str]()
    await changes.tell(store, "keys")
    follows = StoreChanges(store, clock)

    def fails() -> Any:
        raise ValueError("of this listener")

    follows.listen("keys", fails)
    follows.listen("keys", lambda: heard.append("keys"))
    task = asyncio.ensure_future(follows.follow())
    for store.fails in (True, False):
        await clock.advance(2 * changes.LOOK)
        assert heard == []
    with caplog.at_level(logging.ERROR):
        for count in (1, 2):
            await changes.tell(store, "keys")
            await clock.advance(2 * changes.LOOK)
            assert heard == ["keys"] * count
    assert len(caplog.records) == 2
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
