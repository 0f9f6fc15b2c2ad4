"""Tools that are functions in this process: what such a function gets, and how a set of them is described.

A function gets its arguments and a `InProcessContext`: through it, it reports progress and asks the client, as any
server may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.core import asks, jsonrpc
from toolgate.core.exchange import Exchange
from toolgate.core.model import Answer, Ask, Call, Note

Arguments = Mapping[str, Any]
Object = Mapping[str, Any]


class InProcessContext:
    """What a function may do besides returning: say how far it is, and ask."""

    def __init__(self, call: Call, exchange: Exchange) -> None:
        self.client = call.client
        self._call = call
        self._exchange = exchange

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        params = (
            {"progress": done}
            | ({"total": total} if total is not None else {})
            | ({"message": message} if message else {})
        )
        if self._call.notes and self._call.wants_progress:
            self._call.notes.put(Note("progress", Raw(jsonrpc.encode(params))))

    async def ask(self, method: str, params: Object) -> Answer:
        """Ask the client. The answer for one that cannot be asked is an error."""
        raw = Raw(jsonrpc.encode(params))
        ask = Ask("", method, raw)
        if not asks.is_answerable(ask, self.client.capabilities):
            return asks.undeclared(ask)
        return await self._exchange.ask(method, raw)


Work = Callable[[Arguments, InProcessContext], Awaitable[Object]]


class InProcessItem(msgspec.Struct, frozen=True):
    """One tool, resource, template or prompt: how it is listed, and what it does. A template may do nothing itself."""

    shown: Object
    work: Work | None = None


class InProcessTools(msgspec.Struct, frozen=True):
    """Entries by kind of list (`tools`, `resources`, …) and by name or URI."""

    entries: Mapping[str, Mapping[str, InProcessItem]]
    read: Callable[[str], Object | None] = lambda _uri: None  # a URI that a template made


def text(content: str, **more: Any) -> Object:
    """The result of a tool that says something."""
    return {"content": [{"type": "text", "text": content}], **more}
