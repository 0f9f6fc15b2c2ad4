"""A running gateway that hangs up instead of answering: the command says so in a line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolgate.cli import common, gateways
from toolgate.cli.gateways import Running


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1", None])
def test_it_is_told_in_a_line_and_no_traceback(says: bytes | None, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "one.sock"

    async def hangs_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if says is None:
            writer.transport.abort()
            return
        writer.write(says)
        writer.close()

    async def asked() -> None:
        async with await asyncio.start_unix_server(hangs_up, path):
            await gateways.value(Running(str(path)), "GET", "/status")

    with pytest.raises(SystemExit) as ended:
        common.run(asked())
    said = capsys.readouterr().err
    assert ended.value.code == 1 and said.startswith("The running gateway does not answer: "), said
    assert said.count("\n") == 1


def test_one_that_does_not_listen_any_more_is_told_in_the_same_way(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        common.run(gateways.value(Running(str(tmp_path / "gone.sock")), "GET", "/status"))
    assert "does not answer" in capsys.readouterr().err
