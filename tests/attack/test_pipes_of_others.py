"""All that clients send to a shared server goes into one pipe: whoever fills it keeps nobody else waiting for long."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

import pytest
from attack.test_results_on_their_way import identify
from processes.ground import Client, Served, child, failure, gateway, real, settings, until
from processes.test_ws_link import Scripted, answer, listening
from virtualtime import FakeClock, settle

from toolgate.config import Config, Server
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.core.outflow import SHORT
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.outbox import Outbox
from toolgate.upstreams.links.stdio import StdioLink

LARGE = "x" * 1024 * 1024


class Pipe:
    """A pipe that has room for one message."""

    def __init__(self, **owners: range) -> None:
        self.clock = FakeClock()
        self.given_up = set[int]()
        self.written: list[bytes] = []
        self.error: Fault | None = None

        def whose(origin: int | None) -> str:
            return next((name for name, ids in owners.items() if origin in ids), "the server")

        told: Any = [print] * 5
        told[1] = lambda origin: origin not in self.given_up
        receiver = Receiver("", whose, *told)
        self.outbox = Outbox(Server(id="old", name="Old", type="stdio", timeout=60), self.clock, receiver, self._write)

    def _write(self, data: bytes) -> None:
        if self.error:
            raise self.error
        self.written.append(data)
        self.outbox.full()

    def send(self, *origins: int) -> list[asyncio.Task[None]]:
        return [asyncio.ensure_future(self.outbox.send(b"%d" % each, each)) for each in origins]

    async def read(self, times: int) -> list[int]:
        for _ in range(times):
            await settle()
            self.outbox.go_on()
        await settle()
        return [int(each) for each in self.written]


async def test_who_has_much_to_send_has_every_second_turn() -> None:
    pipe = Pipe(ann=range(100), bob=range(100, 200))
    sent = pipe.send(*range(10))
    await settle()
    sent += pipe.send(100, 101)
    assert await pipe.read(4) == [0, 1, 100, 2, 101]
    assert await pipe.read(8) == [0, 1, 100, 2, 101, *range(3, 10)]
    assert all(each.done() and not each.exception() for each in sent)


async def test_what_is_cancelled_while_it_waits_is_never_written() -> None:
    pipe = Pipe(ann=range(100), bob=range(100, 200))
    sent = pipe.send(*range(5), 100)
    await settle()
    for each in sent[1:4]:
        each.cancel()
    assert await pipe.read(4) == [0, 4, 100]
    sent += pipe.send(101)
    await settle()
    sent[-1].cancel("too late: it is in the pipe")
    assert await pipe.read(2) == [0, 4, 100, 101]


async def test_a_turn_that_comes_as_its_call_is_cancelled_goes_on_to_the_next() -> None:
    pipe = Pipe(ann=range(100))
    sent = pipe.send(1, 2, 3)
    await settle()
    pipe.outbox.go_on()
    sent[1].cancel()
    await settle()
    assert pipe.written == [b"1", b"3"]
    assert sent[1].cancelled() and not sent[2].exception()


async def test_what_waits_for_longer_than_a_call_may_take_is_not_sent_and_no_failure_of_the_server() -> None:
    pipe = Pipe(ann=range(100), bob=range(100, 200))
    sent = pipe.send(1, 2, 100)
    await pipe.clock.sleep(61)
    await settle()
    for each in sent[1:]:
        fault = each.exception()
        assert isinstance(fault, Fault)
        assert (fault.code, fault.reach) == ("TIMEOUT", "not_sent")
    assert await pipe.read(3) == [1]


async def test_a_request_that_has_timed_out_is_not_sent_when_its_turn_comes() -> None:
    pipe = Pipe(ann=range(100))
    sent = pipe.send(1, 2, 3)
    await settle()
    pipe.given_up.add(2)
    assert await pipe.read(2) == [1, 3]
    fault = sent[1].exception()
    assert isinstance(fault, Fault) and fault.reach == "not_sent"


async def test_when_the_pipe_is_closed_each_that_waits_hears_why() -> None:
    pipe = Pipe(ann=range(100))
    sent = pipe.send(*range(20))
    await settle()
    pipe.error = Fault("SESSION_ERROR", "Old has ended", reach="not_sent")
    pipe.outbox.end()
    await settle()
    assert {str(each.exception()) for each in sent[1:]} == {str(pipe.error)}


async def test_short_messages_that_fill_the_pipe_at_the_end_of_a_round_keep_the_next_back_as_a_long_one_does() -> None:
    link = StdioLink(Server(id="old", name="Old", type="stdio"), cast(Any, None), FakeClock(), IntakeQueue())
    link._child = cast(Any, mock.Mock(write=lambda data: link._outbox.full()))
    for message in (b"{}", b"{}", b"x" * 2 * SHORT, b"{}"):
        assert link.send_now(message, (), 1, "ann")
        await settle()
        assert not link.send_now(message, (), 2, "ann")
        link._outbox.go_on()
    assert link._outbox.take_now()
    assert not link._outbox.take_now(), "there is one turn, however often the pipe was full"


# Real pipes.


def client(served: Served, name: str) -> Client:
    made = served.client()
    made.headers = [f"Authorization: {name}"]
    return made


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """It reads nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def waiting(served: Served) -> Any:
    """The outbox of a shared stdio server."""
    [session] = served.app.gateway.snapshot.upstreams["one"]._sessions.values()
    return session.live.requests.link._outbox


@real
async def test_a_stdio_server_hears_of_each_client_in_turn() -> None:
    async with gateway(settings(one=child("noting")), identify=identify) as served:
        ann, bob = client(served, "ann"), client(served, "bob")
        pid = int(await bob.call("one__note", says="bob"))
        outbox = waiting(served)
        with stopped(pid):
            hers = [asyncio.create_task(ann.call("one__note", says="ann", more=LARGE)) for _ in range(12)]
            await until(lambda: outbox.waiting == 11)
            small = [asyncio.create_task(ann.call("one__note", says="ann")) for _ in range(3)]
            his = asyncio.create_task(bob.call("one__note", says="bob"))
            await until(lambda: outbox.waiting == 15)
            for each in hers[6:]:
                each.cancel()
            await until(lambda: outbox.waiting == 9)
        assert int(await his) == pid
        await asyncio.gather(*hers[:6], *small)
        notes = json.loads(await bob.call("one__noted"))
        assert "bob" in notes[1:4], "after the one that was in the pipe already, and one more"
        assert notes.count("ann") == 9, "those that were cancelled while they waited are not sent"


def served_by(server: Scripted) -> Config:
    return settings(one={"type": "ws", "url": f"ws://127.0.0.1:{server.port}"})


@pytest.mark.parametrize("is_cancelled", [True, False])
@real
async def test_a_websocket_server_hears_of_each_client_in_turn(
    is_cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    given: list[int | None] = []
    send = Outbox.send

    def noted(outbox: Outbox, data: bytes, origin: int | None) -> Any:
        given.append(origin)
        return send(outbox, data, origin)

    monkeypatch.setattr(Outbox, "send", noted)

    async def stop_reading(connection: Any, message: Any) -> None:
        heard.append(message["params"]["arguments"]["says"])
        if "stop" in message["params"]["arguments"]:
            connection.transport.pause_reading()
        await answer(connection, message)

    server = Scripted(stop_reading)
    async with listening(server, max_size=None), gateway(served_by(server), identify=identify) as served:
        ann, bob = client(served, "ann"), client(served, "bob")
        await bob.call("one__act", says="bob", stop=True)  # and from here on it does not read
        outbox = waiting(served)
        given.clear()
        hers = [asyncio.create_task(ann.call("one__act", says="ann", more=4 * LARGE)) for _ in range(8)]
        await until(lambda: len(given) == 8)
        before = 8 - outbox.waiting
        assert before < 4
        his = asyncio.create_task(bob.call("one__act", says="bob"))
        await until(lambda: len(given) == 9)
        if is_cancelled:
            for each in hers:
                each.cancel()
            await until(lambda: outbox.waiting == 1)
        server.connections[0].transport.resume_reading()
        assert await his == "ok"
        await asyncio.gather(*hers, return_exceptions=True)
        assert "bob" in heard[1 : before + 3], "after what was in the pipe already, and one more"
        assert heard.count("ann") == before if is_cancelled else 8


@real
async def test_calls_that_found_no_room_go_to_the_next_process() -> None:
    """What was in the pipe is lost, and may have run."""
    async with gateway(settings(one=child("leaving"), two=child("counting"))) as served:
        first = served.client()
        await first.tools()
        pid = await first.call("one__pid")
        lost = [asyncio.create_task(failure(first.call("one__stall")))]
        await until(lambda: served.status("one").calls)
        lost.append(asyncio.create_task(failure(first.call("one__pid", says=LARGE))))
        await until(lambda: served.status("one").calls == 2)
        calls = [asyncio.create_task(first.call("one__pid", says=LARGE)) for _ in range(6)]
        outbox = waiting(served)
        await until(lambda: outbox.waiting == 6)
        assert await first.call("two__pid")
        os.kill(int(pid), signal.SIGKILL)
        assert [error.data["outcome"] for error in await asyncio.gather(*lost)] == ["sent_unknown"] * 2
        [next_pid] = set(await asyncio.gather(*calls))
        assert next_pid != pid
