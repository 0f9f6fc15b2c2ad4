"""A lack of file descriptors is told in the log, and not again and again."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
from typing import Any

import pytest
from virtualtime import settle

from toolgate.cli import descriptors


async def test_the_log_says_once_that_none_is_left_and_when_there_are_some_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolgate")
    opened = os.open

    def none_left(*_args: Any, **_more: Any) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", none_left)
    watching = asyncio.ensure_future(descriptors.watch())
    await asyncio.sleep(5 * descriptors.LOOK)
    monkeypatch.setattr(os, "open", opened)
    await asyncio.sleep(2 * descriptors.LOOK)
    watching.cancel()
    await settle()
    told = [record.message for record in caplog.records]
    assert len(told) == 2, told
    assert "no file descriptors left" in told[0] and "ulimit -n" in told[0]
    assert "again" in told[1]


def test_the_limit_is_raised_as_far_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: set_to.append(limits))
    for limits, wanted in (
        ((1024, 4096), (4096, 4096)),
        ((1024, 1 << 20), (65536, 1 << 20)),
        ((1 << 17, 1 << 20), None),
    ):
        set_to.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda _which, limits=limits: limits)
        descriptors.raise_limit()
        assert set_to == ([wanted] if wanted else [])
