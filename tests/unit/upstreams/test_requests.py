"""The requests of one connection, by a link that keeps what is sent: who is told of what, and whose turn it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest import mock

import msgspec
import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Done, Outcome, Principal
from toolgate.eras import legacy, modern
from toolgate.upstreams.mcp import dialects
from toolgate.upstreams.mcp.large_answers import LARGE
from toolgate.upstreams.mcp.large_notes import LONGEST_NOTE
from toolgate.upstreams.mcp.requests import GIVEN_UP, MOST_PENDING_EVENTS, Requests


class Link:
    """Keeps what is sent."""

    signs_of_life = None

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    async def send(self, data: bytes, headers: Any = (), origin: int | None = None) -> None:
        self.sent.append(json.loads(data))

    def send_now(self, data: bytes, headers: Any, origin: int, whose: str) -> bool:
        return False

    def abandon(self, origin: int) -> bool:
        return False

    async def close(self) -> None: ...


def opened(**more: Any) -> tuple[Requests, Link]:
    async def again(call: Call) -> Outcome:
        raise AssertionError("no call is made anew")

    server = Server(id="there", name="there", type="stdio", **more)
    requests = Requests(server, FakeClock(), again, lambda why, is_dead: None, lambda: None)
    requests.link = link = Link()  # type: ignore[assignment]
    requests.dialect = legacy.ToServer(mcp.LATEST["legacy"], legacy.Initialized("2025-11-25"))
    return requests, link


def start(requests: Requests, principal: str = "ann") -> asyncio.Task[Outcome]:
    return asyncio.ensure_future(requests.call(Call("tools/call", "t", Client(Principal(principal)))))


def answer(requests: Requests, id: int) -> None:
    requests.received(jsonrpc.result(Raw(b"%d" % id), b"{}"), None)


def say(requests: Requests, method: str, params: bytes = b"{}") -> None:
    requests.received(jsonrpc.notification(method, params), None)


async def test_a_call_is_sent_under_an_id_of_its_own_and_ends_with_its_answer() -> None:
    requests, link = opened()
    calls = [start(requests), start(requests)]
    await settle()
    assert [message["id"] for message in link.sent] == [1, 2]
    answer(requests, 2)
    assert await calls[1] == Done(Raw(b"{}"))
    assert requests.in_flight == 1 and not calls[0].done()
    await requests.close()
    with pytest.raises(Fault):
        await calls[0]


async def test_a_notification_goes_to_the_handler_of_its_method_and_any_other_to_who_takes_the_rest() -> None:
    requests, _ = opened()
    heard: list[tuple[str, str]] = []
    requests.handlers["notifications/mine"] = lambda message, _: heard.append(("mine", message.method))
    requests.on_other = lambda message, _: heard.append(("other", message.method))
    say(requests, "notifications/mine")
    say(requests, "notifications/strange")
    assert heard == [("mine", "notifications/mine"), ("other", "notifications/strange")]


async def test_a_notification_that_is_too_long_goes_to_nobody() -> None:
    requests, _ = opened()
    requests.on_other = lambda message, _: pytest.fail("it was taken")
    say(requests, "notifications/long", json.dumps({"text": "x" * LONGEST_NOTE}).encode())


async def test_a_large_answer_holds_the_stream_that_it_came_on_and_one_that_nobody_waits_for_is_not_read() -> None:
    requests, _ = opened()
    call = start(requests)
    await settle()
    large = jsonrpc.result(Raw(b"1"), b'{"text":"%b"}' % (b"x" * LARGE))
    reading = requests.received(large, 1)
    assert reading and not reading.done() and not call.done()
    await reading
    assert isinstance(await call, Done)
    assert requests.received(large, 1) is None and not requests._work


@pytest.mark.parametrize("origin", [None, 1])
async def test_a_large_question_is_read_as_a_large_answer_is_and_ends_no_call(origin: int | None) -> None:
    requests, _ = opened()
    asked: list[tuple[str, int | None]] = []
    requests.on_question = lambda message, origin: asked.append((message.method, origin))
    call = start(requests)
    await settle()
    reading = requests.received(jsonrpc.request(7, "sampling/createMessage", b'{"a":"%b"}' % (b"x" * LARGE)), origin)
    assert reading and not asked
    await reading
    assert asked == [("sampling/createMessage", origin)] and requests.awaits(1)
    answer(requests, 1)
    assert isinstance(await call, Done)


async def test_a_call_that_is_given_up_is_told_of_and_once_more_when_its_answer_comes_after_all() -> None:
    requests, link = opened()
    told: list[Any] = []
    requests.on_given_up.append(lambda request, why: told.append(why))
    requests.on_over.append(lambda id, is_answered: told.append((id, is_answered)))
    call = start(requests)
    await settle()
    call.cancel()
    await settle()
    assert told == ["cancelled by the client", (1, False)]
    assert link.sent[-1]["method"] == "notifications/cancelled" and list(requests.given_up) == [1]
    answer(requests, 1)
    assert told[2:] == [(1, True)] and not requests.given_up


async def test_a_call_that_was_given_up_asks_no_more_after_a_while() -> None:
    requests, _ = opened()
    call = start(requests)
    await settle()
    call.cancel()
    await settle()
    await requests.clock.sleep(GIVEN_UP + 1)
    assert not requests.given_up


async def test_once_calls_take_turns_those_that_are_in_flight_end_before_the_next_is_sent() -> None:
    requests, link = opened()
    calls = [start(requests) for _ in range(2)]
    await settle()
    requests.take_turns()
    calls.append(start(requests, "bob"))
    await settle()
    assert requests.calls == 3 and requests.in_flight == 2
    answer(requests, 1)
    await settle()
    assert len(link.sent) == 2
    answer(requests, 2)
    await settle()
    assert len(link.sent) == 3
    answer(requests, 3)
    assert len(await asyncio.gather(*calls)) == 3


async def test_once_calls_take_turns_none_is_sent_while_one_of_another_client_that_was_given_up_may_still_ask() -> None:
    requests, link = opened(timeout=60.0)
    given_up = start(requests, "ann")
    await settle()
    requests.take_turns()
    given_up.cancel()
    await settle()
    call = start(requests, "bob")
    await settle()
    assert [message["method"] for message in link.sent] == ["tools/call", "notifications/cancelled"]
    await requests.clock.sleep(GIVEN_UP + 1)
    assert link.sent[-1]["method"] == "tools/call"
    answer(requests, 2)
    await call


# How calls are written.


def written(requests: Requests, link: Link, **more: Any) -> bytes:
    """The bytes of one call more."""
    sent: list[bytes] = []

    def send_now(data: bytes, headers: Any, origin: int, whose: str) -> bool:
        sent.append(data)
        return True

    link.send_now = send_now  # type: ignore[method-assign]
    requests.begin_call(msgspec.structs.replace(Call("tools/call", "t", Client()), **more))
    return sent[0]


async def test_calls_of_one_tool_differ_in_their_arguments_alone() -> None:
    requests, link = opened()
    first = written(requests, link, arguments=Raw(b'{ "a":\t1.0 }'))
    second = written(requests, link, arguments=Raw(b'{"b":"\\u0000"}'))
    assert first == b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{ "a":\t1.0 }}}'
    assert second == b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{"b":"\\u0000"}}}'


@pytest.mark.parametrize(
    "more",
    [
        {"extra": {"more": Raw(b"1")}},
        {"meta": {"mine": Raw(b"2")}},
        {"task": Raw(b'{"ttl":1}')},
        {"wants_progress": True},
        {"target": "an\x01other"},
        {"target": 'with "quotes"'},
        {"client": Client(capabilities={"sampling": {}}, told=Raw(b'{"sampling":{}}'))},
        {"client": Client(capabilities={"sampling": {}})},
        {"wants_logs": True},
    ],
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_a_call_says_beside_its_arguments_is_written_whatever_was_written_before(
    more: dict[str, Any], era: str
) -> None:
    def spoken() -> tuple[Requests, Link]:
        requests, link = opened()
        if era == "modern":
            found = modern.Discovered(("2026-07-28",))
            requests.dialect = modern.ToServer(mcp.LATEST["modern"], found, dialects.INFO)
        return requests, link

    warm, cold = spoken(), spoken()
    arguments = Raw(b'{"a":1}')
    for _ in range(2):  # the second is written as the first was
        written(*warm, arguments=arguments)
        written(*warm, arguments=arguments, **more)
    for _ in range(4):  # as many ids as the other has used
        cold[0].begin_call(Call("tools/call", "another", Client()))
    assert json.loads(written(*warm, arguments=arguments, **more)) == json.loads(
        written(*cold, arguments=arguments, **more)
    )


async def test_what_may_be_lost_is_where_messages_wait_and_not_where_other_work_goes_on() -> None:
    requests, link = opened()
    read = asyncio.Event()
    for _ in range(MOST_PENDING_EVENTS):  # as tasks that count are looked at
        requests.spawn(requests.clock.sleep(3600))
    note = jsonrpc.notification("notifications/bobs", b"{}")
    requests.remark(note)
    await settle()
    assert [each["method"] for each in link.sent] == ["notifications/bobs"]
    with mock.patch.object(link, "send", lambda *_: read.wait()):
        for _ in range(2 * MOST_PENDING_EVENTS):
            requests.remark(note)
        await settle()
        assert len(requests._telling) == MOST_PENDING_EVENTS
        read.set()
        await settle()
    requests.remark(note)
    await settle()
    assert len(link.sent) == 2
    await requests.close()


async def test_work_that_nobody_waits_for_and_that_fails_by_surprise_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(error: Exception) -> None:
        raise error

    requests, _ = opened()
    for error in (ValueError("a surprise"), Fault("TIMEOUT", "as servers do")):
        requests.spawn(fails(error))
    await settle()
    assert [record.message for record in caplog.records] == [f"work for {requests.server.name} failed"]
