"""TLS records are made sense of in turns, as what they carry is; what a handshake takes is for no other side to say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from pathlib import Path
from typing import Any

import certificates
import pytest
from virtualtime import settle

from toolgate.core import encrypted
from toolgate.core.encrypted import EncryptedConnection
from toolgate.core.inflow import READ, IntakeQueue
from toolgate.frontends.tls import Certificate

OTHERS = ("ffdhe2048", "ffdhe8192", "secp521r1", "brainpoolP512r1tls13")
roles = pytest.mark.parametrize("is_server", [False, True])


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


class Peer:
    """The other end, in this process: a client of ours, or a server that we are one of."""

    def __init__(self, folder: Path, is_server: bool) -> None:
        self.wire, self.heard, files = Wire(), Heard(), certificates.make(folder)
        ours, theirs = (certificates.trusting(files[0]), Certificate(*files).context)[:: 1 if is_server else -1]
        if is_server:
            encrypted.bound(ours)
        turns, server = IntakeQueue(0.0), "127.0.0.1" if is_server else ""  # one piece in a round
        self.connection = EncryptedConnection(turns, "theirs", self.heard, ours, 30, server)
        self.shaken: Any = self.connection._waiter
        self.connection.connection_made(self.wire)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = {} if is_server else {"server_hostname": "127.0.0.1"}
        self.tls = theirs.wrap_bio(self.incoming, self.outgoing, server_side=is_server, **name)

    async def shakes_hands(self) -> Peer:
        is_done = False
        async with asyncio.timeout(30):
            while not (is_done and self.shaken.done()):
                self.incoming.write(bytes(self.wire.written))
                self.wire.written.clear()
                with contextlib.suppress(ssl.SSLWantReadError):
                    self.tls.do_handshake()
                    is_done = True
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


@roles
async def test_of_many_small_records_some_are_taken_in_a_round_and_no_more_are_read(
    tmp_path: Path, is_server: bool
) -> None:
    """250 connections that each sent 12,000 of them at once made others wait for 2 s."""
    peer = await Peer(tmp_path, is_server).shakes_hands()
    for _ in range(700):
        peer.tls.write(b"a")
    peer.sends()
    assert peer.wire.is_paused and 0 < peer.heard.bytes < 700
    async with asyncio.timeout(30):
        while peer.heard.bytes < 700:
            await asyncio.sleep(0)
    assert not peer.wire.is_paused
    await peer.leaves()


@roles
async def test_what_came_before_the_end_is_heard_before_it(tmp_path: Path, is_server: bool) -> None:
    peer = await Peer(tmp_path, is_server).shakes_hands()
    for _ in range(700):
        peer.tls.write(b"a")
    peer.sends()
    assert peer.connection.eof_received()
    async with asyncio.timeout(30):
        while not peer.wire.is_over:
            await asyncio.sleep(0)
    assert peer.heard.bytes == 700
    await peer.leaves()


@pytest.mark.parametrize("group", OTHERS)
@roles
async def test_keys_are_not_agreed_upon_by_what_takes_long(tmp_path: Path, is_server: bool, group: str) -> None:
    """A hello of 1.2 KB made a gateway work for 0.12 s, and a server's choice of a group 0.9 s."""
    files = certificates.make(tmp_path)
    ours, theirs = (certificates.trusting(files[0]), Certificate(*files).context)[:: 1 if is_server else -1]
    if is_server:
        encrypted.bound(ours)
    try:
        theirs.set_ecdh_curve(group)
    except (ssl.SSLError, ValueError):
        pytest.skip("this OpenSSL does not have it")
    server, client = (theirs, ours)[:: 1 if is_server else -1]
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(back, there, server_hostname="127.0.0.1")
    answers = server.wrap_bio(there, back, server_side=True)
    with contextlib.suppress(ssl.SSLWantReadError):
        asks.do_handshake()
    with pytest.raises(ssl.SSLError, match=r"(?i)group|share|handshake"):
        answers.do_handshake()


def test_a_server_before_tls_1_3_has_no_say_in_it_either() -> None:
    names = [str(cipher["name"]) for cipher in encrypted.to_servers().get_ciphers()]
    assert names and not [name for name in names if name.startswith("DHE-")]


def test_connections_to_servers_have_one_context_until_other_authorities_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = encrypted.to_servers()
    assert encrypted.to_servers() is before
    authorities = tmp_path / "ca.pem"
    authorities.write_bytes(b"")
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    other = encrypted.to_servers()
    assert other is not before and encrypted.to_servers() is other
    os.utime(authorities, (1, 1))
    assert encrypted.to_servers() is not other
