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


@real
@pytest.mark.parametrize("how", ["a file", "a link", "open to others", "of another user"])
async def test_a_folder_that_is_not_ours_alone_is_not_used_and_what_to_do_is_said(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "toolgate-1000"
    if how == "a file":
        folder.write_text("")
    elif how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir(mode=0o777 if how == "open to others" else 0o700)
        folder.chmod(0o777 if how == "open to others" else 0o700)
    if how == "of another user":
        monkeypatch.setattr(operator.os, "geteuid", lambda: 4242)

    async def nothing(*_args: Any) -> None: ...

    async with operator.listening(nothing, folder / "one.sock", SystemClock()):  # type: ignore[arg-type]
        await until(lambda: bool(caplog.records))
    (told,) = caplog.records
    assert told.levelname == "WARNING" and str(folder) in told.getMessage()
    assert ("chmod 700" if how == "open to others" else "have it removed") in told.getMessage()
    assert told.getMessage().endswith(operator.trouble(folder / "one.sock"))
    assert not list(folder.glob("*")) if folder.is_dir() else True


def test_a_folder_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    assert operator.trouble(tmp_path / "toolgate-1000" / "one.sock") == ""
