"""Connections of a listener that several processes share."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from toolgate.frontends import accepting


class Counted(asyncio.Protocol):
    def __init__(self, of: list[asyncio.BaseTransport]) -> None:
        self._of = of

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._of.append(transport)


Held = list[asyncio.BaseTransport]


@asynccontextmanager
async def sharing(*all: Held) -> AsyncGenerator[int]:
    """Several that accept from one listener, as workers do. The port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    port = listener.getsockname()[1]
    tasks: list[asyncio.Task[None]] = []

    async def accept(held: Held) -> None:
        def gives_way() -> bool:
            return len(held) > min(map(len, all))

        async with accepting.accepting(listener.dup(), lambda: Counted(held), gives_way):
            await asyncio.Event().wait()

    with listener:
        tasks = [asyncio.create_task(accept(held)) for held in all]
        try:
            yield port
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for transport in (transport for held in all for transport in held):
                transport.close()


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncGenerator[None]:
    clients = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(count)))
    try:
        yield
    finally:
        for _, writer in clients:
            writer.close()


async def until_there(count: int, *all: Held) -> None:
    async with asyncio.timeout(30):
        while sum(map(len, all)) < count:
            await asyncio.sleep(0.001)


async def test_connections_that_come_at_once_are_shared_evenly() -> None:
    one, other = Held(), Held()
    async with sharing(one, other) as port, connected(port, 64):
        await until_there(64, one, other)
        assert abs(len(one) - len(other)) <= 8


async def test_who_has_more_takes_what_nobody_else_takes() -> None:
    one, gone = Held(), Held()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with (
        accepting.accepting(listener, lambda: Counted(one), lambda: len(one) > len(gone)),
        connected(port, 8),
    ):
        await until_there(8, one)
    for transport in one:
        transport.close()


async def test_one_that_cannot_accept_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "AGAIN", 0.0)
    fails = [errno.EMFILE, errno.ECONNABORTED, errno.EAGAIN]

    class Failing(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if fails:
                raise OSError(fails.pop(), "no")
            return super().accept()

    one = Held()
    listener = Failing()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    async with (
        accepting.accepting(listener, lambda: Counted(one), lambda: False),
        connected(listener.getsockname()[1], 2),
    ):
        await until_there(2, one)
    assert not fails
    for transport in one:
        transport.close()
