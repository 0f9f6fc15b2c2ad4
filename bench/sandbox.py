"""What a run of code costs, beside an echo through the same kind of pipe. See README.md."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import uvloop

from toolgate.core.clock import SystemClock
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox import javascript, python
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.pool import Pool
from toolgate.sandbox.run import Host, Rests
from toolgate.sandbox.slots import Slots
from toolgate.sandbox.worker import Engine
from toolgate.upstreams.process.supervisor import Child, Supervisor

CALLS = 1000
LINE = b'{"call":1,"server":"shop","tool":"echo","arguments":{"n":1}}\n'


class Echo:
    """`cat`, started and spoken to as a worker is."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._lines = 0
        self._wanted = 0
        self._heard = asyncio.Event()

    async def start(self, supervisor: Supervisor) -> None:
        self._child = await supervisor.start("echo", "cat", [], {}, None, self._output, lambda _: None, lambda: None)

    def _output(self, data: bytes) -> None:
        self._lines += data.count(b"\n")
        if self._lines >= self._wanted:
            self._heard.set()

    async def back(self, lines: int) -> None:
        assert self._child
        self._lines, self._wanted = 0, lines
        self._heard.clear()
        for _ in range(lines):
            self._child.write(LINE)
        await self._heard.wait()

    async def in_sequence(self) -> list[float]:
        """Seconds of each line."""
        moments = [time.perf_counter()]
        for _ in range(CALLS):
            await self.back(1)
            moments.append(time.perf_counter())
        return between(moments)


def between(moments: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(moments)]


class Shop:
    """A host that answers, and knows when each call came."""

    def __init__(self, pause: float = 0.0) -> None:
        self.host = Host({"shop": ["echo"]}, self.call)
        self.moments: list[float] = []
        self._pause = pause

    async def call(self, server: str, tool: str, arguments: bytes, raw: bool, rests: Rests) -> bytes:
        self.moments.append(time.perf_counter())
        if self._pause:
            await asyncio.sleep(self._pause)
        return arguments


IN_SEQUENCE = f"for (let n = 0; n < {CALLS}; n++) await servers.shop.echo({{ n }})"
AT_ONCE = f"""
await servers.shop.echo();
await Promise.all(Array.from({{ length: {CALLS - 2} }}, (_, n) => servers.shop.echo({{ n }})));
await servers.shop.echo();
"""
RIGHT = "32 runs at once that are right"
FIFTIES = "await Promise.all(Array.from({ length: 64 }, () => servers.shop.echo()))"


async def ready(pool: Pool, workers: int) -> None:
    pool.prepare()
    while pool.ready < workers:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # they have settled


async def timed(pool: Pool, code: str, shop: Shop) -> float:
    began = time.perf_counter()
    await pool.run(code, shop.host)
    return time.perf_counter() - began


def unique(pid: int) -> float:
    """MB of a process that no other shares."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_")) / 1024


async def sampled(rounds: int, one: Callable[[], Awaitable[float]]) -> list[float]:
    return [await one() for _ in range(rounds)]


async def measured(rounds: int) -> dict[str, tuple[float, float, str]]:
    """By figure: what it is, its goal, and its unit."""
    clock = SystemClock()
    supervisor, limits, intake = Supervisor(clock, os.environ), Limits(), IntakeQueue()
    supervisor.prepare()

    def pool_of(engine: Engine, limits: Limits) -> Pool:
        return Pool(engine, Slots(limits, clock), limits, clock, intake)

    one_by_one = msgspec.structs.replace(limits, warm=0)
    warm = pool_of(javascript.engine(supervisor, limits), limits)
    cold = pool_of(javascript.engine(supervisor, one_by_one), one_by_one)
    kept = pool_of(python.engine(supervisor, limits), limits)
    forked = pool_of(python.engine(supervisor, one_by_one), one_by_one)
    echo = Echo()
    await echo.start(supervisor)
    await timed(forked, "1", Shop())  # the zygote is there
    starts, own_starts = list[float](), list[float]()  # of JavaScript, and of Python
    echoes, calls, batches = list[float](), list[float](), list[float]()  # of a round each
    means: list[float] = []
    fifties: list[float] = []
    for _ in range(rounds):
        await ready(warm, 2)
        starts.append(await timed(warm, "return 1", Shop()))
        await ready(kept, 2)
        own_starts.append(await timed(kept, "1", Shop()))
        echoed = await echo.in_sequence()
        await timed(cold, IN_SEQUENCE, shop := Shop())  # by one that nothing is made beside
        called = between(shop.moments)
        echoes.append(statistics.median(echoed))
        calls.append(statistics.median(called))
        means.append(statistics.mean(called) / statistics.mean(echoed))
        await timed(cold, AT_ONCE, shop := Shop())
        batches.append((shop.moments[-1] - shop.moments[0]) / CALLS)
        await ready(warm, 2)
        fifties.append(await timed(warm, FIFTIES, Shop(0.05)))
    colds = await sampled(rounds, lambda: timed(cold, "return 1", Shop()))
    forks = await sampled(rounds, lambda: timed(forked, "1", Shop()))
    await ready(warm, 2)
    memory = [unique(pid) for pid in warm.pids]
    code = "await sleep(5); return %d + (await servers.shop.echo({ n: 1 })).n"
    runs = [warm.run(code % n, Shop().host) for n in range(32)]
    right = sum(json.loads(ran.value or b"") == n + 1 for n, ran in enumerate(await asyncio.gather(*runs)))
    for pool in (warm, cold, kept, forked):
        await pool.close()
    await supervisor.close()
    return {
        "warm start, p50": (statistics.median(starts) * 1e3, 12, "ms"),
        "warm start, least": (min(starts) * 1e3, 12, "ms"),
        "cold start, p50": (statistics.median(colds) * 1e3, 150, "ms"),
        "cold start, least": (min(colds) * 1e3, 150, "ms"),
        "Python, warm start, p50": (statistics.median(own_starts) * 1e3, 15, "ms"),
        "Python, forked, p50": (statistics.median(forks) * 1e3, 15, "ms"),
        "Python, forked, least": (min(forks) * 1e3, 15, "ms"),
        "echo in sequence": (statistics.median(echoes) * 1e6, 0, "µs"),
        "call in sequence": (statistics.median(calls) * 1e6, 0, "µs"),
        "call in sequence, beside the echo": (statistics.median(calls) / statistics.median(echoes), 6, "times"),
        "the mean of both, which others disturb": (statistics.median(means), 0, "times"),
        "call, 1000 at once": (statistics.median(batches) * 1e6, 0, "µs"),
        "call, 1000 at once, beside an echo in sequence": (
            statistics.median(batches) / statistics.median(echoes),
            2,
            "times",
        ),
        "64 calls of 50 ms, p50": (statistics.median(fifties) * 1e3, 100, "ms"),
        RIGHT: (right, 32, "runs"),
        "memory of an idle worker": (max(memory), 30, "MB"),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=3)
    wanted = parser.parse_args()
    runs = [uvloop.run(measured(wanted.rounds)) for _ in range(wanted.runs)]
    for name, (_, goal, unit) in runs[0].items():
        figures = [run[name][0] for run in runs]
        spread = f"{min(figures):.2f} to {max(figures):.2f}"
        print(f"{name:50} {statistics.median(figures):9.2f} {unit:6} {spread:22}" + (f" goal {goal:g}" if goal else ""))
    if any(run[RIGHT][0] != 32 for run in runs):
        sys.exit("runs at once were mixed up")


if __name__ == "__main__":
    main()
