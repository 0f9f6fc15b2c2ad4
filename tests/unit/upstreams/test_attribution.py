"""Whose question is it?"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtualtime import FakeClock

from toolgate.core import mcp
from toolgate.core.exchange import Exchange
from toolgate.core.model import Asker, Call, Client, Principal
from toolgate.upstreams.mcp import attribution
from toolgate.upstreams.mcp.attribution import LOOKED_AT, Askers, OpenRequest, RunningTasks, heir_of, owner_of

EXCHANGE = Exchange(Asker("upstream", "there"), FakeClock())
OWN = OpenRequest(EXCHANGE, None)


def of(principal: str, session: str = "") -> OpenRequest:
    return OpenRequest(EXCHANGE, Call("tools/call", "t", Client(Principal(principal), session)))


def owner(origin: int | None, in_flight: dict[int, OpenRequest], *given_up: OpenRequest) -> OpenRequest | None:
    return owner_of(origin, in_flight, Askers(in_flight), Askers(dict(enumerate(given_up))), RunningTasks(FakeClock()))


def test_a_question_on_a_requests_own_stream_is_its_own() -> None:
    ada, bob = of("ada"), of("bob")
    assert owner(2, {1: ada, 2: bob}) is bob
    assert owner(3, {1: ada, 2: bob}) is None


def test_a_question_on_a_shared_pipe_is_the_newest_calls_of_the_only_client() -> None:
    first, second = of("ada", "s"), of("ada", "s")
    assert owner(None, {1: first, 2: second}) is second


def test_a_question_is_nobodys_where_two_principals_call() -> None:
    assert owner(None, {1: of("ada"), 2: of("bob")}) is None


def test_a_question_is_nobodys_where_two_sessions_of_one_principal_call() -> None:
    assert owner(None, {1: of("ada", "one"), 2: of("ada", "two")}) is None


def test_the_gateways_own_requests_are_not_counted() -> None:
    ada = of("ada")
    assert owner(None, {1: OWN, 2: ada, 3: OWN}) is ada
    assert owner(None, {1: OWN}) is None


def test_a_question_while_nothing_is_in_flight_is_nobodys() -> None:
    assert owner(None, {}) is None


def test_a_question_may_be_of_a_call_that_was_just_given_up() -> None:
    ada, bob = of("ada"), of("bob")
    assert owner(None, {1: ada}, of("ada")) is ada
    assert owner(None, {1: ada}, bob) is None
    assert owner(None, {}, ada) is None
    assert owner(1, {1: ada}, bob) is ada


def test_a_question_passes_on_to_the_same_clients_newest_other_call() -> None:
    first, second, own = of("ada"), of("ada"), OpenRequest(EXCHANGE, None)
    assert first.call
    in_flight = {1: of("bob"), 2: first, 3: second, 4: own, 5: of("ada", "other")}
    assert heir_of(first.call, Askers(in_flight)) is second
    assert heir_of(first.call, Askers({1: of("bob"), 2: own})) is None


def test_a_call_that_was_given_up_a_moment_ago_still_counts() -> None:
    ada, bob = of("ada"), of("bob")
    assert owner(None, {2: bob}, ada) is None
    assert owner(None, {2: bob}, of("bob")) is bob
    assert owner(2, {2: bob}, ada) is bob


def test_a_question_is_never_that_of_a_call_that_was_given_up() -> None:
    assert owner(None, {}, of("ada")) is None


def test_a_question_is_taken_over_by_the_same_clients_newest_other_call() -> None:
    first, second, bob, other = of("ada", "s"), of("ada", "s"), of("bob"), of("ada", "t")
    assert first.call
    assert heir_of(first.call, Askers({1: OWN, 2: second, 3: bob, 4: other})) is second
    assert heir_of(first.call, Askers({1: OWN, 3: bob, 4: other})) is None


WHOSE = st.sampled_from((("ada", ""), ("ada", "s"), ("bob", "")))
METHODS = st.sampled_from(("tools/call", "tools/call", mcp.TASK_RESULT, *sorted(mcp.TASK_LOOKS)))
REQUESTS = st.one_of(st.none(), st.tuples(WHOSE, METHODS))


@given(st.lists(st.one_of(REQUESTS, st.integers(0, 20), st.just("?")), max_size=40), st.integers(0, 5))
def test_whose_the_requests_are_is_known_whatever_has_begun_and_ended(steps: list[Any], few: int) -> None:
    requests = dict[int, OpenRequest]()
    with patch("toolgate.upstreams.mcp.attribution.LEAST_KNOWN", few):
        askers = Askers(requests)
        for id, step in enumerate([*steps, "?"]):
            if step == "?":
                check_against_all(askers, requests)
            elif isinstance(step, int):
                requests.pop(step, None)
            else:
                call = step and Call(step[1], "task", Client(Principal(step[0][0]), step[0][1]))
                requests[id] = OpenRequest(EXCHANGE, call)


def check_against_all(askers: Askers, requests: dict[int, OpenRequest]) -> None:
    ours = {id: each for id, each in requests.items() if each.call}
    first = {id: each for id, each in ours.items() if each.call and each.call.method == "tools/call"}
    waiting = {id: each for id, each in ours.items() if each.call and each.call.method == mcp.TASK_RESULT}
    asking = first or waiting
    identities = {each.call.client.identity for each in asking.values() if each.call}
    whose = askers.whose()
    assert len(whose) == min(len(identities), 2)
    assert identities.issuperset(whose)
    assert list(askers.by_id()) == list(asking)
    assert (askers.waiting_for("task") is None) is (not waiting)
    for identity in (("ada", ""), ("ada", "s"), ("bob", "")):
        of_it = [each for each in asking.values() if each.call and each.call.client.identity == identity]
        assert list(map(id, askers.all(identity))) == list(map(id, of_it))
        assert askers.newest(identity) is (of_it[-1] if of_it else None)
    owner = owner_of(None, requests, askers, Askers({}), RunningTasks(FakeClock()))
    assert owner is (list(asking.values())[-1] if len(identities) == 1 else None)


# Tasks that run.


def client(principal: str, session: str = "s") -> Client:
    return Client(Principal(principal), session)


async def test_while_a_task_of_another_client_runs_nothing_is_certain() -> None:
    clock = FakeClock()
    running, in_flight = RunningTasks(clock), {1: of("bob", "s")}

    def bobs() -> bool:
        return owner_of(None, in_flight, Askers(in_flight), Askers({}), running) is in_flight[1]

    running.add("own", client("bob"), 100)
    assert bobs()
    running.add("ann's", client("ann"), 100)
    assert not bobs() and running.of_others(("bob", "s")) == ["ann's"]
    assert owner_of(1, in_flight, Askers(in_flight), Askers({}), running) is in_flight[1]
    running.over("ann's")
    assert bobs()
    running.add("of another session", client("bob", "other"), 100)
    assert not bobs()
    assert running.to_look_at("of another session") == client("bob", "other")
    running.lost("of another session")
    assert not bobs() and running.to_look_at("of another session") is None
    await clock.advance(100)
    assert bobs()


async def test_of_very_many_tasks_some_are_known_and_there_is_no_doubt_that_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attribution, "MOST_RUNNING", 20)
    clock = FakeClock()
    running = RunningTasks(clock)
    for number in range(30):
        running.add(str(number), client("ann"), 100)
    assert running.of_others(("bob", "s")) == [str(number) for number in range(LOOKED_AT)]
    for number in range(30):
        running.over(str(number))
    assert running.of_others(("bob", "s")) == []
    await clock.advance(100)
    assert running.of_others(("bob", "s")) is None
