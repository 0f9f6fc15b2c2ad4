"""Whoever calls, through whatever door, by whatever name: a call that asks first goes on as a person has decided."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from official import LEGACY
from peers import MODERN, Client, LegacyServer, ModernServer, Reply, Rig, Scene, eventually, gateway
from virtualtime import FakeClock

from toolgate.config import access
from toolgate.core.model import Call
from toolgate.core.redaction import Redactor
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import Approvals, StoredRequest, Unfit
from toolgate.policy.validate import Validate
from toolgate.state.memory import MemoryStore

TTL, WAIT = 60.0, 5.0  # seconds
HAS_FORMS = "2025-06-18"  # the first revision that does

# How a tool of `there` is called, by its arguments.
WAYS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "direct": lambda given: {"name": "there__write", "arguments": given},
    "mcp_call": lambda given: {
        "name": "mcp_call",
        "arguments": {"server": "there", "tool": "write", "args": given},
    },
    "execute_child_tool": lambda given: {
        "name": "execute_child_tool",
        "arguments": {"server_id": "there", "tool_name": "write", "arguments": given},
    },
    "call_tool": lambda given: {
        "name": "call_tool",
        "arguments": {"server_name": "there", "tool_name": "write", "arguments": given},
    },
}
A, B = {"path": "a"}, {"path": "b"}


async def write(scene: Scene) -> str:
    return f"written {scene.arguments['path']}"


class Stage:
    """A client, a person who decides when asked, and a server; the store outlives gateways."""

    def __init__(self, revision: str, is_stdio: bool, way: str, by: access.Approvals) -> None:
        self.revision = revision
        self.is_stdio = is_stdio
        self.way = way
        self.settings = by
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.book = Approvals(self.store, self.clock)
        self.there = (ModernServer if way == "direct" else LegacyServer)({"write": write})
        self.asked = 0

    @property
    def is_by_client(self) -> bool:
        return self.settings.by == ("client",)

    @property
    def sent(self) -> list[Any]:
        """The arguments that the server was called with."""
        return [call["params"]["arguments"] for call in self.there.calls]

    @property
    def undecided(self) -> list[StoredRequest]:
        return [each for each in self.book.requests() if each.state == "undecided"]

    @asynccontextmanager
    async def gateway(self) -> AsyncGenerator[Rig]:
        def verdict(call: Call) -> access.Verdict:
            return "ask" if call.server == "there" else "allow"

        book = Approvals(self.store, self.clock)
        rule = Approval(verdict, book, self.settings, Redactor(), self.clock, {}, [Validate().check])
        async with gateway(policies=[rule], store=self.store, there=self.there) as rig:
            yield rig

    async def client(self, rig: Rig) -> Client:
        return await rig.client(self.revision, stdio=self.is_stdio)

    async def call(self, client: Client, given: Any, decision: str, edited: Any = None) -> Reply:
        """One call to its end, with what the person says if there is a question."""
        params = WAYS[self.way](given)
        if self.is_by_client:
            return await client.converse(
                "tools/call", {"elicitation/create": self._answers(decision, edited)}, **params
            )
        pending = client.start("tools/call", **params)
        await eventually(lambda: pending.is_answered or self.undecided)
        for request in self.undecided:
            self.asked += 1
            await self.decide(request, decision, edited)
        return await pending.reply()

    def _answers(self, decision: str, edited: Any) -> Callable[[Any], Any]:
        def answer(asked: Any) -> Any:
            self.asked += 1
            field = asked["requestedSchema"]["properties"]["decision"]
            self.offered = field.get("enum") or [each["const"] for each in field["oneOf"]]
            content = {"decision": decision} | ({"arguments": msgspec.json.encode(edited).decode()} if edited else {})
            return {"action": "accept", "content": content}

        return answer

    async def decide(self, request: StoredRequest, decision: Any, edited: Any = None) -> None:
        if decision == "deny":
            await self.book.deny(request, TTL)
        else:
            await self.book.allow(request, decision, TTL, msgspec.json.encode(edited).decode() if edited else "")

    def is_refused(self, reply: Reply, how: str = "was denied by") -> bool:
        """In whatever shape."""
        return how in repr(reply.message) and "written" not in repr(reply.message)


async def once(stage: Stage) -> None:
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        assert "written a" in repr((await stage.call(client, A, "once")).message)
        assert stage.is_refused(await stage.call(client, A, "deny"))
    assert (stage.sent, stage.asked) == ([A], 2)


async def for_the_session(stage: Stage) -> None:
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        if stage.revision == MODERN:  # it has no session, so that there is nothing to be offered
            if stage.is_by_client:
                assert stage.is_refused(await stage.call(client, A, "session"))
                assert "session" not in stage.offered
            else:
                with pytest.raises(Unfit):
                    await stage.call(client, A, "session")
                await rig.clock.advance(WAIT)
            assert stage.sent == []
            return
        for given in (A, B, A):
            await stage.call(client, given, "session")
        assert (stage.sent, stage.asked) == ([A, B, A], 1)
        other = await stage.client(rig)
        assert stage.is_refused(await stage.call(other, A, "deny"))
    assert (stage.sent, stage.asked) == ([A, B, A], 2)


async def for_an_hour(stage: Stage) -> None:
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        for given in (A, B):
            await stage.call(client, given, "hour")
        assert (stage.sent, stage.asked) == ([A, B], 1)
        await rig.clock.sleep_through(3600)
        assert stage.is_refused(await stage.call(await stage.client(rig), A, "deny"))
    assert (stage.sent, stage.asked) == ([A, B], 2)


async def always(stage: Stage) -> None:
    async with stage.gateway() as rig:
        await stage.call(await stage.client(rig), A, "always")
        await rig.clock.sleep_through(10 * 24 * 3600)
        await stage.call(await stage.client(rig), B, "deny")
        assert (stage.sent, stage.asked) == ([A, B], 1)
        (grant,) = stage.book.grants()
        await stage.book.revoke(grant)
        assert stage.is_refused(await stage.call(await stage.client(rig), A, "deny"))
    assert (stage.sent, stage.asked) == ([A, B], 2)


async def denied(stage: Stage) -> None:
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        assert stage.is_refused(await stage.call(client, A, "deny"))
        assert stage.is_refused(await stage.call(client, A, "deny"))
    assert stage.sent == []
    assert stage.asked == (2 if stage.is_by_client else 1)  # what an operator has denied stays so for a while


async def edited(stage: Stage) -> None:
    async with stage.gateway() as rig:
        reply = await stage.call(await stage.client(rig), A, "once", edited=B)
        assert "written b" in repr(reply.message)
    assert stage.sent == [B]


async def expired(stage: Stage) -> None:
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        await (_answered_too_late(stage, client) if stage.is_by_client else _decided_too_late(stage, client))
    assert stage.sent == []


async def _answered_too_late(stage: Stage, client: Any) -> None:
    """The answer does not count, and the person is asked again."""
    pending = client.start("tools/call", **WAYS[stage.way](A))
    yes, no = ({"action": "accept", "content": {"decision": decision}} for decision in ("once", "deny"))
    if stage.revision == MODERN:
        first = await pending.reply()
        await stage.clock.advance(TTL)
        again = client.retry_later(pending, first, {first.key: yes})
        second = await again.reply()
        assert stage.is_refused(await client.retry(again, second, {second.key: no}))
    else:
        first = await client.question(1)
        await stage.clock.advance(TTL)
        client.answer(first, yes)
        client.answer(await client.question(2), no)
        assert stage.is_refused(await pending.reply())


async def _decided_too_late(stage: Stage, client: Any) -> None:
    ids = set[str]()
    for _ in range(2):
        pending = client.start("tools/call", **WAYS[stage.way](A))
        await eventually(lambda: stage.undecided)
        await stage.clock.advance(WAIT)
        (request,) = stage.undecided
        ids.add(request.id)
        reply = await pending.reply()
        assert stage.is_refused(reply, "nobody has decided yet")
        assert stage.is_refused(reply, f"toolgate approvals allow {request.id}")
        await stage.clock.advance(TTL)
        assert stage.book.requests() == []
        with pytest.raises(Unfit):
            await stage.decide(request, "once")
    assert len(ids) == 2


async def restarted(stage: Stage) -> None:
    if not stage.is_by_client:
        await _restarted_while_an_operator_decides(stage)
    elif stage.revision == MODERN:
        await _restarted_while_a_form_is_open(stage)
    else:
        await _restarted_after_a_grant(stage)


async def _restarted_while_an_operator_decides(stage: Stage) -> None:
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        pending = client.start("tools/call", **WAYS[stage.way](A))
        await eventually(lambda: stage.undecided)
        await rig.clock.advance(WAIT)
        assert stage.is_refused(await pending.reply(), "nobody has decided yet")
    await stage.decide(stage.undecided[0], "once", B)
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        assert "written b" in repr((await stage.call(client, A, "deny")).message)
        assert stage.asked == 0
        assert stage.is_refused(await stage.call(client, A, "deny"))
    assert (stage.sent, stage.asked) == ([B], 1)


async def _restarted_while_a_form_is_open(stage: Stage) -> None:
    params = WAYS[stage.way](A)
    async with stage.gateway() as rig:
        client: Any = await stage.client(rig)
        asked = client.start("tools/call", **params)
        reply = await asked.reply()
    answers = {reply.key: {"action": "accept", "content": {"decision": "once", "arguments": '{"path":"b"}'}}}
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        assert "written b" in repr((await client.retry(asked, reply, answers)).message)
        assert (await client.retry(asked, reply, answers)).error["code"] == -32602
    async with stage.gateway() as rig:
        client = await stage.client(rig)
        assert (await client.retry(asked, reply, answers)).error["code"] == -32602
    assert stage.sent == [B]


async def _restarted_after_a_grant(stage: Stage) -> None:
    """A question to a legacy client ends with its connection."""
    async with stage.gateway() as rig:
        await stage.call(await stage.client(rig), A, "hour")
    async with stage.gateway() as rig:
        await stage.call(await stage.client(rig), B, "deny")
    assert (stage.sent, stage.asked) == ([A, B], 1)


PLAYS = (once, for_the_session, for_an_hour, always, denied, edited, expired, restarted)


def _cells() -> list[Any]:
    return [
        pytest.param(revision, is_stdio, by, id=f"{revision}-{'stdio' if is_stdio else 'http'}-by-{by}")
        for revision in (*LEGACY, MODERN)
        for is_stdio in (False, True)
        for by in ("client", "operator")
        if by == "operator" or revision >= HAS_FORMS
    ]


@pytest.mark.promise("b.approval.matrix")
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("revision", "is_stdio", "by"), _cells())
async def test_the_matrix_of_approval(
    revision: str, is_stdio: bool, by: Any, way: str, play: Callable[[Stage], Awaitable[None]]
) -> None:
    await play(Stage(revision, is_stdio, way, access.Approvals(by=(by,), wait=WAIT, ttl=TTL)))
