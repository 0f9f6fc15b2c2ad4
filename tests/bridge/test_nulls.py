"""Members that say `null` where they may be left out, as many programs write empty ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from official import Json
from peers import LATEST, LegacyServer, ModernServer, Scene, gateway, text_of
from virtualtime import settle

from toolgate.core import jsonrpc


async def hello(scene: Scene) -> str:
    return "hello"


def says(server: Any, method: str, message: Json, result: Json) -> Any:
    """A server whose results of one method have these members beside `result`, and those in it."""

    class Connection(server.connection):
        def reply(self, asked: Json, given: Any) -> None:
            if asked["method"] != method:
                super().reply(asked, given)
            else:
                self.say({"jsonrpc": "2.0", "id": asked["id"], "result": {**given, **result}, **message})

    server.connection = Connection
    return server


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize("message, result", [({"error": None}, {}), ({}, {"instructions": None, "serverInfo": None})])
async def test_a_server_is_opened_whatever_it_leaves_empty(server: Any, message: Json, result: Json) -> None:
    method = "initialize" if server is LegacyServer else "server/discover"
    async with gateway(there=says(server({"t": hello}), method, message, result)) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        assert text_of((await client.call("t")).result) == "hello"


async def test_a_list_that_changes_by_a_notification_with_null_is_looked_up_again() -> None:
    there = LegacyServer({"t": hello}, announces=True)
    async with gateway(there=there) as rig:
        client = await rig.client(LATEST, path="/mcp/servers/there")
        await client.request("tools/list")
        there.lists["tools/list"][1].append({"name": "new", "inputSchema": {"type": "object"}})
        there.open_connections[0].say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": None})
        await settle()
        listed = (await client.request("tools/list")).result["tools"]
    assert [tool["name"] for tool in listed] == ["t", "new"]


@pytest.mark.parametrize("empty", ["arguments", "_meta"])
async def test_a_client_may_call_a_tool_with_null(empty: str) -> None:
    there = LegacyServer({"t": hello})
    async with gateway(there=there) as rig:
        client = await rig.legacy(LATEST, path="/mcp/servers/there")
        message = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "t", empty: None}}
        reply = await client.raw(json.dumps(message).encode())
    assert text_of(reply.message["result"]) == "hello"


@pytest.mark.parametrize(
    "message, empty",
    [
        ({"method": "ping", "id": 1, "params": None}, "params"),
        ({"id": 1, "result": {}, "error": None}, "error"),
        ({"id": 1, "result": None, "error": {"code": 1, "message": "no"}}, "result"),
    ],
)
def test_what_says_null_is_read_as_if_it_were_not_there(message: Json, empty: str) -> None:
    assert not getattr(jsonrpc.decode(json.dumps({"jsonrpc": "2.0", **message}).encode()), empty)
