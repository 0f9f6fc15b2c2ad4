"""Work in steps, between which others may go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from enum import Enum
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")
InSteps: TypeAlias = Generator[None, None, Result]


class Unfinished(Enum):
    """What work returns that wants another turn."""

    MORE = "more"


def at_once(steps: InSteps[Result]) -> Result:
    """All of it, here."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def in_slices(steps: InSteps[Result], seconds: float) -> Callable[[], Result | Unfinished]:
    """Work that goes on for so long each time that it is called, and for the rest of the step that it is at then."""

    def go_on() -> Result | Unfinished:
        until = time.perf_counter() + seconds
        try:
            while True:
                next(steps)
                if time.perf_counter() > until:
                    return Unfinished.MORE
        except StopIteration as end:
            return end.value

    return go_on
