"""What a program may do, as data: a `Box`. `locks` puts it on, with the filters of `seccomp`; here is what is meant.

The rules this file keeps: what a box does not name is not allowed; a box that this machine cannot put on whole is not
put on at all (`missing` says what is lacking), unless it is `lenient`; and it needs neither root nor a container.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from toolgate.core.fault import Fault
from toolgate.upstreams.process import locks, seccomp

MIB = 1024 * 1024

Network = Literal["none", "tcp", "all"]

# Devices that every program may use: they hold nothing.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# Where a program finds the libraries that it is linked with, and what names them.
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/ld.so.preload")

# What is left to a server that runs as root: files of its own folders, ports below 1024, another user to become.
_CAPABILITIES = {"server": sum(1 << each for each in (0, 1, 3, 4, 6, 7, 10))}
_NONE = 0

# By landlock's version: what it brought, as far as a box may lack it.
_SCOPES_ABI, _TCP_ABI, _TRUNCATE_ABI = 6, 4, 3


@dataclass(frozen=True, kw_only=True)
class Box:
    """What a program may do; all paths are absolute, and mean files or folders with all below. Nothing of the kernel's
    beyond its profile, no more privileges (`no_new_privs`), no core dumps, no descriptors but its 0 to 2.

    Landlock knows nothing of a file's modes, owners and times: they are changed in no folder without `modes`. It
    hides what is in a file or a folder, not that there is one.
    """

    profile: seccomp.Profile = "server"
    read: Sequence[str] = ()
    write: Sequence[str] = ()  # to make, change and remove; and to read
    execute: Sequence[str] = ()  # and to read
    network: Network = "none"  # `tcp`: to connect to `ports`, wherever they are; no names of hosts are looked up then
    ports: Sequence[int] = ()
    unix: bool = False  # sockets of other programs on this machine: Docker's, the session's, the agent's of ssh
    modes: bool | None = False  # None: to change them does nothing, and says that it has
    inherits: Sequence[str] = ()  # names of the gateway's variables that it gets beside those given to it
    memory: int | None = None  # bytes that it may have written to, each of its processes
    address_space: int | None = None  # bytes; for what does not reserve much more than it uses, as V8 does
    cpu: int | None = None  # seconds, each of its processes
    processes: int | None = (
        None  # at once, itself counted; looked at some times a second, since the kernel counts users
    )
    open_files: int | None = None
    file_size: int | None = None  # bytes
    gives_way: bool = False  # computes when the gateway and all others do not
    lenient: bool = False  # put on what this machine has, and go on without the rest

    def packed(self) -> dict[str, Any]:
        """As the Supervisor and `locks.put_on` take it, for this machine; `marshal` can write it. Raises `Fault`
        SERVER_FAILED where this machine lacks something for it, and it is not `lenient`."""
        if (lacking := missing(self)) and not self.lenient:
            message = f"Boxes cannot be put on here: this machine lacks {'; '.join(lacking)}"
            hint = "use Linux 6.12 or newer with landlock and seccomp; `toolgate doctor` says what this machine has"
            raise Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)
        return {
            "inherits": tuple(self.inherits),
            "files": [(rights, os.fsencode(path)) for rights, paths in self._files() for path in paths],
            "ports": None if self.network == "all" else tuple(self.ports) if self.network == "tcp" else (),
            "limits": {number: most for number, most in self._limits() if most is not None},
            "gives_way": self.gives_way,
            "capabilities": _CAPABILITIES.get(self.profile, _NONE),
            "filter": seccomp.program(self.profile, self._grants()),
            "processes": self.processes,
            "lenient": self.lenient,
        }

    def _files(self) -> list[tuple[int, Sequence[str]]]:
        return [
            (locks.READ, self.read),
            (locks.READ | locks.WRITE, self.write),
            (locks.RUN, self.execute),
            (locks.READ_FILE | locks.WRITE_FILE, _DEVICES if self.read or self.write or self.execute else ()),
        ]

    def _limits(self) -> list[tuple[int, int | None]]:
        return [
            (resource.RLIMIT_DATA, self.memory),
            (resource.RLIMIT_AS, self.address_space),
            (resource.RLIMIT_CPU, self.cpu),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_size),
        ]

    def _grants(self) -> frozenset[seccomp.Grant]:
        """Of the profile `server`; the others have none."""
        if self.profile != "server":
            return frozenset()
        granted: dict[seccomp.Grant, bool] = {
            "inet": self.network == "all",
            "tcp": self.network == "tcp",
            "unix": self.unix,
            "modes": self.modes is True,
            "no modes": self.modes is None,
            "watch": "/" in self.read or "/" in self.write,
            "truncate": locks.landlock_abi() >= _TRUNCATE_ABI,
        }
        return frozenset(grant for grant, is_given in granted.items() if is_given)


@dataclass(frozen=True)
class Layers:
    """What this machine has to put boxes on with."""

    system: str
    machine: str
    landlock: int  # its version, 0 for none
    seccomp: bool
    words: str = field(init=False)  # for people: `landlock v7 + seccomp`

    def __post_init__(self) -> None:
        found = [f"landlock v{self.landlock}"] if self.landlock else []
        found += ["seccomp"] if self.seccomp else []
        object.__setattr__(self, "words", " + ".join(found) or "none")


@cache
def layers() -> Layers:
    """Looked at once."""
    system, machine = platform.system(), platform.machine()
    return Layers(system, machine, locks.landlock_abi(), locks.has_seccomp() and bool(seccomp.program("script")))


def missing(box: Box, found: Layers | None = None) -> list[str]:
    """What this machine lacks to put it on whole, in words; nothing where it can."""
    have = found or layers()
    if have.system != "Linux":
        return [f"boxes are for Linux, and this is {have.system}"]
    lacking: list[str] = []
    if not have.seccomp:
        lacking.append(f"seccomp filters (the kernel has none, or none is known for {have.machine})")
    if not have.landlock:
        lacking.append("landlock (Linux 5.13 or newer, with landlock among its security modules)")
        return lacking
    if box.network == "tcp" and have.landlock < _TCP_ABI:
        lacking.append(f"ports by number (landlock v{_TCP_ABI}, Linux 6.7; this kernel has v{have.landlock})")
    if box.profile == "server" and have.landlock < _SCOPES_ABI:
        why = f"(landlock v{_SCOPES_ABI}, Linux 6.12; this kernel has v{have.landlock})"
        lacking.append(f"signals to other programs kept back {why}")
        lacking += [f"abstract sockets of other programs kept back {why}"] if box.unix else []
    return lacking


def of_python() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What this Python reads and executes when it starts, without what was installed beside it."""
    binary = os.path.realpath(sys.executable)
    standard_library = os.path.dirname(os.__file__)
    prefix = (os.path.join(sys.base_prefix, "lib"),) if sys.base_prefix != "/usr" else ()
    return (standard_library, *prefix), (sys.executable, binary, *LIBRARIES)


# What V8 reserves for machine code, and the kernel counts as memory of the process since it may be written to.
V8_CODE = 512 * MIB

# By which the C library finds the end of a program's stack: without it Deno's parser of TypeScript ends the process.
STACK_IS_IN = "/proc/self/maps"


def box_for_deno(binary: str, entry: Sequence[str] = (), memory: int = 512 * MIB, cpu: int = 125) -> Box:
    """For `deno run ENTRY`, or with `-` for an entry on stdin: it reads its own binary, its libraries, the files of the
    entry and the map of its memory, writes nothing, reaches nobody. It makes machine code and runs threads, as V8 must;
    it starts no process. `memory` is what it may use beside `V8_CODE`."""
    return Box(
        profile="jit",
        read=(*(str(Path(each).absolute()) for each in entry), STACK_IS_IN),
        execute=(os.path.realpath(binary), *LIBRARIES),
        memory=memory + V8_CODE,
        cpu=cpu,
        open_files=64,
        file_size=0,
        gives_way=True,
    )
