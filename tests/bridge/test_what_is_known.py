"""What was listed once is known: while its server is stopped, when it fails, and after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, gateway
from virtualtime import FakeClock

from toolgate.config import CatalogLimits
from toolgate.state.memory import MemoryStore

SERVERS = [LegacyServer, ModernServer]
CLIENTS = ["2024-11-05", LATEST, MODERN]
LISTS = ("tools", "prompts", "resources")
METHODS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


async def plain(scene: Scene) -> str:
    return "just so"


def a_server(kind: Any, **more: Any) -> Any:
    """One whose lists hold for a minute, if it can say so."""
    keeps = {"keeps": {"ttlMs": 60_000}} if kind is ModernServer else {}
    return kind({"plain": plain}, {"plain": plain}, {"mem://a": plain}, announces=True, **keeps | more)


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


async def everything(client: Any) -> Mapping[str, Any]:
    """All lists, without how long they hold."""
    results = {method: (await client.request(method)).result for method in METHODS}
    return {method: {**result, "ttlMs": None} for method, result in results.items()}


@pytest.mark.promise("b.001.catalog-kept")
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_after_a_restart_all_lists_are_there_and_no_server_is_started(kind: Any, revision: str) -> None:
    store = MemoryStore(FakeClock())
    async with gateway(store=store, there=a_server(kind)) as rig:
        before = await everything(await rig.client(revision))
    there = a_server(kind)
    async with gateway(store=store, there=there) as rig:
        client = await rig.client(revision)
        assert await everything(client) == before
        assert not there.connections
        assert (await client.call("there__plain")).text == "just so"
        assert len(there.connections) == 1


@pytest.mark.promise("b.001.catalog-kept")
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("differs", [False, True])
async def test_what_changed_while_the_gateway_was_down_is_told_once_its_server_is_up(kind: Any, differs: bool) -> None:
    store = MemoryStore(FakeClock())
    async with gateway(store=store, there=a_server(kind)) as rig:
        await everything(rig.modern())
    there = a_server(kind)
    if differs:
        there.lists["tools/list"][1].append(tool("new"))
    async with gateway(store=store, there=there) as rig:
        client = rig.modern()
        await everything(client)
        ear = await client.listen(lists=LISTS)
        await client.call("there__plain")
        await rig.clock.advance(1)
        assert ear.changed == (["tools"] if differs else [])
        listed = (await client.request("tools/list")).result["tools"]
        assert [each["name"] for each in listed] == ["there__plain"] + ["there__new"] * differs
        assert len(there.requests("tools/list")) == 1


async def test_what_was_listed_by_another_program_of_that_name_is_not_known() -> None:
    store = MemoryStore(FakeClock())
    async with gateway(store=store, there=a_server(LegacyServer)) as rig:
        await everything(rig.modern())
    there = a_server(LegacyServer)
    there.settings["args"] = ("--other",)
    async with gateway(store=store, there=there) as rig:
        await everything(rig.modern())
        assert len(there.requests("tools/list")) == 1


@pytest.mark.promise("b.001.catalog-kept")
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_that_was_stopped_is_not_started_by_lists_however_old_they_are(kind: Any) -> None:
    there = a_server(kind)
    async with gateway(catalog=CatalogLimits(ttl=30), there=there) as rig:
        before = await everything(rig.modern())
        await rig.app.gateway.snapshot.upstreams["there"].stop()
        for _ in range(3):
            await rig.clock.advance(3600)
            assert await everything(rig.modern()) == before
            await rig.legacy()
        assert len(there.connections) == 1
        assert (await rig.modern().call("there__plain")).text == "just so"
        assert len(there.connections) == 2


def refusing_lists(there: Any) -> list[bool]:
    """Has a server refuse its lists while there is something in what is returned."""
    moods: list[bool] = []

    def requested(self: Any, message: Any) -> None:
        if moods and message["method"] in METHODS:
            self.say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": "not now"}})
        else:
            super(type(self), self).requested(message)

    there.connection = type("Moody", (there.connection,), {"requested": requested})
    return moods


@pytest.mark.promise("b.001.degraded")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/there"])
@pytest.mark.parametrize("is_alone", [False, True])
async def test_a_list_that_fails_is_shown_as_it_was_with_its_fault_and_then_no_more(path: str, is_alone: bool) -> None:
    there = a_server(ModernServer, keeps={"ttlMs": 10_000, "cacheScope": "public"})
    other = a_server(ModernServer, keeps={"ttlMs": 10_000, "cacheScope": "public"})
    moods = refusing_lists(there)
    servers = {"there": there} if is_alone else {"there": there, "other": other}
    async with gateway(catalog=CatalogLimits(grace=600), **servers) as rig:
        client = rig.modern(path=path)
        whole = (await client.request("tools/list")).result
        ear = await client.listen(lists=LISTS)
        assert (whole["ttlMs"], whole["cacheScope"]) == (10_000, "public")
        moods.append(True)
        await rig.clock.advance(11)
        for _ in range(3):
            shown = (await client.request("tools/list")).result
            assert shown["tools"] == whole["tools"]
            assert (shown["ttlMs"], shown["cacheScope"]) == (0, "private")
            assert shown["_meta"]["failures"] == [{"server_id": "there", "error": "not now"}]
            await rig.clock.advance(190)
        assert ear.changed == []
        await rig.clock.advance(60)
        reply = await client.request("tools/list")
        if is_alone or path != "/mcp":
            assert reply.error["code"] == -32603
        else:
            assert [each["name"] for each in reply.result["tools"]] == ["other__plain"]
        moods.clear()
        assert (await client.request("tools/list")).result["tools"] == whole["tools"]
        assert set(ear.changed) == {"tools"}


async def test_a_call_is_made_by_a_list_as_it_was() -> None:
    there = a_server(ModernServer, keeps={"ttlMs": 10_000, "cacheScope": "public"})
    moods = refusing_lists(there)
    async with gateway(there=there) as rig:
        await rig.modern().request("tools/list")
        moods.append(True)
        there.announce("tools")
        await rig.clock.advance(1)
        for name in ("there__plain", "plain"):
            assert (await rig.modern().call(name)).text == "just so"


async def test_a_server_that_dies_as_it_comes_up_is_not_started_to_be_looked_at() -> None:
    store = MemoryStore(FakeClock())
    there = a_server(LegacyServer)
    async with gateway(store=store, there=there) as rig:
        await rig.modern().request("tools/list")
    there = a_server(LegacyServer)
    async with gateway(store=store, there=there) as rig:
        await rig.modern().call("there__plain")
        there.connections[0].hang_up()
        await rig.clock.advance(5)
        assert len(there.connections) == 1
