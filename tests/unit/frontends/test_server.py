"""A response in one piece is, byte for byte, what uvicorn writes in two."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from toolgate.frontends.server import _Cycle, _KnownCycle  # pyright: ignore[reportPrivateUsage]
from toolgate.frontends.streams import WHOLE, Response
from toolgate.frontends.unread import FREE, Backlog, Unread


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int = 0, low: int = 0) -> None: ...


class Wire:
    """One request that came, and what is written on its connection."""

    def __init__(self, kind: type[RequestResponseCycle], method: str = "POST", keep_alive: bool = True) -> None:
        self.transport: Any = Transport()
        self.ends = 0
        log = logging.getLogger("test")
        scope: Any = {"type": "http", "method": method, "path": "/mcp"}
        self.cycle = kind(
            scope=scope,
            transport=self.transport,
            flow=FlowControl(self.transport),
            logger=log,
            access_logger=log,
            access_log=False,
            default_headers=[(b"date", b"today")],
            message_event=asyncio.Event(),
            expect_100_continue=True,
            keep_alive=keep_alive,
            on_response=self._ended,
        )

    def _ended(self) -> None:
        self.ends += 1

    def response(self, is_ours: bool) -> Response:
        return Response(self.cycle.send, backlog=Backlog(Unread(), self.transport, "ann") if is_ours else None)


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("method", ["POST", "GET", "HEAD"])
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, b'{"a":1}', ()),
        (202, b"", ((b"Mcp-Session-Id", b"1"),)),
        (401, b"no", ((b"WWW-Authenticate", b"Bearer"), (b"x", b"\xe9"))),
        (413, b"too large", ((b"connection", b"close"),)),
        (200, b"x" * FREE, ()),
        (200, b"x" * (FREE + 1), ()),
    ],
)
async def test_it_is_the_same_in_one_write(
    status: int, body: bytes, headers: Any, method: str, keep_alive: bool
) -> None:
    plain, ours = Wire(RequestResponseCycle, method, keep_alive), Wire(_Cycle, method, keep_alive)
    await plain.response(is_ours=False).whole(status, body, headers)
    await ours.response(is_ours=True).whole(status, body, headers)
    assert b"".join(ours.transport.written).lower() == b"".join(plain.transport.written).lower()
    assert len(ours.transport.written) == 1 or len(body) > FREE
    assert (
        ours.transport.is_closed
        == plain.transport.is_closed
        == (not keep_alive or (bool(headers) and headers[0][0] == b"connection"))
    )
    assert ours.ends == plain.ends == 1
    assert await ours.cycle.receive() == {"type": "http.disconnect"} == await plain.cycle.receive()
    assert len(ours.transport.written) <= len(plain.transport.written)  # no `100 Continue` behind it


@pytest.mark.parametrize("value", [b"a\r\nx: 1", b"a\nb", b"\x00"])
async def test_no_header_ends_another(value: bytes) -> None:
    ours = Wire(_Cycle)
    with pytest.raises(ValueError, match="contains a control character"):
        await ours.response(is_ours=True).whole(200, b"{}", ((b"www-authenticate", value),))
    assert not ours.transport.written


async def test_nothing_is_written_to_a_client_that_has_gone() -> None:
    ours = Wire(_Cycle)
    ours.cycle.disconnected = True
    await ours.response(is_ours=True).whole(200, b"{}")
    assert not ours.transport.written and not ours.ends


@pytest.mark.parametrize("message", ["whole", "streamed", "answered", "answered when known"])
async def test_nor_to_one_that_has_gone_and_of_which_that_is_not_known_yet(message: str) -> None:
    """The loop says that a connection is lost only in its next round, and refuses to write to it before."""

    def refuse(_data: bytes) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    ours = Wire(_Cycle)
    ours.transport.write = refuse
    ours.transport.close()
    if message == "whole":
        await ours.response(is_ours=True).whole(200, b"{}")
    elif message == "answered":
        ours.cycle.answer(200, (), b"{}")
    elif message == "answered when known":
        ours.cycle.keep_alive = False
        _KnownCycle.answer_whole(ours.cycle, 200, (), b"{}")
    else:
        stream = ours.response(is_ours=False)
        await stream.event(b"{}")
        await stream.end()


async def test_what_streams_is_uvicorns_business() -> None:
    ours = Wire(_Cycle)
    response = ours.response(is_ours=True)
    await response.event(b"{}")
    await response.end()
    assert WHOLE not in repr(ours.transport.written) and ours.ends == 1
    assert b"transfer-encoding: chunked" in ours.transport.written[0]
