"""A server asks again and again by the id of a question that is still open, or that it has just withdrawn: it counts as
what it is, and the work for it has an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.model import Answer, Call, Client, Outcome, Principal
from toolgate.upstreams.mcp.made_tasks import TaskOwners
from toolgate.upstreams.mcp.questions import Questions
from toolgate.upstreams.mcp.requests import Requests
from toolgate.upstreams.mcp.tasks import Tasks

MANY = 3 * asks.MOST_OPEN


class Work:
    """What is begun and does not end."""

    def __init__(self) -> None:
        self.begun = 0
        self.open = 0

    async def ask_roots(self, take: Callable[[], bool]) -> Answer | None:
        assert take()
        await self._hang()
        return None

    async def look_at(self, tasks: Sequence[str]) -> None:
        await self._hang()

    async def _hang(self) -> None:
        self.begun += 1
        self.open += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.open -= 1


def connection() -> Requests:
    async def again(call: Call) -> Outcome:
        raise AssertionError("no call is made anew")

    server = Server(id="there", name="there", type="stdio", scope="session")
    requests = Requests(server, FakeClock(), again, lambda why, is_dead: None, lambda: None)
    requests.answer = lambda message: None  # type: ignore[method-assign]
    return requests


def question(method: str, id: Any) -> bytes:
    return jsonrpc.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": {"messages": []}})


def withdrawal(id: Any) -> bytes:
    return jsonrpc.notification(mcp.CANCELLED, jsonrpc.encode({"requestId": id}))


@pytest.mark.parametrize("is_withdrawn", [False, True])
@pytest.mark.parametrize("id", [1, "one"])
async def test_roots_are_asked_for_once_for_each_open_question(id: Any, is_withdrawn: bool) -> None:
    requests, work = connection(), Work()
    Questions(requests, requests.server, True, lambda event: None, ask_roots=work.ask_roots)
    for _ in range(MANY):
        requests.received(question("roots/list", id), None)
        await asyncio.sleep(0)
        if is_withdrawn:
            requests.received(withdrawal(id), None)
    await settle()
    assert work.open == (0 if is_withdrawn else 1)
    requests.received(question("roots/list", "another"), None)
    await settle()
    assert work.open == (1 if is_withdrawn else 2)
    await requests.close()


@pytest.mark.parametrize(("is_withdrawn", "most"), [(False, 1), (True, asks.MOST_OPEN)])
async def test_whether_tasks_of_others_are_over_is_looked_at_for_so_many_questions_at_once(
    is_withdrawn: bool, most: int
) -> None:
    requests, work = connection(), Work()
    requests.tasks_in_doubt = lambda: ["task"]  # type: ignore[method-assign]
    Questions(requests, requests.server, True, lambda event: None, look_at=work.look_at)
    for _ in range(MANY):
        requests.received(question("sampling/createMessage", 1), None)
        await asyncio.sleep(0)
        if is_withdrawn:
            requests.received(withdrawal(1), None)
    await settle()
    assert work.open == most
    await requests.close()


async def test_a_task_of_another_is_looked_at_once_at_a_time() -> None:
    requests, calls = connection(), list[str]()
    answered = asyncio.Event()

    async def called(call: Call) -> None:
        calls.append(call.target)
        await answered.wait()

    requests.call = called  # type: ignore[method-assign, assignment]
    requests.running.to_look_at = lambda id: Client(Principal("bob"))  # type: ignore[method-assign]
    tasks = Tasks(requests, TaskOwners(), lambda event: None)
    looks = [asyncio.ensure_future(tasks.look_at(["one", "two"])) for _ in range(MANY)]
    await settle()
    assert calls == ["one", "two"]
    answered.set()
    await asyncio.gather(*looks)
    await tasks.look_at(["one"])
    assert calls == ["one", "two", "one"]
    await requests.close()


async def test_looks_are_counted_before_they_begin() -> None:
    requests, work = connection(), Work()
    requests.tasks_in_doubt = lambda: ["task"]  # type: ignore[method-assign]
    Questions(requests, requests.server, True, lambda event: None, look_at=work.look_at)
    for _ in range(MANY):
        requests.received(question("sampling/createMessage", 1), None)
        requests.received(withdrawal(1), None)
    await settle()
    assert work.begun == asks.MOST_OPEN
    await requests.close()
