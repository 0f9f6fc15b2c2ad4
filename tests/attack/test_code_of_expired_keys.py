"""Code whose caller's key or token expires while it runs makes no calls from then on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from scripted_engine import Process
from scripted_engine import Scripted as Processes
from virtualtime import FakeClock, settle, soon

from toolgate.auth import keys
from toolgate.config import Config
from toolgate.config.access import KnownClient
from toolgate.sandbox.worker import Engine
from toolgate.state.memory import MemoryStore


@pytest.mark.parametrize("by", ["expiry", "rotation"])
async def test_code_makes_no_calls_once_its_callers_key_has_expired(by: str) -> None:
    clock, running, told = FakeClock(), list[Process](), list[Any]()
    store = MemoryStore(clock)
    id, key = await keys.create(store, "ann", clock.wall(), 60 if by == "expiry" else None)

    def play(process: Process, message: dict[str, Any]) -> None:
        running.append(process)
        told.append((message.get("value"), (message.get("error") or {}).get("message", "")))

    def calls(number: int) -> None:
        running[-1].says({"call": number, "server": "there", "tool": "t", "arguments": {}})

    script = Scripted(tools_list=tools("t"), tools_call=said("done"))
    engines: Any = {"python": lambda *_: Engine("scripted", Processes(play).start)}
    config = Config(clients=(KnownClient(id="ann", name="ann", servers="all"),))
    async with gateway(config=config, scripts={"there": script}, engines=engines, store=store, clock=clock) as app:
        asked = Visitor(app, authorization=f"Bearer {key}").ask_modern(
            "tools/call", {"mcp-name": "execute_code"}, name="execute_code", arguments={"code": "…", "timeout": 120}
        )
        running_code = asyncio.ensure_future(asked)
        await settle()
        calls(1)
        await settle()
        assert told[-1] == ("done", "")
        if by == "rotation":
            await keys.rotate(store, id, clock.wall(), grace=60)
        await clock.advance(61)
        calls(2)
        await settle()
        assert "is no longer valid" in told[-1][1]
        assert [each["method"] for each in script.requests].count("tools/call") == 1
        running[-1].says({"done": {"value": "over"}})
        await soon(running_code)
