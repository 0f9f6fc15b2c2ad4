"""Pages of our own lists, and the sealed cursors between them.

A cursor says what stood last on the page before, so that a list that changed meanwhile goes on behind it. It is good
for the principal, the path and the list that it was made for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from toolgate.auth.seal import Broken, Seal
from toolgate.config import Config
from toolgate.core import jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members
from toolgate.core.listing import Listing
from toolgate.core.model import Client
from toolgate.core.services import Swap, sets
from toolgate.eras import calls
from toolgate.gateway.snapshot import Route

ROOM = 64  # bytes that may be written for an item beside its own
DIGEST = 12  # bytes of a digest of an item


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """What a sealed cursor holds."""

    principal: str
    path: str
    kind: str
    position: int
    last: bytes  # digest of the item before the position


class Pages:
    """`size` items make a page, or as many as its way to the client takes. It may change at any time: a cursor says
    where the next page begins."""

    def __init__(self, seal: Seal, size: int) -> None:
        self._seal = seal
        self.size = size

    def prepared(self, config: Config) -> Swap:
        return sets(self, size=config.catalog.page_size)

    def cut(self, listing: Listing, params: Members, route: Route, client: Client, most: int) -> Listing:
        """The page that a request asks for, of so many bytes at most, as lines. Raises `Fault` for a cursor that is not
        one of ours."""
        start = self._start(listing, params, route, client)
        end, items = _page(listing.items, start, self.size, most)
        if start == 0 and len(items) == len(listing.items):
            return listing
        cursor = None
        if end < len(listing.items):
            last = _digest(listing.items[end - 1])
            cursor = self._seal.seal(Cursor(client.principal.id, route.path, listing.kind, end, last))
        is_usual = not start % self.size and (len(items) == self.size or (not cursor and len(items) == end - start))
        joined = listing.joined if is_usual else None  # pages that overlap would be kept without end
        return msgspec.structs.replace(listing, items=items, next_cursor=cursor, start=start, joined=joined)

    def _start(self, listing: Listing, params: Members, route: Route, client: Client) -> int:
        given = params.get("cursor", jsonrpc.NOTHING)
        if not given or given == Raw(b"null"):
            return 0
        try:
            cursor = self._seal.unseal(calls.read_text(params, "cursor"), Cursor)
        except Broken:
            raise _unknown() from None
        if cursor.principal != client.principal.id:  # to anyone else it does not exist
            raise _unknown()
        if (cursor.path, cursor.kind) != (route.path, listing.kind):
            raise Fault("INVALID_ARGS", "Invalid params: the cursor belongs to another list")
        before = listing.items[cursor.position - 1 : cursor.position]
        if before and _digest(before[0]) == cursor.last:
            return cursor.position
        return _behind(cursor.last, listing) or min(cursor.position, len(listing.items))


def _page(items: Sequence[Raw], start: int, size: int, most: int) -> tuple[int, Sequence[Raw]]:
    """Where a page of so many items and bytes that begins at `start` ends, and what is on it: all but items that are
    too large for any page."""
    page = items[start : start + size]
    if sum(map(len, page)) + ROOM * len(page) <= most // 3:  # as a line, text may take three times as much
        return start + len(page), page
    taken: list[Raw] = []
    left = most
    for at, item in enumerate(page, start):
        if (needed := len(jsonrpc.one_line(bytes(item))) + ROOM) > most:
            continue
        if needed > left:
            return at, tuple(taken)
        left -= needed
        taken.append(item)
    return start + len(page), tuple(taken)


def _unknown() -> Fault:
    return Fault("INVALID_ARGS", "Invalid params: unknown cursor")


def _digest(item: Raw) -> bytes:
    return hashlib.blake2b(bytes(item), digest_size=DIGEST).digest()


def _behind(last: bytes, listing: Listing) -> int:
    """The position behind the item of this digest; 0 where there is none. To make all digests of a long list takes
    longer than a page, and a client may send one cursor again and again: they stay with the list."""
    digests = listing.digests
    if not digests:
        digests += b"".join(map(_digest, listing.items))
    at = digests.find(last)
    while at >= 0 and at % DIGEST:
        at = digests.find(last, at + 1)
    return at // DIGEST + 1 if at >= 0 else 0
