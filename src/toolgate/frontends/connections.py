"""The connections of clients: which of them goes where there are too many.

The rules this file keeps: each principal has half of the files that the process may open, and before it has shown who
it is, its address; all together have three quarters, the rest is for servers and for us. Beyond that the oldest that
has brought no admitted request yet is closed, of whoever has the most of these: so who was let in stays, and whoever
comes has the time to show something that as many others take to come.
"""

from __future__ import annotations

import math
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any

from toolgate.core.fairness import Shares
from toolgate.core.inflow import IntakeQueue
from toolgate.core.model import Principal
from toolgate.frontends.unread import Backlog, Unread

OF_ONE, OF_ALL = 1 / 2, 3 / 4  # of the files that the process may open
STATE = "connection"  # its key in the state of an ASGI scope
HEAD_FREE = 4096  # bytes of a head that is still to end, which count for nothing
HEADS_OF_ONE, HEADS = 16 * 1024 * 1024, 64 * 1024 * 1024  # bytes of such heads, of one principal and of all
OF_LINE = 200  # bytes that each line of a head takes beside its own: it is kept as three objects


def most_files() -> float:
    """How many files the process may open."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if most == resource.RLIM_INFINITY else most


class Connection:
    """One of them. `key` is whose it is: its address until it brings a request that is admitted, then its principal
    (`Principal.counted_as`)."""

    principal: Principal | None = None  # of its last request
    client: tuple[str, int] | None = None  # who is at the other end, as ASGI has it; of the gateway's user: `Operator`
    server: tuple[str, int | None] | None = None  # where it came to
    is_encrypted = False
    on_admitted: Callable[[Principal], object] | None = None  # is told whose requests it brings from now on

    def __init__(self, unread: Unread, transport: Any, address: str) -> None:
        self.address = address
        self.key = Principal(address=address).counted_as
        self.backlog = Backlog(unread, transport, self.key)
        self.abort = transport.abort
        self._all: Connections | None = None

    def counts(self, all: Connections) -> None:
        """It is one over a network: it may lose its place to another."""
        self._all = all
        all.opened(self)

    def admitted(self, principal: Principal) -> None:
        """It has brought a request of this principal."""
        is_first, self.principal = not self.principal, principal
        key = principal.counted_as
        if self._all and is_first:
            self._all.admitted(self, key)
        is_new = is_first or key != self.backlog.key
        if is_new:
            self.backlog.belongs_to(key)
        if is_new and self.on_admitted:
            self.on_admitted(principal)

    def closed(self) -> None:
        self.backlog.close()
        if self._all:
            self._all.closed(self)
            self._all = None


class UnfinishedHead:
    """What has come of a request whose head has not ended. It has its time, and so may others of its principal: beyond
    their bounds the one that has taken longest loses its connection."""

    _size = 0  # bytes that count: of memory

    def __init__(self, heads: Unread, connection: Connection, now: float) -> None:
        self.key = connection.backlog.key
        self._heads = heads
        self._began = now
        self._backlog = connection.backlog

    def has(self, size: int) -> None:
        if size > max(HEAD_FREE, self._size):
            self._size = size
            self._heads.keep(self, size)

    def ended(self) -> None:
        if self._size:
            self._size = 0
            self._heads.keep(self, 0)

    def since(self) -> float:
        return self._began

    def cut_off(self, why: str) -> None:
        self.ended()
        self._backlog.cut_off(why)


class Connections:
    """Those of a frontend."""

    files_of_each = 1

    def __init__(self) -> None:
        self.unread = Unread()
        self.heads = Unread("its client has too many requests whose heads do not end", HEADS_OF_ONE, HEADS)
        self.turns = IntakeQueue()  # of what they send
        self._by: Counter[str] = Counter()  # how many, by key
        self._strangers: Shares[Connection] = Shares()  # that have brought no admitted request

    @property
    def count(self) -> int:
        return self._by.total()

    def opened(self, new: Connection) -> None:
        most = self._most()
        self._by[new.key] += 1
        self._strangers.put(new.key, str(id(new)), new)
        if self._by[new.key] > max(1, most * OF_ONE):
            _give_up(next(self._strangers.of(new.key)))
        elif self.count > max(1, most * OF_ALL):
            _give_up(next(self._strangers.greatest()))

    def admitted(self, connection: Connection, key: str) -> None:
        """Its first request is."""
        self._strangers.remove(connection.key, str(id(connection)))
        self._forget(connection)
        connection.key = key
        self._by[key] += 1
        if self._by[key] > max(1, self._most() * OF_ONE):
            _give_up(connection)

    def closed(self, connection: Connection) -> None:
        if not connection.principal:
            self._strangers.remove(connection.key, str(id(connection)))
        self._forget(connection)

    def _most(self) -> float:
        return most_files() / self.files_of_each

    def _forget(self, connection: Connection) -> None:
        self._by[connection.key] -= 1
        if not self._by[connection.key]:
            del self._by[connection.key]


def _give_up(connection: Connection) -> None:
    connection.closed()
    connection.abort()
