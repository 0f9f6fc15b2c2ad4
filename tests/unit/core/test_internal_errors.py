"""A client that can have a mistake of ours happen can repeat it: it fills no log."""

from __future__ import annotations

import asyncio
import logging

import pytest
from virtualtime import FakeClock, settle

from toolgate.core import internal_errors
from toolgate.core.complaints import MOST, WHILE, Complaints

log = logging.getLogger("toolgate.somewhere")


def fail(how: str) -> None:
    try:
        if how == "here":
            raise ValueError(how)
        raise ValueError(how)
    except ValueError as error:
        if internal_errors.takes(error):
            log.error("it failed %s", how, exc_info=error)


async def test_of_one_place_some_errors_are_logged_in_a_minute_and_then_how_many_there_were(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(internal_errors, "_of_loops", {asyncio.get_running_loop(): Complaints(clock)})
    for _ in range(500):
        fail("here")
    assert caplog.messages[:MOST] == ["it failed here"] * MOST and len(caplog.messages) == MOST + 1
    assert caplog.messages[-1].startswith("ValueError in fail:") and "too many lines like this" in caplog.messages[-1]
    fail("there")
    assert caplog.records[-1].exc_info and caplog.messages[-1] == "it failed there"
    await clock.sleep(WHILE + 1)
    await settle()
    assert f"{500 - MOST} more lines like this were not logged" in caplog.messages[-1]
    fail("here")
    assert caplog.messages[-1] == "it failed here"
