"""What became of each call, noted in the audit (`toolgate.state.audit`): who, what, decision and reason, outcome.

The rules this file keeps: a round is one line, also where a policy behind it has refused it; of arguments there is a
hash, unless more is wanted; of a server's own words there is nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Literal

import msgspec
from msgspec import Raw

from toolgate import config
from toolgate.core import jsonrpc
from toolgate.core.clock import Clock
from toolgate.core.model import Accepted, Call, Done, Fault, NeedInput, Outcome
from toolgate.state.audit import Trail

LARGEST = 64 * 1024  # bytes of arguments that are noted in full
LONGEST = 300  # characters of a reason
MOST_ASKED = 4096  # rounds that wait for answers, and will be told of once more

# Faults by which the gateway decides; all others are what became of a call that it let go on.
REFUSALS = frozenset(
    {
        "ACCESS_DENIED", "APPROVAL_DENIED", "APPROVAL_REQUIRED", "INSUFFICIENT_SCOPE", "INVALID_ARGS",
        "MISSING_CAPABILITY", "RATE_LIMITED",
    }
)  # fmt: skip

Decision = Literal["allow", "deny", "ask"]


class AuditEntry(msgspec.Struct, omit_defaults=True):
    """A line. `via` is the control tool that the call came through, `shown_by` how the caller showed who it is; `code`
    is a fault's; `reason` is why the gateway refused or asked; `ms` is how long the round took, absent where that is no
    longer known; `arguments` are there where all of them are wanted."""

    time: str
    event: str
    who: str
    method: str
    server: str
    target: str
    decision: Decision
    outcome: Literal["done", "error", "asked", "cancelled"]
    code: str = ""
    reason: str = ""
    ms: float | None = None
    client: str = ""
    shown_by: str = ""
    address: str = ""
    via: str = ""
    arguments_sha256: str = ""
    arguments: Raw | None = None
    edited: bool = False  # between the caller and its server
    resumed: bool = False  # a later round, or the rest of one that has asked


class _Result(msgspec.Struct):
    isError: bool = False


class Audit:
    """`blocks`: no call goes on while nothing can be noted."""

    name = "audit"

    def __init__(self, settings: config.Audit, trail: Trail, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._arguments = settings.arguments
        self._blocks = settings.on_failure == "block"
        self._begun: dict[int, float] = {}  # by the id of a call that is under way
        self._asked: OrderedDict[int, float] = OrderedDict()

    def before(self, call: Call, was_passed: bool) -> Call:
        if self._blocks and self._trail.problem:
            raise Fault(
                "INTERNAL",
                "Calls are refused while the audit cannot be written",
                reach="not_sent",
                hint="see toolgate's log for the reason; `audit.on_failure` sets whether calls are refused",
            )
        if self._asked:
            self._asked.pop(id(call), None)  # of one that never came back: it has gone, and its id is another's now
        self._begun[id(call)] = self._clock.now()
        return call

    def after(self, call: Call, outcome: Outcome) -> Outcome:
        return outcome

    def ended(self, went: Call, call: Call, ending: Outcome | BaseException) -> None:
        begun = self._begun.pop(id(went), None)
        is_rest = begun is None
        if begun is None:
            begun = self._asked.pop(id(went), None)
        elif isinstance(ending, NeedInput):
            self._wait(went, begun)
        decision, outcome, code, reason = _told(ending)
        if not call.server and outcome == "error":
            decision = "deny"  # there is no such target
        who, given, plainly = call.client.principal, call.arguments, self._trail.redactor.text
        entry = AuditEntry(
            self._trail.time(),
            "call",
            who.id,
            call.method,
            call.server,
            plainly(call.target),
            decision,
            outcome,
            code,
            plainly(reason)[:LONGEST] if reason else "",
            None if begun is None else int((self._clock.now() - begun) * 1e6) / 1000,
            who.client,
            who.via,
            who.address,
            call.via,
        )
        if given and self._arguments != "none":
            entry.arguments_sha256 = hashlib.sha256(given).hexdigest()
            if self._arguments == "full":
                entry.arguments = self._whole(given)
        entry.edited = given is not went.arguments and given != went.arguments
        entry.resumed = is_rest or call.resumption is not None
        self._trail.put(entry)

    def _whole(self, arguments: Raw) -> Raw | None:
        """In one line. What is too long has its hash alone."""
        if memoryview(arguments).nbytes > LARGEST:
            return None
        return Raw(self._trail.redactor.body(_in_one_line(bytes(arguments))))

    def _wait(self, went: Call, begun: float) -> None:
        self._asked[id(went)] = begun
        if len(self._asked) > MOST_ASKED:
            self._asked.popitem(last=False)


def _told(
    ending: Outcome | BaseException,
) -> tuple[Decision, Literal["done", "error", "asked", "cancelled"], str, str]:
    """Decision, outcome, code, reason."""
    if isinstance(ending, Done):
        return "allow", "error" if _is_error(ending.body) else "done", "", ""
    if isinstance(ending, NeedInput):
        asker = ending.resume.origin.asker
        return ("ask", "asked", "", asker) if asker.startswith("policy:") else ("allow", "asked", "", asker)
    if isinstance(ending, Fault):
        if ending.code in REFUSALS and not ending.upstream:
            return "deny", "error", ending.code, ending.message
        return "allow", "error", ending.code, ""
    if isinstance(ending, asyncio.CancelledError):
        return "allow", "cancelled", "", ""
    if isinstance(ending, Accepted):
        return "allow", "done", "", "accepted as a task"
    return "allow", "error", "INTERNAL", type(ending).__name__


def _in_one_line(arguments: bytes) -> bytes:
    try:
        return msgspec.json.format(arguments, indent=-1)
    except msgspec.DecodeError:  # a line break is nothing but white space in JSON
        return jsonrpc.one_line(arguments)


def _is_error(body: Raw | bytes) -> bool:
    """A tool's own failure."""
    if b"isError" not in bytes(body):
        return False
    try:
        return jsonrpc.read(body, type=_Result).isError
    except jsonrpc.UNREADABLE:
        return False
