"""When a child that says nothing is asked whether it lives, by a link that keeps what is sent."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec import Raw
from test_requests import Link, opened, start
from virtualtime import settle

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Call, Client, NeedInput, Principal
from toolgate.upstreams.mcp.questions import Questions
from toolgate.upstreams.mcp.requests import Requests
from toolgate.upstreams.mcp.watchdog import PATIENCE, Watchdog

TIMEOUT = 60.0


class Silent(Link):
    def __init__(self) -> None:
        super().__init__()
        self.signs_of_life = 0  # type: ignore[assignment]
        self.replaced: list[str] = []

    def replace(self, why: str) -> None:
        self.replaced.append(why)

    @property
    def pings(self) -> int:
        return [each.get("method") for each in self.sent].count("ping")


def watched() -> tuple[Requests, Silent]:
    requests, _ = opened(timeout=TIMEOUT)
    requests.link = link = Silent()  # type: ignore[assignment]
    questions = Questions(requests, requests.server, False, lambda event: None)
    Watchdog(requests, requests.server, lambda: questions.are_open)
    return requests, link


def look(requests: Requests, seconds: float) -> asyncio.Task[object]:
    async def ask() -> None:
        with suppress(Fault):
            await requests.ask(mcp.TASK_GET, jsonrpc.encode({"taskId": "1"}), (), seconds)

    return asyncio.ensure_future(ask())


async def test_a_short_wait_shows_nothing_of_a_server_that_others_give_longer() -> None:
    requests, link = watched()
    await look_and_pass(requests, 3.0)
    await requests.clock.advance(TIMEOUT - 4.0)  # type: ignore[attr-defined]
    assert not link.pings
    await requests.clock.advance(2.0)  # type: ignore[attr-defined]
    assert link.pings == 1 and not link.replaced
    await requests.clock.advance(PATIENCE)  # type: ignore[attr-defined]
    assert len(link.replaced) == 1


async def look_and_pass(requests: Requests, seconds: float) -> None:
    looking = look(requests, seconds)
    await settle()
    await requests.clock.advance(seconds)  # type: ignore[attr-defined]
    await looking


async def test_a_call_that_has_waited_for_its_whole_time_does_not_wait_for_who_began_later() -> None:
    requests, link = watched()
    calling = start(requests)
    await settle()
    await requests.clock.advance(TIMEOUT - 5.0)  # type: ignore[attr-defined]
    await look_and_pass(requests, 3.0)
    await requests.clock.advance(2.0)  # type: ignore[attr-defined]
    with pytest.raises(Fault):
        await calling
    await settle()
    assert link.pings == 1
    await requests.clock.advance(PATIENCE)  # type: ignore[attr-defined]
    assert len(link.replaced) == 1


async def test_a_server_that_has_spoken_since_is_left_alone_and_looked_at_for_the_next_who_waits() -> None:
    requests, link = watched()
    await look_and_pass(requests, 3.0)
    link.signs_of_life += 1  # type: ignore[operator]
    await look_and_pass(requests, 3.0)
    await requests.clock.advance(TIMEOUT - 4.0)  # type: ignore[attr-defined]
    assert not link.pings
    await requests.clock.advance(2.0)  # type: ignore[attr-defined]
    assert link.pings == 1
    link.signs_of_life += 1  # type: ignore[operator]
    await requests.clock.advance(PATIENCE)  # type: ignore[attr-defined]
    assert not link.replaced


async def test_a_server_that_waits_for_an_answer_is_left_alone_whoever_else_waits_for_it() -> None:
    requests, link = watched()
    capabilities = {"elicitation": {"form": {}}}
    calling = asyncio.ensure_future(
        requests.call(Call("tools/call", "t", Client(Principal("ann"), capabilities=capabilities)))
    )
    await settle()
    link.signs_of_life += 1  # type: ignore[operator]
    form = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
    requests.received(
        jsonrpc.encode({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form}), None
    )
    asked = await calling
    assert isinstance(asked, NeedInput)
    other = look(requests, TIMEOUT)
    await settle()
    await requests.clock.advance(5 * TIMEOUT)  # type: ignore[attr-defined]
    await other
    assert not link.pings
    asked.resume.answer(asked.asks[0].key, Answer(Raw(b'{"action":"decline"}')))
    await settle()
    await requests.clock.advance(TIMEOUT - 1)  # type: ignore[attr-defined]
    assert not link.pings
    await requests.clock.advance(2 * PATIENCE + 2)  # type: ignore[attr-defined]
    assert link.pings == 1
    await requests.clock.advance(PATIENCE)  # type: ignore[attr-defined]
    assert len(link.replaced) == 1
