"""One client that speaks and is spoken to over one pipe, whatever carries it: stdio, WebSocket, HTTP with SSE.

A request whose `_meta` is modern is answered alone; all others belong to the one session of this connection. The rule
this file keeps: everything that a client has begun here ends with its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolgate.core import jsonrpc, mcp
from toolgate.core.background import end_all
from toolgate.core.fault import Fault, let_go
from toolgate.core.jsonrpc import Malformed, Message
from toolgate.core.model import Principal
from toolgate.eras import calls, modern
from toolgate.frontends import batches, responses, ways
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.guards import LONGEST_BEGINNING, too_many_values
from toolgate.frontends.scheduling import TakeTurn, let_others_in
from toolgate.frontends.session import Session
from toolgate.frontends.unread import NOTES_KEPT
from toolgate.frontends.ways import Way

log = logging.getLogger(__name__)

LAST_WORDS = 3.0  # seconds for answers under way when the client has closed its end


def _nothing() -> None: ...


def _unread(_message: bytes) -> None: ...


def _no_bytes() -> int:
    return 0


class Conversation:
    """`session` is its own: it is for what is not modern, and ends with it.
    `write` gets each message that goes out, as it fits the `way`; `backlog` tells how many bytes the client has not
    taken yet. `hang_up` is called when the client has asked for the end. `in_order` makes what the requests of one
    batch take their turns by, where there are others who call."""

    can_ask = True
    headers: Mapping[str, str] = {}  # no request of its own carries any

    def __init__(
        self,
        deps: FrontendDeps,
        session: Session,
        way: Way,
        write: Callable[[bytes], None],
        backlog: Callable[[], int],
        hang_up: Callable[[], None] = _nothing,
        in_order: Callable[[], TakeTurn | None] = _nothing,
    ) -> None:
        self.session = session
        self.principal = session.client.principal  # who hears what is said here
        self.session.touch()  # it lasts: its questions are told apart from those of others from the start
        self.session.listen(self)
        self.way = way
        self._is_merged = not session.route.is_transparent
        self._gateway = deps.gateway
        self._modern = deps.modern
        self._limit = deps.config.http.body_limit
        self._unanswered = deps.unanswered
        self._clock = deps.clock
        self._write = write
        self._backlog = backlog
        self._hang_up = hang_up
        self._in_order = in_order
        self._in_flight: dict[str | int | float, asyncio.Task[None]] = {}
        self._answers: set[asyncio.Task[bytes]] = set()  # the session's
        self._expelled: set[asyncio.Task[Any]] = set()  # of these all, until they have ended

    # What goes out.

    def send(self, message: bytes) -> None:
        if message := self._fitting(message):
            self._write(message)

    def _fitting(self, message: bytes) -> bytes:
        return ways.fitting(jsonrpc.one_line(message), self.way, self._is_merged)

    def note(self, message: bytes) -> None:
        if self._backlog() < NOTES_KEPT:
            self.send(message)

    def end(self) -> None:
        """A request's end is its answer; the pipe ends with the connection."""

    def failed(self, error: Exception) -> None:
        """There is no status here that could say it."""

    # What comes in.

    @property
    def most_values(self) -> int:
        """How many JSON values a message may have: who carries it here has counted them."""
        return self._gateway.snapshot.config.most_values

    def received(self, data: bytes, is_shallow: bool = False) -> None:
        """One message, or a batch of them; it may be known that it is not nested too deep."""
        if message := self._read(data, is_shallow):
            self._heard(data, message)

    async def received_large(self, data: bytes, is_shallow: bool, take_turn: TakeTurn) -> None:
        """The same. To read it takes its time, and what comes meanwhile is heard before it."""
        if message := self._read(data, is_shallow):
            await let_others_in(take_turn)
            self._heard(data, message)

    def _read(self, data: bytes, is_shallow: bool) -> Message | None:
        if len(data) > self._limit:
            self.refuse_as_too_large(data)
            return None
        try:
            return jsonrpc.decode(data, is_shallow=is_shallow)
        except Malformed as error:
            self._received_other(data, error)
            let_go(error)
            return None

    def _heard(self, data: bytes, message: Message) -> None:
        if not message.is_request:  # what answers a question is taken whatever is under way
            self._told(message)
            return
        whose = self._whose
        try:
            kept = self._unanswered.begun(whose, len(data))
        except Fault as fault:
            self.send(responses.write_failed(bytes(message.id), fault, modern.error_code))
            return
        work = self._start(message) if modern.speaks_modern(None, message.params) else self._take(message, self._reply)
        if work:
            work.add_done_callback(lambda _done: self._unanswered.answered(whose, kept))
        else:
            self._unanswered.answered(whose, kept)

    @property
    def _whose(self) -> str:
        return self.session.client.principal.counted_as

    def refuse_as_too_large(self, beginning: bytes) -> None:
        """`beginning` is what is there of the message."""
        self._refuse_large(beginning, f"the limit is {self._limit} bytes (http.body_limit)")

    def refuse_as_too_many(self, data: bytes, most: int) -> None:
        """It has more than so many values."""
        self._refuse_large(data[:LONGEST_BEGINNING], too_many_values(most))

    def _refuse_large(self, beginning: bytes, why: str) -> None:
        id, is_answer = jsonrpc.salvaged(beginning)
        self._refuse(Malformed(jsonrpc.INVALID_REQUEST, f"Message too large: {why}", id, is_answer))

    def _refuse(self, error: Malformed) -> None:
        if error.is_answer:
            self.session.answered_unreadably(error)
        else:
            self.send(responses.write_malformed(error))

    def under_way(self) -> list[asyncio.Task[Any]]:
        """The work for what the client has asked; subscriptions do not end."""
        return [*(work for work in self._in_flight.values() if work.get_name() != mcp.LISTEN), *self._answers]

    def expel(self) -> None:
        """End all that is under way, and say so: its client would not be let in any more."""
        for work in (*self._in_flight.values(), *self._answers):
            self._expelled.add(work)
            work.add_done_callback(self._expelled.discard)
            work.cancel()

    async def finished(self) -> None:
        """Until what the client asked before is answered, or has had its time."""
        under_way = [*self._in_flight.values(), *self._answers]  # those of a client that is gone end as well
        if not under_way:
            return
        try:
            async with self._clock.timeout(LAST_WORDS):
                await asyncio.wait(under_way)
        except TimeoutError:
            log.info("the client disconnected; requests cancelled: %d", len(under_way))

    async def close(self) -> None:
        await end_all(self._in_flight.values())
        await self.session.close()
        self._write, self._hang_up = _unread, _nothing  # its carrier holds this, too: a reference cycle
        self._backlog = _no_bytes

    def _received_other(self, data: bytes, error: Malformed) -> None:
        try:
            batch = batches.read(data, self.session.agreed, error)
        except Malformed as refused:
            self._refuse(refused)
            return

        def whole(answers: Sequence[bytes]) -> None:
            """One that would be too long in one array comes by itself."""
            if kept:
                self._unanswered.answered(whose, kept)
            fitting = [self._fitting(each) for each in answers]
            joined = batches.joined(fitting)
            for each in [joined] if len(joined) <= self.way.longest else fitting:
                if each:
                    self._write(each)

        whose, gathered, turn = self._whose, batches.Gathered(whole), self._in_order()
        taken, kept = batches.begun(batch, lambda many: self._unanswered.begun(whose, len(data), many), gathered)
        for each in taken:
            if isinstance(each, Malformed) and each.is_answer:
                self._refuse(each)
            elif isinstance(each, Malformed):
                gathered.add(responses.write_malformed(each))
            elif each.is_request:
                self._take(each, gathered.expect(), turn)
            else:
                self._told(each)
        gathered.is_whole()

    def _told(self, message: Message) -> None:
        """What has no answer."""
        if message.is_response:
            self.session.answered(message)
        else:
            self._notified(message)

    def _take(
        self, message: Message, reply: Callable[[bytes], None], turn: TakeTurn | None = None
    ) -> asyncio.Task[bytes]:
        """A request of the session."""
        work = self.session.answer(message, self, turn)
        self._answers.add(work)
        id = bytes(message.id)  # of a message that may be large
        work.add_done_callback(lambda done: self._answered(done, id, reply))
        return work

    def _reply(self, answer: bytes) -> None:
        if answer:
            self.send(answer)

    def _answered(self, done: asyncio.Task[bytes], id: bytes, reply: Callable[[bytes], None]) -> None:
        self._answers.discard(done)
        if done.cancelled() and done in self._expelled:
            reply(responses.write_failed(id, _is_expelled(), modern.error_code))
        else:
            reply(b"" if done.cancelled() else done.result())
        if self.session.is_to_end:
            self._hang_up()

    def _notified(self, message: Message) -> None:
        self.session.notified(message)
        key = calls.read_cancelled(message, self._in_flight)
        if key is not None:
            self._in_flight[key].cancel()

    def _start(self, message: Message) -> asyncio.Task[None] | None:
        """A modern request; None where it is refused."""
        key = jsonrpc.id_key(message.id)
        if key in self._in_flight:
            self.send(responses.write_reused(message))
            return None
        if len(self._in_flight) >= responses.MOST_IN_FLIGHT:
            self.send(responses.write_too_many(message))
            return None
        task = asyncio.get_running_loop().create_task(
            self._answer(message, self.session.client.principal), name=message.method
        )
        self._in_flight[key] = task
        task.add_done_callback(lambda _done: self._in_flight.pop(key, None))
        return task

    async def _answer(self, message: Message, principal: Principal) -> None:
        try:
            reply = await self._modern.answer(message, None, principal, self.session.route, self.note, self.way)
        except asyncio.CancelledError:
            fault = _is_expelled() if asyncio.current_task() in self._expelled else self._gateway.given_up()
            if not fault:
                raise
            self.send(responses.write_failed(bytes(message.id), fault, modern.error_code))
            return
        except Exception as error:  # noqa: BLE001  the rescue: see responses.rescued
            self.send(responses.write_failed(bytes(message.id), error, modern.error_code))
            let_go(error)
            return
        self.send(jsonrpc.result(bytes(message.id), bytes(reply.body)))
        self._modern.flushed(reply)


def _is_expelled() -> Fault:
    return Fault("ACCESS_DENIED", "Access denied: this client was disabled or removed", reach="sent_unknown")
