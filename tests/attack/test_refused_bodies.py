"""What is refused is let go of: a client without rights cannot fill the memory with what it asked for."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import types
from pathlib import Path
from typing import Any

import pytest
from inmemory import ENVELOPE, LATEST, MODERN, Scripted, Visitor, gateway, tools
from processes.ground import gateway as real_gateway
from processes.ground import real, settings

from toolgate.config import Config, Limits
from toolgate.config.access import KnownClient, Rate, Rates
from toolgate.core.model import Principal

NOTHING = Config(clients=(KnownClient(id="ann", name="ann", servers="none"),))
LIMITED = Config(limits=Limits(rates=Rates(principal=Rate(1, 3600.0))))
LARGE = "x" * 100_000


async def as_ann(*_: Any) -> Principal:
    return Principal("ann", client="ann")


def garbage() -> list[Any]:
    """What only the garbage collector frees, of frames and errors."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [each for each in gc.garbage if isinstance(each, types.FrameType | BaseException)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.promise("b.attacks.bodies")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    ("config", "method", "params"),
    [
        (NOTHING, "tools/call", {"name": "there__t", "arguments": {"a": LARGE}}),
        (NOTHING, "tools/call", {"name": "no-such", "arguments": {"a": LARGE}}),
        (NOTHING, "tools/call", {"name": "mcp_call", "arguments": {"server": "there", "tool": "t", "args": LARGE}}),
        (NOTHING, "prompts/get", {"name": "no-such", "arguments": {"a": LARGE}}),
        (NOTHING, "resources/read", {"uri": "x://" + "y" * 10_000}),
        (NOTHING, "no/such", {"a": LARGE}),
        (LIMITED, "tools/call", {"name": "there__t", "arguments": {"a": LARGE}}),
        (Config(), "tools/call", {"name": "there__t", "arguments": [LARGE]}),
        (Config(), "tools/call", {"name": "there__t", "arguments": {"wrong": LARGE}}),
        (Config(), "tools/call", {"name": 1, "arguments": {"a": LARGE}}),
    ],
)
async def test_a_refused_request_leaves_no_cycle_behind(
    revision: str, config: Config, method: str, params: dict[str, Any]
) -> None:
    script = Scripted(tools_list=tools("t", inputSchema={"type": "object", "additionalProperties": False}))
    identify = as_ann if config is NOTHING else None
    async with gateway(config=config, scripts={"there": script}, identify=identify) as app:
        visitor = Visitor(app)
        if revision == LATEST:
            await visitor.initialize()

        async def ask() -> None:
            if revision == LATEST:
                response = await visitor.post(visitor.request(method, **params))
            else:
                named = str(params.get("name", params.get("uri", "")))
                headers = {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": named or None}
                response = await visitor.post(visitor.modern_request(method, **params), headers=headers)
            assert b"rror" in response.body

        for _ in range(3):
            await ask()
        gc.collect()
        gc.disable()
        try:
            await ask()
            assert garbage() == []
        finally:
            gc.enable()


def _resident() -> int:
    """MB."""
    status = Path(f"/proc/{os.getpid()}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


async def _flood(revision: str, count: int, size: int) -> int:
    """How many MB the process has grown by after that many refused requests."""
    params: dict[str, Any] = {"name": "no-such", "arguments": {"a": "x" * size}}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if revision == MODERN:
        params["_meta"] = ENVELOPE
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "no-such"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()

    async with real_gateway(settings()) as served:

        def post() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", served.port)
            connection.request("POST", "/mcp", body, headers)
            assert b"error" in connection.getresponse().read()
            connection.close()

        for _ in range(3):
            await asyncio.to_thread(post)
        before = _resident()
        gc.disable()  # which counts objects: a few large ones are nothing to it
        try:
            for _ in range(count):
                await asyncio.to_thread(post)
            return _resident() - before
        finally:
            gc.enable()


@pytest.mark.promise("b.attacks.bodies")
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@real
async def test_the_process_does_not_grow_by_what_it_refuses(revision: str) -> None:
    assert await _flood(revision, 20, 8_000_000) < 64


@pytest.mark.attack
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@real
async def test_the_process_does_not_grow_by_two_hundred_refused_requests_of_15_mb(revision: str) -> None:
    assert await _flood(revision, 200, 15_000_000) < 64
