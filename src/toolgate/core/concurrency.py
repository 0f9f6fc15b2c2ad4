"""How much of something goes on at once. Principals that wait take turns, and what one of them wants goes on in the
order that it came.

The rules this file keeps: who has much to do waits behind its own; where enough of it waits, the next is refused; a
turn that is taken in a thread lasts as long as the thread works, also where nobody waits for that any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from toolgate.core import crowds
from toolgate.core.fairness import ByUse, RoundRobin
from toolgate.core.fault import Fault
from toolgate.core.steps import Unfinished

LITTLE = 1024 * 1024  # bytes that are looked at in some milliseconds
SOON = 1.0  # seconds after which who was refused may try again

Result = TypeVar("Result")


class FairLimit:
    """`limit` None is no limit; it may be changed at any time, and holds from the next turn on. `running` go on
    already. Of one principal `most` wait, None: any number; `what` they are, in a message."""

    def __init__(self, limit: int | None, running: int = 0, most: int | None = None, what: str = "calls") -> None:
        self.limit = limit
        self._running = running
        self._most = most
        self._what = what
        self._queue: RoundRobin[tuple[str, asyncio.Future[None]]] = RoundRobin()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._queue)

    def waiting_of(self, whose: str) -> int:
        return self._queue.count(whose)

    def take_now(self, whose: str = "") -> bool:
        """Whether there is a turn at once; it is taken."""
        if self.limit is not None and (self._running >= self.limit or self._queue or not self._may(whose)):
            return False
        self._took(whose)
        return True

    def _may(self, whose: str) -> bool:
        """Whether this principal may have what is free."""
        return True

    def _took(self, whose: str) -> None:
        self._running += 1

    async def turn(self, whose: str) -> None:
        """Wait for one; `give_back` is to follow. `whose` it is: see `Principal.counted_as`. Raises `Fault`
        RATE_LIMITED, not sent, where enough of this principal waits."""
        if self.take_now(whose):
            return
        if self._most is not None and self.waiting_of(whose) >= self._most:
            raise self._refusal()
        await self._wait(whose)

    async def _wait(self, whose: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(whose, (whose, turn))
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            self._leave(whose, turn)
            await crowds.turn(whose)  # thousands may be given up together
            raise

    async def during(self, whose: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Have this done when its turn comes; the turn lasts until it is, also where nobody waits for it any more.
        Raises as `turn` does."""
        await self.turn(whose)
        done = asyncio.ensure_future(work())
        done.add_done_callback(partial(self._over, whose))
        try:
            return await asyncio.shield(done)
        finally:
            del done  # or its error and this frame would hold each other, and all that was worked on

    def give_back(self, whose: str = "") -> None:
        self._running -= 1
        self._next()

    def _next(self) -> None:
        while self._queue.size and self.limit is not None and self._running < self.limit:
            waiting = self._queue.pop(self._may)
            if not waiting:
                return
            whose, turn = waiting
            if not turn.done():
                self._took(whose)
                turn.set_result(None)

    def _over(self, whose: str, done: asyncio.Future[Any]) -> None:
        self.give_back(whose)
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits any more

    def _leave(self, whose: str, turn: asyncio.Future[None]) -> None:
        """Give up waiting; a turn that came at the same moment is passed on."""
        if not self._queue.remove(whose, (whose, turn)) and turn.done() and not turn.cancelled():
            self.give_back(whose)

    def _refusal(self) -> Fault:
        message = f"Too many {self._what} at once: {self._most} of this client are waiting already"
        hint = "wait until one of them is answered, then try again"
        return Fault("RATE_LIMITED", message, reach="not_sent", hint=hint, extra={"retryAfter": SOON})


class FairThreads(FairLimit):
    """What is done in threads, so many at once. Every second turn is of those who have used the least time lately;
    `whose` may be several names, as those of `ByUse`."""

    def __init__(self, limit: int | None, most: int | None = None, what: str = "calls") -> None:
        super().__init__(limit, most=most, what=what)
        self._queue = self._by_use = ByUse[tuple[str, "asyncio.Future[None]"]]()

    async def in_thread(
        self, whose: str, work: Callable[[], Result | Unfinished], threads: Executor | None = None
    ) -> Result:
        """Have this done in a thread (None: one of the event loop's own) when its turn comes, and what is `Unfinished`
        in further turns. Raises as `turn` does."""
        await self.turn(whose)
        while isinstance(result := await self._worked(whose, work, threads), Unfinished):
            if not self.take_now(whose):
                await self._wait(whose)
        return result

    async def _worked(self, whose: str, work: Callable[[], Result], threads: Executor | None) -> Result:
        since = time.perf_counter()
        try:
            done = asyncio.get_running_loop().run_in_executor(threads, work)
        except BaseException:  # the threads have ended
            self.give_back(whose)
            raise
        done.add_done_callback(lambda _: self._by_use.used(whose, time.perf_counter() - since))
        done.add_done_callback(partial(self._over, whose))
        try:
            return await asyncio.shield(done)  # who goes away does not end the thread
        finally:
            del done  # as in `during`


class BySize:
    """Two of them, of `limit` each: what has up to `LITTLE` bytes does not wait for what is larger."""

    def __init__(self, limit: int) -> None:
        self._little, self._large = FairThreads(limit), FairThreads(limit)

    def of(self, size: int) -> FairThreads:
        return self._little if size <= LITTLE else self._large


class OneEach(FairLimit):
    """Each principal has one turn at a time, so what one of them wants takes all places only together with others."""

    def __init__(self, limit: int | None, most: int | None = None, what: str = "calls") -> None:
        super().__init__(limit, most=most, what=what)
        self._theirs: dict[str, int] = {}

    def _may(self, whose: str) -> bool:
        return whose not in self._theirs

    def _took(self, whose: str) -> None:
        super()._took(whose)
        self._theirs[whose] = self._theirs.get(whose, 0) + 1

    def give_back(self, whose: str = "") -> None:
        self._theirs[whose] -= 1
        if not self._theirs[whose]:
            del self._theirs[whose]
        super().give_back(whose)


class TwoEach(OneEach):
    """The same with two: what one of them wants may hang once without keeping the rest from going on."""

    def _may(self, whose: str) -> bool:
        return self._theirs.get(whose, 0) < 2


class Shared(OneEach):
    """A principal has a turn more only where more are free than it has: alone it has half of all, and one is left for
    whoever has none, until as many principals have theirs as `limit` has binary digits."""

    def _may(self, whose: str) -> bool:
        return self.limit is None or self._theirs.get(whose, 0) < self.limit - self._running
