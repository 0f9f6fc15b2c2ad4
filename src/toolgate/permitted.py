"""What one client may see of a list: the part of a shelf that its rules permit, made once for all who have the same.

The rule this file keeps: where all of a shelf is permitted, it is that very shelf, so that nothing is kept twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Raw

from toolgate import traits
from toolgate.access import Rules
from toolgate.model import Hints
from toolgate.ports import Shelf
from toolgate.wire import jsonrpc

MOST_KEPT = 64  # of one shelf, for clients with different rules

_SILENT = Hints()


def shelf(whole: Shelf, server: str, kind: str, rules: Rules) -> Shelf:
    """What of a list of a server these rules permit."""
    found: Shelf | None = whole.memo.get(rules.print)
    if found is None:
        kept: list[str] = whole.memo.setdefault("permitted", [])
        if len(kept) >= MOST_KEPT:
            del whole.memo[kept.pop(0)]
        kept.append(rules.print)
        found = whole.memo[rules.print] = _permitted(whole, server, kind, rules)
    return found


def _permitted(whole: Shelf, server: str, kind: str, rules: Rules) -> Shelf:
    own = {name: whole.changes[name].own if name in whole.changes else name for name in whole.items}
    shown = {name: raw for name, raw in whole.items.items() if _is_permitted(whole, server, kind, own[name], rules)}
    with_held = whole.whole and shelf(whole.whole, server, kind, rules)
    if len(shown) == len(whole.items) and with_held is whole.whole:
        return whole
    return Shelf(
        shown,
        whole.fetched,
        whole.until,
        whole.is_public,
        listed={own[name]: whole.own[own[name]] for name in shown} if whole.is_overlaid else None,
        changes={name: change for name, change in whole.changes.items() if name in shown},
        held=whole.held,
        whole=with_held,
    )


def _is_permitted(whole: Shelf, server: str, kind: str, own: str, rules: Rules) -> bool:
    hints = _SILENT
    if rules.read_only and kind == "tools" and (said := traits.of(whole, own)):
        hints = said.hints
    return rules.verdict(server, kind, own, hints) != "off"


class _Everything(Mapping[str, Raw]):
    """Whatever is asked for."""

    def __getitem__(self, name: str) -> Raw:
        return jsonrpc.EMPTY_OBJECT

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def anything() -> Shelf:
    """A list that is not known, and must not be asked for: whatever is named may stand in it."""
    return Shelf(_Everything())
