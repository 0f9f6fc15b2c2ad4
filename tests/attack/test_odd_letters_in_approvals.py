"""A client has the event loop write out, read or look through what takes long, for a person who is to approve."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock

from toolgate.auth import safe_text
from toolgate.config import access
from toolgate.core import jsonrpc, mcp
from toolgate.core.concurrency import FairThreads
from toolgate.core.model import Answer, Call, Client, Principal
from toolgate.core.redaction import Redactor
from toolgate.eras import listening
from toolgate.frontends.web import decisions
from toolgate.policy import approval_requests
from toolgate.policy.approval import Approval
from toolgate.policy.approval_requests import LONGEST_ANSWER, Unsendable
from toolgate.policy.approvals import Approvals, Place, StoredRequest
from toolgate.state.memory import MemoryStore

ANN = Principal("ann")
MARKS = "\u0301" * 30_000


def watch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where long texts are written out: in a thread, or in the event loop."""
    found, threads = list[str](), list[str]()
    plain, loop = safe_text.plain, asyncio.get_running_loop()
    in_executor = loop.run_in_executor

    def noted(text: str) -> str:
        if len(text) > 10_000:
            found.append("thread" if threads else "loop")
        return plain(text)

    def in_thread(executor: Any, work: Any, *given: Any) -> Any:
        def worked() -> Any:
            threads.append("")
            try:
                return work(*given)
            finally:
                threads.pop()

        return in_executor(executor, worked)  # the tests' own loop has it done at once

    monkeypatch.setattr(safe_text, "plain", noted)
    monkeypatch.setattr(loop, "run_in_executor", in_thread)
    return found


def rule(book: Approvals, clock: FakeClock) -> Approval:
    settings = access.Approvals(by=("operator",), wait=0.0)
    return Approval(lambda _: "ask", book, settings, Redactor(), clock, {})


def case(text: str) -> approval_requests.ApprovalRequest:
    arguments = Raw(jsonrpc.encode({"x": text}))
    call = Call("tools/call", "act", Client(ANN), arguments, "there")
    return approval_requests.of(call, Place("ann", "there", "", "tools", "act"), Redactor())


async def test_what_an_operator_is_to_see_is_written_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    written_in = watch(monkeypatch)
    clock = FakeClock()
    book = Approvals(MemoryStore(clock), clock)
    request = await rule(book, clock)._new_request(case(MARKS))  # pyright: ignore[reportPrivateUsage]
    assert set(written_in) == {"thread"}
    written_in.clear()
    shown = await decisions.one(_deciding(book), request.id, FairThreads(1), ANN)
    assert shown.arguments.count("\\u0301") == len(MARKS)
    assert set(written_in) == {"thread"}


def _deciding(book: Approvals) -> Any:
    def request(id: str) -> StoredRequest:
        return next(each for each in book.requests() if each.id == id)

    return SimpleNamespace(request=request)


async def test_what_a_person_writes_instead_is_written_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    written_in = watch(monkeypatch)
    clock = FakeClock()
    approval = rule(Approvals(MemoryStore(clock), clock), clock)
    given = jsonrpc.encode({"x": MARKS}).decode()
    edited = await approval._written(case("a"), given)  # pyright: ignore[reportPrivateUsage]
    assert edited and jsonrpc.value(edited) == {"x": MARKS}
    assert set(written_in) == {"thread"}


def test_an_answer_that_is_longer_than_any_form_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: Answer) -> None:
        pytest.fail("it is read")

    monkeypatch.setattr(approval_requests, "answer_value", read)
    with pytest.raises(Unsendable):
        approval_requests.read_answer(Answer(Raw(b'{"action":"accept","content":"' + b"x" * LONGEST_ANSWER + b'"}')))


def test_of_the_names_to_watch_no_more_are_read_than_are_watched() -> None:
    for key in mcp.WATCH_FILTERS:
        names = [f"mem://{number}" for number in range(3)]
        params = {"notifications": Raw(jsonrpc.encode({key: [*names, *[1] * 100]}))}
        assert listening.read_filter(params, 3).named[key] == names
