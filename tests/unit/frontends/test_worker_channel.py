"""What a worker and the owner tell each other while the kernel is short of something."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable
from typing import Any

import pytest

from toolgate.frontends.workers import channel
from toolgate.frontends.workers.channel import Channel, pair


class Heard:
    def __init__(self, end: socket.socket) -> None:
        self.messages: list[tuple[str, bytes, int]] = []
        self.came = asyncio.Event()
        self.ended = asyncio.Event()
        self.channel = Channel(end, self._take, self.ended.set)

    def _take(self, kind: str, data: bytes, passed: Iterable[socket.socket]) -> None:
        sockets = list(passed)
        for each in sockets:
            each.close()
        self.messages.append((kind, data, len(sockets)))
        self.came.set()


def failing(monkeypatch: pytest.MonkeyPatch, number: int, times: int) -> None:
    send, left = socket.send_fds, [number] * times

    def send_fds(*given: Any) -> int:
        if left:
            raise OSError(left.pop(), "")
        return send(*given)

    monkeypatch.setattr(socket, "send_fds", send_fds)


@pytest.mark.parametrize("number", [errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM])
async def test_what_cannot_be_sent_for_now_is_sent_a_moment_later(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(channel, "SOON", 0)
    here, there = (Heard(end) for end in pair())
    failing(monkeypatch, number, 3)
    passed, other = socket.socketpair()
    here.channel.send("connection", b"1", passed)
    here.channel.send("usage", b"2")
    async with asyncio.timeout(10):
        while len(there.messages) < 2:
            there.came.clear()
            await there.came.wait()
    assert there.messages == [("connection", b"1", 1), ("usage", b"2", 0)]
    other.close()
    here.channel.close()
    async with asyncio.timeout(10):
        await there.ended.wait()


async def test_both_ends_are_told_where_nothing_can_be_sent_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (Heard(end) for end in pair())
    failing(monkeypatch, errno.EBADF, 1)
    here.channel.send("usage")
    async with asyncio.timeout(10):
        await there.ended.wait()
    assert here.ended.is_set()
