"""Meters that policies count with, by a name of their own."""

from __future__ import annotations

import pytest
from virtualtime import FakeClock

from toolgate.policy import limits
from toolgate.policy.limits import Meters

DAY = 24 * 3600.0


async def test_meters_of_one_name_are_the_same_and_those_of_another_are_others() -> None:
    meters = Meters(FakeClock())
    assert meters.of("budget") is meters.of("budget") is not meters.of("other")
    meters.of("budget").running["ann"] = 1
    assert not meters.are_idle


@pytest.mark.parametrize("since", [-50_000.0, 0.0, 1e9])  # a day may have begun before the clock did
@pytest.mark.parametrize("most", [1, 3, 9_999])
def test_so_many_calls_may_be_made_between_two_moments_and_no_more(most: int, since: float) -> None:
    meter, now = Meters(FakeClock()).of("budget"), since + 60_000
    assert all(meter.spend("ann", most, since, since + DAY, now) for _ in range(most))
    assert not meter.spend("ann", most, since, since + DAY, now)
    assert not meter.spend("ann", most, since, since + DAY, since + DAY - 1)
    assert meter.spend("bob", most, since, since + DAY, now)
    assert meter.spend("ann", most, since + DAY, since + 2 * DAY, since + DAY)


def test_what_is_spent_is_a_share_where_another_configuration_gives_more() -> None:
    meter = Meters(FakeClock()).of("budget")
    assert meter.spend("ann", 2, 0, DAY, 0)
    assert [meter.spend("ann", 4, 0, DAY, 0) for _ in range(3)] == [True, True, False]


def test_of_keys_without_end_those_are_forgotten_that_are_as_good_as_new() -> None:
    meter = Meters(FakeClock()).of("budget")
    for number in range(limits.MOST_METERS + 1):
        assert meter.spend(number, 2, 0, DAY, 0)
    assert len(meter.filled) == limits.MOST_METERS // 2
