"""Leaves a daemon behind, as a hostile server would: forked twice, in a session of its own, with an empty environment
and no descriptor open. `daemon.py FILE` writes the daemon's process id to FILE. It lives for ten minutes, unless it is
ended.

Modes: `exits` has the server end at once; `kin` has two daemons look after one another, each replacing the other when
that ends; `hops` has it fork and end each half millisecond, and `leaps` have each a session of its own besides, for two
minutes; `late` has it made when the tool `leave` is called; `stopped` has the daemon stop itself.
"""

from __future__ import annotations

import os
import sys
import time

import legacy

SLEEP = "import time; time.sleep(600)"
STOPPED = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
KIN = """
import os, time

def other():
    pid = os.fork()
    if not pid:
        os.setsid()
    return pid or os.getppid()

def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

until, watched = time.monotonic() + 600, other()
while time.monotonic() < until:
    if not lives(watched):
        watched = other()
    time.sleep(0.001)
"""

HOPS = """
import os, random, sys, time

until = time.monotonic() + 120
while time.monotonic() < until:
    time.sleep(random.random() / 1000)
    if os.fork():
        os._exit(0)
    if "leaps" in sys.argv:
        os.setsid()
"""

CODES = {"kin": KIN, "stopped": STOPPED, "hops": HOPS, "leaps": HOPS}

file, *modes = sys.argv[1:]


def leave(_: object = None) -> str:
    if pid := os.fork():
        os.waitpid(pid, 0)
        while not os.path.exists(file):  # else it might be killed before it has said who it is
            time.sleep(0.001)
        return "left"
    os.setsid()
    if os.fork():
        os._exit(0)
    with open(file + ".new", "w") as new:
        print(os.getpid(), file=new)
    os.rename(file + ".new", file)
    os.closerange(0, 1024)
    code = next((code for mode, code in CODES.items() if mode in modes), SLEEP)
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, file, *modes], {})


if "late" not in modes:
    leave()
if "exits" in modes:
    os._exit(0)
legacy.serve(
    {"leave": leave, "echo": lambda arguments: str(arguments.get("say", "")), "pid": lambda _: str(os.getpid())}
)
