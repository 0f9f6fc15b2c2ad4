"""Whose program listens at a port of this machine, by the kernel's word (Linux: proc(5), /proc/net/tcp).

The rule this file keeps: nothing is sent to a port before it is known that no stranger listens there. A component is
told its port, and whoever runs programs on this machine may read that and be there first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Mapping
from socket import socket

from toolgate.auth.safe_net import Dial
from toolgate.config import Server
from toolgate.core.fault import Fault
from toolgate.core.steps import InSteps
from toolgate.upstreams.bounds import FEW, Bounds

_LISTENS = "0A"  # the state of a socket
_NETS = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})


def dialling_own(dial: Dial, server: Server, own: int, bounds: Bounds) -> Dial:
    """Connections to a port of this machine at which no program of another user listens, nor one of another server of
    this gateway; `own` is the process of the server that is meant. Raises `Fault`, or as `dial` does."""
    keeper = _parent(own)  # of all that it has started, too

    def checked(port: int) -> Awaitable[Mapping[str, int]]:
        """What it has open may be very much, so that it is looked through as a long list is."""
        return bounds.looked_through(server.id, FEW, _checked(server.name, keeper, port), longest=0)

    async def connect(host: str, port: int) -> socket:
        if host not in _LOOPBACK:
            return await dial(host, port)
        before = await checked(port)
        connection = await dial(host, port)
        try:
            if await checked(port) != before:  # somebody came or went meanwhile: whose this is, is not known
                raise ConnectionRefusedError("who listens there has just changed")
        except BaseException:
            connection.close()
            raise
        return connection

    return connect


def _checked(name: str, own: int, port: int) -> InSteps[Mapping[str, int]]:
    found = yield from _listeners(port)
    for inode, uid in found.items():
        if uid not in (os.geteuid(), 0):
            raise _taken(name, port, f"a program of the user {uid}")
        if (yield from _holder(own, inode)) is None and (other := (yield from _holder(os.getpid(), inode, own))):
            raise _taken(name, port, f"another program of this gateway (process {other})")
    return found


def _taken(name: str, port: int, by: str) -> Fault:
    hint = f"end that program; where the url of {name} has {{port}}, its next start is on another one"
    message = f"{by} listens on port {port}, where {name} should: nothing was sent to it"
    return Fault("SERVER_FAILED", message, reach="not_sent", hint=hint)


def _listeners(port: int) -> InSteps[Mapping[str, int]]:
    """The sockets that take connections to this port, at any address of this machine, with the user of each. None where
    the kernel does not tell, and where packets to it are led elsewhere."""
    found: dict[str, int] = {}
    for net in _NETS:
        with contextlib.suppress(OSError), open(net, encoding="ascii", errors="replace") as file:
            next(file, None)
            for line in file:
                _, local, _, state, _, _, _, uid, _, inode = line.split()[:10]
                if state != _LISTENS:
                    break  # all that listen stand first
                if int(local.rpartition(":")[2], 16) == port:
                    found[inode] = int(uid)
                yield
    return found


def _holder(top: int, inode: str, but: int | None = None) -> InSteps[int | None]:
    """A process that has this socket, of `top` and all that are below it; not of `but` and those below that."""
    found = [top]
    for pid in found:
        if pid == but:
            continue
        if (yield from _has(pid, inode)):
            return pid
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
            for thread in threads:
                yield
                with contextlib.suppress(OSError), open(f"{thread.path}/children", encoding="ascii") as file:
                    found += map(int, file.read().split())
    return None


def _has(pid: int, inode: str) -> InSteps[bool]:
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            yield
            with contextlib.suppress(OSError):
                if os.readlink(entry.path) == f"socket:[{inode}]":
                    return True
    return False


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return pid
