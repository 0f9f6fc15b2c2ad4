"""A server over HTTP that sends without end what nobody needs: nobody reads on, whatever it was the answer to, and
little of it is kept."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import bodies
from toolgate.core.inflow import IntakeQueue
from toolgate.upstreams.links import http, http1, sse, whole
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.http import HttpLink
from toolgate.upstreams.links.http1 import ConnectionPool, Wire
from toolgate.upstreams.links.places import Places
from toolgate.upstreams.links.sse import SseLink
from toolgate.upstreams.links.unended import Unended
from toolgate.upstreams.links.whole import HttpClient, Lost

MOST = 20_000  # bytes of a message, in these tests
ENOUGH = 200_000
NOTE = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Connection:
    """The server's end of one. What the gateway has asked on it is `asked`."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.wire = Wire(pool)
        self.asked = b""
        self.is_closed = False
        self.is_paused = False
        self.wire.connection_made(self)  # type: ignore[arg-type]

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None:
        self.asked += data

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.asked += b"".join(parts)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.wire.connection_lost, None)

    abort = close

    async def says(self, data: bytes) -> None:
        for start in range(0, len(data), 4096):
            while self.is_paused and not self.is_closed:
                await asyncio.sleep(0)
            if not self.is_closed:
                self.wire.data_received(data[start : start + 4096])
        while self.is_paused and not self.is_closed:
            await asyncio.sleep(0)

    async def goes_on(self, more: bytes) -> int:
        """How many bytes are read of this again and again, until the connection is closed."""
        read = 0
        while not self.is_closed and read < ENOUGH:
            await self.says(more)
            read += len(more)
        return read


class Heard:
    """Who is told of what comes."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.faults: list[Any] = []
        self.owed = {1}
        self.receiver = Receiver(
            "",
            lambda id: "",
            lambda data, origin: (self.messages.append(data), self.owed.clear())[1],
            lambda id: id in self.owed,
            lambda id, fault: (self.faults.append(fault), self.owed.clear())[1],
            self.faults.append,
            self.faults.append,
        )


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Those that the gateway has opened. What may come on them is little."""
    found: list[Connection] = []

    async def connect(pool: ConnectionPool, whose: str) -> Wire:
        found.append(Connection(pool))
        pool._all.add(found[-1].wire)
        pool._places.used(found[-1].wire, whose)
        return found[-1].wire

    monkeypatch.setattr(ConnectionPool, "_connected", connect)
    for module, name in (
        (http, "LONGEST_BODY"),
        (http, "LONGEST_UNAWAITED"),
        (sse, "LONGEST_MESSAGE"),
    ):
        monkeypatch.setattr(module, name, MOST)
    monkeypatch.setattr(sse, "_LONGEST_REFUSAL", MOST)
    monkeypatch.setattr(whole, "LONGEST_MESSAGE", MOST)
    monkeypatch.setattr(http1, "MOST_BESIDE", MOST)
    return found


async def nowhere(host: str, port: int) -> Any:
    raise ConnectionRefusedError


@asynccontextmanager
async def over_http(heard: Heard) -> AsyncGenerator[HttpLink]:
    server = Server(id="wild", name="Wild", type="http", url="http://localhost/mcp")
    link = HttpLink(server, heard.receiver, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()))
    yield link
    await link.close()
    await settle()


# Messages.

BEGUN = {
    "an event": (STREAM + b"\r\ndata: ", b"x" * 4096),
    "an event of lines": (STREAM + b"\r\n", b"data: x\n" * 500),
    "an event in chunks": (STREAM + CHUNKED + b"\r\n" + chunk(b"data: "), chunk(b"x" * 100) * 40),
    "a body": (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", b'{"a":' * 800),
    "a body in chunks": (b"HTTP/1.1 202 Accepted\r\n" + CHUNKED + b"\r\n", chunk(b"x" * 100) * 40),
    "a refusal": (b"HTTP/1.1 500 No\r\n\r\n", b"x" * 4096),
}


@pytest.mark.parametrize("origin", [None, 1], ids=["note", "request"])
@pytest.mark.parametrize("kind", BEGUN)
async def test_a_message_without_end_is_read_no_further_whatever_it_answers(
    connections: list[Connection], kind: str, origin: int | None
) -> None:
    heard = Heard()
    begin, more = BEGUN[kind]
    async with over_http(heard) as link:
        await link.send(NOTE, origin=origin)
        await connections[0].says(begin)
        assert await connections[0].goes_on(more) < 2 * MOST + len(more) * 8
        assert not link._receipts._expected and not link._streams and not link._pool._idle
        assert not heard.messages
        assert len(heard.faults) == (origin is not None)


@pytest.mark.parametrize("kind", ["an event", "an event of lines", "a refusal"])
async def test_nothing_without_end_is_read_where_the_gateway_listens(connections: list[Connection], kind: str) -> None:
    begin, more = BEGUN[kind]
    async with over_http(Heard()) as link:
        await link.listen(())
        await settle()
        [listening] = connections
        assert listening.asked.startswith(b"GET ")
        await listening.says(begin)
        assert await listening.goes_on(more) < 2 * MOST + len(more) * 8
        await settle()
        assert connections == [listening]  # nor asked for again


async def test_however_much_is_said_of_no_request_those_answered_that_way_are_looked_for_now_and_then(
    connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look is at all that is under way. What has begun of an answer that nobody needs is let go of then."""
    monkeypatch.setattr(http, "LONGEST_UNAWAITED", 100)
    heard = Heard()
    looks: list[int] = []
    async with over_http(heard) as link:
        await link.send(NOTE, origin=1)
        await connections[0].says(STREAM + b"\r\ndata: " + b"x" * 200)
        monkeypatch.setattr(link, "awaits", lambda id: looks.append(id) or id in heard.owed)
        for _ in range(100):
            link.received(ANSWER, None)
        await link._clock.sleep(2 * http.SOON)
        assert looks == [1] and connections[0].is_closed and not link._streams


async def test_a_stream_that_goes_on_after_the_answer_is_let_go_of_and_one_that_ends_leaves_its_connection(
    connections: list[Connection],
) -> None:
    for ends in (True, False):
        async with over_http(Heard()) as link:
            await link.send(NOTE, origin=1)
            answering = connections[-1]
            await answering.says(STREAM + CHUNKED + b"\r\n" + chunk(b"data: " + ANSWER + b"\n\n"))
            await link._clock.sleep(http.SOON)
            assert not answering.is_closed
            if ends:
                await answering.says(b"0\r\n\r\n")
            await link._clock.sleep(http.SOON)
            assert answering.is_closed is not ends and not link._streams


async def test_nothing_more_is_read_of_a_stream_before_what_came_on_it_is_and_the_next_answer_waits_for_none_of_that(
    connections: list[Connection],
) -> None:
    heard, reading = Heard(), asyncio.get_running_loop().create_future()

    def received(data: Any, origin: int | None) -> asyncio.Future[None] | None:
        heard.messages.append(data)
        return None if reading.done() else reading

    heard.receiver = msgspec.structs.replace(heard.receiver, received=received)
    opening, event, end = STREAM + CHUNKED + b"\r\n", chunk(b"data: " + ANSWER + b"\n\n"), b"0\r\n\r\n"
    async with over_http(heard) as link:
        await link.send(NOTE, origin=1)
        [connection] = connections
        connection.wire.data_received(opening + event)
        connection.wire.data_received(event)
        await settle()
        assert connection.is_paused and len(heard.messages) == 1
        reading.set_result(None)
        await settle()
        assert not connection.is_paused and len(heard.messages) == 2
        reading = asyncio.get_running_loop().create_future()
        heard.owed = set()
        connection.wire.data_received(event + end)
        heard.owed = {2}
        await link.send(NOTE, origin=2)
        connection.wire.data_received(opening + event)
        assert connections == [connection] and len(heard.messages) == 4


@asynccontextmanager
async def over_sse(heard: Heard, connections: list[Connection]) -> AsyncGenerator[SseLink]:
    server = Server(id="wild", name="Wild", type="sse", url="http://localhost/sse")
    link = SseLink(server, heard.receiver, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()))
    connecting = asyncio.ensure_future(link.connect(10))
    await settle()
    await connections[0].says(STREAM + b"\r\nevent: endpoint\ndata: /messages\n\n")
    await connecting
    yield link
    await link.close()
    await settle()


@pytest.mark.parametrize("origin", [None, 1], ids=["note", "request"])
@pytest.mark.parametrize("kind", ["a body", "a body in chunks", "a refusal"])
async def test_a_receipt_without_end_is_read_no_further(
    connections: list[Connection], kind: str, origin: int | None
) -> None:
    heard = Heard()
    begin, more = BEGUN[kind]
    async with over_sse(heard, connections) as link:
        await link.send(NOTE, origin=origin)
        await connections[1].says(begin)
        assert await connections[1].goes_on(more) < 2 * MOST + len(more) * 8
        assert not link._receipts._expected and not link._posts
        refused = kind == "a refusal" and origin is not None
        assert len(heard.faults) == refused and not connections[0].is_closed


async def test_an_event_without_end_is_the_end_of_its_link(connections: list[Connection]) -> None:
    heard = Heard()
    async with over_sse(heard, connections):
        await connections[0].says(b"data: ")
        assert await connections[0].goes_on(b"x" * 4096) < 2 * MOST
        [fault] = heard.faults
        assert "sent an event of more than 20000 bytes" in fault.message


@pytest.mark.parametrize("status", [b"200 OK", b"500 No"])
async def test_an_answer_of_a_component_without_end_is_read_no_further(
    connections: list[Connection], status: bytes
) -> None:
    line = HttpClient("http://localhost/", {}, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()), "wild", 60.0)
    asking = asyncio.ensure_future(line.ask(line.head("POST", "/act", has_body=True), b"{}", "ann"))
    await settle()
    await connections[0].says(b"HTTP/1.1 %b\r\n\r\n" % status)
    read = await connections[0].goes_on(b"x" * 4096)
    assert read < 2 * (MOST if status == b"200 OK" else whole.MOST_OF_A_REFUSAL)
    if status == b"200 OK":
        with pytest.raises(Lost, match="more than 20000 bytes"):
            await asking
    else:
        assert len((await asking).body) == whole.MOST_OF_A_REFUSAL
    line.close("it is over")
    await settle()


# What is no message.

ANSWERED = STREAM + CHUNKED + b"\r\n" + chunk(b"data: " + ANSWER + b"\n\n")
BESIDE = {
    "one trailer": (ANSWERED + b"0\r\nX: ", b"y" * 4096),
    "a trailer's name": (ANSWERED + b"0\r\n", b"y" * 4096),
    "trailers": (ANSWERED + b"0\r\n", b"X: y\r\n" * 500),
    "empty trailers": (ANSWERED + b"0\r\n", b"a:\r\n" * 500),
    "an extension": (ANSWERED + b"5;", b"e" * 4096),
    "trailers of no stream": (b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"\r\n" + chunk(ANSWER) + b"0\r\nX: ", b"y" * 4096),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
}


@pytest.mark.parametrize("origin", [None, 1], ids=["note", "request"])
@pytest.mark.parametrize("kind", BESIDE)
async def test_what_is_no_body_is_read_no_further(connections: list[Connection], kind: str, origin: int | None) -> None:
    heard = Heard()
    begin, more = BESIDE[kind]
    async with over_http(heard) as link:
        await link.send(NOTE, origin=origin)
        await connections[0].says(begin)
        tracemalloc.start()
        try:
            assert await connections[0].goes_on(more) < 2 * MOST
            assert tracemalloc.get_traced_memory()[1] < 20 * MOST
        finally:
            tracemalloc.stop()
        assert heard.messages == ([ANSWER] if "of no stream" not in kind and begin else [])


async def test_an_answer_of_single_bytes_and_a_few_trailers_are_taken(connections: list[Connection]) -> None:
    heard = Heard()
    long = ANSWER[:-1] + b" " * (MOST - 1000) + b"}"
    async with over_http(heard) as link:
        for _ in range(3):
            heard.owed.add(1)
            await link.send(NOTE, origin=1)
            await connections[0].says(b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"\r\n")
            await connections[0].says(b"".join(chunk(b"%c" % each) for each in long))
            await connections[0].says(b"0\r\nDigest: " + b"x" * 1000 + b"\r\nServer-Timing: y\r\n\r\n")
        assert heard.messages == [long] * 3 and not heard.faults
        assert len(connections) == 1 and not connections[0].is_closed


async def test_a_stream_that_stays_open_for_long_is_read_for_long(connections: list[Connection]) -> None:
    heard = Heard()
    async with over_http(heard) as link:
        await link.listen(())
        await settle()
        await connections[0].says(STREAM + CHUNKED + b"\r\n")
        for _ in range(MOST // 10):
            await connections[0].says(chunk(b": keep-alive\n\n"))
        await connections[0].says(chunk(b"data: " + ANSWER + b"\n\n"))
        assert heard.messages == [ANSWER]


async def test_streams_that_a_server_ends_at_once_are_not_asked_for_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard, opened = Heard(), list[int]()
    server = Server(id="wild", name="Wild", type="http", url="http://localhost/mcp")
    link = HttpLink(server, heard.receiver, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()))
    turn = [0]

    async def connect(_whose: str) -> Any:
        opened.append(turn[0])
        return SimpleNamespace(send=lambda *_: None)

    monkeypatch.setattr(link._pool, "connect", connect)
    streams = [asyncio.ensure_future(link._get("ann", (), object())) for _ in range(100)]
    while not all(each.done() for each in streams):
        await asyncio.sleep(0)
        turn[0] += 1
    assert len(opened) == 100 and max(map(opened.count, opened)) <= 2, "others go on in between"
    await link.close()


async def test_events_that_streams_of_a_server_begin_and_do_not_end_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ONE", 1000 * 1024)
    unended, held = bodies.Bodies(), set[str]()
    server = Server(id="wild", name="Wild", type="sse", url="http://localhost/sse")

    def stream(name: str) -> tuple[Unended, SseLink]:
        """What counts an event that has begun, and the link. Who is to be read no more is noted."""
        intake: Any = SimpleNamespace(hold_until=lambda _room: held.add(name))
        link = SseLink(
            server, Heard().receiver, FakeClock(), nowhere, IntakeQueue(), Places(FakeClock()), unended=unended
        )
        return link.counting(intake), link

    streams = {name: stream(name) for name in ("first", "second", "third")}
    for unfinished, _ in streams.values():
        unfinished.keeps(600 * 1024)
    assert held == {"second", "third"}  # the oldest is read on
    held.clear()
    for name in ("first", "second"):
        streams[name][0].keeps(0)  # the event is whole
    await settle()
    streams["third"][0].keeps(900 * 1024)
    assert not held
    for _, link in streams.values():
        link._end()
    assert not unended._kept
