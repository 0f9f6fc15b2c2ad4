"""Answers with one line of ten megabytes, and counts what it was sent."""

from __future__ import annotations

import legacy

legacy.serve(
    {
        "talk": lambda arguments: "x" * arguments["length"],
        "listen": lambda arguments: str(len(arguments["say"])),
    }
)
