"""Every type of message through a gateway that aggregates, over real processes and sockets, by the official SDK.

In front stands the SDK's client, of either era; behind it a child made with the SDK's server, of either era, beside two
scripted ones that hold calls and measure what they are sent. Each probe looks at what came, not only that something
did.
(Tasks have tests of their own.)
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp.types as types
import pytest
from mcp.client.client import Client as Sdk
from mcp.client.streamable_http import streamable_http_client
from processes.ground import (
    LEGACY,
    MODERN,
    WAIT,
    Client,
    Json,
    alive,
    child,
    failure,
    read_response,
    real,
    shut,
    toolgate,
    until,
)

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

FIXTURE = Path(__file__).parents[1] / "conformance" / "fixture_server.py"
WATCHED = "sdk+test://watched-resource"
MODES = {LEGACY: "legacy", MODERN: "auto"}


def servers(era: str) -> Json:
    """An SDK server of one era, its client's own so that it may ask for roots, and two scripted ones."""
    name = "modern" if era == MODERN else "legacy"
    sdk = {"command": sys.executable, "args": [str(FIXTURE), "--stdio", "--era", name], "scope": "session"}
    return {"sdk": sdk, "counting": child("counting"), "wordy": child("wordy")}


class Probe:
    """What one client sees, and the raw clients beside it."""

    def __init__(self, client: Sdk, raw: Client, told: list[Any], logs: list[Any]) -> None:
        self.client = client
        self.raw = raw
        self.told = told
        self.logs = logs

    @property
    def is_modern(self) -> bool:
        return self.client.protocol_version == MODERN

    async def call(self, tool: str, arguments: Json | None = None, **more: Any) -> str:
        result = await self.client.call_tool(tool, arguments or {}, **more)
        assert not result.is_error, result
        return "".join(block.text for block in result.content if isinstance(block, types.TextContent))

    async def counts(self) -> Json:
        return json.loads(await self.call("counting__counts"))

    def heard(self, kind: type) -> list[Any]:
        return [each for each in self.told if isinstance(each, kind)]


async def elicit(context: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.com"})


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    asked = params.messages[0].content
    text = f"heard: {asked.text}" if isinstance(asked, types.TextContent) else "?"
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text=text), model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///of/the/client")])


@asynccontextmanager
async def serving(era: str) -> AsyncIterator[Client]:
    quiet = asyncio.subprocess.DEVNULL
    async with toolgate("serve", "--port", "0", config=servers(era), stdout=quiet) as running:
        yield await running.until_it_serves()


@asynccontextmanager
async def probing(client_era: str, server_era: str) -> AsyncIterator[Probe]:
    told: list[Any] = []
    logs: list[Any] = []

    async def hear(message: Any) -> None:
        told.append(message)

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logs.append((params.level, params.data))

    async with serving(server_era) as raw:
        url = f"http://127.0.0.1:{raw.port}/mcp"
        client = Sdk(
            streamable_http_client(url, max_sse_event_size=None),  # else a slow answer of over 1 MiB is refused by it
            mode=MODES[client_era],
            read_timeout_seconds=WAIT,
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=roots,
            logging_callback=log,
            log_level="info" if client_era == MODERN else None,
            message_handler=hear,
        )
        async with client:
            assert client.protocol_version == client_era
            yield Probe(client, raw, told, logs)


# The probes.


async def progress(probe: Probe) -> None:
    seen: list[Any] = []

    async def note(value: float, total: float | None, message: str | None) -> None:
        seen.append((value, total, message))

    await probe.call("sdk__test_tool_with_progress", progress_callback=note)
    assert seen == [(0, 100, "0 of 100"), (50, 100, "50 of 100"), (100, 100, "100 of 100")]


async def log(probe: Probe) -> None:
    if not probe.is_modern:
        await probe.client.set_logging_level("info")
    await probe.call("sdk__test_tool_with_logging")
    words = ["Tool execution started", "Tool processing data", "Tool execution completed"]
    await until(lambda: len(probe.logs) >= len(words))
    assert probe.logs == [("info", word) for word in words]


async def sampling(probe: Probe) -> None:
    assert await probe.call("sdk__test_sampling", {"prompt": "well, é?"}) == "LLM response: heard: well, é?"


async def elicitation(probe: Probe) -> None:
    assert "ada@example.com" in await probe.call("sdk__test_elicitation", {"message": "Who are you?"})


async def list_roots(probe: Probe) -> None:
    assert await probe.call("sdk__test_input_required_result_list_roots") == "Roots: file:///of/the/client"


async def completion(probe: Probe) -> None:
    ref = types.PromptReference(type="ref/prompt", name="sdk__test_prompt_with_arguments")
    found = await probe.client.complete(ref, {"name": "arg1", "value": "par"})
    assert found.completion.values == ["paris", "park", "party"]
    template = types.ResourceTemplateReference(type="ref/resource", uri="sdk+test://template/{id}/data")
    found = await probe.client.complete(template, {"name": "id", "value": "test-"})
    assert found.completion.values == ["test-one", "test-two"]


async def subscribe(probe: Probe) -> None:
    if probe.is_modern:
        async with probe.client.listen(resource_subscriptions=[WATCHED]) as events:
            await probe.call("sdk__test_trigger_resource_update")
            assert (await anext(events)).uri == WATCHED
        return
    await probe.client.subscribe_resource(WATCHED)
    await probe.call("sdk__test_trigger_resource_update")
    await until(lambda: probe.heard(types.ResourceUpdatedNotification))
    [told] = probe.heard(types.ResourceUpdatedNotification)
    assert str(told.params.uri) == WATCHED
    await probe.client.unsubscribe_resource(WATCHED)


async def list_changed(probe: Probe) -> None:
    before = {tool.name for tool in (await probe.client.list_tools()).tools}
    if probe.is_modern:
        async with probe.client.listen(tools_list_changed=True) as events:
            await probe.call("sdk__test_trigger_tool_change")
            await anext(events)
    else:
        await probe.call("sdk__test_trigger_tool_change")
        await until(lambda: probe.heard(types.ToolListChangedNotification))
    after = {tool.name for tool in (await probe.client.list_tools()).tools}
    assert before ^ after == {"sdk__test_dynamic_tool"}


async def templates(probe: Probe) -> None:
    [found] = (await probe.client.list_resource_templates()).resource_templates
    assert found.uri_template == "sdk+test://template/{id}/data"
    for uri in ("sdk+test://template/7/data", "test://template/7/data"):
        [contents] = (await probe.client.read_resource(uri)).contents
        assert json.loads(contents.text)["id"] == "7"


async def cancel(probe: Probe) -> None:
    """A modern client goes away, a legacy one says so; either way its server hears of it."""
    before = (await probe.counts())["cancelled"]
    raw = Client(probe.raw.port, probe.client.protocol_version)
    if not probe.is_modern:
        await raw.open()
    reader, writer = await raw.start("tools/call", {"name": "counting__hold"})
    while (await probe.counts())["now"] < 1:
        pass
    if probe.is_modern:
        writer.transport.abort()
    else:
        await tell(raw, "notifications/cancelled", {"requestId": raw.last_id})
        await read_response(reader)
    while (await probe.counts())["cancelled"] < before + 1:
        pass
    await shut(writer)
    assert await probe.call("counting__release") == "released"


async def ten_in_parallel(probe: Probe) -> None:
    while (await probe.counts())["now"]:
        pass  # a call that was cancelled before ends there a little later
    calls = [asyncio.ensure_future(probe.call("counting__hold", {"say": f"call {number}"})) for number in range(10)]
    while (await probe.counts())["now"] < 10:
        pass
    await probe.call("counting__release")
    assert await asyncio.gather(*calls) == [f"call {number}" for number in range(10)]


async def a_large_argument(probe: Probe) -> None:
    size = 1_500_000
    assert await probe.call("wordy__listen", {"say": "é" * (size // 2) + "x" * (size // 2)}) == str(size)


async def a_large_result(probe: Probe) -> None:
    assert len(await probe.call("wordy__talk", {"length": 1_500_000})) == 1_500_000


async def tell(raw: Client, method: str, params: Json) -> None:
    """A notification of a legacy client."""
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()
    status, _, _ = await exchange(raw.port, body, **{"Mcp-Session-Id": (raw.session or b"").decode()})
    assert status == 202


async def exchange(port: int, body: bytes, **headers: str) -> tuple[int, dict[bytes, bytes], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    told = {
        "Host": "localhost",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    try:
        async with asyncio.timeout(WAIT):
            return await read_response(reader)
    finally:
        await shut(writer)


PROBES: dict[str, Callable[[Probe], Awaitable[None]]] = {
    "progress": progress,
    "log": log,
    "sampling": sampling,
    "elicitation": elicitation,
    "roots": list_roots,
    "completion": completion,
    "subscribe": subscribe,
    "list_changed": list_changed,
    "templates": templates,
    "cancel": cancel,
    "10 calls in parallel": ten_in_parallel,
    "an argument of 1.5 MB": a_large_argument,
    "a result of 1.5 MB": a_large_result,
}


@pytest.mark.parametrize("server_era", [LEGACY, MODERN])
@pytest.mark.parametrize("client_era", [LEGACY, MODERN])
@real
async def test_every_type_of_message_comes_through(client_era: str, server_era: str) -> None:
    failed: Json = {}
    async with probing(client_era, server_era) as probe:
        for name, work in PROBES.items():
            try:
                async with asyncio.timeout(WAIT / 2):
                    await work(probe)
            except Exception as error:
                failed[name] = repr(error)
    assert failed == {}


@pytest.mark.parametrize("server_era", [LEGACY, MODERN])
@real
async def test_a_child_that_is_killed_in_the_middle_of_a_call_fails_that_call_alone(server_era: str) -> None:
    async with probing(MODERN, server_era) as probe:
        pid = int(await probe.call("counting__pid"))
        lost = asyncio.create_task(failure(Client(probe.raw.port).call("counting__hold")))
        while (await probe.counts())["now"] < 1:
            pass
        os.kill(pid, signal.SIGKILL)
        error = await lost
        assert (error.data["code"], error.data["outcome"], error.data["server"]) == (
            "SERVER_FAILED",
            "sent_unknown",
            "counting",
        )
        assert await probe.call("wordy__listen", {"say": "unharmed"}) == "8"
        assert await probe.call("sdk__test_simple_text") == "This is a simple text response for testing."
        assert int(await probe.call("counting__pid")) != pid
        assert not alive(pid)


@real
async def test_a_subscription_ends_gracefully_when_the_gateway_is_stopped() -> None:
    quiet = asyncio.subprocess.DEVNULL
    async with toolgate("serve", "--port", "0", config=servers(LEGACY), stdout=quiet) as running:
        raw = await running.until_it_serves()
        sdk = Sdk(f"http://127.0.0.1:{raw.port}/mcp", mode="auto", read_timeout_seconds=WAIT)
        async with sdk as client, client.listen(resource_subscriptions=[WATCHED]) as events:
            running.process.terminate()
            assert [event async for event in events] == []
        assert await running.ended() == 0


INITIALIZE: Json = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "evil", "version": "1"}}


@real
async def test_foreign_pages_and_bogus_sessions_are_turned_away() -> None:
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
    listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    async with serving(LEGACY) as client:
        port = client.port
        for evil in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
            status, _, _ = await exchange(port, hello, **evil)
            assert status == 403, evil
        for session in ("bogus", "0" * 43, "../../etc"):
            status, _, body = await exchange(port, listing, **{"Mcp-Session-Id": session})
            assert (status, "error" in json.loads(body)) == (404, True), session
        status, headers, _ = await exchange(port, hello)
        assert status == 200
        session = headers[b"mcp-session-id"].decode()
        status, _, _ = await exchange(port, listing, **{"Mcp-Session-Id": session[:-1] + "~"})
        assert status == 404
        status, _, _ = await exchange(port, listing, **{"Mcp-Session-Id": session})
        assert status == 200
