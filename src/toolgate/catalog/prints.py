"""What of a listed tool is pinned: all that a client may show to a model, in one order and one spelling.

The rule this file keeps: a change of what is pinned makes another version (`PRINT`), and keeps what the one before
had pinned: existing pins hold, and are made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, names, plain

# What may differ from one list to the next. All else is pinned, members that MCP does not define too: some client may
# show them to a model.
UNPINNED = frozenset(("icons", "_meta", "execution"))
LONGEST_REMEMBERED = 64 * 1024  # bytes of a tool
PRINT = 1  # the version of what is pinned
# What was pinned by version 0: a pin of then holds for a tool that has all of this as it was, and is made anew.
PINNED_BEFORE = frozenset(("name", "title", "description", "inputSchema", "outputSchema", "annotations"))
_LITTLE = frozenset(("name", "inputSchema"))  # what says nothing else may be any tool


class Told(msgspec.Struct, frozen=True, gc=False):
    """What of a tool is pinned, in one order and one spelling; what was by version 0; and without its name, empty where
    it says nothing but that and a schema. `is_read`: it is JSON that says nothing twice; else it is as it is."""

    whole: str
    before: str
    rest: str
    is_read: bool


def told_of(raw: Raw | bytes) -> Told:
    try:
        found = _read(raw)
        told = found if UNPINNED.isdisjoint(found) else {key: found[key] for key in found if key not in UNPINNED}
        whole = _write(told)
        is_new = not told.keys() <= PINNED_BEFORE
        before = _write({key: each for key, each in told.items() if key in PINNED_BEFORE}) if is_new else whole
        return Told(whole, before, _rest_of(told, whole), True)
    except (ValueError, RecursionError):
        whole = bytes(raw).decode(errors="backslashreplace")
        rest = without_name(read_told(whole))
        return Told(whole, whole, json.dumps(rest) if rest else "", False)


def _rest_of(told: Mapping[str, Any], whole: str) -> str:
    """The same as to write it without the name, which takes as long once more."""
    if told.keys() <= _LITTLE:
        return ""
    name = told.get("name")
    written = f', "name": {_write(name)}' if isinstance(name, str) else ""
    if written and whole.count(written) == 1 and min(told) != "name":
        return whole.replace(written, "")
    return _write(without_name(told))


def without_name(told: Mapping[str, Any]) -> dict[str, Any]:
    """Empty for what says nothing but a name and a schema."""
    rest = {key: each for key, each in told.items() if key != "name"}
    return {} if rest.keys() <= _LITTLE else rest


def read_told(text: str) -> dict[str, Any]:
    """What was pinned; empty for what is not whole."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def print_of(server: str, listed: bytes) -> str:
    """A hash of a server's own (`server`) and of a tool as it is listed: what a person who allows it has allowed."""
    return (_remembered if len(listed) <= LONGEST_REMEMBERED else _print)(server, listed)


def _print(server: str, listed: bytes) -> str:
    told = [server, told_of(listed).whole]
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


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises `ValueError` for an object that says a thing twice: readers differ on it."""
    found = dict(members)
    if len(found) < len(members):
        raise ValueError
    return found


_decoder = json.JSONDecoder(object_pairs_hook=_unique)
_write = json.JSONEncoder(sort_keys=True, check_circular=False).encode  # what was read has no circle
_again = msgspec.json.Encoder().encode


def _read(raw: Raw | bytes) -> dict[str, Any]:
    """Raises `ValueError` or `RecursionError`."""
    found = _as_it_is_written(bytes(raw))
    if found is None:
        found = _decoder.decode(bytes(raw).decode("utf-8", "surrogatepass"))
    if not isinstance(found, dict):
        raise ValueError
    return cast("dict[str, Any]", found)


def _as_it_is_written(data: bytes) -> object:
    """What would be written just so, as most is, says nothing twice, and is read in a fifth of the time; None for all
    else."""
    try:
        found = plain.read(data)
        return found if _again(found) == data else None
    except (*jsonrpc.UNREADABLE, OverflowError):
        return None
