"""How much is kept at once of what clients have not read: each answer may be large, and there are many connections.

The rules this file keeps: who is beyond the budget loses the connection that has waited longest without reading, and
nobody loses one because of others while it has no more than its share; one connection of each principal always may
wait; and who reads nothing for a minute while an answer waits is cut off. An answer counts whole until its last byte
is out: so long it is in memory.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol

FREE = 64 * 1024  # bytes of each connection, which count for nothing
NOTES_KEPT = 1024 * 1024  # bytes that may wait for a client before notes are lost
MOST_OF_ONE = 64 * 1024 * 1024  # bytes that wait for one principal
MOST = 256 * 1024 * 1024  # for all
PATIENCE = 60.0  # seconds without reading
LOOK = 15.0  # seconds after which is looked whether somebody reads

_AT_ONCE = struct.pack("ii", 1, 0)

log = logging.getLogger(__name__)


class Waiting(Protocol):
    """What waits on one connection. `key` is its principal (`Principal.counted_as`)."""

    key: str

    def since(self) -> float:
        """How long: what has the least waits longest."""
        ...

    def cut_off(self, why: str) -> None:
        """Close the connection; nothing waits any more."""
        ...


class Unread:
    """That of all connections; or of another kind that waits for its client. `why` one is cut off that has too much."""

    def __init__(
        self,
        why: str = "its client has too many unread answers",
        most_of_one: int | None = None,
        most: int | None = None,
    ) -> None:
        self._why = why
        self._most_of_one = most_of_one or MOST_OF_ONE  # bytes that wait for one principal
        self._most = most or MOST  # for all
        self._by: dict[str, dict[Waiting, int]] = {}  # bytes by principal and connection
        self._kept_by: dict[str, int] = {}
        self._kept = 0

    def keep(self, waiting: Waiting, size: int) -> None:
        """So much waits on a connection now."""
        theirs = self._by.setdefault(waiting.key, {})
        more = size - theirs.pop(waiting, 0)
        if size:
            theirs[waiting] = size
        self._kept += more
        self._kept_by[waiting.key] = self._kept_by.get(waiting.key, 0) + more
        if not theirs:
            del self._by[waiting.key], self._kept_by[waiting.key]
        if more > 0:
            self._make_room(waiting.key)

    def _make_room(self, key: str) -> None:
        while self._is_beyond(key, self._most_of_one):
            self._cut_off_one(key)
        while self._kept > self._most:
            share = self._most // len(self._by)
            greatest = max((key for key in self._by if self._is_beyond(key, share)), key=self._of, default=None)
            if greatest is None:
                return
            self._cut_off_one(greatest)

    def _of(self, key: str) -> int:
        return self._kept_by.get(key, 0)

    def _is_beyond(self, key: str, most: int) -> bool:
        return self._of(key) > most and len(self._by[key]) > 1

    def _cut_off_one(self, key: str) -> None:
        min(self._by[key], key=lambda waiting: waiting.since()).cut_off(self._why)


class Backlog:
    """What the client of one connection has not read: what its transport keeps, and what waits before that."""

    _in_transport = 0  # bytes
    _waiting = 0
    _large = 0  # bytes of an answer that was handed over
    _counted = 0
    _left = 0  # bytes in the transport when it was looked
    _read_at = 0.0
    _timer: asyncio.TimerHandle | None = None
    _is_over = False

    def __init__(self, unread: Unread, transport: Any, key: str) -> None:
        self.key = key
        self._unread = unread
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        transport.set_write_buffer_limits(FREE, 0)

    def belongs_to(self, key: str) -> None:
        """To another principal from now on."""
        counted, self._counted = self._counted, 0
        self._unread.keep(self, 0)
        self.key, self._counted = key, counted
        self._unread.keep(self, counted)

    def full(self) -> None:
        """The transport has as much as it takes."""
        self._in_transport = max(1, self._large, self._transport.get_write_buffer_size())
        self._changed()

    def drained(self) -> None:
        """All that the transport had is out."""
        self._in_transport = 0
        if self._large:
            self._large = 0
            if not self._is_over:
                self._transport.set_write_buffer_limits(FREE, 0)
        self._moved()

    def wrote(self, size: int) -> None:
        """The transport has so much in one piece, and keeps all of it as long as one byte is not out."""
        if self._is_over or size <= FREE:
            return
        self._large = max(size, self._large)
        if self._in_transport:
            self.full()
            return
        self._transport.set_write_buffer_limits(0, 0)
        if not self._in_transport:
            self.drained()

    def waits(self, more: int) -> None:
        """So many bytes more wait for the transport; less than none when some wait no more."""
        self._waiting = max(0, self._waiting + more)
        if more < 0 and self._counted:
            self._moved()
        else:
            self._changed()

    @contextmanager
    def writing(self, size: int) -> Generator[None]:
        """So much waits until the transport takes it."""
        self.waits(size)
        try:
            yield
            self.wrote(size)
        finally:
            self.waits(-size)

    def close(self) -> None:
        """The connection is over, and nothing waits any more."""
        self._waiting = self._in_transport = 0
        self._changed()
        self._is_over = True

    def cut_off(self, why: str) -> None:
        log.warning("a connection of %s was closed: %s", self.key, why)
        self.close()
        if connection := self._transport.get_extra_info("socket"):  # else the system keeps the rest, and tries on
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._transport.abort()

    def since(self) -> float:
        """When its client was seen to read last."""
        left = self._transport.get_write_buffer_size()
        if left < self._left:
            self._read_at = self._loop.time()
        self._left = left
        return self._read_at

    def _moved(self) -> None:
        self._read_at = self._loop.time()
        self._changed()

    def _changed(self) -> None:
        size = self._in_transport + self._waiting
        size = size if size > FREE else 0
        if size == self._counted or self._is_over:
            return
        if not self._counted:
            self._read_at = self._loop.time()
            self._left = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(LOOK, self._look)
        elif not size and self._timer:
            self._timer.cancel()
        self._counted = size
        self._unread.keep(self, size)

    def _look(self) -> None:
        if self._loop.time() - self.since() >= PATIENCE:
            self.cut_off(f"its client has not read anything for {PATIENCE:g} s")
        else:
            self._timer = self._loop.call_later(LOOK, self._look)
