"""Writes to stderr what it is called with, as many servers do that log their requests: `look` goes on, `leave` ends.

With `--never` it says so and does not start."""

from __future__ import annotations

import os
import sys

import legacy


def look(arguments: legacy.Json) -> str:
    print(f"looking for {arguments['text']}", file=sys.stderr, flush=True)
    return "found"


def leave(arguments: legacy.Json) -> str:
    print(f"KeyError: '{arguments.get('text', 'NOTHING')}'", file=sys.stderr, flush=True)
    os._exit(3)


if "--never" in sys.argv:
    sys.exit("KeyError: 'WORDS_OF_ITS_OWNER'")
legacy.serve({"look": look, "leave": leave, "mine": lambda _: "yours"}, threads=False)
