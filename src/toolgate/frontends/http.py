"""The HTTP frontend: every way in that begins with an HTTP request (spec: basic/transports; behaviour.md 001).

An ASGI application. What has passed the guards is Streamable HTTP of both eras, on one URL; or the transport of
2024-11-05, at that URL with `/sse` behind it; or a WebSocket at that URL. A message is decoded once, and goes by its
era: a modern one is answered alone and dies with its connection, a legacy one belongs to a session that outlives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from toolgate.auth.refusals import Unauthorized
from toolgate.auth.resource import WELL_KNOWN, Resource
from toolgate.config import KnownClient
from toolgate.core import jsonrpc, mcp
from toolgate.core.fault import Fault, let_go
from toolgate.core.jsonrpc import Malformed, Message
from toolgate.core.model import Principal
from toolgate.eras import headers as era_headers
from toolgate.eras import modern
from toolgate.frontends import batches, cors, guards, responses, sse_delivery, ways
from toolgate.frontends.active_requests import ActiveRequest, ActiveRequests, Known
from toolgate.frontends.application import Application
from toolgate.frontends.channels import Channel, is_of_session
from toolgate.frontends.connections import OF_LINE, STATE, Connection
from toolgate.frontends.deps import FrontendDeps
from toolgate.frontends.guards import LARGE, Guards, Identify, Refused, Request, Scope, connection_of, not_allowed
from toolgate.frontends.known_heads import CAME, Parted
from toolgate.frontends.lane import Lane, LaneCall, LegacyCall, ModernCall
from toolgate.frontends.modern import Reply
from toolgate.frontends.pipes import Pipes
from toolgate.frontends.scheduling import TakeTurn, let_others_in
from toolgate.frontends.session import Session
from toolgate.frontends.sessions import Sessions, new_session
from toolgate.frontends.streams import Delivery, HeaderList, Receive, Response, Send
from toolgate.frontends.web import Web

DENIAL = "websocket.http.response"  # how ASGI calls what refuses a WebSocket, where the server knows that
_NOTHING: Mapping[str, Any] = {}
LAST_WORD = 0.2  # seconds for subscriptions to end by themselves


class HttpFrontend(Application):
    """The ASGI application. `identify` says who a client is; `resource` what the gateway says to who wants a token."""

    def __init__(self, deps: FrontendDeps, sessions: Sessions, identify: Identify, resource: Resource) -> None:
        super().__init__(deps.clock, deps.config.http.body_limit)
        self._deps = deps
        self._unanswered = deps.unanswered
        self._modern = deps.modern
        self._sessions = sessions
        self._config = deps.config
        self._proxies = deps.config.http.trusted_proxies
        self._clock = deps.clock
        self._guards = Guards(
            *(deps.gateway, deps.config, identify, self.callers, self.bodies, self.scheduler),
            *(self.known_heads, deps.clock),
        )
        self.web = Web(deps, self._guards, resource)
        self._resource = resource
        self._active_requests = ActiveRequests()
        self._pipes = Pipes(deps, self.scheduler)
        self._methods = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        self._sse_methods = {"POST": self._sse_post, "GET": self._sse_get}
        self._modern_work: dict[Delivery, str] = {}  # requests of modern clients, and their methods
        told = self._failure, self._refusal, self._go_on
        self._lane = Lane(self._guards, deps.modern, sessions, deps.unanswered, deps.clock, *told)
        self.begin = self._lane.begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"the HTTP frontend does not serve {scope['type']}")
        state = scope.get("state") or _NOTHING
        connection: Connection | None = state.get(STATE)
        came: Parted | None = state.get(CAME)
        response = Response(send, backlog=connection.backlog if connection else None)
        try:
            scope = self._guards.seen(scope) if self._proxies else scope
            is_beside = scope["path"].startswith(self.web.prefixes) or scope["path"].endswith(self.web.suffixes)
            if self._guards.cors and (not is_beside or scope["path"].startswith(WELL_KNOWN)):
                response.headers += self._guards.cors.headers(scope)
                if response.headers and (allowed := cors.preflight(scope)):
                    self._guards.check(scope)
                    await response.whole(204, headers=allowed)
                    return
            if is_beside:
                await self.web.answer(scope, receive, response)
                return
            request = await self._guards.admit(scope, receive, connection, came)
            methods = self._sse_methods if request.is_sse else self._methods
            method = methods.get(scope["method"])
            if not method:
                raise not_allowed(", ".join(methods))
            with ActiveRequest(request.principal, self._clock, self._active_requests.all) as request.active_request:
                await method(request, response)
        except Unauthorized as expelled:
            await _last_word(response, guards.refused(expelled))
        except Refused as refused:
            let_go(refused)
            await response.whole(refused.status, refused.body, refused.headers)

    async def _go_on(self, call: LaneCall, receive: Receive, send: Send) -> None:
        """What is left of a call that was begun without a task."""
        request = msgspec.structs.replace(call.request, receive=receive)
        response = Response(send, call.request.cors, backlog=call.slot.connection.backlog)
        try:
            with ActiveRequest(request.principal, self._clock, self._active_requests.all) as request.active_request:
                if isinstance(call, LegacyCall):
                    await self._legacy_post(request, response, call.message, call)
                elif isinstance(call, ModernCall):
                    await self._modern_post(request, response, call.message, call)
        except Unauthorized as expelled:
            await _last_word(response, guards.refused(expelled))
        finally:
            self._unanswered.answered(request.principal.counted_as, call.size)
            call.forget()

    @property
    def guards(self) -> Guards:
        return self._guards

    def stranger(self, scope: Scope, key: str) -> str:
        told = self._guards.forwarding.told(scope)
        return Principal(address=told.address).counted_as if told and told.address else key

    def expel_unknown(self, is_known: Known) -> None:
        """End what is under way of clients that would not be let in any more, their sessions and parked calls
        too."""
        self.callers.forget()
        self.known_heads.forget()
        if unknown := [call for call in self._lane.calls if not is_known(call.request.principal)]:
            for call in unknown:
                call.go_on()
            asyncio.get_running_loop().call_soon(self._active_requests.expel_unknown, is_known)  # when they have begun
        self._active_requests.expel_unknown(is_known)
        self._sessions.end_unknown(is_known)
        self._modern.end_unknown(is_known)
        self.web.end_unknown(is_known)

    def end_moved(self, before: Sequence[KnownClient], now: Sequence[KnownClient]) -> None:
        """End the sessions, and what else lasts, of clients that `/mcp` has led to another surface than it does now:
        they are not heard there any more, and begin anew."""
        surfaces = {client.id: client.surface for client in now}
        changed = [client for client in before if client.surface != surfaces.get(client.id, client.surface)]
        if not (left := {(client.id, guards.endpoint(client.surface)) for client in changed}):
            return
        self._active_requests.expel_moved(lambda principal, path: (principal.client, path) in left)
        for session in self._sessions.all():
            if (session.client.principal.client, session.path) in left:
                self._sessions.end(session)

    def end_unknown_streams(self, is_known: Known) -> None:
        """What their clients have begun in time may end; it is streams and WebSockets that do not end by themselves."""
        self._active_requests.expel_unknown(is_known, only_lasting=True)

    def _refusal(self, request: Request, error: BaseException | None) -> tuple[int, HeaderList] | None:
        """The status of a failure that its client's authorization can fix, and how; and that of a path which it may
        not come to any more."""
        if not isinstance(error, Fault):
            return None
        if error.code == "ACCESS_DENIED" and not self._guards.lets_in(request):
            return 403, []
        if error.code != "INSUFFICIENT_SCOPE":
            return None
        scopes = error.extra.get("scopes", ())
        challenge = self._resource.challenge(request.own_path, "insufficient_scope", error.message, scopes)
        return 403, [(b"www-authenticate", challenge.encode())]

    def under_way(self) -> list[asyncio.Task[Any]]:
        """What works for modern clients, for those on connections that go both ways, and for the operator; what is
        listened to does not end."""
        begun = [call.go_on() for call in list(self._lane.calls)]
        modern_work = [each.work for each, method in self._modern_work.items() if each.work and method != mcp.LISTEN]
        return begun + modern_work + self._pipes.under_way() + self.web.admin.under_way()

    def close(self) -> None:
        """End the requests of modern clients, subscriptions by a last word, and the connections that go both ways; all
        else ends with its session."""
        self._modern.close()
        self._clock.call_later(LAST_WORD, self.end)

    def end(self) -> None:
        """The same, at once."""
        self.scheduler.close()
        for call in list(self._lane.calls):
            call.cancel()
        for delivery in list(self._modern_work):
            delivery.cancel()
        self._pipes.close()

    # POST.

    async def _post(self, request: Request, response: Response) -> None:
        data = request.body or await self._guards.read(request)
        if request.came and not request.body:
            self._guards.remember(request, request.came, data)
        malformed: Malformed | None = None
        message = jsonrpc.Message()
        try:
            message = jsonrpc.decode(data, is_shallow=request.is_shallow)
        except Malformed as error:
            malformed = error
        try:
            if malformed:
                await self._other_post(request, response, data, malformed)
                return
        finally:
            del malformed  # or this frame and it would hold each other
        if len(data) > LARGE:  # to read it has taken its time
            await let_others_in(partial(self.scheduler.turn, request.principal.counted_as))
        is_modern = modern.speaks_modern(request.headers.get(era_headers.VERSION), message.params)
        if is_modern and request.twice:
            raise Refused(400, f"Header mismatch: duplicate header {request.twice}", mcp.HEADER_MISMATCH)
        if not (message.method and message.id):  # what answers a question is taken whatever is under way
            await (self._modern_told if is_modern else self._legacy_told)(request, response, message)
            return
        whose = request.principal.counted_as
        try:
            head = sum(len(name) + len(value) + OF_LINE for name, value in request.scope["headers"])  # is kept as well
            kept = self._unanswered.begun(whose, len(data) + head)
        except Fault as fault:
            raise Refused(429, fault.message, fault.rpc, bytes(message.id), fault.data()) from None
        try:
            await (self._modern_post if is_modern else self._legacy_post)(request, response, message)
        finally:
            self._unanswered.answered(whose, kept)

    async def _modern_told(self, _request: Request, response: Response, message: Message) -> None:
        if message.is_response:
            raise Refused(400, "Invalid request: clients do not send responses in this revision")
        await response.whole(202)

    async def _modern_post(
        self, request: Request, response: Response, message: Message, begun: ModernCall | None = None
    ) -> None:
        if message.method == mcp.LISTEN and not request.accepts_events:
            text = "A subscription requires Accept: text/event-stream"
            raise Refused(406, text, id=bytes(message.id))
        if message.method == mcp.LISTEN:
            _lasts(request, response)
        task = request.active_request.task if request.active_request else None
        delivery = Delivery(response, request.receive, self._clock, request.accepts_events, task)
        self._modern_work[delivery] = message.method
        id = bytes(message.id)
        error: BaseException | None = None
        reply: Reply | None = None
        try:
            try:
                if begun and begun.begun:
                    begun.hears(delivery.note)
                    reply = await self._modern.rest(begun.begun)
                    begun.forget()  # the result in it may be large
                else:
                    way = ways.EVENT if request.accepts_events_only else ways.BODY
                    reply = await self._modern.answer(
                        message, request.headers, request.principal, request.route, delivery.note, way
                    )
            except asyncio.CancelledError:
                error = self._deps.gateway.given_up() or _cancelled()
                is_expelled = request.active_request and request.active_request.is_expelled
                if is_expelled or not delivery.goes_on(error.code == "SHUTTING_DOWN"):
                    raise
            except Exception as raised:  # noqa: BLE001  the rescue: see responses.rescued
                error = raised
            await delivery.finish()
            if error:
                await response.finish(*self._failure(request, id, error))
                return
            assert reply
            if request.accepts_events_only:
                await response.begin(b"")
            body, reply = jsonrpc.result_of(id, reply.body), msgspec.structs.replace(reply, body=b"")
            finished = response.finish(200, body)
            del body  # it may be large, and its client slow
            await finished
            if not delivery.has_left:
                if reply.parked_call:
                    self._modern.flushed(reply)
                reply = None
        finally:
            if reply:
                self._modern.unsent(reply)
            del self._modern_work[delivery]
            if not delivery.is_quiet:
                delivery.close()

    def _failure(self, request: Request, id: bytes, error: BaseException) -> tuple[int, bytes, HeaderList]:
        """Status, body and headers that tell a modern client what has failed."""
        fault = responses.rescued(error)
        code = modern.error_code(fault)
        status, headers = self._refusal(request, fault) or (modern.HTTP_STATUS.get(code, 200), ())
        let_go(error)
        return status, responses.write_error(id, fault, code), headers

    async def _legacy_told(self, request: Request, response: Response, message: Message) -> None:
        if era_headers.SESSION in request.headers or request.route.is_strict:  # else it belongs to nothing
            session = self._session(request, message)
            response.headers.append((b"mcp-session-id", session.id.encode()))
            (session.answered if message.is_response else session.notified)(message)
        await response.whole(202)

    async def _legacy_post(
        self, request: Request, response: Response, message: Message, begun: LegacyCall | None = None
    ) -> None:
        session = (begun and begun.session) or self._session(request, message)
        channel = _channel(request, response, session, begun and begun.channel)
        work = session.respond(message, channel, begun and begun.begun)
        refuse, method = self._refusal, message.method
        await sse_delivery.answer(request, response, channel, work, session, self._clock, refuse, method)
        if session.is_to_end:
            self._sessions.end(session)

    async def _other_post(self, request: Request, response: Response, data: bytes, error: Malformed) -> None:
        """What is no message: a batch of them, or nothing that can be read."""
        try:
            if error.is_answer and (answering := request.headers.get(era_headers.SESSION)) is not None:
                self._known_session(request, answering).answered_unreadably(error)
            session = self._session_of_batch(request, error)
            batch = batches.read(data, session.agreed if session else None, error)
        except Malformed as refused:
            let_go(refused)
            await response.whole(400, responses.write_malformed(refused))
            return
        if not session:
            if not any(isinstance(each, Malformed) or each.is_request for each in batch):
                await response.whole(202)
                return
            session = self._new_session(request, is_implicit=True)
        channel = _channel(request, response, session)
        whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        gathered = batches.Gathered(lambda all: None if whole.done() else whole.set_result(batches.joined(all)))
        whose = request.principal.counted_as
        turn = self.scheduler.in_order(whose)
        size = len(data) + sum(len(name) + len(value) + OF_LINE for name, value in request.scope["headers"])
        taken, kept = batches.begun(batch, lambda many: self._unanswered.begun(whose, size, many), gathered)
        try:
            for each in taken:
                _take(each, session, channel, gathered, turn)
            gathered.is_whole()
            await sse_delivery.answer(request, response, channel, whole, session, self._clock, self._refusal)
        finally:
            if kept:
                self._unanswered.answered(whose, kept)
        if session.is_to_end:
            self._sessions.end(session)

    def _session_of_batch(self, request: Request, error: Malformed) -> Session | None:
        """Raises `error` where no batch is served at all."""
        revision = mcp.stated(request.headers.get(era_headers.VERSION))
        if not revision or not revision.has_batches:
            raise error
        id = request.headers.get(era_headers.SESSION)
        return self._known_session(request, id) if id is not None else None

    def _session(self, request: Request, message: Message) -> Session:
        """The session of a legacy request: its own, or a new one on its first (behaviour.md 6.8)."""
        version = request.headers.get(era_headers.VERSION)
        of = bytes(message.id) if message.is_request else b"null"
        if not mcp.stated(version) and message.method != mcp.INITIALIZE:
            raise Refused(400, f"Unsupported protocol version: {version}", id=of)
        id = request.headers.get(era_headers.SESSION)
        if id is not None and message.method != mcp.INITIALIZE:
            return self._known_session(request, id, of)
        return self._new_session(request, is_implicit=message.method != mcp.INITIALIZE, of=of)

    def _new_session(self, request: Request, is_implicit: bool, of: bytes = b"null") -> Session:
        """`of` is the id of the message that it is for."""
        if is_implicit and (request.route.is_strict or not self._config.sessions.implicit):
            text = "The first request must be initialize, and later requests must carry Mcp-Session-Id"
            raise Refused(400, text, id=of)
        revision = mcp.stated(request.headers.get(era_headers.VERSION))
        session = new_session(self._deps, request.route.path, request.principal, revision)
        self._sessions.add(session, implicit=is_implicit)
        return session

    def _known_session(self, request: Request, id: str, of: bytes = b"null") -> Session:
        """`of` is the id of the message that is in it."""
        session = self._sessions.get(id, request.principal)
        if not session or session.path != request.route.path:
            raise Refused(404, "Session not found: initialize again", id=of)
        return session

    # GET and DELETE: legacy only.

    async def _get(self, request: Request, response: Response) -> None:
        session = self._existing(request)
        if not request.accepts_events:
            raise Refused(406, "This stream requires Accept: text/event-stream")
        last = request.headers.get(era_headers.LAST_EVENT, "")
        _lasts(request, response)
        found = session.replay_buffer.find(last, session.rights)
        if found:
            await sse_delivery.resume(response, request.receive, *found, session, self._clock)
        elif not last or is_of_session(last):
            await sse_delivery.listen(response, request.receive, session, self._clock)
        else:
            raise Refused(400, f"Event {last!r} is unknown or has expired: its stream cannot be resumed")

    async def _delete(self, request: Request, response: Response) -> None:
        self._sessions.end(self._existing(request))
        await response.whole(204)

    def _existing(self, request: Request) -> Session:
        id = request.headers.get(era_headers.SESSION)
        if mcp.is_modern(request.headers.get(era_headers.VERSION, "")):
            raise not_allowed("POST")
        if id is None:
            raise Refused(400, "Mcp-Session-Id is missing")
        return self._known_session(request, id)

    # The transport of 2024-11-05, and WebSocket.

    async def _sse_get(self, request: Request, response: Response) -> None:
        way = ways.of_pipe(request.headers.get("user-agent", ""))
        _lasts(request, response)
        await self._pipes.stream(request, way, response)

    async def _sse_post(self, request: Request, response: Response) -> None:
        self._pipes.find(request)
        data = await self._guards.read(request)
        self._pipes.find(request).received(data, request.is_shallow)  # meanwhile it may have been shown another token
        await response.whole(202)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # that it wants to connect
        try:
            scope = self._guards.seen(scope) if self._proxies else scope
            request = await self._guards.admit(scope, receive, connection_of(scope))
            if request.is_sse:
                raise Refused(404, f"No WebSocket is served at {scope['path']}; the endpoint is {request.route.path}")
            with ActiveRequest(request.principal, self._clock, self._active_requests.all) as request.active_request:
                way = ways.of_pipe(request.headers.get("user-agent", ""))
                _lasts(request)
                await self._pipes.websocket(request, way, send)
        except Unauthorized as expelled:
            await send({"type": "websocket.close", "code": 1008, "reason": expelled.message[:100]})
        except Refused as refused:
            if DENIAL in scope.get("extensions", {}):
                await Response(send, kind=DENIAL).whole(refused.status, refused.body, refused.headers)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": str(refused)[:100]})


def _cancelled() -> Fault:
    return Fault("SESSION_ERROR", "The request was cancelled", reach="sent_unknown")


def _lasts(request: Request, response: Response | None = None) -> None:
    """From now on it ends only when somebody ends it, and keeps no head, which may be large. What streams its events,
    if not a WebSocket, says nothing more from then on."""
    if request.active_request:
        request.active_request.lasts(request.route.path, *((response.silence,) if response else ()))
    request.scope["headers"] = ()
    if request.scope["type"] == "websocket" or request.scope["method"] == "GET":
        request.headers = {}


async def _last_word(response: Response, refused: Refused) -> None:
    if response.is_streaming:
        await response.end()
    elif not response.has_begun:
        await response.whole(refused.status, refused.body, refused.headers)


def _response_of(done: asyncio.Task[bytes], message: Message) -> bytes:
    return responses.write_cancelled(message) if done.cancelled() else done.result()


def _channel(request: Request, response: Response, session: Session, begun: Channel | None = None) -> Channel:
    """What answers a request of a session, which the response names."""
    response.headers.append((b"mcp-session-id", session.id.encode()))
    channel = begun or Channel(request.accepts_events, request.accepts_events, request.headers, session.rights)
    channel.is_stream = request.accepts_events_only
    return channel


def _take(
    each: Message | Malformed, session: Session, channel: Channel, gathered: batches.Gathered, turn: TakeTurn
) -> None:
    """Handle one message of a batch."""
    if isinstance(each, Malformed) and each.is_answer:
        session.answered_unreadably(each)
    elif isinstance(each, Malformed):
        gathered.add(responses.write_malformed(each))
    elif each.is_request:
        gathered.follow(session.answer(each, channel, turn), lambda done: _response_of(done, each))
    else:
        (session.answered if each.is_response else session.notified)(each)
