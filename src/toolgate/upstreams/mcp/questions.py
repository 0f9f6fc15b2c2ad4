"""The questions of a legacy server: placed with the call that they belong to, held until it is clear which that is,
kept for the next, or refused; each answered once.

The rules this file keeps: a question is never put to anybody else than its call's client; the server gets an answer to
each, unless it withdraws it; and none that says what only a user can say (architecture.md, "Whose question is it?").
"""

from __future__ import annotations

import asyncio
import logging
from collections import ChainMap, Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from toolgate.config import Server
from toolgate.core import asks, crowds, jsonrpc, mcp
from toolgate.core.clock import Timer
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Message, RpcError
from toolgate.core.model import Answer, Ask, AskRoots, Call, Event, EventSink, Outcome
from toolgate.eras import calls, legacy, tasks
from toolgate.eras.questions import read_question, write_model_answer
from toolgate.upstreams.mcp.attribution import Identity, OpenRequest, heir_of, is_certain
from toolgate.upstreams.mcp.requests import Requests
from toolgate.upstreams.mcp.sent_pages import SentPages

log = logging.getLogger(__name__)

HELD = 15.0  # seconds in which it may become clear whose question it is
STANDS = 30.0  # seconds from a call's first question on, in which others wait for its answers
FIRST = 10.0  # seconds for which a call waits for what its server wants to know before
TAKES_IN = 0.1  # seconds in which a server looks at the roots that it was told, before it gets the call
ASKS_AGAIN = 0.5  # seconds in which it asks for those that have changed
MOST_TAKEN_BACK = 256  # questions of a call that its server withdraws: each was put to the client; one counts for 4 KiB
MOST_KEPT = 4  # times the room of one principal, for questions that wait for a call, or for who wants their task


class _Held:
    """A question that is of one of these requests, `live` and `gone`, by their ids. Nobody waits for those that are
    gone any more; the time of the others does not run."""

    def __init__(
        self, id: Raw, ask: Ask, live: dict[int, OpenRequest], gone: dict[int, OpenRequest], timer: Timer
    ) -> None:
        self.id = id
        self.ask = ask
        self.live = live
        self.gone = gone
        self.timer = timer
        self.whose = Counter(_whose(each) for each in (*live.values(), *gone.values()))
        for request in live.values():
            request.exchange.pause()

    def over(self, id: int, is_answered: bool) -> None:
        """A request is over. One that was answered had asked nothing that is still open; unless it was given up: then
        it may have left the question behind."""
        request = self.live.pop(id, None)
        if request:
            request.exchange.go_on()
            if not is_answered:
                self.gone[id] = request.forgotten()
                return
        elif is_answered:
            request = self.gone.pop(id, None)
        if request:
            whose = _whose(request)
            self.whose[whose] -= 1
            if not self.whose[whose]:
                del self.whose[whose]

    def release(self) -> None:
        self.timer.cancel()
        for request in self.live.values():
            request.exchange.go_on()


class _Open(msgspec.Struct, frozen=True):
    """A question that was put to a call."""

    id: Raw
    ask: Ask
    call: Call
    exchange: Exchange
    answer: asyncio.Future[Answer]


class _Kept(NamedTuple):
    """A question that nobody can be asked yet; `task` is what it is of, if anything."""

    id: Raw
    ask: Ask
    task: str


def _is_of_roots(kept: _Kept) -> bool:
    return kept.ask.method == "roots/list" and not kept.task


class _Page(msgspec.Struct):
    elicitationId: Annotated[str, msgspec.Meta(max_length=jsonrpc.LONGEST_ID)] = ""


class Questions:
    """Those of one connection. `sole_owner`: all its calls are of one principal, so that a question may wait for the
    next. `on_event` hears of pages that are done with; `whose_task` says who has made a task, as
    `TaskOwners.whose`, and `look_at` learns which of some tasks are over; for `ask_roots` of its one client, see
    `Client`."""

    def __init__(
        self,
        requests: Requests,
        server: Server,
        sole_owner: bool,
        on_event: EventSink,
        whose_task: Callable[[str], str] = lambda task: "",
        look_at: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        ask_roots: AskRoots | None = None,
    ) -> None:
        self._requests = requests
        self._server = server
        self._sole_owner = sole_owner
        self._on_event = on_event
        self._whose_task = whose_task
        self._look_at = look_at
        self._ask_roots = ask_roots
        self._askers = requests.askers
        self._send = requests.answer
        self._open: dict[str | int | float, _Open] = {}
        self._stand_until: WeakKeyDictionary[Exchange, float] = WeakKeyDictionary()
        self._taken_back: WeakKeyDictionary[Exchange, int] = WeakKeyDictionary()
        self._held: list[_Held] = []
        self._in_doubt: dict[str | int | float, Ask] = {}  # while it is looked at whether others' tasks are over
        self._looks = 0  # for which questions in doubt wait, or have waited
        self._apart: dict[str | int | float, asyncio.Task[None]] = {}  # that are asked outside of calls
        self._kept: dict[str, list[_Kept]] = {}  # by whose they are; empty where that is not known
        self.asks_first = False  # before its next call the server wants to know something
        self.calls = 0  # that wait for that
        self._first: asyncio.Future[None] | None = None  # while a call's client is asked for it
        self._has_missed_roots = False  # of its client: nobody could be asked for as long as it waited
        self._kept_roots: asyncio.Future[None] | None = None  # done when it asks for them
        self._is_over = False
        self._sent_to = SentPages()
        requests.on_question = self._asked
        requests.on_answer.append(self._answered)
        requests.on_wait.append(self._end_overdue)
        requests.on_end.append(self._close)
        requests.handlers[mcp.CANCELLED] = self._withdrawn
        requests.handlers[mcp.ELICITED] = self._elicited

    @property
    def are_open(self) -> bool:
        """Whether the server waits for an answer."""
        return bool(self._open or self._held or self._in_doubt or self._apart or self._kept)

    def _asked(self, message: Message, origin: int | None) -> None:
        """A request of the server; `origin` is the request of ours on whose own stream it came. What waits of it is
        copied: a part of a message keeps all of it."""
        id = message.id.copy()
        if message.method == "ping":
            self._send(jsonrpc.result(id, b"{}"))
        elif self._is_known(id):  # its answer is on its way, and to two with one id there is only one
            log.info("%s asked for %s by the id of a question that is still open", self._server.name, message.method)
        elif message.method not in mcp.ASKS:
            self._send(jsonrpc.error(id, jsonrpc.METHOD_NOT_FOUND, f"Method not found: {message.method[:100]}"))
        elif message.method == "roots/list" and self._server.scope != "session":
            self._send(jsonrpc.result(id, _configured_roots(self._server)))
        elif asks.is_too_large(ask := Ask("", message.method, message.params or jsonrpc.EMPTY_OBJECT)):
            self._refuse(id, ask, _TOO_LARGE)
        else:
            asked, spoken = Ask("", message.method, ask.params.copy()), self._requests.dialect.revision
            self._place(id, read_question(asked, spoken) if spoken else asked, origin)

    def _known(self) -> Mapping[str | int | float, Any]:
        """By their ids, those that have no answer yet."""
        waiting = {jsonrpc.id_key(each.id): each for each in (*self._held, *chain.from_iterable(self._kept.values()))}
        return ChainMap[str | int | float, Any](self._open, self._in_doubt, self._apart, waiting)  # perhaps thousands

    def _is_known(self, id: Raw) -> bool:
        return self.are_open and jsonrpc.id_key(id) in self._known()

    def _withdrawn(self, message: Message, origin: int | None) -> None:
        id = calls.read_cancelled(message, self._known())
        if id is None:
            return
        found = self._open.pop(id, None)
        self._in_doubt.pop(id, None)
        self._end_apart(id)
        if found:
            found.answer.cancel()
            count = 1 + asks.size((found.ask,)) // (4 * 1024)
            self._taken_back[found.exchange] = self._taken_back.get(found.exchange, 0) + count
        for whose, each in [(whose, each) for whose, kept in self._kept.items() for each in kept]:
            if jsonrpc.id_key(each.id) == id:
                self._has_missed_roots = self._has_missed_roots or _is_of_roots(each)
                self._let_go(whose, each)
        for held in [held for held in self._held if jsonrpc.id_key(held.id) == id]:
            self._release(held)

    def _keep(self, id: Raw, ask: Ask, task: str = "") -> None:
        """Until the next call, or until somebody waits for its task. Who has most gives way, the oldest first."""
        whose = self._whose_task(task) if task else ""
        self._kept.setdefault(whose, []).append(_Kept(id, ask, task))
        self._see_what_is_first()
        if self._kept_roots and not self._kept_roots.done() and _is_of_roots(self._kept[whose][-1]):
            self._kept_roots.set_result(None)
        while _share(self._kept[whose]) > 1:
            self._refuse_first(whose)
        while sum(map(_share, self._kept.values())) > MOST_KEPT:
            self._refuse_first(max(self._kept, key=lambda whose: _share(self._kept[whose])))
        if self._hand_over not in self._requests.on_sent:
            self._requests.on_sent.append(self._hand_over)

    def _refuse_first(self, whose: str) -> None:
        first = self._kept[whose][0]
        self._let_go(whose, first)
        self._end_apart(jsonrpc.id_key(first.id))
        self._refuse(first.id, first.ask, _NOT_YET)

    def _let_go(self, whose: str, kept: _Kept) -> None:
        self._kept[whose].remove(kept)
        if not self._kept[whose]:
            del self._kept[whose]
        self._see_what_is_first()

    def _see_what_is_first(self) -> None:
        is_kept = any(map(_is_of_roots, self._kept.get("", ())))
        self.asks_first = self._has_missed_roots or is_kept or self._first is not None

    async def put_first(self, exchange: Exchange, call: Call) -> None:
        """Ask the client, before its call is made, for the roots that the server has asked for outside of calls: it
        works by them, and many a call is over before its client has answered. Its other calls wait as well. Returns
        when the server knows them, or wants them no more."""
        while self._first:
            await crowds.over(self._first)
            await crowds.turn(call.client.principal.counted_as)
        if not self.asks_first:
            return
        first = self._first = asyncio.get_running_loop().create_future()
        try:
            await self._put_before(exchange, call)
        finally:
            first.set_result(None)
            self._first = None
            self._see_what_is_first()

    async def _put_before(self, exchange: Exchange, call: Call) -> None:
        if self._has_missed_roots and legacy.tells_of_roots(call.client):
            self._has_missed_roots = False
            await self._ask_for_roots_again()
        self._has_missed_roots = False
        kept = [*filter(_is_of_roots, self._kept.get("", ()))]
        self._see_what_is_first()
        for each in kept:
            self._let_go("", each)
            self._end_apart(jsonrpc.id_key(each.id))
            self._put(each.id, each.ask, exchange, call, [], is_of_call=False)
        waiting = {key: each for key, each in self._open.items() if each.exchange is exchange}
        if not waiting:
            return
        try:
            async with self._requests.clock.timeout(FIRST):
                await asyncio.wait([each.answer for each in waiting.values()])
        except TimeoutError:
            for key, each in waiting.items():
                self._end(key, each, _NOT_SOON)
        else:
            await self._requests.clock.sleep(TAKES_IN)

    async def _ask_for_roots_again(self) -> None:
        """Have the server do it, which has given up."""
        self._kept_roots = asyncio.get_running_loop().create_future()
        try:
            await self._requests.tell(jsonrpc.notification(mcp.ROOTS_CHANGED))
            async with self._requests.clock.timeout(ASKS_AGAIN):
                await self._kept_roots
        except TimeoutError:
            log.info("%s did not ask for roots again, which it was told have changed", self._server.name)
        finally:
            self._kept_roots = None

    def _hand_over(self) -> None:
        """A call is in flight: ask it what was kept for it."""
        if not self._kept:
            return
        waited_for = self._askers.tasks_waited_for()
        all_kept = [(whose, each) for whose, kept in self._kept.items() for each in kept]
        handed = [(whose, each) for whose, each in all_kept if not each.task or each.task in waited_for]
        for whose, each in handed:
            self._let_go(whose, each)
            self._end_apart(jsonrpc.id_key(each.id))
        for _, each in handed:
            self._place(each.id, each.ask, None)

    def _answered(self, id: int, request: OpenRequest, answer: Outcome | RpcError) -> None:
        """Where a call was refused until its client has visited some pages, keep who that is."""
        if request.call and isinstance(answer, RpcError) and answer.code == mcp.URL_ELICITATION_REQUIRED:
            for page in legacy.pages(answer):
                self._keep_page(_read_page(page), request.call)

    def _keep_page(self, elicitation: str, call: Call) -> None:
        if elicitation:
            self._sent_to.add(elicitation, call.client)

    def _elicited(self, message: Message, origin: int | None) -> asyncio.Future[None] | None:
        """A page that a client was sent to is done with: that client is told, and nobody else."""
        page = calls.read_text(jsonrpc.members(message.params), "elicitationId")
        if whose := self._sent_to.take(page):
            return self._on_event(Event(self._server.id, "elicited", params=message.params, whose=whose))
        return None

    def _close(self) -> None:
        """The connection is over: nobody waits for answers any more."""
        self._is_over = True
        for held in list(self._held):
            self._release(held)

    # Whose question it is, where that is not clear when it comes.

    def _over(self, id: int, is_answered: bool) -> None:
        """A request of ours is answered, or is given up: the server may still work on it."""
        for held in tuple(self._held):
            held.over(id, is_answered)
            self._settle(held)

    def _hold(self, id: Raw, ask: Ask) -> None:
        """Until the calls that were given up are answered it may become clear whose this one is; that a call in flight
        ends shows nothing, since its server may have given up a question of it unsaid."""
        self._requests.take_turns()
        if self._over not in self._requests.on_over:
            self._requests.on_over.append(self._over)
        has_room = asks.has_room(ask, [held.ask for held in self._held])
        live = self._askers.by_id() if has_room else {}
        if not is_certain(live.values()):
            self._refuse(id, ask, _UNCLEAR)
            return
        gone = self._requests.late_askers.by_id()
        timer = self._requests.clock.call_later(HELD, lambda: self._give_up(held))
        held = _Held(id, ask, live, gone, timer)
        self._held.append(held)

    def _settle(self, held: _Held) -> None:
        if not held.live:
            self._release(held)
            self._refuse(held.id, held.ask, _OVER)
        elif len(held.whose) == 1:
            self._release(held)
            *others, owner = held.live.values()
            assert owner.call
            if self._requests.running.of_others(owner.call.client.identity) is not None:
                self._refuse(held.id, held.ask, _OF_A_TASK)
                return
            self._put(held.id, held.ask, owner.exchange, owner.call, [other.exchange for other in others])

    def _give_up(self, held: _Held) -> None:
        self._release(held)
        self._refuse(held.id, held.ask, _UNCLEAR)

    def _release(self, held: _Held) -> None:
        if held in self._held:
            self._held.remove(held)
            held.release()

    async def _when_looked_at(self, id: Raw, ask: Ask, running: Sequence[str]) -> None:
        """The tasks of others may be over, though nobody has heard of it."""
        if self._look_at:
            await self._look_at(running)
        key = jsonrpc.id_key(id)
        if self._in_doubt.get(key) is ask:  # or it was withdrawn, and another one has its id
            del self._in_doubt[key]
            self._place(id, ask, None, is_looked_at=True)

    def _has_looked(self, _look: object) -> None:
        self._looks -= 1

    # Placing.

    def _place(self, id: Raw, ask: Ask, origin: int | None, is_looked_at: bool = False) -> None:
        if task := tasks.related(ask.params):
            self._place_of_task(id, ask, task)
            return
        self._requests.has_asked()
        owner = self._requests.owner(origin)
        if owner and owner.call:
            others = self._askers.all(owner.call.client.identity) if origin is None else []
            unsure = [each.exchange for each in others if each is not owner]
            self._put(id, ask, owner.exchange, owner.call, unsure)
        elif origin is None and (running := self._requests.tasks_in_doubt()) is not None:
            has_room = self._looks < asks.MOST_OPEN and asks.has_room(ask, [*self._in_doubt.values()])
            if is_looked_at or not has_room:
                self._refuse(id, ask, _OF_A_TASK)
            else:
                self._in_doubt[jsonrpc.id_key(id)] = ask
                self._looks += 1
                self._requests.spawn(self._when_looked_at(id, ask, running)).add_done_callback(self._has_looked)
        elif (is_asked := bool(self._askers.whose())) and origin is None:
            self._hold(id, ask)
        elif self._sole_owner and not is_asked:
            self._keep(id, ask)
            if ask.method == "roots/list" and self._ask_roots and len(self._apart) < asks.MOST_OPEN:
                self._apart[jsonrpc.id_key(id)] = self._requests.spawn(self._ask_apart(_Kept(id, ask, "")))
        else:
            self._refuse(id, ask, _NOBODYS if origin is None else _OVER)

    async def _ask_apart(self, kept: _Kept) -> None:
        """Roots belong to no call: servers ask for them as they start, when maybe none is made for a long time. What
        waits for that is kept for the next call all the same."""
        was_taken = False

        def take() -> bool:
            nonlocal was_taken
            was_taken = kept in self._kept.get("", ())
            if was_taken:
                self._let_go("", kept)
            return was_taken

        assert self._ask_roots
        try:
            answer = await self._ask_roots(take)
        finally:
            key = jsonrpc.id_key(kept.id)
            if self._apart.get(key) is asyncio.current_task():  # or it was withdrawn, and another one has its id
                del self._apart[key]
        if answer:
            self._send(legacy.write_answer(kept.id, answer))
        elif was_taken:
            self._keep(kept.id, kept.ask)

    def _end_apart(self, id: str | int | float) -> None:
        if asking := self._apart.pop(id, None):
            asking.cancel()

    def _place_of_task(self, id: Raw, ask: Ask, task: str) -> None:
        """A task's question is for the client that waits for its result, and waits until one does."""
        owner = self._askers.waiting_for(task)
        if owner and owner.call:
            self._put(id, ask, owner.exchange, owner.call, [])
        else:
            self._keep(id, ask, task)

    def _put(
        self, id: Raw, ask: Ask, exchange: Exchange, call: Call, others: Sequence[Exchange], is_of_call: bool = True
    ) -> None:
        """Put a question to a call. `others` are the same client's calls that it may be of as well: their time stops
        too, and one of them takes it over if this call ends first. Without `is_of_call` the next call does."""
        if not asks.is_answerable(ask, call.client.capabilities):
            self._send(legacy.write_answer(id, asks.undeclared(ask)))
            return
        try:
            asks.check_url(ask)
        except Fault as fault:
            self._refuse(id, ask, fault.message)
            return
        if self._taken_back.get(exchange, 0) >= MOST_TAKEN_BACK:
            self._refuse(id, ask, _TAKEN_BACK)
            return
        if not asks.has_room(ask, exchange.open_asks()):
            self._refuse(id, ask, _TOO_MANY)
            return
        if ask.method == "elicitation/create":
            self._keep_page(_read_page(ask.params), call)
        key = jsonrpc.id_key(id)
        task = tasks.related(ask.params)
        future = exchange.ask(ask.method, ask.params, self._reporter(ask))
        self._open[key] = _Open(id, ask, call, exchange, future)
        for other in others:
            other.pause()

        def answered(future: asyncio.Future[Answer]) -> None:
            for other in others:
                other.go_on()
            if self._open.pop(key, None) is None:
                return  # the server has withdrawn it, or it is refused
            if not future.cancelled():
                answer = write_model_answer(ask, future.result(), self._requests.dialect.revision)
                self._send(legacy.write_answer(id, _of_task(answer, task)))
            elif task and not self._is_over:
                self._place_of_task(id, ask, task)  # who waited for the task does no more; somebody may later
            elif others and (heir := heir_of(call, self._askers)) and heir.call:
                rest = [other for other in others if other is not heir.exchange]
                self._put(id, ask, heir.exchange, heir.call, rest)
            elif self._sole_owner and (exchange.is_done or not is_of_call) and not self._is_over:
                self._keep(id, ask)  # a call that ended without the answer had not asked
            else:
                self._refuse(id, ask, _OVER)

        future.add_done_callback(answered)
        if self._server.concurrency is not None:
            clock = self._requests.clock
            self._stand_until.setdefault(exchange, clock.now() + STANDS)
            clock.call_later(STANDS, self._end_overdue)
            self._end_overdue()

    def _end_overdue(self) -> None:
        """A call whose question is open has its place among those that run at once. Others do not wait for that as
        long as somebody likes."""
        now = self._requests.clock.now()
        for key, each in list(self._open.items()):
            is_overdue = not each.answer.done() and now >= self._stand_until[each.exchange]
            if is_overdue and self._requests.keeps_others_waiting(each.call):
                self._end(key, each, _WAITED_FOR)

    def _end(self, key: str | int | float, open: _Open, why: str) -> None:
        if self._open.pop(key, None):
            open.answer.cancel()
            self._refuse(open.id, open.ask, why)

    def _reporter(self, ask: Ask) -> Callable[[Raw], None] | None:
        """Tells the server of progress with its question, by its own token; None where it wants none."""
        token = asks.progress_token(ask)

        def report(params: Raw) -> None:
            self._requests.remark(
                jsonrpc.notification(mcp.PROGRESSED, jsonrpc.with_members(params, {mcp.PROGRESS_KEY: token}))
            )

        return report if token else None

    def _refuse(self, id: Raw, ask: Ask, why: str) -> None:
        log.info("%s asked for %s and got no answer: %s", self._server.name, ask.method, why)
        self._send(legacy.write_answer(id, asks.unanswered(why)))


_OVER = "The call that this question belongs to has ended, so no client can answer it"
_NOBODYS = "This question belongs to no call in progress, so no client can be asked"
_NOT_SOON = f"The client did not answer within {FIRST:g} s, and its call went on"
_NOT_YET = "No client that could be asked has made a call, or has waited for the result of this task"
_TOO_MANY = (
    f"This call has {asks.MOST_OPEN} open questions already, or {asks.MOST_BYTES:,} bytes of them, "
    f"{asks.MOST_TO_READ:,} bytes of those to a person, or {asks.MOST_ESCAPES:,} escapes: ask again when they are "
    "answered"
)
_TAKEN_BACK = "Too many questions of this call were withdrawn, so its client is asked no more: make the call again"
_TOO_LARGE = (
    f"A question may have at most {asks.MOST_BYTES:,} bytes ({asks.MOST_TO_READ:,} of one to a person), "
    f"{asks.MOST_VALUES:,} JSON values and {asks.MOST_ESCAPES:,} escapes"
)
_WAITED_FOR = "Calls of other clients wait for this one, so its question was closed: make the same call again"
_OF_A_TASK = (
    "A task of another client is in progress, and it is unclear whether this question belongs to it, so no client was "
    f"asked. If it belongs to a task, name that in `_meta` (`{mcp.RELATED_TASK_KEY}`); else set scope to session"
)
_UNCLEAR = (
    "Calls of several clients are in progress or were just cancelled, and it is unclear which of them this "
    "question belongs to, so no client was asked. From now on clients take turns here: make the same call again"
)


def _whose(request: OpenRequest) -> Identity | None:
    return request.call.client.identity if request.call else None


def _share(kept: Sequence[_Kept]) -> float:
    """How much these take of the room that questions of one principal have; 1 is all of it."""
    return max(len(kept) / asks.MOST_OPEN, asks.size(each.ask for each in kept) / asks.MOST_BYTES)


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
