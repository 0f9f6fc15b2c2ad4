"""What large messages have taken is given back, also where something younger is still needed."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from toolgate.cli import memory

CODE = """
import threading
from concurrent.futures import ThreadPoolExecutor
from toolgate.cli import memory

def resident():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmRSS:")[1].split()[0]) // 1024

memory.give_back()
before, kept = resident(), []
threads = ThreadPoolExecutor(4)
for _ in range(5):
    large = list(threads.map(lambda n: b"x" * (n * 1_000_000), [31, 30, 29, 31, 8, 31, 16, 31]))
    kept += [list(threads.map(lambda n: b"y" * n, range(1000, 64_000, 1000)))[::20]]
    del large
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what another library gives back is its own business")
def test_memory_of_large_messages_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) <= 64  # MB


def test_another_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    memory.give_back()


IN_THE_MIDDLE = """
import asyncio, contextlib
from toolgate.cli import memory

def resident():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmRSS:")[1].split()[0]) // 1024

async def main():
    memory.give_back()
    memory.LOOK = 0.01
    kept = [b"x" * 60_000 for _ in range(5000)][::10]
    before = resident()
    work = asyncio.create_task(memory.trim())
    async with asyncio.timeout(60):
        while resident() > before - 100:
            await asyncio.sleep(0.01)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    print(len(kept), before - resident())

asyncio.run(main())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what another library gives back is its own business")
def test_memory_in_the_middle_of_what_is_still_needed_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_MIDDLE], capture_output=True, text=True, timeout=100, check=True
    )
    assert int(done.stdout.split()[1]) >= 100  # MB


async def test_of_another_library_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    await memory.trim()
