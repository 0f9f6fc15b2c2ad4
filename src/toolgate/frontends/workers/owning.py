"""The owner's connections: each is one end of a pair of sockets, whose other end a worker joins to its client's.

The rule this file keeps: to all that stands behind it, such a connection is its client's own. Its worker is told who is
let in on it: there, too, strangers are to give way to those.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from toolgate.core.background import BackgroundTasks
from toolgate.frontends.application import Application
from toolgate.frontends.server import HttpProtocol, making
from toolgate.frontends.workers.channel import Peer


class PassedProtocol(HttpProtocol):
    def __init__(self, application: Application, *, passed_by: Peer, tell: Tell, **given: Any) -> None:
        super().__init__(application, **given)
        self._passed_by = passed_by
        self._tell = tell

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        tell, number = self._tell, self._passed_by.number
        self._connection.on_admitted = lambda principal: tell(msgspec.json.encode((number, principal)))

    def peer(self, transport: asyncio.Transport) -> tuple[str, int]:
        self.server, self.scheme = self._passed_by.server, self._passed_by.scheme  # type: ignore[assignment]
        return self._passed_by.client


Tell = Callable[[bytes], object]
Accept = Callable[[bytes, Iterable[socket.socket], Tell], None]


@asynccontextmanager
async def accepting(application: Application) -> AsyncGenerator[Accept]:
    """Inside the block what this yields takes a connection that a worker passes on: its `Peer` as JSON, its socket, and
    what tells the worker who is let in on it."""
    async with making(application, PassedProtocol, []) as made:
        tasks = BackgroundTasks()

        def accept(told: bytes, passed: Iterable[socket.socket], tell: Tell) -> None:
            make = partial(made, passed_by=msgspec.json.decode(told, type=Peer), tell=tell)
            for each in passed:
                each.setblocking(False)
                tasks.start(_accept(make, each), "connection")

        try:
            yield accept
        finally:
            await tasks.close()


async def _accept(made: Callable[[], asyncio.BaseProtocol], passed: socket.socket) -> None:
    await asyncio.get_running_loop().connect_accepted_socket(made, passed)
