"""Heads of requests that were let in: the same bytes from the same address mean the same again, and are not parsed.

The rules this file keeps: what a head means is what the server and the guards have made of these very bytes, and it is
known no longer than they would make the same of them (`forget`); but for its length, which is read each time, a body
has no part in it; and who sends many heads loses its own first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

import msgspec

from toolgate.core.fairness import Shares
from toolgate.core.mcp import CHANGING_HEADERS

Meaning = TypeVar("Meaning")

MOST, MOST_BYTES = 4096, 4 * 1024 * 1024  # heads, and bytes of all of them
LONGEST = 4096  # bytes of one
LONGEST_BODY = 20_000  # bytes; of what is longer, guards look at more than the head
CAME = "came"  # the key of a request that came whole, in the state of its ASGI scope
END = b"\r\n\r\n"
_length = re.compile(rb"\r\n(?i:content-length): ?([1-9][0-9]{0,4})\r\n")
# Nothing but a server that is to get them goes by these, and nothing in such a value can be the end of it. In a head of
# small letters they are found in a quarter of the time.
_varying = re.compile(rb"\r\n(%b): ?([!-~][ -~]{0,1023})(?=\r\n)" % "|".join(sorted(CHANGING_HEADERS)).encode())
_asks_first = re.compile(rb"\r\n(?i:expect|transfer-encoding|upgrade):")
# By these a request is more than one message and its answer, or its body is framed in another way.
_OF_THE_CONNECTION = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade", b"trailer", b"te"})


Head: TypeAlias = tuple[str, bytes, bytes]
"""Who sent it, and what stands before and behind the length of its body, without what is another one each time."""


class Parted(msgspec.Struct, frozen=True):
    """A request that came whole in one piece, and when: what was found out of it since then may hold no longer.
    `varying` are those of its headers that are other ones each time."""

    head: Head
    body: bytes
    generation: int
    varying: Mapping[str, str] = {}


def _without_what_varies(head: bytes) -> tuple[bytes, Mapping[str, str]]:
    varying: dict[str, str] = {}
    rest, at = b"", 0
    for found in _varying.finditer(head.lower()):
        name = found[1].decode()
        if name in varying:
            return head, {}
        start, stop = found.span(2)
        varying[name] = head[start:stop].decode().rstrip()
        rest += head[at:start] + b"\0"  # no head that a parser takes has a zero in it
        at = stop
    return (rest + head[at:] if varying else head), varying


def is_plain(version: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request with these headers is one message, after which its connection stays."""
    said = [(name, value.lower()) for name, value in headers if name in _OF_THE_CONNECTION]
    return version == "1.1" and said in ([], [(b"connection", b"keep-alive")])


class KnownHeads(Generic[Meaning]):
    """What heads mean. What was found before a wait may hold no more behind it: then it is to be found anew."""

    def __init__(self, body_limit: int = LONGEST_BODY) -> None:
        self._longest_body = min(LONGEST_BODY, body_limit)
        self._generation = 0  # of what is known: each time that all of it is forgotten, another one begins
        self.by_head: dict[Head, Meaning] = {}
        self._whose: dict[Head, str] = {}
        self._shares: Shares[Head] = Shares()
        self._size = 0  # bytes
        self._apart: dict[tuple[str, bytes], tuple[Head, int]] = {}  # known ones, with the lengths of their bodies
        self._apart_size = 0  # bytes

    def __len__(self) -> int:
        return len(self.by_head)

    def is_alone(self, data: bytes) -> bool:
        """Whether these bytes are a head that ends with them, and whose short body comes without being asked for: many
        clients write the two one after the other."""
        found = _length.search(data, 0, LONGEST) if data.endswith(END) and len(data) <= LONGEST else None
        is_short = found is not None and int(found[1]) <= self._longest_body
        return is_short and data.find(END) == len(data) - len(END) and not _asks_first.search(data)

    def parted(self, address: str, data: bytes) -> Parted | None:
        """None where these bytes are not one whole request, or one that is not to be known again: an operator's, who
        has no address."""
        end = data.find(END, 0, LONGEST) + 4  # as long as that is
        head = data[:end]
        if apart := self._apart.get((address, head)):
            known, length = apart
            if len(data) - end == length:
                return Parted(known, data[end:], self._generation)
        if not address:
            return None
        head, varying = _without_what_varies(head)
        found = _length.search(head)
        if not found or len(data) - end != int(found[1]) or len(data) - end > self._longest_body:
            return None
        start, stop = found.span(1)
        parted = Parted((address, head[:start], head[stop:]), data[end:], self._generation, varying)
        if parted.head in self.by_head and not varying:
            if self._apart_size + len(head) > MOST_BYTES:  # one client's many heads are not to keep those of others out
                self._apart.clear()
                self._apart_size = 0
            self._apart[address, head] = parted.head, len(data) - end
            self._apart_size += len(head)
        return parted

    def learn(self, request: Parted, meaning: Meaning, whose: str) -> None:
        """What was found out of a request since it came. `whose` it is: see `Principal.counted_as`."""
        head = request.head
        if request.generation != self._generation:
            return
        if head in self.by_head:
            self._drop(head)
        self._size += _size(head)
        while self.by_head and (len(self.by_head) >= MOST or self._size > MOST_BYTES):
            self._drop(next(self._shares.greatest()))
        self.by_head[head] = meaning
        self._whose[head] = whose
        self._shares.put(whose, head, head)

    def forget(self) -> None:
        """Whoever was let in before might not be now, or be somebody else."""
        self._generation += 1
        self.by_head.clear()
        self._whose.clear()
        self._shares = Shares()
        self._size = 0
        self._apart.clear()
        self._apart_size = 0

    def _drop(self, head: Head) -> None:
        del self.by_head[head]
        self._shares.remove(self._whose.pop(head), head)
        self._size -= _size(head)


def _size(head: Head) -> int:
    return len(head[1]) + len(head[2])
