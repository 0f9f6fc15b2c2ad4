"""Clients that connect and vanish, at any moment and in any number, leave nothing behind in the gateway."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest
from processes.ground import (
    LEGACY,
    MODERN,
    STREAM,
    Client,
    Json,
    Served,
    child,
    gateway,
    open_files,
    real,
    settings,
    started,
    until,
)

CLIENTS = 200


class Baseline:
    """What the gateway has when nobody is there; taken after its children have started."""

    def __init__(self) -> None:
        self.tasks = len(asyncio.all_tasks())
        self.files = open_files()
        self.children = sorted(started())

    async def returns(self) -> None:
        try:
            await until(self._is_back)
        except TimeoutError:
            raise AssertionError(f"{Baseline()}, not {self}; {asyncio.all_tasks()}") from None

    def _is_back(self) -> bool:
        now = Baseline()
        return now.tasks <= self.tasks and now.files <= self.files and now.children == self.children

    def __repr__(self) -> str:
        return f"{self.tasks} tasks, {self.files} files, children {self.children}"


def reset(writer: asyncio.StreamWriter) -> None:
    """Vanish as a killed machine's connection does: with a reset instead of a goodbye."""
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def counts(client: Client) -> Json:
    return json.loads(await client.call("one__counts"))


async def in_flight(client: Client, number: int) -> None:
    """Until the child has this many calls."""
    while (await counts(client))["now"] < number:
        await asyncio.sleep(0)


async def settled(served: Served) -> Baseline:
    for era in (MODERN, LEGACY):
        await counts(served.client(era))
    await until(lambda: len(asyncio.all_tasks()) <= 9)
    return Baseline()


@pytest.mark.promise("spec.2026.headers.case", "spec.2026.sse.disconnect")
@real
@pytest.mark.parametrize("vanish", [reset, asyncio.StreamWriter.close], ids=["reset", "close"])
@pytest.mark.parametrize("accept", ["application/json", STREAM], ids=["json", "stream"])
async def test_modern_clients_that_vanish_in_the_middle_of_calls(vanish, accept: str) -> None:
    """Their calls are cancelled at their server."""
    async with gateway(settings(one=child("counting"))) as served:
        observer = served.client()
        before = await settled(served)
        streams = [
            await served.client().start("tools/call", {"name": "one__hold"}, accept=accept) for _ in range(CLIENTS)
        ]
        await in_flight(observer, CLIENTS)
        for _, writer in streams:
            vanish(writer)
        while (await counts(observer))["cancelled"] < CLIENTS:
            await asyncio.sleep(0)
        del streams, writer
        await before.returns()
        assert not served.app.parking
        assert await observer.call("one__slow", say="unharmed") == "unharmed"


@pytest.mark.promise("spec.legacy.http.disconnect")
@real
async def test_legacy_clients_that_vanish_have_not_cancelled() -> None:
    """Their calls run to their end, and then nothing is left of them but their sessions."""
    async with gateway(settings(one=child("counting"))) as served:
        observer = served.client()
        before = await settled(served)
        for accept in ("application/json", STREAM):
            streams = [
                await served.client(LEGACY).start("tools/call", {"name": "one__hold"}, accept=accept)
                for _ in range(CLIENTS // 2)
            ]
            await in_flight(observer, CLIENTS // 2)
            for number, (_, writer) in enumerate(streams):
                (reset if number % 2 else asyncio.StreamWriter.close)(writer)
            del streams, writer
            await until(lambda: open_files() <= before.files)
            assert (await counts(observer))["now"] == CLIENTS // 2
            assert await observer.call("one__release") == "released"
            await before.returns()
        assert (await counts(observer))["cancelled"] == 0


@real
async def test_legacy_calls_of_vanished_clients_end_with_their_timeout_too() -> None:
    async with gateway(settings(one=child("counting", timeout="2s"))) as served:
        before = await settled(served)
        streams = [await served.client(LEGACY).start("tools/call", {"name": "one__hold"}) for _ in range(CLIENTS)]
        for _, writer in streams:
            reset(writer)
        del streams, writer
        await before.returns()


@real
async def test_sessions_with_a_child_each_whose_clients_vanish_leave_no_child() -> None:
    """`DELETE` never comes: a session ends as an idle one does, and its child with it."""
    config = settings(one=child("counting", scope="session"), two=child("counting"))
    async with gateway(config) as served:
        await served.client().call("two__pid")
        before = Baseline()
        clients = [served.client(LEGACY) for _ in range(8)]
        for client in clients:
            await client.open()
        streams = [await client.start("tools/call", {"name": "one__hold"}, accept=STREAM) for client in clients]
        await until(lambda: len(started()) == len(before.children) + len(clients))
        for _, writer in streams:
            reset(writer)
        del streams, writer
        for session in served.app.sessions.all():
            served.app.sessions.end(session)
        await before.returns()


@real
@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_clients_that_vanish_before_their_request_is_whole(era: str) -> None:
    async with gateway(settings(one=child("counting"))) as served:
        before = await settled(served)
        request = served.client(era).request("tools/call", {"name": "one__hold", "arguments": {"say": "x" * 1000}})
        writers = []
        for number in range(CLIENTS):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(request[: number * len(request) // CLIENTS])
            await writer.drain()
            writers.append(writer)
        for number, writer in enumerate(writers):
            (reset if number % 2 else asyncio.StreamWriter.close)(writer)
        del writers, writer
        await before.returns()
        assert (await counts(served.client()))["most"] == 0


@real
async def test_clients_that_vanish_from_their_own_streams() -> None:
    """The GET stream of a legacy session."""
    async with gateway(settings(one=child("counting"))) as served:
        before = await settled(served)
        client = served.client(LEGACY)
        await client.open()
        assert client.session
        head = b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: %b\r\n\r\n"
        writers = []
        for _ in range(CLIENTS):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(head % client.session)
            assert b"200 OK" in await reader.readline()
            writers.append(writer)
        for number, writer in enumerate(writers):
            (reset if number % 2 else asyncio.StreamWriter.close)(writer)
        del writers, writer, reader
        await before.returns()


@real
async def test_clients_that_vanish_while_a_large_answer_is_on_its_way() -> None:
    """They read nothing of it, so the gateway holds it until they are gone."""
    async with gateway(settings(one=child("wordy"))) as served:
        observer = served.client()
        await observer.tools()
        await observer.call("one__talk", length=1)
        await until(lambda: len(asyncio.all_tasks()) <= 9)
        before = Baseline()
        arguments = {"name": "one__talk", "arguments": {"length": 4 * 1024 * 1024}}
        for era in (MODERN, LEGACY):
            streams = [await served.client(era).start("tools/call", arguments) for _ in range(20)]
            for reader, _ in streams:
                assert b"200" in await reader.readline()
            for _, writer in streams:
                reset(writer)
            del streams, writer, reader
            await before.returns()
