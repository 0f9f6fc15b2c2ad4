"""Plans: what a client's name for a tool, a prompt or a resource means on a route, found once and used for every call
after it.

The rule this file keeps: a plan says what the long way of `resolve` would say now. It is kept for the rules of a
client, and dropped with the version of the catalog that it was made by; a new configuration has new routes, and those
have no plans yet.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from toolgate.auth.access import Rules
from toolgate.catalog import overlays, tool_info
from toolgate.catalog.base import Change, ServerList
from toolgate.core.model import Call, HeaderArgument, ToolInfo
from toolgate.eras import header_arguments
from toolgate.policy.run import Hooks
from toolgate.upstreams.base import Upstream

MOST = 10_000  # plans of one route; beyond, all are made anew

Key = tuple[Rules | None, str, str] | tuple[Rules | None, str, str, tuple[str, str]]


class Plan(msgspec.Struct, frozen=True):
    """`shown` is what the server's tool, prompt or resource is called with the operator's overlays, `change` how that
    leads back to `tool`, the server's own name, where they change it. `header_arguments` are what its callers repeat in
    headers. `hooks` are those of the policies that have anything to do with calls of it. `scope` is whose connection to
    the server the plan was made for."""

    server: str
    shown: str
    tool: str
    tool_info: ToolInfo | None
    header_arguments: tuple[HeaderArgument, ...] = ()
    change: Change | None = None
    hooks: tuple[Hooks, ...] = ()
    scope: str = ""

    def enter(self, call: Call) -> Call:
        """The call as its server knows it. Raises `Fault` where its headers do not match its arguments, and for
        arguments that a caller cannot give."""
        revision = call.client.revision
        if self.header_arguments and call.headers and revision and revision.has_header_arguments:
            header_arguments.check(self.header_arguments, call.arguments, call.headers)
        if self.change:
            call = overlays.enter(call.at(self.server, self.shown), self.change)
        return msgspec.structs.replace(call, server=self.server, target=self.tool, tool_info=self.tool_info)


def of_tool(call: Call, server_list: ServerList | None) -> Plan:
    """The plan of a call that its surface has entered, by the list of its server's tools. Raises `Fault` for a tool
    that an operator has hidden."""
    server, shown = call.server, call.target
    if not server_list or not server_list.is_overlaid:
        found = tool_info.of(server_list, shown)
        return Plan(server, shown, shown, found, found.header_arguments if found else ())
    if server_list.whole and shown not in server_list.items:
        server_list = server_list.whole
    change = overlays.find(server_list, call)
    found = tool_info.of(server_list, change.own)
    return Plan(server, shown, change.own, found, tool_info.header_arguments_shown(server_list, shown), change)


class Plans:
    """Those of one route, by what clients write. A server that has a connection for each client, or each session, may
    offer something else to each: its plans are theirs alone. `upstreams` are those of the route."""

    def __init__(self, upstreams: Mapping[str, Upstream] = {}) -> None:
        self._upstreams = upstreams
        self._plans: dict[Key, Plan] = {}
        self.forget()

    def find(self, call: Call, rules: Rules | None, version: int) -> Plan | None:
        """The plan for a call's name, where it holds: its server is up, and the list is its word of now."""
        if version != self._version:
            self.forget(version)
        plan = self._plans.get(it := (rules, call.method, call.target)) or self._plans.get((*it, call.client.identity))
        return plan if plan and self._upstreams[plan.server].live_scope(call.client) == plan.scope else None

    def forget(self, version: int = 0) -> None:
        """What a name means, or policies have to do with its calls, may be something else now."""
        self._plans.clear()
        self._version = version
        self.epoch = object()  # of what is known from now on

    def keep(self, plan: Plan, rules: Rules | None, call: Call, version: int) -> None:
        """The plan for a call's name, as its client wrote it."""
        if len(self._plans) >= MOST or version != self._version:
            self.forget(version)
        it = rules, call.method, call.target
        self._plans[(*it, call.client.identity) if plan.scope else it] = plan
