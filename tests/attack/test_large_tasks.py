"""Results of megabytes of tasks, in both forms of the protocol: nobody else waits while they are looked at."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from attack.test_large_results import SIZE, Looks
from peers import LATEST, ModernClient, Rig, Scene, gateway
from task_peers import WITH_EXTENSION, LegacyTaskServer, ModernTaskServer
from virtualtime import settle

TEXT = '\u00e9 "x" related-task \\u0041 ' * (SIZE // 20)
WAIT = 3600 * 1000


async def large(scene: Scene) -> Any:
    await asyncio.sleep(0)
    return {"content": [{"type": "text", "text": TEXT}], "_meta": {"a": 1}}


def modern(rig: Rig) -> ModernClient:
    return rig.modern("ann", capabilities=WITH_EXTENSION)


async def test_nobody_waits_for_the_result_of_a_task_of_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ModernTaskServer({"act": large}, as_tasks=("act",))
    async with gateway(there=server) as rig:
        client = modern(rig)
        id = (await client.call("there__act")).result["taskId"]
        await settle()
        looks = Looks(monkeypatch)
        done = (await client.request("tasks/get", taskId=id)).result
        assert done["result"]["content"][0]["text"] == TEXT
        assert not looks.large


async def test_nor_for_one_that_its_client_began_and_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = LegacyTaskServer({"act": large}, support={"act": "optional"})
    async with gateway(there=server) as rig:
        client = await rig.legacy(LATEST)
        id = (await client.call("there__act", task={"ttl": WAIT})).result["task"]["taskId"]
        await settle()
        looks = Looks(monkeypatch)
        done = (await client.request("tasks/result", taskId=id)).result
        assert done["content"][0]["text"] == TEXT
        assert not looks.large


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_nor_for_one_that_the_gateway_waits_for(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = LegacyTaskServer({"act": large}, support={"act": "required"})
    async with gateway(there=server) as rig:
        client = await rig.legacy(LATEST) if era == "legacy" else rig.modern()
        await client.request("tools/list")
        looks = Looks(monkeypatch)
        done = (await client.call("there__act")).result
        assert done["content"][0]["text"] == TEXT and "related-task" not in json.dumps(done.get("_meta"))
        assert not looks.large
