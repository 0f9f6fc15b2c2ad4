"""Tasks of servers of 2025-11-25: whose each one is, and waiting for one on behalf of a client that wants no task.

The rules this file keeps: what is remembered is bounded; a task that nobody waits for any more is cancelled; a server
that is silent for longer than its timeout fails the call, however long the task itself may take.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.exchange import Exchange
from toolgate.core.model import Accepted, Asker, Call, Done, Fault, Made, Outcome
from toolgate.eras import tasks
from toolgate.eras.tasks import Task

MOST_TASKS = 1024  # tasks of one principal that are remembered; beyond, its oldest are forgotten
LONGEST = 3600.0  # seconds that a task is waited for, unless it lives longer by its own ttl
PAUSE = 1.0  # seconds between two looks at a task of which its server says nothing else
PAUSES = (0.1, 60.0)  # no less and no more than this, whatever it says


class _Entry(NamedTuple):
    maker: tuple[str, str]
    made: Made
    until: float  # when it runs no more


class TaskOwners:
    """Who made which task on the connections of one scope."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def add(self, task: Task, call: Call, now: float) -> None:
        until = now + max(LONGEST, (task.ttl or 0.0) / 1000)
        self._entries[task.taskId] = _Entry(call.client.identity, call.made, until)
        theirs = self.of(call.client.principal.id)
        if len(theirs) > MOST_TASKS:
            self.forget(theirs[:1])

    def maker(self, id: str) -> tuple[str, str] | None:
        """The client (`Client.identity`) that made it, as far as is known."""
        found = self._entries.get(id)
        return found.maker if found else None

    def made(self, id: str) -> Made | None:
        """What it was made by, as far as is known."""
        found = self._entries.get(id)
        return found.made if found else None

    def of(self, principal: str) -> list[str]:
        """The ids of the tasks that a principal has made, the oldest first."""
        return [id for id, entry in self._entries.items() if entry.maker[0] == principal]

    def over(self, id: str) -> None:
        """It runs no more, but can still be asked for."""
        if id in self._entries:
            self._entries[id] = self._entries[id]._replace(until=0.0)

    def forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._entries.pop(id, None)

    def runs(self, now: float) -> bool:
        """Whether any of them may still run."""
        return any(entry.until > now for entry in self._entries.values())


class Runner(Protocol):
    """What waiting needs of a connection."""

    @property
    def asker(self) -> Asker: ...

    async def one_round(self, call: Call, whole: Exchange | None = None) -> Outcome:
        """One request for the call, as a part of `whole`. Raises `Fault`."""
        ...

    def forget_progress(self, whole: Exchange) -> None:
        """The task behind this exchange reports nothing more."""
        ...

    def end_task(self, id: str) -> None:
        """Cancel it, without waiting for that."""
        ...


class Waiting:
    """A call that runs as a task, with its result as the outcome. `patience` in seconds is for silence."""

    def __init__(self, runner: Runner, call: Call, whole: Exchange, clock: Clock, patience: float) -> None:
        self._runner = runner
        self._call = call
        self._whole = whole
        self._clock = clock
        self._patience = patience

    async def outcome(self) -> Outcome:
        """The outcome, when the task is over. Raises `Fault`; the task is cancelled where it took too long."""
        try:
            made = await self._runner.one_round(
                msgspec.structs.replace(self._call, task=jsonrpc.EMPTY_OBJECT), self._whole
            )
            if not isinstance(made, Accepted):
                return made
            return await self._of(tasks.read_made(made.body))
        finally:
            self._runner.forget_progress(self._whole)

    async def _of(self, task: Task) -> Outcome:
        until = self._clock.now() + max(LONGEST, (task.ttl or 0.0) / 1000)
        try:
            while self._clock.now() < until:
                outcome = await self._result(task)
                if outcome:
                    return outcome
                task = await self._look_until_ready(task, until)
            raise Fault("TIMEOUT", "The task took too long", reach="sent_unknown")
        except Fault as fault:
            if fault.code == "TIMEOUT":
                self._runner.end_task(task.taskId)
            raise
        except asyncio.CancelledError:
            self._runner.end_task(task.taskId)
            raise

    async def _result(self, task: Task) -> Outcome | None:
        """The result, once the task is over; None where the server does not let it be waited for."""
        waiting = asyncio.ensure_future(self._runner.one_round(self._about(task, mcp.TASK_RESULT), self._whole))
        try:
            while not await self._came(waiting):
                await self._look(task)
            outcome = waiting.result()
        except Fault as fault:
            if fault.code == "TIMEOUT" or not await self._goes_on_after(fault, task):
                raise
            return None
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        return Done(tasks.with_related(outcome.body, "")) if isinstance(outcome, Done) else outcome

    async def _came(self, waiting: asyncio.Future[Outcome]) -> bool:
        try:
            async with self._clock.timeout(self._patience):
                await asyncio.wait((waiting,))
        except TimeoutError:
            return False
        return True

    async def _goes_on_after(self, fault: Fault, task: Task) -> bool:
        """Whether it was only the waiting that failed. A task that is over has failed as its result says."""
        try:
            return not (await self._look(task)).is_over
        except Fault:
            raise fault from None

    async def _look_until_ready(self, task: Task, until: float) -> Task:
        """Ask now and then, until the result can be had or the task asks something."""
        while self._clock.now() < until:
            wanted = PAUSE if task.pollInterval is None else task.pollInterval / 1000
            await self._clock.sleep(min(max(wanted, PAUSES[0]), PAUSES[1]))
            task = await self._look(task)
            if task.is_over or task.status == "input_required":
                return task
        return task

    async def _look(self, task: Task) -> Task:
        outcome = await self._runner.one_round(self._about(task, mcp.TASK_GET))
        return tasks.read_task(outcome.body) if isinstance(outcome, Done) else task

    def _about(self, task: Task, method: str) -> Call:
        return Call(method, task.taskId, self._call.client, server=self._call.server, notes=self._call.notes)
