"""What an attack does to the process of the gateway: how long its event loop was kept, and how much memory it took."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

MB = 1024 * 1024
BEAT = 0.002  # seconds

MOST_LAG = 0.1  # seconds of the processor between two beats
MOST_GROWTH = 64 * MB


@dataclass
class Pressure:
    """`lag` counts what this thread computed between two beats, in seconds: what others on the machine do is not in it,
    as it is in `late`, which is by the clock. `growth` is that of the memory in use at its highest, in bytes."""

    beats: int = 0
    lag: float = 0.0
    late: float = 0.0
    growth: int = 0

    def __str__(self) -> str:
        return f"lag {self.lag * 1e3:.0f} ms ({self.late * 1e3:.0f} by the clock), growth {self.growth / MB:.0f} MB"


@asynccontextmanager
async def measured() -> AsyncIterator[Pressure]:
    found = Pressure()

    async def beat() -> None:
        while True:
            thread, clock = time.thread_time(), time.perf_counter()
            await asyncio.sleep(BEAT)
            found.lag = max(found.lag, time.thread_time() - thread)
            found.late = max(found.late, time.perf_counter() - clock - BEAT)
            found.growth = max(found.growth, resident() - before)
            found.beats += 1

    gc.collect()
    before = resident()
    beating = asyncio.create_task(beat())
    try:
        yield found
    finally:
        beats = found.beats
        while found.beats < beats + 2 and not beating.done():  # so that the last of it is in
            await asyncio.sleep(BEAT)
        beating.cancel()


def resident() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
