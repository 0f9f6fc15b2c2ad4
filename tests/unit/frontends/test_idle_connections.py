"""A connection that a client keeps open is closed when it was idle for too long, whatever came on it before."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState
from virtualtime import FakeClock

from toolgate.frontends import server
from toolgate.frontends.application import Application

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self.is_over = False

    def write(self, data: Any) -> None:
        self.answers += data.startswith(b"HTTP/1.1 204")

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


async def _answers(scope: Any, _receive: Any, send: Any) -> None:
    if scope["path"] == "/slow":
        await asyncio.sleep(2 * server.KEEP_ALIVE)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Answering(Application):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await _answers(scope, receive, send)


def _opened() -> tuple[Any, Transport]:
    config = uvicorn.Config(_answers, lifespan="off", ws="none", log_config=None, timeout_keep_alive=server.KEEP_ALIVE)
    config.load()
    given: dict[str, Any] = {"config": config, "server_state": ServerState(), "app_state": {}}
    connection, transport = server.HttpProtocol(Answering(FakeClock(), 0), **given), Transport()
    connection.connection_made(transport)
    return connection, transport


async def test_it_is_kept_while_it_is_used_and_closed_when_it_is_idle_for_so_long() -> None:
    connection, transport = _opened()
    for number in range(5):
        connection.data_received(REQUEST)
        await asyncio.sleep(server.KEEP_ALIVE - 1)
        assert (transport.answers, transport.is_over) == (number + 1, False)
    await asyncio.sleep(2)
    assert transport.is_over
    connection.connection_lost(None)


async def test_what_is_under_way_and_what_is_coming_is_not_idle() -> None:
    connection, transport = _opened()
    connection.data_received(REQUEST)
    await asyncio.sleep(1)
    connection.data_received(REQUEST.replace(b"/", b"/slow", 1))
    await asyncio.sleep(2 * server.KEEP_ALIVE + 1)
    assert (transport.answers, transport.is_over) == (2, False)
    await asyncio.sleep(server.KEEP_ALIVE - 2)
    connection.data_received(REQUEST[:9])
    await asyncio.sleep(2)
    assert not transport.is_over
    connection.data_received(REQUEST[9:])
    await asyncio.sleep(server.KEEP_ALIVE - 1)
    assert (transport.answers, transport.is_over) == (3, False)
    await asyncio.sleep(2)
    assert transport.is_over
    connection.connection_lost(None)


async def test_of_requests_in_one_piece_each_is_answered_and_the_last_begins_the_time() -> None:
    connection, transport = _opened()
    connection.data_received(REQUEST * 3)
    await asyncio.sleep(server.KEEP_ALIVE - 1)
    assert (transport.answers, transport.is_over) == (3, False)
    await asyncio.sleep(2)
    assert transport.is_over
    connection.connection_lost(None)
