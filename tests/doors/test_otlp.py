"""Traces, metrics and logs, as a collector of OpenTelemetry gets them.

What is collected comes when the gateway ends: nothing here waits for a time."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from collector import Collector, attributes, collecting
from inmemory import ENVELOPE, MODERN, Refusal, Scripted, Visitor, gateway, said, tools

from toolgate.config import Config
from toolgate.config.access import KnownClient, Permissions
from toolgate.config.settings import Telemetry

KEY, SECRET = "tg-a-key-that-is-long-enough", "s3cret-word-of-a-server"
ANN = KnownClient(id="ann", name="ann", key=KEY, servers="all")
TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{ABOVE}-01"
CALL = "tools/call git__t"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


class Rig:
    """A gateway of one server, whose telemetry goes to a collector."""

    def __init__(self, collector: Collector, revision: str = MODERN, **settings: Any) -> None:
        self.server = Scripted(revision, tools_list=tools("t") | {"ttlMs": 0, "cacheScope": "private"})
        telemetry = Telemetry(endpoint=collector.url, **settings)
        self.config = Config(clients=(ANN,), telemetry=telemetry)
        self.server.answers["tools/call"] = said("x") | ({"resultType": "complete"} if revision == MODERN else {})

    def opened(self) -> Any:
        return gateway(scripts={"git": self.server}, config=self.config)

    async def call(self, app: Any, name: str = "git__t", headers: Any = {}, **meta: Any) -> Any:
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        return await ann.ask_modern(
            "tools/call", headers, name=name, _meta={**ENVELOPE, **meta}, arguments={"q": SECRET}
        )

    @property
    def sent(self) -> dict[str, Any]:
        """The `_meta` of the last call, as the server got it."""
        return self.server.requests[-1]["params"].get("_meta", {})


async def test_a_call_is_two_spans_of_its_clients_trace_by_the_names_of_the_conventions(collector: Collector) -> None:
    rig = Rig(collector)
    async with rig.opened() as app:
        await rig.call(app, traceparent=PARENT, tracestate="a=b")
    served, sent = collector.spans
    assert (served.name, sent.name) == ("tools/call t", "tools/call t")
    assert (served.kind, sent.kind) == (2, 3)  # server, client
    assert served.trace_id.hex() == sent.trace_id.hex() == TRACE
    assert served.parent_span_id.hex() == ABOVE
    assert sent.parent_span_id == served.span_id
    assert attributes(served.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": MODERN,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "t",
        "toolgate.server": "git",
        "toolgate.principal": "client:ann",
        "toolgate.outcome": "done",
    }
    assert attributes(sent.attributes)["network.transport"] == "pipe"
    (resource,) = {
        each.resource.SerializeToString() for body in collector.of("/v1/traces") for each in body.resource_spans
    }
    assert b"service.name" in resource and b"toolgate" in resource


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
async def test_the_trace_goes_on_at_the_server(collector: Collector, revision: str) -> None:
    rig = Rig(collector, revision)
    async with rig.opened() as app:
        for _ in range(3):  # the first by the long way, and others by a plan
            await rig.call(app, traceparent=PARENT, tracestate="a=b", baggage="c=d")
    _, sent = collector.spans[-2:]
    assert rig.sent["traceparent"] == f"00-{TRACE}-{sent.span_id.hex()}-01"
    assert (rig.sent["tracestate"], rig.sent["baggage"]) == ("a=b", "c=d")


async def test_the_context_of_the_headers_is_a_link_beside_that_of_the_request(collector: Collector) -> None:
    rig = Rig(collector)
    other = PARENT.replace("4bf9", "aaaa")
    async with rig.opened() as app:
        await rig.call(app, headers={"traceparent": other}, traceparent=PARENT)
        await rig.call(app, headers={"traceparent": other})
    both, _, alone, _ = collector.spans
    assert both.trace_id.hex() == TRACE
    assert [link.trace_id.hex() for link in both.links] == [other.split("-")[1]]
    assert alone.trace_id.hex() == other.split("-")[1] and not alone.links


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_clients_with_a_handshake_say_their_trace_in_headers_too(collector: Collector, revision: str) -> None:
    rig = Rig(collector)
    async with rig.opened() as app:
        ann = Visitor(app, authorization=f"Bearer {KEY}")
        await ann.initialize(revision)
        for number in range(3):
            message = {"jsonrpc": "2.0", "id": number + 10, "method": "tools/call"}
            message["params"] = {"name": "git__t", "arguments": {"q": SECRET}}
            assert (await ann.post(message, headers={"traceparent": PARENT.replace("4bf9", f"aaa{number}")})).result
    traces = [f"aaa{number}{TRACE[4:]}" for number in range(3)]
    assert [span.trace_id.hex() for span in collector.spans if span.name == CALL.replace("git__", "")][::2] == traces


@pytest.mark.parametrize("written", ["", "00-0-0-0", PARENT.upper(), f"00-{'0' * 32}-{ABOVE}-01", "x" * 10_000, 7, {}])
async def test_what_is_no_trace_context_begins_a_trace_of_its_own(collector: Collector, written: Any) -> None:
    rig = Rig(collector)
    async with rig.opened() as app:
        assert (await rig.call(app, traceparent=written)).result
    served, sent = collector.spans
    assert not served.parent_span_id and served.trace_id.hex() != TRACE
    assert rig.sent["traceparent"].startswith(f"00-{served.trace_id.hex()}-{sent.span_id.hex()}-")


def fails(_: Any) -> Any:
    raise Refusal(-32050, f"the word is {SECRET}")


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        (fails, "UPSTREAM_ERROR", "-32050"),
        ({**said("no"), "isError": True, "resultType": "complete"}, "tool_error", None),
    ],
    ids=["an error", "a tool that fails"],
)
async def test_what_fails_says_so_in_both_spans(collector: Collector, answer: Any, error: str, code: str) -> None:
    rig = Rig(collector)
    rig.server.answers["tools/call"] = answer
    async with rig.opened() as app:
        await rig.call(app)
    for span in collector.spans:
        assert attributes(span.attributes)["error.type"] == error
        assert attributes(span.attributes).get("rpc.response.status_code") == code
        assert span.status.code == 2  # error
        assert SECRET not in str(span)


async def test_what_is_refused_is_a_span_of_the_gateway_alone(collector: Collector) -> None:
    rig = Rig(collector)
    off = msgspec.structs.replace(ANN, permissions=Permissions(tools={"git__t": "off"}))
    rig.config = msgspec.structs.replace(rig.config, clients=(off,))
    async with rig.opened() as app:
        await rig.call(app)
    (served,) = collector.spans
    assert attributes(served.attributes)["error.type"] == "ACCESS_DENIED"
    assert served.status.message


async def test_no_name_that_a_client_makes_up_names_a_span_and_no_argument_is_in_one(collector: Collector) -> None:
    rig = Rig(collector)
    async with rig.opened() as app:
        app.redactor.learn([SECRET])
        await rig.call(app, name="made__up")
        await Visitor(app, authorization=f"Bearer {KEY}").ask_modern("resources/read", uri=f"made:///{SECRET}")
        await rig.call(app)
    assert {span.name for span in collector.spans} == {"tools/call", "resources/read", "tools/call t"}
    assert SECRET not in str(collector.received)


async def test_metrics_have_the_names_of_the_conventions(collector: Collector) -> None:
    rig = Rig(collector)
    async with rig.opened() as app:
        for _ in range(3):
            await rig.call(app)
    metrics = collector.metrics
    for name in ("mcp.server.operation.duration", "mcp.client.operation.duration"):
        assert metrics[name].unit == "s"
        (point,) = metrics[name].histogram.data_points
        assert (point.count, sum(point.bucket_counts)) == (3, 3)
        assert attributes(point.attributes) == {
            "mcp.method.name": "tools/call",
            "gen_ai.tool.name": "t",
            "toolgate.server": "git",
        }
    (calls,) = metrics["toolgate.calls"].sum.data_points
    assert calls.as_int == 3
    assert attributes(calls.attributes)["toolgate.principal"] == "client:ann"


async def test_the_log_is_sent_without_secrets(collector: Collector) -> None:
    rig = Rig(collector)
    async with rig.opened() as app:
        app.redactor.learn([SECRET])
        logging.getLogger("toolgate.test").warning("the word is %s", SECRET)
    (line,) = [line for line in collector.lines if line.body.string_value.startswith("the word is")]
    assert SECRET not in str(line)
    assert (line.severity_text, attributes(line.attributes)["logger"]) == ("WARNING", "toolgate.test")


async def test_what_is_not_wanted_is_not_sent(collector: Collector) -> None:
    rig = Rig(collector, traces=False, metrics=False, logs=False)
    async with rig.opened() as app:
        await rig.call(app, traceparent=PARENT)
    assert collector.received == []
    assert rig.sent["traceparent"] == PARENT


async def test_a_collector_that_is_not_there_keeps_no_call_waiting() -> None:
    with collecting() as gone:
        pass
    rig = Rig(gone)
    async with rig.opened() as app:
        assert (await rig.call(app)).result


async def test_without_the_extra_the_gateway_serves_and_says_what_to_install(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    rig = Rig(collector)
    async with rig.opened() as app:
        assert (await rig.call(app)).result
    assert "pip install 'toolgate[telemetry]'" in caplog.text
    assert collector.received == []
