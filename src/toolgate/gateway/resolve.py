"""What a call is for: a client's name for something led to the true server, and to the server's own name.

    what the surface needs of the catalog → surface.enter → the server's own names (`overlays`) and `tool info`

The rules this file keeps: a client's names mean what stands in its own view, which is filtered by what it may do. What
it may not do is resolved all the same, so that policies refuse it as any other call; but nobody learns from that what
there is: no server is asked for it, and of one that the client may not see any name is refused alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from toolgate.auth.access import KEPT, Access, Rules
from toolgate.catalog.catalog import unlisted
from toolgate.catalog.views import CatalogView, Wanted
from toolgate.core import mcp, names
from toolgate.core.concurrency import BySize
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.gateway.closed import closed, server_lists
from toolgate.gateway.doubts import Doubts
from toolgate.gateway.makers import Makers
from toolgate.gateway.plan import Plan, of_tool
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.gateway.templates import Templates
from toolgate.policy.faults import NOT_FOUND
from toolgate.policy.overflow import Source
from toolgate.policy.run import Hooks, applying
from toolgate.surfaces.handles import Handles


class Resolver:
    """`current` is the snapshot that is served now; `source` says what that was made by which is kept of a result."""

    def __init__(
        self,
        access: Access,
        handles: Handles,
        source: Callable[[Client, str], Source | None],
        current: Callable[[], Snapshot],
        in_turns: BySize,
    ) -> None:
        self._access, self._handles, self._current = access, handles, current
        self._catalog = current().catalog  # the same in each snapshot
        self._doubts, self._templates = Doubts(access, self._catalog, current), Templates(self._catalog, in_turns)
        self.makers = Makers(self._catalog, source)

    async def enter(self, call: Call, route: Route) -> tuple[Call, tuple[Hooks, ...]]:
        """The call with its true target, and the policies that judge it, where there is no plan. What that takes of the
        catalog is fetched. Raises `Fault`."""
        if call.method in mcp.TASKS:
            return self.makers.judged_by(self._handles.enter(call, route.path, route.print_of)), route.hooks
        rules = self._access.rules(call.client.principal)
        route.check_let_in(rules)
        view, needs = await self.needed(call, route, rules)
        is_known = all(view.server_list(*need) is not None for need in needs)
        if not is_known:
            # A bare name may be any server's: those that do not come up in time cannot be meant.
            snapshot = self._current()
            patience = snapshot.list_timeout if len(needs) > 1 else None
            view = await snapshot.catalog.view(route.servers, needs, call.client, patience, rules=rules)
        entered, plan = await self._tried(call, route, view, needs, rules)
        if doubtful := self._doubts.lists(entered, needs, call, route):
            is_known, view = False, await self._doubts.looked_at(doubtful, needs, entered, call, route, rules)
            entered, plan = await self._tried(call, route, view, needs, rules)
        if isinstance(entered, Fault):
            try:
                raise entered
            finally:
                del entered  # or this frame and it would hold each other, and the request with them
        if entered.server == names.OWN and entered.target.startswith(KEPT):
            entered = self.makers.of_kept(entered)
        if plan and is_known:
            self._keep(plan, entered, call, route, rules)
        return entered, route.judged_by(entered)

    def _keep(self, plan: Plan, entered: Call, call: Call, route: Route, rules: Rules | None) -> None:
        """Keep what a name was found to mean, where that is the same for each call of it: see `Plans`. What a bare name
        means goes by the lists of all servers, and of some each client may have another."""
        catalog, upstream = self._catalog, route.upstreams[plan.server]
        is_bare = plan.shown == call.target and len(route.upstreams) > 1
        if entered.asked or (not plan.tool_info if entered.kind == "tools" else plan.enter(call) != entered):
            return
        if is_bare and any(each.scope(call.client) for each in route.upstreams.values()):
            return
        if catalog.is_live(plan.server, call.kind, call.client):
            hooks = applying(route.hooks, entered)
            kept = msgspec.structs.replace(plan, scope=upstream.scope(call.client), hooks=hooks)
            route.plans.keep(kept, rules, call, catalog.version)

    async def _tried(
        self, call: Call, route: Route, view: CatalogView, needs: Sequence[Wanted], rules: Rules | None
    ) -> tuple[Call | Fault, Plan | None]:
        """The call as it is by what is known, with its plan where that still holds; or why it is none."""
        version = self._catalog.version
        await self._templates.hold(call, route, view, needs)
        try:
            entered = _entered(route, call, view)
            plan = self._planned(entered, view)
            holds = version == self._catalog.version
            return (plan.enter(entered) if plan else entered), plan if holds else None
        except Fault as fault:
            found = None
            if rules and fault.code in NOT_FOUND:
                found = closed(call, route, rules, view, self._catalog, self._access)
            return found or fault.with_traceback(None), None

    async def needed(self, call: Call, route: Route, rules: Rules | None) -> tuple[CatalogView, list[Wanted]]:
        """What is known now, and which lists are needed to tell what a call is for. Those that are known are judged for
        its client by then."""
        while True:
            view = self.known(route, call.client, rules)
            needs = list(route.surface.needs(call, view))
            if not await self._catalog.judge(needs, call.client, rules):
                return view, needs

    def known(self, route: Route, client: Client, rules: Rules | None) -> CatalogView:
        """What is known now of those of a route's servers that a client may see; without what is long and not judged
        for it."""
        known, remembered = server_lists(self._catalog, client, rules), self._catalog.remembered(client)
        return CatalogView(route.servers, known, {}, (), (), remembered).for_whom(rules)

    def _planned(self, entered: Call, view: CatalogView) -> Plan | None:
        """None for what is of no server, or in none of its lists. Raises `Fault` for what may be hidden."""
        catalog = self._catalog
        if entered.method not in mcp.PLANNED or entered.server == names.OWN:
            if entered.kind == "methods" and catalog.hides(entered.server):
                message = "Access denied: the method may reach hidden items"
                raise Fault("ACCESS_DENIED", message, reach="not_sent")
            return None
        server_list = view.server_list(entered.server, entered.kind)
        if server_list is None and entered.kind == "tools" and catalog.hides(entered.server):
            raise (view.fault(entered.server, "tools") or unlisted()).at(entered.server, entered.target)
        if entered.kind == "tools":
            return of_tool(entered, server_list)
        is_listed = server_list and entered.target in server_list.items  # of what is not, there is no end
        return Plan(entered.server, entered.target, entered.target, None) if is_listed else None

    def placed(self, fault: Fault, call: Call, written: str) -> Fault:
        """The fault with its place. What a client may not see has the name that it has `written` itself, if any."""
        shown = "" if call.kind == "tasks" else call.shown
        rules = self._access.rules(call.client.principal)
        if rules is None or fault.code != "ACCESS_DENIED" or fault.server:
            return fault.at(call.server, shown)
        server = call.server if rules.sees(call.server) else ""
        return fault.at(server, "" if not shown else shown if call.asked else written)


def _entered(route: Route, call: Call, view: CatalogView) -> Call:
    """The call with its true target. What is in quarantine is found too: a policy says why it cannot be called."""
    try:
        return route.surface.enter(call, view)
    except Fault as fault:
        if fault.code == "TOOL_NOT_FOUND":
            with contextlib.suppress(Fault):
                return route.surface.enter(call, view.with_held())
        raise fault.at("", call.target) from None
