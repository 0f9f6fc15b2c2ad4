"""One live connection to an MCP server: requests out, answers and notes in, and the server's own questions.

The rules this file keeps: an id is never used twice on a connection; every request ends (answer, fault, timeout,
cancellation, or the connection's own end); a question goes to the call that `attribution` names, or to nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.complaints import Complaints
from toolgate.core.exchange import TIMED_OUT, Exchange, Part, Retry, run
from toolgate.core.jsonrpc import Members, Message
from toolgate.core.model import (
    Accepted,
    Asker,
    Call,
    Client,
    Done,
    Event,
    EventSink,
    Fault,
    Made,
    NeedInput,
    Note,
    Outcome,
    Reach,
    Required,
)
from toolgate.core.redaction import excerpt
from toolgate.eras import calls, legacy, tasks
from toolgate.upstreams.base import Items
from toolgate.upstreams.bounds import Bounds
from toolgate.upstreams.concurrency import ConcurrencyLimit
from toolgate.upstreams.links.base import Headers, Link
from toolgate.upstreams.mcp.attribution import owner_of, waiting_for
from toolgate.upstreams.mcp.dialects import Dialect, Unknown
from toolgate.upstreams.mcp.paging import read_list
from toolgate.upstreams.mcp.questions import OpenRequest, Questions
from toolgate.upstreams.mcp.subscriptions import UpstreamSubscriptions, Wanted
from toolgate.upstreams.mcp.tasks import MOST_TASKS, TaskOwners, Waiting
from toolgate.upstreams.mcp.watchdog import Watchdog
from toolgate.upstreams.stopping import stopped

log = logging.getLogger(__name__)

MOST_PENDING_EVENTS = 64  # messages on their way, beyond which those that may be lost are
MOST_ANSWERS = 1024  # that are not sent yet, beyond which a server gets none to what it asks
TELLING = 5.0  # seconds that a message which waits for nothing may take
LONGEST_RESULT = 24 * 3600.0  # seconds for which a client may wait for the result of a task
LONGEST_NOTE = 1024 * 1024  # bytes of what a server says unasked, which is read and written for each who hears it
GIVEN_UP = 10.0  # seconds in which a server may still ask for a call that was given up


class _Progress(msgspec.Struct):
    progressToken: int | str | None = None


class Connection:
    """`again` makes a call anew, for a modern server that wants its state back. `sole_owner`: it serves one client.
    `on_closed` is told why it is over, and whether that is the end of what is under way, too; `on_rest` each time that
    a call is over."""

    def __init__(
        self,
        server: Server,
        clock: Clock,
        again: Callable[[Call], Awaitable[Outcome]],
        on_event: EventSink,
        on_closed: Callable[[Connection, Fault, bool], None],
        on_rest: Callable[[], None],
        sole_owner: bool,
        scope: str = "",
        task_owners: TaskOwners | None = None,
        principal: str = "",
        complaints: Complaints | None = None,
    ) -> None:
        self.principal = principal
        self._complaints = complaints or Complaints(clock)
        self.bounds = Bounds()
        self.task_owners = task_owners or TaskOwners()  # of the tasks that clients have made
        self.subscriptions: UpstreamSubscriptions | None = None
        self.wanted = Wanted()
        self.dialect: Dialect = Unknown()
        self.link: Link | None = None
        self.fault: Fault | None = None  # why it is over
        self.is_closing = False
        self.used = clock.now()
        self.server_id = server.id
        self.asker = Asker("upstream", server.id)
        self._server = server
        self._clock = clock
        self._again = again
        self._on_event = on_event
        self._on_closed = on_closed
        self._on_rest = on_rest
        self._sole_owner = sole_owner
        self.scope = scope
        self._ids = itertools.count(1)
        self._requests: dict[int, OpenRequest] = {}
        self._given_up: dict[int, OpenRequest] = {}  # that the server may still work on
        self._made: dict[int, tuple[OpenRequest, str]] = {}  # that have become tasks, with their ids: they still report
        self._concurrency = ConcurrencyLimit(server.name, server.concurrency, clock)
        self._questions = Questions(
            server, sole_owner, self._requests, self._given_up, self._concurrency, self.answer, self.remark, clock
        )
        self._watchdog = Watchdog(self, server, clock)
        self._work: set[asyncio.Task[None]] = set()
        self._answers: deque[bytes] = deque()  # to what the server asks, that are not sent yet
        self._extended = TaskOwners()  # of tasks of the extension
        self._wholes = 0  # calls that are run as tasks

    def __repr__(self) -> str:
        spoken = self.dialect.revision.date if self.dialect.revision else "opening"
        return f"<Connection {self._server.id} {spoken} {len(self._requests)} in flight>"

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answers."""
        return sum(request.call is not None for request in self._requests.values())

    @property
    def _is_watched(self) -> bool:
        """While it opens, `opening` sees to it that the server answers."""
        return self._server.type == "stdio" and bool(self.dialect.revision)

    @property
    def calls(self) -> int:
        """How many requests of clients are under way here, parked ones and those that wait for their turn too."""
        sent = sum(
            request.call is not None and not isinstance(request.exchange, Part) for request in self._requests.values()
        )
        return sent + self._wholes + self._concurrency.waiting

    # Requests of ours.

    async def invoke(self, call: Call) -> Outcome:
        """One round of a call. Raises `Fault`."""
        if call.resumption and call.resumption.asker != self.asker:
            call = msgspec.structs.replace(call, resumption=None)  # answers and state that are somebody else's
        if call.asked_in:
            self._check_relayed(call)
        if call.is_notification:
            self.remark(jsonrpc.notification(call.method, jsonrpc.encode(calls.write_params(call, {}))))
            return Done(b"{}")
        if call.log_level and self.subscriptions and self.wanted.raise_level(call.log_level):
            await self.subscriptions.set_level(call.log_level)
        if call.task and not self.dialect.runs_tasks:
            raise tasks.not_as_task(call.shown)
        if call.tool_info and call.tool_info.task_support == "required" and not call.task and self.dialect.runs_tasks:
            return await self._as_task(call)
        return await self.one_round(call)

    def _check_relayed(self, call: Call) -> None:
        """Raises `Fault` for a method that MCP does not define where the server speaks another era than its client; and
        where it is a process that others use too and declares nothing but what we know: some die of any such method."""
        era = self.dialect.revision and self.dialect.revision.era
        may_die = self._server.type == "stdio" and self._server.scope == "shared"
        if call.asked_in != era or (may_die and not mcp.declares_more(self.dialect.capabilities)):
            raise Fault("METHOD_NOT_FOUND", f"Method not found: {call.method}", reach="not_sent")

    async def one_round(self, call: Call, whole: Exchange | None = None) -> Outcome:
        """One request to the server, for itself or as a part of something longer. Raises `Fault`."""
        if call.method not in mcp.TASKS and (self._questions.is_careful or not self._concurrency.take_now()):
            await self._turn(call)
        self.used = self._clock.now()
        id = next(self._ids)
        exchange = self._expect(id, call, LONGEST_RESULT if _waits(call) else self._server.timeout, whole=whole)
        try:
            params, headers = self.dialect.call(call, id)
            await self._send(id, call.method, params, [*headers, *passed_on(self._server, call)])
        except BaseException:
            self._forget(id)
            exchange.cancel()
            raise
        self._questions.hand_over()
        return await exchange.next()

    async def _turn(self, call: Call) -> None:
        await self._concurrency.take(self._server.timeout, call.client.principal.counted_as)
        if self._questions.is_careful:
            try:
                await self._questions.clear_for(call)
            except BaseException:
                self._concurrency.give_back()
                raise

    async def _as_task(self, call: Call) -> Outcome:
        """The result of a tool that runs as a task only, for a client that wants none."""

        async def work(whole: Exchange) -> Outcome:
            self._wholes += 1
            try:
                return await Waiting(self, call, whole, self._clock, self._server.timeout).outcome()
            finally:
                self._wholes -= 1
                self._on_rest()

        return await run(self.asker, self._clock, None, work).next()

    def forget_progress(self, whole: Exchange) -> None:
        self._made = {id: made for id, made in self._made.items() if not _is_part(made[0].exchange, whole)}

    def end_task(self, id: str) -> None:
        if tasks.offers(self.dialect.capabilities, "cancel"):
            self._spawn(self._end_task(id))

    async def _end_task(self, id: str) -> None:
        try:
            params = jsonrpc.encode({"taskId": id})
            await self.ask_server(mcp.TASK_CANCEL, params, self.dialect.other(), TELLING)
        except Fault as fault:
            log.info("%s did not cancel the task %s: %s", self._server.name, id, fault.message)

    async def tasks_of(self, principal: str) -> Mapping[str, tuple[Raw, Made]]:
        """The tasks that a principal has made, as they are now. Raises `Fault`."""
        mine = self.task_owners.of(principal)
        if not mine or not self.dialect.runs_tasks:
            return {}
        if tasks.offers(self.dialect.capabilities, "list"):
            listed = (await read_list(self, mcp.TASKS_LIST, "tasks", Client())).raw
            there = dict(self._known_tasks(listed))
        else:
            there = {id: raw for id in mine if (raw := await self._task(id))}
        self.task_owners.forget(id for id in mine if id not in there)
        return {id: (there[id], made) for id in mine if id in there and (made := self.task_owners.made(id))}

    def _known_tasks(self, listed: Iterable[Raw]) -> Iterator[tuple[str, Raw]]:
        """The tasks of a list by their ids; one that is out of shape is left out."""
        for raw in listed:
            try:
                yield tasks.read_id(raw), raw
            except Fault as fault:
                if self._complaints.takes(self._server.id):
                    log.warning("%s: %r", fault.message, excerpt(bytes(raw)))

    async def _task(self, id: str) -> Raw | None:
        try:
            return await self.ask_server(mcp.TASK_GET, jsonrpc.encode({"taskId": id}), self.dialect.other())
        except Fault as fault:
            if fault.upstream and fault.upstream.code == jsonrpc.INVALID_PARAMS:
                return None
            raise

    async def ask_server(
        self, method: str, params: Members | bytes, headers: Headers, timeout: float | None = None
    ) -> Raw:
        """A request of the gateway's own; its result. `timeout` in seconds, else the server's. Raises `Fault`."""
        _, exchange = await self._begin(method, params, headers, timeout or self._server.timeout)
        outcome = await exchange.next()
        assert isinstance(outcome, Done)
        return Raw(outcome.body)

    async def begin(self, method: str, params: bytes, headers: Headers) -> tuple[int, Exchange]:
        """A request whose answer is its end; it has no time limit. Its id, and the end. Raises `Fault`."""
        return await self._begin(method, params, headers, None, is_long=True)

    async def _begin(
        self, method: str, params: Members | bytes, headers: Headers, timeout: float | None, is_long: bool = False
    ) -> tuple[int, Exchange]:
        id = next(self._ids)
        exchange = self._expect(id, None, timeout, is_long)
        try:
            await self._send(id, method, params, headers)
        except BaseException:
            self._forget(id)
            exchange.cancel()
            raise
        return id, exchange

    def missed(self) -> None:
        """Whatever is listed may be something else by now."""
        self._on_event(Event(self._server.id, "list_changed", self.scope, tuple(mcp.LIST_OF_KIND)))

    def hear(self, subscriptions: UpstreamSubscriptions, wanted: Wanted) -> None:
        """Have the server tell what is wanted, from now until the connection ends."""
        self.subscriptions, self.wanted = subscriptions, wanted
        subscriptions.open(wanted)

    async def list(self, method: str, client: Client) -> Items:
        """Every page of a list of `mcp.LISTS`. Raises `Fault`."""
        return await read_list(self, method, mcp.LISTS[method].kind, client)

    async def roots_changed(self) -> None:
        if self.dialect.hears_of_roots:
            await self.tell(jsonrpc.notification(mcp.ROOTS_CHANGED))

    def notify(self, message: bytes) -> None:
        """Send a message that waits for nothing; what becomes of it shows in what follows."""
        self._spawn(self.tell(message))

    def answer(self, message: bytes) -> None:
        """Send an answer to what the server has asked, after those before it."""
        if len(self._answers) < MOST_ANSWERS:
            self._answers.append(message)
            if len(self._answers) == 1:
                self._spawn(self._send_answers())

    async def _send_answers(self) -> None:
        try:
            while self._answers:
                await self.tell(self._answers[0])
                self._answers.popleft()
        finally:
            self._answers.clear()  # whatever has ended this: the next answer begins anew

    def remark(self, message: bytes) -> None:
        """The same of what may be lost: where the server does not read, it is."""
        if len(self._work) < MOST_PENDING_EVENTS:
            self.notify(message)

    async def tell(self, message: bytes) -> None:
        if not self.link or self.fault:
            return
        try:
            async with self._clock.timeout(TELLING):
                await self.link.send(message, self.dialect.other())
        except (Fault, TimeoutError) as error:
            log.info("could not notify %s: %s", self._server.name, error)

    def _expect(
        self, id: int, call: Call | None, timeout: float | None, is_long: bool = False, whole: Exchange | None = None
    ) -> Exchange:
        def cancel(reason: str) -> None:
            self._cancel(id, reason)

        clock = self._clock
        exchange = Part(whole, clock, timeout, cancel) if whole else Exchange(self.asker, clock, timeout, cancel)
        self._requests[id] = OpenRequest(exchange, call, is_long, self.link.signs_of_life if self.link else None)
        return exchange

    async def _send(self, id: int, method: str, params: Members | bytes, headers: Headers) -> None:
        if self.fault or not self.link:
            raise self._gone()
        body = params if isinstance(params, bytes) else jsonrpc.encode(params)
        await self.link.send(jsonrpc.request(id, method, body), headers, id)

    def _gone(self) -> Fault:
        if self.is_closing:
            return stopped(self._server.id, self._server.name, "not_sent")
        why, words = (self.fault.message, self.fault.words) if self.fault else ("it is not connected", None)
        message = f"Server not started: {why}"
        return Fault("SESSION_ERROR", message, server=self._server.id, reach="not_sent", words=words)

    def _cancel(self, id: int, reason: str) -> None:
        request = self._forget(id)
        if not request or not self.link:
            return
        self._given_up[id] = request
        self._clock.call_later(GIVEN_UP, lambda: self._asks_no_more(id))
        if self._is_watched and request.seen is not None and request.seen == self.link.signs_of_life:
            pause = 0.0 if reason == TIMED_OUT else self._server.timeout
            self._spawn(self._watchdog.look(request.seen, pause))
        self._questions.over(id, is_answered=False)
        told = self.link.abandon(id)
        if (request.call or request.is_long) and not (told and self.dialect.closing_cancels):
            self.notify(legacy.cancelled(id, reason))

    def _asks_no_more(self, id: int) -> None:
        if self._given_up.pop(id, None):
            self._questions.asks_no_more()

    def _forget(self, id: int) -> OpenRequest | None:
        request = self._requests.pop(id, None)
        if request and request.call:
            if request.call.method not in mcp.TASKS:
                self._concurrency.give_back()
            self._on_rest()
        return request

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    # What the link calls.

    def received(self, data: bytes, origin: int | None) -> None:
        try:
            message = jsonrpc.decode(data)
        except jsonrpc.Malformed as error:
            self._misread(error, data, origin)
            return
        try:
            if message.is_response:
                self._answered(message, origin)
            elif message.is_notification:
                self._notified(message, origin)
            else:
                self._questions.asked(message, origin)
        except (Fault, *jsonrpc.UNREADABLE) as error:
            id, only = (bytes(message.id), "method") if message.is_request else (b"null", "")
            self._misread(jsonrpc.Malformed(jsonrpc.INVALID_PARAMS, str(error), id, only=only), data, origin)

    def _misread(self, error: jsonrpc.Malformed, data: bytes, origin: int | None) -> None:
        """Whoever waits for an answer, we or the server, is told that there will be none."""
        if self._complaints.takes(self._server.id):
            log.warning("%s sent an invalid message: %s: %r", self._server.name, error, excerpt(data))
        if error.id != b"null" and error.only == "method":
            self.answer(jsonrpc.error(error.id, error.rpc, error.message))
        elif error.is_answer and error.id.isdigit() and origin in (None, int(error.id)):
            reach: Reach = "executed" if error.only == "result" else "sent_unknown"
            self.failed(int(error.id), self._unreadable(error, reach))

    def awaits(self, origin: int) -> bool:
        return origin in self._requests

    def failed(self, origin: int, fault: Fault) -> None:
        request = self._forget(origin)
        if request:
            self._questions.over(origin, is_answered=True)
            request.exchange.fail(fault)

    def retired(self, fault: Fault) -> None:
        self._over(fault, is_dead=False)

    def _over(self, fault: Fault, is_dead: bool) -> None:
        if not self.fault:
            self.fault = fault
            self._on_closed(self, fault, is_dead)

    def closed(self, fault: Fault) -> None:
        self._over(fault, is_dead=True)
        self._questions.close()
        if self.subscriptions:
            self.subscriptions.close()
        for id, request in list(self._requests.items()):
            self._forget(id)
            request.exchange.fail(fault.at(self._server.id, ""))

    async def close(self) -> None:
        """End it for good. What is under way fails at once; this returns when all that the link holds is gone."""
        self.is_closing = True
        self.closed(stopped(self._server.id, self._server.name, "sent_unknown"))
        for task in list(self._work):
            task.cancel()
        if self.link:
            await self.link.close()

    def _answered(self, message: Message, origin: int | None) -> None:
        id = _own_id(message, origin)
        request = self._forget(id) if id is not None else None
        if id is not None:
            self._questions.over(id, is_answered=request is not None or not message.error)
        if not request:
            self._asks_no_more(id or 0)
            log.debug("%s answered a request that is not pending", self._server.name)
            return
        try:
            if message.error:
                raise self._error(request.call, jsonrpc.read_error(message.error))
            outcome = self._outcome(request.call, message.result)
            if isinstance(outcome, Accepted):
                self._accepted(id or 0, request, outcome)
            elif request.call and request.call.method == mcp.TASK_RESULT:
                self._task_over(request.call.target)
            elif request.call and request.call.method == mcp.TASK_GET:
                self._taken_on(request.call, outcome.body if isinstance(outcome, Done) else b"")
            request.exchange.finish(outcome)
        except Fault as fault:
            request.exchange.fail(fault)
        except jsonrpc.UNREADABLE as error:
            request.exchange.fail(self._unreadable(error))

    def _unreadable(self, error: Exception, reach: Reach = "executed") -> Fault:
        message = f"The server's answer cannot be read: {error}"
        return Fault("UPSTREAM_ERROR", message, server=self._server.id, reach=reach)

    def _accepted(self, id: int, request: OpenRequest, outcome: Accepted) -> None:
        """A task was made: for a client that goes on with it, or for one that we wait for."""
        if not request.call or not request.call.task:
            self._taken_on(request.call, outcome.body)  # of the extension, which reports nothing
            return
        task = tasks.read_made(outcome.body)
        self._made[id] = request, task.taskId
        if len(self._made) > MOST_TASKS:
            del self._made[next(iter(self._made))]
        if not isinstance(request.exchange, Part):
            self.task_owners.add(task, request.call, self._clock.now())

    def _taken_on(self, call: Call | None, body: Raw | bytes) -> None:
        """What the server says of a task of the extension: while it runs, the server is needed."""
        try:
            task = tasks.read_task(body)
        except Fault:
            return  # for its client to judge
        if task.is_over:
            self._extended.over(task.taskId)
        elif call and call.method == mcp.CALL:
            self._extended.add(task, call, self._clock.now())

    def runs_tasks(self) -> bool:
        """Whether the server may be at work on a task."""
        now = self._clock.now()
        return self.task_owners.runs(now) or self._extended.runs(now)

    def _task_over(self, task: str) -> None:
        self.task_owners.over(task)
        self._made = {id: made for id, made in self._made.items() if made[1] != task}

    def _error(self, call: Call | None, error: jsonrpc.RpcError) -> Fault:
        """The server's own error. That a resource is missing has another code in each era, so it is understood here."""
        if call and error.code == mcp.URL_ELICITATION_REQUIRED:
            self._questions.required(call, error.data)
        is_missing = call and call.method == "resources/read" and error.code == self.dialect.resource_missing
        code = "RESOURCE_NOT_FOUND" if is_missing else "UPSTREAM_ERROR"
        return Fault(code, error.message, server=self._server.id, reach="executed", upstream=error)

    def _outcome(self, call: Call | None, body: Raw) -> Outcome:
        if call is None:
            return Done(body)
        if bytes(memoryview(body)[:1]) != b"{":
            raise Fault("UPSTREAM_ERROR", "The server's result is not a JSON object", reach="executed")
        found = self.dialect.read(call, body)
        if isinstance(found, Required):
            return NeedInput(found.asks, Retry(self.asker, call, found, self._again, self._clock))
        return found

    def _notified(self, message: Message, origin: int | None) -> None:
        size = len(memoryview(message.params))
        if size > LONGEST_NOTE and message.method != mcp.TASK_CHANGED:  # which may have a result in it
            if self._complaints.takes(self._server.id):
                told = (self._server.name, excerpt(message.method), size, LONGEST_NOTE)
                log.warning("%s sent a %s of %d bytes; dropped, because the limit is %d", *told)
            return
        changed = mcp.LIST_CHANGED.get(message.method)
        if changed:
            self._on_event(Event(self._server.id, "list_changed", self.scope, changed))
        elif message.method == mcp.UPDATED:
            uri = calls.read_text(jsonrpc.members(message.params), "uri")
            told = calls.read_told(message.params)
            self._on_event(Event(self._server.id, "updated", self.scope, uri=uri, params=told))
        elif message.method == mcp.ACKNOWLEDGED and self.subscriptions:
            self.subscriptions.acknowledged(message.params)
        elif message.method == mcp.ELICITED:
            self._elicited(message.params)
        elif message.method in (mcp.TASK_CHANGED, mcp.TASK_STATUS):
            self._task_changed(message)
        elif message.method == mcp.PROGRESSED:
            self._progress(message.params)
        elif message.method == mcp.LOGGED:
            self._logged(message.params)
        elif message.method == mcp.CANCELLED:
            self._questions.withdrawn(calls.read_cancelled(message))
        elif message.method not in mcp.NOTIFICATIONS:
            owner = owner_of(origin, self._requests, self._given_up.values())
            if owner and owner.call and owner.call.notes:
                params = message.params or jsonrpc.EMPTY_OBJECT
                owner.call.notes.put(Note("other", params, message.method))

    def _progress(self, params: Raw) -> None:
        token = jsonrpc.read(params, type=_Progress).progressToken
        made = self._made.get(token) if isinstance(token, int) else None
        request = made[0] if made else self._requests.get(token) if isinstance(token, int) else None
        if request and request.call and request.call.notes:
            rest = jsonrpc.members(tasks.with_related(params, ""))
            del rest[mcp.PROGRESS_KEY]
            request.call.notes.put(Note("progress", Raw(jsonrpc.encode(rest))))

    def _logged(self, params: Raw) -> None:
        """A log line belongs to a call as a question does; where it is uncertain whose it is, nobody gets it. On a
        connection that is one client's own it is that client's in any case."""
        task, params = tasks.related(params), tasks.with_related(params, "")
        given_up = self._given_up.values()
        owner = waiting_for(task, self._requests) if task else owner_of(None, self._requests, given_up)
        if owner and owner.call and owner.call.notes and params:
            owner.call.notes.put(Note("log", params))
        elif self._sole_owner and not self.in_flight and params:
            self._on_event(Event(self._server.id, "log", self.scope, params=params))

    def _elicited(self, params: Raw) -> None:
        """A page that a client was sent to is done with: that client is told, and nobody else."""
        id = calls.read_text(jsonrpc.members(params), "elicitationId")
        whose = self._questions.elicitations.pop(id, None)
        if whose:
            self._on_event(Event(self._server.id, "elicited", self.scope, params=params, whose=whose))

    def _task_changed(self, message: Message) -> None:
        """The extension tells those who asked to hear of a task; before, its maker was told, and nobody else."""
        task = tasks.read_task(message.params)
        params = calls.read_told(message.params)
        if message.method == mcp.TASK_CHANGED:
            self._taken_on(None, message.params)
            self._on_event(Event(self._server.id, "task", self.scope, uri=task.taskId, params=params))
            return
        if task.is_over:
            self._task_over(task.taskId)
        if maker := self.task_owners.maker(task.taskId):
            told = Event(self._server.id, "task_status", self.scope, uri=task.taskId, params=params)
            self._on_event(msgspec.structs.replace(told, whose=maker, made=self.task_owners.made(task.taskId)))


def passed_on(server: Server, call: Call) -> Headers:
    """Of the client's headers those that this server is to get; what its configuration sends itself is sent once."""
    if not call.passed_on:
        return ()
    own = {name.lower() for name in server.headers}
    names = [name for name in server.forward_headers if name in call.passed_on and name not in own]
    return [(name.encode(), call.passed_on[name].encode("latin-1", "replace")) for name in names]


def _waits(call: Call) -> bool:
    """Whether the answer comes only when something else has happened."""
    return call.method == mcp.TASK_RESULT


def _is_part(exchange: Exchange, whole: Exchange) -> bool:
    return isinstance(exchange, Part) and exchange.whole is whole


def _own_id(message: Message, origin: int | None) -> int | None:
    """The id of ours that a response is for. An error on a request's own stream is that request's, whatever id it has:
    servers that could not read it, or did not try, write null or one of their own. A result there is for that request
    or for none: it must not be taken for the answer to another that is under way."""
    if message.error and origin is not None:
        return origin
    id = jsonrpc.id_key(message.id) if message.id else None
    return id if isinstance(id, int) and origin in (None, id) else None
