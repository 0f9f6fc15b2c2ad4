"""What was called, by whom, how often and how fast, how much went over, and what became of it.

The rules this file keeps: it is counted in memory, from the start of the gateway on; and whoever calls, whatever tools
a server has, no more than so many things are told apart. What comes later is counted as `names.OTHER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from math import inf
from typing import NamedTuple

import msgspec

from toolgate.telemetry import names

MOST = 2_000  # lines of calls by principal, method, server and tool
LONGEST = 200  # characters of a name that is told apart


class Called(NamedTuple):
    """By what calls are counted: who, and the true target. `tool` is empty where it is of no tool that is listed."""

    principal: str
    method: str
    server: str
    tool: str


class Durations(msgspec.Struct):
    """How many took how long, by the first bound of `names.BOUNDS` that holds; the last is for what takes longer."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(names.BOUNDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(names.BOUNDS, seconds)] += 1
        self.seconds += seconds


def within(durations: Iterable[Durations], share: float) -> float:
    """The bound, in seconds, within which this share of them has ended; infinite beyond the last."""
    counts = [sum(column) for column in zip(*(each.counts for each in durations), strict=True)]
    wanted = share * sum(counts)
    return next((bound for bound, ended in zip(names.BOUNDS, accumulate(counts), strict=False) if ended >= wanted), inf)


class Line(msgspec.Struct):
    """All calls that are counted together. Of a refusal the gateway has decided; an error is what became of a call that
    it let go on. `asked` are rounds that ended with a question to the client. Tokens are estimated; `ratio` is how many
    there are in a byte of results, `ratio_in` of arguments."""

    served: dict[str, Durations]  # by type of error, empty for none: of all principals together
    sent: dict[str, Durations]
    calls: int = 0
    asked: int = 0
    errors: dict[str, int] = {}
    refusals: dict[str, int] = {}
    bytes_in: int = 0
    bytes_out: int = 0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    ratio_in: float = 0.0
    ratio: float = 0.0


COUNTED: tuple[tuple[str, str, str, Callable[[Line], int]], ...] = (
    ("toolgate.calls", "{call}", "Calls that have ended, however they did.", lambda line: line.calls),
    (
        "toolgate.call.questions",
        "{question}",
        "Questions that calls asked their clients.",
        lambda line: line.asked,
    ),
    ("toolgate.call.argument.bytes", "By", "Bytes of arguments.", lambda line: line.bytes_in),
    ("toolgate.call.result.bytes", "By", "Bytes of results, as clients got them.", lambda line: line.bytes_out),
    ("toolgate.call.argument.tokens", "{token}", "Tokens of arguments, estimated.", lambda line: int(line.tokens_in)),
    ("toolgate.call.result.tokens", "{token}", "Tokens of results, estimated.", lambda line: int(line.tokens_out)),
)
"""What is shown of a line: name, unit, what it is."""

BY_KIND: tuple[tuple[str, str, str, Callable[[Line], Mapping[str, int]]], ...] = (
    ("toolgate.call.errors", "Calls that went on and failed.", "error", lambda line: dict(line.errors)),
    ("toolgate.call.refusals", "Calls that the gateway refused.", "reason", lambda line: dict(line.refusals)),
)
"""What is shown of it by kind: name, what it is, what tells the kinds apart."""

Timed = tuple[dict[str, Durations], dict[str, Durations]]

_SUMMED = ("calls", "asked", "bytes_in", "bytes_out", "tokens_in", "tokens_out")


class Usage:
    """Of one gateway, whatever configurations it has."""

    def __init__(self) -> None:
        self._lines: dict[Called, Line] = {}
        self._timed: dict[tuple[str, str, str], Timed] = {}  # by method, server and tool

    def line(self, called: Called) -> Line:
        return self._lines.get(called) or self._another(called)

    def _another(self, called: Called) -> Line:
        """Where there are too many: who called it is told no more apart, or else what. There are only so many methods,
        and servers in a configuration."""
        called = Called(*(name if len(name) <= LONGEST else names.OTHER for name in called))
        if called not in self._lines and len(self._lines) >= MOST:
            called = called._replace(tool=called.tool and names.OTHER)
            if called not in self._lines:
                called = called._replace(principal=names.OTHER)
        if called not in self._lines:
            served, sent = self._timed.setdefault(called[1:], ({}, {}))
            self._lines[called] = Line(served, sent)
        return self._lines[called]

    # Of other processes, whose calls are counted as ours.

    def taken(self) -> tuple[Mapping[Called, Line], Mapping[tuple[str, str, str], Timed]]:
        """All that was counted, which is forgotten here."""
        taken = self._lines, self._timed
        self._lines, self._timed = {}, {}
        return taken

    def add(self, called: Called, more: Line) -> None:
        """What another process has taken of its own, without durations."""
        line = self.line(called)
        for name in _SUMMED:
            setattr(line, name, getattr(line, name) + getattr(more, name))
        for own, counts in ((line.errors, more.errors), (line.refusals, more.refusals)):
            for kind, count in counts.items():
                own[kind] = own.get(kind, 0) + count
        line.ratio_in, line.ratio = more.ratio_in or line.ratio_in, more.ratio or line.ratio

    def add_timed(self, called: tuple[str, str, str], more: Timed) -> None:
        """The same of durations, by method, server and tool."""
        if called not in self._timed and len(self._timed) >= MOST:
            called = (*called[:2], called[2] and names.OTHER)
        for own, durations in zip(self._timed.setdefault(called, ({}, {})), more, strict=True):
            for error, each in durations.items():
                found = own.setdefault(error, Durations())
                found.counts = [one + other for one, other in zip(found.counts, each.counts, strict=True)]
                found.seconds += each.seconds

    # What is shown. It may be read in another thread: nothing here goes through what is changed meanwhile.

    def lines(self) -> Mapping[Called, Line]:
        return dict(self._lines)

    def timed(self) -> Iterator[tuple[Called, Mapping[str, Durations], Mapping[str, Durations]]]:
        """By what all principals have called."""
        for (method, server, tool), (served, sent) in list(self._timed.items()):
            yield Called("", method, server, tool), dict(served), dict(sent)


def add(durations: dict[str, Durations], error: str, seconds: float) -> None:
    found = durations.get(error)
    if not found:
        found = durations[error] = Durations()
    found.add(seconds)
