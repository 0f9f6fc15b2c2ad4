"""One live connection to an MCP server: requests out, answers and notes in, and the server's own questions.

The rules this file keeps: an id is never used twice on a connection; every request ends (answer, fault, timeout,
cancellation, or the connection's own end); a question goes to the call that `attribution` names, or is declined.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.eras import calls, legacy
from toolgate.exchange import Exchange, Retry
from toolgate.model import Call, Client, Done, Event, Fault, NeedInput, Note, Outcome, Required
from toolgate.ports import Clock
from toolgate.upstreams.links.base import Headers, Link
from toolgate.upstreams.mcp.attribution import owner_of
from toolgate.upstreams.mcp.dialects import Dialect, Unknown
from toolgate.upstreams.mcp.questions import Questions, Request
from toolgate.upstreams.mcp.turns import Turns
from toolgate.wire import jsonrpc, mcp
from toolgate.wire.jsonrpc import Members, Message

log = logging.getLogger(__name__)

TELLING = 5.0  # seconds that a message which waits for nothing may take
MOST_PAGES = 1000  # of one list
GIVEN_UP = 10.0  # seconds in which a server may still ask for a call that was given up


class _Progress(msgspec.Struct):
    progressToken: int | str | None = None


class Connection:
    """`again` makes a call anew, for a modern server that wants its state back. `sole_owner`: it serves one client."""

    def __init__(
        self,
        server: Server,
        clock: Clock,
        again: Callable[[Call], Awaitable[Outcome]],
        on_event: Callable[[Event], None],
        on_closed: Callable[[Connection, Fault], None],
        sole_owner: bool,
    ) -> None:
        self.dialect: Dialect = Unknown()
        self.link: Link | None = None
        self.fault: Fault | None = None  # why it is over
        self.is_closing = False
        self.used = clock.now()
        self.asker = f"upstream:{server.id}"
        self._server = server
        self._clock = clock
        self._again = again
        self._on_event = on_event
        self._on_closed = on_closed
        self._ids = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self._given_up: dict[int, Request] = {}  # that the server may still work on
        self._turns = Turns(server.name, server.concurrency, clock)
        self._questions = Questions(server, sole_owner, self._requests, self._given_up, self._turns, self.notify)
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Connection {self._server.id} {self.dialect.revision or 'opening'} {len(self._requests)} in flight>"

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    # Requests of ours.

    async def invoke(self, call: Call) -> Outcome:
        """One leg of a call. Raises `Fault`."""
        if call.resumption and call.resumption.asker != self.asker:
            call = msgspec.structs.replace(call, resumption=None)  # answers and state that are somebody else's
        await self._turns.take(self._server.timeout)
        self.used = self._clock.now()
        id = next(self._ids)
        exchange = self._expect(id, call, self._server.timeout)
        try:
            params, headers = self.dialect.call(call, id)
            await self._send(id, call.method, params, headers)
        except BaseException:
            self._forget(id)
            exchange.cancel()
            raise
        self._questions.hand_over()
        return await exchange.next()

    async def ask_server(
        self, method: str, params: Members | bytes, headers: Headers = (), timeout: float | None = None
    ) -> Raw:
        """A request of the gateway's own; its result. Raises `Fault`."""
        id = next(self._ids)
        exchange = self._expect(id, None, timeout or self._server.timeout)
        try:
            await self._send(id, method, params, headers)
        except BaseException:
            self._forget(id)
            exchange.cancel()
            raise
        outcome = await exchange.next()
        assert isinstance(outcome, Done)
        return Raw(outcome.body)

    async def list(self, method: str, client: Client) -> tuple[Raw, ...]:
        """Every page of a list. Raises `Fault`."""
        kind = mcp.LISTS[method].kind
        items: list[Raw] = []
        seen: set[str | None] = set()
        cursor: str | None = None
        while cursor not in seen:
            seen.add(cursor)
            if len(seen) > MOST_PAGES:
                raise Fault("UPSTREAM_ERROR", f"The server's list of {kind} has no end", server=self._server.id)
            params, headers = self.dialect.listing(method, cursor, client)
            page = await self.ask_server(method, params, headers)
            found, cursor = _read_page(page, kind)
            items += found
            if cursor is None:
                break
        return tuple(items)

    def notify(self, message: bytes) -> None:
        """Send a message that waits for nothing; what becomes of it shows in what follows."""
        self._spawn(self.tell(message))

    async def tell(self, message: bytes) -> None:
        if not self.link or self.fault:
            return
        try:
            async with self._clock.timeout(TELLING):
                await self.link.send(message, self.dialect.other())
        except (Fault, TimeoutError) as error:
            log.info("%s could not be told: %s", self._server.name, error)

    def _expect(self, id: int, call: Call | None, timeout: float) -> Exchange:
        exchange = Exchange(self.asker, self._clock, timeout, lambda reason: self._cancel(id, reason))
        self._requests[id] = Request(exchange, call)
        return exchange

    async def _send(self, id: int, method: str, params: Members | bytes, headers: Headers) -> None:
        if self.fault or not self.link:
            raise self._gone()
        body = params if isinstance(params, bytes) else jsonrpc.encode(params)
        await self.link.send(jsonrpc.request(id, method, body), headers, id)

    def _gone(self) -> Fault:
        why = self.fault.message if self.fault else "it is not connected"
        return Fault("SESSION_ERROR", f"Server not started: {why}", server=self._server.id, reach="not_sent")

    def _cancel(self, id: int, reason: str) -> None:
        request = self._forget(id)
        if not request or not self.link:
            return
        self._given_up[id] = request
        self._clock.call_later(GIVEN_UP, lambda: self._given_up.pop(id, None))
        told = self.link.abandon(id)
        if request.call and not (told and self.dialect.closing_cancels):
            self.notify(legacy.cancelled(id, reason))

    def _forget(self, id: int) -> Request | None:
        request = self._requests.pop(id, None)
        if request and request.call:
            self._turns.give_back()
        return request

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What the link calls.

    def received(self, data: bytes, origin: int | None) -> None:
        try:
            message = jsonrpc.decode(data)
            if message.is_response:
                self._answered(message, origin)
            elif message.is_notification:
                self._notified(message)
            else:
                self._questions.asked(message, origin)
        except (jsonrpc.Malformed, *jsonrpc.UNREADABLE) as error:
            log.warning("%s sent a message out of shape: %s: %.200r", self._server.name, error, data[:200])

    def awaits(self, origin: int) -> bool:
        return origin in self._requests

    def failed(self, origin: int, fault: Fault) -> None:
        request = self._forget(origin)
        if request:
            request.exchange.fail(fault)

    def retired(self, fault: Fault) -> None:
        if not self.fault:
            self.fault = fault
            self._on_closed(self, fault)

    def closed(self, fault: Fault) -> None:
        self.retired(fault)
        self._questions.close()
        for id, request in list(self._requests.items()):
            self._forget(id)
            request.exchange.fail(fault.at(self._server.id, ""))

    async def close(self) -> None:
        self.is_closing = True
        reason = Fault(
            "SERVER_FAILED", f"{self._server.name} was stopped", server=self._server.id, reach="sent_unknown"
        )
        if self.link:
            await self.link.close()
        self.closed(reason)
        for task in list(self._tasks):
            task.cancel()

    def _answered(self, message: Message, origin: int | None) -> None:
        id = _own_id(message, origin)
        request = self._forget(id) if id is not None else None
        if not request:
            self._given_up.pop(id or 0, None)
            log.debug("%s answered a request that nobody waits for", self._server.name)
        elif message.error:
            request.exchange.fail(self._error(request.call, jsonrpc.read_error(message.error)))
        else:
            try:
                request.exchange.finish(self._outcome(request.call, message.result))
            except Fault as fault:
                request.exchange.fail(fault)

    def _error(self, call: Call | None, error: jsonrpc.RpcError) -> Fault:
        """The server's own error. That a resource is missing has another code in each era, so it is understood here."""
        is_missing = call and call.method == "resources/read" and error.code == self.dialect.resource_missing
        code = "RESOURCE_NOT_FOUND" if is_missing else "UPSTREAM_ERROR"
        return Fault(code, error.message, server=self._server.id, reach="executed", upstream=error)

    def _outcome(self, call: Call | None, body: Raw) -> Outcome:
        if call is None:
            return Done(body)
        if bytes(memoryview(body)[:1]) != b"{":
            raise Fault("UPSTREAM_ERROR", "The server's result is no JSON object", reach="executed")
        found = self.dialect.read(call, body)
        if isinstance(found, Required):
            return NeedInput(found.asks, Retry(self.asker, call, found, self._again, self._clock))
        return found

    def _notified(self, message: Message) -> None:
        changed = mcp.LIST_CHANGED.get(message.method)
        if changed:
            self._on_event(Event(self._server.id, "list_changed", changed))
        elif message.method == "notifications/progress":
            self._progress(message.params)
        elif message.method == "notifications/message":
            self._logged(message.params)
        elif message.method == "notifications/cancelled":
            self._questions.withdrawn(calls.read_cancelled(message))

    def _progress(self, params: Raw) -> None:
        token = msgspec.json.decode(params, type=_Progress).progressToken
        request = self._requests.get(token) if isinstance(token, int) else None
        if request and request.call and request.call.notes:
            rest = jsonrpc.members(params)
            del rest[mcp.PROGRESS_KEY]
            request.call.notes.put(Note("progress", Raw(jsonrpc.encode(rest))))

    def _logged(self, params: Raw) -> None:
        """A log line belongs to a call as a question does; where it is uncertain whose it is, nobody gets it."""
        owner = owner_of(None, self._requests, self._given_up.values())
        if owner and owner.call and owner.call.notes and params:
            owner.call.notes.put(Note("log", params))


def _read_page(page: Raw, kind: str) -> tuple[list[Raw], str | None]:
    try:
        found = jsonrpc.members(page)
        items = msgspec.json.decode(found.get(kind) or b"[]", type=list[Raw])
        return items, msgspec.json.decode(found.get("nextCursor") or b"null", type=str | None)
    except jsonrpc.UNREADABLE as error:
        raise Fault("UPSTREAM_ERROR", f"The server's list of {kind} is out of shape: {error}") from None


def _own_id(message: Message, origin: int | None) -> int | None:
    """The id of ours that a response is for. An error on a request's own stream is that request's, whatever id it has:
    servers that could not read it, or did not try, write null or one of their own."""
    if message.error and origin is not None:
        return origin
    id = jsonrpc.id_key(message.id) if message.id else None
    return id if isinstance(id, int) else None
