"""What commands print: text of strangers made safe, faults as a line, rows, durations; and how a command ends."""

from __future__ import annotations

import json
import re
import sys
from typing import NoReturn

import typer

from toolgate.catalog.poisoning import visible
from toolgate.cli import progress
from toolgate.core.fault import Fault

_COLOUR = re.compile("\x1b\\[[0-9;:]*m")


class Gone(ConnectionError):
    """A running gateway has not answered."""


def say(text: str, err: bool = False) -> None:
    """Print what strangers may have written: on a terminal without what would act on it, elsewhere as it is."""
    stream = sys.stderr if err else sys.stdout
    with progress.aside():
        typer.echo(on_a_terminal(text) if stream.isatty() else text, err=err)


def say_json(text: str) -> None:
    """Print JSON that strangers may have written: on a terminal what would act on it is escaped, elsewhere it is as it
    is."""
    if sys.stdout.isatty():
        text = "".join(each if each == "\n" or visible(each) == each else _escaped(each) for each in text)
    with progress.aside():
        typer.echo(text)


def _escaped(character: str) -> str:
    return " " if character in "\r\t" else json.dumps(character)[1:-1]  # those stand between values only


def on_a_terminal(text: str) -> str:
    """Line breaks and tabs stay; colours go."""
    plain = _COLOUR.sub("", text.replace("\r\n", "\n"))
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in plain.split("\n"))


def can_ask() -> bool:
    """Somebody is there to answer."""
    return sys.stdin.isatty()


def fail(message: str, status: int = 1) -> NoReturn:
    say(message, err=True)
    sys.exit(status)


def show(fault: Fault) -> str:
    """A fault as one line for people."""
    hint = f" ({fault.hint})" if fault.hint and fault.hint not in fault.message else ""
    return visible(f"{fault.code}: {fault.message}{hint}")


def aligned(rows: tuple[tuple[str, ...], ...]) -> list[str]:
    """Columns as wide as what stands in them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def duration(seconds: float) -> str:
    """For people: 42s, 5m 3s, 2h 10m, 3d 4h."""
    whole = max(0, int(seconds))
    for unit, size, below, smaller in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller}{below}"
    return f"{whole}s"
