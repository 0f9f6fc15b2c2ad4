"""A modern client's request, whatever carried it: checked, handled, and answered with a result that may ask.

Only here is anything coalesced, parked or sealed (architecture.md, "The one idea"). The rules this file keeps: a state
is verified before anything is used up; what a lost client left behind is cancelled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw

from toolgate.auth.seal import Seal
from toolgate.core import asks, jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.crowds import Signal
from toolgate.core.exchange import Retry
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Members, Message
from toolgate.core.model import (
    Accepted,
    Answer,
    Ask,
    Asker,
    Call,
    Client,
    Done,
    NeedInput,
    Outcome,
    Principal,
    Required,
    Resumption,
)
from toolgate.core.notes import Note, Notes
from toolgate.eras import calls, headers, legacy, listening, modern, naming, tasks
from toolgate.frontends import responses, ways
from toolgate.frontends.pages import Pages
from toolgate.frontends.request_states import RequestStates
from toolgate.frontends.responses import SendMessage
from toolgate.frontends.subscriber import MOST_WATCHED, Subscriber
from toolgate.frontends.ways import Way
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.memos import CallMemo
from toolgate.gateway.round import Round
from toolgate.gateway.snapshot import Route
from toolgate.state.parking import ParkedCall, Parking

EARLY_KEPT = 64  # events that come before a subscription is acknowledged
SIGNING_IN = 25.0  # seconds that a call waits for its user, who has said that it signs in
_NO_HEADERS: Mapping[str, str] = {}
Http: TypeAlias = Mapping[str, str] | None
"""The headers of a request, where there are any."""
Written: TypeAlias = tuple[bytes, bytes]
"""What a request names and its `_meta`, as they came."""
_PLAIN = {"name", "arguments", "_meta"}  # the parameters of most calls
WINDOW = 0.05  # seconds in which questions of one call are gathered into one `input_required`


class Asked(msgspec.Struct):
    """What a request says beside its arguments; most with the same headers say the same again. `written` are what it
    names and its `_meta`, None where they are too long to be kept. `memo` is what calls have in common that say no
    more than that."""

    method: str
    written: Written | None
    envelope: modern.Envelope
    client: Client
    target: str | None  # what it names, where it must say so in a header
    memo: CallMemo | None = None


class Request(msgspec.Struct, frozen=True):
    """One request, checked. `http` are its headers, where there are any; notes go through `send` before its answer,
    which goes the same `way`."""

    message: Message
    params: Members
    asked: Asked
    http: Http
    route: Route
    send: SendMessage
    way: Way = ways.BODY


class ModernRound(msgspec.Struct, frozen=True):
    """A call that was begun."""

    request: Request
    round: Round


class Reply(msgspec.Struct, frozen=True):
    """A result's body. Its sender says `flushed` when it is out, `unsent` when that failed."""

    body: bytes | jsonrpc.Joined
    parked_call: ParkedCall | None = None
    asks: bool = False


def report(request: Request, note: Note) -> None:
    """Tell the client of a call what was noted of it, where it wants to hear that."""
    level, token = request.asked.envelope.log_level, b""
    if note.kind == "progress":
        is_wanted = token = bytes(request.asked.envelope.meta.progress_token)
    elif note.kind == "other":
        is_wanted = request.route.is_transparent
    else:
        is_wanted = level and responses.is_loud_enough(note, level)
    if is_wanted:
        request.send(responses.write_note(note, token))


class ModernResponses:
    """What all frontends give the requests of modern clients to. `node` names this process in the states that it
    seals. `signed_in` returns when a principal has signed in at a server where it was asked to, or after so many
    seconds."""

    def __init__(
        self,
        gateway: Gateway,
        parking: Parking,
        seal: Seal,
        pages: Pages,
        clock: Clock,
        node: str,
        signed_in: Callable[[str, str, float], Awaitable[None]],
    ) -> None:
        self._signed_in = signed_in
        self._gateway = gateway
        self._pages = pages
        self._closing = Signal()
        self._parking = parking
        self._clock = clock
        self._states = RequestStates(seal, clock, parking.ttl, node)

    async def answer(
        self, message: Message, http: Http, principal: Principal, route: Route, send: SendMessage, way: Way = ways.BODY
    ) -> Reply:
        """The answer to one request; notes go through `send` before it. `http` are the headers, where there are any.
        Raises `Fault`."""
        handle = self._HANDLERS.get(message.method, ModernResponses._undefined)
        return await handle(self, self.read(message, http, principal, route, send, None, way))

    def read(
        self,
        message: Message,
        http: Http,
        principal: Principal,
        route: Route,
        send: SendMessage,
        before: Asked | None = None,
        way: Way = ways.BODY,
    ) -> Request:
        """One request, checked; see `answer`. `before` is what one has said that came with the very same headers, from
        the same principal, to the same route. Raises `Fault`."""
        params = calls.read_members(message.params, "params")
        written = bytes(params.get(mcp.NAMED.get(message.method, ""), b"")), bytes(params.get("_meta", b""))
        if not before or before.written != written or before.method != message.method:
            before = self._asked(message, params, written, http, principal, route)
        return Request(message, params, before, http, route, send, way)

    def _asked(
        self, message: Message, params: Members, written: Written, http: Http, principal: Principal, route: Route
    ) -> Asked:
        envelope = modern.read_envelope(params.get("_meta", jsonrpc.EMPTY_OBJECT))
        named = mcp.NAMED.get(message.method) if http is not None else None
        target = calls.read_text(params, named) if named else None
        if http is not None:
            headers.check(http, message, envelope.version, target)
        if not envelope.revision:
            raise modern.unsupported(envelope.version)
        client = Client(principal, "", envelope.capabilities, envelope.revision, envelope.told, route.path)
        is_kept = len(written[0]) + len(written[1]) <= modern.LONGEST_REPEATED
        return Asked(message.method, written if is_kept else None, envelope, client, target)

    def begin(self, request: Request) -> ModernRound | None:
        """The same of a call, as far as nothing has to be waited for: `rest` goes on, or `finish`. None, and nothing is
        done, where it is not clear at once what it is for. Raises `Fault`."""
        params, asked = request.params, request.asked
        if "requestState" in params or "inputResponses" in params:
            return None
        round = self._gateway.begin(self.read_call(request), request.route)
        if not round:
            return None
        asked.memo = self._gateway.memo(round) if asked.written and params.keys() == _PLAIN else None
        return ModernRound(request, round)

    def begin_like(
        self, asked: Asked, call: calls.PlainCall, http: Mapping[str, str], route: Route, hear: Callable[[Note], None]
    ) -> Round | None:
        """The same of a call that came with the very same headers as one which has asked this. None, and nothing is
        done, where it may be another matter."""
        params, memo = call.params, asked.memo
        if not memo or asked.written != (bytes(params.name), bytes(params.meta)):
            return None
        return self._gateway.begin_like(memo, params.arguments, http, Notes(hear), route)

    async def rest(self, begun: ModernRound) -> Reply:
        """The answer to a call that was begun. Raises `Fault`."""
        request, made, rest = begun.request, begun.round.made, self._gateway.rest(begun.round)
        return await self._reply(request, made, None, await self._with_pages(made, request.route, rest))

    def finish(self, round: Round, id: bytes, done: Done) -> bytes:
        """The response to a call of which its server has answered this. Raises `Fault`."""
        outcome, call = self._gateway.finish(round, done), round.came
        if isinstance(outcome, Done) and outcome.typed is outcome.body:
            revision = call.client.revision
            if revision and not revision.names:
                return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, outcome.body)
        assert not isinstance(outcome, NeedInput)  # nobody asks behind a server's answer
        return jsonrpc.result(id, bytes(self._written(round.route, round.made, None, outcome).body))

    # Handlers: the rows of `_HANDLERS`.

    async def _task(self, request: Request) -> Reply:
        tasks.check_declared(request.asked.client.capabilities)
        return await self._call(request)

    async def _undefined(self, request: Request) -> Reply:
        """What MCP does not define may be an extension's: it is for the one server of a transparent path."""
        if not request.route.is_transparent:
            raise responses.method_not_found(request.message)
        return await self._call(request)

    async def _refuse(self, request: Request) -> Reply:
        raise responses.method_not_found(request.message)

    async def _list(self, request: Request) -> Reply:
        kind, route, client = mcp.METHODS[request.message.method].kind, request.route, request.asked.client
        listing = await self._gateway.lists.view(kind, route, client)
        page = self._pages.cut(listing, request.params, route, client, request.way.page)
        write = partial(modern.write_listing, client, server_info=responses.SERVER_INFO)
        assert client.revision  # `read` has refused any other
        return Reply(await responses.listing(page, client.revision, write, self._gateway.in_turns, client))

    async def _discover(self, request: Request) -> Reply:
        client, about = request.asked.client, await self._gateway.lists.about(request.route, request.asked.client)
        return Reply(modern.write_discovered(client, about.capabilities, responses.SERVER_INFO, about.instructions))

    async def _listen(self, request: Request) -> Reply:
        """Tell a client what it wants to hear, until it leaves or the gateway closes. First it is told what it will."""
        id, wanted = bytes(request.message.id), listening.read_filter(request.params, MOST_WATCHED)
        client, route, send = request.asked.client, request.route, request.send
        if any(wanted.named[key] for key, method in mcp.WATCH_FILTERS.items() if mcp.METHODS[method].role == "task"):
            tasks.check_declared(client.capabilities)
        capabilities = (await self._gateway.lists.about(route, client)).capabilities
        honoured: dict[str, Any] = {key: True for key in wanted.lists if mcp.LIST_FILTERS[key][0] in capabilities}
        early: list[tuple[str, Raw]] | None = []

        def say(method: str, params: Raw) -> None:
            if early is None:
                send(listening.write_told(id, method, params))
            elif len(early) < EARLY_KEPT:
                early.append((method, params))

        lists = [mcp.LIST_FILTERS[key][1] for key in honoured]
        subscriber = Subscriber(self._gateway, route.path, client, say, lists)
        try:
            for key, method in mcp.WATCH_FILTERS.items():  # of what is asked for nothing is kept but what is heard
                if names := await subscriber.watch_all(wanted.named.pop(key), method):
                    honoured[key] = names
            send(listening.write_acknowledged(id, honoured))
            kept, early = early, None
            while kept:
                say(*kept.pop(0))
            await self._closing.wait()
        finally:
            subscriber.close()
        return Reply(listening.write_unsubscribed(id))

    def read_call(self, request: Request) -> Call:
        params, method, asked, http = request.params, request.message.method, request.asked, request.http
        meta, level, notes = asked.envelope.meta, asked.envelope.log_level, Notes(partial(report, request))
        passed_on = self._gateway.passed_on(http) if http and self._gateway.snapshot.passed_on else _NO_HEADERS
        if method in mcp.TARGETED:
            return calls.read_call(
                method, params, meta, asked.client, notes, level, False, http, passed_on, asked.target
            )
        more: dict[str, Any] = {"log_level": level, "headers": http, "passed_on": passed_on}
        return calls.read_undefined(method, params, meta, asked.client, notes, "modern", **more)

    async def _call(self, request: Request) -> Reply:
        route, params = request.route, request.params
        call = self.read_call(request)
        sealed = modern.read_state(params) if "requestState" in params else None
        if sealed is None:
            if "inputResponses" in params:
                call = msgspec.structs.replace(call, volunteered=params["inputResponses"])
            outcome = await self._with_pages(call, route, self._gateway.handle(call, route))
            if isinstance(outcome, Done) and not outcome.is_cut:
                return self._written(route, call, None, outcome)
            return await self._reply(request, call, None, outcome)
        state = self._states.opened(sealed, call, route)
        answers = modern.read_answers(params, state.called)
        if state.parked_call is None:
            again = msgspec.structs.replace(call, resumption=Resumption(state.asker, answers, state=state.inner))
            spent = hashlib.sha256(sealed.encode()).digest()
            return await self._parking.once(spent, lambda: self._afresh(request, again))
        parked_call = self._parking.find(state.parked_call, state.round)
        if parked_call.notes and not parked_call.running_round:
            parked_call.notes.attach(partial(report, request))
        return await self._parking.run_round(parked_call, lambda: self._round(request, parked_call, call, answers))

    _HANDLERS: ClassVar[Mapping[str, Callable[..., Awaitable[Reply]]]] = mcp.handlers(
        "modern", {"call": _call, "task": _task, "list": _list, "discover": _discover, "listen": _listen}, _refuse
    )

    def flushed(self, reply: Reply) -> None:
        """The reply is out: a question is parked, an end is final."""
        if reply.parked_call and reply.asks:
            self._parking.park(reply.parked_call)
        elif reply.parked_call:
            self._parking.finished(reply.parked_call)

    def unsent(self, reply: Reply) -> None:
        """The reply is lost, and with it whatever waited for its retry."""
        if reply.parked_call:
            self._parking.drop(reply.parked_call)

    def end_unknown(self, is_known: Callable[[Principal], bool]) -> None:
        """End the parked calls of clients that would not be let in any more."""
        self._parking.end_unknown(is_known)

    def close(self) -> None:
        """End what clients listen to, gracefully."""
        self._closing.set()

    async def _afresh(self, request: Request, call: Call) -> Reply:
        """A round behind which nothing waits yet."""
        return await self._reply(request, call, None, await self._handled(call, request.route))

    async def _round(
        self, request: Request, parked_call: ParkedCall, call: Call, answers: Mapping[str, Answer]
    ) -> Reply:
        """One retry of parked work, run once however many ask for it."""
        resumption = Resumption(parked_call.resume.asker, answers, live=parked_call.resume)
        call = msgspec.structs.replace(call, notes=parked_call.notes, resumption=resumption)
        try:
            return await self._reply(request, call, parked_call, await self._handled(call, request.route))
        except BaseException:
            self._parking.finished(parked_call)
            parked_call.resume.cancel()
            raise

    async def _handled(self, call: Call, route: Route) -> Outcome:
        """The outcome of a round. Where an older server refuses until its user has visited pages (-32042), they are
        asked for as this era does it, and the call is made again; where it is we who sent them, when they are back."""
        if call.resumption and call.resumption.asker.kind == "sign-in":
            server = call.resumption.asker.name
            await self._signed_in(server, call.client.principal.id, SIGNING_IN)
        return await self._with_pages(call, route, self._gateway.handle(call, route))

    async def _with_pages(self, call: Call, route: Route, handled: Awaitable[Outcome]) -> Outcome:
        try:
            return await handled
        except Fault as fault:
            required = Required(legacy.read_pages(fault))
            was_declined = call.resumption and not all(map(asks.is_accepted, call.resumption.answers.values()))
            can = all(asks.is_answerable(ask, call.client.capabilities) for ask in required.asks)
            if not required.asks or was_declined or not can:
                raise
            by = "sign-in" if fault.code == "SIGN_IN_REQUIRED" else "upstream"
            asker = Asker(by, fault.server, route.print_of(fault.server))
            again = Retry(asker, call, required, lambda next: self._handled(next, route), self._clock)
            return NeedInput(self._gateway.shown(route, asker, required.asks), again)

    async def _reply(self, request: Request, call: Call, parked_call: ParkedCall | None, outcome: Outcome) -> Reply:
        route = request.route
        while isinstance(outcome, NeedInput):
            origin = outcome.resume.origin
            if not origin.is_live:
                if parked_call:  # a policy asks anew in front of parked work, which no later state would find again
                    self._parking.finished(parked_call)
                    parked_call.resume.cancel()
                called = self._gateway.snapshot.scrubber(origin.asker.name).keys(outcome.asks)
                questions = await self._asked_of(call.client, outcome.asks, called)
                state = self._states.sealed(call, route, origin.asker, 0, None, origin.state, called)
                return Reply(modern.write_required(questions, state))
            questions = await self._gathered(call.client, outcome)
            if questions and origin.open_asks():
                parked_call = self._held(parked_call, outcome, request, call.notes)
                state = self._states.sealed(call, route, origin.asker, parked_call.round, parked_call.id, None)
                return Reply(modern.write_required(questions, state), parked_call, asks=True)
            outcome = await outcome.resume.next()  # withdrawn, or over, while we gathered
        write = partial(self._written, route, call, parked_call, outcome)
        return await responses.aside(write, outcome, self._gateway.in_turns, call)

    def _written(self, route: Route, call: Call, parked_call: ParkedCall | None, outcome: Done | Accepted) -> Reply:
        if isinstance(outcome, Accepted):
            return Reply(bytes(outcome.body), parked_call)
        is_for_all = call.method not in mcp.CACHED or self._gateway.lists.is_same_for_all(route)
        is_as_it_is = outcome.is_foreign or bool(call.asked_in)
        body = modern.write_done(call.method, outcome.body, is_as_it_is, is_for_all, outcome.frame)
        if call.client.revision and call.client.revision.names and not is_as_it_is:
            body = bytes(naming.write(call.method, bytes(body), call.client.revision))
        return Reply(body, parked_call)

    async def _gathered(self, client: Client, outcome: NeedInput) -> Raw:
        """The questions of a call, with those that follow at once, as its client reads them; nothing where there are
        none any more."""
        try:
            await self._clock.sleep(WINDOW)
            return await self._asked_of(client, outcome.resume.open_asks())
        except BaseException:
            outcome.resume.cancel()
            raise

    async def _asked_of(self, client: Client, questions: tuple[Ask, ...], called: Mapping[str, str] = {}) -> Raw:
        """As `modern.write_questions` has them."""
        write = partial(modern.write_questions, client, questions, called)
        return await responses.by_size(asks.size(questions), write, self._gateway.in_turns, client)

    def _held(
        self, parked_call: ParkedCall | None, outcome: NeedInput, request: Request, notes: Notes | None
    ) -> ParkedCall:
        if parked_call is None:
            size = memoryview(request.message.params).nbytes  # whatever is kept of a request keeps all of it
            return self._parking.hold(outcome.resume.origin, notes, request.asked.client.principal, size)
        self._parking.ask_again(parked_call, outcome.resume.origin)
        return parked_call
