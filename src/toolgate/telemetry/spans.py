"""Spans, as OpenTelemetry's SDK has them: it is the only part of it that a call meets."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

from toolgate.telemetry import names
from toolgate.telemetry.trace_context import TraceContext

Attributes = Mapping[str, str]


def module(name: str) -> Any:
    """Of OpenTelemetry. Raises `ImportError` without the extra `telemetry`."""
    return importlib.import_module(f"opentelemetry.{name}")


class Tracer:
    """Of OpenTelemetry's SDK, which is loaded by who makes one."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._api = module("trace")
        self._kinds = {"server": self._api.SpanKind.SERVER, "client": self._api.SpanKind.CLIENT}

    def begin(
        self,
        name: str,
        kind: Literal["server", "client"],
        attributes: Attributes,
        parent: TraceContext | None,
        link: TraceContext | None = None,
    ) -> Span:
        api = self._api
        remote = self._remote(parent) if parent else api.INVALID_SPAN_CONTEXT
        above = api.set_span_in_context(api.NonRecordingSpan(remote))
        links = [api.Link(self._remote(link))] if link else None
        return Span(self._tracer.start_span(name, above, self._kinds[kind], attributes, links), api)

    def _remote(self, context: TraceContext) -> Any:
        flags = self._api.TraceFlags(context.flags)
        return self._api.SpanContext(context.trace, context.span, is_remote=True, trace_flags=flags)


class Span:
    """A part of a trace that has begun."""

    def __init__(self, span: Any, api: Any) -> None:
        self._span, self._api = span, api
        found = span.get_span_context()
        self.context = TraceContext(found.trace_id, found.span_id, int(found.trace_flags))

    def end(self, attributes: Attributes, error: str, why: str) -> None:
        """`error` is its type, empty where there is none; `why` is for people."""
        span = self._span
        if span.is_recording():
            span.set_attributes(attributes)
            if error:
                span.set_attribute(names.ERROR, error)
                span.set_status(self._api.Status(self._api.StatusCode.ERROR, why or None))
        span.end()
