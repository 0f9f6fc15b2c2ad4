"""What of a listed tool is pinned: all that a client may show to a model, in one order and one spelling.

The rule this file keeps: a change of what is pinned makes another version (`PRINT`), and keeps what the one before
had pinned: existing pins hold, and are made anew.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any, cast

from msgspec import Raw

from toolgate.catalog import poisoning
from toolgate.catalog.poisoning import Pairs
from toolgate.core import jsonrpc, names

# What may differ from one list to the next. All else is pinned, members that MCP does not define too: some client may
# show them to a model.
UNPINNED = frozenset(("icons", "_meta", "execution"))
LONGEST_REMEMBERED = 64 * 1024  # bytes of a tool
PRINT = 1  # the version of what is pinned
# What was pinned by version 0: a pin of then holds for a tool that has all of this as it was, and is made anew.
PINNED_BEFORE = frozenset(("name", "title", "description", "inputSchema", "outputSchema", "annotations"))


def told_of(raw: Raw | bytes) -> tuple[str, str]:
    """What of a tool is pinned, in one order and one spelling; and what was by version 0."""
    try:
        told = {key: _plain(each) for key, each in _unique(poisoning.read(Raw(raw))) if key not in UNPINNED}
        whole = json.dumps(told)
        if told.keys() <= PINNED_BEFORE:
            return whole, whole
        return whole, json.dumps({key: each for key, each in told.items() if key in PINNED_BEFORE})
    except (ValueError, RecursionError):
        whole = bytes(raw).decode(errors="backslashreplace")
        return whole, whole


def print_of(server: str, listed: bytes) -> str:
    """A hash of a server's own (`server`) and of a tool as it is listed: what a person who allows it has allowed."""
    return (_remembered if len(listed) <= LONGEST_REMEMBERED else _print)(server, listed)


def _print(server: str, listed: bytes) -> str:
    told = [server, told_of(listed)[0]]
    told += [digest] if (digest := digest_of(listed)) else []
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def digest_of(listed: bytes) -> str:
    """The hash of the text that a tool runs, where it is listed with it; else empty."""
    try:
        found = jsonrpc.read(jsonrpc.members(listed).get("_meta", b"{}"), dict[str, Any]).get(names.DIGEST)
    except jsonrpc.UNREADABLE:
        return ""
    return found if isinstance(found, str) else ""


_remembered = lru_cache(maxsize=128)(_print)  # each holds what it is made of


def _unique(value: Any) -> list[tuple[str, Any]]:
    """The members of an object in order. Raises `ValueError` for one that says a thing twice: readers differ on it."""
    if not isinstance(value, Pairs) or len({key for key, _ in value}) < len(value):
        raise ValueError
    return sorted(value, key=lambda pair: pair[0])


def _plain(value: Any) -> Any:
    if isinstance(value, Pairs):
        return {key: _plain(each) for key, each in _unique(value)}
    return [_plain(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value
