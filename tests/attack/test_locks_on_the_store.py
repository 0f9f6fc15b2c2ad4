"""Servers that may read the gateway's state, and lock what they read: nobody can write it for as long as they like.

Programs that use the store as SQLite does are left alone, however long they read."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from processes.ground import Client, Failed, Gateway, child, home, real, toolgate

from toolgate.state.holders import holders
from toolgate.state.sqlite import FILE
from toolgate.upstreams.process import confinement

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells who has locked what on Linux"),
    pytest.mark.skipif(bool(confinement.missing(confinement.Box())), reason="this kernel cannot put on a box"),
]

LOCKS = """
import fcntl, os, struct
fd = os.open({file!r}, os.O_RDONLY)
{how}
print("locked")
"""
BY_POSIX = "fcntl.lockf(fd, fcntl.LOCK_SH)"
BY_ANOTHER = """
import ctypes
libc = ctypes.CDLL(None)
CLONE_FILES_AND_SIGCHLD = 0x400 | 17
pid = libc.syscall({clone}, CLONE_FILES_AND_SIGCHLD, 0, 0, 0, 0)
if not pid:
    fcntl.lockf(fd, fcntl.LOCK_SH)
    os._exit(0)
os.waitpid(pid, 0)
""".format(clone=56 if os.uname().machine == "x86_64" else 220)
BY_ONE_THAT_HIDES = BY_POSIX + "\nimport ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"
BY_A_CHILD = """
said, told = os.pipe()
pid = os.fork()
if not pid:
    os.setsid()
    fcntl.lockf(fd, fcntl.LOCK_SH)
    os.write(told, b"x")
    for each in (0, 1, 2): os.close(each)
    import signal
    while True: signal.pause()
os.read(said, 1)
"""
# What SQLite takes to write a checkpoint (byte 121), as it never takes it: writers are not kept out, and the log grows.
OF_CHECKPOINTS = "fcntl.lockf(fd, fcntl.LOCK_SH, 1, 121)"
IN_TURNS = """
import threading, time
said, told = os.pipe()
def one():
    while True:
        if not os.fork():
            mine = os.open({file!r}, os.O_RDONLY)
            fcntl.flock(mine, fcntl.LOCK_SH)
            os.write(told, b"x")
            for each in (0, 1, 2): os.close(each)
            time.sleep(1.2)
            os._exit(0)
        time.sleep(0.6)
threading.Thread(target=one, daemon=True).start()
os.read(said, 1)
"""
BY_FLOCK = "fcntl.flock(fd, fcntl.LOCK_SH)"
OF_AN_OPEN_FILE = "fcntl.fcntl(fd, 37, struct.pack('hhqqi', fcntl.F_RDLCK, 0, 0, 0, 0))"


@asynccontextmanager
async def serving(box: str) -> AsyncIterator[tuple[dict[str, str], Gateway, Client, Path]]:
    """A gateway with a server in such a box: its environment, itself, a client, and its store."""
    clients = [{"id": "ann", "key": "a-key-that-is-long-enough-for-this", "mcp_server_access": "all"}]
    with home() as environ:
        servers = {"one": child("doing", box=box)}
        async with toolgate("serve", "--port", "0", config=servers, environ=environ, clients=clients) as it:
            client = await it.until_it_serves()
            client.headers.append(f"Authorization: Bearer {clients[0]['key']}")
            yield environ, it, client, Path(environ["HOME"], ".local", "state", "toolgate", FILE)


async def command(environ: dict[str, str], *words: str) -> tuple[int, str]:
    """What a command says, and how it ended."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolgate", *words, "--config", str(Path(environ["HOME"], "toolgate.json"))),
        env=environ,
        cwd=environ["HOME"],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.parametrize(("how", "end"), [(OF_CHECKPOINTS, "-shm"), (IN_TURNS, ".lock")])
def test_a_server_that_locks_it_in_another_way_is_ended_too(how: str, end: str) -> None:
    @real
    async def tries() -> None:
        async with serving("no-write") as (_, it, client, file):
            code = LOCKS.format(file=f"{file}{end}", how=how.replace("{file!r}", repr(f"{file}{end}")))
            assert await client.call("one__do", code=code) == "locked\n"
            await it.until_it_says(b"one held a lock on a file of the gateway")

    tries()


@pytest.mark.parametrize("name", ["audit.jsonl", "secrets.json.lock"])
def test_a_server_that_locks_another_file_of_the_gateway_is_ended(name: str) -> None:
    @real
    async def tries() -> None:
        async with serving("no-write") as (environ, it, client, file):
            file.with_name(name).touch(mode=0o600)
            before = await client.call("one__pid")
            how = "fcntl.flock(fd, fcntl.LOCK_EX)"
            assert (
                await client.call("one__do", code=LOCKS.format(file=str(file.with_name(name)), how=how)) == "locked\n"
            )
            status, said = await command(environ, "secrets", "list")
            assert status == 0, said
            async with asyncio.timeout(60):
                while b"one held a lock on a file of the gateway" not in it.errors:
                    await asyncio.sleep(0.05)
            assert name.encode() in it.errors
            assert await client.call("one__pid") != before

    tries()


@pytest.mark.parametrize(
    ("how", "box"),
    [
        (BY_POSIX, "no-write"),
        (BY_POSIX, "no-net"),
        (BY_ANOTHER, "no-write"),
        (BY_ONE_THAT_HIDES, "no-write"),
        (BY_A_CHILD, "no-write"),
    ],
)
def test_a_server_that_locks_the_store_is_ended_and_keys_are_made_and_revoked(how: str, box: str) -> None:
    @real
    async def tries() -> None:
        async with serving(box) as (environ, it, client, file):
            status, key = await command(environ, "keys", "create", "ann")
            assert status == 0, key
            assert await client.call("one__do", code=LOCKS.format(file=f"{file}-shm", how=how)) == "locked\n"
            status, said = await command(environ, "keys", "revoke", key.split("_")[1])
            assert status == 0, said
            assert b"one held a lock on a file of the gateway" in it.errors
            assert b'(box = "strict")' in it.errors
            assert int(await client.call("one__pid"))  # it comes back, once

    tries()


@real
async def test_a_server_that_locks_the_store_again_is_not_started_any_more() -> None:
    async with serving("no-write") as (environ, it, client, file):
        code = LOCKS.format(file=f"{file}-shm", how=BY_POSIX)
        assert await client.call("one__do", code=code) == "locked\n"
        await it.until_it_says(b"was stopped: process")
        assert await client.call("one__do", code=code) == "locked\n"
        await it.until_it_says(b"it is not started again until its configuration is another")
        with pytest.raises(Failed, match="one is not started again: it held a lock on a file of the gateway"):
            await client.call("one__do", code="")
        status, said = await command(environ, "keys", "create", "ann")
        assert status == 0, said


@real
async def test_what_keeps_gateways_apart_that_open_the_store_is_not_held_either() -> None:
    async with serving("no-write") as (_, it, client, file):
        code = LOCKS.format(file=f"{file}.lock", how=BY_FLOCK)
        assert await client.call("one__do", code=code) == "locked\n"
        await it.until_it_says(b"has locked toolgate.db.lock")


@real
async def test_a_lock_of_an_open_file_which_may_be_nobodys_is_refused_in_a_box() -> None:
    async with serving("no-write") as (_, _it, client, file):
        code = LOCKS.format(file=f"{file}-shm", how=OF_AN_OPEN_FILE)
        assert await client.call("one__do", code=code) == "OSError: [Errno 22] Invalid argument\n"


READS = """
import sqlite3
__builtins__["reading"] = sqlite3.connect({file!r}, isolation_level=None)
reading.execute("BEGIN")
print(reading.execute("SELECT count(*) > 0 FROM kept").fetchall())
"""


@real
async def test_a_server_that_reads_the_store_is_not_ended_for_another_programs_lock() -> None:
    async with serving("off") as (environ, it, client, file):
        pid = await client.call("one__pid")
        assert await client.call("one__do", code=READS.format(file=str(file))) == "[(1,)]\n"
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert [each.pid for each in holders(file, [os.getpid()])] == []
            status, said = await command(environ, "keys", "create", "ann")
            other.execute("ROLLBACK")
        assert status == 1
        assert f"process {os.getpid()} (" in said, said
        assert ") has locked toolgate.db-shm" in said, said
        assert pid not in said
        assert await client.call("one__pid") == pid
        assert b"held a lock" not in it.errors
