"""What is shown on a terminal while a person waits for longer than a moment: what for, and how far it is.

The rules this file keeps: nothing is shown where standard error is no terminal, nor before `AFTER`; what is shown is
gone before anything else is printed (`aside`); and one thing is shown at a time, the first that is waited for.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

AFTER = 1.0  # seconds

_screen = threading.RLock()  # held by whoever writes on it


class Wait:
    """One wait. It may be told how far it is, from any thread."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done, self._of = 0, 0
        self._bar: Progress | None = None
        self._is_over = False

    def says(self, what: str) -> None:
        self._what = what
        self._update()

    def is_at(self, done: int, of: int) -> None:
        self._done, self._of = done, of
        self._update()

    def show(self) -> None:
        with _screen:
            if not self._is_over:
                self._bar = self._bar or _bar()
                self._update()
                self._bar.start()

    def hide(self) -> bool:
        """Whether it was shown."""
        with _screen:
            was_shown = bool(self._bar and self._bar.live.is_started)
            if self._bar:
                self._bar.stop()
            return was_shown

    def end(self) -> None:
        with _screen:
            self._is_over = True
            self.hide()

    def _update(self) -> None:
        if bar := self._bar:
            bar.update(bar.task_ids[0], description=self._what, total=self._of or None, completed=self._done)


_waits: list[Wait] = []


@contextmanager
def waiting(what: str) -> Generator[Wait]:
    """Inside the block a person waits."""
    wait = Wait(what)
    if _waits or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield wait
        return
    timer = threading.Timer(AFTER, wait.show)
    timer.daemon = True
    with _first(wait):
        timer.start()
        try:
            yield wait
        finally:
            timer.cancel()
            wait.end()


@contextmanager
def nothing() -> Generator[None]:
    """Inside the block nothing of this is shown: something else has the whole screen."""
    with _first(Wait("")):
        yield


@contextmanager
def aside() -> Generator[None]:
    """Inside the block something is printed."""
    with _screen:
        hidden = [wait for wait in _waits if wait.hide()]
        try:
            yield
        finally:
            for wait in hidden:
                wait.show()


@contextmanager
def _first(wait: Wait) -> Generator[None]:
    _waits.append(wait)
    try:
        yield
    finally:
        _waits.remove(wait)


def _bar() -> Progress:
    from rich.console import Console  # most commands are over before it is needed
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(bar_width=20), TaskProgressColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("", total=None)
    return bar
