"""Observes each round of a call: who called what, what became of it, how long it took, and how much it was.

`Served` stands in front of all other policies and sees what clients get, refusals too; `Sent` stands behind them and
sees what servers do. The rules this file keeps: a label is a name that is configured, listed, or in our own tables,
never what a client wrote; and what is estimated costs a call next to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from toolgate.config import Audit, Config
from toolgate.core import mcp, names
from toolgate.core.clock import Clock
from toolgate.core.fault import Reached
from toolgate.core.model import Accepted, Call, Done, NeedInput, Outcome
from toolgate.core.redaction import Redactor
from toolgate.policy.arguments import whole
from toolgate.policy.base import Passed, Policy
from toolgate.policy.endings import Decision, EndedAs, error_type, told
from toolgate.policy.tracing import ClientSpan, ServerSpan
from toolgate.search import tokens
from toolgate.telemetry import names as told_as
from toolgate.telemetry.access_log import LOGGER, Access, AccessRecord
from toolgate.telemetry.recorder import Recorder
from toolgate.telemetry.traffic import Seen, Traffic
from toolgate.telemetry.usage import Called, Line, Usage, add

LOOKED_AT = 2048  # bytes of which tokens are estimated
_access_log = logging.getLogger(LOGGER)

OFTEN, SELDOM = 4, 64  # the first calls that are counted together are looked at, and every so many later on


class _Begun(msgspec.Struct):
    when: float
    reached: Reached
    is_over: bool = False


def in_front(config: Config, recorder: Recorder, redactor: Redactor, clock: Clock) -> tuple[Policy, ...]:
    """What stands in front of all other policies: it sees what is refused, too, whoever refuses it."""
    observers = [counting(recorder.usage)] if config.telemetry.counts else []
    if config.log.access:
        observers.append(logging_access(redactor))
    served = (Served(observers, clock),) if observers else ()
    spans = (ServerSpan(recorder, redactor),) if config.telemetry.is_traced else ()
    return (*spans, Watched(recorder.traffic, redactor, clock, config.audit), *served)


def behind(config: Config, recorder: Recorder, redactor: Redactor, clock: Clock) -> tuple[Policy, ...]:
    """What stands behind all others: what is measured there is the server's time alone."""
    sent = (Sent(recorder.usage, clock),) if config.telemetry.counts else ()
    return (*sent, ClientSpan(recorder, redactor, config)) if config.telemetry.is_traced else sent


class Ended(NamedTuple):
    """How a round has ended: in the words of the audit, and after how many seconds."""

    call: Call
    decision: Decision
    outcome: EndedAs
    error: str  # its type; empty where there is none
    result: Raw | bytes
    seconds: float


Observer = Callable[[Ended], object]


class Served(Policy):
    """Tells `observers` of the end of each round."""

    name = "telemetry"
    sees_misses = True

    def __init__(self, observers: Sequence[Observer], clock: Clock) -> None:
        self._observers = observers
        self._now = clock.now

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Passed:
        return self._begun(call)

    def _begun(self, call: Call) -> Passed:
        if call.reached is None:
            call = msgspec.structs.replace(call, reached=Reached())
        return Passed(call, _Begun(self._now(), call.reached or Reached()))

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: _Begun) -> None:
        decision, outcome, code, _, _ = told(ending, ticket.reached)
        error = error_type(outcome, code)
        result = ending.body if isinstance(ending, Done | Accepted) else b""
        found = Ended(call, decision, outcome, error, result, self._now() - ticket.when)
        for tell in self._observers:
            tell(found)


def counting(usage: Usage) -> Observer:
    def count(ended: Ended) -> None:
        line = usage.line(called(ended.call))
        if ended.outcome == "asked":
            line.asked += 1
            return
        line.calls += 1
        if ended.error:
            counts = line.refusals if ended.decision == "deny" else line.errors
            counts[ended.error] = counts.get(ended.error, 0) + 1
        _measure(line, ended.call.arguments, ended.result)
        add(line.served, ended.error, ended.seconds)

    return count


def logging_access(redactor: Redactor) -> Observer:
    def write(ended: Ended) -> None:
        if not _access_log.isEnabledFor(logging.INFO):
            return
        _access_log.handle(AccessRecord(Access(*_told(ended, redactor))))

    return write


def _told(ended: Ended, redactor: Redactor) -> tuple[Any, ...]:
    """The members of `Access`."""
    call, who = ended.call, ended.call.client.principal
    return (
        *(who.id, who.address, call.method, call.server, redactor.text(call.target)),
        *(ended.decision, ended.outcome, int(ended.seconds * 1e6) / 1000),
        *(memoryview(call.arguments).nbytes, memoryview(ended.result).nbytes, ended.error, call.via),
    )


class Watched(Served):
    """Tells who watches now. While nobody does, calls pass without it."""

    name = "traffic"

    def __init__(self, traffic: Traffic, redactor: Redactor, clock: Clock, settings: Audit) -> None:
        super().__init__((self._tell,), clock)
        self._traffic, self._redactor, self._wall = traffic, redactor, clock.wall
        self._has_arguments = settings.arguments == "full"

    def applies(self, call: Call) -> bool:
        return self._traffic.is_watched

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Passed:
        if not self._traffic.is_watched:
            return call
        passed = self._begun(call)
        return Passed(passed.call, (passed.ticket, self._traffic.begun(call, self._wall())))

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: Any) -> None:
        if ticket:
            begun, number = ticket
            self._traffic.ended(number)
            super().ended(call, ending, begun)

    def _tell(self, ended: Ended) -> None:
        seen = Seen(*_told(ended, self._redactor), time=self._wall(), kind=ended.call.kind)
        self._traffic.tell(seen, lambda: self._arguments(ended.call))

    def _arguments(self, call: Call) -> str:
        found = whole(call.arguments, self._redactor.of(call.server)) if self._has_arguments else None
        return bytes(found or b"").decode(errors="replace")


class Sent(Policy):
    """Measures what a server does with a call."""

    name = "sent"

    def __init__(self, usage: Usage, clock: Clock) -> None:
        self._usage = usage
        self._now = clock.now

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Passed:
        return Passed(call, _Begun(self._now(), call.reached or Reached()))

    def after(self, call: Call, outcome: Outcome, ticket: _Begun) -> Outcome:
        self._ended(call, outcome, ticket)
        return outcome

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: _Begun) -> None:
        if not ticket.is_over and not isinstance(ending, NeedInput):
            self._ended(call, ending, ticket)

    def _ended(self, call: Call, ending: Outcome | BaseException, ticket: _Begun) -> None:
        ticket.is_over = True
        _, outcome, code, _, was_sent = told(ending, ticket.reached)
        if was_sent and call.server != names.OWN:
            add(self._usage.line(called(call)).sent, error_type(outcome, code), self._now() - ticket.when)


def called(call: Call) -> Called:
    """What a call is counted as."""
    method = call.method if call.method in mcp.METHODS else told_as.OTHER
    is_listed = method == mcp.CALL and (call.tool_info is not None or call.server == names.OWN)
    return Called(call.client.principal.id, method, call.server, call.target if is_listed else "")


def _measure(line: Line, arguments: Raw, result: Raw | bytes) -> None:
    """How much it was: bytes, and an estimate of tokens by what some calls have in a byte."""
    came, went = memoryview(arguments).nbytes, memoryview(result).nbytes
    if line.calls <= OFTEN or line.calls % SELDOM == 0:
        line.ratio_in = _ratio(arguments) or line.ratio_in
        line.ratio = _ratio(result) or line.ratio
    line.bytes_in += came
    line.bytes_out += went
    line.tokens_in += came * line.ratio_in
    line.tokens_out += went * line.ratio


def _ratio(text: Raw | bytes) -> float:
    """Tokens in a byte; 0 where there is none."""
    looked_at = bytes(memoryview(text)[:LOOKED_AT])
    return tokens.estimate(looked_at) / len(looked_at) if looked_at else 0.0
