"""Servers that are slow to start: only what needs them waits, and clients hear when they are there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from peers import LATEST, MODERN, Json, LegacyServer, ModernServer, Pending, Rig, Scene, gateway
from virtualtime import FakeClock, patience, settle, soon

from toolgate.auth.access import THE_OPERATOR
from toolgate.config import CatalogLimits, Config, Server
from toolgate.state.memory import MemoryStore

CLIENTS = ["2024-11-05", LATEST, MODERN]
SERVERS = [LegacyServer, ModernServer]


async def plain(scene: Scene) -> str:
    return "just so"


def slow(there: Any, seconds: float = 20.0) -> Any:
    """Has a server hear nothing until it has been started for so long."""

    class Slow(there.connection):
        def connected(self, say: Callable[[bytes], None], hang_up: Callable[[str], None]) -> None:
            super().connected(say, hang_up)
            self.early: list[bytes] | None = []
            self.timer = asyncio.get_running_loop().call_later(seconds, self.wake)

        def wake(self) -> None:
            early, self.early = self.early or [], None
            for data in early:
                super().received(data)

        def received(self, data: bytes) -> None:
            if self.early is None:
                super().received(data)
            else:
                self.early.append(data)

        def disconnected(self) -> None:
            self.timer.cancel()
            super().disconnected()

    there.connection = Slow
    return there


def state(rig: Rig, server: str) -> str:
    return rig.app.gateway.snapshot.upstreams[server].status().state


def without_lists(there: Any) -> Any:
    """Has a server answer all but what asks it for a list."""

    class WithoutLists(there.connection):
        def requested(self, message: Json) -> None:
            if not message["method"].endswith("/list"):
                super().requested(message)

    there.connection = WithoutLists
    return there


# Names that nobody has.


ASKED = {
    "tool": ("tools/call", {"name": "nobodys", "arguments": {}}),
    "prompt": ("prompts/get", {"name": "nobodys"}),
    "resource": ("resources/read", {"uri": "nobodys:x"}),
}


@pytest.mark.parametrize("never", [without_lists, lambda there: slow(there, 1e6)], ids=["lists", "anything"])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_name_that_nobody_has_is_refused_soon_also_beside_a_server_that_lists_nothing(
    revision: str, asked: str, never: Any
) -> None:
    method, params = ASKED[asked]
    mute = never(LegacyServer({"plain": plain}))
    async with gateway(mute=mute, there=LegacyServer({"plain": plain})) as rig:
        client = await rig.client(revision)
        took: list[float] = []
        for _ in range(4):
            began = rig.clock.now()
            with patience(70.0):
                reply = await client.start(method, **params).reply()
            took.append(rig.clock.now() - began)
        limits = CatalogLimits()
        assert took[0] <= limits.list_timeout + 1 and max(took[1:]) <= limits.first_wait + 0.1, took
        assert "not found" in reply.error["message"], reply.error
        await rig.clock.advance(200.0)  # what is asked of the server is given up


# Servers that are started with the gateway.


@pytest.mark.promise("b.lifecycle.eager")
@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_beside_an_eager_server_that_hangs_the_gateway_answers_at_once(kind: Any, stdio: bool) -> None:
    stuck = slow(kind({"plain": plain}, start="eager"))
    there = kind({"plain": plain}, start="eager")
    async with gateway(stuck=stuck, there=there) as rig:
        assert not stuck.received
        await settle()
        assert (state(rig, "stuck"), state(rig, "there")) == ("starting", "ready")
        client = await rig.legacy(stdio=stdio)
        assert (await soon(client.request("ping"))).result == {}
        assert (await soon(client.call("there__plain"))).text == "just so"
        assert (await soon(rig.modern(stdio=stdio).call("there__plain"))).text == "just so"
        assert state(rig, "stuck") == "starting"
        await rig.clock.advance(20)
        assert state(rig, "stuck") == "ready"


@pytest.mark.promise("b.lifecycle.eager")
async def test_an_eager_server_that_is_added_later_keeps_nobody_waiting_either() -> None:
    there, stuck = LegacyServer({"plain": plain}), slow(LegacyServer({"plain": plain}))

    def edited(config: Config) -> Config:
        added = Server(id="stuck", name="stuck", type="stdio", command="stuck", start="eager")
        return Config(servers=(*config.servers, added))

    async with gateway(there=there, edited=edited) as rig:
        rig.app._given.links["stuck"] = stuck.make_link  # type: ignore[index]
        await soon(rig.app.reload())
        await settle()
        assert state(rig, "stuck") == "starting"
        assert (await soon(rig.modern().call("there__plain"))).text == "just so"
        await rig.clock.advance(20)
        assert state(rig, "stuck") == "ready"


# What a client is told at first.

HELLO: Json = {"capabilities": {}, "clientInfo": {"name": "scripted", "version": "1"}}


def greeted(rig: Rig, revision: str, path: str = "/mcp") -> Pending:
    """The first words of a client that has not shaken hands."""
    if revision == MODERN:
        return rig.modern(path=path).start("server/discover")
    return rig.legacy_stranger(revision, path=path).start("initialize", **HELLO, protocolVersion=revision)


def tools(reply: Any) -> list[str]:
    return [tool["name"] for tool in reply.result["tools"]]


@pytest.mark.promise("b.001.declares")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("kind", SERVERS)
async def test_at_its_own_path_the_handshake_waits_for_a_server_that_is_slow(kind: Any, revision: str) -> None:
    there = slow(kind({"plain": plain}, instructions="Use it.", declares={"tools": {}, "prompts": {}}), 5.0)
    async with gateway(there=there) as rig:
        pending = greeted(rig, revision, "/mcp/servers/there")
        await rig.clock.advance(4)
        assert not pending.is_answered
        await rig.clock.advance(2)
        said = (await soon(pending.reply())).result
        assert said["instructions"] == "Use it."
        assert said["capabilities"] == {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}


@pytest.mark.promise("b.001.declares", "b.001.list-timeout")
@pytest.mark.parametrize("revision", CLIENTS)
async def test_at_its_own_path_the_handshake_waits_for_as_long_as_a_list_may_take(revision: str) -> None:
    there = slow(LegacyServer({"plain": plain}), 20.0)
    async with gateway(there=there, catalog=CatalogLimits(list_timeout=3.0)) as rig:
        pending = greeted(rig, revision, "/mcp/servers/there")
        await rig.clock.advance(2.5)
        assert not pending.is_answered
        await rig.clock.advance(1)
        said = (await soon(pending.reply())).result  # it may turn out to offer anything
        assert {"tools", "prompts", "resources"} <= said["capabilities"].keys()
        await rig.clock.advance(20)


@pytest.mark.promise("b.001.declares")
@pytest.mark.parametrize("revision", CLIENTS)
async def test_of_several_servers_the_handshake_tells_what_is_known_by_then_and_begins_to_list(revision: str) -> None:
    late = slow(LegacyServer({"plain": plain}, instructions="never heard"), 5.0)
    there = LegacyServer({"plain": plain}, instructions="Here.")
    async with gateway(late=late, there=there) as rig:
        pending = greeted(rig, revision)
        await rig.clock.advance(0.6)
        assert (await soon(pending.reply())).result["instructions"] == "# there\n> Here."
        ear = await (await rig.legacy()).listen()
        await rig.clock.advance(5)
        assert len(late.requests("tools/list")) == len(there.requests("tools/list")) == 1
        assert ear.changed == [], "nobody has been shown a list without it"


# First lists.


@pytest.mark.promise("b.001.first-list", "b.001.list-pending")
@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
async def test_a_client_that_hears_of_it_later_does_not_wait_for_a_server_that_nobody_knows(stdio: bool) -> None:
    late, there = slow(LegacyServer({"plain": plain}), 5.0), LegacyServer({"plain": plain})
    async with gateway(late=late, there=there) as rig:
        client = await rig.legacy(stdio=stdio)
        ear = await client.listen()
        listed = await client.request("tools/list")
        assert tools(listed) == ["there__plain"]
        assert listed.result["_meta"] == {"pending": ["late"]}
        assert rig.clock.now() - 1000 < 1.5, "from the first word to the list"
        await rig.clock.advance(5)
        assert ear.changed == ["tools"]
        assert tools(await client.request("tools/list")) == ["late__plain", "there__plain"]


@pytest.mark.promise("b.001.first-list", "b.001.list-timeout")
async def test_where_nothing_is_known_at_all_a_list_waits_for_the_first_server_that_answers() -> None:
    one, two = slow(LegacyServer({"plain": plain}), 3.0), slow(LegacyServer({"plain": plain}), 5.0)
    async with gateway(one=one, two=two) as rig:
        client = await rig.legacy()
        pending = client.start("tools/list")
        await rig.clock.advance(2)
        assert not pending.is_answered
        await rig.clock.advance(1)
        listed = await soon(pending.reply())
        assert (tools(listed), listed.result["_meta"]) == (["one__plain"], {"pending": ["two"]})
        await rig.clock.advance(3)


@pytest.mark.promise("b.001.list-timeout")
async def test_a_client_that_hears_of_nothing_later_waits_for_as_long_as_a_list_may_take() -> None:
    late, there = slow(LegacyServer({"plain": plain}), 5.0), LegacyServer({"plain": plain})
    async with gateway(late=late, there=there) as rig:
        asked = [stranger.start("tools/list") for stranger in (rig.modern(), rig.legacy_stranger())]
        await rig.clock.advance(4)
        assert not any(pending.is_answered for pending in asked)
        await rig.clock.advance(1)
        for pending in asked:
            assert tools(await pending.reply()) == ["late__plain", "there__plain"]


@pytest.mark.promise("b.001.first-list", "b.001.catalog-kept")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize("kind", SERVERS)
async def test_what_is_kept_is_told_at_once_and_a_call_waits_for_the_server(kind: Any, revision: str) -> None:
    store = MemoryStore(FakeClock())
    async with gateway(store=store, there=kind({"plain": plain}, instructions="Use it.")) as rig:
        await rig.modern().request("tools/list")
        await rig.clock.advance(1)
    late = slow(kind({"plain": plain}), 20.0)
    async with gateway(store=store, there=late) as rig:
        client = rig.modern() if revision == MODERN else rig.legacy_stranger(revision)
        said = await soon(client.request("server/discover") if revision == MODERN else client.initialize())
        assert said.result["instructions"] == "Use it."
        assert tools(await soon(client.request("tools/list"))) == ["there__plain"]
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            answer = (await soon(client.request(method))).result
            assert answer.get("_meta", {}).get("pending") is None, "it has none of these, as it said"
        assert not late.connections, "nobody needs it yet"
        call = client.start("tools/call", name="there__plain")
        await rig.clock.advance(25)
        assert (await call.reply()).text == "just so"


@pytest.mark.promise("b.001.first-list", "b.001.catalog-kept")
@pytest.mark.parametrize("asked", [("/list", b'{"anew":true}'), ("/servers/there/check", b"")], ids=["list", "doctor"])
async def test_what_the_command_line_lists_is_kept_for_the_first_client(asked: tuple[str, bytes]) -> None:
    def a_server() -> LegacyServer:
        return LegacyServer({"plain": plain}, {"ask": plain}, {"mem://a": plain}, templates={"mem://{x}": plain})

    store, (path, body) = MemoryStore(FakeClock()), asked
    async with gateway(store=store, there=slow(a_server())) as rig:
        command = asyncio.ensure_future(rig.app.http.web.admin.ask("POST", "/admin" + path, body, THE_OPERATOR))
        await rig.clock.advance(25)
        assert (await command)[0] == 200
    late = slow(a_server())
    async with gateway(store=store, there=late) as rig:
        client = rig.legacy_stranger()
        await soon(client.initialize())
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = (await soon(client.request(method))).result
            assert len(next(iter(result.values()))) == 1 and "_meta" not in result
        assert not late.connections


# Searching while servers start.


@pytest.mark.promise("b.002.still-starting")
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize(
    ("path", "control", "arguments", "seen"),
    [
        ("/mcp/meta", "mcp_discover", {"query": "plain"}, lambda found: [hit["server"] for hit in found]),
        ("/mcp/meta", "mcp_discover", {"query": "zzyzx"}, lambda found: found or ["there"]),
        ("/mcp/meta", "mcp_discover", {}, lambda found: [each["name"] for each in found if each["toolCount"]]),
        ("/mcp", "search_tools", {"query": "plain"}, lambda found: [each["name"][:5] for each in found["matches"]]),
    ],
)
async def test_a_search_names_the_servers_that_are_still_starting(
    path: str, control: str, arguments: Json, seen: Callable[[Any], list[str]], revision: str
) -> None:
    late, later, there = (LegacyServer({"plain": plain}) for _ in range(3))
    async with gateway(late=slow(late), my_later_one=slow(later), there=there) as rig:
        client = await rig.client(revision, path=path)
        call = client.start("tools/call", name=control, arguments=arguments)
        await rig.clock.advance(11)
        result = (await call.reply()).result
        found, told = (block["text"] for block in result["content"])
        assert seen(json.loads(found)) == ["there"]
        assert told == "Still starting: late, my_later_one. Ask again in a few seconds."
        assert result["_meta"]["pending"] == ["late", "my_later_one"]
        await rig.clock.advance(10)
        again = (await client.call(control, arguments=arguments)).result
        assert len(again["content"]) == 1 and "pending" not in again.get("_meta", {})


@pytest.mark.promise("b.002.still-starting")
async def test_of_one_server_only_that_is_told() -> None:
    there = LegacyServer({"plain": plain})
    async with gateway(late=slow(LegacyServer({"plain": plain})), there=there) as rig:
        client = rig.modern(path="/mcp/meta")
        calls = [client.start("tools/call", name="mcp_discover", arguments={"server": id}) for id in ("late", "there")]
        await rig.clock.advance(11)
        late, known = [(await call.reply()).result for call in calls]
        assert json.loads(late["content"][0]["text"])["state"] == "connecting"
        assert late["content"][1]["text"] == "Still starting: late. Ask again in a few seconds."
        assert len(known["content"]) == 1
        await rig.clock.advance(10)
