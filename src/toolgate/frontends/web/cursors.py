"""Where the next page of a long list begins, as a text: what stood last on the page before it. Nothing is kept for it,
and a list that changes meanwhile goes on behind that place.

Who has a cursor may do no more with it than without: whose list it is, and what of it somebody may see, is asked anew.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from toolgate.core import jsonrpc
from toolgate.core.fault import Fault

Cursor: TypeAlias = Annotated[
    str, Meta(description="`next_cursor` of the page before; empty: from the beginning", max_length=2000)
]


def made(place: msgspec.Struct) -> str:
    return msgspec.json.encode(place).decode()


def read(cursor: str, type: type[Any]) -> Any:
    """None for the beginning. Raises `Fault`."""
    try:
        return msgspec.json.decode(cursor, type=type) if cursor else None
    except jsonrpc.UNREADABLE:
        raise unknown() from None


def unknown(why: str = "it is none that was given for this list") -> Fault:
    hint = "Begin again without a cursor"
    return Fault("INVALID_ARGS", f"The cursor is not known: {why}", reach="not_sent", hint=hint)
