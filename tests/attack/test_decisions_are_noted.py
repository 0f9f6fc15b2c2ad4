"""Whoever decides and leaves in that moment: what is stored is whole, and is noted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from bridge.test_approval_by_permissions import ASKS, KEYS, call, served
from inmemory import MODERN, Visitor
from virtualtime import FakeClock, settle

from toolgate.catalog import pin_review
from toolgate.catalog.pins import Pending, StoredPins
from toolgate.core.model import Principal
from toolgate.core.redaction import Redactor
from toolgate.policy.approvals import Approvals, Place, Shown, StoredRequest
from toolgate.policy.checker import Checker
from toolgate.policy.deciding import Deciding
from toolgate.state.audit import Trail
from toolgate.state.base import NEWS
from toolgate.state.memory import MemoryStore

PLACE = Place("client:ann", "bank", "p", "tools", "pay")


class Slow(MemoryStore):
    """As a file is: what was asked for is written, and that is told a moment later."""

    def _write(self, work: Callable[[], Any]) -> Awaitable[Any]:
        written, told = super()._write(work), asyncio.get_running_loop().create_future()
        assert isinstance(written, asyncio.Future)
        asyncio.get_running_loop().call_later(0.01, lambda: None if told.done() else told.set_result(written.result()))
        return told


class Noting(Trail):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(None, clock, None, Redactor())
        self.said: list[str] = []

    def note(self, event: str, who: Principal | str = "", **about: Any) -> None:
        self.said.append(event)


async def left(work: Coroutine[Any, Any, Any]) -> None:
    """Whoever has asked for it leaves when it has begun."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await asyncio.sleep(1)


async def asked(approvals: Approvals) -> StoredRequest:
    async def shown() -> Shown:
        return {"shown": "{}", "session": "s"}

    return await approvals.ask(PLACE, "digest", 300, shown)


@pytest.mark.parametrize("lasts", ["once", "always"])
async def test_an_operator_who_leaves_has_decided_and_it_is_noted(lasts: Any) -> None:
    clock = FakeClock()
    approvals, trail = Approvals(Slow(clock), clock), Noting(clock)
    deciding = Deciding(approvals, trail, Checker())
    await left(deciding.allow(await asked(approvals), lasts, 300, "", "cli:mallory"))
    assert [each.state for each in approvals.requests()] == ["allowed"]
    assert len(approvals.grants()) == (lasts == "always") and trail.said == ["approvals.allow"]


async def test_a_denial_and_the_end_of_a_grant_are_noted_too() -> None:
    clock = FakeClock()
    approvals, trail = Approvals(Slow(clock), clock), Noting(clock)
    deciding = Deciding(approvals, trail, Checker())
    await left(deciding.deny(await asked(approvals), 300, "cli:mallory"))
    await approvals.grant(PLACE, "always", "operator")
    await left(deciding.revoke(approvals.grants()[0], "cli:mallory"))
    assert not approvals.grants() and trail.said == ["approvals.deny", "approvals.revoke"]


async def test_what_is_approved_of_tools_is_noted_and_told() -> None:
    clock = FakeClock()
    store, trail = Slow(clock), Noting(clock)
    records = StoredPins(store, "")
    await records.set_pending("there", {"read": Pending("d", "new", "", (), True, "{}")})
    before = store.items(NEWS)
    await left(pin_review.approve(records, trail, "there", (), "", 0.0, "cli:mallory"))
    assert records.pins("there") and not records.pending("there")
    assert trail.said == ["pins.approve"] and store.items(NEWS) != before


async def test_a_user_who_leaves_has_granted_and_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = FakeClock(), list[str]()
    store = Slow(clock)
    async with served(ASKS, store=store) as (app, there):

        def note(event: str, *_who: object, **_about: object) -> None:
            said.append(event)

        monkeypatch.setattr(app.audit, "note", note)
        state = (await call(app, "there__delete_all"))["result"]["requestState"]
        always = {"approval": {"action": "accept", "content": {"decision": "always"}}}
        visitor = Visitor(app, authorization=f"Bearer {KEYS['ci']}")
        able = {"elicitation": {"form": dict[str, str]()}}
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": able,
        }
        again: dict[str, Any] = {"requestState": state, "inputResponses": always}
        leaves = asyncio.ensure_future(visitor.ask_modern("tools/call", name="there__delete_all", _meta=meta, **again))
        for _ in range(1000):
            if Approvals(store, clock).grants():
                break  # it is written, and who has asked for that is not told yet
            await asyncio.sleep(0.001)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        await settle()
        await asyncio.sleep(1)
        assert [each.lasts for each in Approvals(store, clock).grants()] == ["always"]
        assert "approvals.grant" in said
        assert "tools/call" not in [each["method"] for each in there.requests]
