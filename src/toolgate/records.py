"""What is known of servers between two runs: their lists, and what they say of themselves, in the store.

Each record stands under the server's id and a print of its configuration: what was listed under another print is not
known. The rule this file keeps: nobody waits for what is written here, and what is as it was is not written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw

from toolgate.ports import About, Clock, Shelf, Store
from toolgate.wire import mcp

KEPT = 30 * 24 * 3600.0  # seconds for which a record that nobody renews is kept
RENEWED = 24 * 3600.0  # seconds after which one that is as it was is written again

_ABOUT = "about"


Record = TypeVar("Record")


class _List(msgspec.Struct, frozen=True, array_like=True):
    """`fetched` in seconds since 1970; `ttl` in seconds, as the server said."""

    fetched: float
    ttl: float | None
    is_public: bool
    items: dict[str, bytes]


class _About(msgspec.Struct, frozen=True, array_like=True):
    capabilities: dict[str, object]
    instructions: str


class Records:
    """Records of servers, by id and print. What cannot be read is not known."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._written: dict[tuple[str, str], tuple[bytes, float]] = {}  # by space and key: a digest, and when

    def load(self, server: str, print: str) -> tuple[Mapping[str, Shelf], About | None]:
        """The lists by kind, and what the server says of itself."""
        records = self._store.items(_space(server, print))
        shelves = {kind: self._shelf(raw) for kind, raw in records.items() if kind in mcp.LIST_OF_KIND}
        about = _decoded(records.get(_ABOUT, b""), _About)
        return (
            {kind: shelf for kind, shelf in shelves.items() if shelf},
            About(about.capabilities, about.instructions) if about else None,
        )

    def save(self, server: str, print: str, kind: str, shelf: Shelf) -> None:
        wall = self._clock.wall() - (self._clock.now() - shelf.fetched)
        ttl = None if shelf.until is None else shelf.until - shelf.fetched
        items = {name: bytes(raw) for name, raw in shelf.items.items()}
        self._write(_space(server, print), kind, _List(wall, ttl, shelf.is_public, items), items)

    def save_about(self, server: str, print: str, about: About) -> None:
        record = _About(dict(about.capabilities), about.instructions)
        self._write(_space(server, print), _ABOUT, record, record)

    def drop(self, server: str, print: str, kind: str) -> None:
        self._written.pop((_space(server, print), kind), None)
        self._store.delete(_space(server, print), kind)

    def forget(self, server: str, print: str) -> None:
        """This server is configured no more, or otherwise. Its records stay: the configuration may come back."""
        for place in [place for place in self._written if place[0] == _space(server, print)]:
            del self._written[place]

    def _write(self, space: str, key: str, record: msgspec.Struct, content: object) -> None:
        digest = hashlib.sha256(msgspec.msgpack.encode(content)).digest()
        before, when = self._written.get((space, key), (b"", 0.0))
        now = self._clock.wall()
        if digest != before or now - when >= RENEWED:
            self._written[space, key] = digest, now
            self._store.put(space, key, msgspec.msgpack.encode(record), ttl=KEPT)

    def _shelf(self, raw: bytes) -> Shelf | None:
        found = _decoded(raw, _List)
        if not found:
            return None
        fetched = self._clock.now() - max(0.0, self._clock.wall() - found.fetched)
        until = None if found.ttl is None else fetched + found.ttl
        return Shelf({name: Raw(item) for name, item in found.items.items()}, fetched, until, found.is_public)


def _space(server: str, print: str) -> str:
    return f"catalog/{server}/{print}"


def _decoded(raw: bytes, type: type[Record]) -> Record | None:
    """One that another version has written, or that is damaged, is none."""
    try:
        return msgspec.msgpack.decode(raw, type=type)
    except (msgspec.DecodeError, ValueError):
        return None
