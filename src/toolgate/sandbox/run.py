"""One run: code in a worker, its calls of tools, and how it ends.

The rules this file keeps: a worker has one run, and is killed at its end, however that comes; what it is told goes
through the bridge, and so does what it says; none of its calls outlives it; time stands still while one of them waits
for a person.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from toolgate.core import internal_errors
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault
from toolgate.sandbox import bridge
from toolgate.sandbox.bridge import (
    MEMORY,
    Broken,
    Call,
    Deadlock,
    Done,
    End,
    Event,
    Failed,
    LargeCall,
    Log,
    Ready,
    Refused,
)
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.slots import Slot
from toolgate.sandbox.worker import Worker, ignored, nobody

log = logging.getLogger(__name__)

LOOK = 0.05  # seconds between two looks at how much memory a worker has
MOST_ARGUMENTS = 8 * 1024 * 1024  # bytes of calls under way; nothing more is read from a worker meanwhile
MOST_AT_ONCE = 1024 * 1024  # bytes of calls that are with their servers, unless it is one: others call these too
MOST_UNREAD = 24 * 1024 * 1024  # bytes of answers that a worker has not read; from then on it gets errors for them
LONGEST_LOGS = 64 * 1024  # bytes of the console of a run that failed

_UNREAD = "the call was made, but its result is lost: too many bytes of other results wait to be read by the code"
DEADLOCK = "the code waits for something that can never happen: no call and no timer is under way"


class SandboxError(Exception):
    """Code that ran failed, or went beyond a limit. `message` says how, `logs` what it had written to its console
    (of much, the beginning and the end).
    `str()` is the text of seed 002."""

    def __init__(self, message: str, logs: str = "", engine: str = "", seconds: float = 0.0) -> None:
        super().__init__(f"Sandbox error: {message}")
        self.message = message
        self.logs = logs
        self.engine = engine
        self.seconds = seconds


class Ran(msgspec.Struct, frozen=True):
    """What came of a run. `value` is JSON, None where the code returned nothing; `printed` are the lines of its console
    in UTF-8; `engine` names what ran it; `seconds` do not count those for which a call waited for a person."""

    value: bytes | None
    printed: bytes
    engine: str
    seconds: float

    @property
    def logs(self) -> str:
        """It may take four times as much memory."""
        return self.printed.decode()


Rests: TypeAlias = Callable[[bool], None]
"""Is told when a call waits for a person (True), and when it goes on. Raises `Fault` where it may not wait."""


class Host(msgspec.Struct, frozen=True):
    """What a run may reach. `servers` are the names of tools by server, None where they are not known.

    `call(server, tool, arguments, raw, rests)` calls a tool; `arguments` are a JSON object. It returns JSON: of a
    CallToolResult what is of use, or with `raw` all of it. It raises `Fault`, whose message the code can catch."""

    servers: Mapping[str, Sequence[str] | None]
    call: Callable[[str, str, bytes, bool, Rests], Awaitable[bytes]]


class Stopwatch:
    """Seconds, as long as nobody stops it; `then` is called at the end of them."""

    def __init__(self, clock: Clock, seconds: float, then: Callable[[], object]) -> None:
        self._clock = clock
        self._left = self._all = seconds
        self._then = then
        self._since: float | None = None
        self._timer: Timer | None = None

    def go(self) -> None:
        self._since = self._clock.now()
        self._timer = self._clock.call_later(max(0.0, self._left), self._then)

    def end(self) -> None:
        """Stop for good: it holds nobody any more who holds it."""
        self.stop()
        self._then = nobody

    def stop(self) -> None:
        if self._timer and self._since is not None:
            self._timer.cancel()
            self._left -= self._clock.now() - self._since
            self._timer = self._since = None

    @property
    def seconds(self) -> float:
        running = 0.0 if self._since is None else self._clock.now() - self._since
        return self._all - self._left + running


async def execute(worker: Worker, order: bytes, host: Host, limits: Limits, clock: Clock, slot: Slot) -> Ran:
    """Run what the order says. The worker is ready, and is killed here. Raises `SandboxError`; a cancellation ends the
    calls and the worker too."""
    run = _Run(worker, host, limits, clock, slot)
    worker.on_event, worker.on_room = run.heard, run.has_read
    try:
        end = await run.whole(order)
    finally:
        worker.on_event, worker.on_room = ignored, nobody
        worker.kill()
    logs = bytes(memoryview(run.logs)[:-1])  # without the last line's end
    if isinstance(end, Done) and end.value is not None and end.room is not None:
        end = await asyncio.to_thread(bridge.looked_at, end.value, end.room)
    if isinstance(end, Done):
        return Ran(end.value, logs, worker.engine, run.stopwatch.seconds)
    raise SandboxError(_words(end), _ends(logs), worker.engine, run.stopwatch.seconds)


def _ends(logs: bytes) -> str:
    """Who hears of a failure is told where it began, and where it ended."""
    if len(logs) <= LONGEST_LOGS:
        return logs.decode()
    ends = (each.decode(errors="ignore") for each in (logs[: LONGEST_LOGS // 2], logs[-LONGEST_LOGS // 2 :]))
    return f"\n[{len(logs) - LONGEST_LOGS:,} bytes are left out]\n".join(ends)


def _words(end: Failed | Deadlock | Broken) -> str:
    if isinstance(end, Failed):
        return f"{end.name}: {end.message}" + (f"\n{end.stack}" if end.stack else "")
    return DEADLOCK if isinstance(end, Deadlock) else end.message


def _size(call: Call | LargeCall) -> int:
    return len(call.arguments if isinstance(call, Call) else call.line)


class _Run:
    def __init__(self, worker: Worker, host: Host, limits: Limits, clock: Clock, slot: Slot) -> None:
        self.logs = bytearray()  # a list would take many times the room of short lines
        self.stopwatch = Stopwatch(clock, limits.wall, self._too_long)
        self._worker = worker
        self._host = host
        self._limits = limits
        self._clock = clock
        self._slot = slot
        self._group = asyncio.TaskGroup()
        self._end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._look: Timer | None = None
        self._waiting: deque[Call | LargeCall] = deque()  # for others to end
        self._serving: dict[int, asyncio.Task[None]] = {}  # by the number of the call
        self._sent = 0  # bytes of these calls
        self._unsent = 0  # bytes of answers that wait until the run goes on
        self._room: asyncio.Task[None] | None = None  # what the principal's runs hold becomes less
        self._arguments = 0  # bytes of the calls of both
        self._resting = 0  # calls that wait for a person
        self._waking: asyncio.Task[None] | None = None  # it waits for its turn to go on
        self._awake = asyncio.Event()  # the run has its turn
        self._awake.set()

    async def whole(self, order: bytes) -> End:
        self.stopwatch.go()
        self._look_at_memory()
        try:
            async with self._group:
                self._worker.write(order)
                if self._worker.gone:
                    self._finish(self._worker.gone)
                return await self._end_of_all()
        finally:
            self.stopwatch.end()
            if self._look:
                self._look.cancel()
            self._serving.clear()  # what was cancelled holds its frames, which hold this, and calls of megabytes
            self._waking = self._room = None
        raise AssertionError  # of a task of the group, which raises none

    async def _end_of_all(self) -> End:
        try:
            return await self._end
        finally:
            self._end.cancel()  # where it has not come, it will not
            for task in [*self._serving.values(), *filter(None, (self._waking, self._room))]:
                task.cancel()

    def _finish(self, end: End) -> None:
        if not self._end.done():
            self._end.set_result(end)

    def _too_long(self) -> None:
        self._finish(Broken(f"execution timed out after {self._limits.wall * 1000:.0f}ms"))

    def _look_at_memory(self) -> None:
        if self._worker.resident() > self._limits.resident:
            self._finish(Broken(MEMORY))
        elif self._worker.pid:
            self._look = self._clock.call_later(LOOK, self._look_at_memory)

    # What the worker says.

    def heard(self, event: Event) -> None:
        if self._end.done():
            return
        if isinstance(event, Log):
            self.logs += event.text.encode() + b"\n"
            self._held()
        elif isinstance(event, Call | LargeCall):
            self._waiting.append(event)
            self._arguments += _size(event)
            if self._arguments > MOST_ARGUMENTS:
                self._worker.hold(self)
            self._held()
            self.serve_more()
        elif isinstance(event, Refused):
            self._worker.write(bridge.refusal(event.number, event.message))
        elif not isinstance(event, Ready):  # which comes once, and has come
            self._finish(event)

    def _held(self) -> None:
        """Read on only where the principal's runs do not hold too much. One of them always goes on."""
        size = len(self.logs) + self._arguments + self._worker.unread + self._unsent
        if not self._slot.holds(size) and not self._room and not self._end.done():
            self._worker.hold(self._slot)
            self._room = self._group.create_task(self._until_room())

    async def _until_room(self) -> None:
        await self._slot.room()
        self._room = None
        self._worker.let_go(self._slot)

    def has_read(self) -> None:
        """What the worker was written is kept no more."""
        self._held()
        self.serve_more()

    # Its calls.

    def serve_more(self) -> None:
        """Begin the calls that may be under way: no more than so many, and none while the answers are not read; but
        where nothing more is read from the worker, since it may wait for that before it reads."""
        while self._waiting and not self._end.done() and len(self._serving) < self._limits.in_flight:
            if self._worker.is_full and self._arguments <= MOST_ARGUMENTS:
                break
            if self._serving and self._sent + _size(self._waiting[0]) > MOST_AT_ONCE:
                break
            call = self._waiting.popleft()
            self._sent += _size(call)
            self._serving[call.number] = self._group.create_task(self._serve(call))

    async def _serve(self, call: Call | LargeCall) -> None:
        number, size = call.number, _size(call)
        try:
            if isinstance(call, Call):
                read = call
            else:
                read = await asyncio.to_thread(bridge.read_call, number, call.line, self._limits)
            del call  # its line is not kept beside its arguments
            line = await self._answer(read, number)
        finally:
            self._arguments -= size
            self._sent -= size
            if self._arguments <= MOST_ARGUMENTS:
                self._worker.let_go(self)
        if self._worker.unread + self._unsent + len(line) > MOST_UNREAD:
            line = bridge.refusal(number, _UNREAD)
        self._unsent += len(line)
        self._held()
        await self._awake.wait()
        self._unsent -= len(line)
        self._worker.write(line)
        self._held()
        del self._serving[number]
        self.serve_more()

    async def _answer(self, call: Call | Refused | Broken, number: int) -> bytes:
        if isinstance(call, Broken):
            self._finish(call)
        if not isinstance(call, Call):
            return bridge.refusal(number, call.message)
        turn_over = await self._slot.turn()  # what code makes another principal wait for is one call
        rests = False

        def told(does: bool) -> None:
            nonlocal rests
            if does != rests:
                self._rest(does)
                rests = does

        try:
            value = await self._host.call(call.server, call.tool, call.arguments, call.raw, told)
        except Fault as fault:
            return bridge.refusal(call.number, f"{fault.message}\n{fault.hint}".strip(), fault.code)
        except Exception as error:  # the rescue: the run goes on, and its code hears of it
            if internal_errors.takes(error):
                log.error("a call of a script failed: %s on %s", call.tool, call.server, exc_info=error)
            return bridge.refusal(call.number, "internal error", "INTERNAL")
        finally:
            turn_over()
            told(False)
        if len(value) > self._limits.result:
            told_size = f"the result of {call.tool} has {len(value)} bytes: the limit is {self._limits.result}"
            return bridge.refusal(call.number, told_size)
        return bridge.answer(call.number, value)

    # Its turn, which others have while it waits for a person.

    def _rest(self, does: bool) -> None:
        """Raises `Fault` where it may not."""
        if does and self._waking:
            self._waking.cancel()  # it rests on, and takes no turn
            self._waking = None
        elif does and self._awake.is_set():
            self._slot.rest()
            self._awake.clear()
            self.stopwatch.stop()
        self._resting += 1 if does else -1
        if not does and not self._resting and not self._end.done():
            self._waking = self._group.create_task(self._go_on())

    async def _go_on(self) -> None:
        await self._slot.go_on()
        self._waking = None
        self._awake.set()
        self.stopwatch.go()
