"""A legacy client's connection: what was negotiated, what is in flight, and what it is being asked.

The rules this file keeps: a question goes out on the stream of the call that it belongs to; a call of a client that
has gone ends with its result or its timeout; everything ends with the session.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from toolgate.core import asks, jsonrpc, large, mcp
from toolgate.core.background import AT_ONCE, end_all
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault, let_go
from toolgate.core.jsonrpc import Malformed, Message, RpcError
from toolgate.core.large import Joined
from toolgate.core.mcp import Revision
from toolgate.core.model import Accepted, Answer, Ask, Call, Client, Done, NeedInput, Outcome, Principal, Resume
from toolgate.core.notes import Note, Notes
from toolgate.eras import calls, legacy, modern, questions, tasks
from toolgate.frontends import responses, ways
from toolgate.frontends.channels import PendingEvents, ReplayBuffer, ReplayBuffers, Rights, shows_no_less
from toolgate.frontends.pages import Pages
from toolgate.frontends.scheduling import TakeTurn
from toolgate.frontends.subscriber import Subscriber
from toolgate.frontends.ways import Way
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.memos import CallMemo
from toolgate.gateway.round import Round
from toolgate.gateway.snapshot import Route
from toolgate.upstreams.base import rechecked

MOST_MEMOS = 8  # of calls, that a session keeps
_STREAM_COMES = 5.0  # seconds after which nobody waits any more for the first stream that belongs to no request
MOST_RELAYED = 64  # notifications of one session on their way to its server
_OF_ALL_SCOPES = frozenset({*mcp.LIST_CHANGED, mcp.UPDATED, mcp.ELICITED})  # nothing in them is of what tools have said

log = logging.getLogger(__name__)


class Stream(Protocol):
    """Where messages to a client go. `can_ask`: whether a question sent there can be answered."""

    can_ask: bool
    headers: Mapping[str, str]  # of the client's request that it belongs to, where there is one

    @property
    def way(self) -> Way:
        """What is read at its end."""
        ...

    @property
    def principal(self) -> Principal:
        """Who hears them, as it has shown who it is."""
        ...

    def send(self, message: bytes) -> None: ...

    def note(self, message: bytes) -> None:
        """Send what may be lost where the client reads too slowly."""
        ...

    def end(self) -> None: ...

    def failed(self, error: Exception) -> None:
        """The request whose stream it is fails; the answer says so too."""
        ...


class _Question(NamedTuple):
    """One that waits for its answer. `whose` call it belongs to: nobody answers it who has shown less; `report` hears
    of progress with it, where its asker does."""

    whose: Principal
    answer: asyncio.Future[Answer]
    report: Callable[[Raw], None] | None


class InFlight:
    """A call that no task works for, as long as it need not be waited for or cancelled; see `lane`."""

    def go_on(self) -> asyncio.Task[None]:
        """In a task."""
        raise NotImplementedError

    def cancel(self) -> None:
        raise NotImplementedError


class Asked(NamedTuple):
    """A call as it was read. Its progress is told by `token`."""

    call: Call
    token: bytes
    stream: Stream
    principal: Principal


class SessionRound(msgspec.Struct):
    """A call that was begun; `key` is its id. For `token` see `Asked`."""

    key: str | int | float
    round: Round
    token: bytes


class Session:
    """`ask_time` in seconds is how long a client may take to answer a question; `revision` is what it speaks unless
    it initializes."""

    __slots__ = (
        "__weakref__",
        "_ask_time",
        "_cancelled",
        "_clock",
        "_gateway",
        "_has_logging",
        "_has_tasks",
        "_ids",
        "_in_flight",
        "_listeners",
        "_log_level",
        "_memos",
        "_pages",
        "_pending_events",
        "_questions",
        "_relayed",
        "_replay_buffer",
        "_replay_buffers",
        "_rest",
        "_roots_to_tell",
        "_stream_came",
        "_subscriber",
        "_telling_roots",
        "_work",
        "client",
        "counted_as",
        "id",
        "is_initialized",
        "is_to_end",
        "path",
        "revision",
        "used",
    )  # there are thousands; with so many attributes a dict would take five times as much

    def __init__(
        self,
        gateway: Gateway,
        pages: Pages,
        path: str,
        principal: Principal,
        clock: Clock,
        ask_time: float,
        revision: Revision,
        replay_buffers: ReplayBuffers,
    ) -> None:
        self.id = secrets.token_urlsafe(24)
        self.path = path
        self.counted_as = principal.counted_as  # as long as it lasts
        # Without a session, as long as this may be its only request.
        self.client = Client(principal, revision=revision, path=path)
        self.revision = revision
        self.is_initialized = False
        self.is_to_end = False  # its client has asked for that
        self.used = clock.now()
        self._gateway = gateway
        self._clock = clock
        self._ask_time = ask_time
        self._has_logging = True  # as far as it was told
        self._has_tasks = False  # whether the client was told that tools run as tasks
        self._log_level: str | None = None  # until the client sets one
        self._memos: dict[tuple[bytes, bytes, bool], tuple[CallMemo, Rights]] = {}
        """By what calls say beside their arguments."""

        self._pages = pages
        wants = (*mcp.LIST_CHANGED, mcp.ELICITED, mcp.LOGGED)
        self._subscriber = Subscriber(gateway, path, self.client, self._say, wants)
        self._listeners: list[Stream] = []
        self._pending_events: PendingEvents | None = None
        self._replay_buffers = replay_buffers
        self._replay_buffer: ReplayBuffer | None = None
        self._in_flight: dict[str | int | float, asyncio.Task[Any] | InFlight] = {}
        self._cancelled: dict[str | int | float, None] = {}  # of these; an empty set is thrice as large
        self._rest: asyncio.Event | None = None  # set each time that one of these is over, once it closes
        self._questions: dict[int, _Question] = {}
        self._telling_roots: asyncio.Task[None] | None = None
        self._stream_came: asyncio.Event | None = None  # while one is waited for
        self._roots_to_tell = False  # they have changed since servers were last told
        self._relayed = 0  # notifications on their way to servers
        self._ids = itertools.count(1)
        self._work: dict[asyncio.Task[Any], None] = {}  # beside what is in flight

    @property
    def route(self) -> Route:
        """What is served at its path now: that changes with the configuration. Raises `Fault` where nothing is."""
        return self._gateway.snapshot.route(self.path)

    @property
    def rights(self) -> Rights:
        """What its client may do now, by what it has shown last."""
        who, gateway = self.client.principal, self._gateway
        rules = gateway.access.rules(who)
        return Rights(who, rules.print if rules else "", gateway.snapshot.config.auth.step_up)

    def __repr__(self) -> str:
        return f"<Session {self.id[:6]} {self.revision.date} {len(self._in_flight)} in flight>"

    @property
    def agreed(self) -> Revision | None:
        """What it speaks, once its client has agreed on that."""
        return self.revision if self.is_initialized else None

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._listeners

    def touch(self) -> None:
        """It is used again, or is to last: from now on servers may know it by its id."""
        self.used = self._clock.now()
        if not self.client.session:
            self.client = self._subscriber.client = msgspec.structs.replace(self.client, session=self.id)

    def is_shown(self, principal: Principal) -> None:
        """The client shows anew who it is: its token may be another one, with other scopes."""
        before = self.client.principal
        if principal != before and (shown := before.shown_anew(principal)) != before:
            self.client = self._subscriber.client = msgspec.structs.replace(self.client, principal=shown)

    def under_way(self) -> list[asyncio.Task[Any]]:
        """The work for what the client has asked."""
        in_flight = list(self._in_flight.values())
        return [each if isinstance(each, asyncio.Task) else each.go_on() for each in in_flight]

    # What the client sends.

    def answer(self, message: Message, stream: Stream, turn: TakeTurn | None = None) -> asyncio.Task[bytes]:
        """The response to a request, made in a task that this session owns, where it has to take a turn: then. Never
        raises; a cancelled one has none."""
        key = jsonrpc.id_key(message.id)
        if refused := self._refused(message, key):
            return self._spawn(_fixed(refused))
        task = asyncio.get_running_loop().create_task(self._whole_answer(message, stream, self.client.principal, turn))
        self._in_flight[key] = task
        task.add_done_callback(lambda _done: self._ended(key))
        return task

    async def _whole_answer(
        self, message: Message, stream: Stream, principal: Principal, turn: TakeTurn | None
    ) -> bytes:
        return bytes(await self._answer(message, stream, principal, turn))

    async def respond(self, message: Message, stream: Stream, begun: SessionRound | None = None) -> bytes | Joined:
        """The same, made in the current task, which goes on when the request is cancelled. It may have been `begun`."""
        key = jsonrpc.id_key(message.id)
        if not begun and (refused := self._refused(message, key)):
            return refused
        task = asyncio.current_task()
        assert task
        self._in_flight[key] = task
        try:
            return await self._answer(message, stream, self.client.principal, begun=begun)
        except asyncio.CancelledError:
            if key not in self._cancelled:
                raise  # it is the task that is to end
            return responses.write_cancelled(message)
        finally:
            if task.cancelling() and (key in self._cancelled or self._gateway.given_up()):
                task.uncancel()
            self._ended(key)

    def _refused(self, message: Message, key: str | int | float) -> bytes:
        if key in self._in_flight:
            return responses.write_reused(message)
        return responses.write_too_many(message) if len(self._in_flight) >= responses.MOST_IN_FLIGHT else b""

    def _cancel(self, key: str | int | float) -> None:
        if key not in self._cancelled:
            self._cancelled[key] = None
            self._in_flight[key].cancel()

    def notified(self, message: Message) -> None:
        """The client cancels a request, or says that its roots have changed; all else is no matter."""
        key = calls.read_cancelled(message, self._in_flight)
        if key is not None:
            self._cancel(key)
        elif message.method == mcp.PROGRESSED:
            self._progressed(message.params)
        elif message.method not in mcp.NOTIFICATIONS and self.is_initialized:
            if self._relayed < MOST_RELAYED:  # else it is lost, as anything that has no answer may be
                self._relayed += 1
                self._spawn(self._relay(message)).add_done_callback(self._was_relayed)
        elif message.method == mcp.ROOTS_CHANGED and "roots" in self.client.capabilities:
            self._roots_to_tell = True
            if not self._telling_roots or self._telling_roots.done():
                self._telling_roots = self._spawn(self._tell_roots())

    async def _tell_roots(self) -> None:
        """However many changes come while one is on its way, they make one more after it."""
        while self._roots_to_tell:
            self._roots_to_tell = False
            await self._gateway.roots_changed(self.path, self.client)

    def _progressed(self, params: Raw) -> None:
        """The client reports on a question that wants to hear of it, by the id of the question."""
        try:
            told = jsonrpc.members(params)
        except jsonrpc.UNREADABLE:
            return
        token = jsonrpc.named_id(told.pop(mcp.PROGRESS_KEY, jsonrpc.NOTHING))
        if (question := self._question(token)) and question.report:
            question.report(Raw(jsonrpc.encode(told)))

    async def _relay(self, message: Message) -> None:
        """A notification that MCP does not define: for the one server of this path."""
        try:
            if self.route.is_transparent:
                params = calls.read_members(message.params or jsonrpc.EMPTY_OBJECT, "params")
                meta = calls.read_meta(params.get("_meta"))
                call = calls.read_undefined(message.method, params, meta, self.client, None, "legacy")
                call = msgspec.structs.replace(call, is_notification=True)
                await self._gateway.handle(call, self.route)
        except Exception as error:  # noqa: BLE001  the rescue: see responses.rescued
            log.debug("%s was not relayed: %s", message.method, responses.rescued(error).message)

    def answered(self, message: Message) -> None:
        """The client answers a question of ours."""
        try:
            id = jsonrpc.id_key(message.id) if message.id else None
        except jsonrpc.UNREADABLE:
            return
        self._settle(id, legacy.read_answer(message))

    def answered_unreadably(self, error: Malformed) -> None:
        """The client answers a question of ours with what cannot be read: its asker is told so."""
        said = f"The client's answer cannot be read: {error.message}"
        self._settle(jsonrpc.id_key(error.id), Answer(error=RpcError(jsonrpc.INTERNAL_ERROR, said)))

    def _settle(self, id: object, answer: Answer) -> None:
        if (question := self._question(id)) and not question.answer.done():
            question.answer.set_result(answer)

    def _question(self, id: object) -> _Question | None:
        """The question of this id, if the principal that was just shown may answer it."""
        number = jsonrpc.number_of(id)
        question = self._questions.get(number) if number is not None else None
        return question if question and shows_no_less(self.client.principal, question.whose) else None

    # What goes to the client without being asked for.

    @property
    def replay_buffer(self) -> ReplayBuffer:
        """What its streams said of late. There is none before the first of them."""
        if not self._replay_buffer:
            self._replay_buffer = self._replay_buffers.open(self.counted_as)
        return self._replay_buffer

    def listen(self, stream: Stream) -> None:
        """From now on this stream gets what belongs to no request, and first what was kept for it."""
        self._listeners.append(stream)
        if self._stream_came:
            self._stream_came.set()
        if self._pending_events:
            for message in self._pending_events.take(stream.principal):
                stream.note(message)

    def stop_listening(self, stream: Stream) -> None:
        if stream in self._listeners:
            self._listeners.remove(stream)
            self.used = self._clock.now()

    def tell(self, message: bytes, whose: Principal | None = None) -> None:
        """A message that belongs to no request, on exactly one stream of who may know it; kept where there is none yet.
        `whose` it is, if not of who was shown last."""
        whose = whose or self.client.principal
        if stream := self._stream_of(whose):
            stream.note(message)
        elif self.is_initialized:
            self._pending_events = self._pending_events or self._replay_buffers.pending(self.counted_as)
            self._pending_events.add(message, whose)

    def _stream_of(self, whose: Principal) -> Stream | None:
        return next((each for each in reversed(self._listeners) if shows_no_less(each.principal, whose)), None)

    async def ask_roots(self, take: Callable[[], bool]) -> Answer | None:
        """The client's roots, asked for on a stream that belongs to no request: see `AskRoots`."""
        whose = self.client.principal
        try:
            async with self._clock.timeout(_STREAM_COMES):
                while not (stream := self._stream_of(whose)):
                    self._stream_came = self._stream_came or asyncio.Event()
                    self._stream_came.clear()
                    await self._stream_came.wait()
        except TimeoutError:
            return None
        if not take():
            return None
        id = next(self._ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._questions[id] = _Question(whose, future, None)
        stream.note(jsonrpc.request(id, "roots/list", jsonrpc.EMPTY_OBJECT))
        try:
            async with self._clock.timeout(self._ask_time):
                return await future
        except TimeoutError:
            stream.note(legacy.cancelled(id, "no answer within the time limit"))
            return None
        except asyncio.CancelledError:
            stream.note(legacy.cancelled(id, "the server has withdrawn the question, or is gone"))
            raise
        finally:
            del self._questions[id]

    def _was_relayed(self, _done: asyncio.Task[None]) -> None:
        self._relayed -= 1

    def expire(self) -> None:
        """Let go of what was kept long enough."""
        if self._replay_buffer:
            self._replay_buffer.expire()

    def give_up(self) -> None:
        """End what is under way, before that of another lets any of it begin."""
        for key in list(self._in_flight):
            self._cancel(key)
        for each in self._work:
            each.cancel()

    async def close(self) -> None:
        """End all that was begun in it; its client is told nothing more."""
        for number, key in enumerate(reversed(list(self._in_flight)), 1):  # those that wait for the others first
            if key in self._in_flight:
                self._cancel(key)
            if not number % AT_ONCE:
                await asyncio.sleep(0)
        await end_all(self._work)
        while self._in_flight:
            self._rest = self._rest or asyncio.Event()
            self._rest.clear()
            await self._rest.wait()
        for listener in self._listeners:
            listener.end()
        self._listeners.clear()
        self.is_initialized = False  # for what is told from now on nothing is kept
        self._subscriber.close()
        for kept in (self._replay_buffer, self._pending_events):
            if kept:
                kept.close()
        await self._gateway.leave(self.client)

    # Requests.

    async def _answer(
        self,
        message: Message,
        stream: Stream,
        principal: Principal,
        turn: TakeTurn | None = None,
        begun: SessionRound | None = None,
    ) -> bytes | Joined:
        """`principal` is as this very request has shown it."""
        id = bytes(message.id)
        try:
            if turn:
                await turn()
            if begun:
                asked = Asked(begun.round.made, begun.token, stream, principal)
                return jsonrpc.result_of(id, await self._outcome_of(asked, self._gateway.rest(begun.round)))
            handle = self._HANDLERS.get(message.method, Session._undefined)
            return jsonrpc.result_of(id, await handle(self, message, stream, principal))
        except asyncio.CancelledError:
            if not (fault := self._gateway.given_up()):
                raise
            return responses.write_failed(id, fault, lambda fault: legacy.error_code(fault, message.method))
        except Exception as error:  # noqa: BLE001  the rescue: see responses.rescued
            stream.failed(error)
            answer = responses.write_failed(id, error, lambda fault: legacy.error_code(fault, message.method))
            let_go(error)
            return answer

    # Handlers: the rows of `_HANDLERS`.

    def _client_of(self, principal: Principal) -> Client:
        """Its client, as one request has shown who it is: another may have shown something else meanwhile."""
        client = self.client
        return client if client.principal is principal else msgspec.structs.replace(client, principal=principal)

    async def _initialize(self, message: Message, _: object, principal: Principal) -> bytes:
        asked = legacy.read_initialize(message.params)
        self.revision = legacy.negotiate(asked.protocolVersion)
        self.is_initialized = True
        can, told = modern.shared(questions.known_capabilities(asked.capabilities, self.revision))
        ask_roots = partial(_asked_for_roots, weakref.ref(self)) if "roots" in can else None
        self.client = Client(self.client.principal, self.id, can, self.revision, told, self.path, ask_roots)
        self._subscriber.client = self.client
        about = await self._gateway.lists.about(self.route, self._client_of(principal))
        self._has_tasks = "tasks" in tasks.known_to(self.revision, about.capabilities)
        self._has_logging = "logging" in about.capabilities
        return legacy.write_initialized(self.revision, about.capabilities, responses.SERVER_INFO, about.instructions)

    async def _ping(self, *_: object) -> bytes:
        return b"{}"

    async def _end(self, *_: object) -> bytes:
        self.is_to_end = True
        return b"{}"

    async def _subscribe(self, message: Message, _: object, principal: Principal) -> bytes:
        await self._subscriber.watch(_uri(message), message.method, self._client_of(principal))
        return b"{}"

    async def _unsubscribe(self, message: Message, *_: object) -> bytes:
        self._subscriber.unwatch(_uri(message), message.method)
        return b"{}"

    async def _set_level(self, message: Message, _: object, principal: Principal) -> bytes:
        if not self._has_logging:
            raise responses.method_not_found(message)
        level = calls.check_level(calls.read_text(calls.read_members(message.params, "params"), "level"))
        self._log_level = level
        self._memos.clear()
        await self._gateway.set_level(level, self.route, self._client_of(principal))
        return b"{}"

    async def _list(self, message: Message, stream: Stream, principal: Principal) -> bytes:
        client = self._client_of(principal)
        params = calls.read_members(message.params, "params")
        kind = mcp.METHODS[message.method].kind
        listing = await self._gateway.lists.view(kind, self.route, client, hears=self.is_initialized)
        page = self._pages.cut(listing, params, self.route, client, stream.way.page)
        write = partial(legacy.write_listing, self.revision)
        return await responses.listing(page, self.revision, write, self._gateway.in_turns, client)

    async def _list_tasks(self, message: Message, stream: Stream, principal: Principal) -> bytes:
        if not self._has_tasks:
            raise responses.method_not_found(message)
        params = calls.read_members(message.params, "params")
        client = self._client_of(principal)
        listing = await self._gateway.lists.tasks(self.route, client)
        page = self._pages.cut(listing, params, self.route, client, stream.way.page)
        return legacy.write_listing(self.revision, page)

    async def _task(self, message: Message, stream: Stream, principal: Principal) -> bytes | Raw | Joined:
        if not self._has_tasks:
            raise responses.method_not_found(message)
        return await self._call(message, stream, principal)

    async def _undefined(self, message: Message, stream: Stream, principal: Principal) -> bytes | Raw | Joined:
        """What MCP does not define may be an extension's: it is for the one server of this path."""
        if not self.is_initialized or not self.route.is_transparent:
            raise responses.method_not_found(message)
        return await self._call(message, stream, principal)

    async def _refuse(self, message: Message, *_: object) -> bytes:
        raise responses.method_not_found(message)

    async def _call(self, message: Message, stream: Stream, principal: Principal) -> bytes | Raw | Joined:
        asked = self._read_call(message, stream, principal)
        return await self._outcome_of(asked, self._gateway.handle(asked.call, self.route))

    def _read_call(self, message: Message, stream: Stream, principal: Principal) -> Asked:
        client = self._client_of(principal)
        params = calls.read_members(message.params, "params")
        meta = calls.read_meta(params.get("_meta"))
        token = bytes(meta.progress_token)
        notes = Notes(partial(self._report, stream.note, token, ""))
        passed_on: Mapping[str, str] = {}
        if self._gateway.snapshot.passed_on:
            passed_on = self._gateway.passed_on(stream.headers)
        level = self._log_level
        if message.method in mcp.TARGETED:
            call = calls.read_call(message.method, params, meta, client, notes, level, True, stream.headers, passed_on)
        else:
            more = {"log_level": level, "wants_logs": True, "headers": stream.headers, "passed_on": passed_on}
            call = calls.read_undefined(message.method, params, meta, client, notes, "legacy", **more)
        if call.method == mcp.TASK_RESULT:
            notes.attach(partial(self._report, stream.note, token, call.target))
        if not stream.can_ask:
            call = msgspec.structs.replace(call, can_ask=False)
        if "task" in call.extra:
            call = tasks.asked(call, self.revision, self._has_tasks)
        return Asked(call, token, stream, principal)

    async def _outcome_of(self, asked: Asked, handled: Awaitable[Outcome]) -> bytes | Raw | Joined:
        outcome = await self._to_the_end(asked.call, asked.stream, handled)
        if (
            isinstance(outcome, Accepted) and asked.call.notes
        ):  # it goes on when this is answered: on no request's stream
            say = partial(self.tell, whose=asked.principal)
            asked.call.notes.attach(partial(self._report, say, asked.token, tasks.read_id(outcome.body)))
        write = partial(self._written, asked.call, outcome)
        return await responses.aside(write, outcome, self._gateway.in_turns, asked.call)

    def _written(self, call: Call, outcome: Done | Accepted) -> bytes | Raw | Joined:
        if isinstance(outcome, Done) and outcome.is_foreign:
            text = "The server's result has a type that this client's revision does not have"
            raise Fault("UPSTREAM_ERROR", text, server=call.server, reach="executed")
        body = outcome.body if call.asked_in else legacy.write_done(self.revision, outcome.body, call.method)
        return Joined(body) if large.is_view(body) else body

    # A call that no task works for: see `lane`.

    def begin(self, message: Message, stream: Stream, lane_call: InFlight) -> SessionRound | None:
        """A call, as far as nothing has to be waited for: `respond` goes on, or `finish`. None, and nothing is done,
        where it is not clear at once what it is for. Raises `Fault`."""
        key = jsonrpc.id_key(message.id)
        if self._refused(message, key):
            return None
        asked = self._read_call(message, stream, self.client.principal)
        round = None if asked.call.task else self._gateway.begin(asked.call, self.route)
        if not round:
            return None
        self._in_flight[key] = lane_call
        if (plain := calls.read_plain(message)) and (memo := self._gateway.memo(round)):
            if len(self._memos) >= MOST_MEMOS:
                self._memos.clear()
            self._memos[(*plain, stream.can_ask)] = memo, self.rights
        return SessionRound(key, round, asked.token)

    def memo(self, call: calls.PlainCall, can_ask: bool, headers: Mapping[str, str]) -> tuple[CallMemo, Rights] | None:
        """What was found of a call like this one, if anything was; and what its client may do where that holds still.
        Of one with headers that a server is to get nothing is."""
        params, passed_on = call.params, self._gateway.snapshot.passed_on
        if passed_on and not passed_on.isdisjoint(headers):
            return None
        found = self._memos.get((bytes(params.name), bytes(params.meta), can_ask)) if self._memos else None
        return found if found and found[0].entered.client is self.client else None

    def begin_like(
        self, memo: CallMemo, call: calls.PlainCall, route: Route, say: Callable[[bytes], None], lane_call: InFlight
    ) -> SessionRound | None:
        """The same of a call that is like the one of this memo, of which its client is told by `say`. `route` is what
        is served at the session's path. None, and nothing is done, where it may be another matter."""
        key = call.id
        if self._in_flight and self._refused(call.message, key):
            return None
        notes = Notes(partial(self._report, say, b"", ""))
        round = self._gateway.begin_like(memo, call.params.arguments, None, notes, route)
        if not round:
            return None
        self._in_flight[key] = lane_call
        return SessionRound(key, round, b"")

    def finish(self, id: bytes, begun: SessionRound, done: Done) -> bytes:
        """The response to a call of which its server has answered this. Raises `Fault`."""
        self._ended(begun.key)
        outcome = self._gateway.finish(begun.round, done)
        assert not isinstance(outcome, NeedInput)  # nobody asks behind a server's answer
        return bytes(jsonrpc.result_of(id, self._written(begun.round.came, outcome)))

    _HANDLERS: ClassVar[Mapping[str, Callable[..., Awaitable[bytes | Raw | Joined]]]] = mcp.handlers(
        "legacy",
        {
            "call": _call,
            "task": _task,
            "tasks": _list_tasks,
            "list": _list,
            "initialize": _initialize,
            "ping": _ping,
            "close": _end,
            "level": _set_level,
            "subscribe": _subscribe,
            "unsubscribe": _unsubscribe,
        },
        _refuse,
    )

    def _report(self, say: Callable[[bytes], None], token: bytes, task: str, note: Note) -> None:
        """Tell the client of a call what was noted of it, or of the `task` that it is about."""
        if self._is_heard(note, token):
            params = tasks.with_related(note.params, task) if task else note.params
            say(responses.write_note(msgspec.structs.replace(note, params=params), token))

    def _is_heard(self, note: Note, token: bytes) -> bool:
        if note.kind == "log":
            return self._is_wanted(note)
        return bool(token) if note.kind == "progress" else self.route.is_transparent

    def _is_wanted(self, note: Note) -> bool:
        """A client of this era that sets no level hears what the server thinks right."""
        return self._log_level is None or responses.is_loud_enough(note, self._log_level)

    def _say(self, method: str, params: Raw) -> None:
        """An event. One that is a log line is held against the client's level as any other is."""
        if not self.is_initialized or not legacy.knows(self.revision, method):
            return
        if method != mcp.LOGGED or self._is_wanted(Note("log", params)):
            whose = self.client.principal
            if method in _OF_ALL_SCOPES and whose.scopes:
                whose = msgspec.structs.replace(whose, scopes=frozenset())
            self.tell(jsonrpc.notification(method, params), whose)

    async def _to_the_end(self, call: Call, stream: Stream, handled: Awaitable[Outcome]) -> Done | Accepted:
        """Ask the client whatever the call asks, as it asks it, and answer at once."""
        asking: set[asyncio.Task[None]] = set()
        task = call.target if call.method == mcp.TASK_RESULT else ""
        outcome = await handled
        try:
            while isinstance(outcome, NeedInput):
                size = asks.size(outcome.asks)
                for ask in outcome.asks:
                    _refuse_if_unaskable(ask, stream, outcome.resume)
                    asking.add(self._spawn(self._put(ask, size, outcome.resume, stream, task, call)))
                outcome = await outcome.resume.next()
        except asyncio.CancelledError:
            if isinstance(outcome, NeedInput):
                outcome.resume.cancel()
            raise
        finally:
            for each in asking:
                each.cancel()
            if asking:  # they still withdraw what they ask, on the stream that ends with the answer
                await asyncio.wait(asking)
        return outcome

    async def _put(self, ask: Ask, size: int, resume: Resume, stream: Stream, task: str, call: Call) -> None:
        """Put one question of a call to the client; that it did not answer in time is an error, or that the call may
        not be made any more. `size` is in bytes, of all that are put at once; `task` is the client's id of the one that
        asks, if it is one."""
        id = next(self._ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        report: Callable[[Raw], None] | None = None
        try:
            if resume.origin.is_live and asks.progress_token(ask):
                report = partial(resume.origin.report, ask.key)
            write = partial(self._written_question, id, ask, stream.way, task, bool(report))
            question = await responses.by_size(size, write, self._gateway.in_turns, call.client)
        except Exception as error:  # noqa: BLE001  the rescue: who asks is to hear of it
            resume.answer(ask.key, asks.unanswered(responses.rescued(error).message))
            return
        self._questions[id] = _Question(call.client.principal, future, report)
        stream.send(question)
        settled = asyncio.ensure_future(resume.settled(ask.key))
        try:
            async with self._clock.timeout(self._ask_time):
                await asyncio.wait((future, settled), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                stream.send(legacy.cancelled(id, "the server withdrew the question"))
                return
            answer = future.result()
        except TimeoutError:
            stream.send(legacy.cancelled(id, "no answer within the time limit"))
            answer = asks.unanswered(f"The client did not answer within {self._ask_time:g} s")
        except asyncio.CancelledError:
            stream.send(legacy.cancelled(id, "the request has ended"))
            raise
        finally:
            settled.cancel()
            self._questions.pop(id, None)
        answer = questions.read_choices(ask, answer, self.revision)
        try:
            await rechecked(call)
        except Fault as fault:
            answer = asks.unanswered(fault.message)
        resume.answer(ask.key, answer)

    def _written_question(self, id: int, ask: Ask, way: Way, task: str, has_token: bool) -> bytes:
        """The request that asks it. Raises `Fault` where its client could not read it."""
        params = jsonrpc.encode(legacy.write_ask(ask, self.revision))
        if has_token:
            params = asks.with_token(params, id)
        question = jsonrpc.request(id, ask.method, tasks.with_related(params, task))
        return ways.readable(question, way, is_merged=False)

    def _ended(self, key: str | int | float) -> None:
        self._in_flight.pop(key, None)
        if self._cancelled:
            self._cancelled.pop(key, None)
        if self._rest:
            self._rest.set()
        self.used = self._clock.now()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._work[task] = None
        task.add_done_callback(self._work.pop)
        return task


def _refuse_if_unaskable(ask: Ask, stream: Stream, resume: Resume) -> None:
    """Ruling 14: a client that asked for JSON only cannot be asked on its call's own stream."""
    if not stream.can_ask:
        resume.cancel()
        capability = mcp.ASKS[ask.method].capability
        message = f"The call requires {capability}, but a client that accepts only JSON cannot be asked"
        raise Fault("SESSION_ERROR", message, reach="executed", extra={"requiredCapabilities": {capability: {}}})


async def _fixed(response: bytes) -> bytes:
    return response


async def _asked_for_roots(of: weakref.ref[Session], take: Callable[[], bool]) -> Answer | None:
    """Servers may outlive the session; they do not hold it."""
    session = of()
    return await session.ask_roots(take) if session else None


def _uri(message: Message) -> str:
    return calls.read_text(calls.read_members(message.params, "params"), "uri")
