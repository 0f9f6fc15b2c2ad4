"""Whose program listens at a port of this machine, by the kernel's word (Linux: proc(5), /proc/net/tcp).

The rule this file keeps: nothing is sent to a port before it is known that no stranger listens there. A component is
told its port, and whoever runs programs on this machine may read that and be there first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from socket import socket

from toolgate.auth.safe_net import Dial
from toolgate.core.fault import Fault

_LISTENS = "0A"  # the state of a socket
_NETS = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})


def dialling_own(dial: Dial, name: str, own: int) -> Dial:
    """Connections to a port of this machine at which no program of another user listens, nor one of another server of
    this gateway; `own` is the process of the server that is meant, `name` what people call it. Raises `Fault`, or as
    `dial` does."""
    keeper = _parent(own)  # of all that it has started, too

    async def connect(host: str, port: int) -> socket:
        if host not in _LOOPBACK:
            return await dial(host, port)
        before = _checked(name, keeper, port)
        connection = await dial(host, port)
        try:
            if _checked(name, keeper, port) != before:  # somebody came or went meanwhile: whose this is, is not known
                raise ConnectionRefusedError("who listens there has just changed")
        except BaseException:
            connection.close()
            raise
        return connection

    return connect


def _checked(name: str, own: int, port: int) -> Mapping[str, int]:
    found = listeners(port)
    for inode, uid in found.items():
        if uid not in (os.geteuid(), 0):
            raise _taken(name, port, f"a program of the user {uid}")
        if not _holds(own, inode) and (other := _other_of_ours(own, inode)):
            raise _taken(name, port, f"another program of this gateway (process {other})")
    return found


def _taken(name: str, port: int, by: str) -> Fault:
    hint = f"end that program; where the url of {name} has {{port}}, its next start is on another one"
    message = f"{by} listens on port {port}, where {name} should: nothing was sent to it"
    return Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)


def listeners(port: int) -> Mapping[str, int]:
    """The sockets that take connections to this port, at any address of this machine, with the user of each. None where
    the kernel does not tell, and where packets to it are led elsewhere."""
    return {inode: uid for net in _NETS for inode, uid in _rows(net, port)}


def _rows(net: str, port: int) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError), open(net, encoding="ascii", errors="replace") as file:
        next(file, None)
        for line in file:
            _, local, _, state, _, _, _, uid, _, inode = line.split()[:10]
            if state != _LISTENS:
                return  # all that listen stand first
            if int(local.rpartition(":")[2], 16) == port:
                yield inode, int(uid)


def _other_of_ours(own: int, inode: str) -> int | None:
    """A process of this gateway that has this socket, where none of `own` does."""
    below = set(_tree(own))
    return next((pid for pid in _tree(os.getpid()) if pid not in below and _has(pid, inode)), None)


def _holds(top: int, inode: str) -> bool:
    return any(_has(pid, inode) for pid in _tree(top))


def _has(pid: int, inode: str) -> bool:
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.readlink(entry.path) == f"socket:[{inode}]":
                    return True
    return False


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return pid


def _tree(top: int) -> Iterator[int]:
    """A process and all that are below it."""
    yield top
    with contextlib.suppress(OSError), os.scandir(f"/proc/{top}/task") as threads:
        for thread in threads:
            with contextlib.suppress(OSError), open(f"{thread.path}/children", encoding="ascii") as file:
                for pid in file.read().split():
                    yield from _tree(int(pid))
