"""Servers of 2025-03-26 may send several messages as one array."""

from __future__ import annotations

import json
from typing import Any

import pytest
from peers import LegacyServer, Scene, _LegacyConnection, gateway  # type: ignore[reportPrivateUsage]

from toolgate.upstreams.links import stdio

THERE = "/mcp/servers/there"


class Batching(_LegacyConnection):
    """It answers calls with a log line and the result in one message, and asks whether the client lives."""

    def check(self, message: dict[str, Any]) -> None: ...

    def answered(self, message: dict[str, Any]) -> None: ...

    def reply(self, message: dict[str, Any], result: Any) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if message["method"] != "tools/call":
            super().reply(message, result)
            return
        told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "working"}}
        self.say(json.dumps([told, {"jsonrpc": "2.0", "id": "alive?", "method": "ping"}, answer]).encode())


async def hello(scene: Scene) -> str:
    return "hello"


async def test_each_message_of_a_batch_is_received() -> None:
    there = LegacyServer({"t": hello}, revision="2025-03-26")
    there.connection = Batching
    async with gateway(there=there) as rig:
        reply = await (await rig.legacy("2025-03-26", path=THERE)).call("t")
        assert reply.text == "hello"
        assert [told["data"] for told in reply.notes("notifications/message")] == ["working"]
        assert {"jsonrpc": "2.0", "id": "alive?", "result": {}} in there.answers


async def test_a_batch_too_large_to_be_received_at_once_is_received_as_none_of_it() -> None:
    """One of 31 MB made calls of others wait for 4 s."""
    told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 20_000}}
    there = LegacyServer({"t": hello}, revision="2025-03-26")
    async with gateway(there=there) as rig:
        client = await rig.legacy("2025-03-26", path=THERE)
        call = client.start("tools/call", name="t")
        there.open_connections[0].say(json.dumps([told] * 15).encode())
        reply = await call.reply()
        assert reply.notes("notifications/message") == [] and reply.text == "hello"


@pytest.mark.parametrize(
    ("line", "is_one"),
    [(b'{"id":1}', True), (b'[{"id":1}]', True), (b'[ {"id":1}]', True), (b"[INFO] ready", False), (b"[]", False)],
)
def test_a_line_that_begins_as_an_array_of_objects_is_a_message_and_a_log_line_is_none(
    line: bytes, is_one: bool
) -> None:
    assert bool(stdio._is_message(line)) is is_one  # type: ignore[reportPrivateUsage]
