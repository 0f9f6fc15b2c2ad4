"""Text that is shown again and again until Ctrl-C: in place on a terminal, elsewhere one after the other."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable

import typer

from toolgate.cli import printing, progress

_HOME, _REST = "\x1b[H", "\x1b[J"


async def repeat(show: Callable[[], Awaitable[str]], seconds: float) -> None:
    """`show` makes the text; what it raises ends it."""
    with progress.nothing():
        while True:
            text = await show()
            typer.echo(in_place(text, *shutil.get_terminal_size()) if sys.stdout.isatty() else f"{text}\n")
            await asyncio.sleep(seconds)


def in_place(text: str, columns: int, rows: int) -> str:
    """Over what was shown before, and no more than fits."""
    lines = [line[: columns - 1] for line in printing.on_a_terminal(text).split("\n")[: rows - 1]]
    return f"{_HOME}{chr(10).join(f'{line}{chr(27)}[K' for line in lines)}{_REST}"
