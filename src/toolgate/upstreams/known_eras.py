"""Which era each server speaks, kept from one start to the next."""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

import msgspec

from toolgate.config import Server
from toolgate.core import mcp
from toolgate.state.base import Store

ERA_KEPT = 7 * 24 * 3600.0  # seconds after which a server is asked again what else it speaks


_ERA = "era"


Spoken: TypeAlias = mcp.Era | Literal["both"]


_SPOKEN: tuple[Spoken, ...] = ("legacy", "modern", "both")


class Eras:
    """Which servers speak one era alone, and which both. It holds for a week, so that a server that has learned the
    other is found out; one that has changed to the other is found out when it is started."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self, server: Server) -> Spoken | None:
        kept = self._store.get(space_of(server.id, print_of(server)), _ERA)
        return next((found for found in _SPOKEN if kept == found.encode()), None)

    def save(self, server: Server, found: Spoken) -> None:
        self._store.put(space_of(server.id, print_of(server)), _ERA, found.encode(), ttl=ERA_KEPT)

    def drop(self, server: Server) -> None:
        self._store.delete(space_of(server.id, print_of(server)), _ERA)


def print_of(server: Server) -> str:
    """A hash of what a server's lists, and the era that it speaks, depend on."""
    return hashlib.sha256(msgspec.json.encode(server.lists_depend_on())).hexdigest()


def space_of(server: str, print: str) -> str:
    return f"catalog/{server}/{print}"
