"""The table of cases: what is measured of each gateway. A new case is a row here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lanes import Cell

CALLS = 8000  # of a run, which ends after a second in any case
MANY = 10_000  # idle sessions
OPEN = 5000  # idle connections; half as many as a process may have open files is the most of one address
BYTES = 20_000_000  # of a run with large results
SIZES = {"1 KB": ("size_1k", 1000), "10 KB": ("size_10k", 10_000), "100 KB": ("size_100k", 100_000),
         "1 MB": ("size_1m", 1_000_000), "10 MB": ("size_10m", 10_000_000)}  # fmt: skip
REAL = {"file": 4000, "rows": 2000, "issues": 40_000, "page": 12_000, "picture": 200_000}


class Figure(NamedTuple):
    """One more column of a table: the most of this in all runs that have it."""

    title: str
    of: str
    scale: float = 1.0


class Case(NamedTuple):
    """Warm calls with something around them: CPU for a call, by cell."""

    name: str
    title: str
    cells: Mapping[str, Cell]
    more: Sequence[Figure] = ()
    upstream: Sequence[str] = ()  # options of the server


class Starts(NamedTuple):
    """From the start of a gateway to its first whole list, by how many servers it has."""

    name: str
    title: str
    servers: Sequence[int]
    tools: int  # of each server


def of_size(tool: str, size: int) -> Cell:
    return Cell(4, max(4, min(CALLS, BYTES // size)), tool, size * 9 // 10)


CASES: tuple[Case | Starts, ...] = (
    Case("warm", "A warm tools/call", {f"{n} connections": Cell(n, CALLS) for n in (1, 16, 64, 256)}),
    Case("sse", "A warm tools/call that the server answers with a stream of one event",
         {f"{n} connections": Cell(n, CALLS) for n in (1, 16)}, upstream=["--sse"]),
    Case("heads", "A warm tools/call, 16 connections, whose head differs each time", {
        "always the same": Cell(16, CALLS),
        "another traceparent": Cell(16, CALLS, differing="traceparent"),
        "another header that is not known": Cell(16, CALLS, differing="x-sent-at"),
    }),
    Case("sizes", "Results of 1 KB to 10 MB, 4 connections",
         {title: of_size(tool, size) for title, (tool, size) in SIZES.items()}),
    Case("real", "Results shaped as those of five real servers, 4 connections",
         {f"{tool}, {size / 1000:g} KB": of_size(tool, size) for tool, size in REAL.items()}),
    Case("reconnects", "Clients that come back for each call", {
        "a new connection for each call, 16 at once": Cell(16, 2000, fresh="connection"),
        "a new connection and session for each call, 16 at once": Cell(16, 2000, fresh="session"),
        "1,000 at once, on new connections": Cell(1000, 2000, fresh="connection"),
    }, [Figure("longest ms", "longest_us", 1e-3)]),
    Case("idle", "A warm tools/call, 16 connections, beside idle ones", {
        "nothing beside": Cell(16, CALLS),
        "1,000 idle connections": Cell(16, CALLS, idle_connections=1000),
        "5,000 idle connections": Cell(16, CALLS, idle_connections=OPEN),
    }, [Figure("KB each", "kb_each")]),
    Case("sessions", "A warm tools/call, 16 connections, beside idle sessions", {
        "nothing beside": Cell(16, CALLS),
        "1,000 idle sessions": Cell(16, CALLS, idle_sessions=1000),
        "10,000 idle sessions": Cell(16, CALLS, idle_sessions=MANY),
    }, [Figure("KB each", "kb_each")]),
    Case("reloads", "A warm tools/call, 16 connections, while the configuration changes twice a second", {
        "undisturbed": Cell(16, CALLS),
        "reloaded": Cell(16, 1_000_000, reloads=True),
    }, [Figure("longest ms", "longest_us", 1e-3), Figure("lost calls", "lost")]),
    Starts("start", "From the start to the first whole list", (1, 10, 100, 1000), tools=50),
)  # fmt: skip
