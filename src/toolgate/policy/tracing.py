"""Spans: of each round of a call that a client makes, and of what is asked of its server for that.

The trace that a client says it is in goes on here, and at the server: the `_meta` of its request has it, or the headers
do; what is sent to the server has the span of what is asked of it in both. The rules this file keeps: without
a tracer nothing is changed; and no argument, result or session id is in a span.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from toolgate.config import Config
from toolgate.core import mcp, names
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import Call, Outcome
from toolgate.core.redaction import Redactor
from toolgate.policy.base import Passed, Policy
from toolgate.policy.endings import error_type, told
from toolgate.telemetry import names as told_as
from toolgate.telemetry import trace_context
from toolgate.telemetry.recorder import Recorder
from toolgate.telemetry.spans import Span
from toolgate.telemetry.trace_context import OURS, PARENT

LONGEST = 256  # characters of what is named from outside, or said of a refusal


class _Begun(msgspec.Struct):
    span: Span
    reached: Reached
    is_over: bool = False


class _Spans(Policy):
    """What both have: how a span is begun, and ends."""

    kind: Literal["server", "client"] = "server"

    def __init__(self, recorder: Recorder, redactor: Redactor) -> None:
        self._recorder = recorder
        self._redactor = redactor

    def _attributes(self, call: Call, method: str, target: str) -> dict[str, str]:
        attributes = {told_as.METHOD: method, told_as.SERVER: call.server, told_as.PRINCIPAL: call.client.principal.id}
        if method == mcp.CALL:
            attributes |= {told_as.OPERATION: told_as.EXECUTE_TOOL, told_as.TOOL: target, told_as.VIA: call.via}
        elif (kind := mcp.KINDS.get(call.kind)) and kind.attribute:
            attributes[kind.attribute] = self._redactor.text(call.target)[:LONGEST]
        return {name: value for name, value in attributes.items() if value}

    def _end(self, ticket: _Begun, ending: Outcome | BaseException, server: str) -> None:
        if ticket.is_over:
            return
        ticket.is_over = True
        _, outcome, code, reason, _ = told(ending, ticket.reached)
        error = error_type(outcome, code)
        attributes = {told_as.OUTCOME: outcome}
        if isinstance(ending, Fault):
            attributes[told_as.CODE] = str(ending.rpc)
        why = self._redactor.of(server).text(reason)[:LONGEST] if reason and error else ""
        ticket.span.end(attributes, error, why)


class ServerSpan(_Spans):
    name = "server-span"
    sees_misses = True

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Passed:
        tracer = self._recorder.tracer
        if not tracer:
            return call
        in_meta = trace_context.of_meta(call.meta)
        in_headers = trace_context.read(call.headers.get(PARENT)) if call.headers else None
        method, target = _named(call)
        span = tracer.begin(
            f"{method} {target}".rstrip(),
            "server",
            self._attributes(call, method, target) | _revision(call),
            in_meta or in_headers,
            in_headers if in_meta else None,
        )
        reached = call.reached or Reached()
        call = msgspec.structs.replace(call, reached=reached, meta=trace_context.in_meta(call.meta, span.context))
        return Passed(call, _Begun(span, reached))

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: _Begun | None) -> None:
        if ticket:
            self._end(ticket, ending, call.server)


class ClientSpan(_Spans):
    name = "client-span"

    def __init__(self, recorder: Recorder, redactor: Redactor, config: Config) -> None:
        super().__init__(recorder, redactor)
        self._transports = {each.id: "pipe" if each.type == "stdio" else "tcp" for each in config.servers}

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Call | Passed:
        tracer = self._recorder.tracer
        if not tracer or call.server == names.OWN:
            return call
        method, target = _named(call)
        attributes = self._attributes(call, method, target)
        if transport := self._transports.get(call.server):
            attributes[told_as.TRANSPORT] = transport
        parent = trace_context.of_meta(call.meta)
        span = tracer.begin(f"{method} {target}".rstrip(), "client", attributes, parent)
        meta, passed_on = trace_context.in_meta(call.meta, span.context), {**call.passed_on, OURS: str(span.context)}
        begun = _Begun(span, call.reached or Reached())
        return Passed(msgspec.structs.replace(call, meta=meta, passed_on=passed_on), begun)

    def after(self, call: Call, outcome: Outcome, ticket: _Begun | None) -> Outcome:
        if ticket:
            self._end(ticket, outcome, call.server)
        return outcome

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: _Begun | None) -> None:
        if ticket:
            self._end(ticket, ending, call.server)


def _named(call: Call) -> tuple[str, str]:
    """Its method, and its tool where that is listed: no name that a client has made up makes a span of its own kind."""
    method = call.method if call.method in mcp.METHODS else told_as.OTHER
    is_listed = method == mcp.CALL and (call.tool_info is not None or call.server == names.OWN)
    return method, call.target if is_listed else ""


def _revision(call: Call) -> dict[str, str]:
    revision = call.client.revision
    return {told_as.REVISION: revision.date} if revision else {}
