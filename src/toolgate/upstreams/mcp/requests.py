"""The requests of one connection to an MCP server: their ids, what is sent, what is pending, and the answers.

The rules this file keeps: an id is never used twice on a connection; every request ends (answer, fault, timeout,
cancellation, or the connection's own end). What the server says unasked is for those who have registered here.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.core import internal_errors, jsonrpc, large, mcp
from toolgate.core.bodies import FREE, Bodies, Body, Kept
from toolgate.core.clock import Clock
from toolgate.core.complaints import Complaints
from toolgate.core.exchange import Exchange, Part, Retry
from toolgate.core.fault import Fault, Reach, Reached, Words
from toolgate.core.jsonrpc import Members, Message, Params, PlainAnswer, RpcError
from toolgate.core.large import Whole
from toolgate.core.model import Accepted, Asker, Call, Client, Done, NeedInput, Outcome, Principal, Required
from toolgate.core.redaction import excerpt
from toolgate.eras import calls, legacy, listed, naming
from toolgate.upstreams.base import rechecked
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.concurrency import ConcurrencyLimit, busy
from toolgate.upstreams.links.base import Link
from toolgate.upstreams.mcp.attribution import Askers, OpenRequest, RunningTasks, Unsent, owner_of
from toolgate.upstreams.mcp.dialects import Dialect, Headers, Unknown, passed_on
from toolgate.upstreams.mcp.large_answers import LARGE, LargeAnswers
from toolgate.upstreams.mcp.large_notes import (
    LONGEST_NOTE,
    MOST_ESCAPES,
    MOST_VALUES,
    LargeNotes,
    answered,
    has_too_many_values,
    is_note,
)
from toolgate.upstreams.mcp.reporting import Reporting
from toolgate.upstreams.mcp.rotation import Rotation
from toolgate.upstreams.stopping import stopped

log = logging.getLogger(__name__)

MOST_PENDING_EVENTS = 64  # messages on their way, beyond which those that may be lost are
MOST_ANSWERS = 1024  # that are not sent yet, beyond which a server gets none to what it asks
LARGE_ANSWER = 64 * 1024  # bytes; of larger ones no more is taken while `MOST_UNSENT` bytes of answers wait
MOST_UNSENT = 32 * 1024 * 1024
TELLING = 5.0  # seconds that a message which waits for nothing may take
LONGEST_RESULT = 24 * 3600.0  # seconds for which a client may wait for the result of a task
SOON = 1.0  # seconds after which one may try again whose result was dropped
LARGEST_BATCH = 256 * 1024  # bytes: its messages are received at once, with no turn of anybody else between them
MOST_RENEWED = 3600.0  # seconds that a call may take beyond the time limit, as long as its server reports progress
LONGEST_FRAME = 1024  # bytes of what is known of how calls of a tool are written
MOST_FRAMES = 256
MOST_WISHED = 1024  # wishes for tasks that were given up, and may still be answered
GIVEN_UP = 10.0  # seconds in which a server may still ask for a call that was given up


Written: TypeAlias = tuple[bytes, bytes, Headers]
"""The parameters of a call before and behind its arguments, and the headers of its message."""

Handler: TypeAlias = Callable[[Message, int | None], asyncio.Future[None] | None]
"""Takes a message of the server; the number is the id of the request on whose own stream it came. May raise `Fault`."""


def _nobody(message: Message, origin: int | None) -> None:
    """Nobody has registered."""


class Requests:
    """`again` makes a call anew, for a modern server that wants its state back. `on_closed` is told why the connection
    is over, and whether that is the end of what is under way, too; `on_rest` each time that a call is over.

    What is built on requests registers itself: `handlers` take notifications, by method, and `on_other` the rest of
    them; `on_question` takes the server's own requests. `on_answer` are told of answers that say more than their
    outcome: errors, and those about tasks. `on_wait` are told of each call that waits because of `concurrency`;
    `on_sent` of each that is sent; `on_over` of each request that is answered (True), maybe after it was given up, or
    that is given up; `on_given_up` of the latter alone, with the reason; `on_late`
    of what was answered to a wish for a task that had been given up; `on_end` when nothing can come any more.
    """

    def __init__(
        self,
        server: Server,
        clock: Clock,
        again: Callable[[Call], Awaitable[Outcome]],
        on_closed: Callable[[Fault, bool], None],
        on_rest: Callable[[], None],
        complaints: Complaints | None = None,
        results: Bodies | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.server = server
        self.clock = clock
        self.asker = Asker("upstream", server.id, server.print)
        self.complaints = complaints or Complaints(clock)
        self.link: Link | None = None
        self.dialect: Dialect = Unknown()
        self.fault: Fault | None = None  # why it is over
        self.is_closing = False
        self.why_closed = ""  # see `stopped`
        self.used = clock.now()
        self.answered = float("-inf")  # when the server was last answered what it had asked
        self.pending: dict[int, OpenRequest] = {}
        self.given_up: dict[int, OpenRequest] = {}  # that the server may still work on
        self.askers, self.late_askers = Askers(self.pending), Askers(self.given_up)
        self.running = RunningTasks(clock)
        self._wished: dict[int, Client] = {}  # whose wishes for tasks were given up, by their ids
        self.reporting = Reporting()
        self.large_notes = LargeNotes()
        self.handlers: dict[str, Handler] = {}
        self.on_other: Handler = _nobody
        self.on_question: Handler = _nobody
        self.on_answer: list[Callable[[int, OpenRequest, Outcome | RpcError], None]] = []
        self.on_wait: list[Callable[[], None]] = []
        self.is_tried: Callable[[], bool] = lambda: False  # others wait for what becomes of the first call
        self.on_sent: list[Callable[[], None]] = []
        self.on_over: list[Callable[[int, bool], None]] = []
        self.on_given_up: list[Callable[[OpenRequest, str], None]] = []
        self.on_refused: list[Callable[[int], None]] = []
        self.on_end: list[Callable[[], None]] = []
        self.on_late: list[Callable[[Client, Raw], None]] = []
        self.on_rest = on_rest
        self._results = results or Bodies()
        self._kept: dict[int, Kept] = {}  # of large results, while they are read
        self._large = LargeAnswers()
        self.bounds = bounds or Bounds()
        self._again = again
        self._on_closed = on_closed
        self._ids = itertools.count(1)
        limit = server.concurrency
        self._frames: dict[tuple[str, bytes, bool], Written] = {}
        self._concurrency = ConcurrencyLimit(server.name, limit, clock) if limit is not None else None
        self._turns: Rotation | None = None  # where it was not clear whose a question is
        self._work: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()  # those of it that send a message
        self._answers: deque[bytes] = deque()  # to what the server asks, that are not sent yet
        self._unsent = 0  # bytes of them

    def __repr__(self) -> str:
        spoken = self.dialect.revision.date if self.dialect.revision else "opening"
        return f"<Requests {self.server.id} {spoken} {len(self.pending)} in flight>"

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answers."""
        return sum(request.call is not None for request in self.pending.values())

    @property
    def suspect(self) -> str:
        """Whose calls are all that the server may be at work on (`Client.blamed_as`); empty where they are of several,
        or of nobody's."""
        at_work = (*self.pending.values(), *self.given_up.values())
        whose = {request.call.client.blamed_as for request in at_work if request.call}
        return whose.pop() if len(whose) == 1 else ""

    @property
    def calls(self) -> int:
        """How many calls are under way here, parked ones and those that wait for their turn too. What is a part of
        something longer is not counted."""
        wholes = [each for each in self.pending.values() if each.call and not isinstance(each.exchange, Part)]
        return len(wholes) + sum(limit.waiting for limit in (self._concurrency, self._turns) if limit)

    def works_for_others(self, whose: Principal) -> bool:
        """Whether a call of anybody else is under way here, or waits for its turn."""
        calls = [each.call for each in self.pending.values() if each.call]
        return self._keeps_waiting(whose) or any(call.client.principal.id != whose.id for call in calls)

    def _keeps_waiting(self, whose: Principal) -> bool:
        limits = [limit for limit in (self._concurrency, self._turns) if limit]
        return any(limit.waiting > limit.waiting_of(whose.counted_as) for limit in limits)

    def goes_on(self, id: int) -> None:
        """The server reports progress with a call: that has its time anew, if nobody else waits until it is over, and
        its client would still be let in."""
        request = self.pending.get(id)
        call = request.call if request else None
        if not request or not call or not call.wants_progress or self.is_tried():
            return
        principal = call.client.principal
        is_over = principal.expires is not None and self.clock.wall() >= principal.expires
        if not is_over and not self._keeps_waiting(principal):
            request.exchange.renew()

    # Requests of ours.

    async def call(self, call: Call, whole: Exchange | None = None) -> Outcome:
        """One request for a call: for all of it, or as a part of something longer. Raises `Fault`."""
        request = self.begin_call(call, whole)
        if not request:
            if call.asked_in:
                self._check_relayed(call)
                if call.is_notification:
                    (call.reached or Reached()).is_sent = True
                    self.remark(jsonrpc.notification(call.method, jsonrpc.encode(calls.write_params(call, {}))))
                    return Done(b"{}")
            request = await self._begun_in_turn(call, whole)
        if request.unsent:
            await self.send(request)
        return await request.exchange.next()

    def begin_call(self, call: Call, whole: Exchange | None = None) -> OpenRequest | None:
        """The request for a call, sent if its carrier takes it now, else to be sent by `send`. None where its turn has
        to be waited for, and for what MCP does not define. Raises `Fault`."""
        if call.asked_in or ((self._turns or self._concurrency) and call.method not in mcp.TASKS):
            return None
        return self._open(next(self._ids), call, whole)

    async def send(self, request: OpenRequest) -> None:
        """One that is not sent yet. Raises `Fault`."""
        assert self.link and request.unsent
        request.exchange.be_timed()
        unsent, request.unsent = request.unsent, None
        try:
            await self.link.send(unsent.data, unsent.headers, unsent.id)
        except BaseException as error:
            self._not_sent(unsent.id, request, unsent.was_sent, error)
            raise
        request.is_sent = True
        for told in self.on_sent:
            told()

    async def _begun_in_turn(self, call: Call, whole: Exchange | None) -> OpenRequest:
        id, takes_turns = next(self._ids), bool(self._turns or self._concurrency) and call.method not in mcp.TASKS
        if takes_turns:
            await self._turn(id, call)
            try:
                call = await rechecked(call)
            except BaseException:
                self._asks_no_more(id)
                if self._concurrency:
                    self._concurrency.give_back(call.client.principal.counted_as)
                raise
        return self._open(id, call, whole)

    def _open(self, id: int, call: Call, whole: Exchange | None) -> OpenRequest:
        """The request for a call, sent or kept as one that is not sent yet. Raises `Fault`."""
        if call.resumption and call.resumption.asker != self.asker:
            call = msgspec.structs.replace(call, resumption=None)  # answers and state that are somebody else's
        self.used = now = self.clock.now()
        cancel, link = partial(self._cancel, id), self.link
        timeout = LONGEST_RESULT if call.method == mcp.TASK_RESULT else self.server.timeout
        if whole:
            exchange = Part(whole.asker, self.clock, timeout, cancel, now, MOST_RENEWED, whole=whole)
        else:
            exchange = Exchange(self.asker, self.clock, timeout, cancel, now, MOST_RENEWED)
        exchange.whose = call.client.principal.counted_as
        request = self.pending[id] = OpenRequest(exchange, call, False, link.signs_of_life if link else None)
        reached = call.reached
        was_sent = reached.is_sent if reached else False
        try:
            data, headers = self._message(id, call)
            if reached:
                reached.is_sent = True
            if self.fault or not link:
                raise self._gone()
            if not link.send_now(data, headers, id, call.client.principal.counted_as):
                request.unsent = Unsent(id, data, headers, was_sent)
                return request
        except BaseException as error:
            self._not_sent(id, request, was_sent, error)
            raise
        request.is_sent = True
        for told in self.on_sent:
            told()
        return request

    def begin_written(self, call: Call, written: Written) -> OpenRequest | None:
        """The same of a call like one that was `written`, but for its arguments. Whoever begins it holds the connection
        until it is over: `on_rest` does not hear of it. None where its turn has to be waited for, or there is no
        connection. Raises `Fault`."""
        link, reached = self.link, call.reached
        if not link or self.fault or not reached or self._turns or self._concurrency:
            return None
        before, after, headers = written
        id = next(self._ids)
        exchange = Exchange(self.asker, self.clock, self.server.timeout, partial(self._cancel, id), self.clock.now())
        exchange.whose = call.client.principal.counted_as
        request = self.pending[id] = OpenRequest(exchange, call, False, link.signs_of_life, is_held=True)
        was_sent, reached.is_sent = reached.is_sent, True
        data = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b%b%b}' % (id, before, call.arguments, after)
        try:
            request.is_sent = link.send_now(data, headers, id, call.client.principal.counted_as)
        except BaseException as error:
            self._not_sent(id, request, was_sent, error)
            raise
        if request.is_sent:
            for told in self.on_sent:
                told()
        else:
            request.unsent = Unsent(id, data, headers, was_sent)
        return request

    def _message(self, id: int, call: Call) -> tuple[bytes, Headers]:
        """The message of a call, and its headers. Raises `Fault`."""
        if not (written := self.written(call)):
            params, headers = self.dialect.call(call, id)
            headers = (*headers, *passed_on(self.server, call)) if call.passed_on else headers
            return jsonrpc.request(id, call.method, jsonrpc.encode(params)), headers
        before, after, headers = written
        start = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%b' % (id, before)
        return b"%b%b%b}" % (start, call.arguments, after), headers

    def written(self, call: Call) -> Written | None:
        """What calls of one tool have in common: they differ in their arguments, and most in nothing else. None for one
        that may say more."""
        told, info = bytes(call.client.told), call.tool_info
        says_more = call.extra or call.meta or call.task or call.resumption or call.volunteered or call.passed_on
        is_plain = call.method == mcp.CALL and call.arguments and not ((info and info.header_arguments) or says_more)
        is_plain = is_plain and not (call.wants_progress or call.log_level)
        is_plain = is_plain and bool(told or not call.client.capabilities)
        if not is_plain or len(call.target) + len(told) > LONGEST_FRAME:
            return None
        frame = self._frames.get((call.target, told, call.wants_logs))
        if not frame:
            params, headers = self.dialect.call(msgspec.structs.replace(call, arguments=Raw(_GAP)), 0)
            before, _, after = jsonrpc.encode(params).partition(_GAP)
            if len(self._frames) >= MOST_FRAMES:
                self._frames.clear()
            frame = self._frames[call.target, told, call.wants_logs] = before, after, headers
        return frame

    def _not_sent(self, id: int, request: OpenRequest, was_sent: bool, error: BaseException) -> None:
        if request.call and request.call.reached and isinstance(error, Fault) and error.reach == "not_sent":
            request.call.reached.is_sent = was_sent
        self._drop(id, request)

    def _check_relayed(self, call: Call) -> None:
        """Raises `Fault` for a method that MCP does not define where the server speaks another era than its client; and
        where it is a process that others use too and declares nothing but what we know: some die of any such method."""
        may_die = self.server.type == "stdio" and self.server.scope == "shared"
        is_same_era = self.dialect.revision and call.asked_in == self.dialect.revision.era
        if not is_same_era or (may_die and not mcp.declares_more(self.dialect.capabilities)):
            raise Fault("METHOD_NOT_FOUND", f"Method not found: {call.method}", reach="not_sent")

    def take_turns(self) -> None:
        """From now on clients take turns, so that it is clear whose a question is, until the server asks no more."""
        if not self._turns:
            self._turns = Rotation(self.clock)
            for id, request in (*self.pending.items(), *self.given_up.items()):
                if request.call and request.call.method not in mcp.TASKS:
                    self._turns.hold(id, request.call.client)

    def has_asked(self) -> None:
        """The server asks its clients something: where they take turns, they go on to."""
        if self._turns:
            self._turns.asked()

    def owner(self, origin: int | None) -> OpenRequest | None:
        """See `owner_of`."""
        return owner_of(origin, self.pending, self.askers, self.late_askers, self.running)

    def tasks_in_doubt(self) -> list[str] | None:
        """The tasks of other clients, some of them, that alone leave it open whose a question is that came on no stream
        of its own; None: there are none, or not they alone."""
        live = self.askers.whose()
        return self.running.of_others(live[0]) if len(live) == 1 else None

    def keeps_others_waiting(self, call: Call) -> bool:
        """Whether calls of other principals wait because of `concurrency`."""
        limit = self._concurrency
        return bool(limit and limit.waiting > limit.waiting_of(call.client.principal.counted_as))

    async def _turn(self, id: int, call: Call) -> None:
        """Wait for it, for as long as a call may take. Raises `Fault` TIMEOUT, not sent."""
        if self._turns and self._turns.is_over:
            self._turns = None
        whose = call.client.principal.counted_as
        try:
            async with self.clock.timeout(self.server.timeout):
                if self._turns:
                    await self._turns.take(id, call.client)
                if self._concurrency and not self._concurrency.take_now(whose):
                    for told in self.on_wait:
                        asyncio.get_running_loop().call_soon(told)  # when it waits
                    await self._concurrency.turn(whose)
        except TimeoutError:
            self._asks_no_more(id)
            raise busy(self.server.name) from None
        except BaseException:
            self._asks_no_more(id)
            raise

    async def ask(self, method: str, params: Members | bytes, headers: Headers, timeout: float | None = None) -> Raw:
        """A request of the gateway's own; its result. `timeout` in seconds, else the server's. Raises `Fault`."""
        _, exchange = await self._begin(method, params, headers, timeout or self.server.timeout)
        outcome = await exchange.next()
        assert isinstance(outcome, Done)
        return Raw(outcome.body)

    async def begin(self, method: str, params: Members | bytes, headers: Headers) -> tuple[int, Exchange]:
        """A request whose answer is its end; it has no time limit. Its id, and the end. Raises `Fault`."""
        return await self._begin(method, params, headers, None, is_long=True)

    async def _begin(
        self, method: str, params: Members | bytes, headers: Headers, timeout: float | None, is_long: bool = False
    ) -> tuple[int, Exchange]:
        id = next(self._ids)
        exchange = Exchange(self.asker, self.clock, timeout, partial(self._cancel, id), self.clock.now())
        request = self._expect(id, None, exchange, is_long)
        try:
            async with self.clock.timeout(timeout):
                await self._send(id, method, params, headers)
        except BaseException as error:
            self._drop(id, request)
            if isinstance(error, TimeoutError):
                raise busy(self.server.name) from None
            raise
        request.is_sent = True
        return id, request.exchange

    def _expect(self, id: int, call: Call | None, exchange: Exchange, is_long: bool = False) -> OpenRequest:
        request = OpenRequest(exchange, call, is_long, self.link.signs_of_life if self.link else None)
        self.pending[id] = request
        return request

    async def _send(self, id: int, method: str, params: Params | bytes, headers: Headers) -> None:
        if self.fault or not self.link:
            raise self._gone()
        body = params if isinstance(params, bytes) else jsonrpc.encode(params)
        await self.link.send(jsonrpc.request(id, method, body), headers, id)

    def _gone(self) -> Fault:
        if self.is_closing:
            return stopped(self.server.id, self.server.name, "not_sent", self.why_closed)
        why, words = (self.fault.message, self.fault.words) if self.fault else ("it is not connected", None)
        message = f"Server not started: {why}"
        words = words and Words(words.last, words.hint)  # which it said to another call
        return Fault("SESSION_ERROR", message, server=self.server.id, reach="not_sent", words=words)

    def _drop(self, id: int, request: OpenRequest) -> None:
        """It was not sent."""
        self._forget(id)
        self._asks_no_more(id)
        request.exchange.cancel()

    def _forget(self, id: int) -> OpenRequest | None:
        if self._kept:
            self._kept.pop(id, None)
        request = self.pending.pop(id, None)
        if request and request.call:
            if self._concurrency and request.call.method not in mcp.TASKS:
                self._concurrency.give_back(request.call.client.principal.counted_as)
            self.on_rest()
        return request

    def _cancel(self, id: int, reason: str) -> None:
        request = self._forget(id)
        if not request or not self.link:
            return
        self.given_up[id] = request.forgotten()
        if request.call and request.call.task:
            self._wished[id] = Client(request.call.client.principal, request.call.client.session)
            while len(self._wished) > MOST_WISHED:
                del self._wished[next(iter(self._wished))]
        self.clock.call_later(GIVEN_UP, lambda: self._asks_no_more(id))
        for told in self.on_given_up:
            told(request, reason)
        for told in self.on_over:
            told(id, False)
        is_told = self.link.abandon(id)
        if not request.is_sent:
            self._asks_no_more(id)  # and the sender is told
        elif (request.call or request.is_long) and not (is_told and self.dialect.closing_cancels):
            self.notify(legacy.cancelled(id, reason))

    def _over(self, id: int) -> None:
        """It is answered, or will never be."""
        for told in self.on_over:
            told(id, True)
        if self._turns:
            self._turns.over(id)

    def _asks_no_more(self, id: int) -> None:
        """No question which comes now is taken to be of it: it was never sent, is answered, or is so long over."""
        self.given_up.pop(id, None)
        if self._turns:
            self._turns.over(id)

    # Messages that have no answer.

    def notify(self, message: bytes) -> None:
        """Send a message that waits for nothing; what becomes of it shows in what follows."""
        telling = self.spawn(self.tell(message))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    def answer(self, message: bytes) -> None:
        """Send an answer to what the server has asked, after those before it."""
        self.answered = self.clock.now()
        is_taken = len(message) <= LARGE_ANSWER or self._unsent < MOST_UNSENT
        if is_taken and len(self._answers) < MOST_ANSWERS:
            self._answers.append(message)
            self._unsent += len(message)
            if len(self._answers) == 1:
                self.spawn(self._send_answers())

    async def _send_answers(self) -> None:
        try:
            while self._answers:
                await self.tell(self._answers[0], self.server.timeout)
                self._unsent -= len(self._answers.popleft())
        finally:
            self._answers.clear()  # whatever has ended this: the next answer begins anew
            self._unsent = 0

    def remark(self, message: bytes) -> None:
        """The same of what may be lost: where the server does not read, it is."""
        if len(self._telling) < MOST_PENDING_EVENTS:
            self.notify(message)

    async def tell(self, message: bytes, patience: float = TELLING) -> None:
        if not self.link or self.fault:
            return
        try:
            async with self.clock.timeout(patience):
                await self.link.send(message, self.dialect.other())
        except (Fault, TimeoutError) as error:
            log.info("could not notify %s: %s", self.server.name, error)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done that nobody waits for. It ends with the connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._worked)
        return task

    def _worked(self, task: asyncio.Task[None]) -> None:
        """The rescue of what nobody waits for."""
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if error and not isinstance(error, Fault) and internal_errors.takes(error):
            log.error("work for %s failed", self.server.name, exc_info=error)

    # What the link calls.

    def received(
        self, data: Whole, origin: int | None, read: tuple[Message, Raw] | None = None
    ) -> asyncio.Future[None] | None:
        """See `Receiver`. `read` is what came of it where it is a large answer or question, which is read elsewhere."""
        if len(data) > LARGE and not read:
            if len(data) > LONGEST_NOTE and (refused := self.large_notes.refused(data)):
                self._dropped(refused, len(data))
                return None
            answers = answered(data)
            if answers is not None and origin is not None and origin not in self.pending:
                return None  # nobody waits for it
            if answers is not None or not is_note(data):
                return self.spawn(self._read(data, origin, answers))
        is_small, data = len(data) <= LARGE, bytes(data)  # a copy of what is in a file only: a large note
        if is_small and not read and (answer := jsonrpc.read_plain_answer(data)) and self._takes(answer, origin):
            return None
        try:
            message, frame = read or (jsonrpc.decode(data), jsonrpc.NOTHING)
        except jsonrpc.Malformed as error:
            return self._misread(error, data, origin)
        try:
            if not message.method:
                self._answered(message, origin, frame)
            elif message.is_notification:
                return self._notified(message, origin, _as_written(data))
            else:
                self.on_question(message, origin)
        except (Fault, *jsonrpc.UNREADABLE) as error:
            id, only = (bytes(message.id), "method") if message.is_request else (b"null", "")
            self._misread(jsonrpc.Malformed(jsonrpc.INVALID_PARAMS, str(error), id, only=only), data, origin)
        return None

    def _read(self, data: Whole, origin: int | None, answers: bytes | None) -> Coroutine[Any, Any, None]:
        """From now on the answer has come. It is read in its client's turn; a question (None) in its server's."""
        is_answer = answers is not None
        request = self.pending.get(int(answers) if answers and answers.isdigit() and len(answers) < 16 else origin or 0)
        call = request.call if request and is_answer else None
        self._large.begin(origin if is_answer else None)
        whose = call.client.principal.counted_as if call else self.server.id
        return self._until_read(data, origin, is_answer, call, whose)

    async def _until_read(
        self, data: Whole, origin: int | None, is_answer: bool, call: Call | None, whose: str
    ) -> None:
        try:
            reading = large.sparing(data, jsonrpc.decoding(data, mcp.OF_RESULTS, server=self.server.id))
            read = await self.bounds.answers.looked_through(whose, len(data), reading)
            if call and read[0].result and (in_ours := naming.reader(call.method, self.dialect.revision)):
                result = await self.bounds.answers.looked_at(whose, len(data), partial(in_ours, read[0].result))
                read = msgspec.structs.replace(read[0], result=result), read[1]
            data = data[: LONGEST_NOTE + 1]  # in case that it is quoted; and it shows that it was too long for a note
            rest = self.received(data, origin, read)
        except jsonrpc.Malformed as error:
            rest = self._misread(error, data, origin)
        finally:
            self._large.end(origin if is_answer else None)
        if rest:
            await asyncio.wait((rest,))
        if is_answer and origin is not None and origin in self.pending and not self.is_closing:
            self._fail(origin, self._unreadable(ValueError("it answers another request")))

    def _notified(self, message: Message, origin: int | None, size: int) -> asyncio.Future[None] | None:
        """`size` is that of all of it, which whoever keeps a part of it keeps."""
        handler = self.handlers.get(message.method)
        if size > LONGEST_NOTE and not self.large_notes.has_passed:
            self._dropped(message.method, size)
        elif not handler:
            self.on_other(message, origin)
        elif has_too_many_values(message.params):
            self._dropped(message.method, size, f"{MOST_VALUES} values and {MOST_ESCAPES} escapes")
        elif size > listed.LONGEST_NUMBER and (why := listed.why_unparsable(bytes(message.params))):
            self._dropped(message.method, size, f"what all clients can read, and it has {why}")
        else:
            return handler(message, origin)
        return None

    def _dropped(self, method: str, size: int, limit: str = str(LONGEST_NOTE)) -> None:
        if self.complaints.takes(self.server.id):
            told = (self.server.name, excerpt(method, server=self.server.id), size, limit)
            log.warning("%s sent a %s of %d bytes; dropped, because the limit is %s", *told)

    def _batch(self, data: Whole) -> list[bytes]:
        """The messages of a batch, where it is one and the server's revision, as far as it is known, has them."""
        revision = self.dialect.revision
        may_be = len(data) <= LARGEST_BATCH and (not revision or revision.has_batches)
        found = jsonrpc.read_batch(bytes(data)) if may_be else None
        is_one = found and len(found) <= jsonrpc.LONGEST_BATCH and all(each[:1] == b"{" for each in found)
        return found if found and is_one else []

    def _misread(self, error: jsonrpc.Malformed, data: Whole, origin: int | None) -> asyncio.Future[None] | None:
        """Of a batch each message is received. Else whoever waits for an answer, we or the server, is told that there
        will be none."""
        if batch := self._batch(data):
            waited = [waiting for each in batch if (waiting := self.received(each, origin))]
            return asyncio.ensure_future(_all(waited)) if waited else None
        if self.complaints.takes(self.server.id):
            log.warning(
                "%s sent an invalid message: %s: %r",
                self.server.name,
                error,
                excerpt(data[: LONGEST_NOTE + 1], server=self.server.id),
            )
        if error.id != b"null" and error.only == "method":
            self.answer(jsonrpc.error(error.id, error.rpc, error.message))
        elif error.is_answer and (id := jsonrpc.number_of(jsonrpc.id_key(error.id))) and origin in (None, id):
            reach: Reach = "executed" if error.only == "result" else "sent_unknown"
            self._fail(id, self._unreadable(error, reach))
        return None

    def awaits(self, origin: int) -> bool:
        return origin in self.pending and origin not in self._large.answered

    def counts(self, origin: int) -> Body | None:
        """As what the answer to this call counts, in the share of its client."""
        request = self.pending.get(origin)
        if not request or not request.call:
            return None
        if origin not in self._kept:
            self._kept[origin] = self._counted(request.call)
        return self._kept[origin].body

    def _counted(self, call: Call) -> Kept:
        return Kept(self._results.begun(call.client.principal.counted_as, self.server.id))

    def failed(self, origin: int, fault: Fault) -> None:
        if origin not in self._large.answered:
            self._fail(origin, fault)

    def _fail(self, origin: int, fault: Fault) -> None:
        request = self._forget(origin)
        if request:
            self._over(origin)
            request.exchange.fail(fault)

    def refused(self, origin: int) -> None:
        for told in self.on_refused:
            told(origin)

    def retired(self, fault: Fault) -> None:
        self._end(fault, is_dead=False)

    def closed(self, fault: Fault) -> None:
        self._end(fault, is_dead=True)
        if not self.is_closing and self._large.waits(lambda: self.closed(fault)):
            return
        for told in self.on_end:
            told()
        for id, request in list(self.pending.items()):
            self._forget(id)
            request.exchange.fail(fault.at(self.server.id, ""))
        if self._turns:
            self._turns.end()

    def _end(self, fault: Fault, is_dead: bool) -> None:
        if not self.fault:
            self.fault = fault
            self._on_closed(fault, is_dead)

    async def close(self, why: str = "") -> None:
        """End it for good. What is under way fails at once; this returns when all that the link holds is gone."""
        self.is_closing, self.why_closed = True, why
        self.closed(stopped(self.server.id, self.server.name, "sent_unknown", why))
        for task in list(self._work):
            task.cancel()
        if self.link:
            await self.link.close()

    # Answers.

    def _takes(self, answer: PlainAnswer, origin: int | None) -> bool:
        """Whether this is the result of a call, and all that there is to it; else nothing is done."""
        id, body = answer.id, answer.result
        request = self.pending.get(id)
        if not request or not (call := request.call) or (origin is not None and origin != id):
            return False
        said = memoryview(body)
        if said[0] != 0x7B or len(said) > FREE or self.on_over or self._turns or self._kept or call.method in mcp.TASKS:
            return False
        if len(said) >= jsonrpc.LEAST_OF_MANY and jsonrpc.has_many_members(body):  # most calls do not pass it
            return False  # which is told where any other is
        try:
            outcome = self.dialect.read(call, body)
        except (Fault, *jsonrpc.UNREADABLE):
            return False  # which is told where any other is
        if not isinstance(outcome, Done):
            return False
        if request.is_held and not self._concurrency:
            del self.pending[id]
        else:
            self._forget(id)
        request.exchange.finish(outcome)
        return True

    def _answered(self, message: Message, origin: int | None, frame: Raw = jsonrpc.NOTHING) -> None:
        is_own = origin is not None and bytes(message.id) == b"%d" % origin
        id = origin if is_own else _own_id(message, origin)
        kept = self._kept.get(id) if self._kept and id is not None else None
        request = self._forget(id) if id is not None else None
        if id is None or not request:
            self._answered_late(id, message)
            return
        for told in self.on_over:
            told(id, True)
        if self._turns:
            self._turns.over(id)
        try:
            if message.error:
                raise self._error(id, request, jsonrpc.read_error(message.error, self.server.id))
            call, body = request.call, message.result
            if not frame and jsonrpc.has_many_members(body):  # those of a large one were counted as it was read
                raise self._unreadable(ValueError(jsonrpc.MANY_MEMBERS))
            if not call:
                request.exchange.finish(Done(body))
                return
            if memoryview(body)[0] != 0x7B:
                raise Fault("UPSTREAM_ERROR", "The server's result is not a JSON object", reach="executed")
            outcome = self.dialect.read(call, frame or body)
            if isinstance(outcome, Required):
                outcome = NeedInput(outcome.asks, Retry(self.asker, call, outcome, self._again, self.clock))
            elif frame and isinstance(outcome, Done):
                outcome = msgspec.structs.replace(outcome, body=body, frame=outcome.body)  # of the body, in our words
            if isinstance(outcome, Accepted) or call.method in mcp.TASKS:
                for told in self.on_answer:
                    told(id, request, outcome)
            if isinstance(outcome, Done) and (size := len(memoryview(outcome.body))) > FREE:
                kept = kept or self._counted(call)
                can_wait = origin is not None  # on what others are answered on, it cannot
                if not kept.body.has(size, can_wait) and not can_wait:
                    kept.body.ended()
                    request.exchange.fail(self._too_much(size))
                    return
                outcome = msgspec.structs.replace(outcome, kept=kept)
            request.exchange.finish(outcome)
        except Fault as fault:
            request.exchange.fail(fault)
        except jsonrpc.UNREADABLE as error:
            request.exchange.fail(self._unreadable(error))

    def _answered_late(self, id: int | None, message: Message) -> None:
        log.debug("%s answered a request that is not pending", self.server.name)
        if id is not None:
            if not message.error:
                self._over(id)
            self._asks_no_more(id)
            if (client := self._wished.pop(id, None)) and not message.error:
                for told in self.on_late:
                    told(client, message.result)

    def _too_much(self, size: int) -> Fault:
        return Fault(
            "RATE_LIMITED",
            f"Too much at once: this result of {size:,} bytes was dropped, since others of this client wait",
            server=self.server.id,
            reach="executed",
            hint="it has run: check before you call again, with fewer large results at once",
            extra={"retryAfter": SOON},
        )

    def _unreadable(self, error: Exception, reach: Reach = "executed") -> Fault:
        message = f"The server's answer cannot be read: {error}"
        return Fault("UPSTREAM_ERROR", message, server=self.server.id, reach=reach)

    def _error(self, id: int, request: OpenRequest, error: RpcError) -> Fault:
        """The server's own error. That a resource is missing has another code in each era, so it is understood here."""
        for told in self.on_answer:
            told(id, request, error)
        if error.code == mcp.URL_ELICITATION_REQUIRED:
            error = legacy.with_web_pages(error)
        method = request.call.method if request.call else ""
        is_missing = method == "resources/read" and error.code == self.dialect.resource_missing
        code = "RESOURCE_NOT_FOUND" if is_missing else "UPSTREAM_ERROR"
        return Fault(code, error.message, server=self.server.id, reach="executed", upstream=error)


async def _all(waited: list[asyncio.Future[None]]) -> None:
    await asyncio.wait(waited)


def _as_written(data: bytes) -> int:
    """Bytes that a message has for clients. The official Python SDK gives up a stream with an event above 1 MiB."""
    return len(data) if len(data) < LONGEST_NOTE // 3 or data.isascii() else len(jsonrpc.one_line(data))


_GAP = b"\0"  # which stands in no JSON


def _own_id(message: Message, origin: int | None) -> int | None:
    """The id of ours that a response is for. An error on a request's own stream is that request's, whatever id it has:
    servers that could not read it, or did not try, write null or one of their own. A result there is for that request
    or for none: it must not be taken for the answer to another that is under way."""
    if message.error and origin is not None:
        return origin
    key = jsonrpc.id_key(message.id) if message.id else None
    id = key if isinstance(key, int) else jsonrpc.number_of(key)
    return id if origin in (None, id) else None
