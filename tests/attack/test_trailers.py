"""What stands behind a chunked body is no header of its request, and is bounded like its head."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from processes.ground import gateway, real, settings

from toolgate.frontends import server

PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answered(port: int, data: bytes) -> bytes:
    """All that comes until the gateway closes, or has answered this one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    found = b""
    with contextlib.suppress(ConnectionError):
        found = await reader.readuntil(b"\r\n")
    writer.close()
    return found


async def taken(port: int, begin: bytes, more: bytes) -> int:
    """How many bytes of `more`, sent again and again, go out until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)
    ended = asyncio.ensure_future(reader.read())
    sent = 0
    with contextlib.suppress(ConnectionError):
        while not ended.done():
            writer.write(more)
            sent += len(more)
            await writer.drain()
            assert sent < 64 * 1024 * 1024, "it is read without end"
    writer.close()
    with contextlib.suppress(ConnectionError):
        await ended
    return sent


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The headers that each request had when its connection was closed."""
    found: list[int] = []
    lost = server.HttpProtocol.connection_lost

    def noted(protocol: Any, error: Exception | None) -> None:
        asked = protocol.scope["headers"] if protocol.scope else []  # of what was answered nothing is kept
        found.append(len(asked) + len(protocol.headers if protocol.headers is not asked else ()))
        lost(protocol, error)

    monkeypatch.setattr(server.HttpProtocol, "connection_lost", noted)
    return found


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD + b"\r\n" + chunk(PING) + b"0\r\n", b"a:\r\n" * 1024),
        (HEAD + b"\r\n" + chunk(PING) + b"0\r\n", b"x: " + b"y" * 4000 + b"\r\n"),
        (HEAD + b"\r\n" + chunk(PING) + b"0\r\nx: ", b"y" * 4096),
        (HEAD + b"\r\n" + b"5;", b"e" * 4096),
        (HEAD + b"\r\n", b"1;" + b"e" * 4091 + b"\r\n \r\n"),
        (HEAD + b"\r\n" + chunk(PING) + b"0\r\n\r\n", b"\r\n" * 2048),
    ],
    ids=["short trailers", "long trailers", "one trailer", "one extension", "an extension of each byte", "empty lines"],
)
def test_what_is_neither_head_nor_body_is_bounded(counted: list[int], begin: bytes, more: bytes) -> None:
    @real
    async def held() -> None:
        async with gateway(settings()) as served:
            sent = await taken(served.port, begin, more)
            assert sent < 32 * 1024 * 1024  # most of it lies in buffers of the system
            assert len(counted) == 1 and counted[0] <= 3

    held()


@pytest.mark.parametrize("slow", [False, True], ids=["in one piece", "later"])
def test_a_trailer_says_nothing_that_a_header_says(slow: bool) -> None:
    @real
    async def held() -> None:
        async with gateway(settings()) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(HEAD.replace(b"localhost", b"evil.example") + b"\r\n" + chunk(PING))
            if slow:
                await writer.drain()
                assert b" 403 " in await reader.readuntil(b"\r\n")
            else:
                writer.write(b"0\r\nHost: localhost\r\n\r\n")
                assert b" 403 " in await reader.readuntil(b"\r\n")
            writer.close()
            whole = HEAD + b"\r\n" + chunk(PING) + b"0\r\n"
            for trailer in (b"Host: evil.example", b"Origin: http://evil.example", b"Expect: 100-continue"):
                assert b" 200 " in await answered(served.port, whole + trailer + b"\r\n\r\n")

    held()


@real
async def test_a_body_of_single_bytes_is_taken() -> None:
    async with gateway(settings()) as served:
        body = PING + b" " * (2 * server.HEAD_LIMIT)
        pieces = b"".join(b"1\r\n%c\r\n" % each for each in body)
        assert b" 200 " in await answered(served.port, HEAD + b"\r\n" + pieces + b"0\r\nDigest: x\r\n\r\n")
