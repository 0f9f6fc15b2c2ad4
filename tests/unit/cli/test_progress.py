"""A person who waits at a terminal sees what for, and how far it is; a file or a pipe gets nothing of it."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from virtualtime import FakeClock

from toolgate.cli import progress
from toolgate.core.redaction import Redactor
from toolgate.state import audit
from toolgate.state.audit import Trail


class Screen(io.StringIO):
    is_one = True

    def isatty(self) -> bool:
        return self.is_one


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    found = Screen()
    monkeypatch.setattr("sys.stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


def test_what_is_waited_for_and_how_far_it_is_are_shown_and_gone_at_the_end(screen: Screen) -> None:
    with progress.waiting("copying [the] store") as wait:
        wait.is_at(1, 4)
        wait.show()
        wait.is_at(2, 4)
        wait.says("looking at it")
    assert "copying [the] store" in screen.getvalue() and "25%" in screen.getvalue()
    assert screen.getvalue().rstrip("\r").endswith("\x1b[2K")  # the line is empty
    wait.show()
    assert screen.getvalue().count("copying") == screen.getvalue().count("copying [the] store")


def test_who_waits_for_a_moment_only_sees_nothing(screen: Screen) -> None:
    with progress.waiting("it"):
        assert [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    assert screen.getvalue() == ""
    assert progress.AFTER >= 1.0


def test_one_thing_is_shown_at_a_time(screen: Screen) -> None:
    with progress.waiting("the first") as first, progress.waiting("the second"):
        first.show()
    with progress.waiting("the third") as third:
        third.show()
    assert "the second" not in screen.getvalue() and "the third" in screen.getvalue()


@pytest.mark.parametrize("why", ["a pipe", "dumb"])
def test_what_is_no_terminal_gets_nothing(why: str, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    screen.is_one = why == "dumb"
    monkeypatch.setenv("TERM", "dumb" if why == "dumb" else "xterm")
    before = threading.active_count()
    with progress.waiting("it") as wait:
        assert threading.active_count() == before
        wait.is_at(1, 2)
    assert screen.getvalue() == ""


async def test_the_verification_of_an_audit_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "TOLD_EACH", 10)
    file = tmp_path / "audit.jsonl"
    trail = Trail(file, FakeClock(), None, Redactor())
    for number in range(35):
        trail.note("keys.create", "cli:ann", client=f"ci{number}")
    await trail.close()
    told: list[Any] = []
    found = audit.verify([file], is_at=lambda done, of: told.append((done, of)))
    assert not found.wrong and len(told) == found.lines // 10
    size = file.stat().st_size
    assert [of for _, of in told] == [size] * len(told) and sorted(told) == told and told[-1][0] <= size
