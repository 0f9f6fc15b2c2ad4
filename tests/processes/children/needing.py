"""Needs a folder: `write` writes into the one that its command line names. `never` fails wherever it runs, and tells
whether that is in a box."""

from __future__ import annotations

import sys
from pathlib import Path

import legacy


def write(_: legacy.Json) -> str:
    (Path(sys.argv[1]) / "written").write_text("x")
    return "written"


def never(_: legacy.Json) -> str:
    status = Path("/proc/self/status").read_text()
    flag = next(line for line in status.splitlines() if line.startswith("NoNewPrivs"))
    raise RuntimeError(f"no new privileges: {flag.split()[1]}")


def failing(tool: legacy.Tool) -> legacy.Tool:
    """Its failure is a failed result."""

    def call(arguments: legacy.Json) -> str | legacy.Json:
        try:
            return tool(arguments)
        except Exception as error:
            return {**legacy.text(f"{type(error).__name__}: {error}"), "isError": True}

    return call


legacy.serve({"write": failing(write), "never": failing(never)})
