"""A child that lives and says nothing any more is replaced; one that says anything is left alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
from cli.test_cli import NOTES
from processes.ground import MODERN, Client, alive, child, failure, gateway, real, settings, started, until

from toolgate.upstreams.mcp import watchdog


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "PATIENCE", 0.5)


async def pid_of(client: Client, server: str = "one") -> int:
    return int(await client.call(f"{server}__pid"))


@pytest.mark.promise("b.attacks.silence")
@real
@pytest.mark.parametrize("tool", ["mute", "deaf"])
async def test_a_child_that_closes_a_pipe_and_lives_is_replaced(tool: str) -> None:
    async with gateway(settings(one=child("leaving"))) as served:
        client = served.client()
        first = await pid_of(client)
        lost = asyncio.create_task(client.call(f"one__{tool}"))
        await until(lambda: not alive(first), 20)
        assert await pid_of(client) != first
        await asyncio.gather(lost, return_exceptions=True)


@pytest.mark.promise("b.attacks.silence")
@real
async def test_a_child_that_is_stopped_is_replaced_after_a_call_has_timed_out() -> None:
    async with gateway(settings(one=child("counting", timeout="1s"))) as served:
        client = served.client()
        first = await pid_of(client)
        os.kill(first, signal.SIGSTOP)
        assert (await failure(client.call("one__pid"))).data["code"] == "TIMEOUT"
        await until(lambda: not alive(first), 20)
        await until(lambda: served.status("one").state == "failed")
        assert "did not respond" in served.status("one").error
        assert await pid_of(client) != first


@real
async def test_a_child_of_the_newest_revision_that_is_stopped_is_replaced_too() -> None:
    async with gateway(settings(one={**NOTES, "timeout": "1s", "era": "modern"})) as served:
        client = served.client()
        assert await client.call("one__search_notes", query="x")
        first = served.status("one").pid
        assert served.status("one").revision == MODERN
        os.kill(first, signal.SIGSTOP)
        assert (await failure(client.call("one__search_notes", query="x"))).data["code"] == "TIMEOUT"
        await until(lambda: not alive(first), 20)
        assert await client.call("one__search_notes", query="x")


@real
async def test_a_child_whose_callers_give_up_before_its_time_is_replaced_too() -> None:
    async with gateway(settings(one=child("counting", timeout="1s"))) as served:
        client = served.client()
        first = await pid_of(client)
        os.kill(first, signal.SIGSTOP)
        _, writer = await client.start("tools/call", {"name": "one__pid"})
        await until(lambda: served.status("one").calls)
        writer.transport.abort()
        await until(lambda: not alive(first), 20)
        assert await pid_of(client) != first


@real
async def test_one_that_answers_a_ping_while_a_call_hangs_is_left_alone() -> None:
    async with gateway(settings(one=child("counting", timeout="1s"))) as served:
        client = served.client()
        first = await pid_of(client)
        assert (await failure(client.call("one__hold"))).data["code"] == "TIMEOUT"
        while "ping" not in [each["method"] for each in json.loads(await client.call("one__seen"))]:
            pass
        assert await pid_of(client) == first


@real
async def test_of_two_children_the_one_that_works_on_is_left_alone() -> None:
    async with gateway(settings(one=child("counting", timeout="1s"), two=child("counting", timeout="60s"))) as served:
        client = served.client()
        first, second = await pid_of(client), await pid_of(client, "two")
        held = asyncio.create_task(client.call("two__hold", say="undisturbed"))
        os.kill(first, signal.SIGSTOP)
        await failure(client.call("one__pid"))
        await until(lambda: first not in started(), 20)
        assert await pid_of(client) != first and await pid_of(client, "two") == second
        await client.call("two__release")
        assert await held == "undisturbed"


@real
async def test_a_child_gets_its_three_pipes_and_no_other_descriptor() -> None:
    async with gateway(settings(one=child("counting"))) as served:
        await pid_of(served.client())
        assert sorted(os.listdir(f"/proc/{served.status('one').pid}/fd"), key=int) == ["0", "1", "2"]
