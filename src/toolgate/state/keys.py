"""The keys under which is sealed what clients carry (`seal`), kept in the store, so that it opens after a restart too.

The rule this file keeps: all gateways of one store have the same keys. The newest seals. Where it is old, the first
that sees it makes another, and it opens what it sealed for as long as any of that may be kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import overload

import msgspec

from toolgate.core.clock import Clock
from toolgate.state.base import NotKept, Store

SEALS = 30 * 24 * 3600.0  # seconds for which a key is the newest
# Seconds for which it opens after that: a grant is kept for 90 days, and others may see the next key a little later.
OPENS = 91 * 24 * 3600.0
ROUND = 3600.0  # seconds between looks
TRIES = 10

_SPACE, _KEY = "seal", "keys"


class Key(msgspec.Struct, frozen=True, array_like=True):
    """`made` in seconds since 1970; 32 secret bytes."""

    made: float
    secret: bytes


class SealingKeys(Sequence[bytes]):
    """The keys as `Seal` wants them, the newest first; others as time goes on. Call `renew` before the first use. Who
    does not `make` any, takes those that are there: it cannot keep one."""

    def __init__(self, store: Store, clock: Clock, makes: bool = True) -> None:
        self._store = store
        self._clock = clock
        self._makes = makes
        self._known: Sequence[Key] = ()

    def __len__(self) -> int:
        return len(self._known)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        return [key.secret for key in self._known][at]

    def look(self) -> bool:
        """Whether another process has made a key since; from then on it is here, too."""
        before = self._known
        self._known = self._usable(_decoded(self._store.get(_SPACE, _KEY))) or before
        return self._known != before

    async def renew(self) -> None:
        """Read them, and make another where the newest is old. Where nothing can be kept, those that are known go on;
        the first that could not be kept is kept as soon as it can be."""
        now = self._clock.wall()
        if not self._makes and (self.look() or self._known):
            return
        for _ in range(TRIES):  # another gateway may do so at the same time
            kept = self._store.get(_SPACE, _KEY)
            stored = self._usable(_decoded(kept))
            usable = stored or self._usable(self._known)
            is_old = not usable or now - usable[0].made >= SEALS
            renewed = [Key(now, os.urandom(32)), *usable] if is_old else usable
            self._known = usable or renewed
            if renewed is stored:
                return
            try:
                if await self._store.compare_and_set(_SPACE, _KEY, kept, msgspec.msgpack.encode(renewed)):
                    self.look()  # what stands there: a worker writes nothing
                    return
            except NotKept:
                return

    async def follow(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(ROUND)
            await self.renew()

    def _usable(self, keys: Sequence[Key]) -> Sequence[Key]:
        """The newest, and each for a while after the one that came next was made."""
        now = self._clock.wall()
        return [key for at, key in enumerate(keys) if not at or now - keys[at - 1].made < OPENS]


async def sealing_keys(store: Store, clock: Clock, makes: bool = True) -> SealingKeys:
    keys = SealingKeys(store, clock, makes)
    await keys.renew()
    return keys


def _decoded(kept: bytes | None) -> list[Key]:
    """Keys that cannot be read open nothing."""
    try:
        keys = msgspec.msgpack.decode(kept or b"\x90", type=list[Key])
    except (msgspec.DecodeError, ValueError):
        return []
    return [key for key in keys if len(key.secret) == 32]
