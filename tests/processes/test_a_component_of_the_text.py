"""Seed 003's component and its curl commands as they stand, with a real component over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from processes.ground import LEGACY, MODERN, WAIT, Served, gateway, real
from processes.scripted_component import ScriptedComponent, component

from toolgate.config import Config, Server

sys.path.insert(0, str(Path(__file__).parents[1] / "behaviour"))

import examples

EXAMPLES: Mapping[str, Any] = {example.id: example.body for example in examples.kept()}
METADATA = EXAMPLES["003 Tool Component Requirements 1"]
REPLY = EXAMPLES["003 Tool Component Requirements 2"]
CURL = {"Accept": "*/*", "User-Agent": "curl/8.5.0"}  # what it sends of itself


async def answers(request: Any) -> None:
    request.whole(json.dumps(REPLY).encode())


def behind(script: ScriptedComponent) -> AbstractAsyncContextManager[Served]:
    echo = Server(id="echo", name="echo", type="component", url=script.url)
    return gateway(Config(servers=(echo,), surface="components"))


def post(port: int, headers: Mapping[str, str], message: Any) -> Any:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)) as connection:
        connection.request("POST", "/mcp", json.dumps(message), CURL | dict(headers))
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type")) == (200, "application/json")
        return json.loads(response.read())


@pytest.mark.promise("b.rulings.10", "003.component.post", "003.flow.discovery")
@pytest.mark.parametrize("era", [LEGACY, MODERN])
@real
async def test_the_texts_metadata_is_listed_and_its_reply_comes_back(era: str) -> None:
    schema = {"type": "object"}  # the text leaves it open
    async with component(METADATA | {"inputSchema": schema}, answers) as script, behind(script) as served:
        client = served.client(era)
        if era == LEGACY:
            await client.open()
        assert (await client.ask("tools/list"))["tools"] == [METADATA | {"inputSchema": schema}]
        result = await client.ask("tools/call", {"name": METADATA["name"], "arguments": {}})
        assert result["content"] == REPLY["content"]


@pytest.mark.promise("b.rulings.10", "003.methods.served")
@real
async def test_the_texts_curl_commands_run_as_they_stand() -> None:
    async with component() as script, behind(script) as served:
        said: list[Any] = []
        for url, headers, message in EXAMPLES["003 Usage Example 1"]:
            assert url.endswith("/mcp")
            said.append(await asyncio.to_thread(post, served.port, headers, message))
        opened, listed, called = said
        assert opened["result"]["protocolVersion"] == "2025-06-18"
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["echo"]
        assert called["result"]["content"] == [{"type": "text", "text": "Hello"}]
