"""The entries of one list, packed: what strangers write takes the bytes that it has, and no objects.

The rule this file keeps: an entry is an object only while somebody looks at it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from toolgate.provision.entries import Entry

BLOCK = 50  # entries that are packed together: fewer take more bytes, more take longer to read one
LONGEST_KEPT = 24 * 1024 * 1024  # bytes of a list


class Full(Exception):
    """A list takes more bytes than one may."""


class Entries:
    """Those of one list, numbered from 0."""

    def __init__(self, blocks: Sequence[bytes] = (), size: int = 0) -> None:
        """All `blocks` but the last have `BLOCK` entries."""
        self.blocks = blocks
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry]:
        return (_entry(packed) for packed in self.packed())

    def packed(self) -> Iterator[msgspec.Raw]:
        for block in self.blocks:
            yield from _opened(block)

    def at(self, numbers: Iterable[int]) -> dict[int, Entry]:
        """Those of these numbers, by number."""
        found: dict[int, Entry] = {}
        block: tuple[int, list[msgspec.Raw]] = (-1, [])
        for number in sorted(numbers):
            place, within = divmod(number, BLOCK)
            if place != block[0]:
                block = place, _opened(self.blocks[place])
            found[number] = _entry(block[1][within])
        return found


class Packing:
    """A list that is being read, or one of before with what is other now."""

    def __init__(self, before: Entries | None = None) -> None:
        self._blocks: list[bytes] = []
        self._rest: list[msgspec.Raw] = []  # of the block that is not full
        self._numbers: dict[str, tuple[int, str]] = {}  # and the version, by name
        self._size = 0  # bytes
        self._count = 0  # entries, those too that others have replaced
        for packed in before.packed() if before else ():
            entry = _entry(packed)
            self._add(entry, packed)

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, entry: Entry, longest: int = LONGEST_KEPT) -> bool:
        """In place of another one of its name; nothing is there then where this one has more bytes. Raises `Full`."""
        packed = msgspec.msgpack.encode(entry)
        if fits := len(packed) <= longest:
            self._add(entry, msgspec.Raw(packed))
        else:
            self._numbers.pop(entry.name, None)
        return fits

    def drop(self, entry: Entry) -> None:
        """Where this version of it is there, and not where another one is."""
        if (found := self._numbers.get(entry.name)) and found[1] == entry.version:
            del self._numbers[entry.name]

    def packed(self) -> Entries:
        """Raises `Full`."""
        if len(self._numbers) < self._count:
            return self._without_replaced()
        if self._rest:
            self._close()
        return Entries(tuple(self._blocks), self._count)

    def _add(self, entry: Entry, packed: msgspec.Raw) -> None:
        self._numbers[entry.name] = self._count, entry.version
        self._count += 1
        self._rest.append(packed)
        if len(self._rest) == BLOCK:
            self._close()

    def _close(self) -> None:
        block = zlib.compress(msgspec.msgpack.encode(self._rest))
        self._blocks.append(block)
        self._rest = []
        self._size += len(block)
        if self._size > LONGEST_KEPT:
            raise Full

    def _without_replaced(self) -> Entries:
        if self._rest:
            self._close()
        counts = bytearray(self._count)
        for number, _ in self._numbers.values():
            counts[number] = 1
        again, number = Packing(), 0
        for block in self._blocks:
            for packed in _opened(block):
                if counts[number]:
                    again._add(_entry(packed), packed)
                number += 1
        return again.packed()


def packed(entries: Iterable[Entry]) -> Entries:
    packing = Packing()
    for entry in entries:
        packing.put(entry)
    return packing.packed()


def _opened(block: bytes) -> list[msgspec.Raw]:
    return msgspec.msgpack.decode(zlib.decompress(block), type=list[msgspec.Raw])


def _entry(packed: msgspec.Raw) -> Entry:
    return msgspec.msgpack.decode(packed, type=Entry)
