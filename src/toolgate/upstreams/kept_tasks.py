"""Who made which task of a server, kept from one start to the next: who comes back finds their tasks in the list.

The rule this file keeps: a session ends with the process, so what it has made is kept for its principal, and nothing
where each session has a server for itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from toolgate.core.clock import Clock
from toolgate.core.model import Made
from toolgate.state.base import Store


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """`maker` is `Client.identity`, `whose` is `Principal.counted_as`; it runs no more after `until` (seconds since
    1970)."""

    maker: tuple[str, str]
    whose: str
    made: Made
    until: float


class KeptTasks:
    """The owners of tasks in the store, by server and scope (`space_of`)."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def load(self, space: str) -> Mapping[str, Entry]:
        """By id, the oldest first."""
        found: dict[str, Entry] = {}
        for id, raw in self._store.items(space).items():
            try:
                found[id] = msgspec.msgpack.decode(raw, type=Entry)
            except (msgspec.DecodeError, ValueError):
                continue  # of a toolgate that kept something else
        return dict(sorted(found.items(), key=lambda each: each[1].until))

    def save(self, space: str, id: str, entry: Entry) -> None:
        kept = msgspec.structs.replace(entry, maker=(entry.maker[0], ""))
        seconds = max(1.0, entry.until - self._clock.wall())
        self._store.put(space, id, msgspec.msgpack.encode(kept), ttl=seconds)

    def drop(self, space: str, id: str) -> None:
        self._store.delete(space, id)


def space_of(server: str, print: str, scope: str) -> str:
    """`print` is `Upstream.print`: the tasks of a server are none of another that has its name."""
    return f"task owners/{server}/{print}/{scope}"
