"""When a list is looked at anew before a call goes by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from toolgate.auth.access import HARMLESS, Access, Rules
from toolgate.catalog.catalog import Catalog
from toolgate.catalog.views import CatalogView, Wanted
from toolgate.core import mcp, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, ToolInfo
from toolgate.gateway.snapshot import Route, Snapshot
from toolgate.policy.faults import NOT_FOUND

_BY_LISTS = NOT_FOUND | {"INVALID_ARGS", "HEADER_MISMATCH"}  # how lists refuse
_HARMLESS = ToolInfo(hints=HARMLESS)


class Doubts:
    """`current` is the snapshot that is served now."""

    def __init__(self, access: Access, catalog: Catalog, current: Callable[[], Snapshot]) -> None:
        self._access = access
        self._catalog = catalog
        self._current = current

    def lists(self, entered: Call | Fault, needs: Sequence[Wanted], call: Call, route: Route) -> Sequence[Wanted]:
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

    async def looked_at(
        self,
        wanted: Sequence[Wanted],
        needs: Sequence[Wanted],
        entered: Call | Fault,
        call: Call,
        route: Route,
        rules: Rules | None,
    ) -> CatalogView:
        """Lists as they are now. A call of what none of several servers has waits for one of them no longer than for
        all of them. Raises `Fault` where the one that it is about is not to be had."""
        is_anyones = isinstance(entered, Fault) and len({server for server, _ in needs}) > 1
        snapshot = self._current()
        patience = snapshot.list_timeout if is_anyones or len(wanted) > 1 else None
        view = await snapshot.catalog.view(
            route.servers, wanted, call.client, patience, rules=rules, anew=True, has_some=is_anyones
        )
        if len(wanted) == 1 and not is_anyones and (fault := view.fault(*wanted[0])):
            raise fault.at(wanted[0][0], "")
        return view
