"""Writes what is no message to stdout, between its messages, and a megabyte to stderr."""

from __future__ import annotations

import sys

import legacy


def shout(_: legacy.Json) -> str:
    for number in range(16 * 1024):
        sys.stderr.write(f"{number:063d}\n")
    sys.stderr.flush()
    return "shouted"


def echo(arguments: legacy.Json) -> str:
    for noise in (b"Listening...", b"", b"[1, 2]", b"\xff\xfe\x00", b"{no json", b'{"neither": "a message"}', b"null"):
        legacy.write(noise)
    return arguments["say"]


print("Welcome to the noisy server!", flush=True)
print("a warning at the start", file=sys.stderr, flush=True)
legacy.serve({"shout": shout, "echo": echo})
