"""A scope's session at a server: its connection, opened once for all who want it and ended when nobody needs it, and
what outlives connections: what its clients watch, the tasks that they have made, why the last one ended.

The rules this file keeps: whoever wants the connection claims it first (`use`), and while it is claimed, works or is
watched it is not ended for want of use or of room; there is one at a time, and the next is opened only when all of the
last is gone; one that is up holds a slot in the pool, unless it is kept alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from toolgate.config import Server
from toolgate.core.clock import Timer
from toolgate.core.complaints import Complaints
from toolgate.core.mcp import Era
from toolgate.core.model import Call, Client, Event, EventSink, Fault, Outcome, Words
from toolgate.upstreams import diagnosis
from toolgate.upstreams.base import About, State, Status, StoppedBy
from toolgate.upstreams.breaker import Breaker
from toolgate.upstreams.links import LinkDeps, MakeLink
from toolgate.upstreams.links.stdio import LOOK
from toolgate.upstreams.mcp.connection import Connection
from toolgate.upstreams.mcp.opening import Ended, open_connection
from toolgate.upstreams.mcp.resubscribe import Resubscriber
from toolgate.upstreams.mcp.speaking import Speaking
from toolgate.upstreams.mcp.subscriptions import subscriptions_of
from toolgate.upstreams.mcp.tasks import TaskOwners
from toolgate.upstreams.stopping import stopped, was_stopped

log = logging.getLogger(__name__)

SIGN_IN = "SIGN_IN_REQUIRED"  # no failure of the server, and a matter between it and one user
MOMENT = 0.001  # seconds; what is due so soon is due
SHORTEST_LOOK = 1.0  # seconds between two looks at one that is busy, however short its time

Found = TypeVar("Found")

# Why a server was stopped that is the same when it is back: its lists are not looked at again for that. (If they were,
# servers that take turns in a full pool, or are up for each list only, would be listed without end.)
_COMES_BACK_THE_SAME = ("pool", "ephemeral")


class UpstreamDeps(msgspec.Struct, frozen=True):
    """What all sessions of one server have in common. `again` makes a call anew; `on_found`, `on_open` and `on_rest`
    say that it is known what a session's connection speaks, that it is up, and that nobody uses it just now."""

    server: Server
    speaking: Speaking
    link_deps: LinkDeps
    make_link: MakeLink
    again: Callable[[Call], Awaitable[Outcome]]
    on_event: EventSink
    on_found: Callable[[UpstreamSession, Client], None]
    on_open: Callable[[UpstreamSession], None]
    on_rest: Callable[[UpstreamSession], None]


class Condition(msgspec.Struct, frozen=True):
    """How a session is, since when (by `Clock.now`), and why."""

    state: State = "configured"
    fault: Fault | None = None
    stopped_by: StoppedBy = ""
    since: float = 0.0


class UpstreamSession:
    """See the module. A `pool.Holder` and a `resubscriber.SubscribingScope`. `beside` is set for the second session of
    a scope: the era that its clients speak, and the first does not."""

    def __init__(self, deps: UpstreamDeps, scope: str, breaker: Breaker, beside: Era | None = None) -> None:
        self.scope = scope
        self.beside: Era | None = beside
        self.era: Era | None = beside  # that is spoken, or was last
        self.is_refused = False  # the server does not speak that of a second session
        self.has_other = False  # beside it is one for clients of the other era
        self.breaker = breaker
        self.live: Connection | None = None
        self.was_open = False
        self.task_owners = TaskOwners()
        self.condition = Condition()
        self.about: About | None = None  # as it was last told
        self._deps = deps
        self._server = deps.server
        self._pool = deps.link_deps.pool
        self._clock = deps.link_deps.clock
        self._complaints = deps.link_deps.complaints or Complaints(self._clock)
        self.resubscriber = Resubscriber(self._server.name, self, self._clock)
        self._claims = 0
        self._opening: asyncio.Task[Connection] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._newest: Connection | None = None
        self._last: Mapping[str, object] = {}  # what was known of the newest connection when it ended
        self._revision = ""

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
        return self.live.calls if self.live else self._claims

    @property
    def is_at_work(self) -> bool:
        """Whether anything is under way, also on the gateway's own account."""
        return bool(self._claims or self._opening or (self.live and self.live.calls))

    @property
    def is_idle(self) -> bool:
        if not self.live or self.is_at_work or self.resubscriber.wanted.watched:
            return False
        return not self.live.runs_tasks()

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
        return self.live.used if self.live else self.condition.since

    # Use.

    async def use(self, client: Client, work: Callable[[Connection], Awaitable[Found]], is_call: bool = False) -> Found:
        """Do something with the connection, which is opened for it where it must be. Raises `Fault`.

        A call that is answered, be it by an error, shows that the server is well.
        """
        self._claims += 1
        number = 0
        try:
            if not self.breaker.is_closed:
                number = await self.breaker.admit(is_call, self._server.timeout)
            connection = self.live or await self._opened(client)
            try:
                found = await work(connection)
            except Fault as fault:
                self._judge(connection, fault, is_call)
                raise
            if is_call and self.breaker.failures:
                self.breaker.answered()
            return found
        finally:
            self._claims -= 1
            if number:
                self.breaker.withdraw(number)
            self.rest()

    def _judge(self, connection: Connection, fault: Fault, is_call: bool) -> None:
        """What a failure says of the server. That a connection was lost is counted where it is noticed, once."""
        if fault.reach == "executed":
            if is_call:
                self.breaker.answered()
        elif fault.code == "SERVER_FAILED" and not connection.fault and not was_stopped(fault):
            self._failed(fault)

    def _failed(self, fault: Fault) -> None:
        self.breaker.failed(fault)
        if self.breaker.is_open:
            log.warning("Circuit breaker open for %s: %s", self._server.name, fault.told().message)

    def rest(self) -> None:
        """Somebody is done with the connection: maybe nobody needs it any more."""
        if self._claims:
            return
        if self.live:
            self.live.used = self._clock.now()
            if self._server.lifecycle == "ephemeral":
                if self.is_idle:
                    self._take_down("ephemeral")
            else:
                self._pool.rested()
        self._deps.on_rest(self)

    # Opening.

    async def _opened(self, client: Client) -> Connection:
        """The connection, opened once however many wait for it. Raises `Fault`."""
        if not self._opening:
            self._opening = asyncio.get_running_loop().create_task(self._open(client), name=f"open {self._server.id}")
            self._opening.add_done_callback(self._opening_over)
        opening = self._opening
        await asyncio.wait((opening,))
        if opening.cancelled():
            raise stopped(self._server.id, self._server.name, "not_sent")
        error = opening.exception()
        if isinstance(error, Fault):
            raise error.at("", "")
        return opening.result()

    def _opening_over(self, done: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more
        self.rest()

    async def _open(self, client: Client) -> Connection:
        server = self._server
        if server.problem:
            fault = Fault("SERVER_FAILED", server.problem, server=server.id, reach="not_sent")
            self._becomes("failed", fault)
            raise self._not_started(fault)
        if self._closing:
            await asyncio.wait((self._closing,))
        before = self.condition
        await self._take_slot()
        speaking = self._deps.speaking
        order = (self.beside,) if self.beside else speaking.order(client, self.era)
        try:
            connection, was_refused = await self._spoken_to(client, order)
        except Fault as fault:
            if fault.code == SIGN_IN:
                self._becomes("failed", self._wants_sign_in())
            elif self.beside:
                self.is_refused = True
                self.condition = before
                log.info("cannot use %s as %s: %s", server.name, self.beside, fault.message)
            else:
                speaking.forget()
                self._failed(fault)
                self._becomes("failed", fault)
                if self._complaints.takes(server.id):
                    log.warning("%s did not start: %s", server.name, fault.told().message)
            raise self._not_started(fault) from None
        except BaseException:
            self._becomes("failed", stopped(server.id, server.name, "not_sent"))
            raise
        assert connection.dialect.revision  # it is open
        self.era = connection.dialect.revision.era
        if self.beside:
            speaking.found_both()
        elif len(order) > 1:
            speaking.found(self.era, was_refused)
        self._deps.on_found(self, client)
        connection.scope = self.scope
        self._is_up(connection, client, before)
        return connection

    async def _spoken_to(self, client: Client, order: Sequence[Era]) -> tuple[Connection, bool]:
        """A connection in the first of these eras that the server speaks, and whether it refused one before. Raises
        `Fault`. What fails is gone when this returns."""
        connection = self._newest = self._new_connection(client)
        try:
            connection.link = await self._deps.make_link(self._server, connection, self._deps.link_deps)
            was_refused = await open_connection(connection, self._server, client, self._clock, order)
            if connection.fault:  # it died on the threshold
                raise connection.fault
            return connection, was_refused
        except Ended as ended:
            log.info("%s ended after the first message (%s); starting it once more", self._server.name, ended)
        except Fault as fault:
            why = connection.fault or fault  # that it could not be spoken to says less than what it died of
            await asyncio.wait((self._end(connection),))
            raise why from None
        except BaseException:
            self._end(connection)
            raise
        await connection.close()
        return (await self._spoken_to(client, order[1:]))[0], True

    async def _take_slot(self) -> None:
        before = self.condition
        self._becomes("starting")
        if self._stays:
            return
        try:
            await self._pool.enter(self, self._server.name, self._server.start_timeout)
        except Fault as fault:  # no fault of this server
            self.condition = before
            raise self._not_started(fault) from None
        except BaseException:
            self.condition = before
            raise

    def _new_connection(self, client: Client) -> Connection:
        deps, server = self._deps, self._server
        connection = Connection(
            server,
            self._clock,
            deps.again,
            self._tell,
            self._lost,
            self.rest,
            server.scope != "shared",
            self.scope,
            self.task_owners,
            client.principal.id if server.scope != "shared" else "",
            self._complaints,
        )
        connection.bounds = deps.link_deps.bounds
        return connection

    def _tell(self, event: Event) -> None:
        """What the server says on its own account. Where it is spoken to in both eras, it says so to both: what a list
        is now is looked up, of all else each client hears in its own."""
        if self.has_other and event.kind not in ("list_changed", "opened"):
            event = msgspec.structs.replace(event, era=self.era)
        self._deps.on_event(event)

    def _is_up(self, connection: Connection, client: Client, before: Condition) -> None:
        wanted = self.resubscriber.wanted
        self.live = connection
        self.about = About(connection.dialect.capabilities, connection.dialect.instructions)
        self._revision = connection.dialect.revision.date if connection.dialect.revision else ""
        wanted.pauses.opened(self._clock.now())
        self._becomes("ready")
        connection.hear(subscriptions_of(connection, client, self._clock), wanted)
        is_same = self.was_open and before.stopped_by in _COMES_BACK_THE_SAME
        if not is_same and not self.beside:  # it may offer something else than before
            self._deps.on_event(Event(self._server.id, "opened", self.scope))
        self.was_open = True
        if not self._stays:
            self._timer = self._clock.call_later(self._patience, self._look)
        self._deps.on_open(self)

    def _wants_sign_in(self) -> Fault:
        """What everybody may know of it: the page is for one user alone."""
        message = f"{self._server.name} requires its user to sign in"
        return Fault(SIGN_IN, message, server=self._server.id, hint=f"toolgate connect {self._server.id}")

    def _not_started(self, fault: Fault) -> Fault:
        """What a call is told; the status keeps the reason alone."""
        if fault.code == SIGN_IN:
            return fault.at(self._server.id, "")
        message = f"Server not started: {fault.message}"
        hint, words = self._hint(fault, ""), self._words(fault)
        if fault.hint.startswith(LOOK) and words and words.hint:
            words = Words(words.last, f"{words.hint}; {fault.hint}")
        return Fault(fault.code, message, server=self._server.id, reach="not_sent", hint=hint, words=words)

    # Ending.

    @property
    def _patience(self) -> float:
        """Seconds for which it may be idle."""
        return self._pool.limits.idle if self._server.idle is None else self._server.idle

    def _look(self) -> None:
        """Whether it has been idle for long enough; else it is looked at again when it may have been."""
        idle = self._clock.now() - self.used if self.is_idle else 0.0
        rest = self._patience - idle
        if not self.is_idle:
            self._timer = self._clock.call_later(max(rest, SHORTEST_LOOK), self._look)
        elif rest > MOMENT:
            self._timer = self._clock.call_later(rest, self._look)
        else:
            self._take_down("idle")

    def give_way(self) -> None:
        self._take_down("pool")

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

    def _take_down(self, why: StoppedBy) -> None:
        assert self.live
        connection, self.live = self.live, None
        self._becomes("stopped", stopped_by=why)
        self._end(connection)

    def _end(self, connection: Connection) -> asyncio.Task[None]:
        """End a connection. Until all of it is gone no other is opened, and its slot is taken."""

        async def end() -> None:
            try:
                await connection.close()
            finally:
                self._gone(connection)

        def ended(done: asyncio.Task[None]) -> None:
            self._closing = None
            self._deps.on_rest(self)

        self._stop_checking()
        self._closing = asyncio.get_running_loop().create_task(end(), name=f"end {self._server.id}")
        self._closing.add_done_callback(ended)
        return self._closing

    def _lost(self, connection: Connection, fault: Fault, is_dead: bool) -> None:
        """It ended by itself, or (not `is_dead`) the server has forgotten our session."""
        if self.live is not connection:
            return  # it is ended, or was never up
        self.live = None
        if is_dead and (self._claims or connection.in_flight):
            self._failed(fault)
        self._becomes("failed", fault)
        self._stop_checking()
        self._gone(connection)
        if self._complaints.takes(self._server.id):
            log.warning("%s; the next call starts it again", fault.told().message)
        self.resubscriber.lost()

    def _gone(self, connection: Connection) -> None:
        if connection.link:
            self._last = connection.link.describe()
        if self._newest is connection:
            self._newest = None
        self._pool.leave(self)

    def _stop_checking(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    # What people are told.

    def _becomes(self, state: State, fault: Fault | None = None, stopped_by: StoppedBy = "") -> None:
        self.condition = Condition(state, fault, stopped_by, self._clock.now())

    @property
    def known(self) -> About | None:
        """What the server says of itself, where it need not be started to say so."""
        return self.about if self.live or self.condition.state == "stopped" else None

    @property
    def state(self) -> State:
        """A server whose circuit breaker is open has failed, whether or not there is a connection."""
        if self.breaker.is_open and self.condition.state in ("ready", "stopped", "configured"):
            return "failed"
        return "busy" if self.condition.state == "ready" and self.calls else self.condition.state

    def status(self) -> Status:
        about = self._described()
        fault = self.condition.fault
        error = fault.message if fault else self.breaker.reason if self.state == "failed" else ""
        words = self._words(fault)
        waits = self.breaker.hint() if self.breaker.is_open else ""
        return Status(
            state=self.state,
            error=error,
            hint=_joined(self._hint(fault, ""), waits),
            words=words and Words(words.last, _joined(words.hint, waits) if words.hint else ""),
            pid=about.get("pid") if self.live or self._opening else None,  # type: ignore[arg-type]
            started=about.get("started"),  # type: ignore[arg-type]
            stderr=str(about.get("stderr", "")) or diagnosis.as_a_shell_says(error),
            revision=self._revision,
            stopped_by=self.condition.stopped_by,
            calls=self.calls,
        )

    def _described(self) -> Mapping[str, object]:
        return self._newest.link.describe() if self._newest and self._newest.link else self._last

    def _words(self, fault: Fault | None) -> Words | None:
        """What its stderr has of a fault."""
        last = fault.words.last if fault and fault.words else ""
        hint = self._hint(fault, str(self._described().get("stderr", "")) or last)
        return Words(last, hint) if last or hint != self._hint(fault, "") else None

    def _hint(self, fault: Fault | None, stderr: str) -> str:
        """What to do about it: the known cause's fix for a program that has said something on its stderr; else
        whoever noticed it knows best."""
        if not fault or self._server.problem:
            return ""
        known = diagnosis.fix_for(fault.message, stderr)
        return known or fault.hint if stderr else fault.hint or known


def _joined(*hints: str) -> str:
    return "; ".join(filter(None, hints))
