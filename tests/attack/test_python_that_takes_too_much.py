"""Python code that takes all memory, all time or all output ends, and the next run is fine."""

# ruff: noqa: E501  a row of the table is a line

from __future__ import annotations

import asyncio
import resource
import sys

import pytest
from processes.ground import offspring, real
from sandboxing import Ran, python_engine, run

from toolgate.sandbox.python import MEMORY, PythonEngine, box_of_run
from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

# How a run ends: `error NAME` by itself, `killed` by a signal, `silent`, or `ended` by the host, as each does where the
# machine is busy.
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
    "raw output": ("import os\nwhile True: os.write(1, bytes(1 << 16))", ("ended",)),
    "calls without end": ("while True: servers.a.b()", ("ended",)),
    "forged calls": ("import os\nwhile True: os.write(1, b'{\"call\": 1, \"server\": \"a\", \"tool\": \"b\"}\\n')", ("ended",)),
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
    "no stdin any more": ("import os\nos.close(0)\nservers.a.b()", ("error OSError", "error ValueError", "silent")),
    "no stdout any more": ("import os\nos.close(1)\nprint('x')", ("silent",)),
}  # fmt: skip

SHORT = ("a list", "deep recursion", "a loop", "much output", "a large number", "exit without a word")


def how(ran: Ran) -> str:
    if "failed" in ran.last:
        return f"error {ran.last['failed']['name']}"
    if "done" in ran.last:
        return "done"
    if "signal" in ran.end:
        return "killed"
    return "ended" if "took too long" in ran.end or "wrote too much" in ran.end else "silent"


async def take(engine: PythonEngine, name: str, seconds: float) -> None:
    code, ends = TAKE[name]
    ran = await run(engine, code, seconds=seconds, most=1 << 23, servers={"a": ["b"]})
    assert how(ran) in (*ends, "ended"), (name, ran.last, ran.end, ran.logs[:200])
    assert engine._zygote
    assert not offspring(engine._zygote.pid), name
    assert (await run(engine, "6 * 7")).value == 42, name


@real
async def test_what_takes_too_much_ends_and_the_next_run_is_fine() -> None:
    async with python_engine() as engine:
        for name in SHORT:
            await take(engine, name, 1)


@pytest.mark.attack
@pytest.mark.timeout(400)
def test_each_way_to_take_too_much_ends(capsys: pytest.CaptureFixture[str]) -> None:
    async def all() -> None:
        async with python_engine() as engine:
            for name in TAKE:
                await take(engine, name, 4)

    asyncio.run(all())
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    with capsys.disabled():
        print(f"\nPython that takes too much: {len(TAKE)} of {len(TAKE)} contained")
    assert children < 2 * MEMORY


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
