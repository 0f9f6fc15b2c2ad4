"""A connection of `websockets` that is read a piece at a time: in 256 KiB there are 131,072 empty frames, which take a
second, and pings are answered where they are read.

The rules this file keeps: what comes is taken as `Inflow` says; it is not read while either that or the queue of
messages is full.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, cast

from toolgate.upstreams.inflow import Inflow, Readable

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PIECE = 1024  # bytes that are taken in one go: 512 frames at most, in 4 ms
FAREWELL = 0.02  # seconds in which what has come is taken when the connection is lost


@cache
def paced_connection() -> type[ClientConnection]:
    """The class of such connections. `websockets` is imported for it."""
    from websockets.asyncio.client import ClientConnection

    class PacedConnection(ClientConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            gate = Gate(cast("Readable", transport))
            self._pieces = Side(gate)
            self._inflow = Inflow(super().data_received)
            messages = Side(gate)
            self.recv_messages.pause, self.recv_messages.resume = messages.pause_reading, messages.resume_reading

        def data_received(self, data: bytes) -> None:
            if len(data) <= PIECE and not self._inflow.waiting:
                super().data_received(data)
            else:
                pieces = (data[start : start + PIECE] for start in range(0, len(data), PIECE))
                self._inflow.put(pieces, self._pieces)

        def connection_lost(self, exc: Exception | None) -> None:
            self._inflow.finish(FAREWELL)
            super().connection_lost(exc)

    return PacedConnection


class Gate:
    """A transport that several pause: it is read when none of them does."""

    def __init__(self, transport: Readable) -> None:
        self.transport = transport
        self._holders: set[object] = set()

    def hold(self, holder: object) -> None:
        if not self._holders:
            self.transport.pause_reading()
        self._holders.add(holder)

    def let_go(self, holder: object) -> None:
        if holder in self._holders:
            self._holders.discard(holder)
            if not self._holders:
                self.transport.resume_reading()


class Side:
    """What one of them knows of it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def is_closing(self) -> bool:
        return self._gate.transport.is_closing()

    def pause_reading(self) -> None:
        self._gate.hold(self)

    def resume_reading(self) -> None:
        self._gate.let_go(self)
