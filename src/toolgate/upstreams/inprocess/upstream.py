"""The kind `tools`: an upstream whose tools, resources and prompts are functions in this process (`context`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Raw

from toolgate.config import Server
from toolgate.core import jsonrpc, mcp
from toolgate.core.clock import Clock
from toolgate.core.exchange import Exchange, run
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Call, Client, Done, Made, Outcome
from toolgate.eras import tasks
from toolgate.upstreams.base import About, Begun, Items, Status, Upstream
from toolgate.upstreams.inprocess.tools import EncodedResult, InProcessTools, Result
from toolgate.upstreams.stopping import stopped


class InProcessUpstream:
    """An `Upstream` of a registry: always ready, the same for everybody, and it tells of no changes."""

    def __init__(self, server: Server, tools: InProcessTools, clock: Clock) -> None:
        self.id = server.id
        self.name = server.name
        self.print = ""  # it ends with this process
        self._timeout = server.timeout
        self._tools = tools
        self._clock = clock
        self._running: set[asyncio.Task[Any]] = set()
        self._is_stopped = False

    def scope(self, client: Client) -> str:
        return ""

    def status(self, whose: Client | None = None) -> Status:
        if self._is_stopped:
            return Status("stopped", revision=mcp.LATEST["modern"].date, stopped_by="close")
        return Status("busy" if self._running else "ready", revision=mcp.LATEST["modern"].date, calls=self.calls)

    def live_scope(self, client: Client) -> str | None:
        return ""

    async def open(self) -> None:
        """It already exists."""

    async def about(self, client: Client) -> About:
        kinds = [kind for kind, entries in self._tools.entries.items() if entries]
        return About({mcp.LISTS[mcp.LIST_OF_KIND[kind]].capability: {} for kind in kinds})

    async def list(self, kind: str, client: Client) -> Items:
        return Items(tuple(Raw(jsonrpc.encode(entry.shown)) for entry in self._tools.entries.get(kind, {}).values()))

    def begin(self, call: Call) -> Begun | None:
        return None

    async def invoke(self, call: Call) -> Outcome:
        if call.kind == "tasks":
            raise tasks.not_found()
        if call.kind == "methods":
            raise Fault("METHOD_NOT_FOUND", f"Method not found: {call.method}", reach="not_sent")
        self._is_stopped = False
        if call.reached:
            call.reached.is_sent = True

        async def done(exchange: Exchange) -> Outcome:
            result = await self._counted(self._tools.answer(call, exchange))
            return (
                Done(result.body, is_scrubbed=result.is_scrubbed, kept=result.kept)
                if isinstance(result, EncodedResult)
                else Done(jsonrpc.encode(result))
            )

        return await run(Asker("upstream", self.id), self._clock, self._timeout, done).next()

    async def _counted(self, work: Awaitable[Result]) -> Result:
        task = asyncio.current_task()
        assert task
        self._running.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_stopped:
                raise stopped(self.id, self.name, "sent_unknown") from None
            raise
        finally:
            self._running.discard(task)

    async def tasks(self, client: Client) -> Mapping[str, tuple[Raw, Made]]:
        return {}

    async def watch(self, uri: str, client: Client, kind: str = "resources") -> None:
        raise Fault("METHOD_NOT_FOUND", f"{self.name} does not report changes of its resources", reach="not_sent")

    def unwatch(self, uri: str, client: Client, kind: str = "resources") -> None: ...

    async def set_level(self, level: str, client: Client) -> None: ...

    async def roots_changed(self, client: Client) -> None:
        self._tools.roots_changed(client)

    def leave(self, client: Client) -> None:
        self._tools.left(client)

    @property
    def calls(self) -> int:
        return len(self._running)

    def works_for_others(self, whose: Client) -> bool:
        return bool(self.calls)  # it does not know whose they are

    async def stop(self, whose: Client | None = None) -> None:
        self._is_stopped = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def use(self, server: Server) -> None:
        self._timeout = server.timeout

    def succeed(self, ends: Iterable[asyncio.Event]) -> None: ...

    async def drain(self, seconds: float, successor: Callable[[], Upstream | None] = lambda: None) -> None:
        if self._running:
            try:
                async with self._clock.timeout(seconds):
                    await asyncio.wait(self._running)
            except TimeoutError:
                pass  # it has had its time
        await self.stop()

    async def close(self) -> None:
        await self.stop()
