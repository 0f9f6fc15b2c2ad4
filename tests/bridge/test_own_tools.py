"""A tool of the gateway's own may do what any server may in the middle of a call: ask its client, report, log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from inmemory import Visitor
from inmemory import gateway as in_memory
from official import LEGACY, MODERN
from peers import LegacyServer, Scene, form, gateway, named, rooted
from virtualtime import FakeClock

from toolgate.config import Server
from toolgate.core.asks import answer_value
from toolgate.state.base import NotKept
from toolgate.state.memory import MemoryStore
from toolgate.surfaces import controls
from toolgate.surfaces.controls import daemon
from toolgate.surfaces.controls.base import Control, Given
from toolgate.surfaces.controls.context import ControlContext

ANSWERS = {"elicitation/create": lambda _: named("Ann")}


async def plain(scene: Scene) -> str:
    return "just so"


async def asks(given: Given, context: ControlContext) -> Any:
    context.progress(1, 2, "asking")
    context.log("error", "about to ask")
    method, params = form()
    answer = answer_value(await context.ask(method, params))
    return {"servers": list(context.gateway.configured), "said": answer.get("content", {}).get("name", "nobody")}


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control("asking", daemon.FAMILY, "Asks.", work=asks)
    monkeypatch.setitem(controls.CONTROLS, "asking", control)  # type: ignore[arg-type]


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("revision", [LEGACY[-1], MODERN])
async def test_a_control_tool_asks_its_client_and_reports_meanwhile(revision: str) -> None:
    async with gateway(there=LegacyServer({"plain": plain})) as rig:
        client = await rig.client(revision)
        reply = await client.converse("tools/call", ANSWERS, name="asking", meta={"progressToken": "p"})
        assert json.loads(reply.text) == {"servers": ["there"], "said": "Ann"}
        assert [note["message"] for note in reply.notes("notifications/progress")] == ["asking"]


@pytest.mark.usefixtures("asking")
async def test_a_control_tool_hears_that_its_client_cannot_be_asked() -> None:
    async with gateway(there=LegacyServer({"plain": plain})) as rig:
        reply = await rig.modern(capabilities={}).call("asking")
        assert json.loads(reply.text)["said"] == "nobody"


async def test_a_task_that_its_store_does_not_take_is_given_up_after_the_time_of_any_call() -> None:
    clock = FakeClock()
    store, answer = MemoryStore(clock), asyncio.Event()
    async with in_memory(store=store, clock=clock) as app:

        async def never(*_: Any) -> Any:
            await answer.wait()
            raise NotKept("too late")

        store.transact = never  # type: ignore[method-assign]
        began = clock.now()
        asked = {"name": "gobby-tasks__create_task", "arguments": {"title": "a task"}}
        reply = (await Visitor(app).ask("tools/call", **asked)).last
        assert reply["error"]["data"]["code"] == "TIMEOUT"
        assert clock.now() - began == Server(id="any", name="any", type="registry").timeout
        del store.transact  # type: ignore[attr-defined]
        answer.set()


@pytest.mark.parametrize("path", ["/mcp", "/mcp/daemon", "/mcp/servers/gobby-tasks"])
async def test_tasks_are_in_the_project_of_the_roots_that_a_client_has_now(path: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name / ".gobby").mkdir(parents=True)
        (tmp_path / name / ".gobby/project.json").write_text(json.dumps({"id": name, "name": name}))
    roots = ["first"]

    async with gateway(there=LegacyServer({"plain": plain})) as rig:
        answers = {"roots/list": lambda _: rooted(f"file://{tmp_path / roots[-1]}")}
        capabilities = {"roots": {"listChanged": True}}
        client = await rig.legacy(stdio=True, path=path, capabilities=capabilities, answers=answers)
        name = "create_task" if path.endswith("tasks") else "gobby-tasks__create_task"

        async def project() -> str:
            return json.loads((await client.call(name, arguments={"title": "t"})).text)["project_id"]

        assert await project() == "first"
        roots.append("second")
        client.tell({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        assert await project() == "second"
