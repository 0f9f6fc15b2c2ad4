"""Calls over HTTP that wait for nothing but their server's answer: no task works for them.

The rules this file keeps: it decides nothing, a call is begun and finished by the functions that any other goes
through (`ModernResponses`, `Session`, and `Gateway.begin` and `finish` below them); and what turns out to need more
than that (a question, something told, a fault, time, a client that leaves or is expelled) goes on in a task of its own
from where it is, with all that has happened so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Message
from toolgate.core.model import Done
from toolgate.eras import headers as era_headers
from toolgate.eras import legacy, modern
from toolgate.frontends import responses
from toolgate.frontends.active_requests import Unanswered
from toolgate.frontends.channels import Channel
from toolgate.frontends.guards import Guards, Request
from toolgate.frontends.modern import ModernResponses, ModernRound
from toolgate.frontends.session import InFlight, Session, SessionRound
from toolgate.frontends.sessions import Sessions
from toolgate.frontends.slots import Slot
from toolgate.frontends.streams import HeaderList, Receive, Send
from toolgate.gateway.round import Round

SWEEP = 0.1  # seconds between two looks at calls that take long
LARGE = 60 * 1024  # bytes of a result; what is larger may wait for its client
_JSON = ((b"content-type", b"application/json"),)

Rest = Callable[["LaneCall", Receive, Send], Awaitable[None]]


class LaneCall(InFlight):
    """One call."""

    size = 0  # as which it counts until it is answered
    begun: Any = None
    _round: Round | None = None
    _task: asyncio.Task[None] | None = None

    def __init__(self, lane: Lane, slot: Slot, request: Request, message: Message) -> None:
        self.request = request
        self.message = message
        self.slot = slot
        self._lane = lane

    @property
    def has_task(self) -> bool:
        return self._task is not None

    # What each era has its own of.

    def begin(self) -> Round | None:
        """None, and nothing is done, where it is not to be begun here. Raises `Fault`."""
        raise NotImplementedError

    def finish(self, id: bytes, done: Done) -> tuple[bytes, HeaderList]:
        """The response, and what headers it has beside the usual ones. Raises `Fault`."""
        raise NotImplementedError

    def failed(self, id: bytes, error: Exception) -> tuple[int, bytes, HeaderList]:
        """Status, response and headers."""
        raise NotImplementedError

    # What happens to it.

    def forget(self) -> None:
        """It is over: nothing that it holds is to hold it."""
        self._round = self.begun = None

    def starts(self, round: Round) -> bool:
        """Whether it waits for its server, and for nothing else."""
        self._round, sent = round, round.begun
        if self._task or not sent or not sent.is_sent or sent.exchange.ended:
            self.go_on()
            return False
        sent.exchange.on_change = self._changed
        self.slot.on_left = self.go_on
        return True

    def go_on(self) -> asyncio.Task[None]:
        if not self._task:
            self.leaves()
            self._task = self.slot.go_on(self._rest)
        return self._task

    def cancel(self) -> None:
        asyncio.get_running_loop().call_soon(self.go_on().cancel)  # when it has begun

    def leaves(self) -> None:
        """A task works for it from now on, or it is over."""
        self.slot.on_left = None
        if self._round and self._round.begun:
            self._round.begun.exchange.on_change = None
        self._lane.calls.discard(self)

    async def _rest(self, _scope: Any, receive: Receive, send: Send) -> None:
        await self._lane.rest(self, receive, send)

    def _changed(self) -> None:
        assert self._round and self._round.begun
        done = self._round.begun.exchange.outcome
        if not isinstance(done, Done) or len(memoryview(done.body)) > LARGE or not self.slot.can_answer():
            self.go_on()
            return
        self.slot.on_left = None
        self._lane.calls.discard(self)
        id = bytes(self.message.id)
        try:
            body, headers = self.finish(id, done)
            self._lane.answer(self, 200, body, headers)
        except Exception as error:  # noqa: BLE001  the rescue: see responses.rescued
            self._lane.answer(self, *self.failed(id, error))


class ModernCall(LaneCall):
    """`hears` is told where notes go, once a task works for it."""

    begun: ModernRound | None
    _note: Callable[[bytes], None] | None = None
    _early: tuple[bytes, ...] = ()

    def begin(self) -> Round | None:
        known, answers = self.request, self._lane.responses
        asked = answers.read(self.message, known.headers, known.principal, known.route, self.say, known.asked)
        known.asked = asked.asked if asked.asked.written else None
        self.begun = answers.begin(asked)
        return self.begun.round if self.begun else None

    def finish(self, id: bytes, done: Done) -> tuple[bytes, HeaderList]:
        assert self.begun
        return self._lane.responses.finish(self.begun, id, done), ()

    def failed(self, id: bytes, error: Exception) -> tuple[int, bytes, HeaderList]:
        return self._lane.failure(self.request, id, error)

    def say(self, message: bytes) -> None:
        if self._note:
            self._note(message)
        else:
            self._early += (message,)
            self.go_on()

    def hears(self, note: Callable[[bytes], None]) -> None:
        self._note = note
        for message in self._early:
            note(message)


class LegacyCall(LaneCall):
    begun: SessionRound | None
    session: Session | None = None
    channel: Channel | None = None

    def begin(self) -> Round | None:
        known, lane = self.request, self._lane
        id = known.headers.get(era_headers.SESSION)
        version = mcp.stated(known.headers.get(era_headers.VERSION))
        session = lane.sessions.get(id, known.principal) if id and version else None
        if not session or session.path != known.route.path:
            return None
        self.session = session
        self.channel = Channel(known.accepts_events, known.accepts_events, known.headers, session.rights)
        self.channel.on_message = self.go_on
        self.begun = session.begin(self.message, self.channel, self)
        return self.begun.round if self.begun else None

    def finish(self, id: bytes, done: Done) -> tuple[bytes, HeaderList]:
        assert self.session and self.begun
        return self.session.finish(id, self.begun, done), self._named()

    def failed(self, id: bytes, error: Exception) -> tuple[int, bytes, HeaderList]:
        body = responses.write_failed(id, error, lambda fault: legacy.error_code(fault, self.message.method))
        status, headers = self._lane.refusal(self.request, error) or (200, ())
        return status, body, (*headers, *self._named())

    def forget(self) -> None:
        self._round = self.begun = self.session = self.channel = None

    def _named(self) -> HeaderList:
        return ((b"mcp-session-id", self.session.id.encode()),) if self.session else ()


class Lane:
    """That of one frontend. `failure` and `refusal` are how it answers what fails, `rest` is its work for a call that
    goes on in a task."""

    def __init__(
        self,
        guards: Guards,
        answers: ModernResponses,
        sessions: Sessions,
        unanswered: Unanswered,
        clock: Clock,
        failure: Callable[[Request, bytes, BaseException], tuple[int, bytes, HeaderList]],
        refusal: Callable[[Request, BaseException | None], tuple[int, HeaderList] | None],
        rest: Rest,
    ) -> None:
        self.calls: set[LaneCall] = set()
        self.responses = answers
        self.sessions = sessions
        self.failure = failure
        self.refusal = refusal
        self.rest = rest
        self._guards = guards
        self._unanswered = unanswered
        self._clock = clock
        self._older: list[LaneCall] = []  # those that there were when it was last looked
        self._timer: Timer | None = None

    def begin(self, slot: Slot) -> bool:
        """Whether a request is a call that could be begun at once; else nothing is done."""
        known, body = slot.known, slot.came.body
        if known.principal.expires is not None or slot.came.varying:
            known = self._guards.known(slot.came)
        if not known or known.accepts_events_only or known.twice:
            return False
        try:
            message = jsonrpc.decode(body)
        except jsonrpc.Malformed:
            return False
        if message.method not in mcp.PLANNED or not message.id:
            return False
        is_modern = known.is_modern or modern.speaks_modern(known.headers.get(era_headers.VERSION), message.params)
        call = (ModernCall if is_modern else LegacyCall)(self, slot, known, message)
        whose = known.principal.counted_as
        try:
            call.size = self._unanswered.begun(whose, len(body))
        except Fault:
            return False  # which is told where any other is
        if slot.connection.principal is not known.principal:
            self._guards.came_on(slot.connection, known.principal)
        try:
            round = call.begin()
        except Fault:
            round = None
        except Exception as error:  # noqa: BLE001  the rescue: see responses.rescued
            self.answer(call, *call.failed(bytes(message.id), error))
            return True
        if not round and not call.has_task:
            self._unanswered.answered(whose, call.size)
            call.forget()
            return False
        if round and call.starts(round):
            self.calls.add(call)
            if not self._timer:
                self._timer = self._clock.call_later(SWEEP, self._sweep)
        return True

    def answer(self, call: LaneCall, status: int, body: bytes, headers: HeaderList) -> None:
        call.forget()
        self._unanswered.answered(call.request.principal.counted_as, call.size)
        if call.request.cors:
            headers = (*call.request.cors, *headers)
        if not call.slot.disconnected:
            call.slot.answer_whole(status, (*_JSON, *headers) if headers else _JSON, body)

    def _sweep(self) -> None:
        """A client that waits for long is told so, and its stream begins: that is a task's work."""
        self._timer = None
        for call in self._older:
            if call in self.calls:
                call.go_on()
        self._older = list(self.calls)
        if self._older:
            self._timer = self._clock.call_later(SWEEP, self._sweep)
