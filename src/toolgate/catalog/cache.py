"""What is known of servers between two runs: their lists or why there are none, their own words, and which eras
they speak, in the store.

Each record stands under the server's id and a print of its configuration: what was listed under another print is not
known. The rule this file keeps: nobody waits for what is written here, and what is as it was is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.core import counting, jsonrpc, mcp, surrogates
from toolgate.core.clock import Clock
from toolgate.core.fault import RPC_CODES, Code, Fault, Words
from toolgate.eras import listed
from toolgate.eras.output_schemas import OutputSchemas
from toolgate.state.base import Store
from toolgate.state.latest import LatestValues
from toolgate.upstreams.base import About
from toolgate.upstreams.known_eras import space_of

KEPT = 30 * 24 * 3600.0  # seconds for which a record that nobody renews is kept
RENEWED = 24 * 3600.0  # seconds after which one that is as it was is written again


Place = tuple[str, str, str]  # of a list: server id, scope, kind

_ABOUT = "about"
_FAULT = "fault of "


class _List(msgspec.Struct, frozen=True, array_like=True):
    """`fetched` in seconds since 1970; `ttl` in seconds, as the server said."""

    fetched: float
    ttl: float | None
    is_public: bool
    items: dict[str, bytes]


class CatalogCache:
    """Records of servers, by id and print (`prints`, by id; a server without one has no records). What cannot be read
    is not known. Connections that are not shared have none: who asks for such a place asks for nothing."""

    def __init__(self, store: Store, clock: Clock, prints: Mapping[str, str]) -> None:
        self.prints = prints
        self._store = store
        self._lists = LatestValues(store, clock)
        self._clock = clock
        self._written: dict[tuple[str, str], tuple[object, float]] = {}  # by space and key: what, and when

    def load(self, server: str) -> tuple[Mapping[str, ServerList], Mapping[str, Fault], About | None]:
        """The lists by kind, why others could not be had, and what the server says of itself."""
        space = self._space(server)
        cache: Mapping[str, bytes] = self._store.items(space) if space else {}
        server_lists = {kind: self._server_list(kind, cache.get(kind, b"")) for kind in mcp.LIST_OF_KIND}
        faults = {kind: _fault(cache.get(_FAULT + kind, b""), server) for kind in mcp.LIST_OF_KIND}
        return (
            {kind: server_list for kind, server_list in server_lists.items() if server_list},
            {kind: fault for kind, fault in faults.items() if fault and not server_lists[kind]},
            _about(cache.get(_ABOUT, b"")),
        )

    def save(self, place: Place, server_list: ServerList) -> None:
        server, scope, kind = place
        ttl = None if server_list.until is None else round(server_list.until - server_list.fetched, 3)
        space = self._space(server, scope)
        if space and self._is_due(space, kind, (list(server_list.own.items()), ttl, server_list.is_public)):
            wall = self._clock.wall() - (self._clock.now() - server_list.fetched)

            def pack() -> bytes:
                items = {name: bytes(raw) for name, raw in server_list.own.items()}
                return surrogates.pack(_List(wall, ttl, server_list.is_public, items))

            self._lists.put(space, kind, server_list.size, pack, KEPT)

    def save_fault(self, place: Place, fault: Fault) -> None:
        """Why a list that was never known could not be had: who starts again need not wait for that anew."""
        server, scope, kind = place
        words = fault.words or Words()
        said = [fault.code, fault.message, fault.hint, words.last, words.hint]
        space = self._space(server, scope)
        if space and self._is_due(space, _FAULT + kind, said):
            self._store.put(space, _FAULT + kind, jsonrpc.encode(said), ttl=KEPT)

    def save_about(self, server: str, about: About) -> None:
        space = self._space(server)
        if space and self._is_due(space, _ABOUT, about):
            self._store.put(space, _ABOUT, jsonrpc.encode(about), ttl=KEPT)

    def drop(self, place: Place) -> None:
        server, scope, kind = place
        if space := self._space(server, scope):
            self._written.pop((space, kind), None)
            self._lists.delete(space, kind)

    def drop_fault(self, place: Place) -> None:
        server, scope, kind = place
        if space := self._space(server, scope):
            self._written.pop((space, _FAULT + kind), None)
            self._store.delete(space, _FAULT + kind)

    def forget(self, server: str) -> None:
        """This server is configured no more, or otherwise. Its records stay: the configuration may come back."""
        space = self._space(server)
        for written in [written for written in self._written if written[0] == space]:
            del self._written[written]

    async def close(self) -> None:
        """What waits is on its way to the store then."""
        await self._lists.close()

    def _space(self, server: str, scope: str = "") -> str:
        """Empty where nothing is kept."""
        print = self.prints.get(server)
        return space_of(server, print) if print and not scope else ""

    def _is_due(self, space: str, key: str, content: object) -> bool:
        """Whether this is to be written: it is another than before, or has long not been."""
        before, when = self._written.get((space, key), (None, 0.0))
        now = self._clock.wall()
        is_due = content != before or now - when >= RENEWED
        self._written[space, key] = content, now if is_due else when  # of two equals the one that is in use is kept
        return is_due

    def _server_list(self, kind: str, raw: bytes) -> ServerList | None:
        """Without what some client cannot read: who kept it may not have looked at that."""
        try:
            found = surrogates.unpack(raw, _List)
            is_sound = all(jsonrpc.members(item) for item in found.items.values())
        except (ValueError, *jsonrpc.UNREADABLE):
            return None
        if not is_sound:
            return None
        fetched = self._clock.now() - max(0.0, self._clock.wall() - found.fetched)
        until = None if found.ttl is None else fetched + found.ttl
        items = {name: Raw(item) for name, item in found.items.items()}
        readable = {name: item for name, item in items.items() if _is_readable(kind, item)}
        if kind == "tools":
            schemas = OutputSchemas()
            readable = {name: schemas.of(item)[0] for name, item in readable.items()}
        return ServerList(readable, fetched, until, found.is_public)


def _is_readable(kind: str, item: Raw) -> bool:
    return not listed.why_unreadable(kind, item) and not counting.is_deeper(bytes(item), jsonrpc.DEEPEST_ITEM)


def _fault(raw: bytes, server: str) -> Fault | None:
    try:
        code, message, hint, *words = jsonrpc.read(raw, list[str])
        found = Words(words[0], words[1]) if len(words) == 2 else None
    except (msgspec.DecodeError, ValueError, TypeError):
        return None
    if code not in RPC_CODES:
        return None
    return Fault(cast(Code, code), message, server=server, reach="not_sent", hint=hint, words=found)


def _about(raw: bytes) -> About | None:
    try:
        return jsonrpc.read(surrogates.replaced(raw), About)
    except (msgspec.DecodeError, ValueError):
        return None
