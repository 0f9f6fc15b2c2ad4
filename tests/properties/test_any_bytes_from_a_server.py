"""Any bytes of a server harm nobody: not the connection, not the calls of others, and every call of its own ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from properties.material import bodies, cut, damaged
from virtualtime import FakeClock, play, settle

from toolgate.config import Server
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.core.model import Accepted, Call, Client, Done, NeedInput, Outcome, Principal
from toolgate.core.notes import Notes
from toolgate.core.sse import Event, Reader, TooLong
from toolgate.eras import legacy, modern
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.links.base import Headers
from toolgate.upstreams.links.http1 import ConnectionPool, Target, Wire
from toolgate.upstreams.links.places import Places
from toolgate.upstreams.mcp.made_tasks import TaskOwners
from toolgate.upstreams.mcp.opening import INFO
from toolgate.upstreams.mcp.paging import read_list
from toolgate.upstreams.mcp.requests import Requests
from toolgate.upstreams.mcp.resubscribe import Wanted
from toolgate.upstreams.mcp.upstream_session import Connection

CLIENT = Client(Principal("ada"), "s", {"elicitation": {}, "sampling": {}, "roots": {}})
DIALECTS = [
    legacy.ToServer(mcp.LATEST["legacy"], legacy.Initialized("2025-11-25")),
    modern.ToServer(mcp.LATEST["modern"], modern.Discovered(("2026-07-28",)), INFO),
]


class Link:
    signs_of_life = None

    def send_now(self, data: bytes, headers: Headers, origin: int, whose: str) -> bool:
        return False

    async def send(self, data: bytes, headers: Headers = (), origin: int | None = None) -> None: ...

    def abandon(self, origin: int) -> bool:
        return False

    def describe(self) -> dict[str, object]:
        return {}

    async def close(self) -> None: ...


async def ended(outcome: Outcome) -> None:
    while isinstance(outcome, NeedInput):
        for ask in outcome.asks:
            outcome.resume.answer(ask.key, legacy.Answer(result=Raw(b"{}")))
        outcome = await outcome.resume.next()
    assert isinstance(outcome, Done | Accepted)


@settings(max_examples=300)
@given(st.lists(st.tuples(bodies, st.none() | st.integers(0, 4)), max_size=5), st.integers(0, 1), st.booleans())
@example([(b'{"jsonrpc":"2.0","id":1e999,"method":"elicitation/create","params":{}}', None)], 0, True)
@example([(b'{"jsonrpc":"2.0","method":"notifications/progress"}', None)], 0, False)
@example([(b'{"jsonrpc":"2.0","id":true,"result":{}}', 1)], 0, False)
def test_any_message_of_a_server_is_borne(told: list[tuple[bytes, int | None]], dialect: int, sole_owner: bool) -> None:
    async def conversation() -> None:
        async def again(call: Call) -> Outcome:
            return Done(b"{}")

        clock = FakeClock()
        server = Server(id="docs", name="docs", type="stdio", scope="principal" if sole_owner else "shared")
        requests = Requests(server, clock, again, lambda why, is_dead: None, lambda: None)
        Connection(requests, server, TaskOwners(), Wanted(), lambda event: None)
        requests.link, requests.dialect = Link(), DIALECTS[dialect]
        call = Call("tools/call", "t", CLIENT, notes=Notes(lambda note: None), wants_progress=True)
        calls = [asyncio.ensure_future(_called(requests, call)) for _ in range(2)]
        listing = asyncio.ensure_future(_listed(requests))
        await settle()
        for data, origin in told:
            requests.received(data, origin)
        await settle()
        await clock.sleep(3600)  # whatever the server said, every call ends in its time
        assert all(work.done() for work in (*calls, listing))
        for work in (*calls, listing):
            work.result()
        assert requests.in_flight == 0
        await requests.close()

    play(conversation())


async def _called(requests: Requests, call: Call) -> None:
    try:
        await ended(await requests.call(call))
    except Fault:
        pass


async def _listed(requests: Requests) -> None:
    try:
        await read_list(requests, "tools/list", "tools", CLIENT, Bounds())
    except Fault:
        pass


# Server-sent events.

lines = st.sampled_from([b"data: a", b"data:b", b"data", b"event: x", b"id: 7", b"retry: 5", b": c", b"", b"nope"])
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])
streams = st.lists(st.tuples(lines | st.binary(max_size=5), ends)).map(lambda found: b"".join(map(b"".join, found)))


def events(chunks: list[bytes]) -> list[Event]:
    reader = Reader(10_000)
    return [event for chunk in chunks for event in reader.feed(chunk)]


@given((streams | st.binary()).flatmap(lambda data: st.tuples(st.just(data), cut(data))))
@example((b"data: a\r\n\ndata: b\n\n", [b"data: a\r", b"\n", b"\ndata: b\n\n"]))
def test_events_are_the_same_wherever_a_stream_is_cut(told: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = told
    assert events(pieces) == events([whole])


@given(st.lists(streams | st.binary()), st.integers(0, 50))
def test_any_stream_is_read_or_refused(chunks: list[bytes], limit: int) -> None:
    reader = Reader(limit)
    try:
        for chunk in chunks:
            reader.feed(chunk)
    except TooLong:
        pass


# HTTP/1.1.


class Transport:
    def __init__(self) -> None:
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def writelines(self, parts: object) -> None: ...

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True


class Reply:
    def __init__(self) -> None:
        self.ends = 0
        self.heads: list[tuple[int, dict[bytes, bytes]]] = []
        self.kept: list[Wire] = []
        self.data = b""

    @property
    def heard(self) -> object:
        return self.ends, self.heads, self.data, len(self.kept)

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.heads.append((status, dict(headers)))

    def body(self, chunk: bytes) -> None:
        self.data += chunk

    def complete(self) -> None:
        self.ends += 1

    def lost(self, reason: str) -> None:
        self.ends += 1


ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n{}",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
]
answers = st.sampled_from(ANSWERS) | damaged(st.sampled_from(ANSWERS)) | st.binary()
pieces = st.lists(answers, max_size=2).flatmap(lambda found: cut(b"".join(found)))


async def nowhere(host: str, port: int) -> socket.socket:
    raise ConnectionRefusedError


class OneConnection(ConnectionPool):
    async def _connected(self, whose: str) -> Wire:
        raise ConnectionRefusedError


def exchanged(chunks: list[bytes], before: list[bytes] | None = None) -> Reply:
    """One request on a connection of its own, what comes back, and its end. Others of its pool had the answers
    `before`."""

    async def conversation() -> None:
        pool = OneConnection(
            Target("http://localhost/"), FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()), "there", 60.0
        )
        for each in before or ():
            earlier = Wire(pool)
            earlier.connection_made(Transport())  # type: ignore[arg-type]
            earlier.send(b"", b"", Reply())
            earlier.data_received(each)
            earlier.connection_lost(None)
            await settle()  # what comes may wait for its turn, where the machine is busy
        wire = Wire(pool)
        transport: Any = Transport()
        wire.connection_made(transport)
        wire.send(b"", b"", reply)
        for chunk in chunks:
            if not transport.is_closed:
                wire.data_received(chunk)
                await settle()
        reply.kept = await _taken(pool)
        wire.connection_lost(None)
        assert await _taken(pool) == []

    reply = Reply()
    play(conversation())
    return reply


async def _taken(pool: ConnectionPool) -> list[Wire]:
    """All connections that the pool has to give."""
    found: list[Wire] = []
    with contextlib.suppress(ConnectionRefusedError):
        for _ in range(5):
            found.append(await pool.take(""))
    return found


@settings(max_examples=300)
@given(pieces)
def test_any_answer_of_an_http_server_ends_its_request_once(chunks: list[bytes]) -> None:
    assert exchanged(chunks).ends == 1


@given(st.sampled_from(ANSWERS[:5]).flatmap(lambda data: st.tuples(st.just(data), cut(data))))
def test_an_http_answer_is_the_same_wherever_it_is_cut(told: tuple[bytes, list[bytes]]) -> None:
    whole, chunks = told
    one, many = exchanged([whole]), exchanged(chunks)
    assert (one.ends, one.heads, one.data) == (many.ends, many.heads, many.data)
    assert (one.ends, len(one.heads)) == (1, 1)


likely = st.sampled_from(ANSWERS[:1] * 3 + ANSWERS) | answers


@settings(max_examples=300)
@given(likely.flatmap(lambda data: st.tuples(st.just([data]), cut(data))), st.lists(likely, max_size=3))
@example(([], [ANSWERS[0] + b"{}"]), [ANSWERS[0]])
@example(([], [ANSWERS[6]]), [ANSWERS[6]])
@example(([], [ANSWERS[0][:-1]]), [ANSWERS[0]])
def test_an_answer_means_the_same_after_others_with_the_same_head(
    told: tuple[list[bytes], list[bytes]], before: list[bytes]
) -> None:
    for chunks in told:
        assert exchanged(chunks, before).heard == exchanged(chunks).heard


@pytest.mark.parametrize("chunks", [[ANSWERS[0] * 2], [ANSWERS[0]] * 2])
def test_a_connection_that_answers_what_nobody_asked_is_not_used_again(chunks: list[bytes]) -> None:
    assert exchanged(chunks).kept == []


def test_an_http_server_that_wants_to_speak_something_else_is_broken_off() -> None:
    assert exchanged([ANSWERS[5]]).kept == []
