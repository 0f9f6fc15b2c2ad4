"""JSON of others, read into plain values: texts, numbers, lists, dictionaries.

The rule this file keeps: Python reads the numbers. msgspec's own reader takes a thousand times as long for those near
the ends of what a double can hold, such as 1e300, as for others, and no other thread runs meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec


def number(written: str) -> float:
    """Raises `ValueError` for what no double can hold, which msgspec makes a `msgspec.DecodeError`."""
    found = float(written)
    if math.isinf(found):
        raise ValueError("Number out of range")
    return found


@lru_cache(maxsize=256)
def _reader(type: Any) -> Callable[[msgspec.Raw | bytes | str], Any]:
    return msgspec.json.Decoder(type, float_hook=number).decode


def read(data: msgspec.Raw | bytes | str, type: Any = Any) -> Any:
    """As `msgspec.json.decode`, and raises what that does: it refuses lone surrogates, which `jsonrpc.read` does not.
    A field of `type` that is a float and nothing else is still read by msgspec."""
    return _reader(type)(data)
