"""Python code that takes all memory, all time or all output ends, and the next run is fine."""

# ruff: noqa: E501  a row of the table is a line

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable, Iterable

import pytest
from attack.sandbox.pressure import MOST_GROWTH, MOST_LAG, Pressure, measured
from processes.ground import real
from processes.sandbox_stage import staged
from sandboxing import python_engine, run

from toolgate.sandbox.python import MEMORY, box_of_run
from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

# How a run ends: `error NAME` by itself, `killed` by a signal, `silent`, `unread` where it wrote nonsense, or `ended` by
# the host, as each does where the machine is busy.
TAKE: dict[str, tuple[str, tuple[str, ...]]] = {
    "a list": ("a = []\nwhile True: a.append(bytearray(1 << 20))", ("error MemoryError",)),
    "a text": ("'x' * 10 ** 11", ("error MemoryError",)),
    "a list at once": ("[0] * 10 ** 10", ("error MemoryError",)),
    "a dictionary": ("d = {}\nfor i in range(10 ** 9): d[i] = i", ("error MemoryError", "ended")),
    "memory, and again": (
        "while True:\n    try:\n        a = []\n        while True: a.append(bytearray(1 << 22))\n    except MemoryError: pass",
        ("ended", "killed"),
    ),
    "a set of tuples": ("import itertools\nset(itertools.product(range(1000), repeat=3))", ("error MemoryError", "ended")),
    "pages of its own": (
        "import sqlite3\nsqlite3.connect(':memory:').execute('create table a as with recursive n(i) as (select 1 union "
        "all select i + 1 from n) select i, randomblob(10000) from n')",
        ("error MemoryError", "error OperationalError"),
    ),
    "a bomb of zeros": (
        "import zlib\nb = zlib.compress(bytes(1 << 26), 9)\n[zlib.decompress(b) for _ in range(64)]",
        ("error MemoryError",),
    ),
    "a large answer": ("'x' * (1 << 26)", ("ended",)),
    "deep recursion": ("def f(n): return f(n + 1)\nf(0)", ("error RecursionError",)),
    "deeper recursion": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(n): return f(n + 1)\nf(0)",
        ("error MemoryError", "error RecursionError", "killed", "ended"),
    ),
    "recursion in C": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\na = []\nfor _ in range(10 ** 6): a = [a]\nrepr(a)",
        ("error MemoryError", "error RecursionError", "killed"),
    ),
    "a deep value": ("a = []\nfor _ in range(10 ** 5): a = [a]\na", ("done",)),
    "a deep program": ("eval('(' * 10 ** 5 + ')' * 10 ** 5)", ("error MemoryError", "error SyntaxError", "error RecursionError")),
    "a deep JSON": ("import json\njson.loads('[' * 10 ** 6)", ("error RecursionError",)),
    "a loop": ("while True: pass", ("ended",)),
    "a loop that catches": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        ("ended",),
    ),
    "a large number": ("9 ** 9 ** 9", ("ended", "error MemoryError")),
    "a number shown": ("str(10 ** 10 ** 6)", ("error ValueError",)),
    "a slow pattern": ("import re\nre.match('(a+)+$', 'a' * 64 + 'b')", ("ended",)),
    "sleep": ("import time\ntime.sleep(10 ** 6)", ("ended",)),
    "deaf sleep": (
        "import signal, time\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n"
        "while True: time.sleep(1)",
        ("ended",),
    ),
    "much output": ("while True: print('x' * 1000)", ("ended",)),
    "many empty lines": ("while True: print()", ("ended",)),
    "raw output": ("import os\nwhile True: os.write(1, bytes(1 << 16))", ("ended", "unread")),
    "calls without end": ("while True: servers.shop.echo()", ("error ToolError",)),
    "forged calls": ("import os\nwhile True: os.write(1, b'{\"call\": 1, \"server\": \"a\", \"tool\": \"b\"}\\n')", ("unread",)),
    "forks": ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ("ended",)),
    "descriptors": ("import os\na = []\nwhile True: a.append(os.pipe())", ("error OSError",)),
    "many tasks": (
        "import asyncio\nasync def f(): await asyncio.sleep(10 ** 5)\nawait asyncio.gather(*(f() for _ in range(10 ** 7)))",
        ("error MemoryError", "ended"),
    ),
    "a sort that asks": ("class A:\n    def __lt__(self, o):\n        while True: pass\nsorted([A(), A()])", ("ended",)),
    "abort": ("import os\nos.abort()", ("killed",)),
    "a crash": ("import sys\nsys.setrecursionlimit(1 << 30)\nimport re\nf = lambda: f()\nf()", ("error MemoryError", "error RecursionError", "killed", "ended")),
    "exit without a word": ("import os\nos._exit(0)", ("silent",)),
    "no stdin any more": ("import os\nos.close(0)\nservers.shop.echo()", ("error OSError", "error ValueError", "silent")),
    "no stdout any more": ("import os\nos.close(1)\nprint('x')", ("silent",)),
}  # fmt: skip

SHORT = ("a list", "deep recursion", "a loop", "much output", "a large number", "exit without a word")


def how(told: str) -> str:
    _, _, why = told.rpartition("Sandbox error: ")
    if why == told:
        return "done"
    if why.startswith("the sandbox failed"):
        return "killed" if "killed by signal" in why else "unread" if "cannot be read" in why else "silent"
    name = why.partition(":")[0]
    return f"error {name}" if name.endswith("Error") else "ended"


@real
async def take(names: Iterable[str], seconds: float, found: dict[str, Pressure]) -> None:
    async with staged(language="python", warm=1, wall=seconds) as stage:
        for name in names:
            code, ends = TAKE[name]
            assert await stage.told("print(1)") == "1\n"
            async with measured() as pressure:
                told = await stage.told(code)
            found[name] = pressure
            assert how(told) in (*ends, "ended"), (name, told[-500:])
            if "error MemoryError" in ends and "MemoryError" in told:
                assert "memory limit exceeded" in told
            assert pressure.beats and pressure.growth <= MOST_GROWTH, (name, pressure)
            assert await stage.told("servers.shop.echo(n=1)") == '\n{"n": 1}', name


def test_what_takes_too_much_ends_and_the_next_run_is_fine() -> None:
    take(SHORT, 1, {})


@pytest.mark.attack
@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", range(4))
def test_each_way_to_take_too_much_ends(part: int, counted: Callable[[str], None]) -> None:
    found: dict[str, Pressure] = {}
    before = largest_child()  # of a test before this one in the same process, which nothing takes back
    take([*TAKE][part::4], 4, found)
    for name, pressure in found.items():
        counted(f"flood of Python, {name}: contained; {pressure}")
        assert pressure.lag <= MOST_LAG, name
    assert largest_child() <= max(2 * MEMORY, before)


def largest_child() -> int:
    """The bytes of memory that the largest of all children of this process that have ended ever had."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


@real
async def test_a_run_that_computes_for_longer_than_it_may_is_killed_by_the_kernel() -> None:
    async with python_engine(box=box_of_run(cpu=1)) as engine:
        ran = await run(engine, "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
        assert ran.end in ("the sandbox was killed by signal SIGKILL", "the sandbox was killed by signal SIGXCPU")


@real
async def test_many_hostile_runs_at_once_do_not_disturb_a_harmless_one() -> None:
    async with python_engine() as engine:
        hostile = [
            asyncio.create_task(run(engine, TAKE[name][0], seconds=2))
            for name in ("a loop", "forks", "much output", "a list")
        ]
        for n in range(5):
            assert (await run(engine, f"sum(range({n}))")).value == sum(range(n))
        await asyncio.gather(*hostile)
