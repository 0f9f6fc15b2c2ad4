"""Whatever a component answers, a call of it ends with a result or a fault, and a list with tools or a fault."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from properties.material import cut, damaged, objects, values, written
from properties.test_any_bytes_from_a_server import ANSWERS
from virtualtime import FakeClock, play

from toolgate.config import Server
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done
from toolgate.upstreams import pool
from toolgate.upstreams.component.upstream import ComponentUpstream
from toolgate.upstreams.links import LinkDeps
from toolgate.upstreams.links.http1 import ConnectionPool, Wire
from toolgate.upstreams.process.supervisor import Supervisor

ECHO = {"name": "echo", "inputSchema": {"type": "object"}}

tools = st.fixed_dictionaries({}, optional={"name": st.just("echo") | values, "inputSchema": objects | values})
results = st.fixed_dictionaries({}, optional={"content": st.lists(values) | values, "isError": values})
bodies = (
    written(st.just(ECHO) | tools | results | values)
    | written(st.lists(st.just(ECHO) | tools | values, max_size=3))
    | damaged(written(st.just(ECHO) | tools | results))
    | st.binary(max_size=60)
    | st.sampled_from([b"[" * 5000, b'{"content":[' * 2000, b"\xef\xbb\xbf{}", b'{"content":[1e999]}'])
)
statuses = st.sampled_from(
    [b"200 OK", b"200 OK", b"200 OK", b"500 X", b"404 X", b"204 X", b"302 X\r\nLocation: http://["]
)
whole = st.builds(
    lambda status, body: b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body), statuses, bodies
)
answers = (whole | damaged(whole) | st.sampled_from(ANSWERS) | st.binary(max_size=60)).flatmap(cut)


class Transport:
    """Answers whatever it is sent with these chunks, and then hangs up, or is silent."""

    def __init__(self, wire: Wire, chunks: list[bytes], hangs_up: bool) -> None:
        self._wire = wire
        self._chunks = chunks
        self._hangs_up = hangs_up
        self._is_closed = False

    def is_closing(self) -> bool:
        return self._is_closed

    def write(self, data: object) -> None:
        asyncio.get_running_loop().call_soon(self._answer)

    writelines = write

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self._is_closed = True

    abort = close

    def _answer(self) -> None:
        for chunk in self._chunks:
            if not self._is_closed:
                self._wire.data_received(chunk)
        if self._hangs_up or self._is_closed:
            self._wire.connection_lost(None)


def answering(told: list[list[bytes]], hangs_up: bool) -> Any:
    """Connections that give these answers in turn, the last one again and again."""

    async def connect(pool: ConnectionPool, whose: str) -> Wire:
        wire = Wire(pool)
        transport: Any = Transport(wire, told.pop(0) if len(told) > 1 else told[0], hangs_up)
        wire.connection_made(transport)
        return wire

    return patch.object(ConnectionPool, "_connected", connect)


def as_http(value: Any) -> list[bytes]:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return [b"HTTP/1.0 200 OK\r\n\r\n" + body]


async def asked(echo: ComponentUpstream) -> None:
    try:
        for raw in (await echo.list("tools", Client())).raw:
            tool = json.loads(bytes(raw))
            assert tool["name"] and isinstance(tool["name"], str) and isinstance(tool["inputSchema"], dict)
    except Fault as fault:
        assert fault.reach == "not_sent" and echo.status().error == fault.message


async def called(echo: ComponentUpstream) -> None:
    try:
        outcome = await echo.invoke(Call("tools/call", "echo", Client(), Raw(b"{}"), "echo"))
    except Fault as fault:
        assert fault.message.startswith("Tool execution failed") or fault.code == "TOOL_NOT_FOUND"
        assert fault.reach and len(fault.message) < 2200
    else:
        assert isinstance(outcome, Done)
        assert isinstance(json.loads(bytes(outcome.body), parse_constant=complain)["content"], list)


def complain(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@settings(max_examples=300)
@given(st.lists(answers, min_size=1, max_size=3), st.booleans())
@example([as_http(ECHO), as_http({"content": []})], True)
@example([as_http([ECHO]), as_http(b'{"content":[]')], False)
def test_any_answer_of_a_component_is_borne(told: list[list[bytes]], hangs_up: bool) -> None:
    async def conversation() -> None:
        clock = FakeClock()
        server = Server(id="echo", name="echo", type="component", url="http://localhost/", timeout=5)
        echo = ComponentUpstream(server, LinkDeps(clock, Supervisor(clock, {}), pool.Pool(clock)), lambda event: None)
        await asked(echo)
        await asyncio.gather(called(echo), called(echo))
        await echo.close()
        assert echo.calls == 0 and echo.status().state == "stopped"

    with answering(list(told), hangs_up):
        play(conversation())


@given(st.just(as_http(ECHO)), written(results.filter(lambda result: isinstance(result.get("content"), list))))
def test_a_good_result_is_the_bytes_that_came(listed: list[bytes], result: bytes) -> None:
    async def conversation() -> None:
        clock = FakeClock()
        server = Server(id="echo", name="echo", type="component", url="http://localhost/")
        echo = ComponentUpstream(server, LinkDeps(clock, Supervisor(clock, {}), pool.Pool(clock)), lambda event: None)
        outcome = await echo.invoke(Call("tools/call", "echo", Client()))
        assert isinstance(outcome, Done) and outcome.body == result
        await echo.close()

    with answering([listed, as_http(result)], True):
        play(conversation())
