"""What is known of one round of a call while it is on its way."""

from __future__ import annotations

from toolgate.core.fault import Fault
from toolgate.core.model import Call, Outcome
from toolgate.gateway.plan import Plan
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy.base import Wait
from toolgate.policy.run import PolicyRun
from toolgate.upstreams.base import Begun


class Round(PolicyRun, kw_only=True):
    """A round through the policies of a call that `came` in on a route, by this snapshot and this version of the
    catalog. `decision` is what its policies have said so far, `begun` what its server does, `fault` what it has failed
    with, `plan` what its name was found by."""

    route: Route
    snapshot: Snapshot
    version: int
    decision: Call | Outcome | Wait | None = None
    begun: Begun | None = None
    fault: Fault | None = None
    plan: Plan | None = None

    @property
    def made(self) -> Call:
        """The call as its client has made it."""
        raise NotImplementedError

    def failed_with(self) -> Fault:
        """The fault, which is held no longer: whoever raises it would be held by it, too."""
        fault, self.fault = self.fault, None
        assert fault
        return fault
