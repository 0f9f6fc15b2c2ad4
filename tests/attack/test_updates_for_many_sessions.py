"""One client opens thousands of sessions that listen, and has a server report updates: each is looked at for all of
them, and where more come than are told, all are told in one go."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from attack.test_floods_over_websockets import Peer
from attack.test_servers_that_never_end import STREAM, Connection, Heard, connections, over_http
from peers import LATEST, MODERN, LegacyServer, ModernServer, Scene, gateway
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core.events import MOST_KEPT, MOST_WAITING, PORTION, Events, every_list
from toolgate.core.inflow import IntakeQueue
from toolgate.core.model import Client, Event, Principal
from toolgate.frontends.subscriber import Subscriber
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.stdio import StdioLink
from toolgate.upstreams.mcp import requests

MANY = 40
__all__ = ["connections"]  # the fixture


async def read(scene: Scene) -> str:
    return scene.target


def docs(kind: Any) -> Any:
    return kind({"read": read}, resources={}, templates={"mem://{any}": read}, tells=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many listeners were asked whether an event concerns their clients, by its URI."""
    found: Counter[str] = Counter()
    hear = Subscriber._hear

    def noted(subscriber: Subscriber, event: Event) -> None:
        found[event.uri] += 1
        hear(subscriber, event)

    monkeypatch.setattr(Subscriber, "_hear", noted)
    return found


def updated(uri: str, **more: Any) -> Event:
    return Event("there", "updated", uri=uri, **more)


# Who is asked.


@pytest.mark.parametrize("kind", [LegacyServer, ModernServer])
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_of_many_sessions_those_that_watch_a_resource_are_asked(
    kind: Any, revision: str, asked: Counter[str]
) -> None:
    there = docs(kind)
    async with gateway(there=there) as rig:
        for _ in range(MANY):
            await (await rig.client(revision)).listen("there+mem://else")
        ears = [await (await rig.client(revision)).listen("there+mem://a") for _ in range(2)]
        asked.clear()
        there.update("mem://a")
        await settle()
        assert asked == {"mem://a": 2}
        assert [ear.updated for ear in ears] == [["there+mem://a"]] * 2


async def test_who_watches_what_the_reported_part_belongs_to_is_asked_and_nobody_else(asked: Counter[str]) -> None:
    async with gateway(there=docs(LegacyServer)) as rig:
        uris = ("mem://a", "mem://a/b", "mem://ab", "mem://a/b/c", "mem://b")
        for uri in uris:
            await rig.modern().listen(f"there+{uri}")
        rig.app.events.tell(updated("mem://a/b"))
        rig.app.events.tell(updated("mem://nowhere"))
        await settle()
        assert asked == {"mem://a/b": 2}


async def test_who_watches_no_more_is_not_asked_and_leaves_nothing_behind(asked: Counter[str]) -> None:
    async with gateway(there=docs(LegacyServer)) as rig:
        ears = [await rig.modern().listen("there+mem://a", "there+mem://b") for _ in range(3)]
        for ear in ears:
            await ear.stop()
        rig.app.events.tell(updated("mem://a"))
        await settle()
        assert not asked and not rig.app.events.watchers
        assert len(rig.app.events) == 0


async def test_what_concerns_one_client_is_told_to_its_own_streams_alone(asked: Counter[str]) -> None:
    async with gateway(there=docs(LegacyServer)) as rig:
        for _ in range(MANY):
            await rig.modern("mallory").listen(lists=["tools"])
        ann = await rig.modern("ann").listen(lists=["tools"])
        identity = next(each for each in rig.app.events.own if "ann" in each[0])
        rig.app.events.tell(Event("", "list_changed", lists=("tools",), whose=identity))
        await settle()
        assert asked.total() == 1 and len(ann.messages) == 2  # that it listens, and this


# How many are told.


def crowd(events: Events, count: int) -> list[list[Event]]:
    """So many who watch all that is told here, and what each has heard."""
    heard: list[list[Event]] = [[] for _ in range(count)]
    for number, each in enumerate(heard):
        events.listen_for(each.append, Client(Principal(str(number)))).watch("there", "resources", "x:a")
    return heard


async def drain(events: Events) -> int:
    """The most that were told in one round until all are."""
    most = 0
    told: list[int] = [0]
    tell = events._tell_one
    events._tell_one = lambda *given: (told.__setitem__(0, told[0] + 1), tell(*given))[1]  # type: ignore[method-assign]
    while events._waiting:
        told[0] = 0
        await asyncio.sleep(0)
        most = max(most, told[0])
    return most


async def test_however_much_comes_few_are_told_in_one_step_and_all_in_order() -> None:
    events = Events()
    heard = crowd(events, 5 * PORTION)
    said = [updated(f"x:a/{number}") for number in range(3 * MOST_WAITING)]
    for event in said:
        before = sum(map(len, heard))
        events.tell(event)
        assert sum(map(len, heard)) - before <= PORTION
    assert await drain(events) <= PORTION
    assert all(each == said for each in heard)


async def test_an_update_that_still_waits_is_told_once_however_often_it_is_said() -> None:
    events = Events()
    heard = crowd(events, 3 * PORTION)
    first, other = updated("x:a"), updated("x:a/b")
    for _ in range(1000):
        events.tell(first)
        events.tell(other)
    assert waiting(events) == 3
    await drain(events)
    assert all(each == [first, other, first] for each in heard), "what is being told is told again"


@pytest.mark.parametrize("again", [updated("x:a", params=b"2"), updated("x:a", scope="ann/")])
async def test_what_says_something_else_is_told_too(again: Event) -> None:
    events = Events()
    heard = crowd(events, 2 * PORTION)
    for event in (every_list("there"), updated("x:a"), again):
        events.tell(event)
    await drain(events)
    assert all(each == [every_list("there"), updated("x:a"), again] for each in heard)


async def test_log_lines_that_are_the_same_are_all_told() -> None:
    events = Events()
    heard = crowd(events, 2 * PORTION)
    for _ in range(5):
        events.tell(Event("there", "log"))
    await drain(events)
    assert all(len(each) == 5 for each in heard)


async def test_who_came_since_it_was_said_first_hears_what_was_said_again() -> None:
    events = Events()
    crowd(events, 2 * PORTION)
    events.tell(every_list("there"))
    events.tell(updated("x:a"))
    [late] = crowd(events, 1)
    events.tell(updated("x:a"))
    await drain(events)
    assert late == [updated("x:a")]


def waiting(events: Events) -> int:
    return sum(map(len, events._waiting.values()))


# A server that is ahead.


@pytest.mark.parametrize("number", [2, MOST_WAITING, MOST_KEPT])
async def test_what_another_server_says_waits_for_one_portion_of_it_and_not_for_all(number: int) -> None:
    events = Events()
    heard = crowd(events, 4 * PORTION)
    other: list[Event] = []
    client = events.listen_for(other.append, Client(Principal("other")))
    client.watch("other", "resources", "x:b")
    for each in range(number):
        events.tell(updated(f"x:a/{each}"))
    events.tell(Event("other", "updated", uri="x:b"))
    steps = 0
    while not other:
        steps += 1
        await asyncio.sleep(0)
    assert steps <= 3, "a portion of the flood, and its own"
    assert waiting(events) >= number - 1
    await drain(events)
    assert all([event.uri for event in each] == [f"x:a/{at}" for at in range(number)] for each in heard)


async def test_several_servers_that_flood_take_turns() -> None:
    events = Events()
    crowd(events, 4 * PORTION)
    order: list[str] = []
    for server in ("there", "b", "c"):
        client = events.listen_for(lambda event: order.append(event.server), Client(Principal(server)))
        client.watch(server, "resources", "x:a")
    for server in ("there", "b", "c"):
        for each in range(10):
            events.tell(Event(server, "updated", uri=f"x:a/{each}"))
    await drain(events)
    assert order[:4].count("b") + order[:4].count("c") >= 3 and len(order) == 30


async def test_a_server_that_says_more_than_is_told_waits_and_others_do_not() -> None:
    events = Events()
    crowd(events, 2 * PORTION)
    rooms = [events.tell(updated(f"x:a/{number}")) for number in range(MOST_WAITING + 1)]
    room = rooms.pop()
    assert rooms == [None] * MOST_WAITING and room
    assert events.tell(every_list("other")) is None
    assert events.tell(updated("x:a/1")) is room
    while not room.done():
        assert waiting(events) > MOST_WAITING // 2
        await asyncio.sleep(0)
    assert events.tell(updated("x:a/0")) is None
    await drain(events)
    assert not events._senders and not events._said


async def test_what_a_server_has_said_beyond_all_bounds_is_dropped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    heard = crowd(events, 2 * PORTION)
    for number in range(2 * MOST_KEPT):
        events.tell(updated(f"x:a/{number}"))
    events.tell(every_list("there"))
    assert waiting(events) == MOST_KEPT + 1
    await drain(events)
    assert [each[-1] for each in heard] == [every_list("there")] * len(heard)
    assert caplog.text.count("faster than they can be delivered") == 1


SAID = b'{"jsonrpc":"2.0","method":"notifications/resources/updated"}'


class Ahead(Heard):
    """Whoever is told of what a server says, and has room for nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.room = asyncio.get_running_loop().create_future()
        about = {name: getattr(self.receiver, name) for name in self.receiver.__struct_fields__}
        self.receiver = Receiver(**about | {"received": self._received, "awaits": lambda id: True})

    def _received(self, data: bytes, origin: int | None) -> asyncio.Future[None]:
        self.messages.append(data)
        return self.room


async def test_nothing_more_is_read_of_a_child_that_is_ahead() -> None:
    ahead = Ahead()
    server = Server(id="there", name="There", type="stdio", command="x")
    link = StdioLink(server, ahead.receiver, FakeClock(), IntakeQueue())
    link._intake.transport = pipe = Peer()
    link._output((SAID + b"\n") * 100)
    await settle()
    assert pipe.is_paused and len(ahead.messages) < 100
    ahead.room.set_result(None)
    await settle()
    assert not pipe.is_paused and len(ahead.messages) == 100


@pytest.mark.parametrize("where", ["on a call's stream", "in the answer to a note", "on its own stream"])
async def test_nothing_more_is_read_of_a_server_over_http_that_is_ahead(
    where: str, connections: list[Connection]
) -> None:
    ahead = Ahead()
    async with over_http(ahead) as link:
        if where == "on its own stream":
            await link.listen(())
            await settle()
        else:
            await link.send(SAID, origin=1 if where == "on a call's stream" else None)
        there = connections[0]
        there.wire.data_received(STREAM + b"\r\n" + b"data: " + SAID + b"\n\n")
        there.wire.data_received((b"data: " + SAID + b"\n\n") * 9)
        await settle()
        assert there.is_paused and len(ahead.messages) == 1
        ahead.room.set_result(None)
        await settle()
        assert not there.is_paused and len(ahead.messages) == 10


async def test_a_large_answer_on_a_stream_of_its_own_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LARGE", 100)
    async with gateway(there=docs(LegacyServer)) as rig:
        await rig.modern().listen("there+mem://a")
        [connection] = rig.connections
        answer = b'{"jsonrpc":"2.0","id":99,"result":{"x":"%b"}}' % (b"x" * 200)
        assert connection.requests.received(answer, 99) is None
        assert connection.requests.received(answer, None) is not None
        await settle()
