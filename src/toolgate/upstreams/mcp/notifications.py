"""What a server says unasked: what has changed, and the progress and the logs of calls.

The rule this file keeps: what belongs to a call goes to that call alone, and where it is uncertain whose it is, nobody
gets it. (What a connection's questions, tasks and subscriptions are told stands with them.)
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.jsonrpc import Message
from toolgate.core.model import Event, EventSink
from toolgate.core.notes import Note, Notes
from toolgate.eras import calls, tasks
from toolgate.upstreams.mcp.requests import Requests

LONGEST_URI = 16 * 1024  # characters of what is told of: each who listens looks whether that is watched


class _Progress(msgspec.Struct):
    progressToken: int | float | str | None = None


class Notifications:
    """`sole_owner`: the connection serves one client. `doubt` is told where it is not clear whose something is."""

    def __init__(
        self, requests: Requests, sole_owner: bool, on_event: EventSink, doubt: Callable[[], None] = lambda: None
    ) -> None:
        self._requests = requests
        self._server = requests.server.id
        self._sole_owner = sole_owner
        self._on_event = on_event
        self._doubt = doubt
        requests.handlers.update(dict.fromkeys(mcp.LIST_CHANGED, self._list_changed))
        requests.handlers[mcp.UPDATED] = self._updated
        requests.handlers[mcp.PROGRESSED] = self._progressed
        requests.handlers[mcp.LOGGED] = self._logged
        requests.on_other = self._said

    def _list_changed(self, message: Message, origin: int | None) -> Future[None] | None:
        return self._on_event(Event(self._server, "list_changed", lists=mcp.LIST_CHANGED[message.method]))

    def _updated(self, message: Message, origin: int | None) -> Future[None] | None:
        uri = calls.read_text(jsonrpc.members(message.params), "uri")
        if len(uri) > LONGEST_URI:
            return None
        return self._on_event(Event(self._server, "updated", uri=uri, params=calls.read_told(message.params)))

    def _progressed(self, message: Message, origin: int | None) -> None:
        token = jsonrpc.number_of(jsonrpc.read(message.params, type=_Progress).progressToken)
        if token is None:
            return
        self._requests.goes_on(token)
        if notes := self._notes_of(token):
            rest = jsonrpc.members(tasks.with_related(message.params, ""))
            del rest[mcp.PROGRESS_KEY]
            notes.put(Note("progress", Raw(jsonrpc.encode(rest))))

    def _notes_of(self, request: int) -> Notes | None:
        pending = self._requests.pending.get(request)
        return pending.call and pending.call.notes if pending else self._requests.reporting.notes(request)

    def _logged(self, message: Message, origin: int | None) -> Future[None] | None:
        """A log line belongs to a call as a question does. On a connection that is one client's own it is that client's
        in any case."""
        requests = self._requests
        if origin is not None and (stream := requests.pending.get(origin)) and not stream.call:
            origin = None  # a stream of the gateway's own, which is no call's
        task, params = tasks.related(message.params), tasks.with_related(message.params, "")
        owner = requests.askers.waiting_for(task) if task else requests.owner(origin)
        if owner and owner.call and owner.call.notes and params:
            owner.call.notes.put(Note("log", params))
        elif self._sole_owner and not requests.in_flight and params:
            return self._on_event(Event(self._server, "log", params=params))
        elif not task and origin is None:
            self._doubt()
        return None

    def _said(self, message: Message, origin: int | None) -> None:
        """By a method that MCP does not define."""
        owner = self._requests.owner(origin)
        if message.method not in mcp.NOTIFICATIONS and owner and owner.call and owner.call.notes:
            owner.call.notes.put(Note("other", message.params or jsonrpc.EMPTY_OBJECT, message.method))
