"""A client asks for the list of its tasks again and again: each list asks servers for every task, and keeps all that
they say; or a server has the tasks of thousands of calls looked at without a pause."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from peers import Scene, gateway
from task_peers import LegacyTaskServer
from virtualtime import FakeClock

from toolgate.core.model import Client, Principal
from toolgate.eras.tasks import Task
from toolgate.upstreams.mcp.tasks import LOOKS_AT_ONCE, Waiting

COUNT, LISTS = 20, 30


async def test_of_a_client_that_asks_for_many_lists_of_its_tasks_one_is_made_at_a_time() -> None:
    async def done(scene: Scene) -> str:
        return "done"

    server = LegacyTaskServer({"slow": done}, support={"slow": "optional"})
    async with gateway(there=server) as rig:
        ann, bob = await rig.legacy(principal="ann"), await rig.legacy(principal="bob")
        for client in (*[ann] * COUNT, bob):
            await client.call("there__slow", task={"ttl": 60_000})
        requests = rig.connections[0].requests
        before, under_way, seen = requests.ask, Counter[str](), list[int]()

        async def ask(method: str, *rest: Any, **more: Any) -> Any:
            under_way[method] += 1
            seen.append(under_way[method])
            try:
                return await before(method, *rest, **more)
            finally:
                under_way[method] -= 1

        requests.ask = ask  # type: ignore[method-assign]
        lists = [ann.start("tasks/list") for _ in range(LISTS)]
        assert len((await bob.request("tasks/list")).result["tasks"]) == 1
        for each in lists:
            assert len((await each.reply()).result["tasks"]) == COUNT
        assert len(seen) == LISTS * COUNT + 1
        assert max(seen) <= 2 * LOOKS_AT_ONCE  # hers, and his


@pytest.mark.parametrize(("running", "pause"), [(1, 0.1), (20, 0.1), (3000, 15.0), (100_000, 60.0)])
async def test_many_that_a_server_wants_to_have_looked_at_at_once_are_looked_at_less_often(
    running: int, pause: float
) -> None:
    """3,000 calls whose tasks were looked at ten times a second each took 85 % of a core as long as they stood."""
    slept: list[float] = []

    class Slept(FakeClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    requests: Any = SimpleNamespace(clock=Slept())
    call: Any = SimpleNamespace(client=Client(Principal("ann", client="ann")))
    waiting = Waiting(
        requests, call, cast(Any, None), lambda id: None, Counter({call.client.principal.counted_as: running - 1})
    )

    async def over(task: Task) -> Task:
        return Task("1", "completed")

    cast(Any, waiting)._look = over
    await cast(Any, waiting)._look_until_ready(Task("1", pollInterval=0), float("inf"))
    assert slept == [pause]
