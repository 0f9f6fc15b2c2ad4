"""A client that sends requests, or frames of a WebSocket, without end and without waiting for answers: a few at a time
are taken, and what comes is not read meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from attack.test_unfinished_messages import MIB, keeps_at_most
from processes.ground import gateway, real, settings
from uvicorn.server import ServerState
from virtualtime import FakeClock, settle

from toolgate.core import bodies
from toolgate.core.bodies import Bodies
from toolgate.core.inflow import IntakeQueue, PacedProtocol
from toolgate.core.model import Principal
from toolgate.frontends import frames, pipes, server
from toolgate.frontends.connections import STATE, Connection
from toolgate.frontends.scheduling import Scheduler
from toolgate.frontends.unread import Unread

MANY = 40_000
PING, NOTHING, BEGIN, END, TEXT = (
    head + b"\x00\x00\x00\x00" + body
    for head, body in (
        (b"\x89\x80", b""),
        (b"\x00\x80", b""),
        (b"\x01\x81", b"{"),
        (b"\x80\x81", b"}"),
        (b"\x81\x82", b"{}"),
    )
)
HANDSHAKE = (
    b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Peer(asyncio.Transport):
    """A client's WebSocket that has shaken hands, and what an application hears of it."""

    def __init__(self, of: Bodies | None = None) -> None:
        super().__init__()
        self.is_paused = False
        self.is_over = False
        self.written = 0
        self.heard: list[str] = []
        self.is_heard = asyncio.Event()
        config = uvicorn.Config(
            self.app, interface="asgi3", proxy_headers=False, log_config=None, ws_per_message_deflate=False
        )
        state = {STATE: Connection(Unread(), self, "192.0.2.1")}
        given: dict[str, Any] = {"config": config, "server_state": ServerState(), "app_state": state}
        self.connection: Any = frames.paced_socket()(bodies=of or Bodies(), turns=IntakeQueue(), **given)

    async def opened(self, *, hears: bool = True) -> Peer:
        self.connection.connection_made(self)
        self.connection.data_received(HANDSHAKE)
        if hears:
            self.is_heard.set()
        await settle()
        self.written = 0
        return self

    async def app(self, _scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        await self.is_heard.wait()
        while (event := await receive())["type"] == "websocket.receive":
            self.heard.append(event["text"])

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def write(self, data: Any) -> None:
        self.written += len(data)

    async def end(self) -> None:
        self.is_heard.set()
        self.connection.connection_lost(None)
        await settle()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1_000_000):  # rounds of the loop, of which slow machines need more
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize("is_fragment", [False, True])
async def test_what_has_come_of_a_message_that_did_not_end_goes_with_its_connection(is_fragment: bool) -> None:
    """114 connections left 900 MB to the collector of garbage, which did not come for a minute."""
    peer = await Peer().opened()
    begun = b"\x01\xff" if is_fragment else b"\x81\xff"
    text = b" " * (1000 if is_fragment else 900)
    peer.connection.data_received(begun + (1000).to_bytes(8, "big") + b"\0\0\0\0" + text)
    await settle()
    buffer = peer.connection.conn.reader.buffer
    kept = peer.connection.frames if is_fragment else [buffer]
    assert sum(map(len, kept)) in (900, 1000)
    await peer.end()
    assert not buffer and not peer.connection.frames


async def test_pings_without_end_are_answered_a_few_at_a_time() -> None:
    peer = await Peer().opened()
    peer.connection.data_received(PING * MANY)
    assert peer.is_paused
    assert 0 < peer.written < MANY
    await until(lambda: not peer.is_paused)
    assert peer.written == 2 * MANY
    await peer.end()


async def test_who_does_not_read_the_answers_to_its_pings_is_not_read() -> None:
    peer = await Peer().opened()
    peer.connection.pause_writing()
    peer.connection.data_received(PING * MANY)
    await settle()
    assert peer.is_paused and not peer.written
    peer.connection.resume_writing()
    await until(lambda: not peer.is_paused)
    assert peer.written == 2 * MANY
    await peer.end()


async def test_messages_that_nobody_hears_yet_are_not_read() -> None:
    peer = await Peer().opened(hears=False)
    peer.connection.data_received(TEXT * MANY)
    await settle()
    assert peer.is_paused
    assert peer.connection.queue.qsize() <= PacedProtocol.piece / len(TEXT) + 1
    peer.is_heard.set()
    await until(lambda: len(peer.heard) == MANY)
    assert not peer.is_paused
    await peer.end()


async def test_a_message_of_frames_without_end_ends_the_connection() -> None:
    peer = await Peer().opened()
    peer.connection.data_received(BEGIN + NOTHING * MANY)
    await until(lambda: peer.is_over)
    assert peer.is_over
    assert not peer.heard
    await peer.end()


async def test_a_message_with_a_flood_in_the_middle_is_heard() -> None:
    peer = await Peer().opened()
    peer.connection.data_received(BEGIN + PING * MANY + NOTHING * 1000 + END)
    await until(lambda: bool(peer.heard))
    assert peer.heard == ["{}"]
    await peer.end()


def part(size: int) -> bytes:
    """A frame of a message that goes on."""
    return b"\x00\xff" + size.to_bytes(8, "big") + b"\x00\x00\x00\x00" + b"x" * size


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole frames", "a frame without end"])
async def test_messages_without_end_are_kept_within_the_budget_of_bodies(
    monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 4 * bodies.FREE)
    budget = Bodies()
    peers = [await Peer(budget).opened() for _ in range(6)]
    for peer in peers:
        more = part(2 * bodies.FREE) if is_whole else part(16 * bodies.FREE)[: 2 * bodies.FREE + 64]
        peer.connection.data_received(BEGIN + more)
        await until(lambda: not peers[0].is_paused)  # which is the oldest
    await until(lambda: [peer.is_paused for peer in peers] == [False, True, True, True, True, True])
    for peer in peers:
        await peer.end()
    assert not budget._kept


async def test_what_waits_for_room_is_heard_when_others_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 2 * bodies.FREE)
    budget = Bodies()
    first, second = await Peer(budget).opened(), await Peer(budget).opened()
    first.connection.data_received(BEGIN + part(2 * bodies.FREE))
    await until(lambda: not first.is_paused)  # and is the oldest
    second.connection.data_received(BEGIN + part(2 * bodies.FREE) + END)
    await settle()
    assert second.is_paused and not second.heard
    first.connection.data_received(END)
    await until(lambda: len(first.heard) == len(second.heard) == 1)
    await until(lambda: not second.is_paused)
    assert not budget._kept
    for peer in (first, second):
        await peer.end()


class Idle(Peer):
    """Its application is the gateway's own ear, with nothing behind it that keeps a message."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def _received(self, data: bytes, is_shallow: bool = False) -> None:
        self.lengths.append(len(data))

    async def _received_large(self, data: bytes, _is_shallow: bool, _take_turn: object) -> None:
        self._received(data)

    async def app(self, _scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        heard = SimpleNamespace(most_values=16 * MIB, received=self._received, received_large=self._received_large)
        pipe: Any = SimpleNamespace(principal=Principal(), conversation=heard)
        clock = FakeClock()
        request: Any = SimpleNamespace(receive=receive)
        await pipes._Socket(request, send, pipe, 16 * MIB, clock, Scheduler(clock)).hear()


@pytest.mark.parametrize("is_in_parts", [False, True])
async def test_nothing_of_a_large_message_of_a_client_is_kept_until_its_next_one_comes(is_in_parts: bool) -> None:
    peer = await Idle().opened()
    with keeps_at_most(MIB // 2):
        if is_in_parts:
            peer.connection.data_received(BEGIN + part(4 * MIB) + END)
        else:
            peer.connection.data_received(b"\x81" + part(4 * MIB)[1:])
        await until(lambda: bool(peer.lengths) and not peer.is_paused)
    assert peer.lengths[0] >= 4 * MIB
    await peer.end()


async def test_a_message_whose_end_does_not_come_ends_the_connection() -> None:
    peer = await Peer().opened()
    peer.connection.data_received(BEGIN + part(2 * bodies.FREE))
    await until(lambda: not peer.is_paused)
    await asyncio.sleep(frames.PATIENCE + 1)
    assert peer.is_over
    await peer.end()


@real
async def test_requests_that_wait_for_no_answer_are_read_a_few_at_a_time_and_all_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting: list[int] = []
    complete = server.HttpProtocol.on_message_complete

    def noted(protocol: Any) -> None:
        waiting.append(len(protocol.pipeline))
        complete(protocol)

    monkeypatch.setattr(server.HttpProtocol, "on_message_complete", noted)
    request = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with gateway(settings()) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request * 3000)
        answered = 0
        while answered < 3000:
            answered += len(re.findall(rb"HTTP/1.1 404", await reader.readuntil(b"HTTP/1.1 404")))
        assert max(waiting) <= server.MOST_PIPELINED + server.PIECE // len(request) + 1
        writer.close()
