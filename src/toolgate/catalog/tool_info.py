"""What tools' listings say that matters to calls of them: read once for each list that is kept.

The rule this file keeps: a listing that is out of shape somewhere says nothing there, and spoils nothing else.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.catalog.base import ServerList
from toolgate.core import jsonrpc
from toolgate.core.model import HeaderArgument, Hints, ToolInfo
from toolgate.eras import header_arguments

log = logging.getLogger(__name__)

_TASK_SUPPORT = ("optional", "required")


def of(server_list: ServerList | None, tool: str) -> ToolInfo | None:
    """The tool info of a tool by its server's own name; None where it is not on this list."""
    raw = server_list.own.get(tool) if server_list else None
    if raw is None or server_list is None:
        return None
    known: dict[str, ToolInfo] = server_list.memo.setdefault("tool_info", {})
    if tool not in known:
        known[tool] = _shown(read(raw), tool, server_list)
    return known[tool]


def header_arguments_shown(server_list: ServerList, shown: str) -> tuple[HeaderArgument, ...]:
    """The mirrored arguments of a tool as its callers know them."""
    known: dict[str, tuple[HeaderArgument, ...]] = server_list.memo.setdefault("header_arguments", {})
    if shown not in known:
        known[shown] = read(server_list.items[shown]).header_arguments
    return known[shown]


def _shown(found: ToolInfo, tool: str, server_list: ServerList) -> ToolInfo:
    """With what callers know things by. A fault must not show them the server's own words instead."""
    if tool in server_list.held:
        found = msgspec.structs.replace(found, held=server_list.held[tool])
    by_own: dict[str, str] | None = server_list.memo.get("shown_by_own")
    if by_own is None:
        first_wins = reversed(list(server_list.changes.items()))
        by_own = server_list.memo["shown_by_own"] = {change.own: shown for shown, change in first_wins}
    if (shown := by_own.get(tool)) is None:
        return found
    return msgspec.structs.replace(
        found,
        shown=shown,
        shown_schema=bytes(jsonrpc.members(server_list.items[shown]).get("inputSchema", b"")),
        parameters={own: name for name, own in server_list.changes[shown].renamed.items()},
    )


def read(raw: Raw) -> ToolInfo:
    """What one listed tool says."""
    try:
        mirrored = header_arguments.of_tool(raw)
    except header_arguments.Invalid:
        mirrored = ()
    listed = jsonrpc.members(raw)
    support = _part(listed.get("execution"), dict[str, Any], {}).get("taskSupport")
    return ToolInfo(
        schema=bytes(listed.get("inputSchema", b"")),
        listed=bytes(raw),
        header_arguments=mirrored,
        task_support=support if support in _TASK_SUPPORT else "",
        hints=_part(listed.get("annotations"), Hints, Hints()),
        has_output="outputSchema" in listed,
    )


def _part(raw: Raw | None, type: Any, otherwise: Any) -> Any:
    try:
        return otherwise if raw is None else jsonrpc.read(raw, type=type)
    except jsonrpc.UNREADABLE:
        return otherwise
