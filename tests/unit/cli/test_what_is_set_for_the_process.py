"""What a gateway's process is like for as long as it runs."""

from __future__ import annotations

import sys

from toolgate.cli import common


def test_the_event_loop_waits_at_most_a_millisecond_for_a_thread_that_computes() -> None:
    before = sys.getswitchinterval()

    async def look() -> float:
        return sys.getswitchinterval()

    try:
        assert common.run(look()) <= 0.001
    finally:
        sys.setswitchinterval(before)
