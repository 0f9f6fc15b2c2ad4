"""WebSockets that are refused: any web page can ask for one, so that is an answer, and no error of the gateway."""

from __future__ import annotations

import asyncio
import logging

import pytest
from processes.ground import gateway, real

from toolgate.config import Config
from toolgate.config.access import KnownClient

KEY = "key-of-ada-that-is-long"
CONFIG = Config(clients=(KnownClient(id="ada", name="ada", key=KEY, servers="all"),))
OPENING = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
REFUSED = {
    "no key": ("/mcp", "", 401),
    "another page": ("/mcp", f"Authorization: Bearer {KEY}\r\nOrigin: http://evil.example\r\n", 403),
    "no such path": ("/nowhere", f"Authorization: Bearer {KEY}\r\n", 404),
}


@pytest.mark.parametrize("what", REFUSED)
@real
async def test_a_refused_websocket_is_answered_and_is_no_error_in_the_log(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, lines, status = REFUSED[what]
    async with gateway(CONFIG) as served, asyncio.timeout(30):
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{OPENING}{lines}\r\n".encode())
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 %d " % status) and answer.count(b"HTTP/1.1 ") == 1
            writer.close()
    assert not [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("name", ["Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "Connection", "Upgrade"])
@real
async def test_a_wish_for_a_websocket_in_very_many_words_is_refused_before_it_is_taken_apart(name: str) -> None:
    """Words of 120 KB took 56 ms of a stranger's request, whatever others waited for."""
    async with gateway(CONFIG) as served, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        words = ",".join("a" * 1_000 for _ in range(8)) if name == "Upgrade" else "a," * 30_000
        writer.write(f"GET /mcp HTTP/1.1\r\nHost: localhost\r\n{OPENING}{name}: {words}\r\n\r\n".encode())
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 431 "), answer
        writer.close()
