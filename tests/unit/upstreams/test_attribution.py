"""Whose question is it?"""

from __future__ import annotations

from virtualtime import FakeClock

from toolgate.core.exchange import Exchange
from toolgate.core.model import Asker, Call, Client, Principal
from toolgate.upstreams.mcp.attribution import OpenRequest, heir_of, owner_of, that_ask

EXCHANGE = Exchange(Asker("upstream", "there"), FakeClock())
OWN = OpenRequest(EXCHANGE, None)


def of(principal: str, session: str = "") -> OpenRequest:
    return OpenRequest(EXCHANGE, Call("tools/call", "t", Client(Principal(principal), session)))


def test_a_question_on_a_requests_own_stream_is_its_own() -> None:
    ada, bob = of("ada"), of("bob")
    assert owner_of(2, {1: ada, 2: bob}) is bob
    assert owner_of(3, {1: ada, 2: bob}) is None


def test_a_question_on_a_shared_pipe_is_the_newest_calls_of_the_only_client() -> None:
    first, second = of("ada", "s"), of("ada", "s")
    assert owner_of(None, {1: first, 2: second}) is second


def test_a_question_is_nobodys_where_two_principals_call() -> None:
    assert owner_of(None, {1: of("ada"), 2: of("bob")}) is None


def test_a_question_is_nobodys_where_two_sessions_of_one_principal_call() -> None:
    assert owner_of(None, {1: of("ada", "one"), 2: of("ada", "two")}) is None


def test_the_gateways_own_requests_are_not_counted() -> None:
    ada = of("ada")
    assert owner_of(None, {1: OWN, 2: ada, 3: OWN}) is ada
    assert owner_of(None, {1: OWN}) is None


def test_a_question_while_nothing_is_in_flight_is_nobodys() -> None:
    assert owner_of(None, {}) is None


def test_a_question_may_be_of_a_call_that_was_just_given_up() -> None:
    ada, bob = of("ada"), of("bob")
    assert owner_of(None, {1: ada}, [of("ada")]) is ada
    assert owner_of(None, {1: ada}, [bob]) is None
    assert owner_of(None, {}, [ada]) is None
    assert owner_of(1, {1: ada}, [bob]) is ada


def test_a_question_passes_on_to_the_same_clients_newest_other_call() -> None:
    first, second, own = of("ada"), of("ada"), OpenRequest(EXCHANGE, None)
    assert first.call
    assert heir_of(first.call, {1: of("bob"), 2: first, 3: second, 4: own, 5: of("ada", "other")}) is second
    assert heir_of(first.call, {1: of("bob"), 2: own}) is None


def test_a_call_that_was_given_up_a_moment_ago_still_counts() -> None:
    ada, bob = of("ada"), of("bob")
    assert owner_of(None, {2: bob}, [ada]) is None
    assert owner_of(None, {2: bob}, [of("bob")]) is bob
    assert owner_of(2, {2: bob}, [ada]) is bob


def test_a_question_is_never_that_of_a_call_that_was_given_up() -> None:
    assert owner_of(None, {}, [of("ada")]) is None


def test_a_question_is_taken_over_by_the_same_clients_newest_other_call() -> None:
    first, second, bob, other = of("ada", "s"), of("ada", "s"), of("bob"), of("ada", "t")
    assert first.call
    assert heir_of(first.call, {1: OWN, 2: second, 3: bob, 4: other}) is second
    assert heir_of(first.call, {1: OWN, 3: bob, 4: other}) is None


class NeverCompared(OpenRequest):
    def __eq__(self, other: object) -> bool:
        raise AssertionError("of thousands each would be compared with each")


def test_those_that_may_ask_are_found_without_comparing_them_with_each_other() -> None:
    calls = {
        number: NeverCompared(EXCHANGE, each.call) for number, each in enumerate((of("ada"), OWN, of("ada"), of("bob")))
    }
    assert list(that_ask(calls)) == [0, 2, 3]
