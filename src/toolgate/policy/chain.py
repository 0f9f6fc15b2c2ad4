"""The order in which policies judge a call: the one list of it, and how a route's are made of a configuration.

The policies, in their order
    telemetry          tells of each call what became of it: to what counts, and to the access log; first and last
    audit              notes what became of each call
    access             refuses what the client may not do
    quarantine         refuses tools that are held back
    validate           checks arguments against their schema
    scopes             asks for the scopes of a token that some tools need
    limits             rates, calls at once, arguments (`limits.rates`, `.concurrency`, `.argument_limit`, `.values`)
    shared_meters      the same, held by several processes together
    approval           asks a person
    truncate           cuts results that are too large (`limits.result_limit`, `.result_tokens`, `.truncate`)
    scrub              takes secrets out of what servers say
"""

from __future__ import annotations

import msgspec

from toolgate.auth.access import Access
from toolgate.config import Config
from toolgate.core.clock import Clock
from toolgate.core.redaction import Redactor
from toolgate.policy import limits, telemetry, truncate
from toolgate.policy.access import Permit
from toolgate.policy.approval import Approval
from toolgate.policy.approvals import Approvals
from toolgate.policy.audit import Audit
from toolgate.policy.base import Policy
from toolgate.policy.checker import Checker
from toolgate.policy.limits import Meters
from toolgate.policy.overflow import OverflowStore
from toolgate.policy.quarantine import Quarantine
from toolgate.policy.scopes import Scopes
from toolgate.policy.scrub import Scrub
from toolgate.policy.validate import Validate
from toolgate.state.audit import Trail, is_on
from toolgate.state.base import Store
from toolgate.telemetry.recorder import Recorder


class PolicyDeps(msgspec.Struct, frozen=True):
    """What the policies of all configurations work with: it outlives each of them."""

    clock: Clock
    store: Store
    overflow: OverflowStore
    redactor: Redactor
    access: Access
    audit: Trail
    meters: Meters
    approvals: Approvals  # one, which counts the calls that wait
    recorder: Recorder = msgspec.field(default_factory=Recorder)
    checker: Checker = msgspec.field(default_factory=Checker)


def build(
    config: Config, policy_deps: PolicyDeps, *, is_transparent: bool = False, changes: Policy | None = None
) -> tuple[Policy, ...]:
    """What stands first is asked first before a call, and last after it.

    `is_transparent`: the route leaves the arguments to its server (`servers/{id}`). `changes`: what looks
    at calls of the gateway's own that change its servers, where the chain is theirs.
    """
    validate = _validate(config, policy_deps.checker) if config.validate_arguments and not is_transparent else None
    approval = _approval(config, policy_deps, validate) if changes or _asks(config) else None
    watch = (config, policy_deps.recorder, policy_deps.redactor, policy_deps.clock)
    policies = (
        *telemetry.in_front(*watch),
        # The audit sees what is refused behind it.
        Audit(config.audit, policy_deps.audit, policy_deps.clock) if is_on(config) else None,
        # Nobody learns anything by what they may not call.
        None if config.is_open else Permit(policy_deps.access, is_asked_behind=approval is not None),
        Quarantine(),
        # Nothing is charged, asked or sent for a call that cannot be right.
        validate,
        Scopes(config.auth) if config.auth.step_up else None,
        # What is charged could be right, and its client may do it.
        _limits(config, policy_deps.meters),
        # It reads a configuration, which costs more than a glance.
        changes,
        # A person is asked last, and once.
        approval,
        # Whatever looks at a whole result stands behind this: it sees it first.
        truncate.of(config, policy_deps.overflow),
        Scrub(policy_deps.redactor, config.guard.scrub, not is_transparent),  # nothing is kept, or told of, before it
        *telemetry.behind(*watch),
    )
    return tuple(policy for policy in policies if policy)


def _validate(config: Config, checker: Checker) -> Validate:
    trusted = frozenset(server.id for server in config.servers if not server.validate_arguments)
    return Validate(trusted, checker)


def _limits(config: Config, meters: Meters) -> limits.Limits | None:
    """None where nothing is limited."""
    made = meters.limits(config)
    return made if made.are_some else None


def _approval(config: Config, policy_deps: PolicyDeps, validate: Validate | None) -> Approval:
    return Approval(
        *(policy_deps.access.judge, policy_deps.approvals, config.approvals),
        *(policy_deps.redactor, policy_deps.clock),
        {server.id: server.print for server in config.servers},
        [*([validate.check] if validate else []), policy_deps.meters.limits(config).check],
        policy_deps.audit,
        policy_deps.meters.asking,
        {server.id: server.passed_headers for server in config.servers},
    )


def _asks(config: Config) -> bool:
    """Whether any call of a server asks first."""
    said = [client.permissions for client in config.clients if not config.is_open]
    return any("ask" in (each.read_only, *each.verdicts) for each in said)
