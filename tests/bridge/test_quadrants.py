"""Every client with every server: what a server asks in the middle of a call is answered by whoever called.

Each conversation is had in tools, prompts and resources, through the aggregate and the transparent view, over HTTP and
stdio, for every pair of revisions that can have it.
"""

from __future__ import annotations

from typing import Any

import pytest
from official import LEGACY, MODERN
from peers import (
    ACCEPTED,
    ROOTS,
    LegacyServer,
    ModernServer,
    Scene,
    Scripts,
    form,
    gateway,
    link,
    named,
    rooted,
    sampled,
    sampling,
)

SERVERS = (*LEGACY, MODERN)
CLIENTS = (*LEGACY, MODERN)
METHODS = ("tools/call", "prompts/get", "resources/read")


def server(revision: str, scripts: Scripts, **settings: Any) -> LegacyServer | ModernServer:
    """A server that plays the same in tools, prompts and resources."""
    offered: dict[str, Any] = {
        "tools": scripts,
        "prompts": scripts,
        "resources": {f"mem://{name}": script for name, script in scripts.items()},
    }
    if revision == MODERN:
        return ModernServer(**offered, **settings)
    return LegacyServer(**offered, revision=revision, **settings)


def target(method: str, name: str, id: str = "there") -> dict[str, str]:
    """The parameters that name something on the aggregate; on the view of one server, `id` is empty."""
    if method == "resources/read":
        return {"uri": f"{id}+mem://{name}" if id else f"mem://{name}"}
    return {"name": f"{id}__{name}" if id else name}


async def plain(scene: Scene) -> str:
    return "just so"


async def ask_name(scene: Scene) -> str:
    answer = await scene.ask(form())
    return f"{answer['action']}: {answer['content']['name']}"


async def ask_visit(scene: Scene) -> str:
    return (await scene.ask(link()))["action"]


async def ask_model(scene: Scene) -> str:
    return (await scene.ask(sampling()))["content"]["text"]


async def ask_roots(scene: Scene) -> str:
    return ", ".join(root["uri"] for root in (await scene.ask(ROOTS))["roots"])


async def ask_twice(scene: Scene) -> str:
    first = await scene.ask(form("First?"))
    second = await scene.ask(form("Second?"))
    return f"{first['content']['name']} {second['content']['name']}"


async def ask_all_at_once(scene: Scene) -> str:
    name, model = await scene.ask_all(form(), sampling())
    return f"{name['content']['name']} {model['content']['text']}"


SCRIPTS: Scripts = {
    "plain": plain,
    "name": ask_name,
    "visit": ask_visit,
    "model": ask_model,
    "roots": ask_roots,
    "twice": ask_twice,
    "at-once": ask_all_at_once,
}

ANSWERS: dict[str, Any] = {
    "elicitation/create": lambda params: ACCEPTED if params.get("mode") == "url" else named("Ann"),
    "sampling/createMessage": sampled("hello"),
    "roots/list": rooted("file:///ann", "file:///shared"),
}

SAID = {
    "plain": "just so",
    "name": "accept: Ann",
    "visit": "accept",
    "model": "hello",
    "roots": "file:///ann, file:///shared",
    "twice": "Ann Ann",
    "at-once": "Ann hello",
}

# Since which revision there is such a question.
SINCE = {
    "plain": "2024-11-05",
    "name": "2025-06-18",
    "visit": "2025-11-25",
    "model": "2024-11-05",
    "roots": "2024-11-05",
    "twice": "2025-06-18",
    "at-once": "2025-06-18",
}

PAIRS = [
    pytest.param(client, server, name, id=f"{client} client, {server} server: {name}")
    for client in CLIENTS
    for server in SERVERS
    for name, since in SINCE.items()
    if min(client, server) >= since
]


@pytest.mark.promise("spec.2026.elicitation.actions", "spec.2026.mrtr.methods")
@pytest.mark.parametrize(("client_speaks", "server_speaks", "name"), PAIRS)
async def test_a_question_in_the_middle_of_a_call_is_answered(
    client_speaks: str, server_speaks: str, name: str
) -> None:
    there = server(server_speaks, SCRIPTS, scope="session")
    async with gateway(there=there) as rig:
        client = await rig.client(client_speaks)
        for method in METHODS:
            reply = await client.converse(method, ANSWERS, **target(method, name))
            assert reply.text == SAID[name]
        assert len(there.open_connections) == 1


@pytest.mark.promise("spec.2026.mrtr.methods")
@pytest.mark.parametrize("server_speaks", ["2025-11-25", MODERN])
@pytest.mark.parametrize("client_speaks", ["2025-06-18", "2025-11-25", MODERN])
async def test_the_same_over_the_stdio_door(client_speaks: str, server_speaks: str) -> None:
    async with gateway(there=server(server_speaks, SCRIPTS)) as rig:
        client = await rig.client(client_speaks, stdio=True)
        for method in METHODS:
            for name in ("name", "model", "twice", "at-once"):
                reply = await client.converse(method, ANSWERS, **target(method, name))
                assert reply.text == SAID[name]


@pytest.mark.parametrize("server_speaks", ["2025-11-25", MODERN])
@pytest.mark.parametrize("client_speaks", ["2025-06-18", "2025-11-25", MODERN])
async def test_the_same_in_the_transparent_view_of_one_server(client_speaks: str, server_speaks: str) -> None:
    async with gateway(there=server(server_speaks, SCRIPTS)) as rig:
        client = await rig.client(client_speaks, path="/mcp/servers/there")
        for method in METHODS:
            for name in ("name", "model", "twice", "at-once"):
                reply = await client.converse(method, ANSWERS, **target(method, name, id=""))
                assert reply.text == SAID[name]


@pytest.mark.promise("spec.2026.stdio.child-fallback", "spec.2026.versions.discover-first")
@pytest.mark.parametrize("error", [-32601, -32602, -32600, -32603, -32000])
async def test_a_server_that_refuses_to_discover_in_any_way_is_asked_to_shake_hands(error: int) -> None:
    old = LegacyServer({"name": ask_name}, discover_error=error)
    async with gateway(old=old) as rig:
        reply = await rig.modern().converse("tools/call", ANSWERS, name="old__name")
        assert reply.text == "accept: Ann"


@pytest.mark.promise("b.rulings.16-era")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({}, ["initialize", "server/discover"]),
        ({"era": "modern"}, ["server/discover"]),
        ({"scope": "principal"}, ["server/discover"]),
    ],
)
async def test_a_modern_server_is_found_whatever_it_is_asked_first(revision: str, settings: Any, asked: Any) -> None:
    new = ModernServer({"plain": plain}, **settings)
    async with gateway(new=new) as rig:
        assert (await (await rig.client(revision)).call("new__plain")).text == "just so"
        openings = [message["method"] for message in new.received if message["method"] in _OPENINGS]
        is_tried = settings.get("scope") and revision != "2026-07-28"  # once, in another process, for its client
        assert openings == [*asked, *(["initialize"] if is_tried else [])]
        assert len(new.open_connections) == 1


@pytest.mark.promise("spec.2026.versions.discover-first")
async def test_a_server_that_refuses_to_discover_and_names_our_revision_is_asked_once_more() -> None:
    new = ModernServer({"plain": plain}, scope="principal", is_fussy=True)
    async with gateway(new=new) as rig:
        assert (await rig.modern().call("new__plain")).text == "just so"
        assert [each["method"] for each in new.received if each["method"] in _OPENINGS] == ["server/discover"] * 2


_OPENINGS = ("initialize", "server/discover")
