"""Offers fifty tools. `offering.py MODE`: `hang` answers nothing, `crash` ends at once, `garbage` speaks no JSON."""

from __future__ import annotations

import sys
import time

import legacy

mode = sys.argv[1]
if mode == "crash":
    sys.exit("KeyError: 'SOME_API_KEY'")
if mode == "hang":
    time.sleep(600)
if mode == "garbage":
    for _ in sys.stdin:
        print("<html>not what you think</html>", flush=True)
legacy.serve({f"tool_{number}": lambda _: mode for number in range(50)})
