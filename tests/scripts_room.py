"""A gateway whose code is a list of calls, so that tests of what scripts may do need no process.

The last line of such code is JSON: `[[server, tool, arguments], ...]`; `{"wait": true}` in it waits until the test lets
it go on. Its value is what came of each: the value, or the code of the error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from inmemory import Json, Scripted, Visitor, gateway, said, tools
from virtualtime import FakeClock

from toolgate.app import App
from toolgate.config import Config
from toolgate.core.model import Principal
from toolgate.frontends.guards import Headers
from toolgate.sandbox import stored
from toolgate.sandbox.bridge import Broken
from toolgate.sandbox.stored import StoredScripts
from toolgate.sandbox.worker import Engine, Worker
from toolgate.state import changes
from toolgate.state.memory import MemoryStore


class Code:
    """An engine in memory. `ran` are the texts that it was given, with their data, `errors` the messages that they
    got; `go` lets what waits go on."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []
        self.errors: list[str] = []
        self.waits, self.go = asyncio.Event(), asyncio.Event()
        self.engines: Any = {
            language: lambda *_: Engine("in memory", self._start) for language in ("javascript", "python")
        }

    async def _start(self, worker: Worker) -> None:
        run = _Run(self, worker)
        worker.started(0, run.hear, lambda: worker.exited(Broken("was stopped")), None)
        run.say({"ready": "in memory"})


class _Run:
    def __init__(self, code: Code, worker: Worker) -> None:
        self._code, self._worker = code, worker
        self._calls: list[Any] = []
        self._came: list[Any] = []
        self._begun = 0

    def say(self, message: Json) -> None:
        self._worker.wrote(json.dumps(message).encode() + b"\n")

    def hear(self, data: bytes) -> None:
        for line in data.splitlines():
            told = json.loads(line)
            if "run" in told:
                self._code.ran.append((told["run"]["code"], told["run"].get("data")))
                self._calls = json.loads(told["run"]["code"].strip().splitlines()[-1].removeprefix("return "))
            else:
                self._came.append(told["value"] if "value" in told else told["error"].get("code"))
                self._code.errors += [told["error"]["message"]] if "error" in told else []
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        while len(self._came) < len(self._calls) and isinstance(self._calls[len(self._came)], dict):
            self._came.append("waited")
            self._code.waits.set()
            asyncio.get_running_loop().create_task(self._code.go.wait()).add_done_callback(lambda _: self._next())
            return
        if len(self._came) == len(self._calls):
            self.say({"done": {"value": {"came": self._came}}})
            return
        server, tool, arguments = self._calls[len(self._came)]
        self._begun += 1
        self.say({"call": self._begun, "server": server, "tool": tool, "arguments": arguments})


def script(name: str, *calls: Any, parameters: str = "", about: str = "Does it.") -> str:
    head = f'// /// toolgate\n// name = "{name}"\n// description = "{about}"\n{parameters}// ///\n'
    return f"{head}return {json.dumps(calls)}"


class Room:
    """A gateway with the servers `shop` (buy, sell) and `bank` (pay), and its stored scripts."""

    def __init__(self, app: App, code: Code, store: MemoryStore, scripts: dict[str, Scripted]) -> None:
        self.app, self.code, self.store, self.servers = app, code, store, scripts
        self.scripts = StoredScripts(store, "")

    @property
    def called(self) -> list[str]:
        """The tools that servers were really called for."""
        asked = [each for server in self.servers.values() for each in server.requests]
        return [each["params"]["name"] for each in asked if each["method"] == "tools/call"]

    async def approve(self, *texts: str) -> None:
        for text in texts:
            found = stored.read(text)
            assert await self.scripts.approve(found, self.scripts.kept(found.name), 0.0, "ann")
        await self.told()

    async def told(self) -> None:
        """The running gateway has looked."""
        await changes.tell(self.store, "scripts")
        await self.app.clock.sleep(2.0)

    def visitor(self, who: str = "", path: str = "/mcp") -> Visitor:
        return Visitor(self.app, path, **({"x_who": who} if who else {}))

    async def listed(self, who: str = "", path: str = "/mcp") -> list[str]:
        found = await self.visitor(who, path).ask("tools/list")
        return [each["name"] for each in found.result["tools"]]

    async def call(self, name: str, arguments: Any = {}, who: str = "", path: str = "/mcp") -> Any:
        """What came of each call of the script; else the error."""
        reply = (await self.visitor(who, path).ask("tools/call", name=name, arguments=arguments)).last
        if "error" in reply:
            return reply["error"]
        result = reply["result"]
        if result.get("isError"):
            return result
        return (result.get("structuredContent") or json.loads(result["content"][0]["text"]))["came"]

    async def execute(self, *calls: Any, who: str = "") -> Any:
        """What came of each call, made by code."""
        return await self.call("mcp_execute", {"code": f"return {json.dumps(calls)}"}, who)


async def by_header(headers: Headers, address: str, path: str) -> Principal:
    return Principal(headers["x-who"], client=headers["x-who"])


def answered(params: Json) -> Json:
    return said(f"{params['name']} done")


@asynccontextmanager
async def room(config: Config | None = None, **more: Any) -> AsyncGenerator[Room]:
    code, clock = Code(), FakeClock()
    store = more.pop("store", None) or MemoryStore(clock)
    servers = {
        "shop": Scripted(tools_list=tools("buy", "sell"), tools_call=answered),
        "bank": Scripted(tools_list=tools("pay"), tools_call=answered),
    }
    told = {"identify": by_header} if config and config.clients else {}
    async with gateway(
        config=config, scripts=servers, engines=code.engines, clock=clock, store=store, **told, **more
    ) as app:
        yield Room(app, code, store, servers)
