"""Codex as a process: what it gets, how it ends, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from processes.ground import LEGACY, MODERN, Client, Json, Served, carrying, gateway, real, toolgate, until

from toolgate.config import Config
from toolgate.config.settings import Codex, PoolLimits

DOUBLE = Path(__file__).parents[1] / "codex_double.py"


def program(folder: Path) -> str:
    """An executable `codex`, which has this folder's name on its command line."""
    file = folder / "codex"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{DOUBLE}" "$@" "{folder}"\n')
    file.chmod(0o755)
    return str(file)


@asynccontextmanager
async def running(folder: Path, **more: Any) -> AsyncIterator[Served]:
    settings = Codex(enabled=True, calls="allow", command=program(folder), timeout=20)
    async with gateway(Config(codex=settings, **more)) as served:
        yield served
    assert not carrying(str(folder))


async def call(client: Client, tool: str = "codex", **arguments: Any) -> Json:
    return json.loads(await client.call(tool, **arguments))


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.promise("004.codex.run")
@real
async def test_one_process_serves_all_and_rests_when_nobody_calls(tmp_path: Path, era: str) -> None:
    async with running(tmp_path, pool=PoolLimits(idle=0.2)) as served:
        client = served.client(era)
        if era == LEGACY:
            await client.open()
        assert not carrying(str(tmp_path))
        first, second = await asyncio.gather(call(client, prompt="say one"), call(client, prompt="say two"))
        assert (first["result"], second["result"]) == ("one", "two")
        assert first["thread_id"] != second["thread_id"]
        await until(lambda: not carrying(str(tmp_path)))
        assert (await call(client, prompt="say three"))["result"] == "three"


@real
async def test_it_gets_no_secret_of_the_gateways_environment(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        told = json.loads((await call(served.client(), prompt="env"))["result"])
        assert {"HOME", "PATH"} <= set(told) and not {"OPENAI_API_KEY", "PYTEST_CURRENT_TEST"} & set(told)


@real
async def test_a_crash_says_what_it_was_and_the_next_call_starts_another(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        told = await call(served.client(), prompt="crash")
        assert told["error_type"] == "ConnectionError" and "exited with status 3" in told["error"]
        assert (await call(served.client(), prompt="say again"))["result"] == "again"


@real
async def test_a_line_without_end_ends_its_process_and_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        told = await call(served.client(), prompt="long 40")
        assert told["error_type"] == "ConnectionError" and "a line of more than" in told["error"]
        assert (await call(served.client(), prompt="say again"))["result"] == "again"


@real
async def test_a_flood_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        flood = asyncio.ensure_future(call(served.client(), prompt="flood 3000"))
        others = [await call(served.client(), prompt=f"say {number}") for number in range(3)]
        assert [each["result"] for each in others] == ["0", "1", "2"]
        assert (await flood)["items_left_out"] > 2000


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.promise("b.lifecycle.killed")
def test_nothing_is_left_of_it_when_the_gateway_ends(tmp_path: Path, number: signal.Signals) -> None:
    @real
    async def test() -> None:
        codex = {"enabled": True, "calls": "allow", "command": program(tmp_path)}
        async with toolgate("serve", "--port", "0", config={}, codex=codex, drain=0) as running:
            client = await running.until_it_serves()
            _, writer = await client.start("tools/call", {"name": "codex", "arguments": {"prompt": "silence"}})
            await until(lambda: carrying(str(tmp_path)))
            os.kill(running.process.pid, number)
            await running.ended()
            await until(lambda: not carrying(str(tmp_path)))
            writer.transport.abort()

    test()
