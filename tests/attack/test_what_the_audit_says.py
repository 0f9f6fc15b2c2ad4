"""The audit says of each call what was decided, and whether it was sent, however the call ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from peers import (
    LATEST,
    MODERN,
    LegacyClient,
    LegacyServer,
    ModernServer,
    Pending,
    Rig,
    RpcError,
    Scene,
    eventually,
    form,
    gateway,
)
from virtualtime import FakeClock, settle

from toolgate.config import Audit, Config, Limits, PoolLimits
from toolgate.config.access import Approvals as Settings
from toolgate.config.access import Rates
from toolgate.config.shapes import Rate
from toolgate.core.redaction import Redactor
from toolgate.policy import chain
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import Approvals, Who
from toolgate.state.audit import Trail
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.breaker import FAILURES

Said = tuple[str, str, str, bool]  # decision, outcome, code, whether it was sent
BOTH = [LegacyServer, ModernServer]

CANCELLED_UNDECIDED: Said = ("undecided", "cancelled", "", False)
CANCELLED_BEFORE: Said = ("allow", "cancelled", "", False)
CANCELLED_AT_WORK: Said = ("allow", "cancelled", "", True)


async def plain(scene: Scene) -> str:
    return "done"


async def forever(scene: Scene) -> str:
    await asyncio.Event().wait()
    return "never"


async def asks(scene: Scene) -> str:
    await scene.ask(form())
    return "asked"


async def asks_and_works(scene: Scene) -> str:
    await scene.ask(form())
    return await forever(scene)


async def crashes(scene: Scene) -> str:
    scene.crash()
    return "never"


async def fails(scene: Scene) -> Any:
    raise RpcError(-32000, "no")


TOOLS = {"plain": plain, "forever": forever, "asks": asks, "works": asks_and_works, "crashes": crashes, "fails": fails}


class World:
    """A call and all that it meets. `book` has what waits for an operator."""

    def __init__(self, rig: Rig, client: Any, book: Approvals, clock: FakeClock) -> None:
        self.rig = rig
        self._clock = clock
        self.others: list[Pending] = []
        self.client = client
        self.book = book

    def start(self, tool: str = "plain", server: str = "there", client: Any = None) -> Pending:
        return (client or self.client).start("tools/call", name=f"{server}__{tool}", arguments={})

    async def later(self, seconds: float) -> None:
        await self._clock.advance(seconds)
        await self.rig.clock.advance(seconds)

    async def goes_away(self, pending: Pending) -> None:
        if isinstance(self.client, LegacyClient):
            self.client.cancel(pending)
        else:
            await pending.gone()
        await settle()

    async def waits_for_an_operator(self) -> Pending:
        pending = self.start()
        await eventually(self.book.requests)
        return pending

    async def decided(self, how: str) -> None:
        (request,) = self.book.requests()
        await (self.book.allow(request, "once", 600) if how == "allow" else self.book.deny(request, 600))
        await self.later(1)

    async def ends(self) -> None:
        """The gateway gives up what is left."""
        self.rig.app.gateway.phase = "ending"
        self.rig.app.http.end()
        for session in self.rig.app.sessions.all():
            self.rig.app.sessions.end(session)
        await settle()


Act = Callable[[World], Awaitable[object]]


async def waits_and_leaves(world: World) -> None:
    await world.goes_away(await world.waits_for_an_operator())


async def waits_and_the_gateway_ends(world: World) -> None:
    await world.waits_for_an_operator()
    await world.ends()


async def waits_in_vain(world: World) -> None:
    pending = await world.waits_for_an_operator()
    await world.later(60)
    await pending.reply()


async def is_denied(world: World) -> None:
    pending = await world.waits_for_an_operator()
    await world.decided("deny")
    await pending.reply()


async def is_allowed(world: World) -> None:
    pending = await world.waits_for_an_operator()
    await world.decided("allow")
    await pending.reply()


async def waits_while_its_server_is_closed(world: World) -> None:
    pending = await world.waits_for_an_operator()
    await world.rig.app.gateway.snapshot.upstreams["there"].close()
    await world.decided("allow")
    await pending.reply()


async def is_too_often(world: World) -> None:
    await world.start().reply()
    await world.start().reply()


async def is_not_found(world: World) -> None:
    await world.start("guessed").reply()


async def is_behind_another(world: World) -> Pending:
    """A call of another client is at work, its server takes no other, and a third one is before this one."""
    for whose in ("bob", "cid"):
        world.others.append(world.start("forever", client=world.rig.modern(whose)))
        await world.rig.servers["there"].got("tools/call")
        await world.later(1)
    pending = world.start()
    await settle()
    return pending


async def over_with_others(world: World) -> None:
    for each in world.others:
        await each.gone()
    await settle()


async def queues_and_leaves(world: World) -> None:
    await world.goes_away(await is_behind_another(world))
    await over_with_others(world)


async def queues_in_vain(world: World) -> None:
    pending = await is_behind_another(world)
    await world.later(3.5)
    await world.later(3)
    await pending.reply()
    await over_with_others(world)


async def queues_while_the_gateway_ends(world: World) -> None:
    await is_behind_another(world)
    await world.ends()


async def is_without_a_slot(world: World) -> Pending:
    await world.client.request("tools/list")  # so that it is known what the call means
    other = world.start("forever", "other", world.rig.modern("bob"))
    await world.rig.servers["other"].got("tools/call")
    pending = world.start()
    await settle()
    world.others = [other]
    return pending


async def waits_for_a_slot_and_leaves(world: World) -> None:
    await world.goes_away(await is_without_a_slot(world))
    await over_with_others(world)


async def waits_for_a_slot_in_vain(world: World) -> None:
    pending = await is_without_a_slot(world)
    await world.later(6)
    await pending.reply()
    await over_with_others(world)


async def meets_an_open_breaker(world: World) -> None:
    for _ in range(FAILURES):
        await world.start("crashes").reply()
    await world.start().reply()


async def is_at_work_and_leaves(world: World) -> None:
    pending = world.start("forever")
    await world.rig.servers["there"].got("tools/call")
    await world.goes_away(pending)


async def is_at_work_and_the_gateway_ends(world: World) -> None:
    world.start("forever")
    await world.rig.servers["there"].got("tools/call")
    await world.ends()


async def is_at_work_too_long(world: World) -> None:
    pending = world.start("forever")
    await world.rig.servers["there"].got("tools/call")
    await world.later(6)
    await pending.reply()


async def finds_its_server_dying(world: World) -> None:
    await world.start("crashes").reply()


async def is_refused_by_its_server(world: World) -> None:
    await world.start("fails").reply()


async def is_asked_and_leaves(world: World) -> None:
    """A legacy client takes its call back; what a modern one left is dropped after a while."""
    pending = world.start("asks")
    if isinstance(world.client, LegacyClient):
        await world.client.question()
        await world.goes_away(pending)
    else:
        await pending.reply()
        await world.later(400)


async def answers_and_leaves(world: World) -> None:
    pending = world.start("works")
    given = {"action": "accept", "content": {"name": "Ann"}}
    if isinstance(world.client, LegacyClient):
        world.client.answer(await world.client.question(), given)
    else:
        reply = await pending.reply()
        pending = world.client.retry_later(pending, reply, {reply.key: given})
    await settle()
    await world.later(1)
    await world.goes_away(pending)


async def declines_what_its_server_asks(world: World) -> None:
    await world.client.converse(
        "tools/call", {"elicitation/create": lambda _: {"action": "decline"}}, name="there__asks"
    )


async def declines_to_approve(world: World) -> None:
    await world.client.converse(
        "tools/call", {"elicitation/create": lambda _: {"action": "decline"}}, name="there__plain", arguments={}
    )


async def leaves_the_form_open(world: World) -> None:
    pending = world.start()
    if isinstance(world.client, LegacyClient):
        await world.client.question()
        await world.goes_away(pending)
    else:
        await pending.reply()


OPERATOR: dict[str, Any] = {"by": ("operator",)}
FORM: dict[str, Any] = {"by": ("client",)}
ONE_A_MINUTE = Config(limits=Limits(rates=Rates(principal=Rate(1, 60.0))))
ONE_SLOT: dict[str, Any] = {"pool": PoolLimits(max_live=1)}
ENDINGS: list[tuple[Act, dict[str, Any], Said]] = [
    (waits_and_leaves, OPERATOR, CANCELLED_UNDECIDED),
    (waits_and_the_gateway_ends, OPERATOR, CANCELLED_UNDECIDED),
    (waits_in_vain, OPERATOR, ("deny", "error", "APPROVAL_REQUIRED", False)),
    (is_denied, OPERATOR, ("deny", "error", "APPROVAL_DENIED", False)),
    (is_allowed, OPERATOR, ("allow", "done", "", True)),
    (waits_while_its_server_is_closed, OPERATOR, ("allow", "error", "SERVER_FAILED", False)),
    (declines_to_approve, FORM, ("deny", "error", "APPROVAL_DENIED", False)),
    (leaves_the_form_open, FORM, ("ask", "asked", "", False)),
    (is_too_often, {"config": ONE_A_MINUTE}, ("deny", "error", "RATE_LIMITED", False)),
    (is_not_found, {}, ("deny", "error", "TOOL_NOT_FOUND", False)),
    (queues_and_leaves, {"server": {"concurrency": 1}}, CANCELLED_BEFORE),
    (queues_in_vain, {"server": {"concurrency": 1}}, ("allow", "error", "TIMEOUT", False)),
    (queues_while_the_gateway_ends, {"server": {"concurrency": 1}}, CANCELLED_BEFORE),
    (waits_for_a_slot_and_leaves, ONE_SLOT, CANCELLED_BEFORE),
    (waits_for_a_slot_in_vain, ONE_SLOT, ("allow", "error", "SERVER_FAILED", False)),
    (meets_an_open_breaker, {}, ("allow", "error", "CIRCUIT_OPEN", False)),
    (is_at_work_and_leaves, {}, CANCELLED_AT_WORK),
    (is_at_work_and_the_gateway_ends, {}, CANCELLED_AT_WORK),
    (is_at_work_too_long, {}, ("allow", "error", "TIMEOUT", True)),
    (finds_its_server_dying, {}, ("allow", "error", "SERVER_FAILED", True)),
    (is_refused_by_its_server, {}, ("allow", "error", "UPSTREAM_ERROR", True)),
    (answers_and_leaves, {}, CANCELLED_AT_WORK),
    (declines_what_its_server_asks, {}, ("allow", "done", "", True)),
]


def said(line: dict[str, Any]) -> Said:
    return line["decision"], line["outcome"], line.get("code", ""), line.get("sent", True)


async def lines_of(
    tmp_path: Path,
    revision: str,
    kind: Any,
    act: Act,
    *,
    by: tuple[Who, ...] = (),
    server: Any = None,
    config: Config | None = None,
    pool: PoolLimits | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """What the audit says of the calls of ann's first client, and how many calls of its server that has heard."""
    clock = FakeClock()  # of the audit and of who waits for a person
    trail = Trail(tmp_path / "audit.jsonl", clock, MemoryStore(clock), Redactor())
    there = kind(TOOLS, timeout=5.0, start_timeout=5.0, **(server or {}))
    more: Any = {"there": there, "pool": pool} | ({"other": kind(TOOLS, timeout=100.0)} if pool else {})
    on = msgspec.structs.replace(config or Config(), audit=Audit(enabled=True))
    book = Approvals(MemoryStore(clock), clock)
    asking = (Approval(lambda _call: "ask", book, Settings(by=by), Redactor(), clock, {}),) if by else ()
    build = chain.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "build", lambda *given, **more: (*build(*given, **more), *asking))
        async with gateway(config=on, audit=trail, **more) as rig:
            await act(World(rig, await rig.client(revision), book, clock))
    await trail.close()
    assert trail.file
    _first, *lines = [json.loads(line) for line in trail.file.read_bytes().splitlines()]
    return lines, len(there.calls)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
@pytest.mark.parametrize(("act", "given", "told"), ENDINGS, ids=[act.__name__ for act, *_ in ENDINGS])
async def test_a_line_says_what_was_decided_and_whether_it_was_sent(
    tmp_path: Path, revision: str, kind: Any, act: Act, given: dict[str, Any], told: Said
) -> None:
    lines, heard = await lines_of(tmp_path, revision, kind, act, **given)
    mine = [line for line in lines if line["who"] == "ann" and line["target"] != "crashes"] or lines
    assert said(mine[-1]) == told, lines
    of_others = sum(said(line)[3] for line in lines if line["server"] == "there" and line not in mine)
    rounds = [line for line in mine if said(line)[3] and not _goes_on(line, kind)]
    assert heard == len(rounds) + of_others, lines


def _goes_on(line: dict[str, Any], kind: Any) -> bool:
    """Whether it is the rest of a round that was sent before: legacy servers ask in the middle of a call."""
    return line.get("resumed", False) and kind is LegacyServer


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_call_that_is_given_up_while_its_server_asks_says_so_no_later_than_when_it_asks(
    tmp_path: Path, revision: str, kind: Any
) -> None:
    lines, heard = await lines_of(tmp_path, revision, kind, is_asked_and_leaves)
    assert heard == 1
    assert said(lines[0]) == ("allow", "asked", "", True)
    assert [said(line) for line in lines[1:]] == [CANCELLED_AT_WORK] * (revision == LATEST)


async def subscribes(world: World) -> None:
    await world.client.request("resources/subscribe", uri="there+file:///none")


async def test_a_subscription_that_its_server_refuses_is_no_success(tmp_path: Path) -> None:
    ((line,), _) = await lines_of(tmp_path, LATEST, LegacyServer, subscribes)
    assert line["method"] == "resources/subscribe"
    assert (line["outcome"], line["decision"]) == ("error", "allow")
