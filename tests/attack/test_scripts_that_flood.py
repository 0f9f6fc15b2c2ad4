"""Scripts that want more than their share: each is told what it went beyond, the gateway goes on meanwhile, and the
next run is as any other. `sandbox/floods.py` has them."""

from __future__ import annotations

import asyncio

import pytest
from attack.sandbox.floods import FLOODS, QUICK, Flood
from processes.ground import real
from processes.sandbox_stage import staged


def test_there_are_enough_floods() -> None:
    assert len(FLOODS) >= 30 and len({flood.name for flood in FLOODS}) == len(FLOODS)


@real
async def contained(flood: Flood) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.001)
            beats += 1

    async with staged(warm=0, wall=flood.wall) as stage:
        beating = asyncio.create_task(beat())
        told = await stage.told(flood.code)
        beating.cancel()
        assert flood.told in told, told[-500:]
        assert len(stage.called) <= 1000 and (beats or flood.told.startswith("mcp_execute"))
        assert await stage.told("return await servers.shop.echo({ n: 1 })") == '\n{"n":1}'


@pytest.mark.parametrize("flood", [flood for flood in FLOODS if flood.name in QUICK], ids=lambda flood: flood.name)
def test_some_floods_are_contained(flood: Flood) -> None:
    contained(flood)


@pytest.mark.attack
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.name)
def test_floods_are_contained(flood: Flood) -> None:
    contained(flood)
