"""The part of a list that the rules of a client permit.

The rules this file keeps: it is made once for all clients who have the same rules; where that is all of it, it is that
very list; and what there is no end to judge is off. It may be made in any thread.
"""

from __future__ import annotations

import logging

from msgspec import Raw

from toolgate.auth import uri_readings
from toolgate.auth.access import Rules
from toolgate.catalog import tool_info
from toolgate.catalog.base import ServerList
from toolgate.core import mcp
from toolgate.core.model import Hints
from toolgate.upstreams.bounds import LITTLE

log = logging.getLogger(__name__)

MOST_KEPT = 64  # of one list, for clients with different rules
MOST_JUDGED = 8 * 1024 * 1024  # characters that are looked at to judge one list: half a second

_SILENT = Hints()


def is_judged(whole: ServerList, rules: Rules) -> bool:
    return rules.print in whole.memo and (whole.whole is None or rules.print in whole.whole.memo)


def is_long(whole: ServerList, rules: Rules) -> bool:
    """Whether it may take so long to judge it for these rules that this is for a thread."""
    return whole.size > LITTLE and not is_judged(whole, rules)


def permitted(whole: ServerList, server: str, kind: str, rules: Rules) -> ServerList:
    """What of a list of a server these rules permit. It may be called in any thread."""
    found: ServerList | bool | None = whole.memo.get(rules.print)
    if found is None:
        kept: list[str] = whole.memo.setdefault("permitted", [])
        if len(kept) >= MOST_KEPT:
            whole.memo.pop(kept.pop(0), None)
        kept.append(rules.print)
        part = _filtered(whole, server, kind, rules)
        found = whole.memo[rules.print] = True if part is whole else part  # what holds itself is let go of late
    elif whole.whole:
        permitted(whole.whole, server, kind, rules)  # it may have been let go of since
    return whole if isinstance(found, bool) else found


def _filtered(whole: ServerList, server: str, kind: str, rules: Rules) -> ServerList:
    own = {name: whole.changes[name].own if name in whole.changes else name for name in whole.items}
    left = MOST_JUDGED
    shown: dict[str, Raw] = {}
    for name, raw in whole.items.items():
        left -= _work_of(kind, own[name])
        if left < 0:
            log.warning(
                "%s: the rest of its %s are off for a client, because their names are too long to check", server, kind
            )
            break
        if _is_permitted(whole, server, kind, own[name], rules):
            shown[name] = raw
    with_held = whole.whole and permitted(whole.whole, server, kind, rules)
    if len(shown) == len(whole.items) and with_held is whole.whole:
        return whole
    return ServerList(
        shown,
        whole.fetched,
        whole.until,
        whole.is_public,
        listed={own[name]: whole.own[own[name]] for name in shown} if whole.is_overlaid else None,
        changes={name: change for name, change in whole.changes.items() if name in shown},
        held=whole.held,
        whole=with_held,
    )


def _work_of(kind: str, name: str) -> int:
    """How many characters are looked at, in about, to judge something of this name."""
    if kind in mcp.BY_URI:
        return uri_readings.work_of(name)
    return len(name) * (1 if name.isascii() else uri_readings.WORK)


def _is_permitted(whole: ServerList, server: str, kind: str, own: str, rules: Rules) -> bool:
    hints = _SILENT
    if rules.read_only and kind == "tools" and (said := tool_info.of(whole, own)):
        hints = said.hints
    return rules.verdict(server, kind, own, hints) != "off"
