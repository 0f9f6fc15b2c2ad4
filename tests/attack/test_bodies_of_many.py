"""Thousands of connections of one client each begin a request, and do not end it: what is kept for each is little."""

from __future__ import annotations

import pytest
from inmemory import gateway
from virtualtime import settle
from wires import Wire

from toolgate.core import bodies, inflow
from toolgate.frontends import server


@pytest.mark.promise("b.attacks.bodies")
async def test_of_what_a_client_may_not_send_on_little_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 256 * 1024)
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    async with gateway() as app:
        sent = 0
        wires = [Wire(app) for _ in range(60)]
        for wire in wires:
            wire.send(head)
            await settle()
            for _ in range(40):  # as a transport reads: no more is read of one that waits
                if wire.is_paused:
                    break
                wire.send(b" " * inflow.READ)
                sent += inflow.READ
                await settle()
        assert all(wire.is_paused for wire in wires[1:])
        later = sent - 60 * (2 * inflow.READ + server.UNTAKEN)
        assert later < 256 * 1024 + 40 * inflow.READ  # the oldest may always go on
        for wire in wires:
            await wire.leave()


@pytest.mark.promise("b.attacks.bodies")
@pytest.mark.parametrize(
    ("lines", "refuses"),
    [
        (b"".join(b"X-%d: %b\r\n" % (number, b"x" * 500) for number in range(100)), (12, 20)),
        (b"a:\r\n" * 180, (10, 18)),  # each of which is kept as three objects
    ],
)
async def test_large_heads_of_requests_that_do_not_end_are_counted_too(
    monkeypatch: pytest.MonkeyPatch, lines: bytes, refuses: tuple[int, int]
) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 256 * 1024)
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n%b\r\n{"
    async with gateway() as app:
        wires = [Wire(app) for _ in range(20)]
        for wire in wires:
            wire.send(head % lines)
            await settle()
        refused = [wire for wire in wires if b" 429 " in bytes(wire.unread)[:20]]
        assert refuses[0] <= len(refused) < refuses[1]
        for wire in wires:
            await wire.leave()
