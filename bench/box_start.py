"""What a box adds to the start of a server: pairs of starts, with and without, in turns. See README.md.

What is measured reaches from the order to start until the program has ended, which does nothing but start: wall time as
the gateway sees it, and processor time of the gateway and the guard with all that it has started. On a machine that
does much else the least of each kind tells more than the medians do: the column `least more`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from harness import ROOT

sys.path[:0] = [str(ROOT / "src")]

from toolgate.config import Config, Server  # noqa: E402
from toolgate.config.server import ServerBox  # noqa: E402
from toolgate.core.clock import SystemClock  # noqa: E402
from toolgate.upstreams.process.boxes import Boxes  # noqa: E402
from toolgate.upstreams.process.supervisor import Supervisor  # noqa: E402

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "a small program": ("/bin/true",),
    "Python": (sys.executable, "-I", "-S", "-c", ""),
}
TICK = 1000 / os.sysconf("SC_CLK_TCK")


async def started(supervisor: Supervisor, boxes: Boxes, server: Server) -> float:
    """Milliseconds from the order to the end."""
    ended = asyncio.Event()
    began = time.perf_counter()
    launch = await boxes.launch(server)
    start: Any = launch or server
    child = await supervisor.start(
        *(server.name, start.command, start.args, start.env, start.cwd),
        *(lambda _: None, lambda _: ended.set(), lambda: None),
        talks=False,
        box=launch.box if launch else None,
    )
    await child._exited.wait()
    milliseconds = (time.perf_counter() - began) * 1e3
    await ended.wait()
    return milliseconds


def used(supervisor: Supervisor) -> float:
    """Milliseconds of processor time of the guard, and of what it has started and has ended."""
    process = supervisor._guard._process
    assert process
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK


async def measured(words: tuple[str, ...], level: str, pairs: int) -> tuple[list[float], list[float], float, float]:
    """Wall times without and with a box, and the processor time of one start of each."""
    bare = Server(id="bare", name="bare", type="stdio", command=words[0], args=words[1:])
    boxed = msgspec.structs.replace(bare, id="boxed", box=ServerBox(level=level))  # type: ignore[arg-type]
    walls: dict[str, list[float]] = {"bare": [], "boxed": []}
    cpu = {"bare": 0.0, "boxed": 0.0}
    with tempfile.TemporaryDirectory(prefix="toolgate-bench-") as folder:
        supervisor = Supervisor(SystemClock(), {**os.environ, "HOME": folder, "XDG_STATE_HOME": folder})
        boxes = Boxes(Config(), supervisor, SystemClock())
        try:
            for server in (bare, boxed, bare, boxed):
                await started(supervisor, boxes, server)
            for batch in range(0, pairs, 10):
                for server in (bare, boxed) if batch % 20 else (boxed, bare):
                    before, own = used(supervisor), time.process_time()
                    walls[server.id] += [await started(supervisor, boxes, server) for _ in range(10)]
                    cpu[server.id] += used(supervisor) - before + (time.process_time() - own) * 1e3
        finally:
            await supervisor.close()
    return walls["bare"], walls["boxed"], cpu["bare"] / pairs, cpu["boxed"] / pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="the median counts (%(default)s)")
    parser.add_argument("--pairs", type=int, default=100, help="starts of each kind in a run (%(default)s)")
    parser.add_argument("--level", default="strict", help="of the box (%(default)s)")
    parser.add_argument("--limit", type=float, default=5.0, help="ms more, in the median (%(default)s)")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f}; medians of {args.runs} runs of {args.pairs} pairs, box {args.level}\n")
    columns = ("without", "in a box", "more", "least more", "processor without", "in a box", "more")
    print(f"| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    worst = 0.0
    for name, words in PROGRAMS.items():
        rows: list[tuple[float, ...]] = []
        for _ in range(args.runs):
            gc.collect()
            bare, boxed, cpu_bare, cpu_boxed = asyncio.run(measured(words, args.level, args.pairs))
            wall = statistics.median(bare), statistics.median(boxed)
            least = min(boxed) - min(bare)
            rows.append((*wall, wall[1] - wall[0], least, cpu_bare, cpu_boxed, cpu_boxed - cpu_bare))
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        worst = max(worst, medians[2], medians[6])
        print(f"| {name} | " + " | ".join(f"{each:.2f} ms" for each in medians) + " |")
    print(f"\nload {os.getloadavg()[0]:.2f}")
    print("ok" if worst <= args.limit else f"OVER THE LIMIT of {args.limit:g} ms")
    return worst > args.limit


if __name__ == "__main__":
    sys.exit(main())
