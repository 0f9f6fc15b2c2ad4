"""Leaves in the middle of its work: `last_words` answers and is gone at once, `crash` is gone without an answer,
`deaf` closes its stdin while it lives on, `mute` its stdout, `stall` reads no more of its stdin, `fade` closes both its
pipes and crashes when the file `until` is there."""

from __future__ import annotations

import contextlib
import json
import os
import time

import legacy


def last_words(arguments: legacy.Json) -> str:
    """A long answer, so that it fills more than one pipe's buffer, and not a moment between it and the end."""
    message = {"jsonrpc": "2.0", "id": legacy.seen[-1]["id"], "result": legacy.text("x" * arguments["length"])}
    legacy.write(json.dumps(message).encode())
    os._exit(0)


def crash(_: legacy.Json) -> str:
    os._exit(3)


def deaf(_: legacy.Json) -> str:
    os.close(0)
    return "deaf"


def mute(_: legacy.Json) -> str:
    os.close(1)
    time.sleep(600)
    return ""


def stall(_: legacy.Json) -> str:
    time.sleep(600)
    return ""


def fade(arguments: legacy.Json) -> str:
    os.close(0)
    os.close(1)
    while not os.path.exists(arguments["until"]):
        time.sleep(0.01)
    os.write(2, b"cleaning up\nout of memory\n")
    os._exit(3)


def complain(_: legacy.Json) -> str:
    os.write(2, b"out of memory\n")
    os._exit(3)


tools = {
    "last_words": last_words,
    "crash": crash,
    "fade": fade,
    "complain": complain,
    "deaf": deaf,
    "mute": mute,
    "stall": stall,
    "pid": lambda _: str(os.getpid()),
}
with contextlib.suppress(OSError):  # of the pipe that it closed itself
    legacy.serve(tools, threads=False)
    os._exit(0)
time.sleep(600)
