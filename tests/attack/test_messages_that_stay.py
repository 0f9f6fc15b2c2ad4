"""A message of a client that cannot be read, and code whose client has left, are let go of at once: the garbage
collector counts objects, however large these are."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attack.test_answers_that_stay import LARGE, SMALL, kept
from attack.test_floods_of_requests import Peer as WebSocketOfAClient
from attack.test_floods_over_websockets import Peer as WebSocketToAServer
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, tools
from peers import eventually
from scripted_engine import Process
from scripted_engine import Scripted as Processes
from virtualtime import FakeClock, settle

from toolgate.frontends.channels import Channel, ReplayBuffers
from toolgate.sandbox.worker import Engine

UNREADABLE = {
    "without an end": b'{"a":"%b',
    "what is behind it": b'{"a":"%b"} x',
    "no UTF-8": b'{"a":"%b\xff"}',
    "a text": b'"%b"',
    "an array": b'["%b"]',
    "two in one": b'[{"jsonrpc":"2.0","method":"a","params":{"a":"%b"}},{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    "no method": b'{"jsonrpc":"2.0","id":1,"a":"%b"}',
    "an answer out of shape": b'{"jsonrpc":"2.0","id":1,"result":{},"error":"%b"}',
    "no such method": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"%b"}}',
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"%b","b":' + b"[" * 300 + b"]" * 300 + b"}}",
}


@asynccontextmanager
async def nothing_kept() -> AsyncIterator[None]:
    await settle()
    gc.collect()
    gc.disable()
    try:
        yield
        await settle()
        assert kept() == []
    finally:
        gc.enable()


@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("revision", ["2025-03-26", LATEST, MODERN])
async def test_a_message_that_is_refused_is_not_kept(revision: str, message: bytes) -> None:
    heard = list[bytes]()
    async with gateway(scripts={"there": Scripted(tools_list=tools("t"))}) as app:
        pipe = app.stdio(heard.append)
        if revision != MODERN:
            info = b'"capabilities":{},"clientInfo":{"name":"c","version":"1"}'
            asked = b'"id":0,"method":"initialize","params":{"protocolVersion":"%b",%b}' % (revision.encode(), info)
            pipe.data_received(b'{"jsonrpc":"2.0",%b}\n' % asked)
            await settle()
        pipe.data_received(message.replace(b"%b", b"x") + b"\n")
        async with nothing_kept():
            pipe.data_received(message.replace(b"%b", LARGE) + b"\n")
        await pipe.close()


@pytest.mark.parametrize(("calls", "argument"), [(1, LARGE), (3, SMALL)])
async def test_code_whose_client_has_left_is_not_kept_nor_are_its_calls(calls: int, argument: bytes) -> None:
    def play(process: Process, message: dict[str, Any]) -> None:
        if "run" in message:
            for number in range(1, calls + 1):
                process.says({"call": number, "server": "there", "tool": "t", "arguments": {"a": argument.decode()}})

    def heard(message: bytes) -> None:
        if b"tools/call" in message:
            made.append(len(message))

    made, script, scripted = list[int](), Scripted(tools_list=tools("t"), tools_call=...), Processes(play)
    script.on_bytes = heard
    engines: Any = {"python": lambda *_: Engine("scripted", scripted.start)}
    async with gateway(scripts={"there": script}, engines=engines) as app:
        visitor = Visitor(app)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "execute_code"}

        async def leave() -> None:
            message = visitor.modern_request("tools/call", name="execute_code", arguments={"code": "…"})
            exchange = visitor.begin("POST", json.dumps(message).encode(), headers=headers)
            made.clear()
            await eventually(lambda: len(made) == calls, "the code has made no calls")
            await exchange.gone()

        await leave()
        async with nothing_kept():
            await leave()


BROKEN = b"%b" + (len(LARGE) + 2).to_bytes(8, "big") + b"%b" + b'"%b"' % LARGE  # with a bit that means nothing


def held() -> int:
    """Bytes of large messages that only the garbage collector frees."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        parts = [part for each in gc.garbage for part in gc.get_referents(each) if type(part) in (bytes, bytearray)]
        return sum(len(part) for part in parts if len(part) >= len(SMALL))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def test_a_frame_of_a_client_that_breaks_the_protocol_is_not_kept() -> None:
    for _ in range(2):
        peer = await WebSocketOfAClient().opened()
        gc.collect()
        gc.disable()
        try:
            frame = BROKEN % (b"\xf1\xff", b"\x00" * 4)
            peer.connection.data_received(frame)
            del frame
            for _ in range(20_000):
                await asyncio.sleep(0)
            assert peer.written, "it is refused"
            await peer.end()
            del peer
            assert held() == 0
        finally:
            gc.enable()


async def test_nor_is_one_of_a_server() -> None:
    for _ in range(2):
        peer = WebSocketToAServer()
        gc.collect()
        gc.disable()
        try:
            frame = BROKEN % (b"\xf1\x7f", b"")
            peer.connection.data_received(frame)
            del frame
            for _ in range(20_000):
                await asyncio.sleep(0)
            peer.connection.connection_lost(None)
            await settle()
            del peer
            assert held() == 0
        finally:
            gc.enable()


async def test_what_a_session_has_kept_of_its_streams_goes_with_it() -> None:
    together = ReplayBuffers(FakeClock())
    gc.collect()
    gc.disable()
    try:
        replay_buffer = together.open("ann")
        for kind in ("c", "s"):
            channel = Channel(can_stream=True, can_ask=True)
            channel.open(replay_buffer, kind)
            channel.send(bytes(LARGE))
        replay_buffer.close()
        channel.send(bytes(LARGE))
        assert (await channel.get(FakeClock(), 1, 1), await channel.get(FakeClock(), 1, 1)) != (None, None)
        del replay_buffer, channel
        assert held() == 0
    finally:
        gc.enable()
