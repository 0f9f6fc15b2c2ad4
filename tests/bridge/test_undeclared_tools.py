"""Servers that declare nothing of what they offer."""

from __future__ import annotations

from typing import Any

import pytest
from official import Json
from peers import LATEST, MODERN, LegacyServer, ModernServer, RpcError, Scene, gateway, text_of


async def hello(scene: Scene) -> str:
    return "hello"


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_server_that_declares_nothing_is_asked_for_its_tools(server: Any, revision: str) -> None:
    async with gateway(there=server({"t": hello}, {"p": hello}, declares={})) as rig:
        client = await rig.client(revision)
        [tool] = (await client.request("tools/list")).result["tools"]
        assert text_of((await client.call(tool["name"])).result) == "hello"
        assert (await client.request("prompts/list")).result["prompts"] == []


@pytest.mark.parametrize("code", [-32601, -32603, -32600])
async def test_whatever_it_answers_if_it_has_none_is_an_empty_list(code: int) -> None:
    there = LegacyServer(resources={"mem://r": hello}, declares={"resources": {}})

    class Connection(there.connection):
        def requested(self, message: Json) -> None:
            if message["method"] == "tools/list":
                self.refuse(message, RpcError(code, "What is that?"))
            else:
                super().requested(message)

    there.connection = Connection
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        assert (await client.request("tools/list")).result["tools"] == []
        assert len((await client.request("resources/list")).result["resources"]) == 1
