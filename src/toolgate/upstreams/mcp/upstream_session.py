"""A scope's session at a server: its connection, opened once for all who want it and ended when nobody needs it, and
what outlives connections: what its clients watch, the tasks that they have made, why the last one ended.

The rules this file keeps: what wants the connection leases it first, and while it is leased, works or is watched it
is not ended for want of use, nor for want of room, but where its client holds more than its share; there is one at a
time, and the next is opened only when all of the last is gone, and all of what was configured by that id before; one
that is up holds a slot in the pool, unless it is kept alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec

from toolgate.config import Server
from toolgate.core import crowds, mcp
from toolgate.core.complaints import Complaints
from toolgate.core.fault import Fault
from toolgate.core.mcp import Era, Revision
from toolgate.core.model import AskRoots, Call, Client, Event, EventSink, Outcome, Principal
from toolgate.core.redaction import excerpt
from toolgate.upstreams.base import About, State, Status, StoppedBy
from toolgate.upstreams.breaker import Breaker
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.upstreams.links.base import Receiver
from toolgate.upstreams.links.places import of_server
from toolgate.upstreams.links.refusals import is_of_the_message
from toolgate.upstreams.mcp.condition import (
    NO_ROOM,
    SIGN_IN,
    Condition,
    Diagnosis,
    diagnosed,
    not_started,
    sign_in_required,
    status_of,
    still_fetched,
)
from toolgate.upstreams.mcp.era_choice import EraChoice
from toolgate.upstreams.mcp.idle import IdleTimer
from toolgate.upstreams.mcp.large_notes import LargeNotes
from toolgate.upstreams.mcp.made_tasks import TaskOwners
from toolgate.upstreams.mcp.notifications import Notifications
from toolgate.upstreams.mcp.opening import Ended, open_connection
from toolgate.upstreams.mcp.questions import Questions
from toolgate.upstreams.mcp.requests import Requests
from toolgate.upstreams.mcp.resubscribe import Resubscriber, UpstreamSubscriptions, Wanted
from toolgate.upstreams.mcp.revision_check import RevisionCheck
from toolgate.upstreams.mcp.subscriptions import subscriptions_of
from toolgate.upstreams.mcp.tasks import Tasks
from toolgate.upstreams.mcp.watchdog import Watchdog
from toolgate.upstreams.pool import SHARED, Holder
from toolgate.upstreams.process.supervisor import Launch
from toolgate.upstreams.stopping import OVER_SHARE, stopped, was_stopped

log = logging.getLogger(__name__)

_ANYBODY = Principal().id  # on an open gateway
TELLING = 0.5  # seconds that a server may take to answer that it logs at another level
RETIRING = 1.0  # seconds between two looks at whether a connection without a session has anything under way
LONGEST_LOGGED = 1000  # characters of what a server says of its failure: it may fail 20 times a minute, and is logged

# Why a server was stopped that is the same when it is back: its lists are not looked at again for that. (If they were,
# servers that take turns in a full pool, or are up for each list only, would be listed without end.)
_COMES_BACK_THE_SAME = ("pool", "ephemeral")


class UpstreamDeps(msgspec.Struct, frozen=True):
    """What all sessions of one server have in common. `again` makes a call anew; `on_found`, `on_open` and `on_rest`
    say that it is known what a session's connection speaks, that it is up, and that somebody is done with it;
    `predecessors_gone` waits until the server may be started."""

    server: Server
    eras: EraChoice
    link_deps: LinkDeps
    make_link: MakeLink
    again: Callable[[Call], Awaitable[Outcome]]
    on_event: EventSink
    on_found: Callable[[UpstreamSession, Client], None]
    on_open: Callable[[UpstreamSession], None]
    on_rest: Callable[[UpstreamSession], None]
    predecessors_gone: Callable[[], Awaitable[None]]


class Connection:
    """What is made of one live connection. `subscriptions` are there once its era is known."""

    def __init__(
        self,
        requests: Requests,
        server: Server,
        owners: TaskOwners,
        wanted: Wanted,
        on_event: EventSink,
        ask_roots: AskRoots | None = None,
    ) -> None:
        sole_owner = server.scope != "shared"
        self.requests = requests
        self.wanted = wanted
        self.tasks = Tasks(requests, owners, on_event)
        requests.large_notes = LargeNotes(lambda task: ("tasks", task) in wanted.watched)
        self.subscriptions: UpstreamSubscriptions | None = None
        self.questions = Questions(requests, server, sole_owner, on_event, owners.whose, self.tasks.look_at, ask_roots)
        Notifications(requests, sole_owner, on_event, self.tasks.doubt)
        if server.type == "stdio":
            Watchdog(requests, server, lambda: self.questions.are_open)

    @property
    def calls(self) -> int:
        """How many requests of clients are under way here, parked ones and those that wait for their turn too."""
        return self.requests.calls + self.tasks.running + self.questions.calls

    def works_for_others(self, whose: Principal) -> bool:
        """Whether anything is under way here for anybody else, a task too."""
        return self.requests.works_for_others(whose) or self.tasks.run_for_others(whose.id)

    def open_subscriptions(self, client: Client, missed: Callable[[], None]) -> None:
        self.subscriptions = subscriptions_of(self.requests, client, missed)
        self.subscriptions.open(self.wanted)

    async def raise_level(self, level: str) -> None:
        """Have the server log this much, where it does not yet. It is waited for only for a moment: a server may leave
        that unanswered."""
        if self.subscriptions and self.wanted.raise_level(level):
            telling = self.requests.spawn(self.subscriptions.set_level(level))
            with suppress(TimeoutError):
                async with self.requests.clock.timeout(TELLING):
                    await asyncio.wait((telling,))


class UpstreamSession:
    """See the module. `client` is the first that uses it. `beside` is set for the second session of a scope: the era
    that its clients speak, and the first does not."""

    def __init__(
        self, deps: UpstreamDeps, scope: str, client: Client, breaker: Breaker, beside: Era | None = None
    ) -> None:
        self.scope = scope
        self.whose = client.principal.counted_as
        self.beside: Era | None = beside
        self.era: Era | None = beside  # that is spoken, or was last
        self.is_refused = False  # the server does not speak that of a second session
        self.has_other = False  # beside it is one for clients of the other era
        self.breaker = breaker
        self.live: Connection | None = None
        self.leases = 0  # of those who use the connection now, or wait until it is open
        self.was_open = False
        kept = deps.link_deps.kept_tasks if deps.server.scope != "session" else None  # else nobody would find them
        self.task_owners = TaskOwners(deps.server, scope, kept)
        self.condition = Condition()
        self.about: About | None = None  # as it was last told
        self._deps = deps
        self._rested = partial(deps.on_rest, self)
        self._server = deps.server
        self._pool = deps.link_deps.pool
        self._clock = deps.link_deps.clock
        self._complaints = deps.link_deps.complaints or Complaints(self._clock)
        self.resubscriber = Resubscriber(
            self._server.name, self._clock, self._subscriptions, self._reopen, self._rested
        )
        self._holder = Holder(lambda: self.used, lambda: self.is_idle, lambda: self.loses_work, self.give_way)
        self._why = ""  # it gave way although it was needed
        self._idle = IdleTimer(self._clock, self._patience, self._idle_since, lambda: self._take_down("idle"))
        self._opening: asyncio.Task[Connection] | None = None
        self._is_fetched = asyncio.Event()  # the package of a server that is opened
        self._closing: asyncio.Task[None] | None = None
        self._retired: dict[Connection, asyncio.Task[None]] = {}  # whose server has lost the session, until it is over
        self._newest: Connection | None = None
        self._last: Mapping[str, object] = {}  # what was known of the newest connection when it ended
        self._revision = ""
        self._doubted: Revision | None = None  # that a server seemed not to speak any more
        self._refuses_pings = False  # in a revision that it speaks
        self._diagnosed: tuple[Fault | None, Diagnosis] = (
            None,
            Diagnosis("", None),
        )  # the last failure: see `_diagnosis`

    @property
    def _stays(self) -> bool:
        """Kept alive, and outside the pool. Those of single clients are not: there may be any number of them."""
        return self._server.lifecycle == "keep-alive" and self._server.scope == "shared"

    def __repr__(self) -> str:
        return f"<UpstreamSession {self._server.id} {self.scope} {self.condition.state} {self.live}>"

    # Whether anybody needs it.

    @property
    def calls(self) -> int:
        """How many requests of clients are under way or parked here, those that wait for the start among them."""
        return self.live.calls if self.live else self.leases

    def works_for_others(self, whose: Principal) -> bool:
        """Whether anything under way here may be lost to anybody else: who waits for the start is not told apart."""
        return self.live.works_for_others(whose) if self.live else bool(self.leases)

    @property
    def is_at_work(self) -> bool:
        """Whether anything is under way, also on the gateway's own account."""
        return bool(self.leases or self._opening or (self.live and self.live.calls))

    @property
    def is_idle(self) -> bool:
        if self.leases or not self.live or self.is_at_work or self.resubscriber.wanted.watched:
            return False
        return not self.live.tasks.may_run

    @property
    def loses_work(self) -> bool:
        """Whether what is under way would be lost with the connection."""
        return self.is_at_work or bool(self.live and self.live.tasks.may_run)

    def _idle_since(self) -> float | None:
        return self.used if self.is_idle else None

    def _patience(self) -> float:
        return self._pool.limits.idle if self._server.idle is None else self._server.idle

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to remember of it but its failures, and which era it speaks."""
        return not (self.was_open or self.is_at_work or self._closing)

    @property
    def is_away(self) -> bool:
        """Whether its clients are."""
        return not (self.live or self.is_at_work or self._closing or self.resubscriber.wanted.watched)

    @property
    def used(self) -> float:
        return self.live.requests.used if self.live else self.condition.since

    # Use.

    async def open(self, client: Client) -> Connection:
        """The connection, for who has leased it; opened where it must be, once however many wait. Raises `Fault`."""
        if self.live:
            return self.live
        if not self._opening:
            self._is_fetched.clear()
            self._opening = asyncio.get_running_loop().create_task(self._open(client), name=f"open {self._server.id}")
            self._opening.add_done_callback(self._opening_over)
        opening = self._opening
        if self._server.confines:
            await self._wait_for_package()
        await crowds.over(opening)
        await crowds.turn(client.principal.counted_as)
        if self.live:  # another one, perhaps
            return self.live
        if opening.cancelled():
            raise self._stopped()
        error = opening.exception()
        if isinstance(error, Fault):
            raise error.at("", "")
        return opening.result()

    async def _wait_for_package(self) -> None:
        """As long as a start may take. Others may wait on: that goes on, and is told when it is up."""
        patience = self._server.start_timeout
        try:
            async with self._clock.timeout(patience):
                await self._is_fetched.wait()
        except TimeoutError:
            raise still_fetched(self._server) from None

    async def _reopen(self, client: Client) -> None:
        self.leases += 1
        try:
            if self.breaker.failures:
                await self.breaker.admit(is_call=False, patience=self._server.timeout)
            await self.open(client)
        finally:
            self.leases -= 1
            self._rested()

    def _subscriptions(self) -> UpstreamSubscriptions | None:
        return self.live.subscriptions if self.live else None

    def judge(self, connection: Connection, fault: Fault, is_call: bool, whose: str) -> None:
        """What a failure says of the server. That a connection was lost is counted where it is noticed, once; that a
        message was refused, which may lie in the message, is not."""
        if fault.reach == "executed":
            if is_call:
                self.breaker.answered()
        elif fault.code == "SERVER_FAILED" and not (
            connection.requests.fault or was_stopped(fault) or is_of_the_message(fault)
        ):
            self.failed(fault, whose)

    def failed(self, fault: Fault, whose: str = "") -> None:
        """Count a failure of the server; `whose` as for the breaker."""
        self.breaker.failed(fault, whose)
        if self.breaker.is_open:
            told = excerpt(fault.told().message, LONGEST_LOGGED, self._server.id)
            log.warning("Circuit breaker open for %s: %s", self._server.name, told)

    def end_after_use(self) -> None:
        """Its server is to be there for each use only."""
        if self.is_idle:
            self._take_down("ephemeral")

    # Opening.

    def _opening_over(self, done: asyncio.Task[Connection]) -> None:
        self._opening = None
        self._is_fetched.set()
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more
        self._rested()

    async def _open(self, client: Client) -> Connection:
        server = self._server
        if server.problem:
            fault = Fault("SERVER_FAILED", server.problem, server=server.id, reach="not_sent")
            self._becomes("failed", fault)
            raise not_started(server, fault, self._diagnosis(fault))
        if self._closing:
            await asyncio.wait((self._closing,))
        before, self._why = self.condition, ""
        self._becomes("starting")
        with self._starting(before):
            link_deps = await self._launching(client)
        self._is_fetched.set()
        with self._starting(before):
            await self._deps.predecessors_gone()  # before the slot is taken, which one of them may hold
        await self._take_slot(client, before)
        eras = self._deps.eras
        order = (self.beside,) if self.beside else eras.order(client, self.era)
        with self._starting(before):
            connection, was_refused = await self._spoken_to(client, order, link_deps)
        spoken = connection.requests.dialect.revision
        assert spoken  # it is open
        self.era = spoken.era
        if self.beside:
            eras.found_both()
        elif len(order) > 1:
            eras.found(self.era, was_refused)
        self._deps.on_found(self, client)
        self._is_up(connection, client, before)
        return connection

    @contextmanager
    def _starting(self, before: Condition) -> Generator[None]:
        """Say of what fails in here what it says of the server."""
        server = self._server
        try:
            yield
        except Fault as raised:
            fault = raised.at("", "")  # it is kept, and holds no call
            if fault.code == SIGN_IN:
                self._becomes("failed", sign_in_required(server))
            elif fault.code == NO_ROOM:
                self.condition = before
            elif self.beside and not self.was_open:  # else its server is away
                self.is_refused = True
                self.condition = before
                log.info("cannot use %s as %s: %s", server.name, self.beside, fault.message)
            else:
                self._deps.eras.forget()
                self.failed(fault)
                self._becomes("failed", fault)
                if self._complaints.takes(server.id):
                    told = excerpt(fault.told().message, LONGEST_LOGGED, server.id)
                    log.warning("%s did not start: %s", server.name, told)
            raise not_started(self._server, fault, self._diagnosis(fault)) from None
        except BaseException:
            self._becomes("failed", self._stopped())
            raise

    async def _launching(self, client: Client) -> LinkDeps:
        """With what starts a program: its package is there before the server takes a slot of the pool, and is fetched
        once however often it is started. Raises `Fault`."""
        server, link_deps = self._server, self._deps.link_deps
        if server.type != "stdio" or not link_deps.launch:
            return link_deps
        launch = await link_deps.launch(server, self._holder_of(client))

        async def known(_server: Server, _holder: str) -> Launch:
            return launch

        return msgspec.structs.replace(link_deps, launch=known)

    def _holder_of(self, client: Client) -> str:
        return client.principal.id if self._server.scope != "shared" else ""

    async def _spoken_to(self, client: Client, order: Sequence[Era], link_deps: LinkDeps) -> tuple[Connection, bool]:
        """A connection in the first of these eras that the server speaks, and whether it refused one before. Raises
        `Fault`. What fails is gone when this returns."""
        connection = self._newest = self._new_connection(client)
        requests = connection.requests
        principal = self._holder_of(client)
        owner = self._whose(client.principal) or of_server(self._server.id)

        def whose(origin: int | None) -> str:
            request = requests.pending.get(origin) if origin is not None else None
            return request.call.client.principal.counted_as if request and request.call else owner

        told = (
            whose,
            requests.received,
            requests.awaits,
            requests.failed,
            requests.retired,
            requests.closed,
            requests.counts,
            requests.refused,
        )
        try:
            requests.link = await self._deps.make_link(self._server, Receiver(principal, *told), link_deps)
            was_refused = await open_connection(requests, client, order, self._deps.eras.first)
            if requests.fault:  # it died on the threshold
                raise requests.fault
            return connection, was_refused
        except Ended as ended:
            log.info("%s ended after the first message (%s); starting it once more", self._server.name, ended)
        except Fault as fault:
            why = requests.fault or fault  # that it could not be spoken to says less than what it died of
            await asyncio.wait((self._end(connection),))
            raise why from None
        except BaseException:
            self._end(connection)
            raise
        try:
            await requests.close()
        except BaseException:
            self._end(connection)  # it holds a slot until all of it is gone
            raise
        return (await self._spoken_to(client, order[1:], link_deps))[0], True

    def _whose(self, who: Principal) -> str:
        """Whose share of the pool it takes: nobody's where others use it, too."""
        scope = self._server.scope
        return SHARED if scope == "shared" or (scope == "principal" and who.id == _ANYBODY) else who.counted_as

    async def _take_slot(self, client: Client, before: Condition) -> None:
        if self._stays:
            return
        try:
            patience, asker = self._server.start_timeout, client.principal.counted_as if client.revision else ""
            await self._pool.enter(self._holder, self._server.name, patience, self._whose(client.principal), asker)
        except Fault as fault:  # no fault of this server
            self.condition = before
            raise not_started(self._server, fault, self._diagnosis(fault)) from None
        except BaseException:
            self.condition = before
            raise

    def _new_connection(self, client: Client) -> Connection:
        def lost(fault: Fault, is_dead: bool) -> None:
            self._lost(connection, fault, is_dead)

        results, bounds = self._deps.link_deps.results, self._deps.link_deps.bounds
        again, complaints = self._deps.again, self._complaints
        requests = Requests(self._server, self._clock, again, lost, self._rested, complaints, results, bounds)
        requests.is_tried = lambda: bool(self.breaker.failures)
        wanted = self.resubscriber.wanted
        ask_roots = client.ask_roots if self._server.scope == "session" else None
        connection = Connection(requests, self._server, self.task_owners, wanted, self._tell, ask_roots)
        return connection

    def _doubt(self, requests: Requests) -> None:
        """It seems to speak another revision by now. The next use opens another connection, and finds out."""
        self._doubted = requests.dialect.revision
        why = f"{self._server.name} refuses requests as they were, and may speak another revision"
        requests.retired(Fault("SERVER_FAILED", why, server=self._server.id, reach="sent_unknown"))

    def _tell(self, event: Event) -> asyncio.Future[None] | None:
        """What the server says on its own account. Where it is spoken to in both eras, it says so to both: what a list
        is now is looked up, of all else each client hears in its own."""
        era = self.era if self.has_other and event.kind != "list_changed" else None
        return self._deps.on_event(msgspec.structs.replace(event, scope=self.scope, era=era))

    def _missed(self) -> None:
        """Whatever is listed may be something else by now."""
        self._tell(Event(self._server.id, "list_changed", lists=tuple(mcp.LIST_OF_KIND)))

    def _is_up(self, connection: Connection, client: Client, before: Condition) -> None:
        self.live = connection
        dialect = connection.requests.dialect
        self.about = About(dialect.capabilities, dialect.instructions)
        self._revision = dialect.revision.date if dialect.revision else ""
        self._refuses_pings = self._refuses_pings or self._doubted is dialect.revision
        self._doubted = None
        if self._server.type == "http" and not self._refuses_pings:
            RevisionCheck(connection.requests, lambda: self._doubt(connection.requests))
        connection.wanted.pauses.opened(self._clock.now())
        self._becomes("ready")
        connection.open_subscriptions(client, self._missed)
        is_same = self.was_open and before.stopped_by in _COMES_BACK_THE_SAME
        if not is_same:  # it may offer something else than before, and to the other era something else than to this one
            self._deps.on_event(Event(self._server.id, "opened", self.scope))
        self.was_open = True
        if not self._stays:
            self._idle.start()
        self._deps.on_open(self)

    # Ending.

    def give_way(self) -> None:
        """End it for others that need its slot. What is watched is asked for again when there is room."""
        self._why = "" if self.is_idle else OVER_SHARE
        if self.live:
            self._take_down("pool")
            self.resubscriber.lost()
        elif self._opening and not self._closing:
            self._opening.cancel()

    def _stopped(self) -> Fault:
        return stopped(self._server.id, self._server.name, "not_sent", self._why)

    async def stop(self) -> None:
        """End what runs, and return when it is gone. The next use opens it again."""
        self.breaker.stop(stopped(self._server.id, self._server.name, "not_sent"))
        if self._opening:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self.live:
            self._take_down("close")
        if self._closing:
            await asyncio.wait((self._closing,))
        if not self._opening and not self.live:
            self._becomes("stopped", stopped_by="close")

    async def close(self) -> None:
        """The same, and nobody watches anything any more."""
        await self.resubscriber.close()
        await self.stop()
        for connection, ending in list(self._retired.items()):
            ending.cancel()
            await connection.requests.close(self._why)

    def _take_down(self, why: StoppedBy) -> None:
        assert self.live
        connection, self.live = self.live, None
        self._becomes("stopped", stopped_by=why)
        self._end(connection)

    def _end(self, connection: Connection) -> asyncio.Task[None]:
        """End a connection. Until all of it is gone no other is opened, and its slot is taken."""

        async def end() -> None:
            try:
                await connection.requests.close(self._why)
            finally:
                self._gone(connection)

        def ended(done: asyncio.Task[None]) -> None:
            self._closing = None
            self._rested()

        self._idle.cancel()
        self._closing = asyncio.get_running_loop().create_task(end(), name=f"end {self._server.id}")
        self._closing.add_done_callback(ended)
        return self._closing

    def _lost(self, connection: Connection, fault: Fault, is_dead: bool) -> None:
        """It ended by itself, or (not `is_dead`) the server has forgotten our session."""
        if self.live is not connection:
            return  # it is ended, or was never up
        self.live = None
        if is_dead and (self.leases or connection.requests.in_flight):
            self.failed(fault, connection.requests.suspect)
        self._becomes("failed", fault.at("", ""))  # calls are told of it, and hold it
        self._idle.cancel()
        self._gone(connection)
        if not is_dead:
            self._retire(connection)
        if self._complaints.takes(self._server.id):
            told = excerpt(fault.told().message, LONGEST_LOGGED, self._server.id)
            log.warning("%s; the next call starts it again", told)
        self.resubscriber.lost()

    def _retire(self, connection: Connection) -> None:
        """What is under way there may still be answered; then it ends."""

        async def end() -> None:
            while connection.requests.pending:
                await self._clock.sleep(RETIRING)
            await connection.requests.close()

        ending = self._retired[connection] = asyncio.get_running_loop().create_task(end(), name="retire")
        ending.add_done_callback(lambda _: self._retired.pop(connection, None))

    def _gone(self, connection: Connection) -> None:
        if self.scope and self.about and not self.about.is_short:
            self.about = None  # there may be hundreds of sessions; the next who needs it asks the server
        if connection.requests.link:
            self._last = connection.requests.link.describe()
        if self._newest is connection:
            self._newest = None
        self._pool.leave(self._holder)

    # What people are told.

    def _becomes(self, state: State, fault: Fault | None = None, stopped_by: StoppedBy = "") -> None:
        self.condition = Condition(state, fault, stopped_by, self._clock.now())

    @property
    def known(self) -> About | None:
        """What the server says of itself, where it need not be started to say so."""
        return self.about if self.live or self.condition.state == "stopped" else None

    @property
    def state(self) -> State:
        return self.condition.shown(self.breaker, self.calls)

    def status(self) -> Status:
        about, is_up = self._described(), bool(self.live or self._opening)
        diagnosis = self._diagnosis(self.condition.fault)
        return status_of(self.condition, self.breaker, about, diagnosis, is_up, self.calls, self._revision)

    def _described(self) -> Mapping[str, object]:
        link = self._newest.requests.link if self._newest else None
        return link.describe() if link else self._last

    def _diagnosis(self, fault: Fault | None) -> Diagnosis:
        """Found once, since each list asks for the status."""
        if self._diagnosed[0] is not fault:
            says: Any = self._described().get("says")
            self._diagnosed = fault, diagnosed(self._server, fault, says() if says else "")
        return self._diagnosed[1]
