"""What outlives the process or a call: the store, the audit log, parked calls, and where the configuration comes from.

May import `config` and `core`.

The rule of the store: a gateway that cannot use it works all the same, forgets at its end, and says so once. The audit
has a rule of its own, `audit.on_failure`.

    __init__    `opened`: the store of a folder, for as long as a block
    base        what every store promises: keys and values by space, with a lifetime and compare-and-set; and tables
    memory      a store that lasts as long as its object
    sqlite      the store on disk: one file, written by one thread, shared by all gateways of the folder
    read_only   the store as a worker has it
    latest      values that others can have written anew as often as they like
    opening     opening that file: its folder, its version, a damaged one
    holders     which programs keep others from opening or writing that file
    backups     copies of that file, and one put in its place
    migrations  the tables, and how an older file gets them
    letters     which tasks may have a text in their title or labels
    changes     what other processes have changed in the store; `StoreChanges` tells those who listen
    keys        the keys that seal what clients carry, kept so that it opens after a restart
    audit       who did what, in a file that only grows, each line bound to the line before
    pacing      lines of the audit that others can bring about as often as they like
    parking     work that waits for its client; the only place where a call outlives its request
    settings    where the configuration comes from while the gateway runs
    own_config  the file that people write, edited for them
    edited_files  files that were edited for users, and how that is undone
    merging     servers of other programs' files, merged into it

Reads answer at once, on the thread of the event loop. A write is on its way when the method returns, and is awaited
only where that matters. Each coding agent may start its own `toolgate stdio`, so several gateways share one file; of
two writes the last one wins. A process that has the file open must not open it by other means: closing it would end
SQLite's locks on it.

What lies in the folder (`state`, else the user's own), readable by its user alone: `toolgate.db` is the store,
`audit.jsonl` the audit log where it is on, `servers-….json` the servers that were added at run time, one file for each
configuration, with their `${VAR}` unexpanded.

Something else to keep is a space of the `Store`; a table of its own needs a `Migration`. Something else that other
processes change under a running gateway is a `Subject` of `base`.

Another database is a class that is a `Store`, a branch of `_open` here, and a `kind` in `Place` of
`tests/contract/test_store.py`, which holds all of them to one contract. Pins are a space; tasks are tables, in SQL that
SQLite and PostgreSQL both understand. `opening` and `backups` are for SQLite alone.
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
async def opened(where: Path, clock: Clock | None = None, is_told: bool = False) -> AsyncGenerator[Store]:
    """The store in this folder, closed when the block is left. `is_told`: another process has said what is wrong with
    it."""
    store = _open(where, clock or SystemClock(), is_told)
    try:
        yield store
    finally:
        await store.close()


def _open(where: Path, clock: Clock, is_told: bool) -> Store:
    try:
        return SqliteStore(where, clock)
    except Unusable as why:
        if not is_told:
            log.warning("data is not kept for the next start: %s", why)
        return MemoryStore(clock, f"the store cannot be used: {why}")
