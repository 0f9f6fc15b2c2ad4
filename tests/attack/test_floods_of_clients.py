"""A client that sends much for others to read: a gateway serves everybody else meanwhile, and keeps none of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack.floods import beside
from doors.pipes import SseClient, WebSocket
from inmemory import ENVELOPE, LATEST, MODERN, Scripted, Visitor, gateway, said, tools
from virtualtime import settle

from toolgate.config import Config, Limits, Overlay, Server
from toolgate.core import counting, jsonrpc
from toolgate.core.concurrency import FairThreads
from toolgate.frontends import subscriber
from toolgate.gateway import subscriptions

MANY = 100_001
LISTEN = "subscriptions/listen"


def there(**more: Any) -> dict[str, Scripted]:
    return {"there": Scripted(tools_list=tools("take", **more), tools_call=said("taken"))}


def called(scripts: dict[str, Scripted]) -> list[Any]:
    return [request for request in scripts["there"].requests if request["method"] == "tools/call"]


def keys(count: int) -> dict[str, int]:
    return {f"k{number}": 1 for number in range(count)}


def nested(count: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(count // 50):
        inner: list[Any] = []
        for _ in range(49):
            inner = [inner]
        found.append(inner)
    return found


async def take(visitor: Visitor, revision: str, **params: Any) -> Any:
    if revision == LATEST:
        return await visitor.post(visitor.request("tools/call", name="there__take", **params))
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "there__take"}
    return await visitor.post(visitor.modern_request("tools/call", name="there__take", **params), headers=headers)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    "params",
    [
        {"arguments": {"x": [{}] * MANY}},
        {"arguments": keys(MANY)},
        {"arguments": {}, "_meta": ENVELOPE | keys(MANY)},
        {"arguments": {}, **keys(MANY)},
        {"arguments": {"x": nested(MANY)}},
        {"arguments": {}, "_meta": ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": keys(MANY)}},
    ],
    ids=["empty objects", "keys of arguments", "keys of _meta", "keys of params", "nested arrays", "capabilities"],
)
async def test_a_request_of_too_many_values_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, revision: str, params: dict[str, Any]
) -> None:
    async with gateway(scripts=(scripts := there())) as app:
        visitor = Visitor(app)
        if revision == LATEST:
            await visitor.initialize()

        def never(data: bytes) -> Any:
            raise AssertionError("it was read")

        with monkeypatch.context() as patched:
            patched.setattr(jsonrpc, "decode", never)
            response = await take(visitor, revision, **params)
        assert response.status == 413
        assert response.error["code"] == -32600
        assert "more than 100,000 JSON values (limits.values)" in response.error["message"]
        assert not called(scripts)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    "arguments", [{"text": "a, b, [c], {d}, " * 100_000}, {"x": [{}] * 99_000}, {"text": 'a "quote", ' * 150_000}]
)
async def test_what_is_large_and_has_few_values_passes(revision: str, arguments: Any) -> None:
    async with gateway(scripts=(scripts := there())) as app:
        visitor = Visitor(app)
        if revision == LATEST:
            await visitor.initialize()
        response = await take(visitor, revision, arguments=arguments)
        assert response.result["content"] == said("taken")["content"]
        assert called(scripts)[0]["params"]["arguments"] == arguments


async def test_a_tool_that_takes_data_may_be_allowed_more_than_others() -> None:
    more = {"take": Overlay(values=200_000)}
    server = Server(id="there", name="there", type="stdio", command="memory", tools=more)
    scripts = {"there": Scripted(tools_list=tools("take", "other"), tools_call=said("taken"))}
    async with gateway(server, scripts=scripts, config=Config(limits=Limits(values=10_000))) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        assert (await take(visitor, LATEST, arguments={"x": [{}] * 199_000})).result
        assert (await take(visitor, LATEST, arguments={"x": [{}] * 201_000})).status == 413
        refused = await visitor.post(visitor.request("tools/call", name="there__other", arguments={"x": [{}] * 10_001}))
        assert "more than 10,000 JSON values" in refused.error["message"]
        assert len(called(scripts)) == 1


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("size", [100, 2 * 1024 * 1024])
async def test_large_arguments_are_counted_in_a_thread_where_a_tool_may_be_given_more(
    revision: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: dict[bool, list[int]] = {True: [], False: []}  # bytes, by whether it was in a thread
    has_more_values, in_thread = counting.has_more_values, False

    def counting_where(data: bytes, most: int) -> bool:
        counted[in_thread].append(len(data))
        return has_more_values(data, most)

    async def to_thread(work: Callable[..., Any], *given: Any) -> Any:
        nonlocal in_thread
        in_thread = True
        try:
            return work(*given)
        finally:
            in_thread = False

    monkeypatch.setattr(counting, "has_more_values", counting_where)
    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    config = Config(limits=Limits(values=10_000))
    server = Server(id="there", name="there", type="stdio", command="memory", tools={"other": Overlay(values=20_000)})
    async with gateway(server, scripts=(scripts := there()), config=config) as app:
        visitor = Visitor(app)
        if revision == LATEST:
            await visitor.initialize()
        assert (await take(visitor, revision, arguments={"text": "x" * size})).result
        refused = await take(visitor, revision, arguments={"text": "x" * size, "more": [1] * 15_000})
        assert "more than 10,000 JSON values" in json.dumps(refused.error or refused.result)
    assert len(called(scripts)) == 1
    assert max(counted[False], default=0) <= counting.LARGE and bool(counted[True]) == (size > counting.LARGE)


@pytest.mark.parametrize("way", ["websocket", "sse"])
async def test_a_message_of_too_many_values_is_refused_on_a_connection_that_goes_on(way: str) -> None:
    heard: list[bytes] = []
    flood = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"x": [{}] * MANY}})
    async with gateway(scripts=there()) as app:
        if way == "websocket":
            socket = WebSocket(app.http, on_message=heard.append)
            await settle()
            socket.say(flood.encode())
            await settle()
            error = json.loads(heard[-1])
            assert (error["id"], error["error"]["code"]) == (7, -32600)
            assert "JSON values" in error["error"]["message"]
            socket.say(b'{"jsonrpc":"2.0","id":8,"method":"ping"}')
            await settle()
            assert json.loads(heard[-1]) == {"jsonrpc": "2.0", "id": 8, "result": {}}
            await socket.leave()
        else:
            client = SseClient(app.http, "/sse", (), heard.append)
            await settle()
            posted = client.post(flood.encode())
            await settle()
            assert posted.status == 413
            await client.leave()


async def test_of_the_names_of_a_subscription_only_so_many_are_looked_up_as_can_be_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[str] = []
    rounds = 0

    async def watch(self: Any, name: str, method: str, client: Any) -> None:
        looked_up.append(name)

    async def count() -> None:
        nonlocal rounds
        while len(looked_up) < subscriber.MOST_WATCHED:
            rounds += 1
            assert rounds < 100 * subscriber.MOST_WATCHED
            await asyncio.sleep(0)

    monkeypatch.setattr(subscriber.Subscriber, "watch", watch)
    names = [f"x:{number}" for number in range(26_000)]
    async with gateway(scripts=there()) as app:
        visitor = Visitor(app)
        message = visitor.modern_request(LISTEN, notifications={"resourceSubscriptions": [*names, *names]})
        headers = {"mcp-protocol-version": MODERN, "mcp-method": LISTEN}
        stream = visitor.begin("POST", json.dumps(message).encode(), headers=headers)
        await count()
        await settle()
        assert looked_up == names[: subscriber.MOST_WATCHED]
        assert rounds > subscriber.MOST_WATCHED // 2  # others were heard in between
        await stream.gone()


async def test_who_watches_as_many_as_it_may_has_no_more_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_ONE", 4)
    looked_up: list[str] = []
    watch = subscriptions.Subscriptions.watch

    async def counted(self: Any, uri: str, *rest: Any) -> Any:
        looked_up.append(uri)
        return await watch(self, uri, *rest)

    monkeypatch.setattr(subscriptions.Subscriptions, "watch", counted)
    script = Scripted(LATEST, tools_list=tools("act"), resources_subscribe={}, resources_unsubscribe={})
    script.answers["initialize"]["capabilities"]["resources"] = {"subscribe": True}
    script.answers["resources/templates/list"] = {"resourceTemplates": [{"uriTemplate": "x:{any}", "name": "x"}]}
    script.answers["resources/list"] = {"resources": []}
    async with gateway(scripts={"there": script}) as app:
        visitor = Visitor(app)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": LISTEN}
        streams: list[Any] = []
        for stream in range(3):
            names = [f"there+x:{stream}.{number}" for number in range(500)]
            message = visitor.modern_request(LISTEN, notifications={"resourceSubscriptions": names})
            streams.append(visitor.begin("POST", json.dumps(message).encode(), headers=headers))
            await settle()
        assert 4 <= len(looked_up) < 50
        for stream in streams:
            await stream.gone()


async def test_large_arguments_are_judged_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(scripts=there(inputSchema={"properties": {"text": {"maxLength": 2_000_000}}})) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        aside: list[Any] = []
        in_thread = FairThreads.in_thread

        async def noted(self: FairThreads, whose: str, *given: Any) -> Any:
            aside.append(whose)
            return await in_thread(self, whose, *given)

        monkeypatch.setattr(FairThreads, "in_thread", noted)
        assert (await take(visitor, LATEST, arguments={"text": "x" * 1_500_000})).result
        assert len(aside) == 1
        wrong = await take(visitor, LATEST, arguments={"text": "x" * 2_000_001})
        assert "must have at most 2000000 characters" in wrong.error["message"]
        assert (await take(visitor, LATEST, arguments={"text": "x"})).result
        assert len(aside) == 2


FLOODS = [
    "names",
    "empty objects",
    "bare array",
    "keys of arguments",
    "keys of _meta",
    "keys of params",
    "keys of capabilities",
    "nested arrays",
    "values below the limit",
    "commas in a text",
    "a long text",
    "long number",
    "long id",
    "long token",
]


@pytest.mark.attack
@pytest.mark.parametrize("kind", FLOODS)
def test_calls_beside_the_flood_of_a_client_wait_no_longer(tmp_path: Path, kind: str) -> None:
    beside.check(tmp_path, "", kind)
