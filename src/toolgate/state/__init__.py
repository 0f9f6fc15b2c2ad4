"""What outlives the process, or a call: the store, the audit log, parked calls, the configuration that is served.

`base`: what a store promises; `memory`, `sqlite`: two ways; `opening`: the file on disk, its folder and its versions;
`keys`: those of seals; `changes`: what other processes have changed; `audit`: who did what, in a file; `parking`: work
that waits for its client; `settings`: where a configuration comes from while the gateway runs.

The rule this room keeps: a gateway whose store cannot be used works as well, and forgets; it says so once. Imports
`config` and `core`. Something else to keep is a space of the `Store`; a table is a `Migration`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from toolgate.core.clock import Clock, SystemClock
from toolgate.state.base import Store
from toolgate.state.memory import MemoryStore
from toolgate.state.opening import Unusable
from toolgate.state.sqlite import SqliteStore

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
        log.warning("nothing is stored for the next start: %s", why)
        return MemoryStore(clock, f"the store cannot be used: {why}")
