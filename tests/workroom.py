"""The workspace alone, in memory: its tools called as a gateway calls them."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Raw
from virtualtime import FakeClock

from toolgate.config import Config, Tasks
from toolgate.core import mcp
from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Call, Client, Principal
from toolgate.state.memory import MemoryStore
from toolgate.upstreams.inprocess.tools import EncodedResult, InProcessTools
from toolgate.workspace.services import internal_servers
from toolgate.workspace.workspace import Workspace

Json = dict[str, Any]


class Workroom:
    """`folder` is where the gateway was started. `as_client` says who calls from then on. It is made outside of the
    loop that it is used in."""

    def __init__(self, folder: Path = Path("/nowhere"), **config: Any) -> None:
        self.clock = FakeClock()
        self.client = Client()
        self._folder = folder
        self._config = Config(tasks=Tasks(**config))

    @cached_property
    def store(self) -> MemoryStore:
        return MemoryStore(self.clock)

    @cached_property
    def workspace(self) -> Workspace:
        return Workspace(self.store, self.clock, self._config, self._folder)

    @cached_property
    def tools(self) -> InProcessTools:
        return internal_servers(self.workspace)["gobby-tasks"]

    def as_client(self, session: str, principal: str = "local") -> None:
        self.client = Client(Principal(principal), session)

    async def do(self, tool: str, /, **arguments: Any) -> Json:
        """What it answers with. Raises `Fault`."""
        call = Call(mcp.CALL, tool, self.client, Raw(json.dumps(arguments).encode()), "gobby-tasks")
        answer = await self.tools.answer(call, _NOBODY)
        result = json.loads(answer.body) if isinstance(answer, EncodedResult) else answer
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return dict(result["structuredContent"])

    async def refused(self, tool: str, /, **arguments: Any) -> Fault:
        try:
            said = await self.do(tool, **arguments)
        except Fault as fault:
            return fault
        raise AssertionError(f"{tool} answered: {said}")

    async def task(self, title: str = "a task", **more: Any) -> str:
        """The id of a new one, made a second later than the one before."""
        await self.clock.sleep(1)
        return (await self.do("create_task", title=title, **more))["id"]

    async def after(self, task_id: str, depends_on: str, dep_type: str = "blocks") -> Json:
        return await self.do("add_dependency", task_id=task_id, depends_on=depends_on, dep_type=dep_type)

    async def listed(self, tool: str, **given: Any) -> list[str]:
        return [task["id"] for task in (await self.do(tool, **given))["tasks"]]

    async def whole(self) -> None:
        """Each task has its parent, and nothing is tied to one that is gone."""
        for table, column in (
            ("task", "parent_task_id"), ("task_dependency", "task_id"), ("task_dependency", "depends_on"),
            ("task_session", "task_id"), ("task_place", "task_id"),
        ):  # fmt: skip
            sql = f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT id FROM task)"
            assert await self.run(sql) == [], table

    async def run(self, sql: str, *values: object) -> list[Any]:
        return await self.store.transact(lambda connection: connection.execute(sql, values).fetchall())


def _never(*_: Any) -> Any:
    raise AssertionError("nothing is asked here")


_NOBODY: Exchange = type("Nobody", (), {"ask": _never})()
