"""What is shown on a terminal while a person waits for longer than a moment: what for, and how far it is.

The rules this file keeps: nothing is shown where standard error is no terminal, nor before `AFTER`; what is shown is
gone before anything else is printed; and one thing is shown at a time, the first that is waited for.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

AFTER = 1.0  # seconds


class Wait:
    """One wait. It may be told how far it is, from any thread."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done, self._of = 0, 0
        self._lock = threading.Lock()
        self._is_over = False
        self._shown: tuple[Progress, TaskID] | None = None

    def says(self, what: str) -> None:
        self._what = what
        self._update()

    def is_at(self, done: int, of: int) -> None:
        self._done, self._of = done, of
        self._update()

    def show(self) -> None:
        from rich.console import Console  # most commands are over before it is needed
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._is_over:
                return
            text = TextColumn("{task.description}", markup=False)
            how_far = (BarColumn(), TaskProgressColumn()) if self._of else ()
            columns = (SpinnerColumn(), text, *how_far, TimeElapsedColumn())
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._shown = bar, bar.add_task(self._what, total=self._of or None, completed=self._done)
            bar.start()

    def over(self) -> None:
        with self._lock:
            self._is_over = True
            shown, self._shown = self._shown, None
        if shown:
            shown[0].stop()

    def _update(self) -> None:
        if shown := self._shown:
            shown[0].update(shown[1], description=self._what, total=self._of or None, completed=self._done)


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
    _waits.append(wait)
    timer.start()
    try:
        yield wait
    finally:
        timer.cancel()
        wait.over()
        _waits.remove(wait)
