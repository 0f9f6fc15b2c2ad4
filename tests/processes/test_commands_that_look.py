"""Commands that look at a running gateway: what its servers write, and what it does."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from processes.ground import WAIT, child, home, real, toolgate

COMMAND = [sys.executable, "-m", "toolgate"]


async def said(environ: dict[str, str], *args: str) -> str:
    pipe = asyncio.subprocess.PIPE
    config = ["--config", str(Path(environ["HOME"], "toolgate.json"))]
    process = await asyncio.create_subprocess_exec(*COMMAND, *args, *config, stdout=pipe, stderr=pipe, env=environ)
    out, errors = await asyncio.wait_for(process.communicate(), WAIT)
    assert process.returncode == 0, errors.decode()
    return out.decode()


@real
async def test_top_counts_the_calls_of_each_tool_and_the_status_is_shown_again() -> None:
    servers = {"one": child("counting")}
    with home() as environ:
        telemetry = {"usage": True}
        async with toolgate("serve", "--port", "0", config=servers, environ=environ, telemetry=telemetry) as gateway:
            client = await gateway.until_it_serves()
            [tool, *_] = await client.tools()
            for _ in range(3):
                await client.call(tool)
            lines = (await said(environ, "top", "--once")).splitlines()
            [server] = [line for line in lines if line.startswith("one ") and "ready" in line]
            assert server.split() == ["one", "ready", "0"]
            [row] = [line for line in lines if line.startswith(f"one {tool.removeprefix('one__')}")]
            assert row.split()[3:5] == ["3", "0"]
            watching = await asyncio.create_subprocess_exec(
                *[*COMMAND, "status", "--watch", "--config", str(Path(environ["HOME"], "toolgate.json"))],
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
            assert watching.stdout
            async with asyncio.timeout(WAIT):
                first = [await watching.stdout.readline() for _ in range(2)]
                while (line := await watching.stdout.readline()).split()[:2] != first[0].split()[:2]:
                    assert line
            watching.send_signal(signal.SIGINT)
            _, errors = await asyncio.wait_for(watching.communicate(), WAIT)
            assert b"Traceback" not in errors, errors.decode()


@real
async def test_logs_follows_what_a_server_writes_to_its_stderr() -> None:
    with home() as environ:
        async with toolgate(
            "serve", "--port", "0", config={"one": child("wordy_of_others"), "two": child("counting")}, environ=environ
        ) as gateway:
            client = await gateway.until_it_serves()
            await client.call("one__look", text="before")
            config = str(Path(environ["HOME"], "toolgate.json"))
            silent = await asyncio.create_subprocess_exec(
                *[*COMMAND, "logs", "two", "--config", config], stderr=asyncio.subprocess.PIPE, env=environ
            )
            _, errors = await asyncio.wait_for(silent.communicate(), WAIT)
            assert b"No server has written to its stderr" in errors
            following = await asyncio.create_subprocess_exec(
                *[*COMMAND, "logs", "-f", "one", "--config", config],
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
            assert following.stdout
            async with asyncio.timeout(WAIT):
                while b"before" not in await following.stdout.readline():
                    pass
                await client.call("one__look", text="behind")
                while b"behind" not in await following.stdout.readline():
                    pass
            following.send_signal(signal.SIGINT)
            _, errors = await asyncio.wait_for(following.communicate(), WAIT)
            assert b"Traceback" not in errors, errors.decode()


@real
async def test_traffic_shows_calls_as_they_end() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config={"one": child("counting")}, environ=environ) as gateway:
            client = await gateway.until_it_serves()
            [tool, *_] = await client.tools()
            watching = await asyncio.create_subprocess_exec(
                *[*COMMAND, "traffic", "--server", "one", "--config", str(Path(environ["HOME"], "toolgate.json"))],
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
            assert watching.stdout
            seen = asyncio.ensure_future(watching.stdout.readline())
            async with asyncio.timeout(WAIT):
                while not seen.done():
                    await client.call(tool)
            assert f" one {tool.removeprefix('one__')}: allow done, ".encode() in seen.result()
            watching.send_signal(signal.SIGINT)
            _, errors = await asyncio.wait_for(watching.communicate(), WAIT)
            assert b"Traceback" not in errors, errors.decode()


@real
@pytest.mark.parametrize("broken", ['{"state": "kept", "nonsense": 1}', '{"state": "'])
async def test_a_gateway_is_still_looked_at_when_an_edit_of_its_file_cannot_be_read(broken: str) -> None:
    """It serves what was there before; a container that asks it by `toolgate status` must not take it for dead."""
    with home() as environ:
        file = Path(environ["HOME"], "toolgate.json")
        state = {"state": "kept"} if "kept" in broken else {}
        async with toolgate(
            "serve", "--port", "0", config={"one": child("counting")}, environ=environ, **state
        ) as gateway:
            await gateway.until_it_serves()
            whole = file.read_text()
            file.write_text(broken)
            shown = await said(environ, "status", "--json")
            assert json.loads(shown)["servers"][0]["name"] == "one"
            assert "one" in await said(environ, "top", "--once")
            file.write_text(whole)


@real
async def test_where_none_runs_what_is_wrong_with_the_file_is_said() -> None:
    with home() as environ:
        file = Path(environ["HOME"], "toolgate.json")
        file.write_text('{"nonsense": 1}')
        pipe = asyncio.subprocess.PIPE
        command = [*COMMAND, "status", "--config", str(file)]
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environ)
        _, errors = await asyncio.wait_for(process.communicate(), WAIT)
        assert process.returncode == 2 and b"nonsense: unknown key" in errors
