"""The operator's socket as a file."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from processes.ground import real, until

from toolgate.core.clock import SystemClock
from toolgate.frontends import operator


@real
async def test_it_has_its_name_only_when_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sees it may connect at once."""
    path = tmp_path / "run" / "one.sock"
    seen: list[bool] = []

    class Seen(socket.socket):
        def listen(self, *backlog: Any) -> None:
            seen.append(path.exists())
            super().listen(*backlog)

    monkeypatch.setattr(operator.socket, "socket", Seen)

    async def nothing(*_args: Any) -> None: ...

    async with operator.listening(nothing, path, SystemClock()):  # type: ignore[arg-type]
        await until(path.exists)
        assert seen == [False] and [each.name for each in path.parent.glob("*.new")] == []
    await asyncio.sleep(0)
    assert not path.exists()
