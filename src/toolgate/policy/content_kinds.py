"""What a text is, where that decides whether a part of it means anything: JSON and base64 are whole or nothing."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Literal, TypeAlias

from msgspec import Raw

from toolgate.core import counting, jsonrpc, surrogates
from toolgate.core.excerpts import Excerpt

Form: TypeAlias = Literal["json", "base64", ""]

_BEGINS_JSON = frozenset('{["-0123456789tfn')
_BASE64 = re.compile(r"(data:[^,]{0,200},)?[A-Za-z0-9+/_-]+={0,2}\s*")
_SHORTEST_BASE64 = 64
_MOST_JUDGED = 256 * 1024  # characters
_MOST_COMPARED = 1024 * 1024  # characters
_MOST_KEYS, _LONGEST_KEY = 10, 40  # that are named


def form(text: str) -> Form:
    if _is_json(text):
        return "json"
    return "base64" if _is_base64(text) else ""


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in _BEGINS_JSON:
        return False
    try:
        jsonrpc.read(surrogates.escaped(text.strip()), Raw)
        return True
    except jsonrpc.UNREADABLE:
        return False


def _is_base64(text: str) -> bool:
    """In one line, or in lines of one length. The beginning of a long one tells."""
    if len(text) > _MOST_JUDGED:
        text = text[: text.rfind("\n", 0, _MOST_JUDGED) + 1] or text[:_MOST_JUDGED]
    if len(text) < _SHORTEST_BASE64 or not text.strip() or " " in text:
        return False
    first, *others = text.split()
    if {len(line) for line in others[:-1]} - {len(first)}:
        return False
    is_wrapped = not others or len(others[-1]) <= len(first)
    return is_wrapped and _BASE64.fullmatch("".join((first, *others))) is not None


def is_parted(text: str, cut: Excerpt) -> bool:
    """Whether a cut by characters goes through a line that is whole or nothing."""
    return any(
        form(text[text.rfind("\n", 0, place) + 1 : end if (end := text.find("\n", place)) >= 0 else len(text)])
        for place in (cut.first, len(text) - cut.last)
        if 0 < place < len(text)
    )


def shape(text: str) -> str:
    """What a JSON text is, from above."""
    if counting.is_too_much(surrogates.escaped(text)):
        return "JSON with too many values to describe"
    try:
        keys = list(jsonrpc.members(surrogates.escaped(text)))
    except jsonrpc.UNREADABLE:
        return _of_other(text)
    named = ", ".join(key[:_LONGEST_KEY] for key in keys[:_MOST_KEYS])
    more = ", …" if len(keys) > _MOST_KEYS else ""
    return f"JSON object of {len(keys):,} members ({named}{more})" if keys else "JSON object"


def _of_other(text: str) -> str:
    try:
        return f"JSON array of {len(jsonrpc.read(surrogates.escaped(text), list[Raw])):,} items"
    except jsonrpc.UNREADABLE:
        return "JSON value"


def spelled(text: str) -> str | bytes:
    """What two texts have in common that are the same JSON, however it is written. A long one is as it is."""
    return (jsonrpc.spelled(text) if len(text) <= _MOST_COMPARED else None) or text


def from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
