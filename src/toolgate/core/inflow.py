"""What comes on a connection, taken a piece at a time, so that whoever sends without end keeps nobody else waiting.

The rules this file keeps: in a round of the event loop large reads are taken for a moment, however many connections and
reads of one connection bring them, and so are small ones, which need no turn; those whose turn has not come wait, and
nothing more is read from them; whoever has many of them has no more turns than who has one; their order stays. Nothing
is taken either while anybody holds the intake.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from toolgate.core.fairness import RoundRobin
from toolgate.core.outflow import SHORT, Outflow

MOMENT = 0.002  # seconds of a round
SLICE = MOMENT / 4  # seconds of one connection, where others wait
READ = 16 * 1024  # bytes that are read of a client's connection at a time: who must wait has so much here, each time


class Readable(Protocol):
    """A transport, as far as it is read from."""

    def is_closing(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class IntakeQueue:
    """The connections that take turns in a round, for so many seconds of it."""

    def __init__(self, moment: float | None = None) -> None:
        self._moment = MOMENT if moment is None else moment
        self._queue: RoundRobin[Intake] = RoundRobin()
        self._is_over = False  # the moment of this round
        self.left = self._moment  # seconds for what is small, until they are spent
        self.outflow = Outflow()  # of what they are written in a round

    def ask(self, intake: Intake) -> None:
        """A turn for one that does not wait for one yet."""
        if self._is_over:
            self._queue.put(intake.whose(), intake)
            return
        self._end()
        self._give(intake, self._moment)

    def spent(self) -> None:
        """What is small had all its time: until the next round it goes by turns as well."""
        asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self.left = self._moment

    def _give(self, intake: Intake, seconds: float) -> None:
        try:
            intake.take_for(seconds)
        finally:
            if intake.is_due:
                self._queue.put(intake.whose(), intake)

    def _end(self) -> None:
        self._is_over = True
        asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._is_over = False
        if not self._queue.size:
            return
        self._end()
        until = perf_counter() + self._moment
        while intake := self._queue.pop():
            self._give(intake, min(SLICE, self._moment))
            if perf_counter() > until:
                break


_NO_HOLDERS: frozenset[object] = frozenset()


class Intake:
    """`take` gets each piece, of at most `piece` bytes, and may hold the intake. `transport` is not read from while
    anything waits; it may be told later, when there is one. `turns` are those of all who are to share a moment, and
    `whose` says by whom they go. `is_one`: what is longer than a piece is no more work than one that is not."""

    sees_end = False  # it is read from once more while it is held, so that its end is noticed

    def __init__(
        self,
        take: Callable[[bytes], object],
        transport: Readable | None,
        piece: int,
        turns: IntakeQueue,
        whose: Callable[[], str],
        is_one: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.transport = transport
        self._is_one = is_one
        self.whose = whose
        self._turns = turns
        self._take = take
        self._piece = piece
        self._then: Callable[[], object] | None = None  # when all is taken, for nothing more comes
        self._waiting: deque[bytes] | tuple[()] = ()  # of what is empty an idle connection has no place to keep
        self._holders = _NO_HOLDERS
        self._is_taking = False
        self.is_due = False  # its turn comes
        self.is_busy = False  # what comes has to wait
        self._is_paused = False

    def put(self, data: bytes) -> None:
        """These bytes, in pieces."""
        turns, take = self._turns, self._take
        is_small = len(data) <= self._piece or (self._is_one is not None and self._is_one(data))
        if is_small and not self.is_busy and turns.left > 0:
            began = perf_counter()
            take(data)
            turns.left = left = turns.left - (perf_counter() - began)
            if left <= 0:
                turns.spent()
        else:
            self.wait(data)

    def wait(self, data: bytes) -> None:
        """The same, of which nothing is taken just now."""
        self._waiting = self._waiting or deque()
        self._waiting.extend(data[start : start + self._piece] for start in range(0, len(data), self._piece))
        self._go_on()

    def hold(self, holder: object) -> None:
        if not self._then:
            self._holders |= {holder}
            self._pause()

    def let_go(self, holder: object) -> None:
        if holder in self._holders:
            self._holders = self._holders - {holder} or _NO_HOLDERS
            self._go_on()

    def hold_until(self, done: asyncio.Future[None]) -> None:
        """Of what is being done with what came."""
        self.hold(done)
        done.add_done_callback(self.let_go)

    def free(self) -> None:
        """Those who hold it mind only what has come already."""
        self._holders = _NO_HOLDERS
        self._go_on()

    def finish(self, then: Callable[[], object]) -> None:
        """Nothing more comes: take what is left, in its turns and whoever holds it; `then` is called when all is taken
        or dropped."""
        self._then = then
        self._holders = _NO_HOLDERS
        self._go_on()
        self._end()

    def drop(self) -> None:
        self._waiting, self._holders = (), _NO_HOLDERS
        self._pause()

    def forget(self) -> None:
        """Who takes what comes is not to be held any more: nothing does."""
        self._take, self._is_one, self.whose, self.transport = _nobody, None, _nobodys, None

    def _go_on(self) -> None:
        if not self._is_taking and not self.is_due and self._waiting and not self._holders:
            self.is_due = True
            self._turns.ask(self)
        self._pause()

    def take_for(self, seconds: float) -> None:
        """Its turn. Then it is due where it needs another."""
        self._is_taking = True
        until = perf_counter() + seconds
        try:
            while self._waiting and not self._holders:
                self._take(self._waiting.popleft())
                if perf_counter() > until:
                    break
        finally:
            self._is_taking = False
            self._waiting = self._waiting or ()
            self.is_due = bool(self._waiting and not self._holders)
            self._pause()
            self._end()

    def _end(self) -> None:
        if self._then and not self._waiting and not self._is_taking:
            then, self._then = self._then, None
            then()

    def _pause(self) -> None:
        self.is_busy = bool(self._waiting or self._holders)
        is_paused = bool(self._waiting) if self.sees_end else self.is_busy
        if self.transport and is_paused != self._is_paused:
            self._is_paused = is_paused
            if not self.transport.is_closing():
                (self.transport.pause_reading if is_paused else self.transport.resume_reading)()


def _nobody(_piece: bytes) -> None:
    """Nobody takes anything any more."""


def _nobodys() -> str:
    return ""


class SharedTransport:
    """A transport whose reading others pause too, by holding its intake. What each request needs is no look further."""

    def __init__(self, transport: Any, intake: Intake, outflow: Outflow) -> None:
        self._transport = transport
        self._intake = intake
        self._outflow = outflow
        self._unsent = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write_soon(self, data: bytes) -> None:
        """In this round, with what others are written."""
        if self._unsent or len(data) > SHORT:
            self.write(data)
        else:
            self._unsent = data
            self._outflow.put(self)

    def flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        if unsent and not self.is_closing():
            self._transport.write(unsent)

    def write(self, data: bytes) -> None:
        if self._unsent:
            self.flush()
        self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def pause_reading(self) -> None:
        self._intake.hold(self)

    def resume_reading(self) -> None:
        self._intake.let_go(self)


READ_INTO = memoryview(bytearray(READ))  # of all connections: what was read is taken out at once


class LittleReads(asyncio.BufferedProtocol):
    """A protocol whose transport is read from little at a time. Event loops read up to 256 KiB, and nothing of that is
    given back to the system where it cannot be taken: with thousands of connections that is too much to keep."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._put = protocol.data_received
        self.connection_made = protocol.connection_made
        self.connection_lost = protocol.connection_lost
        self.eof_received = protocol.eof_received
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing

    def get_buffer(self, sizehint: int) -> memoryview:
        return READ_INTO

    def buffer_updated(self, nbytes: int) -> None:
        self._put(bytes(READ_INTO[:nbytes]))


class PacedProtocol(asyncio.Protocol):
    """A protocol's reading goes by an intake, which is held while its peer does not read what it is sent. Made for a
    class to be named before the protocol's own."""

    piece = 1024  # bytes that are taken in one go
    turns: IntakeQueue  # see Intake

    def whose(self) -> str:
        return ""

    def connection_made(self, transport: Any) -> None:
        self.intake = Intake(self.take, transport, self.piece, self.turns, self.whose)
        super().connection_made(SharedTransport(transport, self.intake, self.turns.outflow))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.intake.put(data)

    def take(self, piece: bytes) -> None:
        super().data_received(piece)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.intake.hold(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.intake.let_go(self)
