"""Many runs of code, many of them cancelled at random moments, and a gateway that is killed in the middle: no process
is left, no descriptor, and no memory. The long form is a thousand runs, a hundred cancels and five kills."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from processes.ground import Client, Gateway, _processes, child, home, real, shut, toolgate, until

from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="boxes are for Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

MARK = "TOOLGATE_TEST_RUNS"
AT_ONCE = 4
MB = 1024 * 1024
SUBREAPER = 36

# What is run in turns, with what its result is.
RUNS = (
    ("javascript", "return (await servers.there.talk({ length: %d })).length - %d", '"0"'),
    ("python", "len(servers.there.talk(length=%d)) - %d", '"0"'),
    ("javascript", "console.log('x'.repeat(1000)); await sleep(1); return %d - %d", '"0"'),
    ("python", "print('x' * 1000)\n%d - %d", '"0"'),
    ("javascript", "throw new Error('%d %d')", "Error:"),
    ("python", "raise ValueError('%d %d')", "ValueError:"),
)
ENDLESS = (
    ("javascript", "for (;;);"),
    ("python", "while True: pass"),
    ("javascript", "for (;;) await servers.there.talk({ length: 9 })"),
    ("python", "while True: servers.there.talk(length=9)"),
    ("javascript", "await sleep(20000)"),
    ("python", "import time\ntime.sleep(20)"),
)


@contextlib.contextmanager
def orphans_are_ours() -> Iterator[None]:
    """Whatever a gateway leaves behind becomes a child of this process, so none of it can be missed."""
    libc = ctypes.CDLL(None)
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(SUBREAPER, 0, 0, 0, 0)


def below(parent: int) -> set[int]:
    """All living processes below one."""
    table = {pid: above for pid, (_, state, above) in _processes().items() if state not in "ZX"}
    found: set[int] = set()
    while fresh := {pid for pid, above in table.items() if above in found | {parent}} - found:
        found |= fresh
    return found


def marked(mark: str) -> set[int]:
    """All processes that have this in their environment."""
    found: set[int] = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.add(int(entry))
    return found


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run(client: Client, number: int) -> None:
    language, code, result = RUNS[number % len(RUNS)]
    asked = {"name": "execute_code", "arguments": {"language": language, "code": code % (number, number)}}
    told = (await client.ask("tools/call", asked))["content"][0]["text"].replace(" ", "")
    assert result in told, told


async def many(client: Client, runs: int) -> None:
    left = iter(range(runs))

    async def some() -> None:
        for number in left:
            await run(client, number)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def cancel(client: Client, number: int, chance: random.Random) -> None:
    """Begin a run that does not end, and leave at a random moment: before it has a process, or while it runs."""
    language, code = ENDLESS[number % len(ENDLESS)]
    asked = {"name": "execute_code", "arguments": {"language": language, "code": code, "timeout": 60}}
    _, writer = await client.start("tools/call", asked)
    await asyncio.sleep(chance.random() * 0.3)
    await shut(writer)


@asynccontextmanager
async def serving(mark: str) -> AsyncIterator[tuple[Gateway, Client]]:
    servers = {"there": child("wordy")}
    with home() as environ:
        environ |= {MARK: mark}
        async with toolgate("serve", "--port", "0", "--surface", "daemon", config=servers, environ=environ) as gateway:
            yield gateway, await gateway.until_it_serves()


async def runs_leave_nothing(runs: int, cancels: int) -> str:
    """What was counted."""
    mark, chance = uuid.uuid4().hex, random.Random(15)
    async with serving(mark) as (gateway, client):
        pid = gateway.process.pid
        await many(client, max(30, runs // 5))
        usual, files, memory = len(below(pid)), descriptors(pid), resident(pid)
        await many(client, runs)
        await until(lambda: len(below(pid)) <= usual and descriptors(pid) <= files)
        grown = resident(pid) - memory
        for begin in range(0, cancels, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, cancels))
            await asyncio.gather(*(cancel(client, number, chance) for number in numbers))
        await until(lambda: len(below(pid)) <= usual and descriptors(pid) <= files)
        await many(client, len(RUNS))
        after_cancels = resident(pid) - memory
        assert max(grown, after_cancels) < 16 * MB, (grown, after_cancels)
    await until(lambda: not marked(mark))
    return (
        f"{runs} runs and {cancels} cancels: at most {usual} processes, {files} descriptors before and after; "
        f"memory {grown / MB:+.1f} MB by the runs, {after_cancels / MB:+.1f} MB with the cancels"
    )


async def kill_leaves_nothing(seed: int) -> None:
    mark, chance = uuid.uuid4().hex, random.Random(seed)
    before = below(os.getpid())
    with orphans_are_ours():
        async with serving(mark) as (gateway, client):
            writers = [
                (
                    await client.start(
                        "tools/call", {"name": "execute_code", "arguments": {"language": lang, "code": code}}
                    )
                )
                for lang, code in ENDLESS
            ]
            await until(lambda: len(below(gateway.process.pid)) > len(ENDLESS))
            await asyncio.sleep(chance.random() * 0.5)
            gateway.process.kill()
            await gateway.ended()
            for _, writer in writers:
                await shut(writer)
            await until(lambda: not below(os.getpid()) - before)
        assert not marked(mark)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # those that became ours


@real
async def test_runs_that_end_and_runs_that_are_cancelled_leave_nothing() -> None:
    await runs_leave_nothing(50, 10)


@real
async def test_a_gateway_that_is_killed_in_the_middle_of_runs_leaves_no_process() -> None:
    await kill_leaves_nothing(1)


@pytest.mark.attack
@pytest.mark.timeout(1800)
def test_a_thousand_runs_and_a_hundred_cancels_leave_nothing(counted: Callable[[str], None]) -> None:
    counted(asyncio.run(runs_leave_nothing(1000, 100)))


@pytest.mark.attack
@pytest.mark.timeout(600)
def test_gateways_that_are_killed_in_the_middle_of_runs_leave_no_process(counted: Callable[[str], None]) -> None:
    for seed in range(5):
        asyncio.run(kill_leaves_nothing(seed))
    counted("5 gateways killed in the middle of 6 runs each: no process left")
