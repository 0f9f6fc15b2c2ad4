"""Faults on their way to a client: what is not found is counted and noted; wrong arguments get their schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.policy import schemas
from toolgate.policy.base import Passed
from toolgate.policy.run import Hooks

NOT_FOUND = frozenset({"SERVER_NOT_FOUND", *mcp.MISSING})


def missed(call: Call, fault: Fault, policies: Sequence[Hooks]) -> Fault:
    """Have a call whose target is not found (`server` is empty) counted and noted. Returns the fault that its client
    gets: this one, or what a policy says instead."""
    passed: list[tuple[Hooks, Any]] = []
    for policy in policies:
        if policy.sees_misses:
            try:
                decision = policy.before(call, bool(call.resumption))
            except Fault as refusal:
                fault = refusal
                break
            passed.append((policy, decision.ticket if isinstance(decision, Passed) else None))
    for policy, ticket in reversed(passed):
        if policy.ended:
            policy.ended(call, fault, ticket)
    return fault


def with_schema(fault: Fault, call: Call) -> Fault:
    """A server's own refusal of its arguments, with what they should be: its client may see no list of tools."""
    if not fault.upstream or fault.rpc != jsonrpc.INVALID_PARAMS or not call.tool_info or call.method != mcp.CALL:
        return fault
    if not (schema := schemas.in_error(call.tool_info)):
        return fault
    known = fault.at("", "")
    known.extra = {**schema, **fault.extra}
    return known
