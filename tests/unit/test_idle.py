"""When a connection has been idle for long enough."""

from __future__ import annotations

from virtualtime import FakeClock

from toolgate.upstreams.mcp.idle import SHORTEST_LOOK, IdleTimer


class Used:
    """A connection that is idle since a moment, or is not."""

    def __init__(self, clock: FakeClock, patience: float) -> None:
        self.patience = patience
        self.since: float | None = clock.now()
        self.ends: list[float] = []
        self.timer = IdleTimer(clock, lambda: self.patience, lambda: self.since, lambda: self.ends.append(clock.now()))
        self.timer.start()


async def test_one_that_nobody_has_used_ends_once_when_its_time_is_over() -> None:
    clock = FakeClock()
    used, began = Used(clock, 10), clock.now()
    await clock.advance(9)
    assert not used.ends
    await clock.advance(60)
    assert used.ends == [began + 10]


async def test_one_that_was_used_meanwhile_has_its_whole_time_from_then_on() -> None:
    clock = FakeClock()
    used = Used(clock, 10)
    await clock.advance(6)
    used.since = since = clock.now()
    await clock.advance(60)
    assert used.ends == [since + 10]


async def test_one_that_is_busy_is_looked_at_again_however_short_its_time() -> None:
    clock = FakeClock()
    used = Used(clock, 0)
    used.since = None
    await clock.advance(5 * SHORTEST_LOOK)
    assert not used.ends
    used.since = clock.now()
    await clock.advance(SHORTEST_LOOK)
    assert len(used.ends) == 1


async def test_a_timer_that_was_cancelled_ends_nothing() -> None:
    clock = FakeClock()
    used = Used(clock, 10)
    used.timer.cancel()
    await clock.advance(60)
    assert not used.ends
