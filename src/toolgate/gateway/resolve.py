"""What a call is for: a client's name for something led to the true server, and to the server's own name.

    a plan that was made before, or
    what the surface needs of the catalog → surface.enter → the server's own names (`overlays`) and `tool info`

The rules this file keeps: a client's names mean what stands in its own view, which is filtered by what it may do. What
it may not do is resolved all the same, so that policies refuse it as any other call; but nobody learns from that what
there is: no server is asked for it, and of one that the client may not see any name is refused alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from toolgate.auth.access import HARMLESS, KEPT, Access, Rules
from toolgate.catalog import tool_info
from toolgate.catalog.base import ServerList, anything
from toolgate.catalog.catalog import unlisted
from toolgate.catalog.overlays import hides
from toolgate.catalog.views import CatalogView, Wanted
from toolgate.core import mcp, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal, ToolInfo
from toolgate.gateway.plan import Plan, of_tool
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy import faults
from toolgate.policy.overflow import Source
from toolgate.policy.run import Hooks, applying
from toolgate.surfaces import controls
from toolgate.surfaces.handles import Handles, about_made

ServerLists = Callable[[str, str], ServerList | None]
Current = Callable[[], Snapshot]

NOT_FOUND = frozenset({"SERVER_NOT_FOUND", *(kind.missing for kind in mcp.KINDS.values())})
_BY_LISTS = NOT_FOUND | {"INVALID_ARGS", "HEADER_MISMATCH"}  # how lists refuse
_HARMLESS = ToolInfo(hints=HARMLESS)


class Resolver:
    """`current` is the snapshot that is served now; `source` says what that was made by which is kept of a result."""

    def __init__(
        self, access: Access, handles: Handles, source: Callable[[Principal, str], Source | None], current: Current
    ) -> None:
        self._access = access
        self._handles = handles
        self._source = source
        self._current = current
        self._catalog = current().catalog  # the same in each snapshot

    async def enter(self, call: Call, route: Route) -> tuple[Call, tuple[Hooks, ...]]:
        """The call with its true target, and the policies that judge it. What that takes of the catalog is fetched.
        Raises `Fault`."""
        if call.method in mcp.TASKS:
            return self._about(self._handles.enter(call, route.path)), route.hooks
        rules = self._access.rules(call.client.principal)
        if plan := self._plan(call, route, rules):
            return plan.enter(call), route.hooks if call.resumption else plan.hooks
        route.check_let_in(rules)
        view = self.known(route, call.client, rules)
        needs = list(route.surface.needs(call, view))
        is_known = all(view.server_list(*need) is not None for need in needs)
        if not is_known:
            # A bare name may be any server's: those that do not come up in time cannot be meant.
            snapshot = self._current()
            patience = snapshot.list_timeout if len(needs) > 1 else None
            view = await snapshot.catalog.view(route.servers, needs, call.client, patience, rules=rules)
        entered, plan = self._tried(call, route, view, rules)
        if doubtful := self._doubtful(entered, needs, call, route):
            is_known, view = False, await self._looked_at(doubtful, route, call.client, rules)
            entered, plan = self._tried(call, route, view, rules)
        if isinstance(entered, Fault):
            try:
                raise entered
            finally:
                del entered  # or this frame and it would hold each other, and the request with them
        if entered.server == names.OWN and entered.target.startswith(KEPT):
            entered = self._kept(entered)
        if plan and is_known:
            self._keep(plan, entered, needs, call, route, rules)
        return entered, route.judged_by(entered)

    def _plan(self, call: Call, route: Route, rules: Rules | None) -> Plan | None:
        """The plan for a call's name, where it holds: its server is up, and the list is its word of now."""
        if call.method != mcp.CALL:
            return None
        plan = route.plans.find(rules, call.target, call.client, self._catalog.version)
        return plan if plan and route.upstreams[plan.server].live_scope(call.client) == plan.scope else None

    def _keep(
        self, plan: Plan, entered: Call, needs: Sequence[Wanted], call: Call, route: Route, rules: Rules | None
    ) -> None:
        """Keep what a name was found to mean, where that is the same for each call of it."""
        catalog, upstream = self._catalog, route.upstreams[plan.server]
        is_scoped = any(route.upstreams[server].scope(call.client) for server, _ in needs)
        if not plan.tool_info or entered.asked or (is_scoped and len(needs) > 1):
            return
        if catalog.is_live(plan.server, "tools", call.client):
            kept = msgspec.structs.replace(
                plan, scope=upstream.scope(call.client), hooks=applying(route.hooks, entered)
            )
            route.plans.keep(kept, rules, call.target, call.client, catalog.version)

    def _kept(self, call: Call) -> Call:
        """A call for something that was kept, with the one whose result that was."""
        if not (source := self._source(call.client.principal, call.target)):
            return call
        about = about_made(source.server, source.made, call.client)
        return self._about(msgspec.structs.replace(call, about=about))

    def _about(self, call: Call) -> Call:
        """The same with what the tool that it is about says of itself now. Raises `Fault` where that is hidden."""
        assert call.about
        about = self.as_known(call.about)
        server_list = self._catalog.known(about.server, "tools", about.client)
        if (
            about.method == mcp.CALL
            and call.method != mcp.TASK_CANCEL
            and server_list
            and hides(server_list, about.target)
        ):
            raise Fault("ACCESS_DENIED", "Access denied: its tool may no longer be used", reach="not_sent")
        return msgspec.structs.replace(call, about=about)

    def as_known(self, about: Call) -> Call:
        server_list = self._catalog.known(about.server, "tools", about.client)
        found = tool_info.of(server_list, about.target) if about.method == mcp.CALL else None
        return msgspec.structs.replace(about, tool_info=found)

    def _tried(
        self, call: Call, route: Route, view: CatalogView, rules: Rules | None
    ) -> tuple[Call | Fault, Plan | None]:
        """The call as it is by what is known, with its plan where it is of a tool; or why it is none."""
        try:
            entered = _entered(route, call, view)
            plan = self._planned(entered, view)
            return (plan.enter(entered) if plan else entered), plan
        except Fault as fault:
            denied = self._denied(call, route, rules) if rules and fault.code in NOT_FOUND else None
            return denied or fault.with_traceback(None), None

    def _doubtful(self, entered: Call | Fault, needs: Sequence[Wanted], call: Call, route: Route) -> Sequence[Wanted]:
        """The lists to be looked at before a call goes by them. A server may be another program each time that it is
        started: what was listed before refuses nothing that it would take now; and one whose changes are held back is
        looked at in any case. A bare name may be any server's: those that were listed since the gateway started, and
        are stopped now, are not started for one that nobody has."""
        catalog, client = self._catalog, call.client
        if isinstance(entered, Fault):
            if entered.code not in _BY_LISTS or entered.upstream:
                return ()
            return [need for need in needs if not catalog.is_live(*need, client, or_stopped=len(needs) > 1)]
        if entered.method != mcp.CALL or entered.server == names.OWN:
            return ()
        wanted = (entered.server, "tools")
        if catalog.is_live(*wanted, client):
            return ()
        return [wanted] if catalog.is_held(entered.server) or self._would_be_refused(entered, route) else ()

    def _would_be_refused(self, call: Call, route: Route) -> bool:
        """Whether another listing of its tool might let a call go on, or have it made in another way."""
        best = self._access.judge(msgspec.structs.replace(call, tool_info=_HARMLESS))
        if call.resumption or best == "off":
            return False  # its server has it already, or must not get it whatever it lists
        support = call.tool_info.task_support if call.tool_info else ""
        if (call.task and not support) or (not call.task and support == "required"):
            return True
        if self._access.judge(call) != best:
            return True
        return any(policy.refuses(call) for policy in route.policies)

    async def _looked_at(
        self, wanted: Sequence[Wanted], route: Route, client: Client, rules: Rules | None
    ) -> CatalogView:
        """Lists as they are now. Raises `Fault` where the one that it is about is not to be had."""
        snapshot = self._current()
        patience = snapshot.list_timeout if len(wanted) > 1 else None
        view = await snapshot.catalog.view(route.servers, wanted, client, patience, rules=rules, anew=True)
        if len(wanted) == 1 and (fault := view.fault(*wanted[0])):
            raise fault.at(wanted[0][0], "")
        return view

    def known(self, route: Route, client: Client, rules: Rules | None) -> CatalogView:
        """What is known now of those of a route's servers that a client may see."""
        return CatalogView(route.servers, self._server_lists(client), {}, ()).for_whom(rules)

    def _server_lists(self, client: Client) -> ServerLists:
        """Each list is looked up once: what they are for is decided at one moment."""
        catalog = self._catalog
        found: dict[Wanted, ServerList | None] = {}

        def server_list(server: str, kind: str) -> ServerList | None:
            wanted = (server, kind)
            if wanted not in found:
                found[wanted] = catalog.known(server, kind, client)
            return found[wanted]

        return server_list

    def _planned(self, entered: Call, view: CatalogView) -> Plan | None:
        """None for what is no tool of a server. Raises `Fault` for what may be hidden."""
        catalog = self._catalog
        if entered.method != mcp.CALL or entered.server == names.OWN:
            if entered.kind == "methods" and catalog.hides(entered.server):
                message = "Access denied: the method may reach hidden items"
                raise Fault("ACCESS_DENIED", message, reach="not_sent")
            return None
        server_list = view.server_list(entered.server, "tools")
        if server_list is None and catalog.hides(entered.server):
            raise (view.fault(entered.server, "tools") or unlisted()).at(entered.server, entered.target)
        return of_tool(entered, server_list)

    def placed(self, fault: Fault, call: Call, written: str) -> Fault:
        """The fault with its place. What a client may not see has the name that it has `written` itself, if any."""
        shown = "" if call.kind == "tasks" else call.shown
        rules = self._access.rules(call.client.principal)
        if rules is None or fault.code != "ACCESS_DENIED" or fault.server:
            return fault.at(call.server, shown)
        server = call.server if rules.sees(call.server) else ""
        return fault.at(server, "" if not shown else shown if call.asked else written)

    # What a client may not do.

    def _denied(self, call: Call, route: Route, rules: Rules) -> Call | None:
        """What a call would be for somebody who may see everything, if its own client may not."""
        known = self._server_lists(call.client)

        def seen(server: str, kind: str) -> ServerList | None:
            return known(server, kind) if rules.sees(server) else None

        def seen_or_anything(server: str, kind: str) -> ServerList | None:
            return seen(server, kind) or anything()

        found = _found(call, route, seen)
        if isinstance(found, Fault):
            found = _found(call, route, known if found.code in NOT_FOUND else seen_or_anything)
        return found if isinstance(found, Call) and self._access.judge(found) == "off" else None


def missed(call: Call, fault: Fault, route: Route) -> Fault:
    """What is not found is counted and noted as any other call: by what is said of it somebody may guess names. The
    fault that its client gets."""
    return faults.missed(controls.aimed(call, fault), fault, route.hooks) if fault.code in NOT_FOUND else fault


def _entered(route: Route, call: Call, view: CatalogView) -> Call:
    """The call with its true target. What is in quarantine is found too: a policy says why it cannot be called."""
    try:
        return route.surface.enter(call, view)
    except Fault as fault:
        if fault.code == "TOOL_NOT_FOUND":
            with contextlib.suppress(Fault):
                return route.surface.enter(call, view.with_held())
        raise fault.at("", call.target) from None


def _found(call: Call, route: Route, server_lists: ServerLists) -> Call | Fault:
    try:
        entered = route.surface.enter(call, CatalogView(route.servers, server_lists, {}, ()))
    except Fault as fault:
        return fault.with_traceback(None)  # which holds the frame that will hold the fault
    return _as_permitted(entered, server_lists(entered.server, "tools"))


def _as_permitted(call: Call, server_list: ServerList | None) -> Call:
    """The call as far as permissions go by it."""
    if call.method != mcp.CALL or not server_list or call.server == names.OWN:
        return call
    own = server_list.changes[call.target].own if call.target in server_list.changes else call.target
    return msgspec.structs.replace(call, target=own, tool_info=tool_info.of(server_list, own))
