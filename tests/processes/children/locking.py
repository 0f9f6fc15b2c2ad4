"""Holds a lock file for as long as it lives, and takes a moment to end: another one that wants the file meanwhile ends
at once. `hold` answers when there is a file of that name."""

from __future__ import annotations

import fcntl
import os
import sys
import time

import legacy

lock, name = sys.argv[1:]


def hold(arguments: legacy.Json) -> str:
    while not os.path.exists(arguments["until"]):
        time.sleep(0.01)
    return name


with open(lock, "w") as held:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("the lock is held by another")
    legacy.serve({"name": lambda _: name, "hold": hold})
    time.sleep(0.3)
