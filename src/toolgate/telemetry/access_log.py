"""The access log: a line for each round of a call, written by a thread.

The rules this file keeps: nobody waits for a line to be written, so where it cannot be, no more than so many lines wait
and the others are lost and counted; and whatever a client wrote, a line is one line of printable ASCII.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue

import msgspec

LOGGER = "toolgate.access"
LONGEST = 256  # characters of what is named from outside
MOST = 10_000  # lines that wait
TOGETHER = 0.1  # seconds in which lines are gathered: to wake a thread for each would take longer than to write it
WHOLE = 4096  # bytes that a pipe takes as one, beside what others write to it
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
        return (
            f"access{_member('who', self.who)}{_member('address', self.address)}{_member('method', self.method)}"
            f"{_member('server', self.server)}{_member('target', self.target)}{_member('decision', self.decision)}"
            f"{_member('outcome', self.outcome)} ms={self.ms} bytes_in={self.bytes_in} bytes_out={self.bytes_out}"
            f"{_member('code', self.code)}{_member('via', self.via)}"
        )


@lru_cache(maxsize=1024)  # lines say the same names again and again
def _member(name: str, value: str) -> str:
    return f" {name}={value if _plain.fullmatch(value) else json.dumps(value)}" if value else ""


_plain = re.compile(r"[!#-<>-\[\]-~]+")  # printable, without what quotes, parts or escapes
_OF_EACH = logging.makeLogRecord({"name": LOGGER, "levelno": logging.INFO, "levelname": "INFO"}).__dict__


class AccessRecord(logging.LogRecord):
    """A record of the log that costs little to make: it says when, and nothing of where in the code."""

    def __init__(self, line: Access) -> None:
        now = time.time()
        self.__dict__.update(_OF_EACH, msg=line, created=now, msecs=now % 1 * 1000)


class Beside(logging.Handler):
    """Has a thread write what is logged, by `write`."""

    def __init__(self, write: Callable[[str], object], most: int = MOST) -> None:
        super().__init__()
        self._lines: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        self._write, self._most = write, most
        self._lost = 0
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

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
        goes_on = True
        while goes_on:
            records = [self._lines.get()]
            self._ends.wait(TOGETHER)
            while not self._lines.empty():
                records.append(self._lines.get())
            goes_on = None not in records
            self._write_all([self.format(record) + "\n" for record in records if record])

    def _write_all(self, lines: list[str]) -> None:
        while lines:
            size = count = 0
            while count < len(lines) and (not count or size + len(lines[count]) <= WHOLE):
                size, count = size + len(lines[count]), count + 1
            try:
                self._write("".join(lines[:count]))
            except OSError:
                self._lost += count  # nobody reads it
            del lines[:count]

    def close(self) -> None:
        """What waits is written, if that goes fast."""
        if self._thread:
            self._ends.set()
            self._lines.put(None)
            self._thread.join(LAST)
            self._thread = None
            self._ends.clear()
        super().close()
