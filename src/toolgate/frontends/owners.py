"""Whose program is at the other end of a connection on this machine: of our own user, or of another one's.

An address says that somebody is on this machine, and not who: every user of it reaches loopback. Linux tells who has
opened each socket. The rule this file keeps: a connection that is not found, or that is closed already, is nobody's.
"""

from __future__ import annotations

import os
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ROOT = 0  # may be us anyhow


class Peer(tuple[str, int]):
    """The address and port of a client, as ASGI has them, of a connection to our own server. It is looked up once."""

    _is_ours: bool | None = None

    @property
    def is_ours(self) -> bool:
        """Whether its program is of our own user, where the system tells."""
        if self._is_ours is None:
            self._is_ours = not sys.platform.startswith("linux") or _owner(*self) in (os.geteuid(), _ROOT)
        return self._is_ours


def _owner(address: str, port: int) -> int | None:
    wanted = {f"{each}:{port:04X}" for each in _written(ip_address(address))}
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1] in wanted and fields[9] != "0":  # with an inode: somebody has it open
                return int(fields[7])
    return None


def _written(address: IPv4Address | IPv6Address) -> tuple[str, ...]:
    """An address as the tables have it: its words in this machine's order. IPv4 may stand in both."""
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return (_words(address.packed), *(_written(mapped) if mapped else ()))
    return _words(address.packed), _words(IPv6Address(f"::ffff:{address}").packed)


def _words(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
