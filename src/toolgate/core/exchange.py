"""Running work that may ask before it is done: the one primitive of all server-to-client requests.

The side that works says `ask`, `finish`, `fail`; the side that holds it says `next`, `answer`, `cancel`.
The rule this file keeps: an exchange ends exactly once, and its time runs only while nobody is being asked.

`Retry` is its counterpart where nothing runs meanwhile, and `then` puts something after either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from msgspec import Raw

from toolgate.core import crowds, internal_errors
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault, let_go
from toolgate.core.model import Answer, Ask, Asker, Call, NeedInput, Outcome, Required, Resume, Resumption

log = logging.getLogger(__name__)

RENEWED = 1.0  # seconds of its time that are spent before it begins anew: what goes on may say so all the time
TIMED_OUT = "timed out"  # to `on_cancel`, where nobody has given it up before its time


class Exchange(msgspec.Struct, eq=False, weakref=True):
    """See the module. `on_cancel` tells the working side that nobody waits any more (also on a timeout). Its time, of
    `budget` seconds, runs since it `started`, else since it is `be_timed`: its end is noticed when somebody waits
    (`next`), or says so. It may begin anew (`renew`), until that has given it `spare` seconds more."""

    asker: Asker
    clock: Clock
    budget: float | None = None
    on_cancel: Callable[[str], None] | None = None
    started: float | None = None
    spare: float = 0.0
    on_change: Callable[[], object] | None = None  # called where there is a question, or the end
    whose: str = ""  # see `Principal.counted_as`
    ended: bool = False
    outcome: Outcome | None = None  # what it ended with, where it ended as it should
    _fault: Fault | None = None
    _waiter: asyncio.Future[None] | None = None
    _timer: Timer | None = None
    _spent: float = 0.0  # of its time, before it started last
    _pauses: int = 0
    _asked: int = 0
    _open: dict[str, tuple[Ask, asyncio.Future[Answer]]] = {}
    _on_report: dict[str, Callable[[Raw], None]] = {}
    _fresh: list[Ask] = []

    def __repr__(self) -> str:
        stage = "ended" if self.ended else f"{len(self._open)} open" if self._open else "running"
        return f"<Exchange {self.asker} {stage}>"

    @property
    def is_live(self) -> bool:
        return True

    @property
    def state(self) -> str | None:
        return None

    @property
    def is_done(self) -> bool:
        """Whether it ended as it should: not by a fault, a timeout, or because nobody waited any more."""
        return self.outcome is not None

    @property
    def origin(self) -> Resume:
        return self

    # The side that works.

    def ask(self, method: str, params: Raw, on_report: Callable[[Raw], None] | None = None) -> asyncio.Future[Answer]:
        """Ask the client. Cancelling the future withdraws the question; the end of the exchange cancels it. `on_report`
        is told of progress with it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self.ended:
            future.cancel()
            return future
        self._asked += 1
        ask = Ask(f"ask-{self._asked}", method, params)
        self._open[ask.key] = (ask, future)
        if on_report:
            self._on_report[ask.key] = on_report
        self._fresh.append(ask)
        future.add_done_callback(lambda done: self._close(ask) if done.cancelled() else None)
        self.pause()
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
        else:
            self._tell_of_change()
        return future

    def finish(self, outcome: Outcome | None, fault: Fault | None = None, has_turn: bool = True) -> None:
        """End it: well, or by a fault. No matter where it has ended. Without `has_turn` it may be one of very many that
        end together."""
        if self.ended:
            return
        self.ended = True
        if fault:
            self._fault = fault
        else:
            self.outcome = outcome
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._open:
            for _, future in list(self._open.values()):
                future.cancel()
        if self._waiter and not self._waiter.done():
            if has_turn:
                self._waiter.set_result(None)
            else:
                crowds.in_turn(self._wake, self.whose)
        elif changed := self.on_change:
            if has_turn:
                changed()
            else:
                crowds.in_turn(self._tell_of_change, self.whose)

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _tell_of_change(self) -> None:
        if changed := self.on_change:
            changed()

    def be_timed(self) -> None:
        """From now on the end of its time is noticed."""
        if self.budget is not None and not self._timer and not self._pauses and not self.ended:
            now = self.clock.now()
            self.started = now if self.started is None else self.started
            left = self.budget - self._spent - (now - self.started)
            self._timer = self.clock.call_later(max(0.0, left), self._is_late)

    def renew(self) -> None:
        """The work goes on: its time begins anew, as far as there is some to spare."""
        if not self._timer or self.started is None:
            return
        now = self.clock.now()
        spent = self._spent + now - self.started
        if spent >= RENEWED and self.spare > 0:
            self._timer.cancel()
            self._timer = None
            self.started, self._spent = now, max(0.0, spent - self.spare)
            self.spare -= spent - self._spent
            self.be_timed()

    def pause(self) -> None:
        """Stop the time, for as long as a question is open that may be of this work. `go_on` as often as this."""
        self._pauses += 1
        if self._timer and self.started is not None:
            self._timer.cancel()
            self._timer = None
            self._spent += self.clock.now() - self.started

    def go_on(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self.started = None
            self.be_timed()

    def fail(self, fault: Fault, has_turn: bool = False) -> None:
        """The same by a fault. Nothing is kept of where it comes from: that would hold what was refused, and this."""
        fault.__traceback__ = fault.__context__ = None
        self.finish(None, fault, has_turn)

    # The side that holds it.

    def open_asks(self) -> tuple[Ask, ...]:
        return tuple(ask for ask, _ in self._open.values())

    def answer(self, key: str, answer: Answer) -> None:
        found = self._open.get(key)
        if not found:
            return
        ask, future = found
        self._close(ask)
        if not future.done():
            future.set_result(answer)

    def report(self, key: str, params: Raw) -> None:
        if on_report := self._on_report.get(key):
            on_report(params)

    async def settled(self, key: str) -> None:
        if key in self._open:
            await asyncio.wait((self._open[key][1],))

    async def next(self) -> Outcome:
        self.be_timed()
        try:
            while True:
                if self._fault:
                    raise self._fault.at("", "")  # else it would hold this frame, and that it
                if self.outcome is not None:
                    return self.outcome
                if self._fresh:
                    asks, self._fresh = tuple(self._fresh), []
                    return NeedInput(asks, self)
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        except asyncio.CancelledError:
            try:
                await crowds.turn(self.whose)
            finally:
                self.cancel()
            raise

    def cancel(self) -> None:
        self._give_up(Fault("SESSION_ERROR", "The call was cancelled", reach="sent_unknown"), "cancelled by the client")

    # Between the two.

    def _close(self, ask: Ask) -> None:
        if not self._open.pop(ask.key, None):
            return
        self._on_report.pop(ask.key, None)
        if ask in self._fresh:
            self._fresh.remove(ask)
        self.go_on()

    def _give_up(self, fault: Fault, reason: str) -> None:
        if self.ended:
            return
        self.fail(fault, has_turn=True)
        if self.on_cancel:
            self.on_cancel(reason)

    def _is_late(self) -> None:
        timer = self._timer
        crowds.in_turn(lambda: self._expire(timer), self.whose)

    def _expire(self, timer: Timer | None) -> None:
        if timer is not self._timer:  # a question stopped the time meanwhile, or it began anew
            return
        message = f"No answer within the time limit ({self.budget:g} s)"
        self._give_up(Fault("TIMEOUT", message, reach="sent_unknown"), TIMED_OUT)


class Part(Exchange, kw_only=True):
    """One of several requests that are made for one piece of work: its questions are the whole's."""

    whole: Exchange
    _put: set[asyncio.Future[Answer]] = set()

    def ask(self, method: str, params: Raw, on_report: Callable[[Raw], None] | None = None) -> asyncio.Future[Answer]:
        if self.ended:
            return super().ask(method, params)
        future = self.whole.ask(method, params, on_report)
        if not future.done():
            self.pause()
            self._put.add(future)
            future.add_done_callback(self._was_answered)
        return future

    def open_asks(self) -> tuple[Ask, ...]:
        return self.whole.open_asks()

    def _was_answered(self, future: asyncio.Future[Answer]) -> None:
        self._put.discard(future)
        self.go_on()

    def finish(self, outcome: Outcome | None, fault: Fault | None = None, has_turn: bool = True) -> None:
        if not self.ended:
            for future in list(self._put):
                future.cancel()
        super().finish(outcome, fault, has_turn)


def run(asker: Asker, clock: Clock, timeout: float | None, work: Callable[[Exchange], Awaitable[Outcome]]) -> Exchange:
    """An exchange around a coroutine of our own, which may ask. The coroutine is cancelled with the exchange."""

    async def own() -> None:
        try:
            exchange.finish(await work(exchange))
        except Fault as fault:
            let_go(fault)
            exchange.fail(fault)
        except asyncio.CancelledError as error:
            let_go(error)  # the task keeps it, and is kept by what it came through
            exchange.fail(Fault("SESSION_ERROR", "The call was cancelled", reach="sent_unknown"))
            raise
        except Exception as error:  # the rescue of in-process work: its bug is its own call's failure
            if internal_errors.takes(error):
                log.error("%s failed with an internal error", asker, exc_info=error)
            exchange.fail(Fault("UPSTREAM_ERROR", f"{type(error).__name__}: {error}", reach="executed"))

    def stop(_reason: str) -> None:
        task.cancel()

    exchange = Exchange(asker, clock, timeout, stop)
    exchange.be_timed()
    task = asyncio.get_running_loop().create_task(own())
    return exchange


class Retry:
    """What goes on when the asker keeps nothing meanwhile: the same call, made again with the answers."""

    ROUNDS = 10
    PAUSES = (0.05, 0.1, 0.25)  # seconds, before an asker that wants nothing but its state back gets it

    is_live = False

    def __init__(
        self, asker: Asker, call: Call, required: Required, again: Callable[[Call], Awaitable[Outcome]], clock: Clock
    ) -> None:
        self.asker = asker
        self.state = required.state
        self._call = call
        self._again = again
        self._clock = clock
        self._round = call.resumption.round + 1 if call.resumption else 1
        self._open = {ask.key: ask for ask in required.asks}
        self._answers: dict[str, Answer] = {}
        self._answered = asyncio.Event()

    @property
    def origin(self) -> Resume:
        return self

    def open_asks(self) -> tuple[Ask, ...]:
        return tuple(self._open.values())

    def answer(self, key: str, answer: Answer) -> None:
        if self._open.pop(key, None):
            self._answers[key] = answer
            self._answered.set()

    def report(self, key: str, params: Raw) -> None:
        """Who keeps nothing hears nothing."""

    async def settled(self, key: str) -> None:
        while key in self._open:  # who keeps nothing withdraws nothing
            self._answered.clear()
            await self._answered.wait()

    async def next(self) -> Outcome:
        if self._round > self.ROUNDS:
            raise Fault("UPSTREAM_ERROR", f"{self.asker} asked in more than {self.ROUNDS} rounds", reach="executed")
        if not self._open and not self._answers:
            await self._clock.sleep(self.PAUSES[min(self._round, len(self.PAUSES)) - 1])
        while self._open:
            self._answered.clear()
            await self._answered.wait()
        resumption = Resumption(self.asker, self._answers, state=self.state, round=self._round)
        return await self._again(msgspec.structs.replace(self._call, resumption=resumption))

    def cancel(self) -> None:
        """Nothing waits anywhere."""


def _nobody(_error: BaseException) -> None:
    """Nobody wants to know."""


def raised(fault: Fault) -> Outcome:
    """What a fault becomes where nothing else is to become of it."""
    raise fault


Shown: TypeAlias = Callable[[Asker, tuple[Ask, ...]], tuple[Ask, ...]]
"""The questions of somebody as clients may see them."""


def as_asked(_asker: Asker, asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    return asks


class Then:
    """A resume whose next outcome goes through `then`, and its fault through `rescue`: how the gateway keeps its
    policies around what comes later. `given_up` is told, once, where there is neither. `shown` are the questions as
    they may be put."""

    def __init__(
        self,
        inner: Resume,
        then: Callable[[Outcome], Outcome],
        rescue: Callable[[Fault], Outcome] = raised,
        given_up: Callable[[BaseException], None] = _nobody,
        shown: Shown = as_asked,
    ) -> None:
        self._inner = inner
        self._shown = shown
        self._then = then
        self._rescue = rescue
        self._given_up = given_up

    @property
    def asker(self) -> Asker:
        return self._inner.asker

    @property
    def is_live(self) -> bool:
        return self._inner.is_live

    @property
    def state(self) -> str | None:
        return self._inner.state

    @property
    def origin(self) -> Resume:
        return self._inner.origin

    def open_asks(self) -> tuple[Ask, ...]:
        return self._shown(self.asker, self._inner.open_asks())

    def answer(self, key: str, answer: Answer) -> None:
        self._inner.answer(key, answer)

    def report(self, key: str, params: Raw) -> None:
        self._inner.report(key, params)

    async def settled(self, key: str) -> None:
        await self._inner.settled(key)

    async def next(self) -> Outcome:
        try:
            outcome = await self._inner.next()
        except Fault as fault:
            self._given_up = _nobody
            return self._rescue(fault)
        except BaseException as error:
            self._is_over(error)
            raise
        self._given_up = _nobody
        return self._then(outcome)

    def cancel(self) -> None:
        self._inner.cancel()
        self._is_over(asyncio.CancelledError())

    def _is_over(self, error: BaseException) -> None:
        given_up, self._given_up = self._given_up, _nobody
        given_up(error)


def then(
    next: Outcome,
    do: Callable[[Outcome], Outcome],
    rescue: Callable[[Fault], Outcome] = raised,
    given_up: Callable[[BaseException], None] = _nobody,
    shown: Shown = as_asked,
) -> Outcome:
    """`do` applied to the last outcome: now, or when the questions before it are answered, which are put as `shown`
    has them; `rescue` to the fault that it may turn out to be. `given_up` is told where nobody waits for it any
    more."""
    if isinstance(next, NeedInput):
        again = Then(next.resume, lambda later: then(later, do, rescue, given_up, shown), rescue, given_up, shown)
        return NeedInput(shown(again.asker, next.asks), again)
    try:
        return do(next)
    except Fault as fault:
        return rescue(fault)


async def resumed(resumption: Resumption, live: Resume) -> Outcome:
    """Go on with work that waited. Questions that were left unanswered are asked again."""
    for key, answer in resumption.answers.items():
        live.answer(key, answer)
    asks = live.open_asks()
    return NeedInput(asks, live) if asks else await live.next()
