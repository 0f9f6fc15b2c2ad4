"""What a client may not call it finds all the same, so that policies refuse it; and what is not found they count."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from toolgate.auth.access import Access, Rules
from toolgate.catalog import tool_info
from toolgate.catalog.base import ServerList, anything
from toolgate.catalog.catalog import Catalog
from toolgate.catalog.permitted import is_long
from toolgate.catalog.views import CatalogView, Wanted
from toolgate.core import mcp, names
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client
from toolgate.gateway.snapshot import Route
from toolgate.policy import faults
from toolgate.policy.faults import NOT_FOUND
from toolgate.surfaces import controls

ServerLists = Callable[[str, str], ServerList | None]


def closed(call: Call, route: Route, rules: Rules, view: CatalogView, catalog: Catalog, access: Access) -> Call | None:
    """What a call would be for somebody who may see everything, if its own client, whose `view` this is, may not."""
    known = server_lists(catalog, call.client)

    def seen(server: str, kind: str) -> ServerList | None:
        return known(server, kind) if rules.sees(server) else None

    def seen_or_anything(server: str, kind: str) -> ServerList | None:
        return seen(server, kind) or anything()

    found = _found(call, route, seen, view.made)
    if isinstance(found, Fault):
        found = _found(call, route, known if found.code in NOT_FOUND else seen_or_anything, view.made)
    return found if isinstance(found, Call) and access.judge(found) == "off" else None


def missed(call: Call, fault: Fault, route: Route) -> Fault:
    """What is not found is counted and noted as any other call: by what is said of it somebody may guess names. The
    fault that its client gets."""
    return faults.missed(controls.aimed(call, fault), fault, route.hooks) if fault.code in NOT_FOUND else fault


def server_lists(catalog: Catalog, client: Client, rules: Rules | None = None) -> ServerLists:
    """Each list is looked up once: what they are for is decided at one moment. Without what is long and not judged for
    these rules."""
    found: dict[Wanted, ServerList | None] = {}

    def server_list(server: str, kind: str) -> ServerList | None:
        wanted = (server, kind)
        if wanted not in found:
            whole = catalog.known(server, kind, client)
            found[wanted] = None if whole and rules and is_long(whole, rules) else whole
        return found[wanted]

    return server_list


def _found(call: Call, route: Route, server_lists: ServerLists, made: Mapping[str, bool]) -> Call | Fault:
    view = CatalogView(route.servers, server_lists, {}, ())
    view.made = made
    try:
        entered = route.surface.enter(call, view)
    except Fault as fault:
        return fault.with_traceback(None)  # which holds the frame that will hold the fault
    return _as_permitted(entered, server_lists(entered.server, "tools"))


def _as_permitted(call: Call, server_list: ServerList | None) -> Call:
    """The call as far as permissions go by it."""
    if call.method != mcp.CALL or not server_list or call.server == names.OWN:
        return call
    own = server_list.changes[call.target].own if call.target in server_list.changes else call.target
    return msgspec.structs.replace(call, target=own, tool_info=tool_info.of(server_list, own))
