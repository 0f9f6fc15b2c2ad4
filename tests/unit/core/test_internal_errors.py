"""Whoever can have a mistake of ours happen can repeat it: it fills no log."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from toolgate.core import internal_errors
from toolgate.core.internal_errors import MOST

log = logging.getLogger("toolgate.somewhere")


def fail(how: str) -> None:
    try:
        if how == "here":
            raise ValueError(how)
        raise ValueError(how)
    except ValueError as error:
        if internal_errors.takes(error):
            log.error("it failed %s", how, exc_info=error)


def test_of_one_place_some_errors_are_logged_in_a_minute_and_then_how_many_there_were(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_errors, "_seen", {})
    now = [1000.0]
    monkeypatch.setattr(internal_errors, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for _ in range(500):
        fail("here")
    said = [record.getMessage() for record in caplog.records]
    assert said[:MOST] == ["it failed here"] * MOST and len(said) == MOST + 1
    assert said[-1].startswith("too many internal errors like this; not logged for the next 60 s: ValueError in fail:")
    fail("there")
    assert caplog.records[-1].exc_info and caplog.messages[-1] == "it failed there"
    now[0] += 60
    fail("here")
    assert caplog.messages[-2].startswith("480 more internal errors like this were not logged: ValueError in fail:")
    assert caplog.messages[-1] == "it failed here"
