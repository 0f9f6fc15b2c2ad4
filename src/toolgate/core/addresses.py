"""Which address counts, where something is bounded for each address.

The rule this file keeps: what one program on a machine, or one machine on a network, can take at will is one address.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

LOOPBACK = "127.0.0.1"
NETWORK = 64  # bits of an IPv6 address; one machine has all addresses below them


@lru_cache(maxsize=1024)
def counted(address: str) -> str:
    """This machine is one address, whichever of 127.0.0.0/8 and ::1 it uses, and so is an IPv6 network of 64 bits. An
    IPv4 address counts as itself, also as IPv6 writes it; so does what is no address of a network."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    if found.is_loopback:
        return LOOPBACK
    return str(IPv6Network((int(found), NETWORK), strict=False)) if isinstance(found, IPv6Address) else str(found)
