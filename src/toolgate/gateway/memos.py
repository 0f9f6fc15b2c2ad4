"""Calls that differ in nothing but their arguments: what was found for one of them is used for the next.

The rule this file keeps: a memo says what the ordinary way (`Gateway.begin`) would find now. It holds for one
version of the catalog, the plans of one configuration, the rules of one client, and one connection, while that is up.
All policies judge each call.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from toolgate.auth.access import Rules
from toolgate.core.fault import Reached
from toolgate.core.jsonrpc import NOTHING
from toolgate.core.model import Call
from toolgate.core.notes import Notes
from toolgate.gateway.plan import Plan
from toolgate.gateway.round import Round
from toolgate.gateway.snapshot import Route
from toolgate.upstreams.base import Line


class CallMemo(msgspec.Struct, frozen=True):
    """A call as it was `entered`, by the name that its client has for its tool. Others like it are begun over its
    `line`."""

    name: str
    entered: Call
    plan: Plan
    epoch: object  # of the plans: see `Plans.epoch`
    version: int  # of the catalog
    rules: Rules | None
    line: Line

    def holds(self, route: Route, version: int, rules: Rules | None) -> bool:
        is_current = self.epoch is route.plans.epoch and self.version == version and self.rules is rules
        return is_current and self.line.is_up()

    def call(self, arguments: Raw, headers: Mapping[str, str] | None, notes: Notes) -> Call:
        """Another call, as it is entered."""
        own = Reached()
        return msgspec.structs.replace(self.entered, arguments=arguments, headers=headers, notes=notes, reached=own)

    def made(self, call: Call) -> Call:
        """One of these as its client has made it."""
        return msgspec.structs.replace(call, server="", target=self.name, tool_info=None)


def memo(round: Round, version: int, rules: Rules | None) -> CallMemo | None:
    """What other calls may have in common with one that was begun; None where one like it may be another matter."""
    plan, begun, made, entered = round.plan, round.begun, round.made, round.came
    if not plan or not begun or plan.change or plan.header_arguments or not is_same(round.call or entered, entered):
        return None
    says_more = made.wants_progress or made.log_level or made.resumption
    if says_more or not (line := begun.line()):
        return None
    entered = msgspec.structs.replace(entered, arguments=NOTHING, notes=None, reached=None)
    return CallMemo(made.target, entered, plan, round.route.plans.epoch, version, rules, line)


def is_same(call: Call, entered: Call) -> bool:
    """Whether its policies have left a call to its server as it was."""
    return call == msgspec.structs.replace(entered, reached=call.reached)
