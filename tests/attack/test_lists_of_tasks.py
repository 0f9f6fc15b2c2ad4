"""A client asks for the list of its tasks again and again: each list asks servers for every task, and keeps all that
they say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from peers import Scene, gateway
from task_peers import LegacyTaskServer

from toolgate.upstreams.mcp.tasks import LOOKS_AT_ONCE

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
