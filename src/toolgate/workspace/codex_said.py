"""What Codex says, read no further than it is kept: a text to its first characters, an array to its first places.

The rule this file keeps: nothing is read as a whole whose length or number of values Codex chooses.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc
from toolgate.core.redaction import LONGEST_QUOTED

LONGEST_ID = 256  # characters of the id of a thread, a turn, an item
MOST_BYTES = 12  # of a character: a pair of escapes
_LONGEST_END = 12  # bytes that may have to be left out, so that no character is cut in two: a pair of escapes


def text(raw: Raw, most: int = LONGEST_QUOTED + 1) -> str:
    """Its first characters, so many or fewer by some at the end; empty for what is absent, and for `null`. Raises
    `jsonrpc.UNREADABLE` for what is no text. Without `most` so much as `excerpt` looks at."""
    whole = bytes(memoryview(raw)[: MOST_BYTES * most + 2]) if raw else b"null"
    if whole == b"null":
        return ""
    is_cut = len(raw) > len(whole)
    for end in range(_LONGEST_END if is_cut else 1):
        try:
            found = jsonrpc.read(whole[: len(whole) - end] + b'"' if is_cut else whole, str)[:most]
        except (UnicodeDecodeError, *jsonrpc.UNREADABLE):
            continue
        return found[:-1] if "\ud800" <= found[-1:] <= "\udbff" else found  # half a character
    raise msgspec.DecodeError("a text in it is none")


def identifier(raw: Raw) -> str:
    """An id, whole. Raises `jsonrpc.UNREADABLE` for one that is empty or too long."""
    found = text(raw)
    if not 0 < len(found) <= LONGEST_ID or len(raw) > MOST_BYTES * LONGEST_ID + 2:
        raise msgspec.DecodeError(f"an id in it has not 1 to {LONGEST_ID} characters")
    return found


def first(raw: Raw, most: int) -> list[Raw]:
    """Its first places; none of what is absent, and of `null`. Raises `jsonrpc.UNREADABLE` for what is no array."""
    if not raw or bytes(memoryview(raw)[:5]) == b"null":
        return []
    found: tuple[Raw, ...] = msgspec.structs.astuple(jsonrpc.read(raw, _places(most)))
    return [each for each in found if each]


@lru_cache
def _places(most: int) -> Any:
    """An array of so many places: what is behind them is passed over."""
    return msgspec.defstruct(
        "_Places", [(f"at_{place}", Raw, jsonrpc.NOTHING) for place in range(most)], array_like=True
    )
