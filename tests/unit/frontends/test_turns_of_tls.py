"""TLS records are made sense of in turns, as what they carry is."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import certificates
from virtualtime import settle

from toolgate.core.inflow import READ, IntakeQueue
from toolgate.frontends import tls
from toolgate.frontends.tls import Certificate


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_paused = self.is_over = False
        self.written = bytearray()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    abort = close

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0


class Heard(asyncio.Protocol):
    bytes = 0

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)


class Client:
    """The other end, in this process."""

    def __init__(self, folder: Path) -> None:
        self.wire, self.heard, files = Wire(), Heard(), certificates.make(folder)
        loop = asyncio.get_running_loop()
        self.shaken = loop.create_future()
        context = Certificate(*files).context
        turns = IntakeQueue(0.0)  # one piece in a round
        self.connection = tls.EncryptedConnection(
            turns, "hers", loop, self.heard, context, self.shaken, server_side=True
        )
        self.connection.connection_made(self.wire)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = certificates.trusting(files[0]).wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    async def shakes_hands(self) -> Client:
        async with asyncio.timeout(30):
            while not self.shaken.done():
                self.incoming.write(bytes(self.wire.written))
                self.wire.written.clear()
                with contextlib.suppress(ssl.SSLWantReadError):
                    self.tls.do_handshake()
                self.sends()
                await settle()
        return self

    def sends(self) -> None:
        said = self.outgoing.read()
        for start in range(0, len(said), READ):
            piece = said[start : start + READ]
            self.connection.get_buffer(-1)[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))

    async def leaves(self) -> None:
        self.connection.connection_lost(None)
        await settle()


async def test_of_many_small_records_some_are_taken_in_a_round_and_no_more_are_read_meanwhile(tmp_path: Path) -> None:
    """250 connections that each sent 12,000 of them at once made others wait for 2 s."""
    client = await Client(tmp_path).shakes_hands()
    for _ in range(700):
        client.tls.write(b"a")
    client.sends()
    assert client.wire.is_paused and 0 < client.heard.bytes < 700
    async with asyncio.timeout(30):
        while client.heard.bytes < 700:
            await asyncio.sleep(0)
    assert not client.wire.is_paused
    await client.leaves()


async def test_what_came_before_the_end_is_heard_before_it(tmp_path: Path) -> None:
    client = await Client(tmp_path).shakes_hands()
    for _ in range(700):
        client.tls.write(b"a")
    client.sends()
    assert client.connection.eof_received()
    async with asyncio.timeout(30):
        while not client.wire.is_over:
            await asyncio.sleep(0)
    assert client.heard.bytes == 700
    await client.leaves()
