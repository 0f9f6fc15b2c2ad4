"""A person who waits at a terminal sees what for, and how far it is; a file or a pipe gets nothing of it."""

from __future__ import annotations

import io
import threading
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from virtualtime import FakeClock

from toolgate.cli import progress
from toolgate.core.redaction import Redactor
from toolgate.state import audit
from toolgate.state.audit import Trail

pytestmark = pytest.mark.promise("b.operator.waits")


class Screen(io.StringIO):
    def __init__(self, is_one: bool = True) -> None:
        super().__init__()
        self._is_one = is_one

    def isatty(self) -> bool:
        return self._is_one

    @property
    def shown(self) -> str:
        return self.getvalue()


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


@contextmanager
def screen(is_one: bool = True) -> Generator[Screen]:
    """In the test itself: between fixtures and test the streams are pytest's again."""
    with redirect_stderr(Screen(is_one)) as found:
        yield found


_before = list[threading.Thread]()  # those of tests before it in this process, whose threads may still end


@pytest.fixture(autouse=True)
def those_before() -> None:
    _before[:] = threading.enumerate()


def timers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if isinstance(each, threading.Timer) and each not in _before]


def test_what_is_waited_for_and_how_far_it_is_are_shown_and_gone_at_the_end() -> None:
    with screen() as seen:
        with progress.waiting("copying [the] store") as wait:
            wait.is_at(1, 4)
            wait.show()
            assert "copying [the] store" in seen.shown and "25%" in seen.shown
            wait.is_at(3, 4)
            wait.says("looking at it")
        assert "looking at it" in seen.shown and "75%" in seen.shown
        assert seen.shown.endswith("\x1b[2K")  # the line is empty
        before = seen.shown
        wait.show()  # its timer, too late
        assert seen.shown == before


def test_what_cannot_be_measured_is_shown_without_a_share() -> None:
    with screen() as seen:
        with progress.waiting("waiting for the server") as wait:
            wait.show()
        assert "waiting for the server" in seen.shown and "%" not in seen.shown


def test_who_waits_for_a_moment_only_sees_nothing() -> None:
    with screen() as seen:
        with progress.waiting("it"):
            assert timers()
        assert seen.shown == "" and progress.AFTER >= 1.0


def test_one_thing_is_shown_at_a_time() -> None:
    with screen() as seen:
        with progress.waiting("the first") as first, progress.waiting("the second"):
            first.show()
            assert len(timers()) == 1
        with progress.waiting("the third") as third:
            third.show()
        assert "the second" not in seen.shown and "the third" in seen.shown


def test_it_is_gone_while_something_is_printed_and_back_afterwards() -> None:
    with screen() as seen, progress.waiting("looking") as wait:
        wait.show()
        with progress.aside():
            assert seen.shown.endswith("\x1b[2K")
            seen.write("found\n")
        assert "looking" in seen.shown.partition("found\n")[2]


def test_what_was_not_shown_yet_is_not_shown_because_something_was_printed() -> None:
    with screen() as seen, progress.waiting("looking"), progress.aside():
        pass
    assert seen.shown == ""


def test_a_command_that_has_the_whole_screen_shows_nothing_else() -> None:
    with screen() as seen, progress.nothing(), progress.waiting("it"):
        assert not timers()
    assert seen.shown == ""


@pytest.mark.parametrize("why", ["a pipe", "dumb"])
def test_what_is_no_terminal_gets_nothing(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb" if why == "dumb" else "xterm")
    with screen(is_one=why == "dumb") as seen, progress.waiting("it") as wait:
        assert not timers()
        wait.is_at(1, 2)
    assert seen.shown == ""


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
    written = file.read_bytes().splitlines(keepends=True)
    assert told == [(len(b"".join(written[:number])), file.stat().st_size) for number in (10, 20, 30)]
