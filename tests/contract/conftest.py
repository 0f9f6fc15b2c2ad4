"""What several implementations promise alike, each suite over all of them. Tests that are coroutines run in a loop of
their own, in real time: threads and files know no other."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

BOUND = 60.0  # seconds; far more than any of it takes


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    seen: list[Any] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: seen.append(context))
        async with asyncio.timeout(BOUND):
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})

    asyncio.run(bounded())
    assert not seen
    return True
