"""When a call is sent to its server a second time.

The rule this file keeps: at most once more, and only where nothing was sent the first time, or sending it twice does no
harm (behaviour.md 6.4); or where its server has changed the tool since it was listed, and other headers are to be sent.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from toolgate.catalog import tool_info
from toolgate.catalog.catalog import unlisted
from toolgate.core import mcp
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Outcome
from toolgate.gateway.snapshot import Snapshot
from toolgate.policy.quarantine import quarantined
from toolgate.surfaces import controls
from toolgate.upstreams.base import Upstream, rechecked
from toolgate.upstreams.links.refusals import HTTP_STATUS
from toolgate.upstreams.stopping import was_stopped


async def send_again(call: Call, upstream: Upstream, before: Fault, current: Callable[[], Snapshot]) -> Outcome:
    """A call that has failed with `before`, once more where that may be. `current` is the snapshot that is served now.
    Raises `Fault`; where it was not sent this time, the one before: the call has got as far as that."""
    if before.rpc == mcp.HEADER_MISMATCH and before.upstream and call.kind == "tools":
        again = await _looked_up_again(call, upstream, current())
        if call.tool_info and again.tool_info and again.tool_info.header_arguments == call.tool_info.header_arguments:
            raise before  # no other headers to send: for whatever else it said so, it may have executed the call
        call = again
    elif not _may_be_sent_again(call, before, current()):
        raise before
    try:
        return await upstream.invoke(await rechecked(call))
    except Fault as fault:
        if fault.reach == "not_sent" and before.reach != "not_sent":
            raise before from None
        raise


async def _looked_up_again(call: Call, upstream: Upstream, snapshot: Snapshot) -> Call:
    """A server that misses a header has changed its tool since it was listed (spec: "Client Behavior")."""
    catalog = snapshot.catalog
    catalog.changed(call.server, upstream.scope(call.client), ("tools",))
    view = await catalog.view({call.server: upstream.name}, [(call.server, "tools")], call.client)
    found = tool_info.of(view.server_list(call.server, "tools"), call.target)
    if found and found.held:
        raise quarantined(call, found.held)
    if not found and catalog.hides(call.server):
        raise unlisted()
    return msgspec.structs.replace(call, tool_info=found)


def _may_be_sent_again(call: Call, fault: Fault, snapshot: Snapshot) -> bool:
    if fault.code == "SESSION_ERROR":
        return fault.reach == "not_sent"
    if fault.code != "SERVER_FAILED" or fault.reach != "sent_unknown" or was_stopped(fault):
        return False
    status = fault.extra.get(HTTP_STATUS)
    if status and status < 500 and status != 404:
        return False  # it would be refused again
    if call.method != mcp.CALL or not call.tool_info:
        return call.method != mcp.CALL and call.kind != "methods"  # what such a method does is not known
    hints = call.tool_info.hints
    if hints.destructiveHint and not hints.idempotentHint:
        return False
    if hints.is_harmless_twice:
        return True
    is_crash = status is None  # and no answer of a server that is up
    return is_crash and hints.say_nothing and _insists(call) and _is_vital(call.server, snapshot)


def _insists(call: Call) -> bool:
    return call.asked is not None and controls.of(call).insists


def _is_vital(server: str, snapshot: Snapshot) -> bool:
    found = snapshot.servers.get(server)
    return found is not None and found.criticality == "vital"
