"""A server is a program of our own user. What it may do as such is less where less is cheap."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.ground import child, failure, gateway, guards, keepers, real, settings

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="these are Linux's ways")

# As one user, whoever runs the tests: the variables of a program before it runs as a command of ours does, and then.
READ = """
import ctypes, os, subprocess
from toolgate.cli import common
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as if it had been started as that user

def read(name):
    return subprocess.run(["/bin/cat", f"/proc/{os.getpid()}/{name}"], capture_output=True)

async def look():
    open("/proc/self/status").close(), open("/proc/net/tcp").close(), os.listdir("/proc/self/fd")
    return read("environ"), read("maps"), read("stat")

assert b"a secret of the gateway" in read("environ").stdout
environ, maps, stat = common.run(look())
assert environ.returncode and not environ.stdout, environ
assert maps.returncode and not maps.stdout, maps
assert stat.stdout, "what says how it is can still be read"
"""


def field(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:"))


@pytest.mark.promise("b.attacks.user")
def test_what_a_server_starts_cannot_read_the_gateways_variables_and_memory() -> None:
    environ = {**os.environ, "A_SECRET": "a secret of the gateway"}
    ended = subprocess.run([sys.executable, "-c", READ], env=environ, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.promise("b.attacks.user")
@real
async def test_a_server_gains_no_privileges_unless_the_operator_says_so() -> None:
    servers = {
        "one": child("counting"),
        "two": child("counting", new_privileges=True),
        "added": child("counting", new_privileges=True, by_operator=False),
    }
    async with gateway(settings(**servers)) as served:
        flags = {name: field(int(await served.client().call(f"{name}__pid")), "NoNewPrivs") for name in servers}
        assert flags == {"one": "1", "two": "0", "added": "1"}


@real
async def test_sudo_in_a_servers_command_is_told_with_what_lets_it_work(tmp_path: Path) -> None:
    said = 'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.'
    sudo = tmp_path / "sudo"
    sudo.write_text(f"#!/bin/sh\ngrep -q 'NoNewPrivs:.1' /proc/self/status && echo '{said}' >&2\nexit 1\n")
    sudo.chmod(0o755)
    async with gateway(settings(one={"command": str(sudo)})) as served:
        error = await failure(served.client().call("one__x"))
        assert "new_privileges" in error.data["hint"]


@pytest.fixture
def limited() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    most = 40_000 if before[1] == resource.RLIM_INFINITY else min(40_000, before[1])
    resource.setrlimit(resource.RLIMIT_NPROC, (most, before[1]))
    yield most
    resource.setrlimit(resource.RLIMIT_NPROC, before)


@pytest.mark.promise("b.attacks.user")
def test_a_server_that_forks_without_end_leaves_a_quarter_of_the_processes_to_its_user(limited: int) -> None:
    @real
    async def look() -> None:
        async with gateway(settings(one=child("counting", new_privileges=True))) as served:
            pid = int(await served.client().call("one__pid"))
            assert resource.prlimit(pid, resource.RLIMIT_NPROC) == (limited * 3 // 4, limited * 3 // 4)
            assert [resource.prlimit(each, resource.RLIMIT_NPROC)[0] for each in guards()] == [limited]

    look()


@real
async def test_neither_guard_nor_keeper_have_the_gateways_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "a secret of the gateway")
    async with gateway(settings(one=child("counting"))) as served:
        await served.client().call("one__pid")
        for pid in [*guards(), *keepers()]:
            assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
