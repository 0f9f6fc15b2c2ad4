"""Calls over HTTP that wait for nothing but their server's answer: no task works for them.

The rules this file keeps: it decides nothing, a call is begun and finished by the functions that any other goes
through (`ModernResponses`, `Session`, and `Gateway.begin` and `finish` below them); and what turns out to need more
than that (a question, something told, a fault, time, a client that leaves or is expelled) goes on in a task of its own
from where it is, with all that has happened so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Message
from toolgate.core.model import Done
from toolgate.core.notes import Note
from toolgate.eras import calls, legacy, modern
from toolgate.eras import headers as era_headers
from toolgate.eras.calls import PlainCall
from toolgate.frontends import responses
from toolgate.frontends.active_requests import Unanswered
from toolgate.frontends.channels import Channel, Rights
from toolgate.frontends.guards import Guards, Request
from toolgate.frontends.modern import Asked, ModernResponses, ModernRound, report
from toolgate.frontends.modern import Request as ModernRequest
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

    def __init__(self, lane: Lane, slot: Slot, request: Request, id: bytes) -> None:
        self.size = 0  # as which it counts until it is answered
        self.request = request
        self.id = id
        self.slot = slot
        self._lane = lane
        self._round: Round | None = None
        self._task: asyncio.Task[None] | None = None

    @cached_property
    def message(self) -> Message:
        return jsonrpc.decode(self.slot.came.body)

    @property
    def has_task(self) -> bool:
        return self._task is not None

    # What each era has its own of.

    def begin(self) -> Round | None:
        """None, and nothing is done, where it is not to be begun here. Raises `Fault`."""
        raise NotImplementedError

    def begin_like(self, call: PlainCall) -> Round | None:
        """The same by what was found of one like it, if anything was."""
        raise NotImplementedError

    def finish(self, round: Round, done: Done) -> bytes:
        """The response. Raises `Fault`."""
        raise NotImplementedError

    def failed(self, error: Exception) -> tuple[int, bytes, HeaderList]:
        """Status, response, and headers beside the usual ones."""
        raise NotImplementedError

    def usual(self) -> HeaderList:
        """The headers of its response."""
        raise NotImplementedError

    # What happens to it.

    def forget(self) -> None:
        """It is over: nothing that it holds is to hold it."""
        self._round = None

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
        round, slot, lane = self._round, self.slot, self._lane
        assert round and round.begun
        done = round.begun.exchange.outcome
        if not isinstance(done, Done) or len(memoryview(done.body)) > LARGE or not slot.can_answer():
            self.go_on()
            return
        slot.on_left = None
        lane.calls.discard(self)
        try:
            body = self.finish(round, done)
            lane.answer(self, 200, body)
        except Exception as error:  # noqa: BLE001  the rescue: see responses.rescued
            lane.answer(self, *self.failed(error))


class ModernCall(LaneCall):
    """`hears` is told where notes go, once a task works for it."""

    _asked: Asked | None = None
    _note: Callable[[bytes], None] | None = None
    _early: tuple[bytes, ...] = ()

    @property
    def begun(self) -> ModernRound | None:
        """As it goes on."""
        if not self._round or not self._asked:
            return None
        known = self.request
        return ModernRound(
            ModernRequest(self.message, {}, self._asked, known.headers, known.route, self.say), self._round
        )

    def begin(self) -> Round | None:
        known, answers = self.request, self._lane.responses
        asked = answers.read(self.message, known.headers, known.principal, known.route, self.say, known.asked)
        self.slot.known.asked = asked.asked if asked.asked.written else None  # whatever else is another each time
        self._asked = asked.asked
        begun = answers.begin(asked)
        return begun.round if begun else None

    def begin_like(self, call: PlainCall) -> Round | None:
        known = self.request
        self._asked = asked = known.asked
        if not asked:
            return None
        return self._lane.responses.begin_like(asked, call, known.headers, known.route, self._hear)

    def finish(self, round: Round, done: Done) -> bytes:
        return self._lane.responses.finish(round, self.id, done)

    def failed(self, error: Exception) -> tuple[int, bytes, HeaderList]:
        return self._lane.failure(self.request, self.id, error)

    def usual(self) -> HeaderList:
        return (*self.request.cors, *_JSON) if self.request.cors else _JSON

    def _hear(self, note: Note) -> None:
        if begun := self.begun:
            report(begun.request, note)

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
    begun: SessionRound | None = None
    """`rights` are what its client may do as it is begun."""

    begun: SessionRound | None = None
    session: Session | None = None
    rights: Rights | None = None
    _channel: Channel | None = None

    def begin(self) -> Round | None:
        self.session = session = self._in_session()
        if not session:
            return None
        self._channel, self.rights = None, session.rights
        self.begun = session.begin(self.message, self.channel, self)
        return self.begun.round if self.begun else None

    def begin_like(self, call: PlainCall) -> Round | None:
        self.session = session = self._in_session()
        known = self.request
        if not session or not (found := session.memo(call, known.accepts_events, known.headers)):
            return None
        memo, self.rights = found
        self.begun = begun = session.begin_like(memo, call, known.route, self._say, self)
        return begun.round if begun else None

    def _in_session(self) -> Session | None:
        known = self.slot.known  # of all with this head
        if (named := known.named) is None:
            headers = known.headers
            version = mcp.stated(headers.get(era_headers.VERSION))
            named = known.named = headers.get(era_headers.SESSION, "") if version else ""
        session = self._lane.sessions.get(named, known.principal) if named else None
        return session if session and session.path == known.route.path else None

    @property
    def channel(self) -> Channel:
        """What its client hears beside the answer. Most calls need none."""
        if not (channel := self._channel):
            known, rights = self.request, self.rights or Rights()
            channel = Channel(known.accepts_events, known.accepts_events, known.headers, rights)
            channel.on_message = self.go_on
            self._channel = channel
        return channel

    def _say(self, note: bytes) -> None:
        self.channel.note(note)

    def finish(self, round: Round, done: Done) -> bytes:
        assert self.session and self.begun
        return self.session.finish(self.id, self.begun, done)

    def failed(self, error: Exception) -> tuple[int, bytes, HeaderList]:
        body = responses.write_failed(self.id, error, lambda fault: legacy.error_code(fault, self.message.method))
        status, headers = self._lane.refusal(self.request, error) or (200, ())
        return status, body, headers

    def usual(self) -> HeaderList:
        known = self.slot.known
        if not known.usual:  # which all with this head have: it names their session
            named = ((b"mcp-session-id", self.session.id.encode()),) if self.session else ()
            known.usual = (*known.cors, *_JSON, *named)
        return known.usual

    def forget(self) -> None:
        self._round = self.begun = self.session = self.rights = self._channel = None


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
        known, came = slot.known, slot.came
        if not known.is_whole or came.varying:
            known = self._guards.known(came)
            if not known or known.accepts_events_only or known.twice:
                return False
        body, message, is_modern = came.body, None, known.is_modern
        plain = calls.read_plain_call(body)
        if plain and (is_modern or not plain.params.meta):  # where only this says which era it is of
            id = b"%d" % plain.id
        else:
            plain = None
            try:
                message = jsonrpc.decode(body)
            except jsonrpc.Malformed:
                return False
            id = bytes(message.id)
            if message.method not in mcp.PLANNED or not id:
                return False
            is_modern = is_modern or modern.speaks_modern(known.headers.get(era_headers.VERSION), message.params)
        call = (ModernCall if is_modern else LegacyCall)(self, slot, known, id)
        if message:
            call.message = message
        principal = known.principal
        try:
            call.size = self._unanswered.begun(principal.counted_as, len(body))
        except Fault:
            return False  # which is told where any other is
        if slot.connection.principal is not principal:
            self._guards.came_on(slot.connection, principal)
        try:
            round = call.begin_like(plain) if plain else None
            if not round and not call.has_task:
                round = call.begin()
        except Fault:
            round = None
        except Exception as error:  # noqa: BLE001  the rescue: see responses.rescued
            self.answer(call, *call.failed(error))
            return True
        if round:
            if call.starts(round):
                self.calls.add(call)
                if not self._timer:
                    self._timer = self._clock.call_later(SWEEP, self._sweep)
        elif not call.has_task:
            self._unanswered.answered(principal.counted_as, call.size)
            call.forget()
            return False
        return True

    def answer(self, call: LaneCall, status: int, body: bytes, more: HeaderList = ()) -> None:
        slot, usual = call.slot, call.usual()
        call.forget()
        self._unanswered.answered(call.request.principal.counted_as, call.size)
        if not slot.disconnected:
            slot.answer_whole(status, (*usual, *more) if more else usual, body)

    def _sweep(self) -> None:
        """A client that waits for long is told so, and its stream begins: that is a task's work."""
        self._timer = None
        for call in self._older:
            if call in self.calls:
                call.go_on()
        self._older = list(self.calls)
        if self._older:
            self._timer = self._clock.call_later(SWEEP, self._sweep)
