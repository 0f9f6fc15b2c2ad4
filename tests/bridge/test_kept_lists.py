"""Lists that are kept from before a server was started are shown, and refuse nothing that the server takes now."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, Rig, Scene, gateway
from virtualtime import FakeClock

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.state.memory import MemoryStore

pytestmark = pytest.mark.promise("b.001.kept-refuses-nothing")

CLIENTS = ["2024-11-05", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]
NUMBER: Json = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
STRING: Json = {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}


async def plain(scene: Scene) -> str:
    return "just so"


def before(kind: Any) -> Any:
    there = kind({"old": plain, "turns": plain}, {"ask": plain})
    there.lists["tools/list"] = ("tools", [{"name": "old", "inputSchema": NUMBER}, tool("turns", NUMBER)])
    return there


def after(kind: Any) -> Any:
    there = kind({"new": plain, "turns": plain}, {"ask": plain, "tell": plain})
    there.lists["tools/list"] = ("tools", [tool("new", STRING), tool("turns", STRING, readOnlyHint=True)])
    return there


def tool(name: str, schema: Json, **annotations: bool) -> Json:
    return {"name": name, "inputSchema": schema} | ({"annotations": annotations} if annotations else {})


@asynccontextmanager
async def changed(kind: Any, config: Config | None = None, **more: Any) -> AsyncIterator[tuple[Rig, Any]]:
    """A gateway that knows a server as it was, and the server as it is."""
    store = MemoryStore(FakeClock())
    async with gateway(store=store, there=before(kind)) as rig:
        for method in ("tools/list", "prompts/list"):
            await rig.modern().request(method)
        await rig.clock.advance(1)
    there = after(kind)
    async with gateway(store=store, there=there, config=config, **more) as rig:
        yield rig, there


WAYS: Mapping[str, tuple[str, str, Json]] = {
    "prefixed": ("/mcp", "there__{}", {}),
    "bare": ("/mcp", "{}", {}),
    "alone": ("/mcp/servers/there", "{}", {}),
    "meta": ("/mcp/meta", "mcp_call", {"server": "there", "tool": "{}"}),
    "children": ("/mcp/children", "execute_child_tool", {"server_id": "there", "tool_name": "{}"}),
}
UNDER = {"meta": "args", "children": "arguments"}


async def called(client: Any, way: str, name: str, arguments: Json) -> str:
    _, target, given = WAYS[way]
    if given:
        given = {key: value.format(name) for key, value in given.items()} | {UNDER[way]: arguments}
    reply = await client.call(target.format(name), arguments=given or arguments)
    return str(reply.message)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_call_that_the_server_takes_now_is_not_refused_by_what_is_kept(
    kind: Any, revision: str, way: str
) -> None:
    for name in ("new", "turns"):
        async with changed(kind) as (rig, there):
            client = await rig.client(revision, path=WAYS[way][0])
            assert not there.connections
            assert "just so" in await called(client, way, name, {"s": "x"})
            assert len(there.connections) == 1
            assert len(there.requests("tools/list")) <= 1


@pytest.mark.parametrize("way", ["prefixed", "bare", "meta", "children"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_what_the_server_would_not_take_now_is_refused_by_its_list_of_now(kind: Any, way: str) -> None:
    for name, arguments, why in (
        ("turns", {"s": 1}, "Invalid arguments"),
        ("nothing", {}, "Tool not found"),
    ):
        async with changed(kind) as (rig, there):
            client = rig.modern(path=WAYS[way][0])
            for _ in range(2):
                assert why in await called(client, way, name, arguments)
            assert len(there.requests("tools/list")) == 1
            assert not there.requests("tools/call")


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_call_that_what_is_kept_lets_go_on_waits_for_no_list(kind: Any) -> None:
    async with changed(kind) as (rig, there):
        there.lists["tools/list"] = ("tools", [tool("turns", NUMBER)])
        assert (await rig.modern().call("there__turns", arguments={"n": 1})).text == "just so"
        asked = [message["method"] for message in there.received if message.get("method", "").startswith("tools/")]
        assert asked[0] == "tools/call"


@pytest.mark.parametrize("kind", SERVERS)
async def test_the_same_holds_after_a_server_was_stopped(kind: Any) -> None:
    there = before(kind)
    async with gateway(there=there) as rig:
        client = rig.modern()
        await client.request("tools/list")
        await rig.app.gateway.snapshot.upstreams["there"].stop()
        there.scripts, there.lists = after(kind).scripts, after(kind).lists
        assert (await client.call("there__new", arguments={"s": "x"})).text == "just so"


async def test_a_bare_name_that_nobody_has_starts_no_server_that_was_listed_and_is_stopped() -> None:
    one, two = LegacyServer({"a": plain}), LegacyServer({"b": plain})
    async with gateway(one=one, two=two) as rig:
        client = rig.modern()
        await client.request("tools/list")
        for upstream in rig.app.gateway.snapshot.upstreams.values():
            await upstream.stop()
        assert (await client.call("c")).error["code"] == -32602
        assert len(one.connections) == len(two.connections) == 1


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_prompt_that_is_new_is_found(kind: Any) -> None:
    async with changed(kind) as (rig, _):
        assert (await rig.modern().request("prompts/get", name="there__tell")).text == "just so"


def ann(servers: Any = "all", **permissions: Any) -> Config:
    known = KnownClient(id="ann", name="ann", servers=servers, permissions=Permissions(**permissions))
    return Config(clients=(known,))


@pytest.mark.parametrize("way", ["prefixed", "meta", "alone"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_permissions_that_go_by_annotations_go_by_those_of_now(kind: Any, way: str) -> None:
    async with changed(kind, ann(read_only="off")) as (rig, there):
        client = rig.modern(path=WAYS[way][0])
        assert "just so" in await called(client, way, "turns", {"s": "x"})
        assert "denied" in await called(client, way, "new", {"s": "x"})
        assert len(there.requests("tools/call")) == 1


@pytest.mark.parametrize("way", ["prefixed", "meta"])
@pytest.mark.parametrize("config", [ann("none"), ann(tools={"there__turns": "off"})], ids=["server", "tool"])
async def test_for_what_a_client_may_not_call_no_server_is_started(config: Config, way: str) -> None:
    async with changed(LegacyServer, config) as (rig, there):
        client = rig.modern(path=WAYS[way][0])
        assert "just so" not in await called(client, way, "turns", {"s": "x"})
        assert not there.connections


async def test_a_server_that_does_not_start_says_so_instead_of_refusing_by_what_is_kept() -> None:
    async with changed(LegacyServer) as (rig, there):
        there.connection = type(
            "Broken", (there.connection,), {"requested": lambda self, message: self.hang_up("it broke")}
        )
        error = (await rig.modern().call("there__new", arguments={"s": "x"})).error
        assert json.dumps(error["data"]["code"]) == '"SERVER_FAILED"'
        assert error["data"]["outcome"] == "not_sent"
