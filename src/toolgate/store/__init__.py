"""What outlives the process: keys and values by space (`ports.Store`), on disk (`sqlite`) or not (`memory`).

The rule this room keeps: a gateway whose store cannot be used works as well, and forgets; it says so once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from toolgate.ports import Clock, Store, SystemClock
from toolgate.store.memory import MemoryStore
from toolgate.store.opening import Unusable
from toolgate.store.sqlite import SqliteStore

log = logging.getLogger(__name__)


@asynccontextmanager
async def opened(where: Path, clock: Clock | None = None) -> AsyncGenerator[Store]:
    """The store in this folder, closed when the block is left."""
    store = _open(where, clock or SystemClock())
    try:
        yield store
    finally:
        await store.close()


def _open(where: Path, clock: Clock) -> Store:
    try:
        return SqliteStore(where, clock)
    except Unusable as why:
        log.warning("nothing is kept for the next start: %s", why)
        return MemoryStore(clock, f"the store cannot be used: {why}")
