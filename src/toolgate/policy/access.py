"""What a client may not do is refused, on its true target: the same decision by which lists and searches were filtered.

The rule this file keeps: it is decided anew on each round, by the configuration that is served now, and a refusal names
nothing: the gateway puts in what the client itself has written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolgate.auth.access import Access, Rules
from toolgate.core import counting, jsonrpc
from toolgate.core.concurrency import FairThreads
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Done, Outcome
from toolgate.policy.base import Policy

LARGEST = 1024 * 1024  # bytes of a completion that is looked through
MOST_VALUES = 100  # of it, as MCP has it


class Permit(Policy):
    """`is_asked_behind`: a policy behind this one asks a person wherever permissions say so. Where none does, what
    needs approval is refused."""

    name = "access"

    def __init__(self, access: Access, is_asked_behind: bool = False) -> None:
        self._access = access
        self._is_asked_behind = is_asked_behind

    def applies(self, call: Call) -> bool:
        return self._access.judge(call) != "allow"

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        verdict = self._access.judge(call)
        if verdict == "off":
            raise Fault("ACCESS_DENIED", "Access denied: this client may not use that", reach="not_sent")
        if verdict == "ask" and not self._is_asked_behind:
            message = "Approval required, but nobody can be asked here"
            raise Fault("APPROVAL_REQUIRED", message, reach="not_sent")
        return call

    def recheck(self, call: Call, ticket: Any) -> None:
        self.before(call, was_passed=True)

    def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
        """A completion without the values that would make a URI which its client may not use."""
        rules = _rules(self._access, call, outcome)
        return _permitted(rules, call, outcome) if rules else outcome


async def looked_through(turns: FairThreads, access: Access, call: Call, outcome: Outcome) -> Outcome:
    """The same in a thread: to judge a hundred values takes long. When the call goes back through its policies, the
    verdicts are remembered. Raises `Fault`."""
    rules = _rules(access, call, outcome)
    if not rules:
        return outcome
    return await turns.in_thread(call.client.principal.counted_as, lambda: _permitted(rules, call, outcome))


def _rules(access: Access, call: Call, outcome: Outcome) -> Rules | None:
    """Those by which the values of an answer are looked through; None: they are not."""
    if call.kind != "resourceTemplates" or not call.reference or not isinstance(outcome, Done):
        return None
    return access.rules(call.client.principal)


def _permitted(rules: Rules, call: Call, outcome: Outcome) -> Outcome:
    """A completion of a template without what is closed, or not looked at. Raises `Fault`."""
    if not isinstance(outcome, Done):
        return outcome
    try:
        if memoryview(outcome.body).nbytes > LARGEST or counting.is_too_much(outcome.body):
            raise ValueError(f"it has more than {LARGEST:,} bytes, or too many values")
        completion = jsonrpc.members(outcome.body)["completion"]
        values = jsonrpc.read(completion, type=_Completion).values[: MOST_VALUES + 1]
    except (KeyError, ValueError, *jsonrpc.UNREADABLE) as error:
        raise Fault("UPSTREAM_ERROR", f"The completion is malformed: {error}", reach="executed") from None
    kept = rules.completed(call, values[:MOST_VALUES])
    if len(kept) == len(values):
        return outcome
    said = jsonrpc.encode({"values": kept, "hasMore": len(values) > MOST_VALUES})
    return msgspec.structs.replace(outcome, body=jsonrpc.with_members(outcome.body, {"completion": said}))


class _Completion(msgspec.Struct):
    values: list[str]
