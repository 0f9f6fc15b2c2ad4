"""What an item of a list says of itself: names and texts as values, schemas as the bytes that they are.

The rule this file keeps: an item that is out of shape somewhere says nothing there, and spoils nothing else.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc


class Item(msgspec.Struct, frozen=True):
    """The members that are read anywhere, by the protocol's own names."""

    name: str = ""
    uri: str = ""
    title: str = ""
    description: str = ""
    inputSchema: Raw = jsonrpc.NOTHING
    outputSchema: Raw = jsonrpc.NOTHING


_item = jsonrpc.Decoder(Item)


def read(raw: Raw) -> Item:
    try:
        return _item.decode(raw)
    except jsonrpc.UNREADABLE:
        return _of_what_can_be_read(raw)


def _of_what_can_be_read(raw: Raw) -> Item:
    try:
        members = jsonrpc.members(raw)
    except jsonrpc.UNREADABLE:
        return Item()
    schema, output = (members.get(key, jsonrpc.NOTHING) for key in ("inputSchema", "outputSchema"))
    name, uri, title, description = (_text(members.get(key)) for key in ("name", "uri", "title", "description"))
    return Item(name, uri, title, description, schema, output)


def _text(raw: Raw | None) -> str:
    try:
        return "" if raw is None else jsonrpc.read(raw, type=str)
    except jsonrpc.UNREADABLE:
        return ""
