"""What a child over stdio may do and be: many calls at once, noise, long lines, no program behind it, one's own."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest
from processes.ground import (
    LEGACY,
    MODERN,
    Client,
    Json,
    alive,
    child,
    failure,
    family_of,
    gateway,
    real,
    settings,
    started,
    until,
)

from toolgate.upstreams.process import supervisor


async def counts(client: Client) -> Json:
    return json.loads(await client.call("one__counts"))


@pytest.mark.promise("b.lifecycle.multiplex", "spec.2026.headers.case")
@real
@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_32_calls_to_one_child_are_in_flight_together(era: str) -> None:
    async with gateway(settings(one=child("counting"))) as served:
        client = served.client(era)
        await client.tools()
        held = [asyncio.ensure_future(client.call("one__hold", say=str(number))) for number in range(32)]
        while (await counts(client))["now"] < 32:
            pass
        await client.call("one__release")
        assert await asyncio.gather(*held) == [str(number) for number in range(32)]


@real
async def test_an_answer_that_is_no_json_inside_fails_its_call_only() -> None:
    async with gateway(settings(one=child("broken"))) as served:
        client = served.client()
        error = await failure(client.call("one__breaks"))
        assert (error.data["code"], error.data["outcome"]) == ("UPSTREAM_ERROR", "executed")
        assert await client.call("one__works") == "fine"


@pytest.mark.promise("000.sessions.queue")
@real
async def test_with_concurrency_1_calls_queue() -> None:
    async with gateway(settings(one=child("counting", concurrency=1))) as served:
        client = served.client()
        said = await asyncio.gather(*(client.call("one__slow", say=str(number)) for number in range(4)))
        assert said == [str(number) for number in range(4)]
        assert (await counts(client))["most"] == 1


async def seen(client: Client) -> list[Json]:
    return json.loads(await client.call("one__seen"))


@pytest.mark.promise("000.sessions.persist", "spec.2026.ids.unique")
@real
async def test_ids_are_never_reused_on_a_connection() -> None:
    """Whether calls are answered, fail, time out or are cancelled."""
    async with gateway(settings(one=child("counting", timeout="1s"))) as served:
        client = served.client()
        await asyncio.gather(*(client.call("one__slow") for _ in range(10)))
        assert (await failure(client.call("one__hold"))).data["code"] == "TIMEOUT"
        _, writer = await client.start("tools/call", {"name": "one__hold"})
        while (await counts(client))["now"] < 2:
            pass
        writer.transport.abort()
        while (await counts(client))["cancelled"] < 2:
            pass
        await asyncio.gather(*(client.call("one__slow") for _ in range(10)))
        messages = await seen(client)
        ids = [message["id"] for message in messages if message["id"] is not None]
        assert len(ids) > 25
        assert len(set(ids)) == len(ids)
        cancelled = [m["params"]["requestId"] for m in messages if m["method"] == "notifications/cancelled"]
        held = [m["id"] for m in messages if m["method"] == "tools/call" and m["params"]["name"] == "hold"]
        assert cancelled == held


@pytest.mark.promise("spec.2026.stdio.child-noise")
@real
async def test_the_last_64_KiB_of_stderr_are_kept() -> None:
    async with gateway(settings(one=child("noisy"))) as served:
        client = served.client()
        assert served.status("one").stderr == ""
        await client.tools()
        await until(lambda: served.status("one").stderr == "a warning at the start\n")
        assert await client.call("one__shout") == "shouted"
        await until(lambda: served.status("one").stderr.endswith(f"{16 * 1024 - 1:063d}\n"))
        assert len(served.status("one").stderr) == supervisor.STDERR_KEPT == 65536
        assert served.status("one").stderr.startswith(f"{15 * 1024:063d}\n")


@pytest.mark.promise("spec.2026.stdio.child-noise")
@real
async def test_noise_on_stdout_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolgate")
    async with gateway(settings(one=child("noisy"))) as served:
        assert [await served.client().call("one__echo", say=str(number)) for number in range(3)] == ["0", "1", "2"]
        assert served.status("one").state == "ready"
    for noise in ("Welcome to the noisy server!", "Listening...", "[1, 2]", "{no json", "neither", "null"):
        assert noise in caplog.text


@real
async def test_a_line_of_ten_megabytes_is_one_message_both_ways() -> None:
    async with gateway(settings(one=child("wordy"))) as served:
        length = 10 * 1024 * 1024
        assert await served.client().call("one__talk", length=length) == "x" * length
        assert await served.client().call("one__listen", say="é" * (length // 4)) == str(length // 4)


@real
async def test_a_child_that_reads_nothing_is_not_fed_without_end() -> None:
    async with gateway(settings(one=child("leaving", timeout="1s"), two=child("counting"))) as served:
        client = served.client()
        await client.tools()
        calls = [asyncio.create_task(failure(client.call("one__stall")))]
        for _ in range(7):
            calls.append(asyncio.create_task(failure(client.call("one__pid", say="x" * 1024 * 1024))))
        errors = [error.data for error in await asyncio.gather(*calls)]
        assert {error["code"] for error in errors} == {"TIMEOUT"}
        assert [error["outcome"] for error in errors].count("sent_unknown") == 2, "the rest waited for room"
        assert await client.call("two__pid")


@real
async def test_a_command_that_is_not_there_is_named_with_its_mend() -> None:
    missing = {"command": "no-such-program", "args": ["x"]}
    async with gateway(settings(one=missing, two=child("counting"))) as served:
        client = served.client()
        error = await failure(client.call("one__anything"))
        assert error.message == "Server not started: Command not found: no-such-program"
        assert error.data["code"] == "SERVER_FAILED"
        assert error.data["outcome"] == "not_sent"
        assert "install no-such-program" in error.data["hint"]
        assert served.status("one").state == "failed"
        assert served.status("one").error == "Command not found: no-such-program"
        assert await client.call("two__pid")


@real
async def test_a_folder_or_a_program_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    text.chmod(0o644)
    servers = {
        "lost": child("counting", cwd=str(tmp_path / "nowhere")),
        "text": {"command": str(text)},
        "folder": {"command": str(tmp_path)},
    }
    async with gateway(settings(**servers)) as served:
        client = served.client()
        lost = await failure(client.call("lost__pid"))
        assert str(tmp_path / "nowhere") in lost.message
        assert (lost.data["code"], lost.data["outcome"]) == ("SERVER_FAILED", "not_sent")
        text_error = await failure(client.call("text__pid"))
        assert text_error.message == f"Server not started: Permission denied: {text}"
        assert f"chmod +x {text}" in text_error.data["hint"]
        for name in ("text", "folder"):
            error = await failure(client.call(f"{name}__pid"))
            assert str(tmp_path) in error.message
            assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")


@real
async def test_a_command_with_a_path_is_looked_for_where_the_child_will_run(tmp_path: Path) -> None:
    program = tmp_path / "server"
    script = child("counting")["args"]
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S '{script[1]}'\n")
    program.chmod(0o755)
    async with gateway(settings(one={"command": "./server", "cwd": str(tmp_path)})) as served:
        assert await served.client().call("one__slow", say="found") == "found"


@real
async def test_a_crash_at_the_start_is_told_with_what_stands_on_stderr() -> None:
    async with gateway(settings(one=child("crashing"), two=child("counting"))) as served:
        client = served.client()
        error = await failure(client.call("one__anything"))
        assert "exited with status 1" in error.message
        assert error.data["code"] == "SERVER_FAILED"
        assert "doctor" in error.data["hint"]
        status = served.status("one")
        assert (status.state, status.pid) == ("failed", None)
        assert "No module named 'a_module_that_nobody_has'" in status.stderr
        assert {tool.partition("__")[0] for tool in await client.tools()} == {"two"}


@real
async def test_a_program_that_ends_before_it_is_spoken_to_is_told_with_its_status() -> None:
    async with gateway(settings(one={"command": "/bin/sh", "args": ["-c", "echo no >&2; exit 3"]})) as served:
        for _ in range(4):  # a fifth failure opens the circuit breaker
            error = await failure(served.client().call("one__anything"))
            assert error.message == "Server not started: one exited with status 3: no"
            assert error.data["outcome"] == "not_sent"


@real
async def test_a_variable_that_is_not_set_fails_its_own_server_only() -> None:
    two = child("counting", env={"TOKEN": "${SUCH_A_TOKEN}"})
    three = child("counting", env={"TOKEN": "${SUCH_A_TOKEN:-spare}"})
    async with gateway(settings(one=child("counting"), two=two, three=three)) as served:
        client = served.client()
        error = await failure(client.call("two__pid"))
        assert "SUCH_A_TOKEN" in error.message
        assert (error.data["code"], error.data["outcome"]) == ("SERVER_FAILED", "not_sent")
        assert "SUCH_A_TOKEN" in served.status("two").error
        environment = Path(f"/proc/{await client.call('three__pid')}/environ").read_bytes().split(b"\0")
        assert b"TOKEN=spare" in environment
        assert not [pid for pid in started() if pid == served.status("two").pid]
        assert await client.call("one__pid")


@real
async def test_a_child_gets_its_own_environment_and_not_the_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_GATEWAY", "x")
    async with gateway(settings(one=child("counting", env={"ITS_OWN": "1"}))) as served:
        environment = Path(f"/proc/{await served.client().call('one__pid')}/environ").read_bytes()
        names = {entry.partition(b"=")[0] for entry in environment.split(b"\0") if entry}
        assert names <= {b"PATH", b"HOME", b"TMPDIR", b"LANG", b"LC_CTYPE", b"ITS_OWN"}
        assert {b"PATH", b"HOME", b"ITS_OWN"} <= names


# `scope: session`: a child for each session, which ends with it.


@pytest.mark.promise("b.lifecycle.scopes")
@real
async def test_each_session_has_a_child_of_its_own_that_ends_with_it() -> None:
    async with gateway(settings(one=child("counting", scope="session"))) as served:
        ann, bob = served.client(LEGACY), served.client(LEGACY)
        await ann.open()
        await bob.open(roots={})
        hers, his = int(await ann.call("one__pid")), int(await bob.call("one__pid"))
        assert hers != his
        assert int(await ann.call("one__pid")) == hers
        await ann.end()
        await until(lambda: not alive(hers))
        assert int(await bob.call("one__pid")) == his
        await bob.end()
        await until(lambda: not alive(his))


@pytest.mark.promise("b.lifecycle.killed")
@real
async def test_a_session_that_ends_while_its_child_starts_leaves_none(tmp_path: Path) -> None:
    async with gateway(settings(one=child("family", str(tmp_path / "pids"), scope="session"))) as served:
        client = served.client(LEGACY)
        before = set(started())
        await client.open()
        _, writer = await client.start("tools/list")
        await until(lambda: set(started()) - before)
        await client.end()
        await until(lambda: not set(started()) - before)
        writer.transport.abort()
        if (tmp_path / "pids").exists():
            await until(lambda: not any(alive(pid) for pid in family_of(tmp_path / "pids")))


@real
async def test_a_childs_end_in_one_session_is_nothing_to_another() -> None:
    async with gateway(settings(one=child("leaving", scope="session"))) as served:
        ann, bob = served.client(LEGACY), served.client(LEGACY)
        await ann.open()
        await bob.open()
        his = await bob.call("one__pid")
        assert (await failure(ann.call("one__crash"))).data["outcome"] == "sent_unknown"
        assert await bob.call("one__pid") == his
        assert await ann.call("one__pid") != his


@real
async def test_a_principals_child_outlives_each_of_its_sessions() -> None:
    """`scope: principal`: another session of the same principal may be in the middle of a call."""
    async with gateway(settings(one=child("counting", scope="principal"))) as served:
        ann, again = served.client(LEGACY), served.client(LEGACY)
        await ann.open()
        await again.open()
        pid = int(await ann.call("one__pid"))
        held = asyncio.create_task(again.call("one__hold", say="undisturbed"))
        while (await counts(ann))["now"] < 1:
            pass
        await ann.end()
        third = served.client(LEGACY)
        await third.open()
        assert int(await third.call("one__pid")) == pid
        await third.call("one__release")
        assert await held == "undisturbed"
