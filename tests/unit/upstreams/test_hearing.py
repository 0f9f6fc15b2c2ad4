"""What one connection has its server tell: nobody goes on listening when the connection is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import jsonrpc, mcp
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import RpcError
from toolgate.core.model import Asker, Client
from toolgate.upstreams.mcp.requests import Handler
from toolgate.upstreams.mcp.subscriptions import ModernSubscriptions


class Mouth:
    """The requests to a server that is asked for streams, and answers by hand."""

    dialect: Any = SimpleNamespace(capabilities={"resources": {"subscribe": True}}, listing=lambda *_: ({}, ()))

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = Server(id="there", name="there", type="stdio")
        self.streams: list[Exchange] = []
        self.handlers: dict[str, Handler] = {}
        self.on_end: list[Callable[[], None]] = []

    def acknowledge(self, uri: str) -> None:
        params = {"notifications": {"resourceSubscriptions": [uri]}, "_meta": {mcp.SUBSCRIPTION_KEY: 1}}
        self.handlers[mcp.ACKNOWLEDGED](
            jsonrpc.decode(jsonrpc.notification(mcp.ACKNOWLEDGED, json.dumps(params).encode())), None
        )

    def end(self) -> None:
        for told in self.on_end:
            told()

    async def begin(self, method: str, params: bytes, headers: Any) -> tuple[int, Exchange]:
        self.streams.append(Exchange(Asker("upstream", "there"), FakeClock()))
        return len(self.streams), self.streams[-1]


async def test_a_connection_that_ends_as_its_stream_is_acknowledged_leaves_nobody_listening() -> None:
    mouth: Any = Mouth()
    hearing = ModernSubscriptions(mouth, Client(), lambda: None)
    watching = asyncio.ensure_future(hearing.watch(("resources", "note:///a")))
    await settle()
    mouth.acknowledge("note:///a")
    mouth.streams[0].fail(Fault("SERVER_FAILED", "it hung up"))
    mouth.end()
    with suppress(Fault):
        await watching
    await asyncio.sleep(60)
    assert len(mouth.streams) == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("hear")]


async def test_what_a_server_says_against_a_stream_of_several_clients_is_passed_on_to_none_of_them() -> None:
    mouth: Any = Mouth()
    hearing = ModernSubscriptions(mouth, Client(), lambda: None)
    watching = asyncio.ensure_future(hearing.watch(("resources", "note:///mine")))
    await settle()
    refusal = RpcError(-32021, "note:///of/somebody/else is not to be watched")
    mouth.streams[0].fail(Fault("UPSTREAM_ERROR", refusal.message, reach="executed", upstream=refusal))
    with pytest.raises(Fault) as raised:
        await watching
    mouth.end()
    assert "somebody" not in raised.value.message and not raised.value.upstream
