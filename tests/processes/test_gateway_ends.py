"""However the gateway ends, no child and no grandchild of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from processes.ground import (
    LEGACY,
    MODERN,
    WAIT,
    Client,
    Gateway,
    Json,
    alive,
    carrying,
    child,
    failure,
    family_of,
    gateway,
    guards,
    home,
    real,
    settings,
    toolgate,
    until,
)

from toolgate.upstreams.process import supervisor

FAMILIES = {"plain": [], "setsid": ["setsid"], "stubborn": ["stubborn"], "both": ["setsid", "stubborn"]}


@pytest.fixture
def in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stubborn are waited for for less time."""
    monkeypatch.setattr(supervisor, "PATIENCE", 0.2)


def families(folder: Path) -> Json:
    return {name: child("family", str(folder / name), *modes) for name, modes in FAMILIES.items()}


async def started(client: Client, folder: Path) -> set[int]:
    """Have all children started; the process ids of them and of what they started."""
    assert len(await client.tools()) == 3 * len(FAMILIES)
    pids = {pid for name in FAMILIES for pid in family_of(folder / name)}
    assert len(pids) == 2 * len(FAMILIES)
    assert all(alive(pid) for pid in pids)
    await until(lambda: set(carrying(str(folder))) >= pids)  # one that becomes another program just now shows nothing
    return pids


async def nothing_is_left(pids: set[int], folder: Path) -> None:
    await until(lambda: not any(alive(pid) for pid in pids), 5)
    await until(lambda: not carrying(str(folder)), 5)


@pytest.mark.promise("b.lifecycle.killed")
@real
async def test_nothing_is_left_of_a_gateway_killed_in_the_middle_of_calls(tmp_path: Path) -> None:
    async with toolgate("serve", "--port", "0", config=families(tmp_path)) as running:
        client = await running.until_it_serves()
        pids = await started(client, tmp_path)
        writers = [(await client.start("tools/call", {"name": f"{name}__hang"}))[1] for name in FAMILIES]
        assert await client.call("plain__echo", say="hello") == "hello"
        running.process.kill()
        assert await running.ended() == -signal.SIGKILL
        await nothing_is_left(pids, tmp_path)
        for writer in writers:
            writer.transport.abort()


@pytest.mark.promise("b.lifecycle.killed")
@real
async def test_nothing_is_left_of_a_gateway_killed_while_its_children_start(tmp_path: Path) -> None:
    """Killed at whatever moment each child's start is: it says nothing until its grandchild is there."""
    async with toolgate("serve", "--port", "0", config=families(tmp_path)) as running:
        client = await running.until_it_serves()
        _, writer = await client.start("tools/list")
        await until(lambda: carrying(str(tmp_path)))
        running.process.kill()
        await running.ended()
        await until(lambda: not carrying(str(tmp_path)), 5)
        writer.transport.abort()


@pytest.mark.promise("b.lifecycle.ending", "b.lifecycle.killed")
@real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
async def test_a_gateway_told_to_stop_ends_cleanly_with_nothing_left(number: signal.Signals, tmp_path: Path) -> None:
    """The signal goes to the whole group, as a terminal sends it; a call of each era is under way."""
    async with toolgate("serve", "--port", "0", config=families(tmp_path), drain="1s") as running:
        client = await running.until_it_serves()
        pids = await started(client, tmp_path)
        open_calls = [
            await Client(running.port, era).start(
                "tools/call", {"name": "plain__hang"}, "application/json, text/event-stream"
            )
            for era in (MODERN, LEGACY)
        ]
        await client.call("plain__echo", say="they are under way")
        running.signal_group(number)
        assert await running.ended() == 0
        assert b"Traceback" not in running.errors and b"Error" not in running.errors, running.errors.decode()
        await nothing_is_left(pids, tmp_path)
        for reader, writer in open_calls:
            async with asyncio.timeout(WAIT):
                await reader.read()  # each stream is ended, not left open
            writer.close()


@real
async def test_a_log_in_json_is_an_object_in_each_line_from_beginning_to_end(tmp_path: Path) -> None:
    async with toolgate("serve", "--port", "0", config=families(tmp_path), log={"format": "json"}) as running:
        await running.until_it_serves()
        await running.until_it_says(b"started, process")
        running.signal_group(signal.SIGTERM)
        assert await running.ended() == 0
    lines = [json.loads(line) for line in running.errors.splitlines()]
    assert all(each.keys() >= {"time", "level", "logger", "message"} for each in lines)
    assert any(each["message"].startswith("listening on http://127.0.0.1:") for each in lines)


@pytest.mark.promise("b.lifecycle.own-group")
@real
async def test_a_child_killed_takes_its_own_grandchildren_along(tmp_path: Path, in_vain: None) -> None:
    async with gateway(settings(**families(tmp_path))) as served:
        pids = await started(served.client(), tmp_path)
        for name in FAMILIES:
            first, second = family_of(tmp_path / name)
            lost = asyncio.create_task(failure(served.client().call(f"{name}__hang")))
            await served.client().call(f"{name}__echo", say="it hangs")
            os.kill(first, signal.SIGKILL)
            assert (await lost).data["outcome"] == "sent_unknown"
            await until(lambda second=second: not alive(second), 5)
        assert not any(alive(pid) for pid in pids)


@pytest.mark.promise("b.lifecycle.ending")
@real
async def test_a_gateway_closed_leaves_nothing(tmp_path: Path, in_vain: None) -> None:
    async with gateway(settings(**families(tmp_path))) as served:
        pids = await started(served.client(), tmp_path)
    await nothing_is_left(pids, tmp_path)
    assert not guards()


@real
async def test_children_are_guarded_after_the_guard_itself_was_killed(tmp_path: Path) -> None:
    async with toolgate("serve", "--port", "0", config=families(tmp_path)) as running:
        pids = await started(await running.until_it_serves(), tmp_path)
        (first,) = guards(running.process.pid)
        os.kill(first, signal.SIGKILL)
        await running.until_it_says(b"the guard process was killed")
        running.process.kill()
        await running.ended()
        await nothing_is_left(pids, tmp_path)


@real
async def test_nothing_is_left_of_a_gateway_behind_a_killed_gateway(tmp_path: Path) -> None:
    """The inner one is a child of the outer one; its own children are told to its own guard only."""
    with home() as environ:
        inner = Path(environ["HOME"], "inner.json")
        inner.write_text(json.dumps({"mcpServers": families(tmp_path)}))
        command = {"command": sys.executable, "args": ["-m", "toolgate", "stdio", "--config", str(inner)]}
        async with toolgate("serve", "--port", "0", config={"inner": command}) as running:
            client = await running.until_it_serves()
            assert await client.call("inner__plain__echo", say="through both") == "through both"
            places = [tmp_path / name for name in FAMILIES]
            await until(lambda: all(place.exists() and len(family_of(place)) == 2 for place in places))
            pids = {pid for name in FAMILIES for pid in family_of(tmp_path / name)}
            assert len(pids) == 2 * len(FAMILIES)
            running.process.kill()
            await running.ended()
            await nothing_is_left(pids, tmp_path)
            await until(lambda: not carrying(str(inner)), 5)


# `toolgate stdio`: the process of one client, which ends it by closing its stdin.


def line(id: int, method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"


HANDSHAKE = line(
    1, "initialize", protocolVersion=LEGACY, capabilities={}, clientInfo={"name": "test", "version": "1"}
) + (b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')


async def answer_to(running: Gateway, id: int) -> Json:
    assert running.process.stdout
    async with asyncio.timeout(WAIT):
        while said := await running.process.stdout.readline():
            message = json.loads(said)
            if message.get("id") == id:
                return message
    raise AssertionError(f"no answer to {id}: {running.errors.decode()}")


@pytest.mark.promise("spec.2026.stdio.exit")
@real
async def test_stdio_ends_with_its_stdin_and_leaves_nothing(tmp_path: Path) -> None:
    async with toolgate("stdio", config=families(tmp_path), stdin=asyncio.subprocess.PIPE) as running:
        stdin = running.process.stdin
        assert stdin
        stdin.write(HANDSHAKE + line(2, "tools/list"))
        assert len((await answer_to(running, 2))["result"]["tools"]) == 3 * len(FAMILIES)
        pids = {pid for name in FAMILIES for pid in family_of(tmp_path / name)}
        stdin.write(line(3, "tools/call", name="plain__hang"))
        stdin.write(line(4, "tools/call", name="plain__echo", arguments={"say": "hello"}))
        assert (await answer_to(running, 4))["result"]["content"][0]["text"] == "hello"
        stdin.close()
        assert await running.ended() == 0
        assert b"INFO toolgate: ended" in running.errors and b"Traceback" not in running.errors
        await nothing_is_left(pids, tmp_path)


@real
async def test_stdio_answers_what_it_was_asked_before_its_stdin_ended(tmp_path: Path) -> None:
    """As in `echo ... | toolgate stdio`."""
    async with toolgate("stdio", config={"one": child("counting")}, stdin=asyncio.subprocess.PIPE) as running:
        assert running.process.stdin
        running.process.stdin.write(HANDSHAKE + line(2, "tools/call", name="one__slow", arguments={"say": "done"}))
        running.process.stdin.close()
        assert (await answer_to(running, 2))["result"]["content"][0]["text"] == "done"
        assert await running.ended() == 0


@real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
async def test_stdio_told_to_stop_ends_cleanly_with_nothing_left(number: signal.Signals, tmp_path: Path) -> None:
    async with toolgate("stdio", config=families(tmp_path), stdin=asyncio.subprocess.PIPE) as running:
        assert running.process.stdin
        running.process.stdin.write(HANDSHAKE + line(2, "tools/list"))
        await answer_to(running, 2)
        pids = {pid for name in FAMILIES for pid in family_of(tmp_path / name)}
        running.signal_group(number)
        assert await running.ended() == 0
        assert b"INFO toolgate: ended" in running.errors and b"Traceback" not in running.errors
        await nothing_is_left(pids, tmp_path)


@pytest.mark.promise("b.lifecycle.killed")
@real
async def test_nothing_is_left_of_a_killed_stdio_gateway(tmp_path: Path) -> None:
    async with toolgate("stdio", config=families(tmp_path), stdin=asyncio.subprocess.PIPE) as running:
        assert running.process.stdin
        running.process.stdin.write(HANDSHAKE + line(2, "tools/list"))
        await answer_to(running, 2)
        pids = {pid for name in FAMILIES for pid in family_of(tmp_path / name)}
        running.process.kill()
        await running.ended()
        await nothing_is_left(pids, tmp_path)


@real
async def test_stdio_ends_when_nobody_reads_it_any_more() -> None:
    reading, writing = os.pipe()
    config = {"one": child("counting")}
    async with toolgate("stdio", config=config, stdin=asyncio.subprocess.PIPE, stdout=writing) as running:
        os.close(writing)
        assert running.process.stdin
        running.process.stdin.write(HANDSHAKE)
        assert os.read(reading, 1)
        os.close(reading)
        assert await running.ended() == 0


@real
async def test_stdio_reads_a_file_and_writes_a_file(tmp_path: Path) -> None:
    """As in `toolgate stdio < requests > answers`, and with `/dev/null` for its stdin."""
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_bytes((HANDSHAKE + line(2, "tools/call", name="one__slow", arguments={"say": "done"})).rstrip())
    for source, said in ((requests, {1, 2}), (Path("/dev/null"), set())):
        with source.open("rb") as stdin, answers.open("wb") as stdout:
            config = {"one": child("counting")}
            async with toolgate("stdio", config=config, stdin=stdin.fileno(), stdout=stdout.fileno()) as running:
                assert await running.ended() == 0, running.errors.decode()
        assert {json.loads(each)["id"] for each in answers.read_bytes().splitlines()} == said
