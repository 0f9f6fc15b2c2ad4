"""W3C's trace context: what a traced request says of the trace that it belongs to, and of its own part in it.

The rule this file keeps: what a client wrote is a context only if it is one to the letter; anything else is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Raw

from toolgate.core import jsonrpc

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
OURS: Final = ":traceparent"  # among a call's headers for its server: ours, whatever a client's own one says
LONGEST_STATE = 512

_parent = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LONGEST = 128  # bytes of JSON in which one stands


class TraceContext(NamedTuple):
    trace: int
    span: int
    flags: int

    def __str__(self) -> str:
        """As `traceparent` has it."""
        return f"00-{self.trace:032x}-{self.span:016x}-{self.flags:02x}"


def read(written: str | None) -> TraceContext | None:
    found = _parent.fullmatch(written) if written else None
    if not found:
        return None
    context = TraceContext(*(int(part, 16) for part in found.groups()))
    return context if context.trace and context.span else None


def of_meta(meta: Mapping[str, Raw]) -> TraceContext | None:
    """That of a request's `_meta` (SEP-414)."""
    raw = meta.get(PARENT)
    if raw is None or memoryview(raw).nbytes > _LONGEST:
        return None
    try:
        return read(jsonrpc.read(raw, type=str))
    except jsonrpc.UNREADABLE:
        return None


def in_meta(meta: Mapping[str, Raw], context: TraceContext) -> dict[str, Raw]:
    """The same `_meta` with this context; what else a client says of its trace stays."""
    return {**meta, PARENT: Raw(b'"%s"' % str(context).encode())}
