"""Tasks that count for limits on how much runs at once, and are looked at for that until they are over.

The rule this file keeps: whoever has it counted is told that it is over when its server says so, when it can say
nothing any more, and at the latest when it has lasted as long as a task may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from toolgate.core import mcp
from toolgate.core.clock import Clock
from toolgate.core.fault import Fault, Reached
from toolgate.core.jsonrpc import INVALID_PARAMS
from toolgate.core.model import Call, Outcome
from toolgate.eras.tasks import Task

MOST_COUNTED = 16 * 1024  # on one connection; what is more, which only calls can make that had asked, does not count
PAUSES = (1.0, 60.0)  # seconds between two looks, no less and no more, whatever a server says
SHARE = 4  # a task that has run for so long is looked at again in this part of that time


Ask: TypeAlias = Callable[[Call], Awaitable[Outcome]]
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class CountedTasks:
    """Those of one connection, of which `ask` makes requests and which `spawn` has do something that ends with it."""

    def __init__(self, clock: Clock, ask: Ask, spawn: Spawn) -> None:
        self._clock = clock
        self._ask = ask
        self._spawn = spawn
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._doubts: dict[str, asyncio.Event] = {}

    def add(self, task: Task, call: Call) -> None:
        """A call has become this task."""
        reached = call.reached
        if not reached or not reached.over:
            return
        if task.is_over or len(self._looking) >= MOST_COUNTED:
            tell_over(reached)  # who made it may have left, and counts it from then on
            return
        self.over(task.taskId)  # of an earlier one of that id
        reached.goes_on = True
        doubt = self._doubts[task.taskId] = asyncio.Event()
        looking = self._looking[task.taskId] = self._spawn(self._until_over(task, call, doubt))
        looking.add_done_callback(lambda _: tell_over(reached))

    def over(self, id: str) -> None:
        """It has ended, as is known."""
        self._doubts.pop(id, None)
        if looking := self._looking.pop(id, None):
            looking.cancel()

    def look(self, id: str) -> None:
        """It may have ended."""
        if doubt := self._doubts.get(id):
            doubt.set()

    def end(self) -> None:
        """The connection has: as with any call, nothing more is known of what its server does."""
        for id in list(self._looking):
            self.over(id)

    async def _until_over(self, task: Task, call: Call, doubt: asyncio.Event) -> None:
        """Ask now and then; what is answered brings `over`, which ends this."""
        clock = self._clock
        begun, least = clock.now(), max(PAUSES[0], task.pause or 0.0)
        while (age := clock.now() - begun) < task.lasts:
            try:
                async with clock.timeout(min(max(least, age / SHARE), PAUSES[1])):
                    await doubt.wait()
            except TimeoutError:
                pass
            doubt.clear()
            if await self._is_gone(task.taskId, call):
                break
        self._doubts.pop(task.taskId, None)
        self._looking.pop(task.taskId, None)

    async def _is_gone(self, id: str, call: Call) -> bool:
        """Whether its server does not know it any more, or can say nothing any more: it has lost the session."""
        try:
            await self._ask(Call(mcp.TASK_GET, id, call.client, server=call.server))
        except Fault as fault:
            is_unknown = fault.upstream is not None and fault.upstream.code == INVALID_PARAMS
            return is_unknown or fault.code == "SESSION_ERROR"
        return False


def tell_over(reached: Reached) -> None:
    """Tell those that count a call: nothing is at work on it any more."""
    for over in reached.over:
        over()
