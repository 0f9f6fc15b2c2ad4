"""Tools that are functions in this process: what such a function gets, and how a set of them is described.

A function gets its arguments and a `ToolContext`: through it, it reports progress, logs and asks the client, as any
server may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.bodies import Kept
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Accepted, Answer, Ask, Call, Client, Done, Outcome
from toolgate.core.notes import Note
from toolgate.upstreams.inprocess import relaying

Arguments = Mapping[str, Any]
Object = Mapping[str, Any]


class ToolContext:
    """What a function may do besides returning: say how far it is, log, and ask the client of its call."""

    def __init__(self, call: Call, exchange: Exchange) -> None:
        self.call = call
        self.client = call.client
        self._exchange = exchange

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        params = (
            {"progress": done}
            | ({"total": total} if total is not None else {})
            | ({"message": message} if message else {})
        )
        if self.call.notes and self.call.wants_progress:
            self.call.notes.put(Note("progress", Raw(jsonrpc.encode(params))))

    def log(self, level: str, said: Any, is_scrubbed: bool = False) -> None:
        """Send a log line of a level of `mcp.LOG_LEVELS`, where the client wants any."""
        if self.call.notes and (self.call.wants_logs or self.call.log_level):
            params = Raw(jsonrpc.encode({"level": level, "data": said}))
            self.call.notes.put(Note("log", params, is_scrubbed=is_scrubbed))

    async def ask(self, method: str, params: Object) -> Answer:
        """Ask the client. The answer for one that cannot be asked is an error."""
        raw = Raw(jsonrpc.encode(params))
        ask = Ask("", method, raw)
        if not asks.is_answerable(ask, self.client.capabilities):
            return asks.undeclared(ask)
        return await self._exchange.ask(method, raw)

    async def end_of(self, outcome: Outcome, waits: Callable[[bool], None]) -> Done | Accepted:
        """How a call that the function has made ends: what it asks is asked of this call's client. `waits` is told when
        a question begins and ceases to wait. Raises `Fault`."""
        return await relaying.to_the_end(outcome, self._exchange, waits)


class EncodedResult(msgspec.Struct, frozen=True):
    """A result that is JSON already, and what it counts as (`bodies`). `is_scrubbed`: whatever of others is in it was
    scrubbed where it came in, and the rest is its caller's own."""

    body: bytes
    kept: Kept | None = None
    is_scrubbed: bool = False


Result = Object | EncodedResult
Work = Callable[[Arguments, ToolContext], Awaitable[Result]]


class InProcessItem(msgspec.Struct, frozen=True):
    """One tool, resource, template or prompt: how it is listed, and what it does. A template may do nothing itself."""

    shown: Object
    work: Work | None = None


class InProcessTools(msgspec.Struct, frozen=True):
    """Entries by kind of list (`tools`, `resources`, …) and by name or URI."""

    entries: Mapping[str, Mapping[str, InProcessItem]] = {}
    read: Callable[[str], Object | None] = lambda _uri: None  # a URI that a template made
    roots_changed: Callable[[Client], object] = lambda _client: None
    left: Callable[[Client], object] = lambda _client: None  # its session is over

    async def answer(self, call: Call, exchange: Exchange) -> Result:
        """The result of a call. Raises `Fault`."""
        if call.reference:
            raise Fault("METHOD_NOT_FOUND", f"{call.server} does not support completion", reach="not_sent")
        entry = self.entries.get(call.kind, {}).get(call.target)
        if entry and entry.work:
            try:
                arguments = jsonrpc.read(call.arguments or b"{}", type=dict[str, Any])
            except jsonrpc.UNREADABLE as error:
                raise Fault("INVALID_ARGS", f"Invalid arguments: {error}") from None
            return await entry.work(arguments, ToolContext(call, exchange))
        made = self.read(call.target) if call.kind == "resources" else None
        if made is None:
            kind = mcp.KINDS[call.kind]
            raise Fault(kind.missing, f"{kind.noun} not found: {call.target}", reach="not_sent")
        return made


def text(content: str, **more: Any) -> Object:
    """The result of a tool that says something."""
    return {"content": [{"type": "text", "text": content}], **more}
