"""What a call is told that fails is true, and nothing runs twice that may do harm: the short form of `make faults`."""

from __future__ import annotations

import random

import pytest
from processes import faults
from processes.ground import real


@pytest.mark.promise("b.errors.outcome-true")
@real
async def test_no_fault_of_a_server_makes_the_gateway_lie_or_repeat_what_is_not_safe() -> None:
    random.seed(1)
    count = 2 * sum(map(len, faults.KINDS.values()))
    report = await faults.run(count)
    assert report.lies == [] and report.doubles == []
    assert sum(report.told.values()) == count
