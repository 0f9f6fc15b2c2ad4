"""Taking turns: a queue by key, and which request is started next."""

from __future__ import annotations

import asyncio

import pytest
from virtualtime import FakeClock, settle

from toolgate.core import fairness
from toolgate.core.fairness import ByUse, RoundRobin, Shares, giving_way
from toolgate.core.model import Principal
from toolgate.frontends import scheduling
from toolgate.frontends.scheduling import Callers, Scheduler


def queue(*items: str) -> RoundRobin[str]:
    """Each item is of the key that its first letter is."""
    found: RoundRobin[str] = RoundRobin()
    for item in items:
        found.put(item[0], item)
    return found


def order(of: RoundRobin[str]) -> list[str]:
    found: list[str] = []
    while item := of.pop():
        found.append(item)
    return found


@pytest.mark.promise("b.fair.turns")
async def test_keys_take_turns_and_each_keeps_its_own_order() -> None:
    assert order(queue("a1", "a2", "a3", "b1", "c1", "b2")) == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_who_comes_anew_waits_for_one_other_turn_at_most_and_others_are_not_passed_over_twice() -> None:
    waiting = queue("a1", "a2", "a3", "a4")
    assert waiting.pop() == "a1"
    assert waiting.pop() == "a2"
    waiting.put("b", "b1")
    waiting.put("c", "c1")
    assert waiting.pop() == "b1"
    waiting.put("b", "b2")
    assert order(waiting) == ["a3", "c1", "b2", "a4"]


async def test_what_is_taken_out_is_not_counted_and_has_no_turn() -> None:
    waiting = queue("a1", "b1")
    assert waiting.remove("a", "a1") and not waiting.remove("a", "a1") and not waiting.remove("c", "c1")
    assert len(waiting) == 1
    assert order(waiting) == ["b1"]
    assert waiting.pop() is None


async def test_any_one_can_be_taken_out_whichever_it_is() -> None:
    for index in range(4):
        items = ["a1", "a2", "a3", "a4"]
        waiting, taken = queue(*items), items.pop(index)
        assert waiting.remove("a", taken) and not waiting.remove("a", taken)
        assert (len(waiting), order(waiting)) == (3, items)


async def test_who_may_not_go_keeps_the_place() -> None:
    waiting = queue("a1", "b1", "a2")
    assert waiting.pop(lambda key: key == "b") == "b1"
    assert waiting.pop(lambda key: key == "b") is None
    assert order(waiting) == ["a1", "a2"]


async def test_who_has_used_less_goes_before_who_has_used_more_and_that_is_forgotten() -> None:
    now = [100.0]
    waiting: ByUse[str] = ByUse(lambda: now[0])
    waiting.used("a", 1.0)
    waiting.used("b", 0.5)
    for item in ("a1", "b1", "a2", "c1", "b2", "c2"):
        waiting.put(item[0], item)
    assert order(waiting) == ["c1", "a1", "c2", "b1", "b2", "a2"]
    now[0] += 60
    waiting.used("c", 0.2)
    for item in ("c1", "a1"):
        waiting.put(item[0], item)
    assert order(waiting) == ["a1", "c1"]


async def test_where_all_have_used_the_same_they_take_turns() -> None:
    waiting: ByUse[str] = ByUse(lambda: 100.0)
    for item in ("a1", "a2", "b1", "b2"):
        waiting.put(item[0], item)
    found: list[str] = []
    while item := waiting.pop():
        found.append(item)
        waiting.used(item[0], 0.1)
    assert found == ["b1", "a1", "b2", "a2"] or found == ["a1", "b1", "a2", "b2"]


async def test_who_has_several_names_has_used_what_they_have_together() -> None:
    waiting: ByUse[str] = ByUse(lambda: 100.0)
    waiting.used("ann\nwild", 1.0)
    waiting.put("bob\nwild", "what bob wants of the wild one")
    waiting.put("cid\ngood", "what cid wants of the good one")
    assert order(waiting) == ["what cid wants of the good one", "what bob wants of the wild one"]


async def test_who_may_not_go_keeps_the_place_however_little_was_used() -> None:
    waiting: ByUse[str] = ByUse(lambda: 100.0)
    waiting.used("b", 1.0)
    waiting.put("a", "a1")
    waiting.put("b", "b1")
    assert waiting.pop(lambda key: key == "b") == "b1"
    assert waiting.pop(lambda key: key == "b") is None
    assert order(waiting) == ["a1"]


async def test_who_has_used_next_to_nothing_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "_MANY", 10)
    now = [100.0]
    waiting: ByUse[str] = ByUse(lambda: now[0])
    for number in range(100):
        now[0] += 1
        waiting.used(f"p{number}", 0.001)
    assert len(waiting._used) <= 11  # type: ignore[reportPrivateUsage]


class Requests:
    """Requests that are answered when the test says so."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(FakeClock())
        self.started: list[str] = []
        self.turns: dict[str, scheduling.Turn] = {}

    def come(self, *names: str) -> None:
        for name in names:
            if self.scheduler.lets_pass(name[0]):
                self.started.append(name)
            else:
                self.turns[name] = self.scheduler.start(name[0], lambda name=name: self.started.append(name))

    def answer(self, name: str) -> None:
        self.scheduler.ended(self.turns[name])

    async def answer_all(self) -> None:
        """Whatever is started, as soon as it is."""
        answered = 0
        while self.scheduler.waiting or answered < len(self.started):
            for name in self.started[answered:]:
                if name in self.turns:
                    self.answer(name)
            answered = len(self.started)
            await settle()


async def test_where_requests_take_long_one_is_started_in_a_round_although_a_principal_calls_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, passed, seen = Scheduler(FakeClock()), 0.0, list[int]()
    monkeypatch.setattr(scheduler._clock, "now", lambda: passed)  # type: ignore[reportPrivateUsage]
    for seconds in (0.01, 0.0):
        for _ in range(6):
            seen.append(0)
            while scheduler.lets_pass("a"):
                seen[-1] += 1
                passed += seconds
            await asyncio.sleep(0)
    assert seen == [16, 8, 4, 2, 1, 1, 1, 2, 4, 8, 16, 16]


@pytest.mark.promise("b.fair.turns")
async def test_a_principal_that_calls_alone_waits_for_nothing() -> None:
    requests = Requests()
    for _ in range(10):
        requests.come(*(f"a{number}" for number in range(scheduling.MOST_ALONE)))
        assert not requests.scheduler.waiting
        await settle()
    assert len(requests.started) == 10 * scheduling.MOST_ALONE


@pytest.mark.promise("b.fair.turns")
async def test_a_stranger_that_turns_out_to_be_a_principal_still_calls_alone_until_a_stranger_calls_again() -> None:
    requests = Requests()
    requests.come("s1", "s2")
    requests.scheduler.is_known("s", "a")
    for _ in range(3):
        requests.come(*(f"a{number}" for number in range(4)))
        assert not requests.scheduler.waiting and not requests.turns
        await settle()
    requests.come("s3")
    requests.scheduler.is_known("t", "a")  # who has called before somebody else did
    requests.come("a5")
    assert list(requests.turns) == ["s3", "a5"]
    await requests.answer_all()
    requests.scheduler.close()


async def test_of_300_requests_that_come_at_once_few_are_started_before_somebody_else_is_heard() -> None:
    requests = Requests()
    requests.come(*(f"a{number}" for number in range(300)))
    assert len(requests.started) == scheduling.MOST_ALONE
    requests.come("b")
    await settle()
    assert "b" in requests.started[: scheduling.MOST_ALONE + 2]
    await requests.answer_all()
    assert [name for name in requests.started if name[0] == "a"] == [f"a{number}" for number in range(300)]
    requests.scheduler.close()


@pytest.mark.promise("b.fair.turns")
async def test_behind_200_requests_of_one_principal_that_of_another_is_the_next() -> None:
    requests = Requests()
    requests.come("b0", *(f"a{number}" for number in range(200)))
    before = len(requests.started)
    requests.come("b1")
    await settle()
    assert "b1" in requests.started[before : before + 2]
    assert requests.scheduler.waiting > 190
    await requests.answer_all()
    assert [name for name in requests.started if name[0] == "a"] == [f"a{number}" for number in range(200)]
    requests.scheduler.close()


async def test_few_requests_that_were_just_started_are_under_way_at_once_and_an_answer_lets_the_next_go() -> None:
    requests = Requests()
    requests.come("b0", "a0", "a1", "a2", "a3")
    await settle()
    assert requests.started == ["b0", "a0", "a1"]
    requests.answer("a0")
    await settle()
    assert requests.started == ["b0", "a0", "a1", "a2"]
    requests.scheduler.close()
    assert requests.started[-1] == "a3"


async def test_requests_that_wait_for_their_server_keep_no_other_back() -> None:
    clock = FakeClock()
    requests = Requests()
    requests.come("b0", *(f"a{number}" for number in range(10)))
    for _ in range(10):
        await clock.advance(scheduling.FRESH)
    assert len(requests.started) == 11
    requests.scheduler.close()


@pytest.mark.promise("b.fair.refused")
async def test_who_is_refused_again_and_again_is_heard_no_sooner_than_it_may_call() -> None:
    clock = FakeClock()
    requests = Requests()
    for _ in range(int(scheduling.TOLERATED) + 1):
        requests.scheduler.refused("a", 0.05)
    requests.come("a1", "b1")
    await settle()
    assert requests.started == ["b1"]
    await clock.advance(0.06)
    assert requests.started == ["b1", "a1"]
    requests.scheduler.close()


@pytest.mark.promise("b.fair.refused")
async def test_who_is_refused_now_and_then_is_heard_at_once() -> None:
    clock = FakeClock()
    requests = Requests()
    for _ in range(100):
        requests.scheduler.refused("a", 60.0)
        await clock.advance(0.5)
    requests.come("a1")
    assert requests.started == ["a1"]
    requests.scheduler.close()


async def test_however_long_the_limit_lasts_it_is_heard_after_a_tenth_of_a_second() -> None:
    clock = FakeClock()
    requests = Requests()
    for _ in range(1000):
        requests.scheduler.refused("a", 3600.0)
    requests.come("a1")
    assert requests.started == []
    await clock.advance(scheduling.LONGEST + 2 * scheduling.FRESH)
    assert requests.started == ["a1"]
    requests.scheduler.close()


async def test_a_minute_after_the_other_has_gone_a_principal_is_alone_again() -> None:
    clock = FakeClock()
    requests = Requests()
    requests.come("a1", "b1")
    await clock.advance(3 * scheduling.MEMORY)
    requests.come("b2", "b3", "b4", "b5")
    assert requests.started == ["a1", "b1", "b2", "b3", "b4", "b5"]


async def test_what_comes_over_a_websocket_waits_for_its_turn_too() -> None:
    requests = Requests()
    requests.come("b0", *(f"a{number}" for number in range(10)))
    await requests.scheduler.turn("b")
    assert requests.scheduler.waiting > 5
    requests.scheduler.close()


async def test_a_request_is_of_whom_its_credential_let_in_before_and_else_of_its_address() -> None:
    callers = Callers()
    head = [(b"host", b"localhost"), (b"authorization", b"Bearer one")]
    assert callers.key(head, "local@127.0.0.1") == "local@127.0.0.1"
    callers.learn("Bearer one", Principal("client:ada", "127.0.0.1", client="ada", via="key"))
    assert callers.key(head, "local@127.0.0.1") == "client:ada"
    assert callers.key(head[:1], "local@127.0.0.1") == "local@127.0.0.1"
    callers.forget()
    assert callers.key(head, "local@127.0.0.1") == "local@127.0.0.1"


async def test_the_credentials_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "MOST_KNOWN", 10)
    callers = Callers()
    for number in range(1000):
        callers.learn(f"Bearer {number}", Principal(f"client:{number}", client=str(number)))
    assert len(callers._known) <= 10


# Who has the most.


async def test_who_has_the_most_is_known_whatever_comes_and_goes() -> None:
    shares: Shares[str] = Shares()
    assert (shares.most(), list(shares.greatest())) == (0, [])
    for item in ("a1", "b1", "b2", "a2", "c1"):
        shares.put(item[0], item, item)
    assert (shares.most(), list(shares.greatest())) == (2, ["b1", "b2", "a1", "a2"])
    shares.remove("b", "b1")
    assert (shares.most(), list(shares.greatest())) == (2, ["a1", "a2"])
    for item in ("a1", "a2", "b2"):
        shares.remove(item[0], item)
    assert (shares.most(), list(shares.greatest()), shares.count("a")) == (1, ["c1"], 0)
    shares.remove("c", "c1")
    assert not shares._of and not shares._sized


def test_beyond_the_most_whoever_has_most_gives_way_first_and_the_first_of_it() -> None:
    def gone(ids: str, most: int) -> str:
        return "".join(giving_way(ids, most, lambda id: "small" if id.islower() else "great"))

    assert gone("aABCDb", 6) == gone("", 0) == ""
    assert gone("aABCDb", 4) == "AB"
    assert gone("aABCDb", 2) == "ABaC"
    assert gone("abcABC", 0) == "aAbBcC"
