"""An engine in memory: its worker says what a test has it say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from virtualtime import FakeClock

from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox.bridge import Broken
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.pool import Pool
from toolgate.sandbox.run import Host, Rests
from toolgate.sandbox.slots import Slots
from toolgate.sandbox.worker import Engine, Worker

Json = dict[str, Any]


class Process:
    """One process: what it was told, and its words."""

    def __init__(self, worker: Worker, play: Callable[[Process, Json], None]) -> None:
        self.worker = worker
        self.told: list[Json] = []
        self.is_killed = False
        self._play = play

    def write(self, data: bytes) -> None:
        if self.is_killed:
            raise Fault("SESSION_ERROR", "it has ended")
        for line in data.splitlines():
            self.told.append(json.loads(line))
            asyncio.get_running_loop().call_soon(self._play, self, self.told[-1])

    def says(self, *lines: Json | bytes) -> None:
        for line in lines:
            self.worker.wrote((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    def calls(self, *tools: str, begin: int = 1, **more: Any) -> None:
        for number, tool in enumerate(tools, begin):
            self.says({"call": number, "server": "shop", "tool": tool, "arguments": {}} | more)

    def kill(self) -> None:
        if not self.is_killed:
            self.dies("was stopped")

    def dies(self, why: str) -> None:
        self.is_killed = True
        asyncio.get_running_loop().call_soon(self.worker.exited, Broken(why))


class Scripted:
    """Processes that do as `play` says with each line that they are told."""

    def __init__(self, play: Callable[[Process, Json], None], is_ready: bool = True, pid: int = 0) -> None:
        self.processes: list[Process] = []
        self.failure: Fault | None = None
        self._play = play
        self._is_ready = is_ready
        self._pid = pid

    async def start(self, worker: Worker) -> None:
        if self.failure:
            raise self.failure.at("", "")
        process = Process(worker, self._play)
        self.processes.append(process)
        worker.started(self._pid, process.write, process.kill, None)
        if self._is_ready:
            process.says({"ready": "scripted 1"})

    def pool(self, limits: Limits | None = None) -> Pool:
        limits, clock = limits or Limits(), FakeClock()
        return Pool(Engine("scripted", self.start), Slots(limits, clock), limits, clock, IntakeQueue())


class Shop:
    """What the code of a test may reach. `work` by the tool's name: what is done when it is called."""

    def __init__(self, **work: Callable[[Rests], Any]) -> None:
        self.called: list[tuple[str, str, bytes, bool]] = []
        self.ended: list[str] = []
        self.at_once = self.most_at_once = 0
        self._work = work
        self.host = Host({"shop": list(work)}, self.call)

    async def call(self, server: str, tool: str, arguments: bytes, raw: bool, rests: Rests) -> bytes:
        self.called.append((server, tool, arguments, raw))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            value = self._work[tool](rests) if tool in self._work else tool
            return json.dumps(await value if asyncio.iscoroutine(value) else value).encode()
        finally:
            self.at_once -= 1
            self.ended.append(tool)
