"""What a server has started does not outlive it or the gateway, whatever it does to get away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from processes.ground import (
    Client,
    alive,
    carrying,
    child,
    failure,
    family_of,
    gateway,
    guards,
    keepers,
    real,
    settings,
    toolgate,
    until,
)

from toolgate.upstreams.process.guard import LONGEST_END

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the groups alone are ended")


async def left_behind(client: Client, file: Path) -> int:
    """Have the server started; the daemon that it has left."""
    await client.tools()
    await until(file.exists)
    (daemon,) = family_of(file)
    await until(lambda: carrying(f"{file}") and (Path(f"/proc/{daemon}/environ").read_bytes() == b""))
    return daemon


async def nothing_is_left(folder: Path, seconds: float = 10) -> None:
    try:
        await until(lambda: not carrying(str(folder)), seconds)
    finally:
        for pid in carrying(str(folder)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)  # of a chain of processes the next one has the same group


@pytest.mark.promise("b.attacks.children")
@real
@pytest.mark.parametrize("modes", [(), ("kin",), ("stopped",)], ids=" ".join)
async def test_a_daemon_with_an_empty_environment_does_not_outlive_a_gateway_that_is_killed(
    modes: tuple[str, ...], tmp_path: Path
) -> None:
    async with toolgate("serve", "--port", "0", config={"one": child("daemon", str(tmp_path / "pid"), *modes)}) as it:
        await left_behind(await it.until_it_serves(), tmp_path / "pid")
        it.process.kill()
        await it.ended()
        await nothing_is_left(tmp_path)


@real
@pytest.mark.parametrize("mode", ["hops", "leaps"])
@pytest.mark.parametrize("first", ["gateway", "keeper"])
async def test_a_daemon_that_is_another_process_each_millisecond_does_not_outlive_the_gateway(
    first: str, mode: str, tmp_path: Path
) -> None:
    async with toolgate("serve", "--port", "0", config={"one": child("daemon", str(tmp_path / "pid"), mode)}) as it:
        await (await it.until_it_serves()).tools()
        await until((tmp_path / "pid").exists)
        if first == "keeper":
            (keeper,) = keepers(it.process.pid)
            os.kill(keeper, signal.SIGKILL)
        it.process.kill()
        await it.ended()
        await nothing_is_left(tmp_path, LONGEST_END / 2)  # not by luck, at the end of its tries


@pytest.mark.promise("b.attacks.children")
@real
async def test_a_daemon_ends_with_its_server_and_one_of_another_server_stays(tmp_path: Path) -> None:
    servers = {name: child("daemon", str(tmp_path / name)) for name in ("one", "two")}
    async with gateway(settings(**servers)) as served:
        client = served.client()
        one, two = await left_behind(client, tmp_path / "one"), await left_behind(client, tmp_path / "two")
        os.kill(int(await client.call("one__pid")), signal.SIGKILL)
        await until(lambda: not alive(one), 10)
        assert alive(two) and await client.call("two__echo", say="hello") == "hello"
    await nothing_is_left(tmp_path)


@real
async def test_a_daemon_of_a_server_that_is_gone_before_it_says_a_word_is_gone_too(tmp_path: Path) -> None:
    async with gateway(settings(one=child("daemon", str(tmp_path / "pid"), "exits"))) as served:
        assert "exited with status 0" in (await failure(served.client().call("one__echo"))).message
        (daemon,) = family_of(tmp_path / "pid")
        assert not alive(daemon)


@real
@pytest.mark.parametrize("first", ["guard", "keeper", "keeper, then guard"])
async def test_nothing_is_left_where_who_ends_it_was_killed_before_the_gateway(first: str, tmp_path: Path) -> None:
    """By the server, which is of the same user and may."""
    async with toolgate("serve", "--port", "0", config={"one": child("daemon", str(tmp_path / "pid"))}) as it:
        client = await it.until_it_serves()
        await left_behind(client, tmp_path / "pid")
        (guard,), (keeper,) = guards(it.process.pid), keepers(it.process.pid)
        if first.startswith("keeper"):
            os.kill(keeper, signal.SIGKILL)
            await until(lambda: not carrying(str(tmp_path)), 10)
        if "guard" in first:
            os.kill(guard, signal.SIGKILL)
            await it.until_it_says(b"the guard process was killed")
        if first == "guard":
            assert await client.call("one__echo", say="undisturbed") == "undisturbed"
        it.process.kill()
        await it.ended()
        await nothing_is_left(tmp_path)


@real
async def test_a_keeper_that_its_server_has_stopped_holds_nobody_up(tmp_path: Path) -> None:
    async with toolgate("serve", "--port", "0", config={"one": child("daemon", str(tmp_path / "pid"))}) as it:
        await left_behind(await it.until_it_serves(), tmp_path / "pid")
        (keeper,) = keepers(it.process.pid)
        os.kill(keeper, signal.SIGSTOP)
        it.process.kill()
        await it.ended()
        await nothing_is_left(tmp_path)


@real
async def test_a_guard_and_a_keeper_that_a_server_has_stopped_hold_up_neither_other_servers_nor_the_end(
    tmp_path: Path,
) -> None:
    servers = {"one": child("daemon", str(tmp_path / "pid")), "two": child("counting")}
    async with toolgate("serve", "--port", "0", config=servers) as it:
        client = await it.until_it_serves()
        assert await client.call("one__echo", say="hello") == "hello"
        stopped = [*guards(it.process.pid), *keepers(it.process.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        assert "two__count" in str(await client.tools())
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        it.process.terminate()
        assert await it.ended() == 0
        await nothing_is_left(tmp_path, 1)


@real
async def test_a_guard_and_a_keeper_that_a_server_has_stopped_end_all_when_the_gateway_is_killed(
    tmp_path: Path,
) -> None:
    async with toolgate("serve", "--port", "0", config={"one": child("daemon", str(tmp_path / "pid"))}) as it:
        await left_behind(await it.until_it_serves(), tmp_path / "pid")
        for pid in [*guards(it.process.pid), *keepers(it.process.pid)]:
            os.kill(pid, signal.SIGSTOP)
        it.process.kill()
        await it.ended()
        await nothing_is_left(tmp_path)


@real
async def test_a_daemon_made_while_its_server_is_ended_does_not_stay(tmp_path: Path) -> None:
    async with toolgate("serve", "--port", "0", config={"one": child("daemon", str(tmp_path / "pid"), "late")}) as it:
        client = await it.until_it_serves()
        assert await client.call("one__echo", say="hello") == "hello"
        _, writer = await client.start("tools/call", {"name": "one__leave"})
        await until((tmp_path / "pid").exists)
        it.process.kill()
        await it.ended()
        writer.transport.abort()
        await nothing_is_left(tmp_path)


@real
async def test_what_is_left_of_a_gateway_in_a_gateway_ends_with_the_outer_one(tmp_path: Path) -> None:
    """Also where the inner one, its guard and its keeper are killed at once."""
    config = tmp_path / "inner.json"
    config.write_text(json.dumps({"mcpServers": {"one": child("daemon", str(tmp_path / "pid"))}}))
    inner = {"command": sys.executable, "args": ["-m", "toolgate", "stdio", "--config", str(config)]}
    async with toolgate("serve", "--port", "0", config={"inner": inner}) as it:
        client = await it.until_it_serves()
        await left_behind(client, tmp_path / "pid")
        (process,) = [pid for pid in carrying(str(config)) if b"stdio" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        for pid in [process, *guards(process), *keepers(process)]:
            with contextlib.suppress(ProcessLookupError):  # of one that was quicker than we are
                os.kill(pid, signal.SIGKILL)
        it.process.kill()
        await it.ended()
        await nothing_is_left(tmp_path)
