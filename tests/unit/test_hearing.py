"""What one connection has its server tell: nobody goes on listening when the connection is over."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.core import mcp
from toolgate.core.exchange import Exchange
from toolgate.core.jsonrpc import RpcError
from toolgate.core.model import Asker, Client, Fault
from toolgate.upstreams.mcp.subscriptions import ModernSubscriptions


class Mouth:
    """A connection to a server that is asked for streams, and answers by hand."""

    dialect: Any = SimpleNamespace(capabilities={"resources": {"subscribe": True}}, listing=lambda *_: ({}, ()))

    def __init__(self) -> None:
        self.streams: list[Exchange] = []

    async def begin(self, method: str, params: bytes, headers: Any) -> tuple[int, Exchange]:
        self.streams.append(Exchange(Asker("upstream", "there"), FakeClock()))
        return len(self.streams), self.streams[-1]

    def missed(self) -> None: ...


async def test_a_connection_that_ends_as_its_stream_is_acknowledged_leaves_nobody_listening() -> None:
    mouth: Any = Mouth()
    hearing = ModernSubscriptions(mouth, Client(), FakeClock())
    watching = asyncio.ensure_future(hearing.watch(("resources", "note:///a")))
    await settle()
    honoured = {"resourceSubscriptions": ["note:///a"]}
    acknowledged = {"notifications": honoured, "_meta": {mcp.SUBSCRIPTION_KEY: 1}}
    hearing.acknowledged(Raw(json.dumps(acknowledged).encode()))
    mouth.streams[0].fail(Fault("SERVER_FAILED", "it hung up"))
    hearing.close()
    with suppress(Fault):
        await watching
    await asyncio.sleep(60)
    assert len(mouth.streams) == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("hear")]


async def test_what_a_server_says_against_a_stream_of_several_clients_is_passed_on_to_none_of_them() -> None:
    mouth: Any = Mouth()
    hearing = ModernSubscriptions(mouth, Client(), FakeClock())
    watching = asyncio.ensure_future(hearing.watch(("resources", "note:///mine")))
    await settle()
    refusal = RpcError(-32021, "note:///of/somebody/else is not to be watched")
    mouth.streams[0].fail(Fault("UPSTREAM_ERROR", refusal.message, reach="executed", upstream=refusal))
    with pytest.raises(Fault) as raised:
        await watching
    hearing.close()
    assert "somebody" not in raised.value.message and not raised.value.upstream
