"""Ends programs that keep the gateway from writing its store, its audit log or its secrets: that have locked a file of
these.

A server whose box reads all files may lock them, and needs locks of its own; so no box can keep it from that. The rules
this file keeps: only what this gateway has started is ended, and only a server of which some process has held such a
lock in two looks, while what it locks was not written; or in one look a lock that SQLite never takes. A program that
reads the store by SQLite does neither, and whoever writes any of these is done long before.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from toolgate.core.background import rounds
from toolgate.core.clock import Clock
from toolgate.state.base import Store
from toolgate.state.holders import Holder
from toolgate.state.sqlite import SqliteStore
from toolgate.upstreams.process.supervisor import Child, Supervisor, processes_of

log = logging.getLogger(__name__)

LOOK = 1.0  # seconds between looks; so it is over before a command gives up that waits to write (`state.opening.BUSY`)
WHY = "held a lock on a file of the gateway, which nobody could write meanwhile, and was stopped"
HINT = 'give it a box that shows it no files of the gateway (box = "strict")'


async def follow(store: Store, supervisor: Supervisor, clock: Clock, audit: Path | None) -> None:
    """Until cancelled, among the programs of this supervisor. `audit` is its log. A store without files is
    locked by nobody."""
    if isinstance(store, SqliteStore):
        await Lockers(store, supervisor, clock, audit).follow()


class Lockers:
    """Of one gateway's store, among the programs of its supervisor."""

    def __init__(self, store: SqliteStore, supervisor: Supervisor, clock: Clock, audit: Path | None) -> None:
        self._store = store
        self._supervisor = supervisor
        self._clock = clock
        self._audit = [audit] if audit else []
        self._seen: set[tuple[Child, str, int]] = set()  # which server, which file, and when that was written last

    async def follow(self) -> None:
        """Until cancelled."""
        await rounds(self._clock, LOOK, self._look, "look for what locks the store")

    async def _look(self) -> None:
        children = self._supervisor.children
        is_locked = bool(children) and await asyncio.to_thread(self._store.is_locked, self._audit)
        found = await asyncio.to_thread(self._found, children) if is_locked else {}
        strange_last = sorted(found.items(), key=lambda each: each[0].is_strange)
        seen = {(child, holder.file, self._written(holder)): holder for holder, child in strange_last}
        for each, holder in seen.items():  # whichever process of the server it was the last time
            if (holder.is_strange or each in self._seen) and each[0] in self._supervisor.children:
                self._end(holder, each[0])
        self._seen = set(seen)

    def _written(self, holder: Holder) -> int:
        """When what it keeps from being written was written last, in nanoseconds of the file system."""
        if holder.is_of_data:
            return self._store.written()
        with suppress(OSError):
            return sum(os.stat(each).st_mtime_ns for each in self._audit if holder.file == each.name)
        return 0

    def _found(self, children: Sequence[Child]) -> dict[Holder, Child]:
        whose = processes_of(children)
        return {holder: whose[holder.pid] for holder in self._store.holders(whose, self._audit)}

    def _end(self, holder: Holder, child: Child) -> None:
        is_again = self._supervisor.expel(child, WHY, HINT)
        then = "; it is not started again until its configuration is another" if is_again else ""
        log.warning("%s %s: %s%s. Fix: %s", child.name, WHY, holder, then, HINT)
