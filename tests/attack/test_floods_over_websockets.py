"""A server behind a WebSocket that sends frames of nothing, or pings, without end: each is taken, a few at a time, and
what comes is not read meanwhile."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
from attack.test_unfinished_messages import keeps_at_most
from packaging.requirements import Requirement
from virtualtime import FakeClock
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.uri import parse_uri

from toolgate.config import Server
from toolgate.core import bodies
from toolgate.core.bodies import Bodies
from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams.links.base import LONGEST_MESSAGE, Receiver
from toolgate.upstreams.links.paced import paced_connection
from toolgate.upstreams.links.ws import WsLink

MANY = 100_000
PING, NOTHING, TEXT = b"\x89\x00", b"\x00\x00", b"\x81\x02{}"


class Peer(asyncio.Transport):
    """A connection that has shaken hands, as what it is read from and written to."""

    def __init__(self, turns: IntakeQueue | None = None, server: str = "there", begun: Bodies | None = None) -> None:
        super().__init__()
        self.is_paused = self.is_aborted = False
        self.written = 0
        protocol = ClientProtocol(parse_uri("ws://127.0.0.1/mcp"), max_size=LONGEST_MESSAGE)
        self.connection: Any = paced_connection()(turns or IntakeQueue(), begun or Bodies(), server, protocol)
        self.connection.connection_made(self)
        asked = protocol.connect()
        protocol.send_request(asked)
        key = asked.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accepted = base64.b64encode(hashlib.sha1(key.encode()).digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.connection.data_received(head + b"Sec-WebSocket-Accept: " + accepted + b"\r\n\r\n")
        self.written = 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        self.written += len(cast(bytes, data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    async def taken(self) -> int:
        """FairLimit of the event loop until all is."""
        turns = 0
        while self.is_paused:
            await asyncio.sleep(0)
            turns += 1
        return turns


async def test_pings_without_end_are_answered_a_few_at_a_time() -> None:
    peer = Peer()
    peer.connection.data_received(PING * MANY)
    assert peer.is_paused
    assert 0 < peer.written < MANY
    assert await peer.taken() > 10
    assert peer.written == 6 * MANY  # a pong is masked


async def test_a_message_with_a_flood_in_the_middle_is_read() -> None:
    peer = Peer()
    peer.connection.data_received(b"\x01\x01{" + NOTHING + PING * MANY + b"\x80\x01}")
    reading = asyncio.ensure_future(peer.connection.recv(decode=False))
    assert peer.is_paused
    assert await reading == b"{}"
    assert not peer.is_paused


async def test_messages_that_nobody_takes_are_not_read_however_long_others_wait() -> None:
    peer = Peer()
    peer.connection.data_received(TEXT * 1000)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert peer.is_paused
    for _ in range(1000):
        assert await peer.connection.recv(decode=False) == b"{}"
    assert not peer.is_paused


@pytest.mark.parametrize("frame", [NOTHING, b"\x00\x01x"], ids=["nothing", "a byte"])
async def test_a_message_of_frames_without_end_is_not_kept(frame: bytes) -> None:
    peer = Peer()
    peer.connection.data_received(b"\x01\x01{" + frame * MANY)
    reading = asyncio.ensure_future(peer.connection.recv(decode=False))
    for _ in range(20_000):
        await asyncio.sleep(0)
    assert 0 < peer.written < 100 and peer.is_paused, "it is closed, with a reason, and not read any more"
    reading.cancel()


MIB = 1024 * 1024
LARGE = b'"%b"' % (b"x" * 4 * MIB)


def framed(head: int, payload: bytes) -> bytes:
    return bytes((head, 127)) + len(payload).to_bytes(8, "big") + payload


@pytest.mark.parametrize("is_in_parts", [False, True])
@pytest.mark.parametrize("is_read_aside", [False, True])
async def test_nothing_of_a_large_message_is_kept_until_the_next_one_comes(
    is_read_aside: bool, is_in_parts: bool
) -> None:
    taken: list[int] = []

    def received(message: bytes, origin: int | None) -> asyncio.Future[None] | None:
        taken.append(len(message))
        aside = asyncio.get_running_loop().create_future()
        aside.set_result(None)
        return aside if is_read_aside else None

    told = Receiver("", lambda id: "", received, lambda id: True, *(cast(Any, lambda *_: None),) * 3)
    server = Server(id="there", name="there", type="ws", url="ws://there.test/mcp")
    link = WsLink(server, told, FakeClock(), cast(Any, None), IntakeQueue())
    peer = Peer()
    reading = asyncio.ensure_future(link._read(peer.connection))
    with keeps_at_most(MIB // 2):
        half = len(LARGE) // 2
        parts = (framed(1, LARGE[:half]), framed(0x80, LARGE[half:])) if is_in_parts else (framed(0x81, LARGE),)
        for part in parts:
            peer.connection.data_received(part)
        del part, parts
        while not taken:
            await asyncio.sleep(0)
        await asyncio.wait((reading,), timeout=0)
    assert taken == [len(LARGE)]
    reading.cancel()


def test_no_websockets_is_used_that_keeps_the_frames_of_such_a_message() -> None:
    """`websockets` has bounded them since 17.4."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    [allowed] = [each.specifier for each in map(Requirement, project["dependencies"]) if each.name == "websockets"]
    assert not list(allowed.filter(["15.0", "15.0.1", "16.0", "16.1.1", "17.0.1", "17.3"]))


@pytest.mark.parametrize("count", [1, MANY])
async def test_what_came_before_a_connection_broke_is_still_read(count: int) -> None:
    peer = Peer()
    peer.connection.data_received(TEXT + PING * count)
    peer.connection.connection_lost(None)
    assert await peer.connection.recv(decode=False) == b"{}"


async def test_messages_that_many_connections_of_a_server_begin_and_do_not_end_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 1000 * 1024)
    begun, turns = Bodies(), IntakeQueue()
    peers = [Peer(turns, begun=begun) for _ in range(6)]

    def kept(peer: Peer) -> int:
        protocol = peer.connection.protocol
        return len(protocol.reader.buffer) + (protocol.current_size or 0)

    # Half of them by one long frame, half of them by fragments.
    reading = [asyncio.ensure_future(peer.connection.recv(decode=False)) for peer in peers]
    for peer in peers:
        long = b"\x81\x7f" + (8 * MIB).to_bytes(8, "big")
        peer.connection.data_received(long if peer in peers[::2] else framed(1, b"x"))
    for _ in range(50):
        for peer in peers:
            piece = b"x" * 64 * 1024
            peer.connection.data_received(piece if peer in peers[::2] else framed(0, piece))
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        while max(map(kept, peers)) < 50 * 64 * 1024:  # the oldest is read on
            await asyncio.sleep(0)
    assert sum(sorted(map(kept, peers))[:-1]) < 1000 * 1024 + 6 * 128 * 1024
    for peer in peers:
        peer.connection.connection_lost(None)
    async with asyncio.timeout(30):
        while begun._kept:
            await asyncio.sleep(0)
        await asyncio.wait(reading)
    for read in reading:
        assert isinstance(read.exception(), ConnectionClosed)
