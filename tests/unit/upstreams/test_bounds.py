"""How what servers say of themselves is looked at: what is little at once, else in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest
from processes.ground import real

from toolgate.upstreams import bounds
from toolgate.upstreams.bounds import FEW, LITTLE, Bounds


def steps(seen: list[bool]) -> Generator[None, None, str]:
    """Whether each is done in the thread of the event loop."""
    for _ in range(5):
        seen.append(threading.current_thread() is threading.main_thread())
        yield
    return "all"


@pytest.mark.parametrize(
    "size, longest, is_here",
    [
        (LITTLE, None, True),
        (FEW, LITTLE, True),
        (FEW, LITTLE + 1, False),
        (FEW + 1, LITTLE, False),
        (LITTLE + 1, None, False),
    ],
)
@real
async def test_few_little_things_need_no_thread(
    size: int, longest: int | None, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOMENT", 60.0)
    seen: list[bool] = []
    assert await Bounds().looked_through("one", size, steps(seen), longest) == "all"
    assert seen == [is_here] * 5


@real
async def test_what_takes_longer_than_a_moment_goes_on_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOMENT", -1.0)
    seen: list[bool] = []
    assert await Bounds().looked_through("one", FEW, steps(seen), LITTLE) == "all"
    assert seen == [True, False, False, False, False]


@pytest.mark.parametrize("size, is_here", [(LITTLE, True), (LITTLE + 1, False)])
@real
async def test_one_look_is_in_a_thread_unless_it_is_little(size: int, is_here: bool) -> None:
    def look() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await Bounds().looked_at("one", size, look) is is_here
    assert await Bounds().looked_at("one", size, look, FEW)


@real
async def test_answers_to_calls_wait_for_no_list() -> None:
    there, goes_on = Bounds(), threading.Event()
    listed = asyncio.ensure_future(there.looked_at("wild", LITTLE + 1, lambda: goes_on.wait(30)))
    try:
        async with asyncio.timeout(10):
            assert await there.answers.looked_at("ann", LITTLE + 1, lambda: "found") == "found"
            assert await there.answers.looked_through("ann", FEW + 1, steps([])) == "all"
        assert not listed.done()
    finally:
        goes_on.set()
        assert await listed
