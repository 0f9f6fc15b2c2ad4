"""One request to the fixture server, as its tools see it: they ask, log and report alike in both eras, and as a task.

`Call.ask` is the heart. To a legacy client it sends requests and awaits the answers; to a modern one it answers
"input required" and reads the answers from the retry; in a task it parks the task until `tasks/update` brings them.
What is asked and answered are plain dictionaries, so that nothing of them is lost in a model.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Object = dict[str, Any]
TASKS = "io.modelcontextprotocol/tasks"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
KEPT_TASKS = 200

ASKS: dict[str, tuple[str, type[Any], type[Any]]] = {
    "elicitation/create": ("elicitation", types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": ("sampling", types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": ("roots", types.ListRootsRequest, types.ListRootsResult),
}


class InputRequired(Exception):
    """What a modern client is answered with until it has answered everything."""

    def __init__(self, asks: Object, known: Object) -> None:
        state = json.dumps(known)
        self.result = {"resultType": "input_required", "inputRequests": asks, "requestState": state}


class ToolFailed(Exception):
    """A tool's own error: a result with `isError`, not an error of the protocol."""


def lacks(capabilities: Object) -> MCPError:
    data = {"requiredCapabilities": capabilities}
    return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client has not declared what this needs", data)


@dataclass
class Call:
    ctx: ServerRequestContext[Any, Any]
    params: Mapping[str, Any]
    task: Task | None = None

    @property
    def arguments(self) -> Object:
        return self.params.get("arguments") or {}

    @property
    def is_modern(self) -> bool:
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> Object:
        declared = self.ctx.session.client_capabilities
        return declared.model_dump(by_alias=True, exclude_none=True) if declared else {}

    @property
    def does_tasks(self) -> bool:
        return self.is_modern and TASKS in (self.capabilities.get("extensions") or {})

    async def ask(self, **asks: Object) -> Object:
        """The answers, under the names that they were asked by."""
        needed = {ASKS[ask["method"]][0]: {} for ask in asks.values()}
        missing = {name: {} for name in needed if name not in self.capabilities}
        if missing and self.is_modern:
            raise lacks(missing)
        if missing:
            raise ToolFailed(f"The client has not declared {', '.join(missing)}")
        if self.task is not None:
            return await self.task.ask(asks)
        if self.is_modern:
            return self._answered(asks)
        answers = await asyncio.gather(*(self._request(ask) for ask in asks.values()))
        return dict(zip(asks, answers, strict=True))

    def _answered(self, asks: Object) -> Object:
        known = json.loads(self.params.get("requestState") or "{}") | (self.params.get("inputResponses") or {})
        unanswered = {name: ask for name, ask in asks.items() if name not in known}
        if unanswered:
            raise InputRequired(unanswered, known)
        return {name: known[name] for name in asks}

    async def _request(self, ask: Object) -> Object:
        _, request, result = ASKS[ask["method"]]
        related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
        answer = await self.ctx.session.send_request(request.model_validate(ask), result, metadata=related)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def log(self, text: str, level: types.LoggingLevel = "info") -> None:
        wanted = LOG_LEVELS.index(self.ctx.lifespan_context.log_level(self.ctx))
        if self.is_modern or LOG_LEVELS.index(level) >= wanted:
            await self.ctx.session.send_log_message(level, text, related_request_id=self.ctx.request_id)

    async def progress(self, done: int, total: int) -> None:
        if self.task is None:
            await self.ctx.session.report_progress(done, total, f"{done} of {total}")


# -- the tasks extension ----------------------------------------------------------------------------------------------

Work = Callable[[Call], Awaitable[Object]]


@dataclass
class Task:
    id: str = field(default_factory=lambda: uuid4().hex)
    status: str = "working"
    created: str = field(default_factory=lambda: now())
    updated: str = field(default_factory=lambda: now())
    asks: Object = field(default_factory=dict)
    answers: Object = field(default_factory=dict)
    outcome: Object = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    def seen(self) -> Object:
        times = {"createdAt": self.created, "lastUpdatedAt": self.updated, "ttlMs": 300_000, "pollIntervalMs": 100}
        return {"taskId": self.id, "status": self.status, **times}

    def become(self, status: str, **outcome: Object) -> None:
        self.status, self.outcome, self.updated = status, outcome, now()

    async def ask(self, asks: Object) -> Object:
        self.asks = dict(asks)
        self.become("input_required")
        while self.asks:
            self.changed.clear()
            await self.changed.wait()
        self.become("working")
        return {name: self.answers[name] for name in asks}

    def update(self, answers: Object) -> None:
        for name in answers.keys() & self.asks.keys():
            self.answers[name] = answers[name]
            del self.asks[name]
        self.changed.set()


class Tasks:
    """All tasks of this server, and the owner of their work. The oldest are forgotten."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def start(self, call: Call, work: Work) -> Object:
        task = Task()
        self._tasks[task.id] = task
        for old in list(self._tasks)[:-KEPT_TASKS]:
            self._tasks.pop(old).running.cancel()  # type: ignore[union-attr]
        task.running = asyncio.create_task(self._run(task, replace(call, task=task), work))
        return {"resultType": "task", **task.seen()}

    async def _run(self, task: Task, call: Call, work: Work) -> None:
        try:
            task.become("completed", result=await work(call))
        except MCPError as error:
            task.become("failed", error={"code": error.error.code, "message": error.error.message})

    def find(self, id: str) -> Task:
        if id not in self._tasks:
            raise MCPError(types.INVALID_PARAMS, "Unknown task", {"taskId": id})
        return self._tasks[id]

    def get(self, id: str) -> Object:
        task = self.find(id)
        asks = {"inputRequests": task.asks} if task.status == "input_required" else {}
        return {**task.seen(), **asks, **task.outcome}

    def cancel(self, id: str) -> None:
        task = self.find(id)
        if not task.is_over:
            task.become("cancelled")
            task.running.cancel()  # type: ignore[union-attr]

    async def end(self) -> None:
        running = [task.running for task in self._tasks.values() if task.running]
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def now() -> str:
    return datetime.now(UTC).isoformat()
