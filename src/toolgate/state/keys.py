"""The keys under which is sealed what clients carry (`seal`), kept in the store, so that it opens after a restart too.

The rule this file keeps: all gateways of one store have the same keys. A gateway takes them when it starts; where the
newest is old, it makes another, and the older ones open what they sealed for a while.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from toolgate.core.clock import Clock
from toolgate.state.base import NotKept, Store

SEALS = 30 * 24 * 3600.0  # seconds for which a key is the newest
OPENS = 90 * 24 * 3600.0  # seconds for which it opens
TRIES = 10

_SPACE, _KEY = "seal", "keys"


class Key(msgspec.Struct, frozen=True, array_like=True):
    """`made` in seconds since 1970; 32 secret bytes."""

    made: float
    secret: bytes


async def sealing_keys(store: Store, clock: Clock) -> Sequence[bytes]:
    """The keys as `Seal` wants them: the newest first."""
    now = clock.wall()
    anew = Key(now, os.urandom(32))
    for _ in range(TRIES):  # another gateway may start at the same time
        kept = store.get(_SPACE, _KEY)
        known = [key for key in _decoded(kept) if now - key.made < OPENS]
        if known and now - known[0].made < SEALS:
            return [key.secret for key in known]
        try:
            await store.compare_and_set(_SPACE, _KEY, kept, msgspec.msgpack.encode([anew, *known]))
        except NotKept:
            return [anew.secret, *(key.secret for key in known)]
    return [anew.secret]


def _decoded(kept: bytes | None) -> list[Key]:
    """Keys that cannot be read open nothing."""
    try:
        keys = msgspec.msgpack.decode(kept or b"\x90", type=list[Key])
    except (msgspec.DecodeError, ValueError):
        return []
    return [key for key in keys if len(key.secret) == 32]
