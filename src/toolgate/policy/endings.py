"""How a round of a call has ended, in words that the audit and what is counted share."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from toolgate.core import jsonrpc
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Accepted, Done, NeedInput, Outcome
from toolgate.telemetry.names import CANCELLED, TOOL_ERROR

# Faults by which the gateway decides; all others are what became of a call that it let go on.
REFUSALS = frozenset(
    {
        "ACCESS_DENIED", "APPROVAL_DENIED", "APPROVAL_REQUIRED", "INSUFFICIENT_SCOPE", "INVALID_ARGS",
        "MISSING_CAPABILITY", "RATE_LIMITED",
    }
)  # fmt: skip

Decision = Literal["allow", "deny", "ask", "undecided"]
EndedAs = Literal["done", "error", "asked", "cancelled"]


class _Result(msgspec.Struct):
    isError: bool = False


def told(ending: Outcome | BaseException, reached: Reached) -> tuple[Decision, EndedAs, str, str, bool]:
    """Decision, outcome, code, reason, and whether it was sent."""
    if isinstance(ending, Done):
        return "allow", "error" if has_failed(ending) else "done", "", "", reached.is_let
    if isinstance(ending, Accepted):
        return "allow", "done", "", "accepted as a task", True
    if isinstance(ending, NeedInput):
        asker = ending.resume.origin.asker
        return "allow" if reached.is_let else "ask", "asked", "", str(asker), reached.is_let
    if isinstance(ending, Fault):
        has_run = ending.upstream is not None or ending.reach in ("executed", "sent_unknown")
        if not reached.is_let or (ending.code in REFUSALS and not has_run):
            return "deny", "error", ending.code, ending.message, False
        return "allow", "error", ending.code, "", has_run or (reached.is_sent and ending.reach is None)
    outcome: EndedAs = "cancelled" if isinstance(ending, asyncio.CancelledError) else "error"
    code, why = ("", "") if outcome == "cancelled" else ("INTERNAL", type(ending).__name__)
    if reached.is_let:
        return "allow", outcome, code, why, reached.is_sent
    return "undecided", outcome, code, why or f"policy:{reached.waits_for}", False


def error_type(outcome: EndedAs, code: str) -> str:
    """As metrics and traces have it; empty where nothing has failed."""
    if outcome in ("done", "asked"):
        return ""
    return CANCELLED if outcome == "cancelled" else code or TOOL_ERROR


def has_failed(result: Done) -> bool:
    """A tool's own failure."""
    looked_at = result.frame or result.body
    if b"isError" not in bytes(looked_at):
        return False
    try:
        return jsonrpc.read(looked_at, type=_Result).isError
    except jsonrpc.UNREADABLE:
        return False
