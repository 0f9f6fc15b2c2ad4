"""Scripts that want more than their share: each is told what it went beyond, the gateway goes on meanwhile, and the
next run is as any other. `sandbox/floods.py` has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attack.sandbox.floods import FLOODS, QUICK, Flood
from attack.sandbox.pressure import MOST_GROWTH, MOST_LAG, Pressure, measured
from processes.ground import real
from processes.sandbox_stage import staged


def test_there_are_enough_floods() -> None:
    assert len(FLOODS) >= 30 and len({flood.name for flood in FLOODS}) == len(FLOODS)


@real
async def contained(flood: Flood, found: list[Pressure]) -> None:
    async with staged(warm=0, wall=flood.wall) as stage:
        await stage.told("return 1")  # what is made once is there
        async with measured() as pressure:
            told = await stage.told(flood.code)
        found.append(pressure)
        assert flood.told in told, told[-500:]
        assert len(stage.called) <= 1000 and pressure.beats
        assert pressure.growth <= MOST_GROWTH, pressure
        assert await stage.told("return await servers.shop.echo({ n: 1 })") == '\n{"n":1}'


@pytest.mark.parametrize("flood", [flood for flood in FLOODS if flood.name in QUICK], ids=lambda flood: flood.name)
def test_some_floods_are_contained(flood: Flood) -> None:
    contained(flood, [])


@pytest.mark.attack
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.name)
def test_floods_are_contained(flood: Flood, counted: Callable[[str], None]) -> None:
    found: list[Pressure] = []
    contained(flood, found)
    counted(f"flood of JavaScript, {flood.name}: contained; {found[0]}")
    assert found[0].lag <= MOST_LAG
