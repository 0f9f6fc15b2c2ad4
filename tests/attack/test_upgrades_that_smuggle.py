"""Requests that ask for another protocol (`Upgrade: h2c`), so that a parser stops behind their head and their body is
read as requests of their own: behind a proxy that shares a connection, answers would go to others."""

from __future__ import annotations

import asyncio

import pytest
from inmemory import Scripted, gateway, said, tools
from processes.ground import gateway as real_gateway
from processes.ground import real, settings
from virtualtime import settle
from wires import Wire, modern, post

from toolgate.config import Config
from toolgate.config.access import KnownClient

KEY = "key-of-ada-that-is-long"
CONFIG = Config(clients=(KnownClient(id="ada", name="ada", key=KEY, servers="all"),))
BEARER = f"Authorization: Bearer {KEY}"
UPGRADES = (
    ("Connection: Upgrade", "Upgrade: h2c"),
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"),
    ("connection: keep-alive, upgrade", "upgrade: TLS/1.0"),
    ("Connection: upgrade", "Upgrade: websocket"),
)


def call(id: int, *lines: str, tool: str = "echo") -> bytes:
    return modern(id, "tools/call", {"name": f"there__{tool}", "arguments": {}}, BEARER, *lines)


def torn(request: bytes, how: str) -> list[bytes]:
    head, end, body = request.partition(b"\r\n\r\n")
    if how == "bytes":
        return [bytes([each]) for each in request]
    return (
        [request] if how == "whole" else [head + end, body] if how == "behind the head" else [head[:30], request[30:]]
    )


@pytest.mark.parametrize("how", ["whole", "behind the head", "in the head", "bytes"])
@pytest.mark.parametrize("lines", UPGRADES)
async def test_what_asks_for_another_protocol_is_a_request_of_this_one_with_its_body(
    lines: tuple[str, ...], how: str
) -> None:
    async with gateway(
        config=CONFIG, scripts={"there": Scripted(tools_list=tools("echo"), tools_call=said("hi"))}
    ) as app:
        wire = Wire(app)
        for id in (1, 2, 3):
            answer = await wire.ask(*torn(call(id, *lines), how))
            assert (answer.status, answer.last["id"]) == (200, id)
        assert (await wire.ask(call(4))).last["id"] == 4
        assert wire.unread == b""


@pytest.mark.parametrize("how", ["whole", "behind the head", "in the head", "bytes"])
@pytest.mark.parametrize("lines", UPGRADES)
async def test_a_body_is_never_read_as_another_request(lines: tuple[str, ...], how: str) -> None:
    async with gateway(
        config=CONFIG, scripts={"there": Scripted(tools_list=tools("echo"), tools_call=said("hi"))}
    ) as app:
        wire = Wire(app)
        outer = await wire.ask(*torn(post(call(7), *lines), how))
        assert outer.status == 401
        await settle()
        assert wire.unread == b"", "one request has one answer"


async def test_many_of_them_in_one_piece_are_so_many_requests() -> None:
    async with gateway(
        config=CONFIG, scripts={"there": Scripted(tools_list=tools("echo"), tools_call=said("hi"))}
    ) as app:
        wire = Wire(app)
        wire.send(b"".join(call(id, *UPGRADES[0]) for id in range(20)))
        assert [(await wire.answer()).last["id"] for _ in range(20)] == list(range(20))


async def test_a_client_that_ends_its_connection_with_it_has_it_ended() -> None:
    async with gateway(
        config=CONFIG, scripts={"there": Scripted(tools_list=tools("echo"), tools_call=said("hi"))}
    ) as app:
        wire = Wire(app)
        answer = await wire.ask(call(1, "Connection: Upgrade, close", "Upgrade: h2c"))
        await settle()
        assert answer.status == 200 and wire.is_over


async def test_a_tunnel_is_refused_and_the_connection_ends() -> None:
    async with gateway(config=CONFIG) as app:
        wire = Wire(app)
        wire.send(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n" + call(1))
        await settle()
        assert wire.is_over and wire.unread.count(b"HTTP/1.1 ") == 1 and wire.unread.startswith(b"HTTP/1.1 400")


SHOWN = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
OPENING = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n{SHOWN}"
NO_OPENINGS = {
    "a long line": (f"X-A: {'a' * 9000}\r\n", b"", 431),
    "many headers": ("".join(f"X-{number}: a\r\n" for number in range(150)), b"", 431),
    "a body": ("Content-Length: 5\r\n", b"hello", 400),
    "a body to come": ("Content-Length: 5\r\n", b"", 400),
    "a body in chunks": ("Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n", 400),
    "another key": (SHOWN, b"", 400),
}


@pytest.mark.parametrize("path", ["/mcp", "/nowhere"])
@pytest.mark.parametrize("what", NO_OPENINGS)
@real
async def test_what_asks_for_a_websocket_and_cannot_have_one_is_answered_and_its_connection_ends(
    what: str, path: str
) -> None:
    lines, body, status = NO_OPENINGS[what]
    async with real_gateway(settings()) as served, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{OPENING}{lines}\r\n".encode() + body)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 %d " % status) and answer.count(b"HTTP/1.1 ") == 1
        writer.close()
