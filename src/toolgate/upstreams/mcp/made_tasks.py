"""Who made which task of a server: what outlives the connection that it was made on, and the gateway's process.

The rule this file keeps: what is remembered is bounded, by principal and in all.
"""

from __future__ import annotations

import msgspec

from toolgate.config import Server
from toolgate.core.fairness import Shares
from toolgate.core.model import Call, Made
from toolgate.eras.tasks import Task
from toolgate.upstreams.kept_tasks import Entry, KeptTasks, space_of

MOST_TASKS = 1024  # tasks of one principal that are remembered, and listed; beyond, its oldest are forgotten
MOST_OF_ALL = 16 * 1024  # tasks that are; beyond, the oldest of whoever has most


class TaskOwners:
    """Who made which task on the connections of one scope of a server. With `kept`, that of earlier processes too."""

    def __init__(self, server: Server | None = None, scope: str = "", kept: KeptTasks | None = None) -> None:
        self._space = space_of(server.id, server.print, scope) if server else ""
        self._kept = kept
        self._entries: dict[str, Entry] = {}
        self._shares: Shares[str] = Shares()  # the ids of these, by whose they are
        for id, entry in kept.load(self._space).items() if kept else ():
            self._add(id, entry)

    def add(self, task: Task, call: Call, wall: float) -> None:
        """`wall` in seconds since 1970."""
        self.forget(task.taskId)
        client = call.client
        entry = Entry(client.identity, client.principal.counted_as, call.made, wall + task.lasts)
        self._add(task.taskId, entry)
        if self._kept:
            self._kept.save(self._space, task.taskId, entry)

    def _add(self, id: str, entry: Entry) -> None:
        self._entries[id] = entry
        self._shares.put(entry.whose, id, id)
        if self._shares.count(entry.whose) > MOST_TASKS:
            self.forget(next(self._shares.of(entry.whose)))
        elif len(self._entries) > MOST_OF_ALL:
            self.forget(next(self._shares.greatest()))

    def maker(self, id: str) -> tuple[str, str] | None:
        """The client (`Client.identity`) that made it, as far as is known."""
        found = self._entries.get(id)
        return found.maker if found else None

    def whose(self, id: str) -> str:
        """By what its maker is counted (`Principal.counted_as`); empty where that is not known."""
        found = self._entries.get(id)
        return found.whose if found else ""

    def made(self, id: str) -> Made | None:
        """What it was made by, as far as is known."""
        found = self._entries.get(id)
        return found.made if found else None

    def of(self, principal: str) -> list[str]:
        """The ids of the tasks that a principal has made, the oldest first."""
        return [id for id, entry in self._entries.items() if entry.maker[0] == principal]

    def over(self, id: str) -> None:
        """It runs no more, but can still be asked for."""
        if id in self._entries:
            self._entries[id] = msgspec.structs.replace(self._entries[id], until=0.0)

    def forget(self, id: str) -> None:
        if entry := self._entries.pop(id, None):
            self._shares.remove(entry.whose, id)
            if self._kept:
                self._kept.drop(self._space, id)

    def runs(self, wall: float, but_of: str | None = None) -> bool:
        """Whether any of them may still run; those of one principal not counted, where it is named."""
        return any(entry.until > wall and entry.maker[0] != but_of for entry in self._entries.values())
