"""Strategies: bytes, JSON as anybody may write it, and messages that are nearly what a door expects."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from toolgate.core import mcp

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=8), values, max_size=5)


@st.composite
def written(draw: st.DrawFn, what: st.SearchStrategy[Any]) -> bytes:
    """A JSON text of such a value, spaced and escaped in one way or another."""
    indent = draw(st.none() | st.integers(0, 3))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : "), (",\t", ":\r\n")]))
    text = json.dumps(draw(what), indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    return (draw(st.sampled_from(["", " ", "\n"])) + text + draw(st.sampled_from(["", " ", "\r\n"]))).encode()


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


METHODS = [*mcp.CALLS, *mcp.LISTS, *mcp.ASKS, *mcp.LIST_CHANGED, "initialize", "ping", "logging/setLevel", "nope", ""]
METHODS += ["notifications/cancelled", "notifications/progress", "notifications/message", "server/discover"]
TARGETS = ["greeter__greet", "greet", "greeter__count", "greeter+greeter://about", "letter", "2026-07-28", "debug"]

ids: st.SearchStrategy[Any] = st.integers(-2, 3) | st.integers() | st.text(max_size=3) | st.floats(0, 3) | values
words = st.sampled_from(TARGETS) | st.text(max_size=5)
meta = st.dictionaries(
    st.sampled_from(sorted(mcp.HOP_KEYS)) | st.text(max_size=5), words | ids | st.just({}) | values, max_size=4
)
envelope = st.fixed_dictionaries(
    {
        mcp.VERSION_KEY: st.sampled_from(mcp.dates("modern")),
        mcp.CAPABILITIES_KEY: st.sampled_from([{}, {"elicitation": {}}]),
    },
    optional={mcp.PROGRESS_KEY: ids, mcp.LOG_LEVEL_KEY: words},
)
params = st.fixed_dictionaries(
    {},
    optional={
        "name": words,
        "uri": words,
        "arguments": objects | values,
        "_meta": meta | envelope | values,
        "cursor": values,
        "level": words,
        "requestId": ids,
        "progressToken": ids,
        "protocolVersion": words,
        "capabilities": values,
        "requestState": words,
        "inputResponses": objects | values,
        "message": words,
    },
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": ids,
        "method": st.sampled_from(METHODS) | st.text(max_size=5),
        "params": params | values,
        "result": objects | values,
        "error": st.fixed_dictionaries({}, optional={"code": ids, "message": words, "data": values}) | values,
    },
)
requests = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": ids, "method": st.sampled_from(METHODS), "params": params}
)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Nearly right: a few bytes changed, left out or put in."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


bodies = (
    written(messages)
    | written(requests)
    | written(values)
    | st.binary(max_size=60)
    | damaged(written(requests))
    | st.lists(written(messages), max_size=3).map(lambda found: b"[" + b",".join(found) + b"]")
    | st.integers(1, 3000).map(lambda depth: b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * depth)
)
