"""What a worker and the owner tell each other: messages of one kind each, over a pair of sockets that only these two
have.

The rule this file keeps: nobody waits for the other side. What it does not take now is sent when it does; and that it
is gone is told once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["connection", "ready", "usage", "lists", "watched", "configuration", "admitted"]
KINDS: tuple[Kind, ...] = ("connection", "ready", "usage", "lists", "watched", "configuration", "admitted")

LONGEST = 64 * 1024  # bytes of a message
SOON = 0.05  # seconds
_PASSING = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)  # what the kernel lacks until others have let go of it
_AT_ONCE = 64  # messages that are taken in one go

Take: TypeAlias = Callable[[Kind, bytes, Iterable[socket.socket]], object]


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """Whose connection a worker passes on, and where it came in. `number` is that of the worker's link."""

    client: tuple[str, int]
    server: tuple[str, int]
    is_secure: bool = False
    number: int = 0

    @property
    def scheme(self) -> str:
        return "https" if self.is_secure else "http"


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of one. It keeps messages apart, which Linux alone does."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Channel:
    """One end. `take` gets what comes, with the sockets that came with it; `ended` is told that the other end is
    gone."""

    def __init__(self, end: socket.socket, take: Take, ended: Callable[[], object]) -> None:
        end.setblocking(False)
        self._end = end
        self._take = take
        self._ended = ended
        self._unsent: deque[tuple[bytes, socket.socket | None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end.fileno(), self._read)
        self._is_open = True

    def send(self, kind: Kind, data: bytes = b"", passed: socket.socket | None = None) -> None:
        """At most `LONGEST` bytes. The socket that is `passed` is the other side's from then on."""
        assert len(data) < LONGEST
        if not self._is_open:
            if passed:
                passed.close()
            return
        self._unsent.append((bytes((KINDS.index(kind),)) + data, passed))
        if len(self._unsent) == 1:
            self._send_on()

    def _send_on(self) -> None:
        """As much as there is room for."""
        if not self._is_open:
            return
        self._loop.remove_writer(self._end.fileno())
        try:
            while self._unsent:
                message, passed = self._unsent[0]
                socket.send_fds(self._end, [message], [passed.fileno()] if passed else [])
                self._unsent.popleft()
                if passed:
                    passed.close()
        except BlockingIOError:
            self._loop.add_writer(self._end.fileno(), self._send_on)
        except OSError as error:
            if error.errno in _PASSING:
                self._loop.call_later(SOON, self._send_on)
            else:
                self._close_and_tell()

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._is_open:
                return
            try:
                message, passed = _received(self._end)
            except BlockingIOError:
                return
            except OSError:
                message, passed = b"", []
            if not message:
                self._close_and_tell()
                return
            self._take(KINDS[message[0]], message[1:], passed)

    def _close_and_tell(self) -> None:
        self.close()
        self._ended()

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._end.fileno())
        self._loop.remove_writer(self._end.fileno())
        for _, passed in self._unsent:
            if passed:
                passed.close()
        self._unsent.clear()
        self._end.close()


def _received(end: socket.socket) -> tuple[bytes, list[socket.socket]]:
    """A message and the sockets that came with it, which no program is to inherit: `socket.recv_fds` cannot say so, and
    a copy in another process keeps a connection open that both ends have closed."""
    files = array("i")
    message, more, _, _ = end.recvmsg(LONGEST, socket.CMSG_LEN(files.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in more:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return message, [socket.socket(fileno=file) for file in files]


def of_file(number: int) -> socket.socket:
    """An inherited socket, which no program is to inherit further."""
    os.set_inheritable(number, False)
    with contextlib.suppress(ValueError):
        return socket.socket(fileno=number)
    raise OSError(f"file descriptor {number} is no socket")
