"""Servers made with the official SDK, as processes: their own streams, their cut streams, their older transport, and
that they come back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from processes.ground import CHILDREN, STREAM, Served, failure, gateway, read_events, real, settings, until

LEGACY = "2025-06-18"


class Running:
    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        assert self.process.stdout
        await self.process.stdout.read()


@asynccontextmanager
async def sdk(transport: str, port: int = 0) -> AsyncIterator[Running]:
    command = [sys.executable, str(CHILDREN / "sdk.py"), transport, str(port)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    running = Running(process, int(await process.stdout.readline()))
    try:
        yield running
    finally:
        await running.kill()


@asynccontextmanager
async def behind(transport: str, type: str = "") -> AsyncIterator[tuple[Served, Running]]:
    async with sdk(transport) as running:
        path = "sse" if transport == "sse" else "mcp"
        config = {"type": type or transport, "url": f"http://127.0.0.1:{running.port}/{path}"}
        async with gateway(settings(one=config)) as served:
            yield served, running


KINDS = [("http", "http"), ("sse", "sse"), ("sse", "http")]


@pytest.mark.promise("spec.legacy.http.listen-upstream", "spec.legacy.http.sse-fallback")
@pytest.mark.parametrize(("transport", "type"), KINDS, ids=["http", "sse", "sse behind a url"])
@real
async def test_calls_questions_and_changes(transport: str, type: str) -> None:
    async with behind(transport, type) as (served, _):
        client = served.client(LEGACY)
        await client.open(elicitation={})
        assert await client.call("one__add", a=1, b=2) == "3"
        events: list[object] = []
        served.app.events.listen(events.append)
        assert await client.call("one__change") == "changed"
        await until(lambda: events)
        assert "one__added" in await client.tools()
        reader, writer = await client.start("tools/call", {"name": "one__ask"}, accept=STREAM)
        question = await anext(read_events(reader))
        await client.reply(question["id"], {"action": "accept", "content": {"sure": True}})
        assert (await anext(read_events(reader)))["result"]["content"][0]["text"] == "accept"
        writer.close()


@pytest.mark.promise("spec.legacy.http.resume-upstream")
@real
async def test_a_server_that_cuts_its_streams_is_polled() -> None:
    async with behind("http") as (served, _):
        client = served.client()
        params = {"name": "one__poll", "arguments": {"times": 3}, "_meta": {"progressToken": "mine"}}
        reader, writer = await client.start("tools/call", params, accept=STREAM)
        events = read_events(reader)
        assert (await anext(events))["params"]["progress"] == 0.5
        assert await client.call("one__go") == "it goes"
        told = [event async for event in events]
        assert [event["params"]["progress"] for event in told[:-1]] == [1, 2, 3]
        assert told[-1]["result"]["content"][0]["text"] == "polled 3 times"
        writer.close()


@pytest.mark.promise("b.faults.404")
@pytest.mark.parametrize("transport", ["http", "sse"])
@real
async def test_a_server_that_is_killed_and_started_again_answers_the_next_call(transport: str) -> None:
    async with behind(transport) as (served, running):
        client = served.client()
        assert await client.call("one__add", a=1, b=2) == "3"
        await running.kill()
        error = await failure(client.call("one__add", a=1, b=2))
        assert error.data["outcome"] == "not_sent"
        async with sdk(transport, running.port):
            assert await client.call("one__add", a=3, b=4) == "7"
