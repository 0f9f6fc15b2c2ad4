"""What is known of one round of a call while it is on its way."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolgate.core.fault import Fault
from toolgate.core.model import Call, Outcome
from toolgate.gateway.plan import Plan
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy.base import Wait
from toolgate.policy.run import Hooks, PolicyRun
from toolgate.upstreams.base import Begun


class Origin(msgspec.Struct, eq=False):
    """What a round is of: a call as its client has `made` it, and as it was entered on a route (`call`), by this
    snapshot and this version of the catalog. See `policy.run.Origin`."""

    call: Call
    route: Route
    snapshot: Snapshot
    version: int

    @property
    def made(self) -> Call:
        raise NotImplementedError

    async def anew(self) -> tuple[Call, Sequence[Hooks]] | None:
        raise NotImplementedError

    async def again(self, call: Call, /) -> Outcome:
        raise NotImplementedError


class Round(msgspec.Struct, eq=False):
    """`decision` is what its policies have said so far, `begun` what its server does, `fault` what it has failed with,
    `plan` what its name was found by."""

    origin: Origin
    run: PolicyRun
    decision: Call | Outcome | Wait | None = None
    begun: Begun | None = None
    fault: Fault | None = None
    plan: Plan | None = None

    @property
    def made(self) -> Call:
        return self.origin.made

    def failed(self) -> Fault:
        """The fault, which is held no longer: whoever raises it would be held by it, too."""
        fault, self.fault = self.fault, None
        assert fault
        return fault
