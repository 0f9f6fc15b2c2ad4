"""The same conversations at every door: Streamable HTTP, stdio, WebSocket, and HTTP with SSE; clients of both eras."""

from __future__ import annotations

from typing import Any

import pytest
from doors.pipes import DOORS, legacy_at, modern_at
from official import LEGACY, MODERN
from peers import LegacyClient, LegacyServer, ModernClient, Scene, form, gateway, named
from virtualtime import settle, soon

DUPLEX = DOORS[1:]


async def plain(scene: Scene) -> str:
    return "just so"


async def ask_name(scene: Scene) -> str:
    answer = await scene.ask(form())
    return f"{answer['action']}: {answer['content']['name']}"


async def reports(scene: Scene) -> str:
    scene.progress(1, message="half way")
    return "reported"


async def never(scene: Scene) -> str:
    await soon(scene.ask(form()))
    return "never said"


SCRIPTS = {"plain": plain, "ask_name": ask_name, "reports": reports, "never": never}


@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
@pytest.mark.parametrize("door", DOORS)
async def test_lists_and_calls(door: str, revision: str) -> None:
    async with gateway(there=LegacyServer(tools=SCRIPTS)) as rig:
        client: LegacyClient | ModernClient
        client = modern_at(rig, door) if revision == MODERN else await legacy_at(rig, door, revision)
        listed = (await client.request("tools/list")).result["tools"]
        assert {tool["name"] for tool in listed} == {f"there__{name}" for name in SCRIPTS}
        assert (await client.call("there__plain")).text == "just so"


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("door", DOORS)
async def test_questions_come_back_to_who_called(door: str, revision: str) -> None:
    async with gateway(there=LegacyServer(tools=SCRIPTS)) as rig:
        client: LegacyClient | ModernClient
        client = modern_at(rig, door) if revision == MODERN else await legacy_at(rig, door, revision)
        answers = {"elicitation/create": named("Ada")}
        reply = await client.converse("tools/call", answers, name="there__ask_name")
        assert reply.text == "accept: Ada"


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", MODERN])
@pytest.mark.parametrize("door", DOORS)
async def test_progress_comes_with_its_token(door: str, revision: str) -> None:
    async with gateway(there=LegacyServer(tools=SCRIPTS)) as rig:
        client: LegacyClient | ModernClient
        client = modern_at(rig, door) if revision == MODERN else await legacy_at(rig, door, revision)
        reply = await client.call("there__reports", meta={"progressToken": "t"})
        assert [note["progressToken"] for note in reply.notes("notifications/progress")] == ["t"]


@pytest.mark.parametrize("door", DOORS)
async def test_a_call_is_cancelled(door: str) -> None:
    there = LegacyServer(tools=SCRIPTS)
    async with gateway(there=there) as rig:
        client = await legacy_at(rig, door)
        pending = client.start("tools/call", name="there__never")
        await client.question()
        client.cancel(pending)
        await settle()
        assert len(there.cancelled) == 1
        assert client.withdrawn


@pytest.mark.parametrize("door", DUPLEX)
async def test_a_modern_call_is_cancelled_by_a_notification_where_one_pipe_carries_all(door: str) -> None:
    there = LegacyServer(tools=SCRIPTS)
    async with gateway(there=there) as rig:
        client = modern_at(rig, door, capabilities={})
        await client.request("tools/list")
        pending = client.start("tools/call", name="there__never", meta={"progressToken": 1})
        await settle()
        pending.leave()
        await settle()
        assert rig.in_flight == 0


@pytest.mark.parametrize("door", [door for door in DOORS if door != "stdio"])
async def test_two_clients_are_kept_apart(door: str) -> None:
    async with gateway(there=LegacyServer(tools=SCRIPTS, scope="session")) as rig:
        ann = await legacy_at(rig, door, principal="ann")
        bob = await legacy_at(rig, door, principal="bob")
        one, two = ann.start("tools/call", name="there__ask_name"), bob.start("tools/call", name="there__ask_name")
        bob.answer(await bob.question(), named("Bob"))
        assert (await two.reply()).text == "accept: Bob"
        assert not one.is_answered
        ann.answer(await ann.question(), named("Ann"))
        assert (await one.reply()).text == "accept: Ann"
        assert (len(ann.asked), len(bob.asked)) == (1, 1)


IDS: list[Any] = ["a", "", "\u00e9\u2028", "0", 0, -1, 12345678901234567890, 2**63]


@pytest.mark.parametrize("id", IDS, ids=repr)
@pytest.mark.parametrize("door", DOORS)
async def test_an_id_comes_back_as_it_was(door: str, id: Any) -> None:
    async with gateway(there=LegacyServer(tools=SCRIPTS)) as rig:
        legacy, modern = await legacy_at(rig, door), modern_at(rig, door)
        assert (await legacy.request("ping", id=id)).result == {}
        assert (await legacy.call("there__plain", id=id)).text == "just so"
        assert (await modern.call("there__plain", id=id)).text == "just so"


@pytest.mark.parametrize("door", DUPLEX)
async def test_a_client_is_told_what_belongs_to_no_request(door: str) -> None:
    there = LegacyServer(tools=SCRIPTS)
    async with gateway(there=there) as rig:
        client = await legacy_at(rig, door)
        await client.request("tools/list")
        pending = client.start("tools/call", name="there__ask_name")
        question = await client.question()
        [connection] = there.connections
        there.lists["tools/list"][1].append({"name": "new", "inputSchema": {"type": "object"}})
        connection.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await rig.clock.sleep(1)
        client.answer(question, named("Ada"))
        reply = await pending.reply()
        assert [each["method"] for each in reply.before].count("notifications/tools/list_changed") == 1
