"""Counts how many calls are in flight together. `slow` answers after half a second, `hold` when `release` is called or
never where it is cancelled, `most` says how many there were at most."""

from __future__ import annotations

import json
import os
import threading
import time

import legacy

changed = threading.Condition()
now = most = released = cancelled = 0


def enter() -> int:
    """Count a call; how often was released before."""
    global now, most
    with changed:
        now += 1
        most = max(most, now)
        return released


def leave() -> None:
    global now
    with changed:
        now -= 1


def slow(arguments: legacy.Json) -> str:
    enter()
    time.sleep(0.5)
    leave()
    return arguments.get("say", "")


def hold(arguments: legacy.Json) -> str:
    before = enter()
    with changed:
        changed.wait_for(lambda: released > before)
    leave()
    return arguments.get("say", "")


def release(_: legacy.Json) -> str:
    global released
    with changed:
        released += 1
        changed.notify_all()
    return "released"


def counts(_: legacy.Json) -> str:
    return json.dumps({"now": now, "most": most, "cancelled": cancelled})


def on_cancelled(_: object) -> None:
    """The caller waits no more. (Its thread stays until the next release, which does no harm here.)"""
    global cancelled
    with changed:
        cancelled += 1


tools = {"slow": slow, "hold": hold, "release": release, "counts": counts, "pid": lambda _: str(os.getpid())}
legacy.serve(tools, on_cancelled=on_cancelled)
