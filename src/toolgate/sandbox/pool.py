"""The runs of one engine, and the processes that are ready for the next ones.

The rules this file keeps: what is refused is refused before a turn is taken; a worker that is ready was never used, is
one of the engine that is used now, and the next one is made while it works; an engine is closed when it starts nothing
any more; nothing is kept ready where nobody runs anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec

from toolgate.core import surrogates
from toolgate.core.background import BackgroundTasks
from toolgate.core.clock import Clock, Timer
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox import bridge
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.run import Host, Ran, execute
from toolgate.sandbox.slots import Slots
from toolgate.sandbox.worker import Engine, Worker

log = logging.getLogger(__name__)

LET_BE = 0.05  # seconds for which a run has the machine before the next worker is made


class Pool:
    """The runs of one engine, and its workers that are ready."""

    def __init__(self, engine: Engine, slots: Slots, limits: Limits, clock: Clock, intake: IntakeQueue) -> None:
        self.engine = engine
        self._slots = slots
        self._limits = limits
        self._clock = clock
        self._intake = intake
        self._ready: deque[Worker] = deque()
        self._making = 0
        self._tasks = BackgroundTasks()
        self._live: dict[Worker, Engine] = {}
        self._starts: set[asyncio.Event] = set()  # set when a worker is started, or is not
        self._timer: Timer | None = None
        self._soon: Timer | None = None  # more are made
        self._is_closed = False

    async def run(
        self,
        code: str,
        host: Host,
        *,
        whose: str = "",
        data: bytes | None = None,
        strict: bool = False,
        wall: float | None = None,
        is_own: bool = False,
    ) -> Ran:
        """Run code. `whose` it is: see `Principal.counted_as`; `data` is JSON that the code finds as `data`; `wall` are
        seconds, where they are to be fewer; `is_own`: the code is the gateway's, of any length. Raises `Fault` for what
        is refused before it runs (its message goes behind `mcp_execute error: `), and `SandboxError` for what the code
        does."""
        limits = self._limits
        size = len(surrogates.utf8(code))
        if size > limits.code and not is_own:
            raise Fault("INVALID_ARGS", f"code exceeds {limits.code} bytes", reach="not_sent")
        if wall is not None:
            limits = msgspec.structs.replace(limits, wall=min(wall, limits.wall))
        slot = await self._slots.take(whose, size + len(data or b""))
        try:
            said = (bridge.unfenced(code), host.servers, limits, data, strict)
            is_large = data is not None and len(data) > bridge.LARGE
            order = await asyncio.to_thread(bridge.order, *said) if is_large else bridge.order(*said)
            slot.begins(len(order))
            worker = await self._worker()
            worker.whose = whose
            return await execute(worker, order, host, limits, self._clock, slot)
        finally:
            slot.leave()
            self._keep_ready()

    def use(self, engine: Engine, limits: Limits) -> None:
        """Go by other limits from the next run on."""
        before, self.engine, self._limits = self.engine, engine, limits
        self._rest()
        self._tasks.start(self._end(before), "end an engine")

    async def _end(self, engine: Engine) -> None:
        """When its last run has ended."""
        for start in list(self._starts):
            await start.wait()
        for worker in [worker for worker, of in self._live.items() if of is engine]:
            await worker.ended.wait()
        await engine.close()

    @property
    def ready(self) -> int:
        """How many workers are."""
        return sum(not worker.gone for worker in self._ready)

    @property
    def pids(self) -> list[int]:
        """Of the workers that are ready."""
        return [worker.pid for worker in self._ready]

    def prepare(self) -> None:
        """Have workers ready, so that the first run does not wait for one."""
        self._keep_ready()

    async def _worker(self) -> Worker:
        self._soon = self._soon or self._clock.call_later(LET_BE, self._refill)
        while self._ready:
            worker = self._ready.popleft()
            if not worker.gone:
                return worker
        return await self._made()

    async def _made(self) -> Worker:
        """A worker that is ready. Raises `Fault`."""
        while True:
            engine, limits = self.engine, self._limits
            worker, start = Worker(limits, self._intake), asyncio.Event()
            self._starts.add(start)
            try:
                async with self._clock.timeout(limits.start):
                    await engine.start(worker)
                    self._live[worker] = engine
                    self._tasks.start(self._until_ended(worker), "end a worker")
                    await worker.ready
            except BaseException as error:
                worker.kill()
                if isinstance(error, TimeoutError):
                    message = f"The sandbox for {engine.language} did not start in {limits.start:g} s"
                    raise Fault("SERVER_FAILED", message, reach="not_sent") from None
                raise
            finally:
                self._starts.discard(start)
                start.set()
            if engine is self.engine:
                return worker
            worker.kill()  # by the limits of before

    async def _until_ended(self, worker: Worker) -> None:
        await worker.ended.wait()
        self._live.pop(worker, None)

    # Those that are ready.

    def _keep_ready(self) -> None:
        if self._timer:
            self._timer.cancel()
        if not self._is_closed:
            self._timer = self._clock.call_later(self._limits.idle, self._rest)
            self._refill()

    def _refill(self) -> None:
        if self._soon:
            self._soon.cancel()
            self._soon = None
        while not self._is_closed and self._making + len(self._ready) < self._limits.warm:
            self._making += 1
            self._tasks.start(self._one_more(), "have a worker ready")

    async def _one_more(self) -> None:
        try:
            self._ready.append(await self._made())
        except Fault as fault:
            log.warning("no process is ready for the next run: %s", fault.message)
        finally:
            self._making -= 1

    def _rest(self) -> None:
        """Nobody has run anything for a while."""
        self._timer = None
        while self._ready:
            self._ready.popleft().kill()

    async def close(self) -> None:
        """End what runs, and what is ready. Runs under way fail."""
        self._is_closed = True
        for timer in (self._timer, self._soon):
            if timer:
                timer.cancel()
        await self._tasks.close()
        for worker in list(self._live):
            worker.kill()
        for worker in list(self._live):
            await worker.ended.wait()
        await self.engine.close()
