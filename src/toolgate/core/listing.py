"""One list for one client, on its way out, and its pages."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

Joined = dict[tuple[int, int, str], Raw]
"""Pages of one list as they were written: by first item, how many, and the oldest revision that has them so."""


class Listing(msgspec.Struct, frozen=True):
    """One list for one client, or a page of it: raw items, and what could not be had, as data that is shown. `start` is
    which of all is the first; `joined` keeps the items as they are written, where that is worth it; `digests` are of
    all items, one behind the other, once one was looked for."""

    kind: str
    items: tuple[Raw, ...]
    failures: tuple[tuple[str, str], ...] = ()  # (server, why)
    pending: tuple[str, ...] = ()  # servers that are still starting
    ttl: float = 0.0  # seconds for which all servers say that it holds
    is_public: bool = False  # whether all servers say that it is the same for everybody
    next_cursor: str | None = None
    start: int = 0
    joined: Joined | None = None
    digests: bytearray = msgspec.field(default_factory=bytearray)

    def meta(self) -> dict[str, Any]:
        """The `_meta` of the result: what could not be had, and what is still to come."""
        meta: dict[str, Any] = {}
        if self.failures:
            meta["partial_failure"] = True
            meta["failures"] = [{"server_id": server, "error": why} for server, why in self.failures]
        if self.pending:
            meta["pending"] = list(self.pending)
        return meta

    def members(self) -> dict[str, Any]:
        """The result's members that all eras have."""
        found: dict[str, Any] = {self.kind: self.items}
        if self.next_cursor is not None:
            found["nextCursor"] = self.next_cursor
        meta = self.meta()
        return found | {"_meta": meta} if meta else found
