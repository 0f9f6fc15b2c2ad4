"""`subscriptions/listen` of revision 2026-07-28: what a client wants to hear, and what it is told.

Spec: basic/patterns/subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members


class Filter(NamedTuple):
    """What a client wants to hear (spec: basic/patterns/subscriptions, "Notification Filter"): members of
    `mcp.LIST_FILTERS`, and what it names, by the members of `mcp.WATCH_FILTERS`."""

    lists: tuple[str, ...]
    named: dict[str, list[str]]


def read_filter(params: Members, most: int) -> Filter:
    """The filter of `subscriptions/listen`, with so many names of a kind at most: of the first ones, since the rest is
    not read. Raises `Fault` INVALID_ARGS."""
    try:
        whole = jsonrpc.read(params.get("notifications") or b"null", type=_UNREAD)
        kept = {key: getattr(whole, key) for key in mcp.LIST_FILTERS}
        kept |= {key: getattr(whole, key)[:most] for key in mcp.WATCH_FILTERS}
        found = jsonrpc.read(jsonrpc.encode(kept), type=_FILTER)
    except jsonrpc.UNREADABLE as error:
        raise Fault("INVALID_ARGS", f"Invalid params: notifications: {error}") from None
    lists = tuple(key for key in mcp.LIST_FILTERS if getattr(found, key))
    return Filter(lists, {key: list(dict.fromkeys(getattr(found, key))) for key in mcp.WATCH_FILTERS})


def _filter(name: type) -> type[msgspec.Struct]:
    lists, watched = ((key, bool, False) for key in mcp.LIST_FILTERS), mcp.WATCH_FILTERS
    return msgspec.defstruct("Filter", [*lists, *((key, tuple[name, ...], ()) for key in watched)])


_UNREAD, _FILTER = _filter(Raw), _filter(str)


def write_told(id: bytes, method: str, params: Raw) -> bytes:
    """A notification of the subscription that the request `id` opened."""
    meta = jsonrpc.members(params).get("_meta", jsonrpc.EMPTY_OBJECT)
    return jsonrpc.notification(
        method, jsonrpc.with_members(params, {"_meta": jsonrpc.with_members(meta, {mcp.SUBSCRIPTION_KEY: id})})
    )


def write_acknowledged(id: bytes, honoured: Mapping[str, Any]) -> bytes:
    """What of a filter is honoured: the first message of a subscription."""
    return write_told(id, mcp.ACKNOWLEDGED, Raw(jsonrpc.encode({"notifications": honoured})))


def write_unsubscribed(id: bytes) -> bytes:
    """The result by which a subscription ends gracefully."""
    return b'{"resultType":"complete","_meta":{"%b":%b}}' % (mcp.SUBSCRIPTION_KEY.encode(), id)
