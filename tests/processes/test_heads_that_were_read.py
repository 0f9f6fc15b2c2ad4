"""What a request was sent with is not kept as long as its connection is open: a head may have 120 KB."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from processes.ground import gateway, real, shut, until
from processes.test_doors_on_sockets import GREETER

MARK = b"a-value-of-a-large-head-" * 90
LINES = b"".join(b"X-%d: %b\r\n" % (number, MARK) for number in range(50))  # no header is so long that is remembered
OPENING = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
ASKED: dict[str, tuple[bytes, bytes, bytes]] = {
    "health": (b"GET /healthz", b"", b"200"),
    "a stream of 2024-11-05": (b"GET /sse", b"Accept: text/event-stream\r\n", b"200"),
    "a websocket": (b"GET /mcp", OPENING, b"101"),
}


def kept() -> int:
    """How many values of such heads there are in this process."""
    found, seen = 0, set[int]()
    for each in gc.get_objects():
        if type(each) in (list, tuple, dict):  # not by `isinstance`, for which a weak proxy asks what it was for
            values: Any = list(each.values() if type(each) is dict else each)
            for value in values:
                if type(value) in (bytes, str) and len(value) == len(MARK) and id(value) not in seen:
                    seen.add(id(value))
                    found += value in (MARK, MARK.decode())
    return found


@pytest.mark.parametrize("what", ASKED)
@real
async def test_an_open_connection_keeps_nothing_of_a_head_that_was_answered(what: str) -> None:
    begins, more, status = ASKED[what]
    async with gateway(GREETER) as served, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"%b HTTP/1.1\r\nHost: localhost\r\n%b%b\r\n" % (begins, more, LINES))
        assert (await reader.readuntil(b"\r\n")).split()[1] == status
        await until(lambda: kept() <= 1)  # `MARK` itself
        await shut(writer)
