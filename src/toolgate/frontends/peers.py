"""Whose program is at the other end of a Unix socket, by the kernel's word (macOS: unix(4); Linux: unix(7))."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from toolgate.upstreams.process import guard

_ROOT = 0  # may be us anyhow
_GUARD = b"/" + "/".join(Path(guard.__file__).parts[-4:]).encode()  # of any gateway, wherever that is installed
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1  # macOS; Python has no names for them


class Operator(tuple[str, int]):
    """The client of a request that came over the socket, as ASGI has clients. Only the server makes one."""


def is_ours(connection: Any) -> bool:
    """Whether the program at the other end of a Unix socket is of our own user, or of root. `connection` is a socket,
    or what an event loop shows of one."""
    return _peer_uid(connection) in (os.geteuid(), _ROOT)


def is_in_a_box(connection: Any) -> bool:
    """Whether that program is in a box, of this gateway or another one: it has a filter more than we have, and is below
    a guard, which nothing in a box can leave. One that has ended already could be one, too."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        own = _told(os.getpid())
    except (OSError, KeyError, ValueError):
        return False  # there is no /proc, or it does not say
    try:
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        there = _told(pid)
        return there["Seccomp_filters"] > own["Seccomp_filters"] and _is_below_a_guard(there["PPid"])
    except (OSError, KeyError, ValueError, struct.error):
        return True


def _told(pid: int) -> dict[str, int]:
    """Of a process: its parent, and how many filters it has."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        pairs = (line.partition(":") for line in file)
        return {name: int(value) for name, _, value in pairs if name in ("PPid", "Seccomp_filters")}


def _is_below_a_guard(pid: int) -> bool:
    while pid > 1 and pid != os.getpid():
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if any(word.endswith(_GUARD) for word in file.read().split(b"\0")):
                return True
        pid = _told(pid)["PPid"]
    return pid == os.getpid()


def _peer_uid(connection: Any) -> int | None:
    """None where the system does not tell."""
    try:
        if sys.platform.startswith("linux"):
            _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return uid
        _version, uid = struct.unpack("2I", connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)[:8])
        return uid
    except (AttributeError, OSError, struct.error):
        return None


def met(transport: asyncio.Transport) -> Operator | None:
    """Who comes over a new connection to a Unix socket of ours; None for a connection of another kind. One that is of
    another user, or of a server in a box, is closed."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    if not is_ours(connection) or is_in_a_box(connection):
        transport.abort()
        return None
    return Operator(("", 0))
