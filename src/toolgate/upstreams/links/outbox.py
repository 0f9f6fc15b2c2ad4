"""Writing to a server where all that its clients send goes through one pipe.

The rules this file keeps: the pipe gets the next message when it has room again, so that hardly more than one is in it;
principals that wait for that take turns; what waits longer than a call may take, or for nobody any more, is never
written, and that a pipe is full is no failure of its server: others may have filled it.
"""

from __future__ import annotations

from collections.abc import Callable

from toolgate.config import Server
from toolgate.core.clock import Clock
from toolgate.core.concurrency import FairLimit
from toolgate.upstreams.concurrency import busy
from toolgate.upstreams.links.base import Receiver


class Outbox(FairLimit):
    """`write` puts a message into the pipe, whose link says by `full` and `go_on` whether there is room."""

    def __init__(self, server: Server, clock: Clock, receiver: Receiver, write: Callable[[bytes], None]) -> None:
        super().__init__(1)
        self._server = server
        self._clock = clock
        self._receiver = receiver
        self._write = write
        self._is_full = False
        self._is_over = False

    async def send(self, data: bytes, origin: int | None) -> None:
        """Return when it is in the pipe; `origin` is its id where it is a request. Raises what `write` raises, and
        `Fault` TIMEOUT, not sent."""
        if not self.send_now(data):
            await self._waited(origin)
            self._put(data)

    def send_now(self, data: bytes) -> bool:
        """Put it into the pipe, if there is room; whether it is there. Raises what `write` raises."""
        if not self.take_now():
            return False
        self._put(data)
        return True

    def _put(self, data: bytes) -> None:
        try:
            self._write(data)
        finally:
            self.give_back()

    async def _waited(self, origin: int | None) -> None:
        try:
            async with self._clock.timeout(self._server.timeout):
                await self.turn(self._receiver.whose(origin))
        except TimeoutError:
            raise busy(self._server.name) from None
        if origin is not None and not self._is_over and not self._receiver.awaits(origin):
            self.give_back()
            raise busy(self._server.name)

    def full(self) -> None:
        """Told by what writes, whenever it finds that: there is no room for another one. That takes a turn itself."""
        if not self._is_full:
            self._is_full = True
            self._took("")

    def go_on(self) -> None:
        """There is room."""
        if self._is_full:
            self._is_full = False
            self.give_back()

    def end(self) -> None:
        """Nothing can be written any more: each that waits hears so from `write`."""
        self._is_over = True
        self.go_on()
