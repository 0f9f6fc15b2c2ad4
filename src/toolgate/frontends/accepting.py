"""Connections as they come to a listener, also to one that several processes share.

The rule this file keeps: who has more connections than another of these processes lets that one go first, for a moment.
The kernel wakes them all, and the one that runs would take whatever comes in one go.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from toolgate.core.background import BackgroundTasks

AGAIN = 1.0  # seconds until the next try, where no connection can be accepted
MOMENT = 0.001  # seconds for another process to take it

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

GivesWay: TypeAlias = Callable[[], bool]
"""Whether another process is to take the next connection, if it can."""


async def accepted(listener: socket.socket, gives_way: GivesWay | None) -> tuple[socket.socket, Any]:
    """The next connection and its address. `gives_way`: others accept from this listener, which does not block."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            if not gives_way:
                return await loop.sock_accept(listener)
            await _comes(listener)
            if gives_way():
                await asyncio.sleep(MOMENT)
            found, address = listener.accept()
        except BlockingIOError:  # another has taken it
            continue
        except OSError as error:  # most are of a client that has gone already
            if error.errno in _EXHAUSTED:
                await asyncio.sleep(AGAIN)
            continue
        found.setblocking(False)
        return found, address


async def _comes(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    coming = loop.create_future()
    loop.add_reader(listener, lambda: coming.done() or coming.set_result(None))
    try:
        await coming
    finally:
        loop.remove_reader(listener)


@asynccontextmanager
async def accepting(
    listener: socket.socket, made: Callable[[], asyncio.BaseProtocol], gives_way: GivesWay
) -> AsyncGenerator[None]:
    """Inside the block the protocol of each connection is made. The listener is closed then, here."""
    listener.setblocking(False)
    tasks, loop = BackgroundTasks(), asyncio.get_running_loop()

    async def accept() -> None:
        while True:
            found, _ = await accepted(listener, gives_way)
            tasks.start(connect(found), "connection")

    async def connect(found: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(made, found)
        except OSError:  # the client has gone
            found.close()

    tasks.start(accept(), "accept")
    try:
        yield
    finally:
        await tasks.close()
        listener.close()
