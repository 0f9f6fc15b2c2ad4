"""Lists as clients were shown them, kept so that the next page of one costs no more than that page.

The rule this file keeps: what is found here is what the long way of `Lists.view` would show now. A whole list holds as
long as all the servers' lists that it was made of hold whatever becomes of the servers (`Catalog.held_until`), and
nothing that the catalog knows has changed; where only that is over, its items still hold for the same servers' lists.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import msgspec

from toolgate.auth.access import Rules
from toolgate.catalog.base import ServerList
from toolgate.core.listing import Listing
from toolgate.core.model import Client
from toolgate.gateway.snapshot import Route

MOST = 64  # listings
MOST_BYTES = 16 * 1024 * 1024  # of them, or what the latest alone has; pages of longer lists are not kept as written

Key = tuple[str, str, Rules | None, tuple[str, ...], tuple[str, ...]]


def key_of(kind: str, route: Route, client: Client, rules: Rules | None, activated: tuple[str, ...]) -> Key:
    """What a list depends on beside the servers' lists: who sees the same is shown the same."""
    return route.path, kind, rules, activated, tuple([upstream.scope(client) for upstream in route.upstreams.values()])


class KnownListing(msgspec.Struct, frozen=True):
    """`of` are the servers' lists that it was made of. Until `until` it holds as a whole, if the catalog is still of
    that `version`; `fresh_until` is the time to which all servers let it be kept."""

    route: Route
    listing: Listing
    of: tuple[ServerList, ...]
    version: int
    until: float
    fresh_until: float


class KnownListings:
    """The latest, by what they depend on."""

    def __init__(self) -> None:
        self._known: dict[Key, KnownListing] = {}
        self._sizes: dict[Key, int] = {}  # of their items, or of their pages as they are written

    def clear(self) -> None:
        self._known.clear()
        self._sizes.clear()

    def find(self, key: Key, route: Route, version: int, now: float) -> Listing | None:
        """The list as it is shown now, where that is known."""
        known = self._known.get(key)
        if not known or known.route is not route or known.version != version or now >= known.until:
            return None
        self._known[key] = self._known.pop(key)  # what is in use is dropped last
        return msgspec.structs.replace(known.listing, ttl=max(0.0, known.fresh_until - now))

    def made_of(self, key: Key, route: Route, server_lists: Sequence[ServerList]) -> Listing | None:
        """What was made of these very lists before: its items hold, and what of them is written."""
        known = self._known.get(key)
        if not known or known.route is not route or len(known.of) != len(server_lists):
            return None
        return known.listing if all(map(operator.is_, known.of, server_lists)) else None

    def keep(self, key: Key, known: KnownListing) -> Listing:
        """The list as it is kept: whoever writes its pages can keep them with it."""
        self._drop(key)
        listing = known.listing
        size = sum(map(len, listing.items))
        is_kept_written = 2 * size <= MOST_BYTES  # not all clients are written the same
        joined = (listing.joined if listing.joined is not None else {}) if is_kept_written else None
        listing = msgspec.structs.replace(listing, joined=joined)
        self._sizes[key] = 2 * size if is_kept_written else size
        while self._known and (len(self._known) >= MOST or sum(self._sizes.values()) > MOST_BYTES):
            self._drop(next(iter(self._known)))
        self._known[key] = msgspec.structs.replace(known, listing=listing)
        return listing

    def _drop(self, key: Key) -> None:
        self._known.pop(key, None)
        self._sizes.pop(key, None)
