"""Tools in quarantine are refused, whatever name a call found them by, and so is what they have made before. Why they
are there is the business of `pins`."""

from __future__ import annotations

from typing import Any

from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.policy.base import Policy


class Quarantine(Policy):
    name = "quarantine"

    def applies(self, call: Call) -> bool:
        return bool(call.tool_info and call.tool_info.held)

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call:
        judged = call.about or call
        if judged.tool_info and judged.tool_info.held and call.method != mcp.TASK_CANCEL:
            raise quarantined(judged, judged.tool_info.held)
        return call

    def recheck(self, call: Call, ticket: Any) -> None:
        self.before(call, was_passed=True)


def quarantined(call: Call, why: str) -> Fault:
    """Its words are the gateway's: a tool that changes must not speak to the model through its refusal."""
    hint = f"the operator can review and approve it: toolgate pins diff {call.server}"
    message = f"{call.shown} is in quarantine: {why}"
    return Fault("ACCESS_DENIED", message, server=call.server, tool=call.shown, reach="not_sent", hint=hint)
