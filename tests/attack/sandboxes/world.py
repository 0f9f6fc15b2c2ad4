"""What hostile code aims at, and whether it was hit: a secret in a file, in a neighbour's variables and in a message
queue; sockets that nobody may reach; a neighbour that nobody may touch.

The rule this file keeps: an attempt has succeeded where the world shows it, or where what it printed shows the secret
or the word that it prints when the kernel let it do what it may not.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from toolgate.upstreams.process import seccomp

CANARY = "canary-7f3a91"
ESCAPED = "ESCAPED"

# Calls that no table of the product has, on x86_64 and on aarch64.
MORE = {
    "fork": (57, None), "vfork": (58, None), "execveat": (322, 281), "memfd_create": (319, 279), "openat2": (437, 437),
    "creat": (85, None), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "setuid": (105, 146), "setresuid": (117, 147), "connect": (42, 203),
    "bind": (49, 200), "listen": (50, 201), "accept4": (288, 242), "mkdirat": (258, 34), "unlinkat": (263, 35),
    "linkat": (265, 37), "symlinkat": (266, 36), "renameat2": (316, 276), "timer_create": (222, 107),
    "memfd_secret": (447, 447), "mseal": (462, 462), "futex_waitv": (449, 449), "vmsplice": (278, 75),
    "splice": (275, 76), "tee": (276, 77), "inotify_init1": (294, 26), "signalfd4": (289, 74), "alarm": (37, None),
    "setpgid": (109, 154), "setitimer": (38, 103), "remap_file_pages": (216, 234), "getpriority": (140, 141),
}  # fmt: skip


def numbers() -> dict[str, int]:
    column = 0 if platform.machine() == "x86_64" else 1
    rows = (each.split() for each in seccomp._NUMBERS.replace("\n", " ").split("·"))
    known = {words[0]: int(words[1 + column]) for words in rows if words[1 + column] != "-"}
    return known | {name: found[column] for name, found in MORE.items() if found[column] is not None}


class World:
    def __init__(self, folder: Path) -> None:
        self.own = folder / "own"
        self.state = folder / "state"
        for each in (self.own, self.state):
            each.mkdir()
        self.secret = self.state / "secret"
        self.secret.write_text(CANARY)
        self._closing = contextlib.ExitStack()
        self.tcp = self._listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self.udp = self._listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self.unix = self._listening(socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
        self.datagrams = self._listening(socket.AF_UNIX, socket.SOCK_DGRAM, str(folder / "d"))
        self.abstract = self._listening(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{CANARY}-{os.getpid()}")
        waits = "import sys; secret = 'x' + sys.argv[1]; print(flush=True); sys.stdin.read()"
        self.neighbour = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", waits, CANARY],
            env={"SECRET": CANARY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.neighbour.stdout
        self.neighbour.stdout.readline()
        self._folder = folder
        self._before = self._seen()

    def _listening(self, family: int, kind: int, where: Any) -> socket.socket:
        it = self._closing.enter_context(socket.socket(family, kind))
        it.bind(where)
        it.setblocking(False)
        if kind == socket.SOCK_STREAM:
            it.listen()
        return it

    def told(self) -> dict[str, Any]:
        """Where everything is: the attackers know the place."""
        return {
            "secret": str(self.secret),
            "state": str(self.state),
            "own": str(self.own),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "unix": str(self._folder / "s"),
            "datagrams": str(self._folder / "d"),
            "abstract": f"\0{CANARY[:0]}" + self.abstract.getsockname()[1:].decode(),
            "neighbour": self.neighbour.pid,
            "gateway": os.getpid(),
            "nr": numbers(),
            "user": os.getuid(),
            "canary": "canary" + "-7f3a",  # only a part, so that to print it is no success
        }

    def _seen(self) -> dict[str, Any]:
        neighbour = self.neighbour.pid
        return {
            "files": [
                (str(each), each.lstat().st_mode, each.lstat().st_size, each.lstat().st_mtime_ns, each.lstat().st_uid)
                for each in sorted([self.state, *self.state.iterdir()])
            ],
            "places": sorted(each.name for each in self._folder.iterdir()),
            "secret": self.secret.read_text(),
            "neighbour": self.neighbour.poll(),
            "state": re.sub(r"[RSD]", "alive", _field(neighbour, "State").split()[0]),
            "limits": [resource.prlimit(neighbour, each) for each in range(16)],
            "our limits": [resource.getrlimit(each) for each in range(16)],
            "priority": os.getpriority(os.PRIO_PROCESS, neighbour),
            "our priority": os.getpriority(os.PRIO_PROCESS, 0),
            "cores": os.sched_getaffinity(neighbour),
        }

    def harm(self) -> list[str]:
        """What has been done to it since the last look."""
        now = self._seen()
        found = [f"{key}: {self._before[key]} -> {now[key]}" for key in now if now[key] != self._before[key]]
        self._before = now
        for name, listener in (("tcp", self.tcp), ("unix", self.unix), ("abstract", self.abstract)):
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                found.append(f"a connection by {name}")
        for listener in (self.udp, self.datagrams):
            with contextlib.suppress(BlockingIOError):
                found.append(f"a datagram {listener.recv(100)!r}")
        return found

    def close(self) -> None:
        self._closing.close()
        self.neighbour.kill()
        self.neighbour.communicate()


def _field(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "gone")


def shows(output: str) -> list[str]:
    """What an attempt printed that it could not have printed from inside."""
    return [line for line in output.splitlines() if ESCAPED in line or CANARY in line]
