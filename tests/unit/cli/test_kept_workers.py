"""The processes of `toolgate serve --workers`, as whoever keeps them sees them: here they are none."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from toolgate.cli import workers
from toolgate.core.events import Events
from toolgate.telemetry.recorder import Recorder


class Process:
    """Lives until it is signalled, or told to end."""

    returncode: int | None = None

    def __init__(self) -> None:
        self._is_over = asyncio.Event()

    async def wait(self) -> int:
        await self._is_over.wait()
        self.returncode = -9
        return self.returncode

    def send_signal(self, _number: int) -> None:
        self._is_over.set()


async def test_a_worker_that_cannot_be_started_for_now_is_started_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "AGAIN", 0.01)
    tries: list[Process | None] = []

    async def made(*_: Any, **__: Any) -> Process:
        if len(tries) == 2:
            tries.append(None)
            raise OSError(11, "Resource temporarily unavailable")
        tries.append(Process())
        return tries[-1]  # type: ignore[return-value]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", made)
    listener = socket.create_server(("127.0.0.1", 0))
    async with workers.kept(listener, lambda *_: None, Events(), Recorder(), workers.Shared(3)):
        while len(tries) < 2:
            await asyncio.sleep(0)
        assert tries[0]
        tries[0].send_signal(9)
        async with asyncio.timeout(30):
            while len(tries) < 4:
                await asyncio.sleep(0.001)
    assert "Resource temporarily unavailable" in caplog.text
