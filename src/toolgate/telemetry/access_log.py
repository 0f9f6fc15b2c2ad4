"""The access log: a line for each round of a call, written by a thread.

The rules this file keeps: nobody waits for a line to be written, so where it cannot be, no more than so many lines wait
and the others are lost and counted; and whatever a client wrote, a line is one line of printable ASCII.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

import msgspec

LOGGER = "toolgate.access"
LONGEST = 256  # characters of what is named from outside
MOST = 10_000  # lines that wait
LAST = 2.0  # seconds for what is left at the end


class Access(msgspec.Struct, omit_defaults=True):
    """What became of one round, in the words of the audit log. `via` is the control tool that it came through."""

    who: str
    address: str
    method: str
    server: str
    target: str
    decision: str
    outcome: str
    ms: float
    bytes_in: int
    bytes_out: int
    code: str = ""
    via: str = ""

    def __post_init__(self) -> None:
        for name in ("who", "method", "target"):
            if len(given := getattr(self, name)) > LONGEST:
                setattr(self, name, given[:LONGEST] + "…")

    def __str__(self) -> str:
        """For people, and what reads `key=value`. What is empty is left out."""
        told = msgspec.to_builtins(self).items()
        return "access " + " ".join(f"{key}={_quoted(value)}" for key, value in told if value != "")


def _quoted(value: str | float) -> str:
    plain = str(value)
    if plain.isascii() and plain.isprintable() and not set(plain) & set(' "=\\'):
        return plain
    return json.dumps(plain)


class Beside(logging.Handler):
    """Has a thread write what is logged, by `write`."""

    def __init__(self, write: Callable[[str], object], most: int = MOST) -> None:
        super().__init__()
        self._lines: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        self._write, self._most = write, most
        self._lost = 0
        self._thread: threading.Thread | None = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Without a lock, since nothing is written here."""
        if self._lines.qsize() >= self._most:
            self._lost += 1
            return False
        if self._lost:
            lost, self._lost = self._lost, 0
            said = f"access log: {lost} lines were lost: they could not be written as fast as calls came"
            self._lines.put(logging.LogRecord(LOGGER, logging.WARNING, "", 0, said, None, None))
        self._lines.put(record)
        if not self._thread:
            self._thread = threading.Thread(target=self._work, name="access log", daemon=True)
            self._thread.start()
        return True

    def _work(self) -> None:
        while record := self._lines.get():
            try:
                self._write(self.format(record) + "\n")
            except OSError:
                self._lost += 1  # nobody reads it

    def close(self) -> None:
        """What waits is written, if that goes fast."""
        if self._thread:
            self._lines.put(None)
            self._thread.join(LAST)
            self._thread = None
        super().close()
