"""What tools' listings say that matters to calls of them: read once for each list that is kept.

The rule this file keeps: a listing that is out of shape somewhere says nothing there, and spoils nothing else.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.catalog.base import Shelf
from toolgate.core import jsonrpc
from toolgate.core.model import Hints, Mirror, Traits
from toolgate.eras import mirrors

log = logging.getLogger(__name__)

_TASK_SUPPORT = ("optional", "required")


def of(shelf: Shelf | None, tool: str) -> Traits | None:
    """The traits of a tool by its server's own name; None where it is not on this shelf."""
    raw = shelf.own.get(tool) if shelf else None
    if raw is None or shelf is None:
        return None
    known: dict[str, Traits] = shelf.memo.setdefault("traits", {})
    if tool not in known:
        known[tool] = _shown(read(raw), tool, shelf)
    return known[tool]


def mirrors_shown(shelf: Shelf, shown: str) -> tuple[Mirror, ...]:
    """The mirrored arguments of a tool as its callers know them."""
    known: dict[str, tuple[Mirror, ...]] = shelf.memo.setdefault("mirrors", {})
    if shown not in known:
        known[shown] = read(shelf.items[shown]).mirrors
    return known[shown]


def _shown(found: Traits, tool: str, shelf: Shelf) -> Traits:
    """With what callers know things by. A fault must not show them the server's own words instead."""
    if tool in shelf.held:
        found = msgspec.structs.replace(found, held=shelf.held[tool])
    for shown, change in shelf.changes.items():
        if change.own == tool:
            return msgspec.structs.replace(
                found,
                shown=shown,
                shown_schema=bytes(jsonrpc.members(shelf.items[shown]).get("inputSchema", b"")),
                parameters={own: name for name, own in change.renamed.items()},
            )
    return found


def read(raw: Raw) -> Traits:
    """What one listed tool says."""
    try:
        mirrored = mirrors.of_tool(raw)
    except mirrors.Invalid:
        mirrored = ()
    listed = jsonrpc.members(raw)
    support = _part(listed.get("execution"), dict[str, Any], {}).get("taskSupport")
    return Traits(
        schema=bytes(listed.get("inputSchema", b"")),
        listed=bytes(raw),
        mirrors=mirrored,
        task_support=support if support in _TASK_SUPPORT else "",
        hints=_part(listed.get("annotations"), Hints, Hints()),
        has_output="outputSchema" in listed,
    )


def _part(raw: Raw | None, type: Any, otherwise: Any) -> Any:
    try:
        return otherwise if raw is None else jsonrpc.read(raw, type=type)
    except jsonrpc.UNREADABLE:
        return otherwise
