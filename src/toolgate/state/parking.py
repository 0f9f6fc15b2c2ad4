"""Work that waits while a modern client gathers answers: the only place where a call outlives its request.

A flow is parked when its `input_required` was flushed, claimed by the retry, and parked again or gone when
that round ends. The rules this file keeps: everything parked ends (ttl, caps, shutdown) and ending cancels the
work upstream; a retry that comes twice joins the running round, as a few may; the round that was answered is never
answered again.

Rounds of our own policies, where nothing is parked, are kept to the last two rules as well (`once`): the store
remembers them, since other gateways, and this one after a restart, could be shown the same state.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from toolgate.core import asks
from toolgate.core.clock import Clock, Timer
from toolgate.core.fairness import Shares
from toolgate.core.fault import Fault
from toolgate.core.model import Principal, Resume
from toolgate.core.notes import Notes
from toolgate.state.base import NotKept, Store

Reply = TypeVar("Reply")

MOST_BYTES = 64 * 1024 * 1024  # that the calls of one principal keep while they are parked
MOST_JOINED = 8  # requests that wait for one round: each of them gets its whole reply at the same moment
REMEMBERED = 16384  # rounds that were answered; beyond, the oldest are forgotten


class Round:
    """The work done for one retry, however many requests wait for it. When the last of them is gone, it is over."""

    def __init__(self, work: Callable[[], Awaitable[Any]]) -> None:
        self.task: asyncio.Future[Any] = asyncio.ensure_future(work())
        self._waiting = 0

    async def join(self, abandon: Callable[[], object]) -> Any:
        """Raises `Fault` RATE_LIMITED where enough wait for it."""
        if self._waiting >= MOST_JOINED:
            message = f"Too many retries at once: {MOST_JOINED} with the same requestState wait already"
            raise Fault(
                "RATE_LIMITED", message, reach="not_sent", hint="wait for one of them", extra={"retryAfter": 1.0}
            )
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if self.task.cancelled() and not _is_cancelled():
                raise Fault("SESSION_ERROR", "The gateway cancelled the call", reach="sent_unknown") from None
            if self._waiting == 1 and not self.task.done():
                abandon()
            raise
        finally:
            self._waiting -= 1


def _is_cancelled() -> bool:
    """Whether it is the running task itself that is to end, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ParkedCall:
    """One parked piece of work. `round` counts the questions."""

    def __init__(self, id: str, resume: Resume, notes: Notes | None, principal: Principal, size: int = 0) -> None:
        self.id = id
        self._size = size  # bytes that its call keeps
        self.resume = resume
        self.notes = notes
        self.principal = principal
        self.owner = principal.counted_as
        self.round = 0
        self.running_round: Round | None = None
        self.timer: Timer | None = None

    def __repr__(self) -> str:
        stage = "running" if self.running_round else "parked"
        return f"<Flow {self.id[:6]} round {self.round} {stage} {self.resume!r}>"

    @property
    def size(self) -> int:
        """Bytes that are kept with it, its open questions among them."""
        return self._size + asks.size(self.resume.open_asks())


class Parking:
    """`ttl` in seconds; `per_owner` bounds one principal (see `Principal.counted_as`), `most` all together: whoever has
    the most loses what it has not used for longest."""

    def __init__(
        self, clock: Clock, ttl: float = 300.0, per_owner: int = 64, most: int = 2048, store: Store | None = None
    ) -> None:
        self.ttl = ttl
        self._clock = clock
        self._per_owner = per_owner
        self._most = most
        self._store = store
        self._parked: dict[str, ParkedCall] = {}
        self._shares: Shares[ParkedCall] = Shares()  # of owners; the least recently used first
        self._rounds: OrderedDict[bytes, tuple[float, Round | None]] = OrderedDict()  # until when, and what runs

    def __len__(self) -> int:
        return len(self._parked)

    def hold(self, resume: Resume, notes: Notes | None, principal: Principal, size: int = 0) -> ParkedCall:
        """Make a flow of work that asked, and keeps so many bytes. Its request owns it: `park` it once the question is
        out, else `drop`."""
        parked_call = ParkedCall(secrets.token_urlsafe(16), resume, notes, principal, size)
        owner = parked_call.owner
        theirs = list(self._shares.of(owner))
        while theirs and (len(theirs) >= self._per_owner or _size(parked_call, *theirs) > MOST_BYTES):
            self.drop(theirs.pop(0))
        if len(self._parked) >= self._most:
            self.drop(next(self._shares.greatest()))
        self._parked[parked_call.id] = parked_call
        self._shares.put(owner, parked_call.id, parked_call)
        self.ask_again(parked_call, resume)
        return parked_call

    def ask_again(self, parked_call: ParkedCall, resume: Resume) -> None:
        """A further round of the same flow; the state that its client gets must differ from the last."""
        parked_call.resume = resume
        parked_call.round += 1
        parked_call.running_round = None
        self._wind(parked_call)

    def park(self, parked_call: ParkedCall) -> None:
        """The question is out: from now on the flow is ours, until the retry comes or its time is over."""
        if parked_call.running_round or parked_call.id not in self._parked:
            return  # a quick retry was faster than our own flush
        if parked_call.notes:
            parked_call.notes.attach(None)
        self._shares.used(parked_call.owner, parked_call.id)
        self._wind(parked_call)

    def drop(self, parked_call: ParkedCall) -> None:
        """End the flow and the work behind it."""
        self.finished(parked_call)
        if parked_call.running_round:
            parked_call.running_round.task.cancel()
        parked_call.resume.cancel()

    def finished(self, parked_call: ParkedCall) -> None:
        """The reply is out: the flow is over, and a later retry is refused."""
        if self._parked.pop(parked_call.id, None):
            self._shares.remove(parked_call.owner, parked_call.id)
        self._stop(parked_call)

    def find(self, id: str, round: int) -> ParkedCall:
        """The flow that waits for this very round. Uses nothing up. Raises `Fault` where there is none any more."""
        parked_call = self._parked.get(id)
        if not parked_call or parked_call.round != round:
            raise _used_up()
        return parked_call

    async def run_round(self, parked_call: ParkedCall, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """Run `work` for this round, or join the one that runs. When every waiting request is gone, it is cancelled."""
        if not parked_call.running_round:
            self._stop(parked_call)
            running = parked_call.running_round = Round(work)
            running.task.add_done_callback(
                lambda _done: self._wind(parked_call) if parked_call.running_round is running else None
            )
        return await parked_call.running_round.join(lambda: self.drop(parked_call))

    async def once(self, round: bytes, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """The same for a round behind which nothing is parked; its state is good for no longer than `ttl`."""
        now = self._clock.now()
        while self._rounds and (len(self._rounds) >= REMEMBERED or next(iter(self._rounds.values()))[0] <= now):
            self._rounds.popitem(last=False)
        until, running = self._rounds.get(round, (now + self.ttl, None))
        if round in self._rounds and not running:
            raise _used_up()
        if not running:
            running = Round(lambda: self._claimed(round, work))
            self._rounds[round] = until, running
            running.task.add_done_callback(lambda _done: self._rounds.update({round: (until, None)}))
        return await running.join(running.task.cancel)

    async def _claimed(self, round: bytes, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """Work for a round, unless another gateway has done it. Where nothing can be kept, it is good once here."""
        if self._store:
            with contextlib.suppress(NotKept):
                if not await self._store.compare_and_set("rounds", round.hex(), None, b"", self.ttl):
                    raise _used_up()
        return await work()

    def end_unknown(self, is_known: Callable[[Principal], bool]) -> None:
        """End the flows of who would not be let in any more."""
        for parked_call in [each for each in self._parked.values() if not is_known(each.principal)]:
            self.drop(parked_call)

    def close(self) -> None:
        for parked_call in list(self._parked.values()):
            self.drop(parked_call)

    def _wind(self, parked_call: ParkedCall) -> None:
        """While no round runs, a flow's time does: also where nobody tells whether the reply got out."""
        self._stop(parked_call)
        if parked_call.id in self._parked:
            parked_call.timer = self._clock.call_later(self.ttl, lambda: self.drop(parked_call))

    def _stop(self, parked_call: ParkedCall) -> None:
        if parked_call.timer:
            parked_call.timer.cancel()
            parked_call.timer = None


def _size(*parked_calls: ParkedCall) -> int:
    return sum(each.size for each in parked_calls)


def _used_up() -> Fault:
    return Fault("INVALID_STATE", "requestState is no longer valid: it was already answered or has expired")
