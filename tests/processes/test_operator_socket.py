"""The operator's socket: the commands use the gateway that runs, whoever has started it, and nobody else gets in."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
from pathlib import Path

import pytest
from processes.ground import WAIT, Json, child, home, real, started, toolgate, until

from toolgate.frontends import peers

COUNTING = {"one": child("counting")}


async def command(environ: dict[str, str], *args: str) -> tuple[int, str, str]:
    """A command of the user of this environment: its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-W", "error", "-m", "toolgate", *args, "--config", f"{environ['HOME']}/toolgate.json"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    async with asyncio.timeout(WAIT):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def sockets(environ: dict[str, str]) -> list[Path]:
    return sorted(Path(environ["HOME"]).glob(".local/state/toolgate/run/*.sock"))


async def status(environ: dict[str, str]) -> Json:
    code, out, err = await command(environ, "status", "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.promise("b.operator.socket")
@real
async def test_list_call_and_status_use_the_gateway_that_runs() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config=COUNTING, environ=environ) as running:
            await running.until_it_serves()
            await until(lambda: sockets(environ))
            code, out, err = await command(environ, "list")
            assert (code, "one__slow" in out) == (0, True), err
            assert f"process {running.process.pid}" in err and f"127.0.0.1:{running.port}" in err
            code, out, err = await command(environ, "call", "one__slow", '{"say": "done"}')
            assert (code, out.strip()) == (0, "done"), err
            about = await status(environ)
            assert (about["pid"], about["state"]) == (running.process.pid, "serving")
            [server] = about["servers"]
            assert server["pid"] in started(running.process.pid) and server["tools"] >= 1
            _, shown, _ = await command(environ, "status")
            assert "one" in shown and str(server["pid"]) in shown
            for language in ("python", "javascript"):
                assert f"code in {language}: {about['code'][language]}" in shown


@real
async def test_open_prints_a_link_to_the_pages_of_the_gateway_that_runs() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config=COUNTING, environ=environ) as running:
            await running.until_it_serves()
            await until(lambda: sockets(environ))
            code, out, err = await command(environ, "open")
            assert code == 0 and re.fullmatch(rf"http://127\.0\.0\.1:{running.port}/ui/link/[\w-]{{43}}\n", out), err
        code, _, err = await command(environ, "open")
        assert code and "Start one: toolgate serve" in err


@pytest.mark.promise("b.operator.socket")
@real
async def test_the_socket_is_private_and_goes_with_its_gateway() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config=COUNTING, environ=environ) as running:
            await running.until_it_serves()
            await until(lambda: sockets(environ))
            [path] = sockets(environ)
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            await until(lambda: stat.S_IMODE(path.stat().st_mode) == 0o600)
            running.process.send_signal(signal.SIGTERM)
            assert await running.ended() == 0
            assert not sockets(environ)
        code, _, err = await command(environ, "status")
        assert code == 1 and "No gateway of" in err and "toolgate serve" in err


@pytest.mark.promise("b.operator.socket")
@real
async def test_the_socket_of_a_killed_gateway_is_replaced() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config=COUNTING, environ=environ) as first:
            await first.until_it_serves()
            await until(lambda: sockets(environ))
            first.process.kill()
            await first.ended()
        assert sockets(environ), "nobody was left to remove it"
        assert (await command(environ, "status"))[0] == 1
        async with toolgate("serve", "--port", "0", config=COUNTING, environ=environ) as second:
            await second.until_it_serves()
            pids: list[int] = []
            async with asyncio.timeout(WAIT):
                while not pids:
                    code, out, _ = await command(environ, "status", "--json")
                    pids += [json.loads(out)["pid"]] if code == 0 else []
            assert pids == [second.process.pid]


@pytest.mark.promise("b.operator.socket")
@real
async def test_of_two_gateways_the_first_answers_and_then_the_other_one() -> None:
    with home() as environ:
        async with toolgate("serve", "--port", "0", config=COUNTING, environ=environ) as first:
            await first.until_it_serves()
            await until(lambda: sockets(environ))
            async with toolgate("stdio", config=COUNTING, environ=environ, stdin=asyncio.subprocess.PIPE) as second:
                await second.until_it_says(b"another gateway with this configuration is already running")
                assert (await status(environ))["pid"] == first.process.pid
                first.process.send_signal(signal.SIGTERM)
                await first.ended()
                await until(lambda: sockets(environ))
                about = await status(environ)
                assert about["pid"] == second.process.pid and "port" not in about


@real
async def test_a_state_folder_with_a_long_path_has_its_socket_elsewhere() -> None:
    with home() as environ:
        environ["XDG_STATE_HOME"] = f"{environ['HOME']}/{'long' * 30}"
        async with toolgate("serve", "--port", "0", config=COUNTING, environ=environ) as running:
            await running.until_it_serves()
            folder = Path(f"/tmp/toolgate-{os.geteuid()}")
            await until(lambda: folder.is_dir() and list(folder.glob("*.sock")))
            assert (await status(environ))["pid"] == running.process.pid


def test_who_is_at_the_other_end_is_told_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert peers.is_ours(here)
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        monkeypatch.setattr(peers, "_ROOT", 4243)
        assert not peers.is_ours(here)
