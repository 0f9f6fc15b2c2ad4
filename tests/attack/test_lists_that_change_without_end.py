"""A server whose lists are others each time that it says so is looked at ever more seldom, and again at once later."""

from __future__ import annotations

from typing import Any

from virtualtime import FakeClock, settle

from toolgate.catalog.refresh import DEBOUNCE, LONGEST_DEBOUNCE, MOST_CHANGES, Refresh


async def test_what_changes_each_time_is_looked_at_more_and_more_seldom() -> None:
    clock = FakeClock()
    refresh = Refresh(clock)
    looks: list[Any] = []

    async def look() -> None:
        looks.append(clock.now())
        refresh.take(("there", ""))
        refresh.looked(("there", ""), is_other=True)

    for _ in range(200):  # 20 seconds
        refresh.before(("there", ""), look)
        await clock.advance(0.1)
        await settle()
    assert 5 < len(looks) < 10 + 20 / (DEBOUNCE * 2**MOST_CHANGES)
    await clock.advance(2 * LONGEST_DEBOUNCE + 1)
    begun = len(looks)
    refresh.before(("there", ""), look)
    await clock.advance(DEBOUNCE)
    await settle()
    assert len(looks) == begun + 1, "after a pause it is looked at as soon as any other"
    await refresh.close()
