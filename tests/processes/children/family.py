"""Starts a grandchild that lives for ten minutes. `family.py FILE MODE...` writes both process ids to FILE.

Modes: `setsid` has the grandchild leave for a session of its own, `stubborn` has both ignore SIGTERM and SIGINT, and
the child the end of its stdin too. The grandchild holds the child's stdout and stderr open.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import legacy

GRANDCHILD = """
import signal, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
time.sleep(600)
"""

file, *modes = sys.argv[1:]
if "stubborn" in modes:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
grandchild = subprocess.Popen(
    [sys.executable, "-I", "-S", "-c", GRANDCHILD, file, *modes],
    stdin=subprocess.DEVNULL,
    start_new_session="setsid" in modes,
)
with open(file + ".new", "w") as new:
    print(os.getpid(), grandchild.pid, file=new)
os.rename(file + ".new", file)
legacy.serve({"hang": lambda _: time.sleep(600) or "", "echo": lambda arguments: str(arguments.get("say", ""))})
if "stubborn" in modes:
    time.sleep(600)
