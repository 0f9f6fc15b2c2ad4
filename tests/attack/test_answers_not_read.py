"""Answers that their clients do not read are kept within a budget, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import IO, Any

import pytest
from processes.ground import real, until

from toolgate.core.clock import SystemClock
from toolgate.core.large import Joined
from toolgate.core.model import Principal
from toolgate.frontends import server, streams, unread, unsent
from toolgate.frontends.application import Application
from toolgate.frontends.guards import connection_of
from toolgate.frontends.streams import Outbox, Response, relay
from toolgate.frontends.unread import FREE, Backlog, Unread

LARGE = 12 * 1024 * 1024  # bytes of an answer; the system keeps up to 6 MiB of one


@pytest.fixture(autouse=True)
def small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "MOST_OF_ONE", 3 * LARGE)
    monkeypatch.setattr(unread, "MOST", 6 * LARGE)


class Frontend(Application):
    """Answers each request by so many bytes as its path says; `/stream/…` by an event of as many."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), body_limit=1024)
        self.started = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.started += 1
        connection = connection_of(scope)
        assert connection
        name = dict(scope["headers"]).get(b"authorization", b"").decode()
        connection.admitted(Principal(name, client=name))
        answer = b"x" * int(scope["path"].rpartition("/")[2])
        if scope["type"] == "websocket":
            await self._speak(connection.backlog, answer, receive, send)
            return
        response = Response(send, backlog=connection.backlog)
        if scope["path"].startswith("/stream"):
            await response.event(answer)
            await response.end()
        else:
            await response.whole(200, answer)

    async def _speak(self, backlog: Backlog, message: bytes, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(2):
            with backlog.writing(len(message)):
                await send({"type": "websocket.send", "bytes": message})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    @property
    def kept(self) -> int:
        return self.connections.unread._kept


class Crowd:
    def __init__(self, frontend: Frontend, port: int) -> None:
        self.frontend = frontend
        self._port = port
        self.open: list[socket.socket] = []

    async def ask(self, name: str, size: int, path: str = "", times: int = 1, more: bytes = b"") -> socket.socket:
        """One that asks and does not read."""
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        found.setblocking(False)
        self.open.append(found)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(found, ("127.0.0.1", self._port))
        head = b"GET %b/%d HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n%b\r\n"
        started = self.frontend.started
        await loop.sock_sendall(found, head % (path.encode(), size, name.encode(), more) * times)
        await until(lambda: self.frontend.started > started)
        await asyncio.sleep(0)
        return found

    async def answer(self, name: str, size: int) -> int:
        """The bytes of one that is read."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /%d HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n\r\n" % (size, name.encode()))
        found = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            found = len(await reader.readexactly(size))
        writer.close()
        return found


@asynccontextmanager
async def crowd() -> AsyncGenerator[Crowd]:
    frontend, listener = Frontend(), server.bind("127.0.0.1", 0)
    async with server.serving(frontend, listener):
        found = Crowd(frontend, listener.getsockname()[1])
        try:
            yield found
        finally:
            for each in found.open:
                each.close()


def lives(connection: socket.socket) -> bool:
    """Whether the gateway has not broken it off."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and not _is_reset(connection)


def _is_reset(connection: socket.socket) -> bool:
    try:
        connection.send(b"")
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1  # established
    except OSError:
        return True


WEBSOCKET = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(("path", "more"), [("", b""), ("/stream", b""), ("", WEBSOCKET)], ids=["body", "stream", "ws"])
def test_of_one_principal_as_much_is_kept_as_it_may_and_others_are_answered(path: str, more: bytes) -> None:
    @real
    async def held() -> None:
        async with crowd() as all:
            bob = await all.ask("bob", LARGE)
            for _ in range(9):
                await all.ask("eve", LARGE, path, more=more)
                await until(lambda: all.frontend.kept <= 4 * LARGE + FREE)
            eve = all.open[1:]
            await until(lambda: sum(map(lives, eve)) <= 3)
            assert lives(bob) and lives(eve[-1])
            assert await all.answer("cid", LARGE) == LARGE
            assert await all.answer("eve", LARGE) == LARGE
            for each in all.open:
                each.close()
            await until(lambda: not all.frontend.kept)

    held()


@real
async def test_what_is_asked_on_a_connection_whose_answers_are_not_read_is_not_begun() -> None:
    async with crowd() as all:
        await all.ask("eve", LARGE, times=5)
        await until(lambda: all.frontend.kept)
        assert all.frontend.started <= 2
        assert all.frontend.kept <= 2 * LARGE + FREE


@real
async def test_a_websocket_behind_an_answer_that_is_not_read_is_none() -> None:
    async with crowd() as all:
        connection = await all.ask("eve", LARGE)
        await until(lambda: all.frontend.kept)
        await asyncio.get_running_loop().sock_sendall(
            connection, b"GET /1 HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % WEBSOCKET
        )
        await asyncio.get_running_loop().sock_sendall(connection, b"\x89\x80\x00\x00\x00\x00" * 10)
        assert all.frontend.started == 1


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"], ids=["kept alive", "closing"])
def test_who_reads_nothing_for_a_while_is_cut_off(monkeypatch: pytest.MonkeyPatch, last: bytes) -> None:
    monkeypatch.setattr(unread, "PATIENCE", 0.2)
    monkeypatch.setattr(unread, "LOOK", 0.05)

    @real
    async def held() -> None:
        async with crowd() as all:
            eve = await all.ask("eve", LARGE, more=last)
            await until(lambda: not lives(eve))
            assert not all.frontend.kept
            assert await all.answer("eve", LARGE) == LARGE

    held()


@real
async def test_the_last_bytes_of_a_large_event_count_as_all_of_it() -> None:
    """The transport holds it in one piece until then."""
    async with crowd() as all:
        eve = await all.ask("eve", LARGE, "/stream")
        await until(lambda: all.frontend.kept)
        read, loop = 0, asyncio.get_running_loop()
        while read < LARGE // 4:
            read += len(await loop.sock_recv(eve, 64 * 1024))
        assert all.frontend.kept >= LARGE
        while read < LARGE:
            read += len(await loop.sock_recv(eve, 1024 * 1024))
        await until(lambda: not all.frontend.kept)


@real
async def test_an_answer_that_is_not_read_waits_in_a_file_and_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[int] = []
    store = unsent._stored

    def seen(body: Joined, start: int) -> IO[bytes]:
        stored.append(len(body) - start)
        return store(body, start)

    monkeypatch.setattr(unsent, "_stored", seen)
    async with crowd() as all:
        eve = await all.ask("eve", LARGE)
        await until(lambda: stored != [])
        assert 0 < stored[0] < LARGE
        read, loop = b"", asyncio.get_running_loop()
        while not read.endswith(b"x" * 100) or len(read.partition(b"\r\n\r\n")[2]) < LARGE:
            read += await loop.sock_recv(eve, 1024 * 1024)
        assert read.partition(b"\r\n\r\n")[2] == b"x" * LARGE
        await until(lambda: not all.frontend.kept)
    assert len(stored) == 1


@real
async def test_messages_that_wait_for_a_stream_count() -> None:
    backlog = Backlog(Unread(), Transport(), "eve")
    outbox = Outbox(can_stream=True, can_ask=False, backlog=backlog)
    for _ in range(8):
        outbox.send(b"x" * FREE)
    assert backlog._unread._kept == 8 * FREE
    outbox.end()

    async def send(_message: Any) -> None: ...

    await relay(Response(send, backlog=backlog), outbox, SystemClock())
    assert not backlog._unread._kept


class Transport:
    """One whose client reads when it is told to."""

    def __init__(self) -> None:
        self.size = 0
        self.is_over = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_extra_info(self, _name: str) -> None: ...

    def abort(self) -> None:
        self.is_over = True


@pytest.fixture
def budget() -> Generator[Budget]:
    found = Budget()
    yield found
    assert found.unread._kept == sum(found.unread._kept_by.values()) >= 0


class Budget:
    def __init__(self) -> None:
        self.unread = Unread()

    def waits(self, key: str, size: int) -> Transport:
        transport = Transport()
        backlog = Backlog(self.unread, transport, key)
        transport.size = size
        backlog.full()
        return transport


async def test_who_has_the_most_loses_first_and_nobody_within_its_share(budget: Budget) -> None:
    bob = [budget.waits("bob", FREE + 1) for _ in range(3)]
    many = [budget.waits(f"eve{each % 3}", LARGE) for each in range(30)]
    assert not any(each.is_over for each in bob)
    assert budget.unread._kept <= unread.MOST
    assert not any(each.is_over for each in many[-3:])


async def test_single_answers_always_go_out(budget: Budget) -> None:
    single = [budget.waits(f"eve{each}", 2 * unread.MOST_OF_ONE) for each in range(9)]
    bob = [budget.waits("bob", FREE + 1) for _ in range(3)]
    assert not any(each.is_over for each in single + bob)


async def test_who_goes_on_reading_is_not_the_first_to_lose(budget: Budget) -> None:
    first, second = budget.waits("eve", LARGE), budget.waits("eve", LARGE)
    await asyncio.sleep(1)
    first.size -= 1
    budget.waits("eve", LARGE)
    assert second.is_over is False
    budget.waits("eve", LARGE)
    assert second.is_over and not first.is_over


async def test_one_that_is_broken_off_leaves_nothing_behind() -> None:
    """No message of it waits for the garbage collector."""

    class Message:
        pass

    found: list[weakref.ref[Message]] = []

    async def speaks() -> None:
        message = Message()
        found.append(weakref.ref(message))
        await asyncio.Event().wait()

    async def breaks() -> None:
        message = Message()
        found.append(weakref.ref(message))
        raise OSError("the client is gone")

    gc.disable()
    try:
        with contextlib.suppress(OSError):
            await streams.until_any(speaks(), breaks())
        await asyncio.sleep(0)
        assert [each() for each in found] == [None, None]
    finally:
        gc.enable()
