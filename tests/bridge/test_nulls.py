"""Members that say `null` where they may be left out, as many programs write empty ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from official import Json
from peers import (
    LATEST,
    MODERN,
    LegacyServer,
    ModernServer,
    Question,
    Scene,
    form,
    gateway,
    named,
    rooted,
    sampled,
    sampling,
    text_of,
)
from virtualtime import settle

from toolgate.core import jsonrpc

UI = "io.modelcontextprotocol/ui"


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


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize(
    "said", [None, {"tools": None}, {"tools": {"listChanged": None}, "logging": False}, {"tools": True}]
)
async def test_what_a_server_declares_by_null_is_not_declared_at_its_own_path(server: Any, said: Any) -> None:
    method = "initialize" if server is LegacyServer else "server/discover"
    there = says(server({"t": hello}), method, {}, {"capabilities": said})
    async with gateway(there=there) as rig:
        client = rig.legacy_stranger(path="/mcp/servers/there")
        told = (await client.initialize()).result["capabilities"]
        assert all(isinstance(each, dict) and None not in each.values() for each in told.values()), told
        assert "logging" not in told or said != {"tools": {"listChanged": None}, "logging": False}
        assert text_of((await client.call("t")).result) == "hello"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize(
    "said", ["x", 5, ["text/html"], None, {"n" * 60_000: 1}, json.loads('{"a":' * 90 + "1" + "}" * 90)]
)
async def test_an_extension_that_some_clients_cannot_read_is_told_to_nobody(server: Any, said: Any, path: str) -> None:
    """At a path of several servers one such word cost clients all of them."""
    method = "initialize" if server is LegacyServer else "server/discover"
    there = says(server({"t": hello}), method, {}, {"capabilities": {"tools": {}, "extensions": {UI: said}}})
    async with gateway(there=there) as rig:
        await (await rig.client(LATEST, path=path)).request("tools/list")
        client = rig.legacy_stranger(path=path)
        assert UI not in (await client.initialize()).result["capabilities"].get("extensions", {})


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
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()
    assert not getattr(jsonrpc.decode(data), empty)
    if "method" not in message:
        assert not getattr(_in_pieces(data), empty)


def _in_pieces(data: bytes) -> jsonrpc.Message:
    reading = jsonrpc.decoding(data, frozenset())
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return end.value[0]


# Of results, questions and errors.


@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
async def test_a_result_without_structured_content_says_no_more_than_its_text(server: Any) -> None:
    async def half(scene: Scene) -> Json:
        return {"content": [{"type": "text", "text": "hello"}], "structuredContent": None}

    async with gateway(there=server({"half": half})) as rig:
        result = (await (await rig.legacy(path="/mcp/servers/there")).call("half")).result
    assert (result["content"], "structuredContent" in result) == ([{"type": "text", "text": "hello"}], False)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_modern_server_may_ask_without_a_state_and_for_nothing_in_particular(revision: str) -> None:
    async def asks(scene: Scene) -> Json | str:
        if "inputResponses" in scene.params:
            return "went on"
        asked = {"a": {"method": "roots/list", "params": None}}
        return {"resultType": "input_required", "requestState": None, "inputRequests": asked}

    async with gateway(there=ModernServer({"asks": asks})) as rig:
        client = await rig.client(revision, path="/mcp/servers/there")
        reply = await client.converse("tools/call", {"roots/list": rooted("file:///a")}, name="asks")
    assert reply.text == "went on"


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("server", [LegacyServer, ModernServer])
@pytest.mark.parametrize(
    "question, answer",
    [(form(mode=None, url=None), named("Ada")), (sampling(tools=None, toolChoice=None), sampled("hi"))],
    ids=["form", "sampling"],
)
async def test_a_question_may_say_null(server: Any, question: Question, answer: Json, revision: str) -> None:
    """Its client is asked without, as its schema has it."""

    async def asks(scene: Scene) -> str:
        return str(await scene.ask(question) == answer)

    async with gateway(there=server({"asks": asks})) as rig:
        client = await rig.client(revision, path="/mcp/servers/there")
        reply = await client.converse("tools/call", {question[0]: answer}, name="asks")
    assert reply.text == "True"


MALFORMED = "The server sent a malformed error"


@pytest.mark.parametrize(
    "error, code, message",
    [
        ({"code": "E1", "message": "no"}, -32603, "no"),
        ({"code": "-5", "message": "no"}, -32603, "no"),
        ({"code": 5.0, "message": "no"}, 5, "no"),
        ({"code": None, "message": "no"}, -32603, "no"),
        ({"message": "no"}, -32603, "no"),
        ({"code": 5, "message": None}, 5, MALFORMED),
        ({"code": [], "message": {}}, -32603, MALFORMED),
    ],
)
def test_of_an_error_out_of_shape_is_kept_what_can_be_read(error: Json, code: int, message: str) -> None:
    found = jsonrpc.read_error(Raw(json.dumps({**error, "data": {"why": 1}}).encode()))
    assert (found.code, found.message, bytes(found.data)) == (code, message, b'{"why": 1}')


@pytest.mark.parametrize("error", [b"null", b'"no"', b"[]", b"7"])
def test_what_is_no_error_at_all_is_one_of_its_server(error: bytes) -> None:
    assert jsonrpc.read_error(Raw(error)) == jsonrpc.RpcError(-32603, MALFORMED)
