"""The header by which a server over HTTP joins the trace of a call."""

from __future__ import annotations

import msgspec

from toolgate.config import Server
from toolgate.core.model import Call, Client
from toolgate.telemetry.trace_context import OURS, PARENT
from toolgate.upstreams.mcp.dialects import passed_on

DOCS = Server(id="docs", name="docs", type="http", url="https://docs.example/mcp")
CALL = Call("tools/call", "t", Client())


def test_ours_is_sent_to_each_server() -> None:
    call = msgspec.structs.replace(CALL, passed_on={OURS: "00-1-2-01"})
    assert passed_on(DOCS, call) == [(b"traceparent", b"00-1-2-01")]


def test_that_of_a_client_is_sent_where_the_server_is_to_get_it_and_there_is_none_of_ours() -> None:
    call = msgspec.structs.replace(CALL, passed_on={PARENT: "of the client"})
    wants = msgspec.structs.replace(DOCS, forward_headers=(PARENT,))
    assert passed_on(DOCS, call) == []
    assert passed_on(wants, call) == [(b"traceparent", b"of the client")]
    ours = msgspec.structs.replace(call, passed_on={**call.passed_on, OURS: "00-1-2-01"})
    assert passed_on(wants, ours) == [(b"traceparent", b"00-1-2-01")]
