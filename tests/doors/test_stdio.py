"""The stdio door: one client of either era, one message a line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import official
import pytest
from inmemory import ENVELOPE, Scripted, gateway, said, tools
from virtualtime import settle

from toolgate.config import Config, Http, KnownClient
from toolgate.core import mcp
from toolgate.core.model import Principal
from toolgate.frontends.stdio import StdioFrontend
from toolgate.state.settings import Settings

Json = dict[str, Any]


class Client:
    """The other end of the pipe: what it `wrote` are whole lines of JSON."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.door: StdioFrontend

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n") and data.count(b"\n") == 1, "one message is one line"
        self.lines.append(data)

    async def says(self, *data: bytes) -> list[Json]:
        """What comes of it."""
        before = len(self.lines)
        for chunk in data:
            self.door.data_received(chunk)
        await settle()
        return [json.loads(line) for line in self.lines[before:]]

    async def asks(self, method: str, id: Any = 1, **params: Any) -> Json:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        *_, answer = await self.says(json.dumps(message).encode() + b"\n")
        assert answer["id"] == id
        official.check(answer, "2026-07-28" if "_meta" in params else "2025-11-25", method)
        return answer

    async def opens(self) -> None:
        info = {"name": "client", "version": "1"}
        answer = await self.asks("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        assert await self.says(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n') == []


@asynccontextmanager
async def connected(**more: Any) -> AsyncGenerator[Client]:
    async with gateway(**more) as app:
        client = Client()
        client.door = app.stdio(client.write)
        yield client
        await client.door.close()


@pytest.mark.promise("001.lifecycle.persist")
async def test_a_legacy_client_shakes_hands_and_calls() -> None:
    async with connected() as client:
        await client.opens()
        assert len((await client.asks("tools/list"))["result"]["tools"]) == 2
        answer = await client.asks("tools/call", id="x", name="greeter__greet", arguments={"name": "Ada"})
        assert answer["result"] == said("Hello, Ada!")


@pytest.mark.promise("spec.2026.stateless")
async def test_a_modern_client_just_calls() -> None:
    async with connected() as client:
        answer = await client.asks("tools/call", _meta=ENVELOPE, name="greeter__greet", arguments={"name": "Ada"})
        assert answer["result"]["resultType"] == "complete"
        discovered = (await client.asks("server/discover", _meta=ENVELOPE))["result"]
        assert discovered["supportedVersions"] == list(mcp.dates("modern"))
        assert (await client.asks("ping", _meta=ENVELOPE))["error"]["code"] == -32601


@pytest.mark.promise("spec.2026.stdio.lines")
async def test_messages_may_be_cut_anywhere_and_come_together() -> None:
    async with connected() as client:
        one = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        two = b'\r\n  \n{"jsonrpc":"2.0","id":2,"method":"ping"}\r\n'
        for at in range(len(one)):
            answers = await client.says(one[:at], one[at:] + two)
            assert [answer["id"] for answer in answers] == [1, 2]


@pytest.mark.promise("spec.2026.transports.utf8")
@pytest.mark.parametrize("line", [b"nonsense", b"[]", b"\xff", b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', b"{}"])
async def test_a_line_that_is_no_message_is_answered_with_an_error(line: bytes) -> None:
    async with connected() as client:
        [answer] = await client.says(line + b"\n")
        assert answer["error"]["code"] in (-32700, -32600) and answer["id"] is None
        assert (await client.asks("ping"))["result"] == {}


async def test_an_unknown_method_is_not_found() -> None:
    async with connected() as client:
        assert (await client.asks("tools/fly"))["error"]["code"] == -32601
        assert (await client.asks("tools/fly", _meta=ENVELOPE))["error"]["code"] == -32601


async def test_a_line_over_the_limit_is_refused_once_and_what_follows_is_read() -> None:
    async with connected(config=Config(http=Http(body_limit=100))) as client:
        [whole] = await client.says(b"x" * 101 + b"\n")
        assert whole["error"]["code"] == -32600 and "100 bytes" in whole["error"]["message"]
        cut = await client.says(b"x" * 60, b"x" * 60, b"x" * 60, b"x\n")
        assert [answer["error"]["code"] for answer in cut] == [-32600]
        assert (await client.asks("ping"))["result"] == {}


async def test_a_line_without_an_end_is_refused_before_its_end_and_not_kept() -> None:
    async with connected(config=Config(http=Http(body_limit=100))) as client:
        answers = await client.says(*[b"x" * 60] * 1000)
        assert [answer["error"]["code"] for answer in answers] == [-32600]
        assert await client.says(b"x\n") == []


@pytest.mark.promise("spec.2026.stdio.cancel")
async def test_a_modern_request_is_cancelled_by_a_notification_and_never_answered() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with connected(scripts={"docs": script}) as client:
        call = {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"_meta": ENVELOPE, "name": "docs__t"}}
        assert await client.says(json.dumps(call).encode() + b"\n") == []
        cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}\n'
        assert await client.says(cancel) == []
        assert script.requests[-1]["method"] == "notifications/cancelled"


@pytest.mark.promise("spec.legacy.ids.in-flight")
async def test_an_id_that_is_in_flight_is_not_taken_twice() -> None:
    script = Scripted(tools_list=tools("t"), tools_call=...)
    async with connected(scripts={"docs": script}) as client:
        for meta in ({}, {"_meta": ENVELOPE}):
            params = {**meta, "name": "docs__t"}
            call = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode() + b"\n"
            assert await client.says(call) == []
            [again] = await client.says(call)
            assert again["error"]["code"] == -32600 and again["id"] == 7


async def test_a_client_that_is_disabled_is_told_no_result_of_what_it_had_begun() -> None:
    allowed = KnownClient(id="ada", name="Ada", servers="all")
    configs = [Config(clients=(allowed,))]
    script = Scripted(tools_list=tools("t"), tools_call=...)
    settings = Settings(lambda: configs[0], {})
    ada = Principal("client:ada", is_here=True, client="ada")
    async with gateway(config=configs[0], scripts={"docs": script}, settings=settings) as app:
        ours, other = Client(), Client()
        ours.door, other.door = app.stdio(ours.write, principal=ada), app.stdio(other.write)
        for client in (ours, other):
            await client.opens()
            for id, meta in ((1, {}), (2, {"_meta": ENVELOPE})):
                call = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {**meta, "name": "docs__t"}}
                assert await client.says(json.dumps(call).encode() + b"\n") == []
        calling = [each for each in script.requests if each["method"] == "tools/call"]
        before = len(ours.lines)
        disabled = (msgspec.structs.replace(allowed, enabled=False),)
        configs[0] = msgspec.structs.replace(app.gateway.snapshot.config, clients=disabled)
        await app.reload()
        await settle()
        told = {each["id"]: each["error"]["data"] for each in map(json.loads, ours.lines[before:]) if "id" in each}
        assert {id: (data["code"], data["outcome"]) for id, data in told.items()} == {
            1: ("ACCESS_DENIED", "sent_unknown"),
            2: ("ACCESS_DENIED", "sent_unknown"),
        }
        cancelled = [each["params"]["requestId"] for each in script.requests if "cancelled" in each["method"]]
        assert sorted(cancelled) == [each["id"] for each in calling[:2]]
        for each in calling:
            script.say(json.dumps({"jsonrpc": "2.0", "id": each["id"], "result": said("late")}).encode())
        await settle()
        assert not any(b"late" in line for line in ours.lines)
        assert sum(b"late" in line for line in other.lines) == 2
        for client in (ours, other):
            await client.door.close()


async def test_a_client_is_told_that_a_list_has_changed_once_it_has_shaken_hands() -> None:
    script = Scripted(tools_list=tools("t"))
    async with connected(scripts={"docs": script}) as client:
        await client.asks("tools/list", _meta=ENVELOPE)
        before = len(client.lines)
        script.change(tools("u"))
        await asyncio.sleep(1)
        assert client.lines[before:] == []
        await client.opens()
        before = len(client.lines)
        script.change(tools("v"))
        await asyncio.sleep(1)
        assert [json.loads(line)["method"] for line in client.lines[before:]] == ["notifications/tools/list_changed"]


@pytest.mark.promise("spec.2026.stdio.exit")
async def test_the_end_of_the_input_is_the_end() -> None:
    async with connected() as client:
        assert not client.door.closed.is_set()
        client.door.eof_received()
        assert client.door.closed.is_set()
