"""Tasks of servers of 2025-11-25 and of the extension: whose each one is, what the server says of them, and waiting for
one on behalf of a client that wants no task.

The rules this file keeps: what is remembered is bounded; a task that nobody waits for any more is cancelled; a server
that is silent for longer than its timeout fails the call, however long the task itself may take.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial

import msgspec
from msgspec import Raw

from toolgate.core import jsonrpc, mcp
from toolgate.core.exchange import Exchange, Part, run
from toolgate.core.fault import Fault
from toolgate.core.jsonrpc import Message, RpcError
from toolgate.core.model import Accepted, Call, Client, Done, Event, EventSink, Made, NeedInput, Outcome
from toolgate.core.redaction import excerpt
from toolgate.eras import calls, naming, tasks
from toolgate.eras.tasks import Task
from toolgate.upstreams.bounds import too_many_bytes
from toolgate.upstreams.mcp.attribution import OpenRequest
from toolgate.upstreams.mcp.counted_tasks import CountedTasks, tell_over
from toolgate.upstreams.mcp.large_answers import LARGE
from toolgate.upstreams.mcp.made_tasks import MOST_TASKS, TaskOwners
from toolgate.upstreams.mcp.requests import TELLING, Requests

log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 8  # at tasks, for one list
LOOK, LOOKS = 3.0, 10.0  # seconds for one of these, and for all of a list
SILENCE = 60.0  # seconds for which a server is not asked again on behalf of a principal whose look it has let pass
PAUSE = 1.0  # seconds between two looks at a task of which its server says nothing else
PAUSES = (0.1, 60.0)  # no less and no more than this, whatever it says
MOST_LOOKS = 200  # in a second, at tasks of one connection that calls of one principal wait for


class Tasks:
    """Those of one connection. `owners` outlive it."""

    def __init__(self, requests: Requests, owners: TaskOwners, on_event: EventSink) -> None:
        self.owners = owners
        self.running = 0  # calls that are run as tasks, for clients that want none
        self._looked_at = Counter[str]()  # of these, those whose tasks are looked at now and then, by principal
        self._requests = requests
        self._on_event = on_event
        self._doubted = float("-inf")
        self._looks: dict[str, asyncio.Task[None]] = {}  # at tasks of others, that are under way
        self._fell_silent: dict[str, float] = {}  # when a look at a task of these principals was let pass
        self._extended = TaskOwners()  # of tasks of the extension
        self.counted = CountedTasks(requests.clock, requests.call, requests.spawn)
        requests.on_end.append(self.counted.end)
        requests.on_answer.append(self._answered)
        requests.on_late.append(self._made_late)
        requests.handlers[mcp.TASK_CHANGED] = self._changed
        requests.handlers[mcp.TASK_STATUS] = self._changed

    @property
    def may_run(self) -> bool:
        """Whether the server may be at work on one."""
        wall = self._requests.clock.wall()
        return self.owners.runs(wall) or self._extended.runs(wall)

    def run_for_others(self, principal: str) -> bool:
        """Whether the server may be at work on a task of anybody but this principal."""
        wall = self._requests.clock.wall()
        return self.owners.runs(wall, principal) or self._extended.runs(wall, principal)

    async def call(self, call: Call) -> Outcome:
        """One round of a call whose client wants a task, or whose tool runs as a task only. Raises `Fault`."""
        if call.task and not self._requests.dialect.runs_tasks:
            raise tasks.not_as_task(call.shown)
        if call.task:
            return await self._made(call)
        if not self._requests.dialect.runs_tasks:
            return await self._requests.call(call)
        return await run(
            self._requests.asker, self._requests.clock, None, lambda whole: self._result(call, whole)
        ).next()

    async def _made(self, call: Call) -> Outcome:
        """What came of a wish for a task. Who goes away meanwhile does not cancel the wish, since servers make the task
        all the same: the task is cancelled (2025-11-25: basic/utilities/cancellation), and counts until it is over."""
        making = asyncio.ensure_future(self._requests.call(call))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            if reached := call.reached:
                reached.goes_on = True
                making.add_done_callback(lambda made: None if _is_task(made) else tell_over(reached))
            self._requests.spawn(self._not_wanted(making))
            raise

    async def _not_wanted(self, making: asyncio.Future[Outcome]) -> None:
        try:
            outcome = await making
            if isinstance(outcome, Accepted):
                self._end(tasks.read_made(outcome.body).taskId)
            elif isinstance(outcome, NeedInput):
                outcome.resume.cancel()
        except Fault as fault:
            log.info("%s made no task that nobody waits for: %s", self._requests.server.name, fault.message)

    def _made_late(self, client: Client, body: Raw) -> None:
        """A task that was wished for by a call which has timed out or was given up."""
        with suppress(Fault, *jsonrpc.UNREADABLE):
            task = tasks.read_made(body)
            if not task.is_over:
                self._requests.running.add(task.taskId, client, task.lasts)
                self._requests.running.lost(task.taskId)
                self._end(task.taskId)

    def _end(self, id: str) -> None:
        """Cancel it, without waiting for that."""
        if tasks.offers(self._requests.dialect.capabilities, "cancel"):
            self._requests.spawn(self._cancel(id))

    async def _cancel(self, id: str) -> None:
        requests = self._requests
        try:
            params = jsonrpc.encode({"taskId": id})
            await requests.ask(mcp.TASK_CANCEL, params, requests.dialect.other(), TELLING)
        except Fault as fault:
            log.info("%s did not cancel the task %s: %s", requests.server.name, id, fault.message)

    async def _result(self, call: Call, whole: Exchange) -> Outcome:
        self.running += 1
        try:
            return await Waiting(self._requests, call, whole, self._end, self._looked_at).outcome()
        finally:
            self.running -= 1
            self._requests.on_rest()

    def check(self, id: str, client: Client) -> None:
        """Raises `Fault` for a task of somebody else: a server that has restarted may use its ids again."""
        makers = (self.owners.maker(id), self._extended.maker(id))
        if any(maker and maker[0] != client.principal.id for maker in makers):
            raise tasks.not_found()

    async def look(self, principal: str, most: int) -> Mapping[str, tuple[Raw, Made]]:
        """Of the tasks that this principal has made here those that are still there, as they are now. The server's own
        list is not read: it is as long as everybody has made it. Raises `Fault`, also where they have more than `most`
        bytes together, or where the server does not answer: lists of other servers' tasks wait for it."""
        clock, server = self._requests.clock, self._requests.server.id
        since = clock.now() - SILENCE
        self._fell_silent = {whose: at for whose, at in self._fell_silent.items() if at > since}
        if principal in self._fell_silent:
            raise Fault("TIMEOUT", "The server does not answer tasks/get", server=server, reach="not_sent")
        try:
            async with clock.timeout(LOOKS):
                return await self._look_at_all(principal, most)
        except TimeoutError:
            self._fell_silent[principal] = clock.now()
            message = f"The server has not told of all tasks within {LOOKS:g} s"
            raise Fault("TIMEOUT", message, server=server, reach="sent_unknown") from None

    async def _look_at_all(self, principal: str, most: int) -> Mapping[str, tuple[Raw, Made]]:
        mine = self.owners.of(principal)[-MOST_TASKS:] if self._requests.dialect.runs_tasks else []
        found: dict[str, tuple[Raw, Made]] = {}
        size = 0
        for first in range(0, len(mine), LOOKS_AT_ONCE):
            ids = mine[first : first + LOOKS_AT_ONCE]
            looks = [self._look_at(id, principal) for id in ids]
            for id, raw in zip(ids, await asyncio.gather(*looks), strict=True):
                if raw and (made := self.owners.made(id)):
                    found[id] = raw, made
                    size += len(memoryview(raw))
            if size > most:
                raise too_many_bytes(self._requests.server.id, "tasks", most)
        return found

    async def _look_at(self, id: str, principal: str) -> Raw | None:
        """None where the server does not know it any more, or what it says is out of shape."""
        requests, raw = self._requests, jsonrpc.NOTHING
        try:
            raw = await requests.ask(mcp.TASK_GET, jsonrpc.encode({"taskId": id}), requests.dialect.other(), LOOK)
            tasks.check_listed(raw)
            return raw
        except Fault as fault:
            if fault.upstream and fault.upstream.code == jsonrpc.INVALID_PARAMS:
                self.owners.forget(id)
            elif not raw:
                if fault.code == "TIMEOUT" and fault.reach != "not_sent":
                    self._fell_silent[principal] = requests.clock.now()
                raise
            elif requests.complaints.takes(requests.server.id):
                told = (requests.server.name, fault.message, excerpt(bytes(raw), server=requests.server.id))
                log.warning("%s: ignored a task: %s: %r", *told)
            return None

    def doubt(self) -> None:
        """Something was said that may be of tasks of others: for what comes next, learn whether these are over."""
        now = self._requests.clock.now()
        if now >= self._doubted + PAUSE and (running := self._requests.tasks_in_doubt()):
            self._doubted = now
            self._requests.spawn(self.look_at(running))

    async def look_at(self, ids: Collection[str]) -> None:
        """Learn whether these are over: what is answered says so. Who else wants to know waits for the same answer."""
        for id in ids:
            if id not in self._looks:
                self._looks[id] = self._requests.spawn(self._whether_over(id))
                self._looks[id].add_done_callback(lambda _done, id=id: self._looks.pop(id))
        if looks := [self._looks[id] for id in ids]:
            await asyncio.wait(looks)

    async def _whether_over(self, id: str) -> None:
        requests = self._requests
        if client := requests.running.to_look_at(id):
            client = msgspec.structs.replace(client, capabilities=tasks.EXTENSION)  # without it there is no `tasks/get`
            try:
                await requests.call(Call(mcp.TASK_GET, id, client, server=requests.server.id))
            except Fault as fault:
                if fault.upstream and fault.upstream.code == jsonrpc.INVALID_PARAMS:
                    requests.running.lost(id)

    def _answered(self, id: int, request: OpenRequest, answer: Outcome | RpcError) -> None:
        call = request.call
        if not call:
            return
        if isinstance(answer, Accepted):
            self._accepted(id, request, call, answer)
        elif call.method == mcp.TASK_RESULT and not isinstance(answer, RpcError):
            self._over(call.target)
        elif call.method in mcp.TASK_LOOKS and isinstance(answer, Done):
            self._fell_silent.pop(call.client.principal.id, None)
            self._looked(call, answer.frame or answer.body)

    def _accepted(self, id: int, request: OpenRequest, call: Call, accepted: Accepted) -> None:
        """A task was made: for a client that goes on with it, or for one that we wait for."""
        if not call.task:
            self._taken_on(call, accepted.body)  # of the extension, which reports nothing
            return
        task = tasks.read_made(accepted.body)
        self._requests.reporting.add(id, call, request.exchange, task.taskId)
        self._requests.running.add(task.taskId, call.client, task.lasts)
        if not isinstance(request.exchange, Part):
            self.owners.add(task, call, self._requests.clock.wall())
            self.counted.add(task, call)

    def _looked(self, call: Call, body: Raw | bytes) -> None:
        """What the server says of a task that it was asked for; of a cancelled one of the extension, nothing."""
        if self._requests.dialect.runs_tasks:
            with suppress(Fault):  # for its client to judge
                if (task := tasks.read_task(body)).is_over:
                    self._over(call.target, task)
        elif call.method == mcp.TASK_GET:
            self._taken_on(call, body)
        else:
            self.counted.look(call.target)

    def _taken_on(self, call: Call, body: Raw | bytes) -> None:
        """What the server says of a task of the extension: while it runs, the server is needed."""
        try:
            task = tasks.read_task(body)
        except Fault:
            return  # for its client to judge
        self._goes_on(call, task)

    def _goes_on(self, call: Call | None, task: Task) -> None:
        if task.is_over:
            self._extended.over(task.taskId)
            self._over(task.taskId, task)
        elif call and call.method == mcp.CALL:
            self._extended.add(task, call, self._requests.clock.wall())
            self._requests.running.add(task.taskId, call.client, task.lasts)
            self.counted.add(task, call)

    def _over(self, id: str, task: Task | None = None) -> None:
        """Servers may go on with what was cancelled."""
        running = self._requests.running
        running.lost(id) if task and task.status == "cancelled" else running.over(id)
        self.owners.over(id)
        self.counted.over(id)
        self._requests.reporting.forget(lambda report: report.task == id)

    def _changed(self, message: Message, origin: int | None) -> asyncio.Future[None] | None:
        """The extension tells those who asked to hear of a task; before, its maker was told, and nobody else."""
        by, task = self._requests.asker, tasks.read_task(message.params)
        told = naming.read(mcp.TASK_GET, message.params, self._requests.dialect.revision)
        params = calls.read_told(Raw(told))
        event = Event(by.name, "task", uri=task.taskId, params=params, print=by.print)
        if message.method == mcp.TASK_CHANGED:
            self._goes_on(None, task)
            return self._on_event(msgspec.structs.replace(event, whose=self._extended.maker(task.taskId)))
        if task.is_over:
            self._over(task.taskId, task)
        if maker := self.owners.maker(task.taskId):
            told = {"kind": "task_status", "whose": maker, "made": self.owners.made(task.taskId)}
            return self._on_event(msgspec.structs.replace(event, **told))
        return None


def _is_task(made: asyncio.Future[Outcome]) -> bool:
    """Whether a wish for a task has come to one: `CountedTasks` has been told of it by then."""
    return not made.cancelled() and not made.exception() and isinstance(made.result(), Accepted)


class Waiting:
    """A call that runs as a task, with its result as the outcome. Silence is borne for the server's timeout. `end` has
    a task cancelled; `looked_at` is how many such calls have a task looked at, by principal."""

    def __init__(
        self, requests: Requests, call: Call, whole: Exchange, end: Callable[[str], None], looked_at: Counter[str]
    ) -> None:
        self._requests = requests
        self._end = end
        self._looked_at = looked_at
        self._clock = requests.clock
        self._call = call
        self._whole = whole

    async def outcome(self) -> Outcome:
        """The outcome, when the task is over. Raises `Fault`; the task is cancelled where it took too long."""
        try:
            made = await self._requests.call(
                msgspec.structs.replace(self._call, task=jsonrpc.EMPTY_OBJECT), self._whole
            )
            if not isinstance(made, Accepted):
                return made
            return await self._of(tasks.read_made(made.body))
        finally:
            self._requests.reporting.forget(lambda report: report.whole is self._whole)

    async def _of(self, task: Task) -> Outcome:
        lasts = task.lasts
        until = self._clock.now() + lasts
        try:
            while self._clock.now() < until:
                outcome = await self._result(task)
                if outcome:
                    return outcome
                task = await self._look_until_ready(task, until)
            raise Fault("TIMEOUT", f"The task did not end within {lasts:g} s", reach="sent_unknown")
        except Fault as fault:
            if fault.code == "TIMEOUT":
                self._end(task.taskId)
            raise
        except asyncio.CancelledError:
            self._end(task.taskId)
            raise

    async def _result(self, task: Task) -> Outcome | None:
        """The result, once the task is over; None where the server does not let it be waited for."""
        waiting = asyncio.ensure_future(self._requests.call(self._about(task, mcp.TASK_RESULT), self._whole))
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
        if not isinstance(outcome, Done):
            return outcome
        write, whose = partial(tasks.with_related, outcome.body, ""), self._call.client.principal.counted_as
        size = len(memoryview(outcome.body))
        body = await self._requests.bounds.answers.looked_at(whose, size, write) if size > LARGE else write()
        return msgspec.structs.replace(outcome, body=body)

    async def _came(self, waiting: asyncio.Future[Outcome]) -> bool:
        try:
            async with self._clock.timeout(self._requests.server.timeout):
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
        whose = self._call.client.principal.counted_as
        self._looked_at[whose] += 1
        try:
            while self._clock.now() < until:
                wanted = PAUSE if task.pause is None else task.pause
                least = max(PAUSES[0], self._looked_at[whose] / MOST_LOOKS)
                await self._clock.sleep(min(max(wanted, least), PAUSES[1]))
                task = await self._look(task)
                if task.is_over or task.status == "input_required":
                    return task
            return task
        finally:
            self._looked_at[whose] -= 1
            if not self._looked_at[whose]:
                del self._looked_at[whose]

    async def _look(self, task: Task) -> Task:
        outcome = await self._requests.call(self._about(task, mcp.TASK_GET))
        return tasks.read_task(outcome.body) if isinstance(outcome, Done) else task

    def _about(self, task: Task, method: str) -> Call:
        return Call(method, task.taskId, self._call.client, server=self._call.server, notes=self._call.notes)
