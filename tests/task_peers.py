"""Scripted servers that run tools as tasks, in both eras: the scripts of `peers`, run in the background.

A task's script may ask (`scene.ask`), report, wait and fail as any. A legacy server asks on `tasks/result`, a modern
one lists its questions in `tasks/get` and gets the answers by `tasks/update`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from official import Json
from peers import (
    KIND,
    META,
    LegacyServer,
    ModernServer,
    Question,
    RpcError,
    Scene,
    Script,
    _LegacyConnection,
    _ModernConnection,
    _saying,
)

EXTENSION = META + "tasks"
RELATED = META + "related-task"
TASKS: Json = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
WITH_EXTENSION: Json = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
MISSING = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
TIME = "2026-01-01T00:00:00Z"


class Task:
    """One task of a server: its script runs in the background."""

    def __init__(self, id: str, ttl: int | None) -> None:
        self.id = id
        self.ttl = ttl
        self.status = "working"
        self.result: Json | None = None
        self.error: RpcError | None = None
        self.over = asyncio.Event()
        self.waited_for = asyncio.Event()  # somebody has asked for its result
        self.asks: dict[str, tuple[Question, asyncio.Future[Json]]] = {}
        self.work: asyncio.Task[None] | None = None

    async def run(self, script: Script, scene: Scene) -> None:
        try:
            result = await script(scene)
            self.result = _saying(scene.method, scene.target, result) if isinstance(result, str) else result
            self.end("completed")
        except RpcError as error:
            self.error = error
            self.end("failed")

    def end(self, status: str) -> None:
        self.status = status
        self.over.set()

    def cancel(self) -> None:
        if self.work:
            self.work.cancel()
        self.error = RpcError(-32603, "It was cancelled")
        self.end("cancelled")


class _Tasks:
    """What both eras keep of tasks."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}

    def begin(self, script: Script, scene: Scene, ttl: int | None) -> Task:
        task = Task(f"own/{len(self.tasks) + 1}", ttl)
        self.tasks[task.id] = task
        scene.task = task  # type: ignore[attr-defined]
        task.work = asyncio.get_running_loop().create_task(task.run(script, scene))
        return task

    def find(self, message: Json) -> Task:
        task = self.tasks.get(message["params"]["taskId"])
        if not task:
            raise RpcError(-32602, f"No task {message['params']['taskId']}")
        return task


class LegacyTaskServer(LegacyServer):
    """`support` says what each tool says of tasks; a tool that is not named there says nothing."""

    def __init__(
        self,
        *args: Any,
        support: Mapping[str, str] | None = None,
        tasks: Json | None = None,
        poll: int | None = None,
        refuses_waiting: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.makes = asyncio.Event()  # the answers with tasks, which are not held back but for those of a test
        self.makes.set()
        self.connection = _LegacyTaskConnection
        self.support = dict(support or {})
        self.offered = TASKS if tasks is None else tasks
        self.poll = poll
        self.refuses_waiting = refuses_waiting
        self.kept = _Tasks()
        for tool in self.lists["tools/list"][1]:
            if tool["name"] in self.support:
                tool["execution"] = {"taskSupport": self.support[tool["name"]]}

    @property
    def capabilities(self) -> Json:
        return super().capabilities | {"tasks": self.offered}

    def shown(self, task: Task) -> Json:
        found = {"taskId": task.id, "status": task.status, "createdAt": TIME, "lastUpdatedAt": TIME, "ttl": task.ttl}
        return found | ({} if self.poll is None else {"pollInterval": self.poll})


class _LegacyTaskConnection(_LegacyConnection):
    server: LegacyTaskServer

    def requested(self, message: Json) -> None:
        method, params = message["method"], message.get("params", {})
        if method == "tools/call" and params["name"] in self.server.support:
            self._called(message)
        elif method == "tasks/list":
            self.reply(message, {"tasks": [self.server.shown(task) for task in self.server.kept.tasks.values()]})
        elif method.startswith("tasks/"):
            try:
                self._asked_about(self.server.kept.find(message), message)
            except RpcError as error:
                self.refuse(message, error)
        else:
            super().requested(message)

    def _called(self, message: Json) -> None:
        name = message["params"]["name"]
        is_task = "task" in message["params"]
        if (self.server.support[name], is_task) in (("required", False), ("forbidden", True)):
            self.refuse(message, RpcError(-32601, f"{name} as a task: {self.server.support[name]}"))
        elif is_task:
            script = self.server.scripts["tools"][name]
            scene = _LegacyTaskScene(self, message)
            task = self.server.kept.begin(script, scene, message["params"]["task"].get("ttl"))
            if self.server.makes.is_set():
                self.reply(message, {"task": self.server.shown(task)})
            else:
                asyncio.get_running_loop().create_task(self._tell_later(message, task))
        else:
            self._playing[message["id"]] = asyncio.get_running_loop().create_task(self._play(message))

    async def _tell_later(self, message: Json, task: Task) -> None:
        await self.server.makes.wait()
        self.reply(message, {"task": self.server.shown(task)})

    def _asked_about(self, task: Task, message: Json) -> None:
        if message["method"] == "tasks/result":
            if self.server.refuses_waiting and not task.over.is_set() and task.status == "working":
                self.refuse(message, RpcError(-32603, "Not yet"))
                return
            work = asyncio.get_running_loop().create_task(self._give_result(task, message))
            self._playing[message["id"]] = work
        elif message["method"] == "tasks/cancel":
            if task.over.is_set():
                raise RpcError(-32602, f"Cannot cancel task: already in terminal status '{task.status}'")
            task.cancel()
            self.reply(message, self.server.shown(task))
        else:
            self.reply(message, self.server.shown(task))

    async def _give_result(self, task: Task, message: Json) -> None:
        task.waited_for.set()
        try:
            await task.over.wait()
            if task.error:
                self.refuse(message, task.error)
            else:
                assert task.result is not None
                self.reply(message, {**task.result, "_meta": {RELATED: {"taskId": task.id}}})
        finally:
            task.waited_for.clear()
            self._playing.pop(message["id"], None)

    def tell_status(self, task: Task) -> None:
        self.say({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": self.server.shown(task)})


class _LegacyTaskScene(Scene):
    task: Task
    asks_early = False  # before anybody waits for the result

    async def ask_all(self, *questions: Question) -> list[Json]:
        self.task.status = "input_required"
        if not self.asks_early:
            await self.task.waited_for.wait()
        related = {RELATED: {"taskId": self.task.id}}
        answers = await self.connection.ask_all(self, [(how, {**asked, "_meta": related}) for how, asked in questions])
        assert all(answer["_meta"] == related for answer in answers), answers
        self.task.status = "working"
        return [{name: part for name, part in answer.items() if name != "_meta"} for answer in answers]

    def progress(self, progress: float, **more: Any) -> None:
        super().progress(progress, _meta={RELATED: {"taskId": self.task.id}}, **more)


class ModernTaskServer(ModernServer):
    """It makes a task of each call of the tools in `as_tasks`, and refuses it to clients that know no tasks."""

    def __init__(self, *args: Any, as_tasks: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.connection = _ModernTaskConnection
        self.as_tasks = as_tasks
        self.kept = _Tasks()

    @property
    def capabilities(self) -> Json:
        return super().capabilities | {"extensions": {EXTENSION: {}}}

    def shown(self, task: Task) -> Json:
        found = {"taskId": task.id, "status": task.status, "createdAt": TIME, "lastUpdatedAt": TIME, "ttlMs": task.ttl}
        if task.asks and not task.over.is_set():
            asked = {key: {"method": how, "params": params} for key, ((how, params), _) in task.asks.items()}
            found |= {"status": "input_required", "inputRequests": asked}
        if task.status == "completed":
            found["result"] = task.result
        if task.status == "failed" and task.error:
            found["error"] = task.error.body()
        return found


class _ModernTaskConnection(_ModernConnection):
    server: ModernTaskServer

    def requested(self, message: Json) -> None:
        method, params = message["method"], message.get("params", {})
        knows = EXTENSION in params.get("_meta", {}).get(META + "clientCapabilities", {}).get("extensions", {})
        is_task = method in KIND and params.get("name") in self.server.as_tasks
        wants = "taskIds" in params.get("notifications", {})
        if (is_task or wants or method.startswith("tasks/")) and not knows:
            self.refuse(message, RpcError(-32021, "Missing required client capability", MISSING))
        elif is_task:
            task = self.server.kept.begin(
                self.server.scripts["tools"][params["name"]], _ModernTaskScene(self, message), None
            )
            self.reply(message, {"resultType": "task", **self.server.shown(task)})
        elif method == "subscriptions/listen":
            self.hearing = message["id"]
            self.tell("notifications/subscriptions/acknowledged", {"notifications": params["notifications"]})
        elif method.startswith("tasks/"):
            try:
                self._asked_about(self.server.kept.find(message), message)
            except RpcError as error:
                self.refuse(message, error)
        else:
            super().requested(message)

    def _asked_about(self, task: Task, message: Json) -> None:
        result: Json = {"resultType": "complete"}
        if message["method"] == "tasks/get":
            result |= self.server.shown(task)
        elif message["method"] == "tasks/cancel":
            task.cancel()
        else:
            for key, answer in message["params"]["inputResponses"].items():
                task.asks.pop(key)[1].set_result(answer)
        self.reply(message, result)

    def tell_task(self, task: Task) -> None:
        self.tell("notifications/tasks", self.server.shown(task))

    def tell(self, method: str, params: Json) -> None:
        meta = {META + "subscriptionId": self.hearing}
        self.say({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}})


class _ModernTaskScene(Scene):
    task: Task

    async def ask_all(self, *questions: Question) -> list[Json]:
        futures: list[asyncio.Future[Json]] = []
        for question in questions:
            futures.append(asyncio.get_running_loop().create_future())
            self.task.asks[f"k{len(self.task.asks)}"] = question, futures[-1]
        return list(await asyncio.gather(*futures))
