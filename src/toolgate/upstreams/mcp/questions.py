"""The questions of a legacy server: placed with the call that they belong to, kept, or declined; each answered once.

The rule this file keeps: a question is never put to anybody else than its call's client, and the server gets an answer
to each, unless it withdraws it (architecture.md, "Whose question is it?").
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Raw

from toolgate import asks
from toolgate.config import Server
from toolgate.eras import legacy, tasks
from toolgate.exchange import Exchange
from toolgate.model import Answer, Ask, Call
from toolgate.upstreams.mcp.attribution import askers, heir_of, owner_of, waiting_for
from toolgate.upstreams.turns import Turns
from toolgate.wire import jsonrpc, mcp
from toolgate.wire.jsonrpc import Message

MOST_KEPT = 16  # questions that wait for the next call
MOST_ELICITATIONS = 1024  # pages that clients were sent to, and that may yet be reported as done with


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request of ours that waits for its answer; `call` is None for the gateway's own (lists, probes)."""

    exchange: Exchange
    call: Call | None
    is_long: bool = False  # it goes on until somebody ends it


class _Page(msgspec.Struct):
    elicitationId: str = ""


class _Required(msgspec.Struct):
    elicitations: list[_Page] = []


class Questions:
    """`in_flight` are the connection's requests by their ids, `given_up` those that the server may still work on.
    `sole_owner`: all calls of this connection are of one principal, so that a question may wait for the next."""

    def __init__(
        self,
        server: Server,
        sole_owner: bool,
        in_flight: Mapping[int, Request],
        given_up: Mapping[int, Request],
        turns: Turns,
        send: Callable[[bytes], None],
    ) -> None:
        self._server = server
        self._sole_owner = sole_owner
        self._in_flight = in_flight
        self._given_up = given_up
        self._turns = turns
        self._send = send
        self._open: dict[str | int | float, asyncio.Future[Answer]] = {}
        self._kept: list[tuple[Raw, Ask]] = []  # that came while nobody was in flight
        self._is_over = False
        self.elicitations: dict[str, tuple[str, str]] = {}  # whose client was sent to which page

    def asked(self, message: Message, origin: int | None) -> None:
        """A request of the server; `origin` is the request of ours on whose own stream it came."""
        if message.method == "ping":
            self._send(jsonrpc.result(message.id, b"{}"))
        elif message.method not in mcp.ASKS:
            self._send(jsonrpc.error(message.id, jsonrpc.METHOD_NOT_FOUND, f"Method not found: {message.method}"))
        elif message.method == "roots/list" and not self._sole_owner:
            self._send(jsonrpc.result(message.id, _configured_roots(self._server)))
        else:
            self._place(message.id, Ask("", message.method, message.params or jsonrpc.EMPTY_OBJECT), origin)

    def withdrawn(self, id: str | int | float | None) -> None:
        future = self._open.pop(id, None) if id is not None else None
        if future and not future.done():
            future.cancel()
        self._kept = [(raw, ask) for raw, ask in self._kept if jsonrpc.id_key(raw) != id]

    def hand_over(self) -> None:
        """A call is in flight: ask it what was kept."""
        kept, self._kept = self._kept, []
        for id, ask in kept:
            self._place(id, ask, None)

    def required(self, call: Call, data: Raw) -> None:
        """A call was refused until its client has visited some pages (-32042)."""
        try:
            found = jsonrpc.read(data or b"{}", type=_Required).elicitations
        except jsonrpc.UNREADABLE:
            return
        for page in found:
            self._sent_to(page.elicitationId, call)

    def _sent_to(self, elicitation: str, call: Call) -> None:
        if elicitation:
            self.elicitations[elicitation] = call.client.identity
            if len(self.elicitations) > MOST_ELICITATIONS:
                del self.elicitations[next(iter(self.elicitations))]

    def close(self) -> None:
        """The connection is over: nobody waits for answers any more."""
        self._is_over = True

    def _place(self, id: Raw, ask: Ask, origin: int | None) -> None:
        if task := tasks.related(ask.params):
            self._place_of_task(id, ask, task)
            return
        calls = askers(self._in_flight.values())
        owner = owner_of(origin, self._in_flight, self._given_up.values())
        if owner and owner.call:
            unsure = [each.exchange for each in calls if each is not owner] if origin is None else []
            self._put(id, ask, owner.exchange, owner.call, unsure)
        elif self._sole_owner and not calls and len(self._kept) < MOST_KEPT:
            self._kept.append((id, ask))
        else:
            self._decline(id, ask)
            if calls and origin is None:
                self._turns.limit = 1  # from now on it is certain whose question it is

    def _place_of_task(self, id: Raw, ask: Ask, task: str) -> None:
        """A task's question is for whoever waits for its result, and waits until somebody does."""
        owner = waiting_for(task, self._in_flight)
        if owner and owner.call:
            self._put(id, ask, owner.exchange, owner.call, [])
            return
        self._kept.append((id, ask))
        if len(self._kept) > MOST_KEPT:
            self._decline(*self._kept.pop(0))

    def _put(self, id: Raw, ask: Ask, exchange: Exchange, call: Call, others: Sequence[Exchange]) -> None:
        """Put a question to a call. `others` are the same client's calls that it may be of as well: their time stops
        too, and one of them takes it over if this call ends first."""
        if not asks.is_answerable(ask, call.client.capabilities):
            self._decline(id, ask)
            return
        if ask.method == "elicitation/create":
            self._sent_to(_read_page(ask.params), call)
        key = jsonrpc.id_key(id)
        task = tasks.related(ask.params)
        future = self._open[key] = exchange.ask(ask.method, ask.params)
        for other in others:
            other.pause()

        def answered(future: asyncio.Future[Answer]) -> None:
            for other in others:
                other.go_on()
            if self._open.pop(key, None) is None:
                return  # the server has withdrawn it
            if not future.cancelled():
                self._send(legacy.write_answer(id, _of_task(future.result(), task)))
            elif task and not self._is_over:
                self._place_of_task(id, ask, task)  # who waited for the task does no more; somebody may later
            elif others and (heir := heir_of(call, self._in_flight)) and heir.call:
                rest = [other for other in others if other is not heir.exchange]
                self._put(id, ask, heir.exchange, heir.call, rest)
            elif self._sole_owner and exchange.is_done and not self._is_over:
                self._kept.append((id, ask))  # a call that ended without the answer had not asked
            else:
                self._decline(id, ask)

        future.add_done_callback(answered)

    def _decline(self, id: Raw, ask: Ask) -> None:
        self._send(legacy.write_answer(id, _of_task(asks.declined(ask), tasks.related(ask.params))))


def _read_page(params: Raw) -> str:
    """The id of the page that a client is sent to; empty where there is none that anybody could report."""
    try:
        return jsonrpc.read(params, type=_Page).elicitationId
    except jsonrpc.UNREADABLE:
        return ""


def _of_task(answer: Answer, task: str) -> Answer:
    """The answer to a task's question says of which it is, in the server's words."""
    return answer if answer.error else Answer(result=tasks.with_related(answer.result, task))


def _configured_roots(server: Server) -> bytes:
    roots: list[Mapping[str, str]] = [
        {"uri": root.uri} | ({"name": root.name} if root.name else {}) for root in server.roots
    ]
    return jsonrpc.encode({"roots": roots})
