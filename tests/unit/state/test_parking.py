"""Work that waits while a modern client gathers answers: it is found once, joined, bounded, and always ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle, soon

from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Asker, Principal
from toolgate.core.notes import Note, Notes
from toolgate.state import parking as module
from toolgate.state.parking import MOST_BYTES, MOST_JOINED, ParkedCall, Parking

ANN, BOB = Principal("ann"), Principal("bob")


class Work(Exchange):
    """Parked work, and whether it was cancelled."""

    is_cancelled: bool = False


def working() -> Work:
    def cancelled(_reason: str) -> None:
        made.is_cancelled = True

    made = Work(Asker("upstream", "x"), FakeClock(), on_cancel=cancelled)
    return made


class Slow:
    """A round's work that ends when it is told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.runs += 1
        return await self.end


def parked(parking: Parking, principal: Principal = ANN) -> tuple[ParkedCall, Work]:
    made = working()
    flow = parking.hold(made, None, principal)
    parking.park(flow)
    return flow, made


# Found and finished.


async def test_a_flow_is_found_by_its_id_and_round_until_it_is_finished() -> None:
    parking = Parking(FakeClock())
    flow, work = parked(parking)
    assert parking.find(flow.id, 1) is flow
    assert parking.find(flow.id, 1) is flow
    parking.finished(flow)
    with pytest.raises(Fault) as caught:
        parking.find(flow.id, 1)
    assert caught.value.code == "INVALID_STATE"
    assert len(parking) == 0
    assert not work.is_cancelled


async def test_another_round_or_id_is_not_found() -> None:
    parking = Parking(FakeClock())
    flow, _ = parked(parking)
    for id, round in ((flow.id, 0), (flow.id, 2), ("", 1), (flow.id + "x", 1)):
        with pytest.raises(Fault):
            parking.find(id, round)
    parking.ask_again(flow, flow.resume)
    assert parking.find(flow.id, 2) is flow
    with pytest.raises(Fault):
        parking.find(flow.id, 1)
    parking.close()


async def test_ids_cannot_be_guessed_from_each_other() -> None:
    parking = Parking(FakeClock())
    ids = {parked(parking)[0].id for _ in range(50)}
    assert len(ids) == 50
    assert min(map(len, ids)) >= 20
    parking.close()


# Time.


@pytest.mark.promise("spec.2026.mrtr.no-retry")
async def test_parked_work_is_cancelled_when_its_time_is_over() -> None:
    clock = FakeClock()
    parking = Parking(clock, ttl=100)
    _, work = parked(parking)
    await clock.advance(99)
    assert not work.is_cancelled
    await clock.advance(2)
    assert work.is_cancelled
    assert len(parking) == 0


async def test_its_time_begins_anew_in_each_round() -> None:
    clock = FakeClock()
    parking = Parking(clock, ttl=100)
    flow, work = parked(parking)
    for _ in range(3):
        await clock.advance(90)
        parking.ask_again(flow, work)
        parking.park(flow)
    assert not work.is_cancelled
    await clock.advance(101)
    assert work.is_cancelled


async def test_its_time_does_not_run_while_a_round_does() -> None:
    clock = FakeClock()
    parking = Parking(clock, ttl=100)
    flow, work = parked(parking)
    slow = Slow()
    leg = asyncio.ensure_future(parking.run_round(flow, slow))
    await clock.advance(1000)
    assert not work.is_cancelled
    slow.end.set_result("done")
    assert await soon(leg) == "done"
    parking.finished(flow)


async def test_what_nobody_says_was_delivered_ends_all_the_same() -> None:
    clock = FakeClock()
    parking = Parking(clock, ttl=100)
    held = working()
    parking.hold(held, None, ANN)
    flow, work = parked(parking)
    slow = Slow()
    slow.end.set_result("done")
    await parking.run_round(flow, slow)
    await clock.advance(101)
    assert held.is_cancelled and work.is_cancelled
    assert len(parking) == 0


async def test_closing_cancels_everything() -> None:
    parking = Parking(FakeClock())
    works = [parked(parking)[1] for _ in range(3)]
    parking.close()
    assert all(work.is_cancelled for work in works)
    assert len(parking) == 0


# Caps.


async def test_beyond_its_cap_an_owners_least_recently_used_work_goes() -> None:
    parking = Parking(FakeClock(), per_owner=2)
    _, bobs = parked(parking, BOB)
    first, one = parked(parking)
    _, two = parked(parking)
    parking.ask_again(first, one)
    parking.park(first)
    _, three = parked(parking)
    assert [work.is_cancelled for work in (bobs, one, two, three)] == [False, False, True, False]
    parking.close()


async def test_beyond_the_cap_of_all_the_least_recently_used_work_goes() -> None:
    parking = Parking(FakeClock(), most=2)
    works = [parked(parking, Principal(name))[1] for name in "abc"]
    assert [work.is_cancelled for work in works] == [True, False, False]
    assert len(parking) == 2
    parking.close()


async def test_beyond_the_cap_of_all_whoever_has_most_gives_way_from_however_many_addresses() -> None:
    parking = Parking(FakeClock(), per_owner=2, most=3)
    _, bobs = parked(parking, Principal("bob", "192.0.2.1", client="bob"))
    works = [parked(parking, Principal("m", f"192.0.2.{n}", client="m"))[1] for n in range(2, 9)]
    assert not bobs.is_cancelled
    assert [work.is_cancelled for work in works] == [True] * 5 + [False] * 2
    _, cids = parked(parking, Principal("cid", "192.0.2.1", client="cid"))
    assert (bobs.is_cancelled, cids.is_cancelled) == (False, False)
    parking.close()


async def test_anonymous_clients_are_told_apart_by_their_address() -> None:
    parking = Parking(FakeClock(), per_owner=1)
    _, here = parked(parking, Principal("local", "192.0.2.1"))
    _, there = parked(parking, Principal("local", "192.0.2.2"))
    assert not here.is_cancelled
    _, again = parked(parking, Principal("local", "192.0.2.1"))
    assert [work.is_cancelled for work in (here, there, again)] == [True, False, False]
    parking.close()


# Rounds.


async def test_the_same_round_twice_is_one_round() -> None:
    parking = Parking(FakeClock())
    flow, _ = parked(parking)
    slow = Slow()
    legs = [asyncio.ensure_future(parking.run_round(flow, slow)) for _ in range(3)]
    await settle()
    slow.end.set_result("done")
    assert await asyncio.gather(*legs) == ["done"] * 3
    assert slow.runs == 1
    assert await parking.run_round(flow, slow) == "done"  # not flushed yet: still joined
    parking.finished(flow)


async def test_so_many_may_wait_for_one_round_and_the_next_is_refused() -> None:
    """4,000 retries with one state were answered in one step, while others waited for a second."""
    parking = Parking(FakeClock())
    flow, _ = parked(parking)
    slow = Slow()
    legs = [asyncio.ensure_future(parking.run_round(flow, slow)) for _ in range(MOST_JOINED + 100)]
    await settle()
    slow.end.set_result("done")
    replies = await asyncio.gather(*legs, return_exceptions=True)
    assert replies[:MOST_JOINED] == ["done"] * MOST_JOINED
    assert {each.code for each in replies[MOST_JOINED:] if isinstance(each, Fault)} == {"RATE_LIMITED"}
    parking.finished(flow)


async def test_a_round_goes_on_as_long_as_one_waits_for_it() -> None:
    parking = Parking(FakeClock())
    flow, work = parked(parking)
    slow = Slow()
    stays, leaves = (asyncio.ensure_future(parking.run_round(flow, slow)) for _ in "ab")
    await settle()
    leaves.cancel()
    await settle()
    assert not work.is_cancelled
    slow.end.set_result("done")
    assert await soon(stays) == "done"
    parking.finished(flow)


async def test_a_round_that_nobody_waits_for_is_cancelled_with_its_work() -> None:
    parking = Parking(FakeClock())
    flow, work = parked(parking)
    slow = Slow()
    legs = [asyncio.ensure_future(parking.run_round(flow, slow)) for _ in "ab"]
    await settle()
    for leg in legs:
        leg.cancel()
    await settle()
    assert work.is_cancelled
    assert slow.end.cancelled()
    assert len(parking) == 0


async def test_whoever_waits_for_a_round_that_is_dropped_is_told() -> None:
    parking = Parking(FakeClock())
    flow, work = parked(parking)
    leg = asyncio.ensure_future(parking.run_round(flow, Slow()))
    await settle()
    parking.drop(flow)
    with pytest.raises(Fault) as caught:
        await soon(leg)
    assert caught.value.code == "SESSION_ERROR"
    assert work.is_cancelled


async def test_a_round_that_fails_fails_for_all_who_wait() -> None:
    async def fails() -> str:
        await asyncio.sleep(0)
        raise Fault("TIMEOUT", "too long")

    parking = Parking(FakeClock())
    flow, _ = parked(parking)
    legs = [asyncio.ensure_future(parking.run_round(flow, fails)) for _ in "ab"]
    for leg in legs:
        with pytest.raises(Fault, match="too long"):
            await leg
    parking.close()


async def test_parking_while_a_round_runs_changes_nothing() -> None:
    """A quick retry may be faster than our own flush."""
    clock = FakeClock()
    parking = Parking(clock, ttl=100)
    flow = parking.hold(working(), None, ANN)
    slow = Slow()
    leg = asyncio.ensure_future(parking.run_round(flow, slow))
    await settle()
    parking.park(flow)
    await clock.advance(200)
    slow.end.set_result("done")
    assert await soon(leg) == "done"
    parking.finished(flow)


# Notes.


async def test_notes_are_kept_while_parked() -> None:
    heard: list[Any] = []
    notes = Notes(lambda note: heard.append(("first", note)))
    parking = Parking(FakeClock())
    flow = parking.hold(working(), notes, ANN)
    progress = [Note("progress", Raw(b'{"progress":%d}' % number)) for number in range(3)]
    notes.put(progress[0])
    parking.park(flow)
    notes.put(progress[1])
    notes.put(progress[2])
    assert heard == [("first", progress[0])]
    notes.attach(lambda note: heard.append(("second", note)))
    assert heard[1:] == [("second", progress[2])]
    parking.close()


# Rounds behind which nothing is parked.


async def test_such_a_round_is_answered_once() -> None:
    parking = Parking(FakeClock())
    slow = Slow()
    legs = [asyncio.ensure_future(parking.once(b"r", slow)) for _ in "ab"]
    await settle()
    slow.end.set_result("done")
    assert await asyncio.gather(*legs) == ["done", "done"]
    assert slow.runs == 1
    with pytest.raises(Fault) as caught:
        await parking.once(b"r", slow)
    assert caught.value.code == "INVALID_STATE"


async def test_such_a_round_is_spent_by_a_failure_too() -> None:
    async def fails() -> str:
        raise Fault("SERVER_FAILED", "gone")

    parking = Parking(FakeClock())
    with pytest.raises(Fault, match="gone"):
        await parking.once(b"r", fails)
    with pytest.raises(Fault, match="no longer valid"):
        await parking.once(b"r", fails)


async def test_such_a_round_that_nobody_waits_for_is_cancelled() -> None:
    parking = Parking(FakeClock())
    slow = Slow()
    leg = asyncio.ensure_future(parking.once(b"r", slow))
    await settle()
    leg.cancel()
    await settle()
    assert slow.end.cancelled()


async def test_rounds_are_remembered_for_as_long_as_their_state_is_good() -> None:
    clock = FakeClock()
    parking = Parking(clock, ttl=100)
    for number in range(10):
        slow = Slow()
        slow.end.set_result("done")
        await parking.once(b"%d" % number, slow)
        await clock.advance(50)
    assert len(parking._rounds) <= 3


async def test_not_more_rounds_are_remembered_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 5)
    parking = Parking(FakeClock())
    for number in range(20):
        slow = Slow()
        slow.end.set_result("done")
        await parking.once(b"%d" % number, slow)
    await settle()
    assert len(parking._rounds) <= 5


@pytest.mark.promise("b.attacks.unanswered")
async def test_parked_calls_that_keep_much_give_way() -> None:
    parking = Parking(FakeClock())
    small = working()
    parking.hold(small, None, BOB, 10)
    held = [working() for _ in range(5)]
    for each in held:
        parking.hold(each, None, ANN, MOST_BYTES // 4)
    assert [each.is_cancelled for each in held] == [True, False, False, False, False]
    assert not small.is_cancelled
