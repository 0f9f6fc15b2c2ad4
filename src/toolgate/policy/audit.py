"""What became of each call, noted in the audit (`toolgate.state.audit`): who, what, decision and reason, outcome.

The rules this file keeps: a round is one line, also where a policy behind it has refused it; of arguments there is a
hash, unless more is wanted; of a server's own words there is nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Raw

from toolgate import config
from toolgate.core import jsonrpc
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Call, Outcome
from toolgate.policy.arguments import whole
from toolgate.policy.base import Passed, Policy
from toolgate.policy.endings import Decision, EndedAs, told
from toolgate.state.audit import Trail

LONGEST = 300  # characters of a reason
LONGEST_REFUSED = 256  # characters of the name of what was refused


class AuditEntry(msgspec.Struct, omit_defaults=True):
    """A line. `via` is the control tool that the call came through, `shown_by` how the caller showed who it is; `code`
    is a fault's; `reason` is why the gateway refused or asked, or what it waited for; `ms` is how long the round took;
    `arguments` are there where all of them are wanted."""

    time: str
    event: str
    who: str
    method: str
    server: str
    target: str
    decision: Decision
    outcome: EndedAs
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
    sent: bool = True  # or it may have been; otherwise nothing of this round has got to its server
    resumed: bool = False  # a later round, or the rest of one that has asked
    not_noted: int = 0  # lines before it that were like it, and
    not_noted_since: str = ""  # the time of the first of them


def _shortened(target: str) -> str:
    """A name of which nobody knows that there is anything; with escapes each character may take six."""
    shown = target[:LONGEST_REFUSED]
    if len(jsonrpc.encode(shown)) > 2 * LONGEST_REFUSED:
        shown = shown[: LONGEST_REFUSED // 6]
    if shown == target:
        return target
    digest = hashlib.sha256(target.encode(errors="replace")).hexdigest()
    return f"{shown}… ({len(target):,} characters, SHA-256 {digest})"


class _Begun(msgspec.Struct):
    """A round: how far it has got, since when, and with which arguments it came. `has_ended`: it is told once more, of
    what came of the questions of its server."""

    reached: Reached
    when: float
    arguments: Raw
    has_ended: bool = False


class Audit(Policy):
    """`blocks`: no call goes on while nothing can be noted."""

    name = "audit"
    sees_misses = True

    def __init__(self, settings: config.Audit, trail: Trail, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._arguments = settings.arguments
        self._blocks = settings.on_failure == "block"

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Passed:
        if self._blocks and self._trail.problem:
            raise Fault(
                "INTERNAL",
                "Calls are refused while the audit log cannot be written",
                reach="not_sent",
                hint="see toolgate's log for the reason; `audit.on_failure` sets whether calls are refused",
            )
        if not (reached := call.reached) or call.resumption:
            answers = call.resumption is not None and call.resumption.live is not None
            reached = Reached(is_sent=answers, rests=reached.rests if reached else ())
            call = msgspec.structs.replace(call, reached=reached)
        return Passed(call, _Begun(reached, self._clock.now(), call.arguments))

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: _Begun) -> None:
        is_rest, ticket.has_ended = ticket.has_ended, True
        decision, outcome, code, reason, sent = told(ending, ticket.reached)
        server = call.server
        if not server and outcome == "error":
            decision = "deny"  # there is no such target
            server = ending.server if isinstance(ending, Fault) else ""
        who, given, redactor = call.client.principal, call.arguments, self._trail.redactor
        target = redactor.text(call.target)
        entry = AuditEntry(
            self._trail.time(),
            "call",
            who.id,
            call.method,
            server,
            _shortened(target) if decision == "deny" else target,
            decision,
            outcome,
            code,
            redactor.of(call.server).text(reason)[:LONGEST] if reason else "",
            int((self._clock.now() - ticket.when) * 1e6) / 1000,
            who.client,
            who.via,
            who.address,
            call.via if call.asked else "",
            hashlib.sha256(given).hexdigest() if given and self._arguments != "none" else "",
            whole(given, redactor.of(call.server)) if given and self._arguments == "full" else None,
            given is not ticket.arguments and given != ticket.arguments,
            sent,
            is_rest or call.resumption is not None,
        )
        if decision != "deny":
            self._trail.put(entry)
        elif not self._trail.put_refused(entry, who.counted_as, f"{call.method} {server} {code}"):
            entry.arguments = None  # they are large, and it is kept for up to a minute
