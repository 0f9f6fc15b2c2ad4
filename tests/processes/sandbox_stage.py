"""A pool of real processes that run code, and what the code may reach."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from toolgate.core.clock import SystemClock
from toolgate.core.fault import Fault
from toolgate.core.inflow import IntakeQueue
from toolgate.sandbox.limits import Limits
from toolgate.sandbox.pool import Pool
from toolgate.sandbox.run import Host, Rests, SandboxError
from toolgate.sandbox.services import ENGINES, MakeEngine
from toolgate.sandbox.slots import Slots
from toolgate.upstreams.process.supervisor import Child, Supervisor

QUICK = Limits(warm=0, wall=30.0)

SERVERS = {"shop": ["echo", "fail", "much", "echo"], "batch": ["echo"], "__proto__": None, 'a"b\n\u2028': ["x\ny"]}
MUCH = b'"%b"' % (b"x" * 1_000_000)


class Stage:
    """`called` are the calls of the scripts, `pool` runs them."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.called: list[tuple[str, str]] = []
        self.running = 0

    def host(self) -> Host:
        return Host(SERVERS, self.call)

    async def call(self, server: str, tool: str, arguments: bytes, raw: bool, rests: Rests) -> bytes:
        self.called.append((server, tool))
        if tool == "echo":
            return arguments
        if tool == "much":
            return MUCH
        raise Fault("TOOL_NOT_FOUND", f"no tool {tool} on {server}: did you mean echo?")

    async def told(self, code: str, data: bytes | None = None) -> str:
        """All that a run tells, as it ends: its logs, and its value or error."""
        try:
            ran = await self.pool.run(code, self.host(), data=data)
        except SandboxError as error:
            return f"{error.logs}\n{error}"
        except Fault as fault:
            return f"mcp_execute error: {fault.message}"
        return f"{ran.logs}\n{(ran.value or b'').decode()}"


class Unboxed(Supervisor):
    """Of a machine that has none of what boxes are made of."""

    async def start(self, *args: Any, **named: Any) -> Child:
        return await super().start(*args, **named | {"box": None})


@asynccontextmanager
async def staged(
    limits: Limits = QUICK,
    language: str = "javascript",
    is_boxed: bool = True,
    make: MakeEngine | None = None,
    **more: object,
) -> AsyncIterator[Stage]:
    """`make` makes another engine than that of the language."""
    clock = SystemClock()
    supervisor = (Supervisor if is_boxed else Unboxed)(clock, os.environ)
    limits = msgspec.structs.replace(limits, **more)
    engine = (make or ENGINES[language])(supervisor, limits, not is_boxed)
    pool = Pool(engine, Slots(limits, clock), limits, clock, IntakeQueue())
    try:
        yield Stage(pool)
    finally:
        await pool.close()
        await supervisor.close()
