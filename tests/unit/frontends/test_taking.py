"""A worker's connection with a client, and the owner's answers that go over it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from toolgate.app import running
from toolgate.config import Config
from toolgate.frontends.server import bind, serving
from toolgate.frontends.unread import FREE
from toolgate.frontends.workers import taking
from toolgate.frontends.workers.channel import Channel
from toolgate.frontends.workers.taking import TakingProtocol, Worker

ASKS = b"POST /x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n"
LARGE = 8 * 1024 * 1024


class Owner:
    """Answers each request with the next size, and says how much of it was taken."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.asked = 0
        self.tasks: list[asyncio.Task[None]] = []

    def send(self, _kind: str, _data: bytes, passed: socket.socket) -> None:
        passed.setblocking(False)
        self.tasks.append(asyncio.get_running_loop().create_task(self._serve(passed)))

    async def _serve(self, end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with end:
            while came := await loop.sock_recv(end, 65536):
                for _ in range(came.count(b"POST ")):
                    self.asked += 1
                    size = self.sizes.pop(0)
                    await loop.sock_sendall(end, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)


class Deaf(Owner):
    """Takes connections, and nothing that comes over them."""

    def send(self, _kind: str, _data: bytes, passed: socket.socket) -> None:
        self.passed = passed


@asynccontextmanager
async def worker_of(owner: Owner) -> AsyncGenerator[tuple[socket.socket, list[TakingProtocol]]]:
    """A client's end of a connection with it, and what the worker has of it."""
    made = list[TakingProtocol]()

    class Seen(TakingProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.append(self)

    worker = Worker(cast(Channel, owner), lambda *_: None)
    listener, loop = bind("127.0.0.1", 0), asyncio.get_running_loop()
    async with (
        running(Config(), environ={}) as app,
        serving(app.http, listener, None, partial(Seen, worker=worker), lambda: False),
    ):
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", listener.getsockname()[1]))
            yield client, made
        for each in owner.tasks:
            each.cancel()
        await asyncio.gather(*owner.tasks, return_exceptions=True)


@pytest.mark.parametrize("begins", [b"", b"POST /x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999\r\n\r\n"])
async def test_of_what_the_owner_does_not_take_no_more_is_read_from_a_client(begins: bytes) -> None:
    owner = Deaf()
    async with worker_of(owner) as (client, made):
        loop = asyncio.get_running_loop()
        sends = asyncio.ensure_future(loop.sock_sendall(client, begins + ASKS * (64 * 1024 * 1024 // len(ASKS))))
        async with asyncio.timeout(30):
            while not (made and made[0]._link and made[0]._link._transport):
                await asyncio.sleep(0.001)
        for _ in range(300):  # rounds in which more of it could come
            await asyncio.sleep(0.001)
        link = made[0]._link
        assert link and link._transport and link._transport.get_write_buffer_size() < 1024 * 1024
        assert not sends.done()
        sends.cancel()
        await asyncio.gather(sends, return_exceptions=True)
        owner.passed.close()


async def test_a_client_that_does_not_read_has_nothing_more_kept_for_it_over_another_link_to_the_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking, "STALE", -1.0)  # each link is, that rests
    owner, loop = Owner(), asyncio.get_running_loop()
    async with worker_of(owner) as (client, made):

        async def ask(size: int) -> None:
            before = owner.asked
            owner.sizes.append(size)
            await loop.sock_sendall(client, ASKS)
            async with asyncio.timeout(30):
                while owner.asked == before:
                    await asyncio.sleep(0.001)

        async with asyncio.timeout(30):
            while not made or not made[0].flow.write_paused:
                await ask(120_000)
        await ask(LARGE)
        transport = made[0]._intake.transport
        for _ in range(200):  # rounds in which more of it could come
            await asyncio.sleep(0.001)
        assert transport.get_write_buffer_size() < 4 * FREE
