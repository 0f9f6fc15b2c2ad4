"""What a component answers, as a value or as the `Fault` that tells its reader what is wrong, and how to fix it.

The rule this file keeps: a result is the bytes that came, and a refusal shows what came in its place.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from toolgate.config import CatalogLimits, Server
from toolgate.core import counting, jsonrpc
from toolgate.core.fault import Fault
from toolgate.core.steps import InSteps
from toolgate.upstreams.bounds import too_many_bytes, too_many_items
from toolgate.upstreams.component import metadata
from toolgate.upstreams.component.metadata import Tools, shown
from toolgate.upstreams.links.refusals import credentials_hint, fault, moved_hint
from toolgate.upstreams.links.whole import HttpClient, Lost, WholeAnswer

MOST_SHOWN = 2000  # characters of an answer that is none


class _Result(msgspec.Struct):
    content: Raw


_result = jsonrpc.Decoder(_Result)


def result(answer: WholeAnswer, server: Server) -> bytes:
    """What a tool returned, as it was written. Raises `Fault`."""
    if answer.status != 200:
        raise _refused(answer, server, _hint(answer, server.url, server))
    try:
        answer.body.decode()  # the decoder skips over raw members without looking at their encoding
        if memoryview(_result.decode(answer.body).content)[0] != 0x5B:
            raise msgspec.ValidationError("content is not an array")
        if counting.is_deeper(answer.body, jsonrpc.DEEPEST):
            raise msgspec.ValidationError(f"it is nested more than {jsonrpc.DEEPEST} levels deep")
    except (UnicodeDecodeError, *jsonrpc.UNREADABLE) as error:
        hint = f"a component must answer POST with a JSON object that has an array `content`: {error}"
        raise _refused(answer, server, hint) from None
    return answer.body


def _refused(answer: WholeAnswer, server: Server, hint: str) -> Fault:
    """What is no result does not say whether the tool has run."""
    message = f"Tool execution failed (status {answer.status}): {shown(answer.body, server.id, MOST_SHOWN)}"
    return fault(server, message, "sent_unknown", "UPSTREAM_ERROR", hint)


def tools(answer: WholeAnswer, line: HttpClient, server: Server, limits: CatalogLimits) -> InSteps[Tools]:
    """What a component says of itself. Raises `Fault`."""
    if answer.status != 200:
        message = f"{line} answered GET with HTTP {answer.status}: {shown(answer.body, server.id)}"
        raise fault(server, message, "not_sent", hint=_hint(answer, line.url, server))
    if len(answer.body) > limits.bytes:
        raise too_many_bytes(server.id, "tools", limits.bytes)
    try:
        return (yield from metadata.read(answer.body, limits.items, server.id))
    except metadata.TooMany:
        raise too_many_items(server.id, "tools", limits.items) from None
    except metadata.NoTools as why:
        hint = "a component must answer GET with {name, description, inputSchema}, or with an array of such objects"
        message = f"{line} answered GET with an invalid tool: {why}"
        raise fault(server, message, "not_sent", "UPSTREAM_ERROR", hint) from None


def none(lost: Lost, server: Server) -> Fault:
    """Why there is none."""
    hint = ""
    if lost.reach == "not_sent" and ".spin.internal" in server.url:
        hint = "such names resolve only inside Spin: set component_url"
    elif lost.reach == "not_sent" and not server.command:
        hint = f"start it, or set a command for {server.name}"
    return fault(server, str(lost), "not_sent", hint=hint)


def _hint(answer: WholeAnswer, url: str, server: Server) -> str:
    return credentials_hint(answer.status) or moved_hint(answer.status, url, answer.location, server.id)
