"""Who hears that a list has changed: whoever wants to know and may see it, once, and only if it differs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from peers import LATEST, MODERN, Ear, LegacyServer, ModernServer, Rig, Scene, _LegacyConnection, gateway
from virtualtime import settle

from toolgate.config import Config, Limits, Overlay, Server, VirtualSearch

SERVERS = [LegacyServer, ModernServer]
CLIENTS = ["2024-11-05", LATEST, MODERN]
LISTS = ("tools", "prompts", "resources")


async def plain(scene: Scene) -> str:
    return "just so"


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


def a_server(kind: Any, **more: Any) -> Any:
    return kind({"plain": plain}, {"plain": plain}, {"mem://a": plain}, announces=True, **more)


async def reading(rig: Rig, revision: str, **more: Any) -> tuple[Any, Ear]:
    """A client that has read every list, and hears of changes."""
    client = await rig.client(revision, **more)
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        await client.request(method)
    return client, await client.listen(lists=LISTS)


@pytest.mark.promise("001.tools-list.cached")
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_many_changes_at_once_are_told_once(kind: Any, revision: str) -> None:
    there = a_server(kind)
    async with gateway(there=there) as rig:
        client, ear = await reading(rig, revision)
        for number in range(5):
            there.offer("tools", tool(f"tool-{number}"))
            await rig.clock.advance(0.005)
        await rig.clock.advance(1)
        assert ear.changed == ["tools"]
        [listed] = (await client.request("tools/list")).result["tools"]
        assert listed["name"] == "there__tool-4"


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize(
    ("kind_of_list", "item", "told"),
    [
        ("prompts", {"name": "new"}, "prompts"),
        ("resources", {"uri": "mem://new", "name": "new"}, "resources"),
        ("resourceTemplates", {"uriTemplate": "mem://{new}", "name": "new"}, "resources"),
    ],
)
async def test_each_list_is_told_of_by_its_own_word(
    kind: Any, revision: str, kind_of_list: str, item: Any, told: str
) -> None:
    there = a_server(kind)
    async with gateway(there=there) as rig:
        _, ear = await reading(rig, revision)
        there.offer(kind_of_list, item)
        await rig.clock.advance(1)
        assert ear.changed == [told]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_list_that_is_as_before_is_not_told_of(kind: Any, revision: str) -> None:
    there = a_server(kind)
    async with gateway(there=there) as rig:
        _, ear = await reading(rig, revision)
        for each in LISTS:
            there.announce(each)
        before = there.lists["tools/list"][1][:]
        there.offer("tools", tool("soon-gone"))
        there.offer("tools", *before)
        await rig.clock.advance(1)
        assert ear.changed == []


async def test_a_modern_client_hears_of_the_lists_that_it_named() -> None:
    there = a_server(LegacyServer)
    async with gateway(there=there) as rig:
        ears = [await rig.modern().listen(lists=lists) for lists in ((), ("prompts",), LISTS)]
        there.offer("tools", tool("new"))
        there.offer("prompts", {"name": "new"})
        await rig.clock.advance(1)
        assert [ear.changed for ear in ears] == [[], ["prompts"], ["tools", "prompts"]]


@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_client_that_has_read_nothing_hears_of_a_change_too(revision: str) -> None:
    there = a_server(LegacyServer)
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        ear = await client.listen(lists=LISTS)
        await client.call("there__plain")
        there.offer("prompts", {"name": "new"})
        await rig.clock.advance(1)
        assert ear.changed == ["prompts"]


@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_change_of_one_server_is_no_business_of_whoever_sees_another(revision: str) -> None:
    one, two = a_server(LegacyServer), a_server(ModernServer)
    async with gateway(one=one, two=two) as rig:
        paths = ("/mcp", "/mcp/servers/one", "/mcp/servers/two")
        ears = [(await reading(rig, revision, path=path))[1] for path in paths]
        one.offer("tools", tool("new"))
        await rig.clock.advance(1)
        assert [ear.changed for ear in ears] == [["tools"], ["tools"], []]


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_change_on_one_clients_own_connection_is_told_to_that_client(kind: Any) -> None:
    there = a_server(kind, scope="principal")
    async with gateway(there=there) as rig:
        _, ann = await reading(rig, MODERN, principal="ann")
        _, bob = await reading(rig, LATEST, principal="bob")
        there.lists["tools/list"][1][:] = [tool("new")]
        there.open_connections[0].changed("tools")
        await rig.clock.advance(1)
        assert (ann.changed, bob.changed) == (["tools"], [])


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize("differs", [False, True])
async def test_after_a_crash_a_list_is_told_of_if_it_differs(kind: Any, revision: str, differs: bool) -> None:
    there = a_server(kind)
    async with gateway(there=there) as rig:
        client, ear = await reading(rig, revision)
        there.connections[0].hang_up()
        await settle()
        if differs:
            there.lists["tools/list"][1].append(tool("new"))
        await client.call("there__plain")
        await rig.clock.advance(1)
        assert ear.changed == (["tools"] if differs else [])
        there.offer("prompts", {"name": "other"})
        await rig.clock.advance(1)
        assert ear.changed[-1] == "prompts"


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_list_that_cannot_be_read_any_more_may_be_anything(kind: Any) -> None:
    there = a_server(kind)
    async with gateway(there=there) as rig:
        _, ear = await reading(rig, MODERN)
        there.lists["tools/list"] = ("tools", [1, 2])  # type: ignore[list-item]
        del there.lists["tools/list"]
        there.announce("tools")
        await rig.clock.advance(1)
        assert ear.changed == ["tools"]


async def test_a_server_of_which_nobody_hears_is_not_read_again_until_somebody_asks() -> None:
    """Without a reader there is nobody to compare for."""
    there = a_server(LegacyServer)
    async with gateway(there=there) as rig:
        await (await rig.legacy()).call("there__plain")
        asked = len(there.requests("prompts/list"))
        there.announce("prompts")
        await rig.clock.advance(1)
        assert len(there.requests("prompts/list")) - asked <= 1


@pytest.mark.parametrize("differs", [False, True])
async def test_what_changed_while_a_server_told_nothing_is_told_afterwards(differs: bool) -> None:
    there = a_server(ModernServer)
    async with gateway(there=there) as rig:
        _, ear = await reading(rig, MODERN)
        await rig.clock.advance(60)
        there.end_listening()
        await settle()
        if differs:
            there.offer("tools", tool("new"))
        await rig.clock.advance(2)
        assert ear.changed == (["tools"] if differs else [])


# Servers that say so in vain.


class _Insistent(_LegacyConnection):
    is_in_its_senses = False

    def requested(self, message: Any) -> None:
        super().requested(message)
        if message["method"] == "tools/list" and not self.is_in_its_senses:
            asyncio.get_running_loop().call_later(0.001, self.changed, "tools")


async def test_a_server_that_says_of_each_list_that_it_has_changed_is_asked_ever_less() -> None:
    there = a_server(LegacyServer)
    there.connection = _Insistent
    async with gateway(there=there) as rig:
        client, ear = await reading(rig, LATEST)
        await rig.clock.advance(120)
        assert len(there.requests("tools/list")) < 20
        assert ear.changed == []
        there.connections[0].is_in_its_senses = True
        await rig.clock.advance(120)
        await client.request("tools/list")
        there.offer("tools", tool("another"))
        await rig.clock.advance(0.1)
        assert ear.changed == ["tools"]


# Another configuration.


def first(**changes: Any) -> Any:
    """An edit of the first server."""
    return lambda config: with_servers(config, msgspec.structs.replace(config.servers[0], **changes))


def with_servers(config: Config, *servers: Server) -> Config:
    return msgspec.structs.replace(config, servers=(*servers, *config.servers[1:]))


def whole(**changes: Any) -> Any:
    return lambda config: msgspec.structs.replace(config, **changes)


GREETER = Server(id="greeter", name="greeter", type="registry")


@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(
    ("edited", "told"),
    [
        (first(env={"A": "b"}), LISTS),
        (first(timeout=7.0), ()),
        (first(scope="principal"), LISTS),
        (lambda config: with_servers(config, config.servers[0], GREETER), LISTS),
        (lambda config: with_servers(config), LISTS),
        (first(tools={"plain": Overlay(hidden=True)}), ("tools",)),
        (whole(surface="meta"), LISTS),
        (whole(virtual_search=VirtualSearch(enabled=True, threshold=1)), LISTS),
        (whole(bundles={"some": ("there__*",)}), LISTS),
        (first(description="another"), ()),
        (first(result_limit=1000), ()),
        (whole(limits=Limits(head=3)), ()),
        (lambda config: config, ()),
    ],
    ids=[
        "changed",
        "time",
        "own",
        "added",
        "removed",
        "overlay",
        "surface",
        "search",
        "bundle",
        "description",
        "limit",
        "limits",
        "same",
    ],
)
async def test_another_configuration_is_told_of_once_where_it_changes_a_list(
    edited: Any, told: tuple[str, ...], revision: str
) -> None:
    async with gateway(there=a_server(LegacyServer), other=a_server(ModernServer), edited=edited) as rig:
        _, ear = await reading(rig, revision)
        await rig.app.reload()
        await rig.clock.advance(1)
        assert sorted(ear.changed) == sorted(told)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_who_hears_of_another_configuration_finds_its_lists(revision: str) -> None:
    """A client on the endpoint of a bundle that takes in a server which is added at the same time."""

    def added(config: Config) -> Config:
        return with_servers(config, config.servers[0], GREETER)

    bundles = {"some": ("there__*", "greeter__*")}
    async with gateway(there=a_server(LegacyServer), edited=added, bundles=bundles) as rig:
        client, ear = await reading(rig, revision, path="/mcp/bundles/some")
        await rig.app.reload()
        await settle()
        assert "tools" in ear.changed
        assert "greeter__greet" in [tool["name"] for tool in (await client.request("tools/list")).result["tools"]]
