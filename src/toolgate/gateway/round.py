"""What is known of one round of a call while it is on its way."""

from __future__ import annotations

import msgspec

from toolgate.core.fault import Fault
from toolgate.core.model import Call, Outcome
from toolgate.gateway.snapshot import Route
from toolgate.policy.base import Wait
from toolgate.policy.run import PolicyRun
from toolgate.upstreams.base import Begun


class Round(msgspec.Struct, eq=False):
    """As its client has `made` it, and as it was entered (`call`). `decision` is what its policies have said so far,
    `begun` what its server does, `fault` what it has failed with."""

    made: Call
    call: Call
    route: Route
    run: PolicyRun
    decision: Call | Outcome | Wait | None = None
    begun: Begun | None = None
    fault: Fault | None = None

    def failed(self) -> Fault:
        """The fault, which is held no longer: whoever raises it would be held by it, too."""
        fault, self.fault = self.fault, None
        assert fault
        return fault
