"""How much is logged: a server is told the most that anybody wants, each client hears what it wants."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import LATEST, LEVELS, META, MODERN, LegacyServer, ModernServer, Scene, _LegacyConnection, gateway
from virtualtime import settle

from toolgate.upstreams.mcp.subscriptions import ANSWER
from toolgate.upstreams.mcp.upstream_session import TELLING

SERVERS = [LegacyServer, ModernServer]


async def talks(scene: Scene) -> str:
    for level in LEVELS:
        scene.log(level, f"in {level}")
    return "done"


def heard(reply: Any) -> list[str]:
    return [note["level"] for note in reply.notes("notifications/message")]


def told(server: Any) -> list[str]:
    return [request["params"]["level"] for request in server.requests("logging/setLevel")]


def from_(level: str) -> list[str]:
    return list(LEVELS[LEVELS.index(level) :])


@pytest.mark.promise("b.001.level-broadcast")
async def test_a_level_is_passed_to_all_servers_that_log() -> None:
    one, two = LegacyServer({"talks": talks}), LegacyServer({"talks": talks})
    silent, new = LegacyServer({"talks": talks}, declares={"tools": {}}), ModernServer({"talks": talks})
    async with gateway(one=one, two=two, silent=silent, new=new) as rig:
        client = await rig.legacy()
        assert (await client.request("logging/setLevel", level="warning")).result == {}
        assert [told(each) for each in (one, two, silent, new)] == [["warning"], ["warning"], [], []]
        await client.call("new__talks")
        assert new.calls[0]["params"]["_meta"][META + "logLevel"] == "warning"


class _Mute(_LegacyConnection):
    def requested(self, message: Any) -> None:
        if message["method"] != "logging/setLevel":
            super().requested(message)


async def test_a_server_that_does_not_answer_keeps_nobody_waiting_for_long() -> None:
    mute = LegacyServer({"talks": talks})
    mute.connection = _Mute
    async with gateway(mute=mute) as rig:
        client = await rig.legacy()
        await client.call("talks")
        asked = asyncio.ensure_future(client.request("logging/setLevel", level="debug"))
        await settle()
        assert told(mute) == ["debug"]
        await rig.clock.advance(TELLING)
        assert (await asked).result == {}
        await rig.clock.advance(ANSWER)


async def test_nor_a_call_that_raises_the_level() -> None:
    mute = LegacyServer({"talks": talks})
    mute.connection = _Mute
    async with gateway(mute=mute) as rig:
        client = rig.modern()
        await client.call("talks")
        called = client.start("tools/call", name="mute__talks", meta={META + "logLevel": "debug"})
        await settle()
        assert told(mute) == ["debug"]
        await rig.clock.advance(TELLING)
        assert (await called.reply()).text == "done"
        await rig.clock.advance(ANSWER)


async def test_a_server_is_told_the_most_that_is_wanted_once() -> None:
    there = LegacyServer({"talks": talks})
    async with gateway(there=there) as rig:
        for level in ("error", "error", "critical", "info", "warning", "debug", "info"):
            assert (await (await rig.legacy()).request("logging/setLevel", level=level)).result == {}
        assert told(there) == ["error", "info", "debug"]


async def test_a_modern_request_raises_the_level_too_before_it_is_made() -> None:
    there = LegacyServer({"talks": talks}, heeds_levels=True)
    async with gateway(there=there) as rig:
        await (await rig.legacy()).request("logging/setLevel", level="error")
        reply = await rig.modern().call("there__talks", meta={META + "logLevel": "info"})
        assert heard(reply) == from_("info")
        assert told(there) == ["error", "info"]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("level", LEVELS)
async def test_each_client_hears_from_its_own_level_up(kind: Any, level: str) -> None:
    there = kind({"talks": talks}, heeds_levels=True)
    async with gateway(there=there) as rig:
        loud, own = await rig.legacy(), await rig.legacy()
        await loud.request("logging/setLevel", level="debug")
        await own.request("logging/setLevel", level=level)
        assert heard(await own.call("there__talks")) == from_(level)
        assert heard(await rig.modern().call("there__talks", meta={META + "logLevel": level})) == from_(level)
        assert heard(await loud.call("there__talks")) == list(LEVELS)
        assert heard(await rig.modern().call("there__talks")) == []


@pytest.mark.parametrize("revision", ["2024-11-05", LATEST])
async def test_a_legacy_client_that_sets_none_hears_what_the_server_sends(revision: str) -> None:
    old, new = LegacyServer({"talks": talks}), ModernServer({"talks": talks}, heeds_levels=True)
    async with gateway(old=old, new=new) as rig:
        client = await rig.legacy(revision)
        assert heard(await client.call("old__talks")) == list(LEVELS)
        assert heard(await client.call("new__talks")) == from_("info")
        assert told(old) == []


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_client_may_change_its_mind(kind: Any) -> None:
    there = kind({"talks": talks}, heeds_levels=True)
    async with gateway(there=there) as rig:
        client = await rig.legacy()
        for level in ("error", "debug", "alert"):
            await client.request("logging/setLevel", level=level)
            assert heard(await client.call("there__talks")) == from_(level)


async def test_when_a_server_is_there_again_it_is_told_again() -> None:
    there = LegacyServer({"talks": talks}, heeds_levels=True)
    async with gateway(there=there) as rig:
        client = await rig.legacy()
        await client.request("logging/setLevel", level="notice")
        there.connections[0].hang_up()
        await settle()
        assert heard(await client.call("there__talks")) == from_("notice")
        assert told(there) == ["notice", "notice"]


async def test_a_server_of_ones_own_has_ones_own_level() -> None:
    there = LegacyServer({"talks": talks}, heeds_levels=True, scope="session")
    async with gateway(there=there) as rig:
        for level in ("error", "debug", "warning"):
            client = await rig.legacy()
            await client.request("logging/setLevel", level=level)
            assert heard(await client.call("there__talks")) == from_(level)
        assert [connection.level for connection in there.open_connections] == ["error", "debug", "warning"]


async def test_what_is_logged_outside_calls_is_heard_from_the_level_up_by_whose_own_the_server_is() -> None:
    there = LegacyServer({"talks": talks}, scope="session")
    async with gateway(there=there) as rig:
        ears = []
        for level in ("error", "debug"):
            client = await rig.legacy()
            await client.request("logging/setLevel", level=level)
            ears.append(await client.listen())
        for connection in there.open_connections:
            connection.log("info", "by the way")
            connection.log("alert", "now")
        await settle()
        assert [ear.logged for ear in ears] == [["now"], ["by the way", "now"]]


async def test_what_a_shared_server_logs_outside_calls_is_nobodys() -> None:
    there = LegacyServer({"talks": talks})
    async with gateway(there=there) as rig:
        clients = [await rig.legacy(principal=who) for who in ("ann", "bob")]
        ears = [await client.listen() for client in clients]
        await clients[0].call("there__talks")
        there.open_connections[0].log("alert", "of somebody")
        await settle()
        assert [ear.logged for ear in ears] == [[], []]


async def test_a_server_that_refuses_levels_refuses_nobodys_call() -> None:
    there = LegacyServer({"talks": talks})
    refuse = lambda self, message: self.say(  # noqa: E731
        {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no levels here"}}
    )
    original = there.connection.requested
    there.connection = type(
        "Refusing",
        (there.connection,),
        {"requested": lambda self, m: (refuse if m["method"] == "logging/setLevel" else original)(self, m)},
    )
    async with gateway(there=there) as rig:
        client = await rig.legacy()
        assert (await client.request("logging/setLevel", level="error")).result == {}
        assert heard(await client.call("there__talks")) == from_("error")
        assert heard(await rig.modern().call("there__talks", meta={META + "logLevel": "alert"})) == from_("alert")


@pytest.mark.promise("spec.2026.logging.own")
async def test_two_calls_of_one_client_with_two_levels_each_hear_their_own() -> None:
    go = asyncio.Event()

    async def waits(scene: Scene) -> str:
        await go.wait()
        return await talks(scene)

    new = ModernServer({"waits": waits, "talks": talks}, heeds_levels=True)
    async with gateway(new=new) as rig:
        client = rig.modern()
        loud = client.start("tools/call", name="new__waits", meta={META + "logLevel": "debug"})
        await new.got("tools/call")
        assert heard(await client.call("new__talks", meta={META + "logLevel": "error"})) == from_("error")
        go.set()
        assert heard(await loud.reply()) == list(LEVELS)


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_level_that_there_is_not_is_refused(revision: str) -> None:
    async with gateway(there=LegacyServer({"talks": talks})) as rig:
        client = await rig.client(revision)
        if revision == MODERN:
            reply = await client.call("there__talks", meta={META + "logLevel": "loud"})
        else:
            reply = await client.request("logging/setLevel", level="loud")
        assert reply.error["code"] == -32602


async def test_a_level_is_refused_at_the_path_of_a_server_that_logs_nothing() -> None:
    async with gateway(there=LegacyServer({}, declares={"tools": {}})) as rig:
        client = await rig.legacy(path="/mcp/servers/there")
        assert (await client.request("logging/setLevel", level="debug")).error["code"] == -32601
