"""A room without a way out: a network namespace that has only loopback, for programs that would call home.

It is held open by one process, and every other process of a test enters it: the model, the gateway, the program. Where
the system does not permit that, the room is only shut: every proxy is a port on which nobody listens, and
`open_because` says why. At its end whatever is still in it is ended: all of it was started in here.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HOLD = "ip link set lo up && echo ready && exec cat"
AS_ROOT: tuple[str, ...] = ()
AS_ANYBODY = ("--user", "--map-root-user")
NOWHERE = "http://127.0.0.1:9"
PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)
SHUT = PROXIES | {"NO_PROXY": "127.0.0.1,localhost"}


@dataclass(frozen=True)
class Room:
    prefix: tuple[str, ...] = ()
    """What a command is put behind so that it runs in here."""
    network: str | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    open_because: str | None = None

    def enter(self, command: Sequence[str]) -> list[str]:
        return [*self.prefix, *command]

    def inhabitants(self) -> dict[int, int]:
        """Who is in here, each with its parent. What has ended but was not yet reaped is in no namespace."""
        found: dict[int, int] = {}
        for entry in Path("/proc").glob("[0-9]*") if self.network else ():
            with suppress(OSError):
                if os.readlink(entry / "ns" / "net") == self.network:
                    found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        return found

    def remaining(self, before: dict[int, int], seconds: float) -> list[str]:
        """The commands that came since, and do not end. What those who were here have started is theirs to end."""
        deadline = time.monotonic() + seconds
        while strangers := _without_descendants(self.inhabitants(), before):
            left = deadline - time.monotonic()
            if left <= 0:
                return [command_of(pid) for pid in strangers]
            await_end(strangers[0], left)
        return []


def _without_descendants(here: dict[int, int], before: dict[int, int]) -> list[int]:
    """Who is here, but for those who were before, and all that they have started: a gateway's servers have a keeper."""
    kept = set(before)
    while more := {pid for pid, parent in here.items() if parent in kept and pid not in kept}:
        kept |= more
    return [pid for pid in here if pid not in kept]


def await_end(pid: int, seconds: float) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        select.select([descriptor], [], [], seconds)
        os.close(descriptor)


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return f"process {pid}, which has ended"


@contextmanager
def closed() -> Iterator[Room]:
    """A room: really closed if the system permits it, else shut."""
    for privilege in (AS_ROOT, AS_ANYBODY):
        with holding(privilege) as room:
            if room is not None:
                yield room
                return
    why = (
        "network namespaces are Linux's"
        if sys.platform != "linux"
        else "`unshare --net` is not permitted or not installed here"
    )
    yield Room(env=SHUT, open_because=why)


@contextmanager
def holding(privilege: Sequence[str]) -> Iterator[Room | None]:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        yield None
        return
    holder = subprocess.Popen(
        ["unshare", *privilege, "--net", "sh", "-c", HOLD],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert holder.stdin is not None
    assert holder.stdout is not None
    room = None
    try:
        if holder.stdout.readline() == "ready\n":
            spaces = ("--user", "--preserve-credentials") if privilege else ()
            prefix = ("nsenter", "--target", str(holder.pid), *spaces, "--net", "--")
            if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False, timeout=20).returncode == 0:
                room = Room(prefix, os.readlink(f"/proc/{holder.pid}/ns/net"))
        yield room
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(20)
        for pid in room.inhabitants() if room else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
