"""Who hears that a resource has changed: whoever asked, by the name that it asked by, for as long as it wants.

However many clients want to hear of a resource, its server is asked once, and once more to stop.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from peers import (
    LATEST,
    LISTEN,
    META,
    MODERN,
    LegacyServer,
    ModernServer,
    RpcError,
    Scene,
    _LegacyConnection,
    _ModernConnection,
    gateway,
    link,
)
from virtualtime import settle, soon

from toolgate.config import Config
from toolgate.core.fault import Fault
from toolgate.core.model import Client, Principal
from toolgate.frontends.subscriber import MOST_WATCHED
from toolgate.upstreams.mcp.resubscribe import Wanted

SERVERS = [LegacyServer, ModernServer]
CLIENTS = ["2024-11-05", LATEST, MODERN]


async def text(scene: Scene) -> str:
    return scene.target


def docs(kind: Any, *uris: str, **more: Any) -> Any:
    resources = dict.fromkeys(uris or ("mem://a", "mem://b", "mem://ab"), text)
    return kind({"read": text}, resources=resources, tells=True, **more)


# Once, however many.


@pytest.mark.promise("spec.2026.subscriptions.listen")
@pytest.mark.parametrize("kind", SERVERS)
async def test_many_clients_share_one_subscription_which_ends_with_the_last(kind: Any) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        ears = [
            await (await rig.client(revision, principal=who)).listen("there+mem://a")
            for revision, who in ((MODERN, "ann"), (LATEST, "bob"), (MODERN, "cid"))
        ]
        assert there.watched == ["mem://a"]
        assert len(there.requests(LISTEN)) + len(there.requests("resources/subscribe")) == 1
        there.update("mem://a")
        await settle()
        assert [ear.updated for ear in ears] == [["there+mem://a"]] * 3
        for ear in ears:
            assert there.watched == ["mem://a"]
            await ear.stop()
            await settle()
        assert there.watched == []
        there.update("mem://a")
        assert len(there.requests("resources/unsubscribe")) == (kind is LegacyServer)


@pytest.mark.parametrize("kind", SERVERS)
async def test_clients_that_subscribe_at_the_same_moment_share_one_too(kind: Any) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        ears = await asyncio.gather(*(rig.modern(who).listen("there+mem://a") for who in ("ann", "bob", "cid")))
        assert there.watched == ["mem://a"]
        await asyncio.gather(*(ear.stop() for ear in ears[1:]))
        await settle()
        there.update("mem://a")
        await settle()
        assert [len(ear.updated) for ear in ears] == [1, 0, 0]
        await ears[0].stop()
        await settle()
        assert there.watched == []


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_what_is_subscribed_to_twice_is_told_once(kind: Any, revision: str) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        ear = await (await rig.client(revision)).listen("there+mem://a", "there+mem://a")
        there.update("mem://a")
        await settle()
        assert (ear.updated, there.watched) == (["there+mem://a"], ["mem://a"])


async def test_a_session_that_ends_has_unsubscribed() -> None:
    there = docs(LegacyServer)
    async with gateway(there=there) as rig:
        await (await rig.legacy()).listen("there+mem://a", "there+mem://b")
        assert there.watched == ["mem://a", "mem://b"]
        [session] = rig.app.sessions.all()
        rig.app.sessions.end(session)
        await settle()
        assert there.watched == []


async def test_unsubscribing_from_what_was_never_subscribed_to_is_no_business_of_the_server() -> None:
    there = docs(LegacyServer)
    async with gateway(there=there) as rig:
        assert (await (await rig.legacy()).request("resources/unsubscribe", uri="there+mem://a")).result == {}
        assert there.requests("resources/unsubscribe") == []


async def test_another_set_of_resources_is_listened_to_before_the_one_before_is_left() -> None:
    there = docs(ModernServer)
    async with gateway(there=there) as rig:
        await rig.modern().listen("there+mem://a")
        await rig.modern().listen("there+mem://b")
        told = [message for message in there.received if message["method"] in (LISTEN, "notifications/cancelled")]
        assert [message["method"] for message in told] == [LISTEN, LISTEN, "notifications/cancelled"]
        assert told[1]["params"]["notifications"]["resourceSubscriptions"] == ["mem://a", "mem://b"]
        assert told[2]["params"]["requestId"] == told[0]["id"]


# What was asked for, and nothing else.


@pytest.mark.promise("spec.2026.subscriptions.listen")
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_a_client_hears_of_the_resources_that_it_named(kind: Any, revision: str) -> None:
    """Also where another client's subscription makes the server tell of more."""
    there = docs(kind)
    async with gateway(there=there) as rig:
        ear = await (await rig.client(revision, principal="ann")).listen("there+mem://a")
        other = await rig.modern("bob").listen("there+mem://ab", "there+mem://b")
        for uri in ("mem://ab", "mem://b", "mem://a"):
            there.update(uri)
        await settle()
        assert ear.updated == ["there+mem://a"]
        assert other.updated == ["there+mem://ab", "there+mem://b"]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize(
    ("watched", "part"), [("mem://a", "mem://a/1"), ("mem://a/", "mem://a/1"), ("mem://a", "mem://a#1")]
)
async def test_a_server_may_tell_of_a_part_of_what_was_named(kind: Any, revision: str, watched: str, part: str) -> None:
    there = docs(kind, watched)
    async with gateway(there=there) as rig:
        ear = await (await rig.client(revision)).listen(f"there+{watched}")
        there.update(part)
        await settle()
        assert ear.updated == [f"there+{part}"]


@pytest.mark.parametrize("kind", SERVERS)
async def test_the_acknowledgement_holds_what_is_honoured(kind: Any) -> None:
    there = docs(kind, deaf_to=("mem://b",))
    async with gateway(there=there, mute=LegacyServer(resources={"mem://x": text})) as rig:
        uris = ("there+mem://a", "there+mem://b", "mute+mem://x", "nobody+mem://a", "mem://a")
        ear = await rig.modern().listen(*uris, lists=("tools", "prompts"))
        lists = {"toolsListChanged": True, "promptsListChanged": True}
        assert ear.honoured == {**lists, "resourceSubscriptions": ["there+mem://a", "mem://a"]}
        nothing = await rig.modern(path="/mcp/servers/mute").listen("mem://x", lists=("prompts",))
        assert nothing.honoured == {}


@pytest.mark.promise("spec.2026.subscriptions.listen")
async def test_a_modern_client_that_asks_for_nothing_hears_nothing() -> None:
    there = docs(LegacyServer, announces=True)
    async with gateway(there=there) as rig:
        ear = await rig.modern().listen()
        await rig.modern().listen("there+mem://a", lists=("resources",))
        there.update("mem://a")
        there.offer("resources", {"uri": "mem://new", "name": "new"})
        await rig.clock.advance(1)
        assert (ear.honoured, len(ear.messages)) == ({}, 1)


async def test_a_subscription_carries_neither_logs_nor_what_its_revision_does_not_know() -> None:
    async def visit(scene: Scene) -> str:
        return (await scene.ask(link()))["action"]

    there = LegacyServer({"visit": visit}, resources={"mem://a": text}, tells=True, scope="principal")
    async with gateway(there=there) as rig:
        client = rig.modern()
        ear = await client.listen("there+mem://a")
        accept = {"elicitation/create": {"action": "accept"}}
        assert (await client.converse("tools/call", accept, name="there__visit")).text == "accept"
        [connection] = there.open_connections
        connection.log("error", "of nobody's call")
        done = {"elicitationId": "elicitation-1"}
        connection.say({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": done})
        await settle()
        assert len(ear.messages) == 1


@pytest.mark.parametrize("wanted", [None, [], {"toolsListChanged": "yes"}, {"resourceSubscriptions": "mem://a"}, "x"])
async def test_a_filter_out_of_shape_is_refused(wanted: Any) -> None:
    async with gateway(there=docs(LegacyServer)) as rig:
        assert (await rig.modern().request(LISTEN, notifications=wanted)).error["code"] == -32602


@pytest.mark.parametrize("revision", ["2024-11-05", LATEST])
async def test_subscribing_to_what_no_server_tells_of_is_refused(revision: str) -> None:
    async with gateway(mute=LegacyServer(resources={"mem://x": text})) as rig:
        client = await rig.legacy(revision)
        assert (await client.request("resources/subscribe", uri="mute+mem://x")).error["code"] == -32601
        assert (await client.request("resources/subscribe", uri="nobody+mem://x")).error["code"] == -32002


@pytest.mark.parametrize("kind", SERVERS)
async def test_subscribing_to_one_that_its_server_does_not_tell_of_is_refused_in_the_clients_words(kind: Any) -> None:
    async with gateway(there=docs(kind, deaf_to=("mem://b",))) as rig:
        client = await rig.legacy(LATEST)
        assert (await client.request("resources/subscribe", uri="there+mem://b")).error["code"] == -32002


# By whose names.


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
@pytest.mark.parametrize(
    ("path", "name"), [("/mcp", "docs+file:///a"), ("/mcp", "file:///a"), ("/mcp/servers/docs", "file:///a")]
)
async def test_a_change_is_told_by_the_name_that_the_client_asked_by(
    kind: Any, revision: str, path: str, name: str
) -> None:
    there = docs(kind, "file:///a")
    async with gateway(docs=there, other=docs(LegacyServer)) as rig:
        ear = await (await rig.client(revision, path=path)).listen(name)
        assert there.watched == ["file:///a"]
        there.update("file:///a")
        await settle()
        assert ear.updated == [name]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", CLIENTS)
async def test_what_else_the_server_says_of_the_change_is_passed_on(kind: Any, revision: str) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        ear = await (await rig.client(revision)).listen("there+mem://a")
        [connection] = there.open_connections
        own = {META + "subscriptionId": id for id in getattr(connection, "listening", ())}
        params = {"uri": "mem://a", "title": "é", "_meta": {**own, "example.com/why": [1]}}
        connection.say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})
        await settle()
        told = ear.messages[-1]["params"]
        assert (told["title"], told["_meta"]["example.com/why"]) == ("é", [1])


@pytest.mark.parametrize("scope", ["principal", "session"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_what_one_clients_own_connection_tells_reaches_nobody_else(kind: Any, scope: str) -> None:
    there = docs(kind, scope=scope, announces=True)
    async with gateway(there=there) as rig:
        ears = []
        for revision, who in ((MODERN, "ann"), (LATEST, "bob"), (MODERN, "cid")):
            client = await rig.client(revision, principal=who)
            ears.append(await client.listen("there+mem://a", lists=("resources",)))
        assert there.watched == ["mem://a"] * 3
        there.open_connections[0].updated("mem://a")
        there.open_connections[0].changed("resources")
        await rig.clock.advance(1)
        assert [len(ear.updated) for ear in ears] == [1, 0, 0]
        assert [len(ear.changed) for ear in ears] == [1, 0, 0]


async def test_on_stdio_each_subscription_is_marked_as_its_own() -> None:
    there = docs(LegacyServer)
    async with gateway(there=there) as rig:
        client = rig.modern(stdio=True)
        one, two = await client.listen("there+mem://a"), await client.listen("there+mem://b")
        there.update("mem://a")
        there.update("mem://b")
        await settle()
        assert (one.updated, two.updated) == (["there+mem://a"], ["there+mem://b"])
        await one.stop()
        await settle()
        assert there.watched == ["mem://b"]


# What outlives what.


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_when_a_server_is_there_again_it_is_asked_again(kind: Any, revision: str) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        ear = await client.listen("there+mem://a")
        there.connections[0].hang_up()
        await settle()
        assert (await client.call("there__read")).text == "read"
        await settle()
        assert there.watched == ["mem://a"]
        there.update("mem://a")
        await settle()
        assert ear.updated == ["there+mem://a"]


async def test_a_client_that_leaves_while_the_server_is_away_is_forgotten() -> None:
    there = docs(LegacyServer)
    async with gateway(there=there) as rig:
        client = rig.modern()
        ear = await client.listen("there+mem://a")
        there.connections[0].hang_up()
        await settle()
        await ear.stop()
        await client.call("there__read")
        await settle()
        assert there.watched == []


@pytest.mark.parametrize("after", [0.5, 60.0, 600.0])
async def test_a_stream_that_a_server_ends_is_opened_again_soon(after: float) -> None:
    there = docs(ModernServer)
    async with gateway(there=there) as rig:
        ear = await rig.modern().listen("there+mem://a")
        await rig.clock.advance(after)
        there.end_listening()
        await rig.clock.advance(2)
        assert there.watched == ["mem://a"]
        there.update("mem://a")
        await settle()
        assert ear.updated == ["there+mem://a"]


async def test_a_server_that_ends_its_streams_at_once_is_asked_ever_less() -> None:
    there = docs(ModernServer)
    async with gateway(there=there) as rig:
        await rig.modern().listen("there+mem://a")
        asked = []
        for _ in range(10):
            there.end_listening()
            await rig.clock.advance(10)
            asked.append(len(there.requests(LISTEN)))
        assert asked[0] == 2
        assert asked[-1] - asked[-2] <= 1 and asked[-1] < 8


@pytest.mark.promise("spec.2026.subscriptions.listen")
@pytest.mark.parametrize("kind", SERVERS)
async def test_subscriptions_end_gracefully_with_the_gateway(kind: Any) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        ears = [await rig.modern().listen("there+mem://a") for _ in range(2)]
        rig.app.http.close()
        for ear in ears:
            reply = await ear.pending.reply()
            assert reply.result == {
                "resultType": "complete",
                "_meta": {META + "subscriptionId": ear.pending.message["id"]},
            }


# Servers that do it wrong.


@pytest.mark.parametrize("id", [[], {}, None, "1", 1.5, -1, 10**30])
async def test_an_acknowledgement_of_nothing_does_no_harm(id: Any) -> None:
    there = docs(ModernServer)
    async with gateway(there=there) as rig:
        client = rig.modern()
        ear = await client.listen("there+mem://a")
        params = {"notifications": {}, "_meta": {META + "subscriptionId": id}}
        method = "notifications/subscriptions/acknowledged"
        there.open_connections[0].say({"jsonrpc": "2.0", "method": method, "params": params})
        await settle()
        there.update("mem://a")
        await settle()
        assert (ear.updated, (await client.call("there__read")).text) == (["there+mem://a"], "read")


async def test_a_server_that_acknowledges_nothing_is_given_up_in_time() -> None:
    there = docs(ModernServer)
    there.connection = type("Mute", (there.connection,), {"_listen": lambda self, message: None})
    async with gateway(there=there) as rig:
        pending = rig.modern().start(LISTEN, notifications={"resourceSubscriptions": ["there+mem://a"]})
        await rig.clock.advance(30)
        assert pending.messages[0]["params"]["notifications"] == {}
        await pending.gone()


async def test_a_crash_while_subscribing_leaves_nothing_behind() -> None:
    there = docs(LegacyServer)
    there.connection = type(
        "Crashing", (there.connection,), {"_subscribe": lambda self, message, uri: self.hang_up("it crashed")}
    )
    async with gateway(there=there) as rig:
        client = rig.modern()
        ear = await client.listen("there+mem://a")
        assert ear.honoured == {}
        await ear.stop()
        assert (await client.call("there__read")).text == "read"
        await settle()
        assert len(there.requests("resources/subscribe")) == 1


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_client_that_leaves_waits_for_no_server(revision: str) -> None:
    there = docs(LegacyServer)
    async with gateway(there=there) as rig:
        client = await rig.client(revision)
        await client.listen("there+mem://a", "there+mem://b", "there+mem://ab")
        [connection] = there.open_connections
        connection.requested = lambda message: None  # it answers no more
        if revision == MODERN:
            await client.close()
        else:
            [session] = rig.app.sessions.all()
            rig.app.sessions.end(session)
            await soon(asyncio.gather(*rig.app.sessions._closing))
        connection.hang_up()


async def test_a_client_that_can_be_told_nothing_is_not_left_waiting() -> None:
    async with gateway(there=docs(LegacyServer)) as rig:
        reply = await rig.modern(accept="application/json").request(LISTEN, notifications={"toolsListChanged": True})
        assert reply.status in (400, 406)
        assert reply.error["code"] == -32600


async def test_a_page_that_was_visited_is_told_of_to_those_whose_revision_knows_of_that() -> None:
    def pages(id: str) -> RpcError:
        page = {"mode": "url", "elicitationId": id, "url": "https://example.com/", "message": "Sign in"}
        return RpcError(-32042, "Sign in first", {"elicitations": [page]})

    async def sign_in(scene: Scene) -> str:
        raise pages(scene.arguments["id"])

    there = LegacyServer({"sign-in": sign_in}, scope="session")
    async with gateway(there=there) as rig:
        for revision in ("2025-06-18", LATEST):
            client = await rig.legacy(revision)
            ear = await client.listen()
            await client.call("there__sign-in", arguments={"id": revision})
            done = {"elicitationId": revision}
            method = "notifications/elicitation/complete"
            there.open_connections[-1].say({"jsonrpc": "2.0", "method": method, "params": done})
            await settle()
            assert [message["method"] for message in ear.messages] == ([method] if revision == LATEST else [])


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_server_that_is_lost_is_asked_again_also_where_nobody_calls(kind: Any, revision: str) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        ear = await (await rig.client(revision)).listen("there+mem://a")
        there.connections[0].hang_up()
        await rig.clock.advance(2)
        assert there.watched == ["mem://a"]
        there.update("mem://a")
        await settle()
        assert ear.updated == ["there+mem://a"]


async def test_a_server_that_is_lost_again_and_again_is_started_ever_less() -> None:
    there = docs(LegacyServer)
    async with gateway(there=there) as rig:
        ear = await rig.modern().listen("there+mem://a")
        started = []
        for _ in range(12):
            for connection in there.open_connections:
                connection.hang_up()
            await rig.clock.advance(10)
            started.append(len(there.connections))
        assert started[0] == 2
        assert started[-1] < 9
        await rig.clock.advance(60)  # once it has lived for long, it is started again soon
        there.open_connections[0].hang_up()
        await rig.clock.advance(2)
        assert there.watched == ["mem://a"]
        there.open_connections[0].hang_up()
        await ear.stop()
        before = len(there.connections)
        await rig.clock.advance(100)
        assert len(there.connections) == before


# Clients that want too much, and servers that say nothing.


@pytest.mark.parametrize("kind", SERVERS)
async def test_no_client_watches_more_than_it_may_by_asking_for_all_at_once(kind: Any) -> None:
    there = docs(kind, templates={"mem://{any}": text})
    wanted = [f"there+mem://{number}" for number in range(MOST_WATCHED + 50)]
    async with gateway(there=there) as rig:
        ear = await rig.modern().listen(*wanted)
        assert ear.honoured["resourceSubscriptions"] == wanted[:MOST_WATCHED]
        assert len(there.watched) == MOST_WATCHED


class _SilentModern(_ModernConnection):
    def _listen(self, message: Any) -> None:
        self.listening[message["id"]] = message["params"]["notifications"]


class _SilentLegacy(_LegacyConnection):
    def _subscribe(self, message: Any, uri: str) -> None:
        if message["method"] == "resources/subscribe":
            self._watched.append(uri)
        else:
            super()._subscribe(message, uri)


def silent(kind: Any) -> Any:
    """A server that takes subscriptions, and says nothing to that."""
    there = docs(kind, templates={"mem://{any}": text})
    there.connection = _SilentModern if kind is ModernServer else _SilentLegacy
    return there


@pytest.mark.parametrize("kind", SERVERS)
async def test_who_leaves_before_the_server_has_acknowledged_has_unsubscribed(kind: Any) -> None:
    there = silent(kind)
    async with gateway(there=there) as rig:
        for number in range(3):
            asking = rig.modern().start(LISTEN, notifications={"resourceSubscriptions": [f"there+mem://{number}"]})
            await rig.clock.advance(0.5)
            assert there.watched == [f"mem://{number}"]
            await asking.gone()
            await rig.clock.advance(0.5)
            assert there.watched == []


@pytest.mark.parametrize("kind", SERVERS)
async def test_one_client_that_asks_a_silent_server_for_much_keeps_no_other_waiting(kind: Any) -> None:
    there, other = silent(kind), docs(kind)
    async with gateway(there=there, other=other) as rig:
        much = rig.modern("eve").start(
            LISTEN, notifications={"resourceSubscriptions": [f"there+mem://{number}" for number in range(50)]}
        )
        await rig.clock.advance(1)
        little = rig.modern("bob").start(
            LISTEN, notifications={"resourceSubscriptions": ["there+mem://a", "other+mem://a"]}
        )
        await rig.clock.advance(20)
        [acknowledged] = little.messages
        assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["other+mem://a"]}
        assert [each["params"]["notifications"] for each in much.messages] == [{}]
        await little.gone()
        await much.gone()


# Another configuration.


def with_another_variable(config: Config) -> Config:
    return msgspec.structs.replace(config, servers=(msgspec.structs.replace(config.servers[0], env={"A": "b"}),))


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("who_stays", [0, 1, None])
async def test_who_leaves_while_a_changed_server_starts_takes_only_its_own_subscription(
    kind: Any, who_stays: int | None
) -> None:
    there, opens = docs(kind), asyncio.Event()
    connects = there.make_link

    async def connects_when_it_may(*given: Any) -> Any:
        await opens.wait()
        return await connects(*given)

    there.make_link = connects_when_it_may
    opens.set()
    async with gateway(there=there, edited=with_another_variable) as rig:
        ears = [await rig.modern(who).listen("there+mem://a") for who in ("ann", "bob")]
        opens.clear()
        await rig.app.reload()
        await settle()
        for number, ear in enumerate(ears):
            if number != who_stays:
                await ear.stop()
        await settle()
        opens.set()
        await rig.clock.advance(1)
        assert there.watched == ([] if who_stays is None else ["mem://a"])
        there.update("mem://a")
        await settle()
        assert [ear.updated for ear in ears] == [["there+mem://a"] if number == who_stays else [] for number in (0, 1)]


class _Held(_LegacyConnection):
    def _subscribe(self, message: Any, uri: str) -> None:
        self.server.held.append(lambda: super(_Held, self)._subscribe(message, uri))


async def test_a_subscription_that_is_under_way_while_its_server_is_changed_stands_at_the_new_one() -> None:
    there = docs(LegacyServer)
    whole, there.connection, there.held = there.connection, _Held, []
    async with gateway(there=there, edited=with_another_variable) as rig:
        ann, bob = await rig.client(LATEST), await rig.client(LATEST, principal="bob")
        subscribing = ann.start("resources/subscribe", uri="mem://a")
        await settle()
        there.connection = whole
        await rig.app.reload()
        [answer] = there.held
        answer()
        assert (await subscribing.reply()).result == {}
        await settle()
        [now] = there.open_connections
        assert now.watched == ["mem://a"]
        ear = await bob.listen("mem://a")
        assert (await ann.request("resources/unsubscribe", uri="mem://a")).result == {}
        await settle()
        there.update("mem://a")
        await settle()
        assert ear.updated == ["mem://a"]
        await ear.stop()
        await settle()
        assert now.watched == []


async def test_a_changed_server_that_does_not_start_at_once_is_asked_again_for_what_is_watched() -> None:
    there, is_away = docs(LegacyServer), asyncio.Event()
    connects = there.make_link

    async def connects_unless_away(*given: Any) -> Any:
        if is_away.is_set():
            raise Fault("SERVER_FAILED", "not yet", reach="not_sent")
        return await connects(*given)

    there.make_link = connects_unless_away
    async with gateway(there=there, edited=with_another_variable) as rig:
        ear = await rig.modern().listen("there+mem://a")
        left = await rig.modern("bob").listen("there+mem://b")
        is_away.set()
        await rig.app.reload()
        await rig.clock.advance(20)
        await left.stop()
        is_away.clear()
        await rig.clock.advance(60)
        assert there.watched == ["mem://a"]
        there.update("mem://a")
        await settle()
        assert ear.updated == ["there+mem://a"]


async def test_what_somebody_has_not_asked_for_it_cannot_end_for_others() -> None:
    wanted = Wanted()
    ann, bob = Client(Principal("ann")), Client(Principal("bob"))
    wanted.add(("resources", "mem://a"), ann)
    assert not wanted.remove(("resources", "mem://a"), bob.principal.counted_as)
    assert wanted.remove(("resources", "mem://a"), ann.principal.counted_as)
