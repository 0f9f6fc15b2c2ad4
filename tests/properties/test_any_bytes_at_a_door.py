"""Any bytes at any door are answered or refused: nothing crashes or hangs, and the door stands open afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from doors.pipes import WebSocket
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inmemory import GREETER, Exchange, Visitor, gateway
from properties.material import bodies, cut
from virtualtime import play, settle

from toolgate.config import Config, Http

PING = b'{"jsonrpc":"2.0","id":"ping","method":"ping"}'
CONFIG = Config(http=Http(body_limit=10_000))

NAMES = ["host", "origin", "accept", "content-length", "content-type", "mcp-session-id", "mcp-protocol-version"]
NAMES += ["mcp-method", "mcp-name", "last-event-id", "x"]
VALUES = [
    "127.0.0.1",
    "localhost:1",
    "http://[",
    "text/event-stream",
    "*/*",
    "9",
    "2025-11-25",
    "2026-07-28",
    "SESSION",
]
VALUES += ["tools/call", "tools/list", "greeter__greet", "=?base64?YQ==?=", "=?base64?*?=", ""]

names = st.sampled_from(NAMES) | st.text(st.characters(max_codepoint=255), max_size=5)
headers = st.dictionaries(names, st.sampled_from(VALUES) | st.text(st.characters(max_codepoint=255), max_size=8))
paths = (
    st.sampled_from(
        ["/mcp", "/mcp/", "/sse", "/mcp/sse", "/mcp/aggregate", "/mcp/servers/greeter", "/mcp/servers/x", "/"]
    )
    | st.text()
)
methods = st.sampled_from(["POST", "POST", "POST", "GET", "DELETE", "PUT", ""])
http_request = st.tuples(methods, paths, headers, bodies.flatmap(cut))


def one_line(body: bytes) -> bytes:
    return body.replace(b"\n", b" ") + b"\n"


async def answered(exchange: Exchange) -> None:
    await settle()
    if not exchange.work.done() and exchange.so_far.is_stream:
        await exchange.gone()  # a stream for what may come; nothing does
        return
    response = await exchange.response()
    assert 200 <= response.status < 500
    assert b"Internal error" not in response.body
    for message in each(response.messages):
        assert message["jsonrpc"] == "2.0"


def each(answers: list[Any]) -> Iterator[dict[str, Any]]:
    """The messages, those too that answer a batch."""
    for answer in answers:
        yield from answer if isinstance(answer, list) else [answer]


@settings(max_examples=150)
@given(st.lists(http_request, min_size=1, max_size=4))
@example([("POST", "/mcp", {"content-length": "\xb2"}, [b""])])
@example([("POST", "/mcp", {}, [b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}'])])
@example([("GET", "/mcp", {"mcp-session-id": "SESSION"}, [b""])])
def test_any_request_at_the_http_door_is_answered(told: list[tuple[str, str, dict[str, str], list[bytes]]]) -> None:
    async def conversation() -> None:
        async with gateway(GREETER, config=CONFIG) as app:
            visitor = Visitor(app)
            await visitor.initialize(elicitation={})
            session = visitor.headers.pop("mcp-session-id")
            for method, path, extra, body in told:
                visitor.path = path
                own = {name: session if value == "SESSION" else value for name, value in extra.items()}
                await answered(visitor.begin(method, *body, headers=own))
            assert (await Visitor(app).post(PING)).result == {}

    play(conversation())


@settings(max_examples=150)
@given(st.lists(bodies.map(one_line) | st.binary(), max_size=5).map(b"".join).flatmap(cut))
@example([b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}\n'])
@example([b"x" * 20_000, b"x" * 20_000])
def test_any_bytes_at_the_stdio_door_are_answered(chunks: list[bytes]) -> None:
    async def conversation() -> None:
        written: list[bytes] = []
        async with gateway(GREETER, config=CONFIG) as app:
            door = app.stdio(written.append)
            for chunk in chunks:
                door.data_received(chunk)
            await app.clock.sleep(3600)
            door.data_received(b"\n" + PING + b"\n")
            await settle()
            door.eof_received()
            await door.close()
        read = list(each([json.loads(line) for line in written]))
        assert all(message["jsonrpc"] == "2.0" for message in read)
        assert not any("Internal error" in line.decode() for line in written)
        assert read[-1] == {"jsonrpc": "2.0", "id": "ping", "result": {}}

    play(conversation())


@settings(max_examples=100)
@given(st.lists(bodies.map(lambda body: body.decode(errors="replace")) | st.text(), max_size=5))
@example(["[{}]", "[]", "\ud800"])
def test_any_text_at_the_websocket_is_answered(frames: list[str]) -> None:
    async def conversation() -> None:
        written: list[bytes] = []
        async with gateway(GREETER, config=CONFIG) as app:
            socket = WebSocket(app.http, on_message=written.append)
            for frame in frames:
                socket.say(frame)
            await app.clock.sleep(3600)
            socket.say(PING)
            await settle()
            if socket.code is None:
                await socket.leave()
        read = list(each([json.loads(message) for message in written]))
        assert all(message["jsonrpc"] == "2.0" for message in read)
        assert socket.code == 1009 or read[-1] == {"jsonrpc": "2.0", "id": "ping", "result": {}} or closes(frames)

    play(conversation())


def closes(frames: list[str]) -> bool:
    return any('"close"' in frame for frame in frames)
