"""What a client is told at first: the instructions of the servers that it sees, and what it can really do with them."""

from __future__ import annotations

from typing import Any

import pytest
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, Scene, gateway

HELLO: Json = {"capabilities": {}, "clientInfo": {"name": "scripted", "version": "1"}}
CLIENTS = ["2024-11-05", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]


async def plain(scene: Scene) -> str:
    return "just so"


def complete(params: Json) -> Json:
    return {"values": []}


async def greeting(rig: Any, revision: str, path: str = "/mcp") -> Json:
    client = await rig.client(revision, path=path)
    if revision == MODERN:
        return (await client.request("server/discover")).result
    return (await client.initialize()).result


@pytest.mark.promise("spec.2026.discover.instructions")
@pytest.mark.parametrize("revision", CLIENTS)
async def test_instructions_of_several_servers_stand_under_their_names(revision: str) -> None:
    one = LegacyServer({"plain": plain}, instructions="Use it é.\n\nWell.")
    two, three = ModernServer({"plain": plain}, instructions="Ask first."), LegacyServer({"plain": plain})
    async with gateway(one=one, two=two, three=three) as rig:
        said = (await greeting(rig, revision))["instructions"]
        assert said == "# one\n> Use it é.\n>\n> Well.\n\n# two\n> Ask first."


@pytest.mark.promise("spec.2026.discover.instructions")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("kind", SERVERS)
async def test_in_its_own_view_a_servers_instructions_stand_as_they_are(revision: str, kind: Any) -> None:
    text = "# Mine\n\n  Use  it \t é \u2028"
    async with gateway(one=kind({"plain": plain}, instructions=text), two=kind({"plain": plain})) as rig:
        assert (await greeting(rig, revision, "/mcp/servers/one"))["instructions"] == text
        assert "instructions" not in await greeting(rig, revision, "/mcp/servers/two")


@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_server_that_does_not_start_keeps_nobody_waiting_for_long(revision: str) -> None:
    stuck = LegacyServer({"plain": plain}, instructions="never heard")
    stuck.connection = type("Stuck", (stuck.connection,), {"requested": lambda self, message: None})
    there = LegacyServer({"plain": plain}, instructions="Here.")
    async with gateway(stuck=stuck, there=there) as rig:
        if revision == MODERN:
            pending = rig.modern().start("server/discover")
        else:
            pending = rig.legacy_stranger(revision).start("initialize", **HELLO, protocolVersion=revision)
        await rig.clock.advance(3)
        assert pending.is_answered
        assert (await pending.reply()).result["instructions"] == "# there\n> Here."
        stuck.connections[0].hang_up()


# Capabilities.

EVERYTHING: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}


@pytest.mark.promise("spec.2026.discover.relayed", "spec.legacy.initialize.capabilities")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ({}, {"tools": {"listChanged": True}}),
        ({"tools": {}}, {"tools": {"listChanged": True}}),
        ({"prompts": {}}, {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}),
        ({"resources": {}}, {"tools": {"listChanged": True}, "resources": {"listChanged": True}}),
        (
            {"resources": {"subscribe": False}},
            {"tools": {"listChanged": True}, "resources": {"listChanged": True}},
        ),
        (
            {**EVERYTHING, "experimental": {"x": {}}, "extensions": {"com.example/x": {}}, "unknown": {"a": 1}},
            {**EVERYTHING, "experimental": {"x": {}}, "extensions": {"com.example/x": {}}, "unknown": {"a": 1}},
        ),
    ],
    ids=["nothing", "tools", "prompts", "resources", "not subscribe", "everything"],
)
async def test_what_a_server_offers_is_shown_at_its_own_path_what_we_do_not_know_too(
    revision: str, kind: Any, declared: Json, shown: Json
) -> None:
    async with gateway(there=kind(declares=declared)) as rig:
        assert (await greeting(rig, revision, "/mcp/servers/there"))["capabilities"] == shown


TASKS: Json = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
SERVED: Json = {
    "2024-11-05": EVERYTHING,
    LATEST: {**EVERYTHING, "tasks": TASKS},
    MODERN: {**EVERYTHING, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}


@pytest.mark.promise("spec.2026.discover.relayed", "b.001.declares")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/components", "/mcp/all", "/mcp/bundles/some"])
async def test_of_several_servers_the_gateway_says_what_it_serves_itself(path: str, revision: str) -> None:
    one = LegacyServer(declares={"resources": {}, "logging": {}})
    two = ModernServer(declares={"completions": {}})
    async with gateway(one=one, two=two, bundles={"some": ("one__*", "two__*")}) as rig:
        assert (await greeting(rig, revision, path))["capabilities"] == SERVED[revision]
        assert "subscribe" not in (await greeting(rig, revision, "/mcp/servers/one"))["capabilities"]["resources"]
    async with gateway(bundles={"some": ("one__*",)}) as rig:
        assert (await greeting(rig, revision, path))["capabilities"] == SERVED[revision]
