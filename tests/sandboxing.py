"""What the tests of sandboxes share: a Python engine, one run, one program in its box; every wait is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from toolgate.core.clock import SystemClock
from toolgate.sandbox.python import PythonEngine
from toolgate.upstreams.process.confinement import Box
from toolgate.upstreams.process.supervisor import Supervisor

Json = dict[str, Any]
WAIT = 60.0  # seconds; far more than anything here takes


@dataclass
class Ran:
    """All that a worker wrote, and how it ended."""

    messages: list[Json] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    end: str = ""

    @property
    def logs(self) -> str:
        return "".join(f"{message['log']}\n" for message in self.messages if "log" in message)

    @property
    def last(self) -> Json:
        return next((each for each in reversed(self.messages) if each.keys() & {"done", "failed", "deadlock"}), {})

    @property
    def value(self) -> Any:
        assert "done" in self.last, (self.last, self.logs, self.end)
        return self.last["done"].get("value")

    @property
    def shown(self) -> str:
        """All of it but tracebacks, which quote the code."""
        failed = self.last.get("failed", {})
        rest = [self.last.get("done"), failed.get("message"), *self.unreadable]
        return "\n".join([self.logs, *map(str, rest), *(str(each) for each in self.messages if "call" in each)])


@asynccontextmanager
async def supervising() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(SystemClock(), os.environ)
    try:
        yield supervisor
    finally:
        await supervisor.close()


@asynccontextmanager
async def python_engine(**options: Any) -> AsyncIterator[PythonEngine]:
    async with supervising() as supervisor:
        engine = PythonEngine(supervisor, **options)
        try:
            yield engine
        finally:
            await engine.close()


def echo(call: Json) -> Json:
    return {"value": call["arguments"]}


async def run(
    engine: PythonEngine,
    code: str,
    answer: Callable[[Json], Json] = echo,
    most: int = 1 << 20,
    seconds: float = WAIT,
    watch: Callable[[Json], None] = lambda _: None,
    **wanted: Any,
) -> Ran:
    """As a host would, bounds included: `most` bytes of output, `seconds` until it is killed."""
    ran, written, over = Ran(), bytearray(), asyncio.Event()
    size = 0

    def came(data: bytes) -> None:
        nonlocal size
        size += len(data)
        if size > most:
            worker.end("wrote too much")
            return
        written.extend(data)
        while b"\n" in written:
            line, _, rest = bytes(written).partition(b"\n")
            written[:] = rest
            try:
                message = json.loads(line)
            except ValueError:
                ran.unreadable.append(line)
                continue
            ran.messages.append(message)
            watch(message)
            if "call" in message:
                with contextlib.suppress(Exception):
                    worker.write(json.dumps({"answer": message["call"], **answer(message)}).encode() + b"\n")

    def ended(reason: str) -> None:
        ran.end = reason
        over.set()

    worker = await engine.start(came, ended)
    worker.write(json.dumps({"run": {"code": code, "servers": {}, **wanted}}).encode() + b"\n")
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        worker.end("took too long")
        async with asyncio.timeout(WAIT):
            await over.wait()
    return ran


@dataclass
class Ended:
    output: str
    errors: str
    end: str


async def boxed(
    supervisor: Supervisor,
    box: Box | None,
    args: list[str],
    env: Mapping[str, str] | None = None,
    seconds: float = WAIT,
    stdin: bytes = b"",
    command: str = "",
) -> Ended:
    """A program, this Python if nothing else, until it has ended or is ended."""
    output, over, reasons = bytearray(), asyncio.Event(), list[str]()

    def ended(reason: str) -> None:
        reasons.append(reason)
        over.set()

    command = command or os.path.realpath(sys.executable)
    child = await supervisor.start(
        "it",
        command,
        args,
        env or {},
        "/",
        output.extend,
        ended,
        lambda: None,
        False,
        box=box.packed() if box else None,
    )
    if stdin:
        child.write(stdin)
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        child.end("took too long")
        async with asyncio.timeout(WAIT):
            await over.wait()
    return Ended(output.decode(errors="replace"), child.stderr.text(), reasons[0])
