"""A large answer that its client does not read goes into a file, and comes whole all the same."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

import pytest

from toolgate.frontends import unsent
from toolgate.frontends.unsent import PIECE, Unsent

BODY = bytes(range(256)) * 8192 + b"the end"


async def taken(rest: Unsent) -> bytes:
    found: list[bytes] = []
    while rest.left:
        piece = await rest.next()
        assert 0 < len(piece) <= PIECE
        found.append(piece)
    return b"".join(found)


async def stalled(rest: Unsent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client takes nothing for as long as it may."""
    monkeypatch.setattr(unsent, "UNREAD", 0.0)
    with rest.waits():
        await asyncio.sleep(0.001)


async def test_a_client_that_reads_costs_no_file() -> None:
    rest = Unsent(BODY)
    with rest.waits():
        await asyncio.sleep(0)
    assert await taken(rest) == BODY
    assert not rest.is_in_file
    await rest.close()


@pytest.mark.parametrize("pieces", [0, 1, 5])
async def test_what_a_client_does_not_read_is_in_a_file_and_no_more_in_memory(
    pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = Unsent(BODY)
    begun = b"".join([await rest.next() for _ in range(pieces)])
    await stalled(rest, monkeypatch)
    assert begun + await taken(rest) == BODY
    assert rest.is_in_file and not rest._body
    await rest.close()


async def test_what_no_file_takes_stays_in_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    rest = Unsent(BODY)
    await rest.next()
    await stalled(rest, monkeypatch)
    await stalled(rest, monkeypatch)
    assert await taken(rest) == BODY[PIECE:]
    assert not rest.is_in_file
    assert "No space left on device" in caplog.text
    await rest.close()


async def test_the_file_goes_with_a_client_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = Unsent(BODY)
    await stalled(rest, monkeypatch)
    await rest.close()
    assert rest._file and rest._file.closed
