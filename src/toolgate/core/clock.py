"""Time: a clock that tests can hold still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time, in seconds."""

    def now(self) -> float:
        """Seconds that only grow; for measuring."""
        ...

    def wall(self) -> float:
        """Seconds since 1970; for what is shown, stored or sealed."""
        ...

    def call_later(self, seconds: float, then: Callable[[], object]) -> Timer: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Like `asyncio.timeout`, by this clock: raises `TimeoutError` at the end of its block."""
        ...


class SystemClock:
    """The clock of the running event loop."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def call_later(self, seconds: float, then: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, then)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)
