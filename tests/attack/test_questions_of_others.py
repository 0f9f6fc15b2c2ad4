"""What one client has a shared server ask, or where it has its users sent, leaves room for what others were asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attack.test_what_is_remembered_of_others import client, made
from peers import LegacyServer, RpcError, Scene, gateway
from task_peers import LegacyTaskServer
from virtualtime import FakeClock, settle

from toolgate.config import Server
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.model import Call, Outcome, Principal
from toolgate.upstreams.mcp import sent_pages
from toolgate.upstreams.mcp.questions import MOST_KEPT, Questions
from toolgate.upstreams.mcp.requests import Requests
from toolgate.upstreams.mcp.sent_pages import MOST_PAGES, SentPages

MIB = 1024 * 1024
FORM: dict[str, Any] = {
    "message": "?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
ACCEPTED = {"action": "accept", "content": {"name": "Bob"}}


async def early(scene: Scene) -> str:
    """Asks before anybody waits for its result."""
    scene.asks_early = True  # type: ignore[attr-defined]
    answer = await scene.ask(("elicitation/create", FORM))
    return str(answer["content"]["name"])


def asking() -> LegacyTaskServer:
    return LegacyTaskServer({"early": early}, support={"early": "optional"})


async def test_the_question_of_a_task_waits_however_many_tasks_of_another_ask() -> None:
    server = asking()
    async with gateway(there=server) as rig:
        capable = {"elicitation/create": ACCEPTED}
        bob = await rig.legacy(principal="bob", answers=capable)
        mallory = await rig.legacy(principal="mallory", answers=capable)
        id = await made(bob, "there__early")
        hers = [await made(mallory, "there__early") for _ in range(3 * asks.MOST_OPEN)]
        await settle()
        assert (await bob.request("tasks/result", taskId=id)).text == "Bob"
        told = [await mallory.request("tasks/result", taskId=id) for id in hers]
        assert ["error" in reply.message for reply in told] == [True] * 2 * asks.MOST_OPEN + [False] * asks.MOST_OPEN


# Questions in all their numbers and sizes.


def opened(whose_task: Callable[[str], str]) -> tuple[Requests, Questions, list[str | int | float]]:
    """The last are the ids of those that were refused."""

    async def again(call: Call) -> Outcome:
        raise AssertionError("no call is made anew")

    server = Server(id="there", name="there", type="stdio")
    requests = Requests(server, FakeClock(), again, lambda why, is_dead: None, lambda: None)
    refused: list[str | int | float] = []
    requests.answer = lambda message: refused.append(jsonrpc.id_key(jsonrpc.decode(message).id))  # type: ignore[method-assign]
    return requests, Questions(requests, server, False, lambda event: None, whose_task), refused


def asked(id: str, task: str, size: int = 10) -> bytes:
    params = {"systemPrompt": "x" * size, "messages": [], "_meta": {mcp.RELATED_TASK_KEY: {"taskId": task}}}
    return jsonrpc.encode({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": params})


def maker(task: str) -> str:
    """Tasks are called PRINCIPAL/NUMBER."""
    return task.partition("/")[0]


async def hear(requests: Requests, message: bytes) -> None:
    """A large one is read elsewhere."""
    if reading := requests.received(message, None):
        await reading


@pytest.mark.parametrize("size", [10, MIB // 2, 7 * MIB])
@pytest.mark.parametrize("his", [1, 3])
async def test_of_questions_that_wait_who_has_most_loses_the_first(size: int, his: int) -> None:
    requests, _, refused = opened(maker)
    for number in range(his):
        await hear(requests, asked(f"bob/{number}", "bob/1"))
    for number in range(2 * asks.MOST_OPEN):
        await hear(requests, asked(f"mallory/{number}", f"mallory/{number}", size))
    left = min(asks.MOST_OPEN, asks.MOST_BYTES // (size + 200))
    assert refused == [f"mallory/{number}" for number in range(2 * asks.MOST_OPEN - left)]


@pytest.mark.parametrize("size", [10, 3 * MIB])
async def test_all_questions_that_wait_are_bounded_whoever_they_are_of(size: int) -> None:
    requests, questions, refused = opened(maker)
    requests.received(asked("bob", "bob/1"), None)
    for number in range(2000 if size == 10 else 60):
        await hear(requests, asked(f"{number}", f"{number % 10}/{number}", size))
        kept = [each.ask for theirs in questions._kept.values() for each in theirs]
        assert len(kept) <= MOST_KEPT * asks.MOST_OPEN and asks.size(kept) <= MOST_KEPT * asks.MOST_BYTES
    assert "bob" not in refused


async def test_a_question_that_is_withdrawn_waits_no_more() -> None:
    requests, questions, refused = opened(maker)
    requests.received(asked("bob", "bob/1"), None)
    requests.received(jsonrpc.notification(mcp.CANCELLED, jsonrpc.encode({"requestId": "bob"})), None)
    assert not questions._kept and not refused


# Pages.


async def test_whoever_was_sent_to_a_page_hears_that_it_is_done_with_however_many_others_were_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sent_pages, "MOST_PAGES", 4)

    async def sign_in(scene: Scene) -> str:
        page = {
            "mode": "url",
            "elicitationId": scene.arguments["id"],
            "url": "https://example.com/",
            "message": "Sign in",
        }
        raise RpcError(mcp.URL_ELICITATION_REQUIRED, "Sign in first", {"elicitations": [page]})

    there = LegacyServer({"sign-in": sign_in})
    async with gateway(there=there) as rig:
        bob, mallory = await rig.legacy(principal="bob"), await rig.legacy(principal="mallory")
        heard = await bob.listen()
        await bob.call("there__sign-in", arguments={"id": "bobs"})
        for number in range(9):
            await mallory.call("there__sign-in", arguments={"id": f"hers/{number}"})
        done = {"elicitationId": "bobs"}
        there.open_connections[-1].say({"jsonrpc": "2.0", "method": mcp.ELICITED, "params": done})
        await settle()
        assert [message["method"] for message in heard.messages] == [mcp.ELICITED]


@pytest.mark.parametrize(
    ("bob", "mallory"),
    [(Principal("bob"), Principal("mallory")), (Principal(address="192.0.2.1"), Principal(address="192.0.2.2"))],
    ids=["keys", "addresses"],
)
def test_of_pages_whoever_was_sent_to_most_loses_the_first(bob: Principal, mallory: Principal) -> None:
    pages = SentPages()
    pages.add("shared", client(mallory))
    pages.add("shared", client(bob))
    for number in range(2 * MOST_PAGES):
        pages.add(f"hers/{number}", client(mallory))
    assert len(pages) == MOST_PAGES
    assert pages.take("hers/0") is None and pages.take("shared") == (bob.id, "s")
    assert pages.take("shared") is None
