"""One client fills the places of requests that an operator is to decide on, or has decided on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from virtualtime import FakeClock, settle

from toolgate.auth import safe_text
from toolgate.frontends.web import decisions
from toolgate.policy.approvals import LOOKED, MOST_REQUESTS, MOST_UNDECIDED, Approvals, Place, Shown, TooMany
from toolgate.state.memory import MemoryStore

TTL = 900.0


def place(principal: str) -> Place:
    return Place(principal, "there", "", "tools", "act")


async def nothing() -> Shown:
    return {"shown": "{}"}


class Book(Approvals):
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        super().__init__(self.store, self.clock)

    async def asked(self, principal: str, digest: object, ttl: float = TTL) -> None:
        await self.ask(place(principal), str(digest), ttl, nothing)
        await self.clock.sleep(0.001)

    async def decided(self, principal: str, count: int, how: str) -> None:
        for digest in range(count):
            await self.asked(principal, digest)
            found = self.find(place(principal), str(digest))
            assert found
            await (self.deny(found, TTL) if how == "denied" else self.allow(found, "once", TTL))

    def states(self, principal: str) -> list[str]:
        return [each.state for each in self.requests() if each.place.principal == principal]


async def test_a_request_whose_call_is_given_up_while_it_is_written_is_heard_of() -> None:
    told: list[str] = []
    clock = FakeClock()
    store = MemoryStore(clock)
    book = Approvals(store, clock, lambda request: told.append(request.digest))
    write, may_write = store.compare_and_set, asyncio.Event()

    async def slow(*given: Any) -> bool:
        await may_write.wait()
        return await write(*given)

    store.compare_and_set = slow  # type: ignore[method-assign]
    asking = asyncio.ensure_future(book.ask(place("ann"), "digest", TTL, nothing))
    await settle()
    asking.cancel()
    await settle()
    may_write.set()
    await settle()
    assert asking.cancelled() and told == ["digest"]
    assert await book.ask(place("ann"), "digest", TTL, nothing) == book.requests()[0]
    assert told == ["digest"]


async def test_who_is_refused_again_and_again_has_all_requests_read_once_in_a_while() -> None:
    book = Book()
    store = book.store
    for digest in range(MOST_UNDECIDED):
        await book.asked("mallory", digest)
    reads, items = list[str](), store.items

    def counted(space: str) -> Any:
        reads.append(space)
        return items(space)

    store.items = counted  # type: ignore[method-assign]
    for digest in range(100):
        with pytest.raises(TooMany):
            await book.ask(place("mallory"), f"more {digest}", TTL, nothing)
    assert len(reads) <= 1
    elsewhere = Approvals(store, book.clock)
    await elsewhere.deny(elsewhere.requests()[0], TTL)  # by the command line
    await book.clock.sleep(LOOKED)
    await book.asked("mallory", "there is room again")
    await book.allow(book.requests()[-1], "once", TTL)
    await book.asked("mallory", "at once, where it was decided here")


@pytest.mark.parametrize("how", ["denied", "allowed"])
async def test_what_was_decided_of_one_keeps_nobody_else_from_asking(how: str) -> None:
    book = Book()
    await book.decided("mallory", MOST_REQUESTS, how)
    for digest in range(MOST_UNDECIDED):
        await book.asked("ann", digest)
    assert book.states("ann") == ["undecided"] * MOST_UNDECIDED
    assert book.states("mallory") == [how] * (MOST_REQUESTS - MOST_UNDECIDED)
    assert not book.find(place("mallory"), "0") and book.find(place("mallory"), str(MOST_UNDECIDED))
    with pytest.raises(TooMany):
        await book.asked("ann", "one more")


async def test_nobody_makes_room_for_what_was_denied_to_it() -> None:
    book = Book()
    await book.decided("mallory", MOST_REQUESTS, "denied")
    with pytest.raises(TooMany):
        await book.asked("mallory", "another")
    await book.asked("ann", 0)  # the oldest gives way
    for _ in range(2):
        with pytest.raises(TooMany):
            await book.asked("mallory", 0)
    assert book.states("mallory") == ["denied"] * (MOST_REQUESTS - 1)


async def test_two_make_no_room_for_each_other() -> None:
    book = Book()
    for whose in ("mallory", "her friend"):
        await book.decided(whose, MOST_REQUESTS // 2, "denied")
    for whose in ("mallory", "her friend"):
        with pytest.raises(TooMany):
            await book.asked(whose, "another")


async def test_of_whoever_has_few_nothing_gives_way_and_what_is_undecided_stays() -> None:
    book = Book()
    await book.decided("ann", 3, "allowed")
    await book.decided("mallory", MOST_REQUESTS - 3 - MOST_UNDECIDED, "denied")
    for digest in range(MOST_UNDECIDED):
        await book.asked("mallory", f"undecided {digest}")
    for digest in range(5):
        await book.asked("bob", digest)
    assert book.states("ann") == ["allowed"] * 3
    assert book.states("mallory").count("undecided") == MOST_UNDECIDED
    assert len(book.requests()) == MOST_REQUESTS


async def test_no_list_writes_out_what_a_call_is_decided_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_text, "read", lambda _: pytest.fail("it is read"))
    book = Book()
    for digest in range(MOST_UNDECIDED):
        await book.asked("ann", digest)
    listed = decisions.waiting(SimpleNamespace(approvals=book))  # type: ignore[arg-type]
    assert len(listed.requests) == MOST_UNDECIDED
    assert all(not hasattr(each, "arguments") and each.target == "act" for each in listed.requests)
