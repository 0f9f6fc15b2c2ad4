"""Pages of a browser, forged hosts, and connections that give nothing and keep everything."""

from __future__ import annotations

import asyncio
import json

import pytest
import websockets
from inmemory import Visitor, gateway
from processes.ground import gateway as real_gateway
from processes.ground import real, settings
from virtualtime import settle
from wires import Wire, modern

from toolgate.config import Config
from toolgate.config.access import KnownClient
from toolgate.core.model import Principal
from toolgate.frontends import connections, server

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
BODY = json.dumps(PING).encode()


@pytest.mark.promise("b.attacks.pages")
async def test_two_hosts_are_one_too_many() -> None:
    async with gateway() as app:
        assert (await Visitor(app).post(PING, twice="host")).status == 400


@pytest.mark.promise("b.attacks.pages")
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Origin: http://localhost", "Origin: http://localhost"), 200),  # some clients say the same twice
        (("Origin: http://localhost", "Origin: http://evil.example"), 400),
        (("Origin: http://evil.example", "Origin: http://localhost"), 400),
        (("Content-Type: application/json",), 200),
        (("Content-Type: text/plain",), 400),
    ],
)
async def test_what_decides_whether_a_request_is_let_in_has_one_value(lines: tuple[str, ...], status: int) -> None:
    async with gateway() as app:
        assert (await Wire(app).ask(modern(1, "server/discover", {}, *lines))).status == status


@pytest.mark.promise("b.attacks.pages")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1?.evil",
        "evil@127.0.0.1",
        "127.0.0.1#.evil",
        "127.0.0.1/.evil",
        "127.0.0.1\\.evil",
        "evil:x@localhost:80",
        "localhost:80:80",
        "localhost:evil",
        "[::1].evil",
        "[::1]evil:80",
        "localhost, evil",
    ],
)
async def test_a_host_that_readers_take_for_different_ones_is_refused(host: str) -> None:
    async with gateway() as app:
        assert (await Visitor(app, host=host).post(PING)).status == 403


@pytest.mark.promise("b.attacks.pages")
@pytest.mark.parametrize(
    "origin",
    [
        "chrome-extension://localhost",
        "moz-extension://127.0.0.1",
        "file://localhost",
        "http://a@localhost",
        "localhost",
    ],
)
async def test_what_only_has_the_name_of_this_machine_is_foreign(origin: str) -> None:
    async with gateway() as app:
        assert (await Visitor(app, origin=origin).post(PING)).status == 403


@pytest.mark.promise("b.attacks.pages")
@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain;application/json"],
)
async def test_an_open_gateway_takes_nothing_that_a_page_may_send_unasked(kind: str | None) -> None:
    async with gateway() as app:
        assert (await Visitor(app).post(PING, headers={"content-type": kind})).status == 415
        for json_type in ("application/json", "Application/JSON; charset=utf-8"):
            assert (await Visitor(app).post(PING, headers={"content-type": json_type})).status == 200


async def test_a_gateway_with_clients_goes_by_their_keys() -> None:
    async def who(*_: object) -> Principal:
        return Principal("ann", client="ann")

    config = Config(clients=(KnownClient(id="ann", name="ann"),))
    async with gateway(config=config, identify=who) as app:
        assert (await Visitor(app).post(PING, headers={"content-type": "text/plain"})).status == 200


async def _answer(port: int, head: str, body: bytes = b"") -> bytes:
    """All that comes until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    try:
        return await reader.read()
    finally:
        writer.close()


HEAD = "Content-Type: application/json\nAccept: application/json\nConnection: close\nContent-Length: "


@pytest.mark.promise("b.attacks.pages")
@pytest.mark.parametrize(
    "target", ["http://evil.example", "http://evil@localhost", "https://127.0.0.1.evil.example:80"]
)
@real
async def test_the_host_of_an_absolute_target_counts(target: str) -> None:
    async with real_gateway(settings()) as served:
        head = f"POST {target}/mcp HTTP/1.1\nHost: localhost\n{HEAD}{len(BODY)}"
        assert b" 403 " in (await _answer(served.port, head, BODY)).split(b"\n")[0]
        good = f"POST http://localhost/mcp HTTP/1.1\nHost: evil.example\n{HEAD}{len(BODY)}"
        assert b" 200 " in (await _answer(served.port, good, BODY)).split(b"\n")[0]


@pytest.mark.promise("b.attacks.connections")
@pytest.mark.parametrize("path", ["/mcp", "/nowhere"])
@real
async def test_a_body_that_does_not_come_ends_its_connection(path: str) -> None:
    """Of an accepted request, and of one that was refused before its body was read."""
    before = server.BODY_PATIENCE, server.UNREAD_PATIENCE
    server.BODY_PATIENCE, server.UNREAD_PATIENCE = 0.2, 0.05
    try:
        async with real_gateway(settings()) as served, asyncio.timeout(30):
            head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: 1000"
            answer = await _answer(served.port, head, b"{")
            assert (b" 404 " in answer) == (path == "/nowhere")
    finally:
        server.BODY_PATIENCE, server.UNREAD_PATIENCE = before


@pytest.mark.promise("b.attacks.connections")
@real
async def test_a_websocket_that_ended_takes_no_share_and_one_that_lives_has_no_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "most_files", lambda: 4)
    monkeypatch.setattr(server, "BODY_PATIENCE", 0.05)
    async with real_gateway(settings()) as served, asyncio.timeout(30), _connected(served.port) as kept:
        for _ in range(5):
            async with _connected(served.port) as socket:
                await _ping(socket)
        await _ping(kept)


def _connected(port: int) -> websockets.connect:
    return websockets.connect(f"ws://127.0.0.1:{port}/mcp")


async def _ping(socket: websockets.ClientConnection) -> None:
    await socket.send(BODY.decode())
    assert b"result" in await socket.recv(decode=False)


@pytest.mark.promise("b.attacks.connections")
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("line", [b"a:b\r\n", b"a:\r\n", b"a: bcdefghijklmnop\r\n"])
async def test_a_head_of_very_many_lines_is_refused_before_it_ends(line: bytes, ends: bool) -> None:
    """Each line is kept as three objects."""
    async with gateway() as app:
        wire = Wire(app)
        for piece in (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", *[line * 20] * 20):
            if not wire.is_over:
                wire.send(piece)
        if ends and not wire.is_over:
            wire.send(b"\r\n")
        await settle()
        assert wire.is_over and wire.unread.startswith(b"HTTP/1.1 431 ")


def _large_head(size: int) -> list[bytes]:
    lines = [b"X-%d: " % each + b"a" * 7000 + b"\r\n" for each in range(size // 7000)]
    return [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", *lines]


@pytest.mark.promise("b.attacks.connections")
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_heads_that_do_not_end_fill_no_memory(monkeypatch: pytest.MonkeyPatch, in_pieces: bool) -> None:
    """Each may have 128 KiB, and nobody has shown a key before it ends."""
    monkeypatch.setattr(connections, "HEADS_OF_ONE", 1024 * 1024)
    async with gateway() as app:
        head = _large_head(100_000)
        wires: list[Wire] = []
        for _ in range(40):
            wires.append(Wire(app, "192.0.2.1"))
            wires[-1].send(*(head if in_pieces else [b"".join(head)]))
            await settle()
        assert [wire.is_over for wire in wires] == [True] * 30 + [False] * 10
        other = Wire(app, "192.0.2.2")
        other.send(*head)
        assert (await other.ask(b"\r\n")).status == 200
        assert (await wires[-1].ask(b"\r\n")).status == 200


@pytest.mark.promise("b.attacks.connections")
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_heads_of_tiny_lines_that_do_not_end_count_as_what_they_take(
    monkeypatch: pytest.MonkeyPatch, in_pieces: bool
) -> None:
    """Three objects for each line of four bytes."""
    monkeypatch.setattr(connections, "HEADS_OF_ONE", 1024 * 1024)
    async with gateway() as app:
        lines = [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", *[b"a:\r\n" * 18] * 10]
        wires: list[Wire] = []
        for _ in range(40):
            wires.append(Wire(app, "192.0.2.1"))
            wires[-1].send(*(lines if in_pieces else [b"".join(lines)]))
            await settle()
        closed = sum(wire.is_over for wire in wires)
        assert 10 <= closed <= 14 and [wire.is_over for wire in wires] == [True] * closed + [False] * (40 - closed)
        assert (await wires[-1].ask(b"\r\n")).status == 200


@pytest.mark.promise("b.attacks.connections")
async def test_empty_lines_before_a_request_are_no_head() -> None:
    async with gateway() as app:
        wire = Wire(app)
        wire.send(b"\r\n")
        assert (await wire.ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")).status == 200


@pytest.mark.promise("b.attacks.connections")
async def test_heads_of_many_addresses_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADS", 1024 * 1024)
    async with gateway() as app:
        wires = [Wire(app, f"192.0.2.{each % 4}") for each in range(40)]
        for wire in wires:
            wire.send(*_large_head(100_000))
        await settle()
        assert sum(not wire.is_over for wire in wires) == 10
        honest = Wire(app, "198.51.100.1")
        honest.send(*_large_head(20_000))
        assert (await honest.ask(b"\r\n")).status == 200


@pytest.mark.promise("b.attacks.connections")
async def test_a_head_counts_until_it_ends_or_its_client_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADS_OF_ONE", 1024 * 1024)
    async with gateway() as app:
        wire = Wire(app)
        for _ in range(30):
            wire.send(*_large_head(100_000))
            assert (await wire.ask(b"\r\n")).status == 200
        for _ in range(30):
            leaving = Wire(app)
            leaving.send(*_large_head(100_000))
            await leaving.leave()
        assert not wire.is_over
        assert not app.http.connections.heads._by  # pyright: ignore[reportPrivateUsage]


@pytest.mark.promise("b.attacks.connections")
async def test_a_head_of_many_lines_is_one() -> None:
    async with gateway() as app:
        wire = Wire(app)
        for _ in range(3):
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 150)
            assert (await wire.ask(b"\r\n")).status == 200


@pytest.mark.promise("b.attacks.connections")
@real
async def test_a_body_that_comes_in_pieces_may_be_larger_than_a_head() -> None:
    async with real_gateway(settings()) as served, asyncio.timeout(30):
        body = BODY + b" " * (2 * server.HEAD_LIMIT)
        head = f"POST /mcp HTTP/1.1\nHost: localhost\n{HEAD}{len(body)}"
        assert b" 200 " in (await _answer(served.port, head, body)).split(b"\n")[0]


@pytest.mark.promise("b.attacks.pages")
@real
async def test_two_hosts_are_one_too_many_beside_an_absolute_target_too() -> None:
    async with real_gateway(settings()) as served, asyncio.timeout(30):
        head = f"POST http://localhost/mcp HTTP/1.1\nHost: localhost\nHost: localhost\n{HEAD}{len(BODY)}"
        assert b" 400 " in (await _answer(served.port, head, BODY)).split(b"\n")[0]
