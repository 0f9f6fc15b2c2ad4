"""When tools are compared with their pins that were shown already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle

from toolgate.catalog import reviews
from toolgate.catalog.pins import Pins
from toolgate.catalog.reviews import AFTER, PATIENCE, Reviews
from toolgate.core.steps import InSteps
from toolgate.upstreams.bounds import Bounds

Fetches = list["asyncio.Task[Any]"]


class Judge(Pins):
    """Says what was judged, in order."""

    def __init__(self) -> None:
        self.judged: list[tuple[str, str, str]] = []

    def read(self, server: str, tools: Mapping[str, Raw]) -> InSteps[None]:
        if "unreadable" in tools:
            raise ValueError("unreadable")
        yield

    def judge(self, server: str, scope: str, tools: Mapping[str, Raw], whose: str = "") -> None:
        self.judged.append((server, scope, " ".join(tools)))


def made(fetches: Fetches | None = None) -> tuple[Reviews, Judge]:
    judge = Judge()
    return Reviews(judge, Bounds(), FakeClock(), lambda: [each for each in fetches or [] if not each.done()]), judge


def tools(*names: str) -> dict[str, Raw]:
    return {name: Raw(b"{}") for name in names}


async def test_a_list_is_looked_at_a_moment_after_it_was_shown() -> None:
    later, judge = made()
    later.add(("there", ""), tools("read"), "me")
    await settle()
    assert judge.judged == []
    await FakeClock().advance(AFTER)
    assert judge.judged == [("there", "", "read")]
    later.add(("there", "me"), tools("write"), "me")
    await FakeClock().advance(AFTER)
    assert judge.judged[1:] == [("there", "me", "write")]
    await later.close()


async def test_every_list_is_looked_at_in_its_order_and_who_lists_faster_waits() -> None:
    later, judge = made()
    for name in ("first", "second", "third", "last"):
        await later.made_room(("there", ""))
        later.add(("there", ""), tools(name), "me")
    assert [each[2] for each in judge.judged] == ["first", "second"]
    later.add(("other", ""), tools("else"), "me")
    await later.done()
    assert judge.judged[2:] == [("there", "", "third"), ("other", "", "else"), ("there", "", "last")]
    await later.close()
    assert len(judge.judged) == 5


async def test_the_same_list_that_is_shown_again_is_looked_at_once() -> None:
    later, judge = made()
    again = tools("read")
    for _ in range(3):
        later.add(("there", ""), again, "me")
    await later.close()
    assert len(judge.judged) == 1


async def test_a_server_that_lists_without_end_keeps_no_other_from_being_looked_at() -> None:
    later, judge = made()
    later.add(("loud", ""), tools("first"), "me")
    later.add(("quiet", ""), tools("evil"), "me")
    for number in range(5):
        await later.made_room(("loud", ""))
        later.add(("loud", ""), tools(f"loud-{number}"), "me")
    assert ("quiet", "", "evil") in judge.judged[:3]
    await later.close()


async def test_what_is_fetched_goes_first_for_a_second_at_most() -> None:
    over, never = asyncio.Event(), asyncio.Event()
    fetches: Fetches = [asyncio.ensure_future(over.wait())]
    later, judge = made(fetches)
    later.add(("there", ""), tools("read"), "me")
    await FakeClock().advance(PATIENCE / 2)
    assert judge.judged == []
    over.set()
    await settle()
    assert len(judge.judged) == 1
    fetches[:] = [asyncio.ensure_future(never.wait())]
    later.add(("there", ""), tools("write"), "me")
    await FakeClock().advance(AFTER + PATIENCE)
    assert len(judge.judged) == 2
    never.set()
    await settle()
    await later.close()


async def test_a_list_that_cannot_be_looked_at_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    later, judge = made()
    later.add(("bad", ""), tools("unreadable"), "me")
    later.add(("there", ""), tools("read"), "me")
    await FakeClock().advance(AFTER)
    assert judge.judged == [("there", "", "read")]
    assert "Tools of bad could not be compared with their pins" in caplog.text
    await later.close()


async def test_what_was_shown_last_is_looked_at_before_the_end() -> None:
    later, judge = made()
    later.add(("there", ""), tools("read"), "me")
    await later.close()
    assert judge.judged == [("there", "", "read")]
    await FakeClock().advance(AFTER)
    assert len(judge.judged) == 1


async def test_the_end_waits_for_a_server_that_takes_long_to_be_looked_at_only_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(self: Bounds, *_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Bounds, "looked_through", never)
    later, _ = made()
    later.add(("there", ""), tools("read"), "me")
    began = FakeClock().now()
    await later.close()
    assert FakeClock().now() - began <= reviews.LAST + 0.1


async def test_where_many_wait_who_fetches_more_waits_for_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "MOST_WAITING", 2)
    later, judge = made()
    for place in range(3):
        await later.made_room((f"server-{place}", ""))
        later.add((f"server-{place}", ""), tools("read"), "me")
        assert judge.judged == []
    await later.made_room(("another", ""))
    assert len(judge.judged) == 3
    await later.close()
