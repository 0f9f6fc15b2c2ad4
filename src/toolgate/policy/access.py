"""What a client may not do is refused, on its true target: the same decision by which lists and searches were filtered.

The rule this file keeps: it is decided anew on each round, by the configuration that is served now, and a refusal names
nothing: the gateway puts in what the client itself has written.
"""

from __future__ import annotations

from typing import Any

from toolgate.auth.access import Access
from toolgate.core.fault import Fault
from toolgate.core.model import Call
from toolgate.policy.base import Policy


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
