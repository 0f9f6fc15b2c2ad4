"""A gateway that ends and is started again, with one user's state folder; and two that share it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
from pathlib import Path

import pytest
from processes.ground import LEGACY, carrying, child, home, real, toolgate, until

from toolgate.state.sqlite import FILE

TOOLS = [f"one__{name}" for name in ("counts", "hold", "pid", "release", "seen", "slow")]


def state(environ: dict[str, str]) -> Path:
    return Path(environ["HOME"], ".local", "state", "toolgate")


@pytest.mark.promise("b.001.catalog-kept")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@real
async def test_a_gateway_that_was_started_again_lists_before_it_starts_any_child(
    end: signal.Signals, tmp_path: Path
) -> None:
    mark = str(tmp_path)
    with home() as environ:
        config = {"one": child("counting", mark)}
        async with toolgate("serve", "--port", "0", config=config, environ=environ) as first:
            before = sorted(await (await first.until_it_serves()).tools())
            assert before == TOOLS and len(carrying(mark)) == 1
            if end == signal.SIGKILL:
                await _written(environ)
            first.process.send_signal(end)
            await first.ended()
        async with toolgate("serve", "--port", "0", config=config, environ=environ) as second:
            client = await second.until_it_serves()
            assert sorted(await client.tools()) == before
            client.era = LEGACY
            await client.open()
            assert sorted(await client.tools()) == before
            assert carrying(mark) == []
            assert "most" in await client.call("one__counts")
            assert len(carrying(mark)) == 1
            second.process.send_signal(signal.SIGTERM)
            await second.ended()
        assert stat.S_IMODE(state(environ).stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in state(environ).rglob("*") if file.is_file()} == {0o600}
        assert {stat.S_IMODE(file.stat().st_mode) for file in state(environ).rglob("*") if file.is_dir()} == {0o700}


@real
async def test_two_gateways_at_once_share_what_they_know(tmp_path: Path) -> None:
    """One for each coding agent: both start, both know, both end."""
    with home() as environ:
        config = {"one": child("counting", str(tmp_path))}
        async with asyncio.TaskGroup() as together:
            for _ in range(2):
                together.create_task(_listed_once(config, environ))
        async with toolgate("serve", "--port", "0", config=config, environ=environ) as again:
            assert sorted(await (await again.until_it_serves()).tools()) == TOOLS
            assert carrying(str(tmp_path)) == []
            again.process.send_signal(signal.SIGTERM)
            await again.ended()


@pytest.mark.parametrize("trouble", ["damaged", "newer", "no folder"])
@real
async def test_a_gateway_whose_state_is_in_trouble_says_so_once_and_serves(trouble: str, tmp_path: Path) -> None:
    with home() as environ:
        folder = state(environ)
        folder.parent.mkdir(parents=True)
        if trouble == "no folder":
            folder.write_text("a file")
        else:
            folder.mkdir()
            (folder / FILE).write_bytes(_newer(tmp_path) if trouble == "newer" else os.urandom(5000))
        async with toolgate("serve", "--port", "0", config={"one": child("counting")}, environ=environ) as gateway:
            client = await gateway.until_it_serves()
            for _ in range(2):
                assert sorted(await client.tools()) == TOOLS
            gateway.process.send_signal(signal.SIGTERM)
            await gateway.ended()
            said = gateway.errors.decode()
            assert said.count("WARNING") == 1
            assert ("was damaged" if trouble == "damaged" else "data is not kept for the next start") in said


async def _listed_once(config: dict[str, object], environ: dict[str, str]) -> None:
    async with toolgate("serve", "--port", "0", config=config, environ=environ) as gateway:
        assert sorted(await (await gateway.until_it_serves()).tools()) == TOOLS
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.ended() == 0


async def _written(environ: dict[str, str]) -> None:
    """What is written is on its way when a request is answered, and there a moment later."""
    await until(lambda: _knows(environ))


def _knows(environ: dict[str, str]) -> bool:
    connection = sqlite3.connect(state(environ) / FILE)
    try:
        return connection.execute("SELECT count(*) FROM kept WHERE key = 'tools'").fetchone() == (1,)
    finally:
        connection.close()


def _newer(folder: Path) -> bytes:
    connection = sqlite3.connect(folder / "newer.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    return (folder / "newer.db").read_bytes()
