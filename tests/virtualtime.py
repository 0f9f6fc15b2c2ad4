"""Time that passes only when nothing else can happen: an event loop that jumps to its next timer as soon as it is idle.

So a test waits for minutes without waiting, and what it sees never depends on how fast the machine is. A test waits for
its peers with `soon`, one virtual second: longer than any window in which the gateway gathers, shorter than any of its
timeouts. What happens only because a timeout has passed is therefore never taken for what should have happened.

Rooms whose tests are coroutines import `pytest_pyfunc_call` in their conftest; each test then also checks that it left
no task behind and that nothing failed unseen.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

PATIENCE = 1.0  # virtual seconds
MOMENT = 1e-6
END_OF_TIME = 1e7

Value = TypeVar("Value")


class _Jumping(selectors.DefaultSelector):
    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if not events and timeout is None:
            raise RuntimeError("everybody waits, and nothing is left that could happen")
        if not events and timeout:
            self.loop.jump(timeout)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    is_aside = False  # while something is done that would be done in a thread

    def __init__(self) -> None:
        self._time = 1000.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._time

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once, and here: no thread has a time of its own."""
        done: asyncio.Future[Any] = self.create_future()
        VirtualTimeLoop.is_aside = True
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        finally:
            VirtualTimeLoop.is_aside = False
        try:
            return done
        finally:
            del done  # or this frame and an error would hold each other

    def jump(self, seconds: float) -> None:
        self._time += seconds
        if self._time > END_OF_TIME:
            raise RuntimeError("only timers that wind themselves up again are left")


class FakeClock:
    """`core.clock.Clock` by the time of the running virtual loop. The wall clock may be `ahead` of it: as one that was
    set, or on Linux after the machine slept."""

    ahead = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_800_000_000 + self.now() + self.ahead

    def call_later(self, seconds: float, then: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, then)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)

    async def advance(self, seconds: float) -> None:
        """Let this time pass, and everything happen that comes of it."""
        await asyncio.sleep(seconds)
        await settle()

    async def sleep_through(self, seconds: float) -> None:
        """As a laptop that is shut for so long: what should have happened meanwhile happens once, after it."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.jump(seconds)
        await settle()


async def settle() -> None:
    """Let everything happen that can happen without time."""
    await asyncio.sleep(MOMENT)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Inside, what comes `soon` may need so much time: where a timeout is part of what is tested."""
    global PATIENCE
    before, PATIENCE = PATIENCE, seconds
    try:
        yield
    finally:
        PATIENCE = before


async def soon(what: Awaitable[Value]) -> Value:
    """What comes without any timeout's help. Raises `TimeoutError` where it does not."""
    async with asyncio.timeout(PATIENCE):
        return await what


def complain(message: str, error: BaseException | None = None) -> None:
    """Fail the running test at its end, from a place where raising would fall on the gateway."""
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


def play(test: Coroutine[Any, Any, None]) -> None:
    """Run one test in virtual time."""
    complaints: list[str] = []

    def heard(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        complaints.append(f"{context['message']}: {context.get('exception')!r}")

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(heard)
        await test
        await settle()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        try:
            runner.run(whole())
        except BaseException as error:
            for complaint in complaints:
                error.add_note(f"Complaint: {complaint}")
            raise
        gc.collect(1)  # exceptions that nobody looked at are told when their task goes
    assert not complaints, "\n".join(complaints)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    play(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
