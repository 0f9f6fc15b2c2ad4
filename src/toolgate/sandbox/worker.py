"""A worker: the host's end of a process that can take one run, whichever engine has started it.

The rule this file keeps: what the process writes is taken a piece at a time, in the turns of all who are read from, and
means only what the bridge makes of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import msgspec

from toolgate.core.fault import Fault
from toolgate.core.inflow import Intake, IntakeQueue, Readable
from toolgate.sandbox.bridge import Bridge, Broken, Event, Ready
from toolgate.sandbox.limits import Limits

PIECE = 1024  # bytes of what a worker writes that are taken in one go: about half a millisecond of the shortest lines


class Worker:
    """A process that can take one run. Its engine gives it how it is written to and killed, and tells it what
    comes of it; `pid` is 0 where its memory cannot be watched."""

    def __init__(self, limits: Limits, turns: IntakeQueue) -> None:
        self.pid = 0
        self.engine = ""
        self.whose = ""
        self.gone: Broken | None = None  # why, since it has ended
        self.is_full = False  # what it was written waits in us, not in its pipe
        self.unread = 0  # bytes, while it is full
        self.on_room: Callable[[], None] = nobody
        self.on_event: Callable[[Event], None] = self._before_its_run
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()  # it is reaped
        self._bridge = Bridge(limits)
        self._intake = Intake(self._take, None, PIECE, turns, lambda: self.whose)
        self._later: list[bytes] | None = None  # what is said in a round of the event loop, behind the first of it
        self._write: Callable[[bytes], None] = _nowhere
        self._kill: Callable[[], None] = nobody

    def started(
        self, pid: int, write: Callable[[bytes], None], kill: Callable[[], None], output: Readable | None
    ) -> None:
        """`write` raises `Fault` where it has ended; `kill` is at once."""
        self.pid, self._write, self._kill = pid, write, kill
        self._intake.transport = output

    # What comes of it.

    def wrote(self, data: bytes) -> None:
        self._intake.put(data)

    def full(self) -> None:
        self.is_full = True

    def room(self) -> None:
        self.is_full, self.unread = False, 0
        self.on_room()

    def exited(self, why: Broken) -> None:
        """When what it wrote has been taken, it is gone; `why` counts where it has said nothing of an end itself."""
        self.ended.set()
        self._write, self._kill = _nowhere, nobody  # its process, which would hold it, and it that
        self._intake.finish(lambda: self._over(why))

    def _take(self, piece: bytes) -> None:
        for event in self._bridge.feed(piece):
            self.on_event(event)

    def _over(self, why: Broken) -> None:
        self.gone = self.gone or why
        self._intake.forget()
        if not self.ready.done():
            self.ready.set_exception(Fault("SERVER_FAILED", f"The sandbox did not start: {why.message}"))
            self.ready.exception()  # those who wait hear of it; there may be none
        self.on_event(why)

    def _before_its_run(self, event: Event) -> None:
        if isinstance(event, Ready):
            self.engine = event.engine
            if not self.ready.done():
                self.ready.set_result(None)
        elif not self.gone:
            self.gone = Broken("the sandbox failed: its process spoke before it was asked")
            self.kill()

    # What it is told.

    def write(self, data: bytes) -> None:
        """At once; but what is small and follows in the same round of the event loop goes together, since each piece
        wakes the process."""
        if self._later is None:
            self._later = []
            asyncio.get_running_loop().call_soon(self._write_rest)
        elif len(data) <= PIECE:
            self._later.append(data)
            return
        else:
            self._write_rest()
        self._send(data)

    def _write_rest(self) -> None:
        rest, self._later = self._later, None
        if rest:
            self._send(b"".join(rest))

    def _send(self, data: bytes) -> None:
        if self.is_full:
            self.unread += len(data)
        try:
            self._write(data)
        except Fault:
            pass  # it has ended: that comes as an event

    def kill(self) -> None:
        self._intake.drop()
        self._kill()

    def hold(self, holder: object) -> None:
        """Read nothing more."""
        self._intake.hold(holder)

    def let_go(self, holder: object) -> None:
        self._intake.let_go(holder)

    def resident(self) -> int:
        """Bytes of its memory, 0 where nobody knows."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE if self.pid else 0
        except (OSError, ValueError, IndexError):
            return 0


async def _no_more() -> None:
    """Nothing is shared."""


class Engine(msgspec.Struct, frozen=True):
    """What runs code of one language. `start` has a process started for a worker, and tells it what comes of it. Raises
    `Fault` where it cannot, as where the engine is not installed."""

    language: str
    start: Callable[[Worker], Awaitable[None]]
    problem: Callable[[], str] = lambda: ""  # why it cannot run here, with how to change that
    layers: Callable[[], str] = lambda: ""  # what it is, and what keeps it in, in words
    lacks: Callable[[], str] = lambda: ""  # what it runs without, that would keep it in elsewhere
    close: Callable[[], Awaitable[None]] = _no_more  # ends what all its processes share
    runs_own: bool = True  # the gateway's own programs, which need all of the language


_PAGE = os.sysconf("SC_PAGE_SIZE")


def nobody() -> None:
    """Nobody wants to know."""


def ignored(_event: Event) -> None:
    """It comes after the end."""


def _nowhere(_data: bytes) -> None:
    """It is not started."""
