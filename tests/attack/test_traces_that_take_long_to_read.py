"""A client's trace context beyond what W3C has readers take goes to no server: libraries take seconds to read one, in
which a shared server serves nobody."""

from __future__ import annotations

import json

import pytest
from inmemory import LATEST, MODERN, Scripted, Visitor, gateway, said, tools

LONG = {"traceparent": "0" * 500, "tracestate": "a=" + "b" * 2000, "baggage": "a=" + "b" * 400_000}
SHORT = {"traceparent": f"00-{1:032x}-{1:016x}-01", "tracestate": "a=b", "baggage": "a=" + "b" * 8000}


@pytest.mark.parametrize("revision", [LATEST, MODERN])
async def test_a_long_trace_is_left_out_and_a_short_one_is_passed_on(revision: str) -> None:
    there = Scripted(revision, tools_list=tools("ping"), tools_call=said("pong"))
    async with gateway(scripts={"docs": there}) as app:
        visitor = Visitor(app, "/mcp")
        for meta in (LONG, SHORT):
            request = visitor.request("tools/call", name="docs__ping", arguments={}, _meta={**meta, "x": 1})
            assert (await visitor.post(request)).last["result"]
        first, second = (each["params"]["_meta"] for each in there.requests if each["method"] == "tools/call")
    assert "x" in first and not first.keys() & {"tracestate", "baggage"} and "0" * 500 not in json.dumps(first)
    assert SHORT.items() <= second.items()
