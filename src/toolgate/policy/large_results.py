"""Large results as their clients get them, made in a thread: others would wait for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.concurrency import BySize
from toolgate.core.model import Asker, Call, Done, NeedInput, Outcome, Resume
from toolgate.core.steps import InSteps, in_slices
from toolgate.policy.overflow import Later
from toolgate.policy.scrub import Scrubber, is_large
from toolgate.policy.truncate import Truncate


async def aside(
    call: Call,
    outcome: Outcome,
    scrubber: Scrubber,
    truncate: Truncate | None,
    leave: Callable[[Outcome], Outcome],
    in_turns: BySize,
) -> Outcome:
    """The outcome, scrubbed, cut and in its client's names (`leave`) where it is large, so that nothing is left to be
    done; where it comes later, it will be that. Principals take turns, and so do servers."""
    if isinstance(outcome, NeedInput):
        later = partial(aside, call, scrubber=scrubber, truncate=truncate, leave=leave, in_turns=in_turns)
        return NeedInput(outcome.asks, _Later(outcome.resume, later))
    if not isinstance(outcome, Done) or not (is_large(outcome, scrubber.secrets.forms) or scrubber.finds(outcome)):
        return outcome
    keeping = truncate.keeping(call) if truncate else None
    steps = in_slices(_in_steps(call, outcome, scrubber, truncate, keeping, leave), SLICE)
    outcome = await in_turns.of(memoryview(outcome.body).nbytes).in_thread(turn_of(call), steps)
    if keeping:
        keeping.done()
    return outcome


def turn_of(call: Call) -> str:
    """Whose turn it is when a result is looked at: its client asked for it, and its server made it large."""
    return f"{call.client.principal.counted_as}\n{call.server}"


def _in_steps(
    call: Call,
    outcome: Done,
    scrubber: Scrubber,
    truncate: Truncate | None,
    keeping: Later | None,
    leave: Callable[[Outcome], Outcome],
) -> InSteps[Outcome]:
    if scrubber.has_work or scrubber.unsigns:
        outcome = yield from scrubber.in_steps(outcome, call.kind == "tasks")
    if truncate and keeping:
        yield
        outcome = yield from truncate.cut(call, outcome, keeping)
    yield
    return _left(outcome, leave)


def _left(outcome: Done, leave: Callable[[Outcome], Outcome]) -> Outcome:
    left = leave(outcome)
    if not isinstance(left, Done):
        return left
    return msgspec.structs.replace(left, is_scrubbed=True, is_cut=True, frame=left.frame or _frame(left.body))


def _frame(body: Raw | bytes) -> Raw:
    """What eras look at, where its reader has not noted that, as for an answer of a component; nothing for what cannot
    be read."""
    try:
        members = jsonrpc.members(body)
    except jsonrpc.UNREADABLE:
        return jsonrpc.NOTHING
    looked_at = {name: members[name] for name in mcp.OF_RESULTS if name in members}
    short = {name: raw if len(memoryview(raw)) <= _SHORT else None for name, raw in looked_at.items()}
    return Raw(jsonrpc.encode(short))


_SHORT = 1024  # bytes
SLICE = 0.05  # seconds of one result, where others wait


class _Later:
    """A resume of which what comes next goes through `then`."""

    def __init__(self, inner: Resume, then: Callable[[Outcome], Awaitable[Outcome]]) -> None:
        self._inner = inner
        self._then = then
        self.asker: Asker = inner.asker
        self.open_asks, self.answer, self.report = inner.open_asks, inner.answer, inner.report
        self.settled, self.cancel = inner.settled, inner.cancel

    @property
    def is_live(self) -> bool:
        return self._inner.is_live

    @property
    def state(self) -> str | None:
        return self._inner.state

    @property
    def origin(self) -> Resume:
        return self._inner.origin

    async def next(self) -> Outcome:
        return await self._then(await self._inner.next())
