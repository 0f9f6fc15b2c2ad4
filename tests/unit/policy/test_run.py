"""A round of a call through policies: in which order they are asked, what each is told, and how one of them ends it.
Which policies there are, and where each stands, is in `test_chain.py`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from virtualtime import FakeClock

from toolgate.core.exchange import Retry
from toolgate.core.fault import Fault, Reached
from toolgate.core.model import (
    Answer,
    Ask,
    Asker,
    Call,
    Client,
    Done,
    NeedInput,
    Outcome,
    Required,
    Resumption,
    ToolInfo,
)
from toolgate.policy.base import Decision, Passed, Policy, Wait
from toolgate.policy.faults import missed
from toolgate.policy.run import PolicyRun, applying, compiled

FORMS = Client(capabilities={"elicitation": {"form": {}}})
QUESTION = Ask("sure", "elicitation/create", msgspec.Raw(b'{"message":"Sure?","requestedSchema":{"type":"object"}}'))
DONE = Done(b"{}")


class Says(Policy):
    """Decides what it is given, in its turn: a decision, or a fault to raise. Writes down all that it is asked."""

    def __init__(self, name: str, told: list[Any], *decisions: Any) -> None:
        self.name = name
        self.told = told
        self.decisions = list(decisions)

    def before(self, call: Call, was_passed: bool, waited: Any = None) -> Decision:
        self.told.append((self.name, call.target, was_passed, waited))
        decision = self.decisions.pop(0) if self.decisions else call
        if isinstance(decision, Exception):
            raise decision
        return decision


class Follows(Says):
    """The same, and hears how it went."""

    def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
        self.told.append((self.name, "after", call.target, outcome, ticket))
        return outcome

    def ended(self, call: Call, ending: Outcome | BaseException, ticket: Any) -> None:
        self.told.append((self.name, "ended", call.target, ending, ticket))


class Counts(Follows):
    sees_misses = True


def call(target: str = "tool", client: Client = FORMS, **more: Any) -> Call:
    return Call("tools/call", target, client, server="there", **more)


def begun(made: Call, *policies: Policy) -> PolicyRun:
    return PolicyRun(made, compiled(policies), FakeClock())


class Round(PolicyRun, kw_only=True):
    """A round whose next one is this, and that is this by then."""

    next: Any = None
    now: Any = None

    async def anew(self) -> Any:
        return await self.now() if self.now else None

    async def again(self, call: Call, /) -> Outcome:
        return await self.next(call)  # type: ignore[no-any-return]


async def _never(_call: Call) -> Outcome:
    raise AssertionError("nothing asked")


# What goes in.


async def test_each_policy_gets_the_call_as_the_one_before_it_has_left_it() -> None:
    told: list[Any] = []
    run = begun(call("a"), Says("first", told, call("b")), Says("second", told), Says("third", told, call("c")))
    assert run.came == call("a") and not run.call
    assert await run.before() == call("c") == run.call
    assert told == [("first", "a", False, None), ("second", "b", False, None), ("third", "b", False, None)]


async def test_what_comes_back_goes_through_them_in_reverse_and_then_each_is_told_in_reverse() -> None:
    told: list[Any] = []
    first, second = Follows("first", told, Passed(call("b"), "ticket")), Follows("second", told)
    run = begun(call("a"), first, second)
    await run.before()
    told.clear()
    assert run.after(DONE) is DONE
    assert told == [
        ("second", "after", "b", DONE, None),
        ("first", "after", "b", DONE, "ticket"),
        ("second", "ended", "b", DONE, None),
        ("first", "ended", "b", DONE, "ticket"),
    ]


async def test_each_policy_changes_the_outcome_that_those_behind_it_have_left() -> None:
    class Wraps(Policy):
        def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
            assert isinstance(outcome, Done)
            return Done(bytes(outcome.body) + ticket)

    class First(Wraps):
        def before(self, call: Call, was_passed: bool, waited: Any = None) -> Decision:
            return Passed(call, b"1")

    class Second(Wraps):
        def before(self, call: Call, was_passed: bool, waited: Any = None) -> Decision:
            return Passed(call, b"2")

    run = begun(call(), First(), Second())
    await run.before()
    assert run.after(Done(b"0")) == Done(b"021")


async def test_a_hook_that_a_policy_does_not_have_costs_nothing_and_is_not_missed() -> None:
    told: list[Any] = []

    class Ends(Says):
        def ended(self, call: Call, ending: Outcome | BaseException, ticket: Any) -> None:
            told.append("ended")

    class Looks(Says):
        def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
            told.append("after")
            return outcome

    policies = (Says("neither", []), Ends("ends", []), Looks("looks", []))
    hooks = compiled(policies)
    assert [bool(each.after) for each in hooks] == [False, False, True]
    assert [bool(each.ended) for each in hooks] == [False, True, False]
    assert [bool(each.applies) for each in hooks] == [False, False, False]
    run = begun(call(), *policies)
    await run.before()
    run.after(DONE)
    assert told == ["after", "ended"]


def test_policies_that_have_nothing_to_do_with_a_call_are_left_out() -> None:
    class Only(Says):
        def applies(self, call: Call) -> bool:
            return call.target == self.name

    hooks = compiled((Only("tool", []), Only("other", []), Says("any", [])))
    assert [each.name for each in applying(hooks, call("tool"))] == ["tool", "any"]
    assert [each.asker for each in hooks] == [Asker("policy", name) for name in ("tool", "other", "any")]
    assert not any(each.sees_misses for each in hooks) and compiled((Counts("counts", []),))[0].sees_misses


# Whoever ends it.


async def test_what_a_policy_answers_goes_to_no_policy_behind_it() -> None:
    told: list[Any] = []
    run = begun(call("a"), Follows("first", told), Says("second", told, DONE), Follows("third", told))
    assert await run.before() is DONE
    told.clear()
    assert run.after(DONE) is DONE
    assert [each[:2] for each in told] == [("first", "after"), ("first", "ended")]


async def test_a_refusal_is_told_to_those_alone_that_had_let_the_call_go_on() -> None:
    told: list[Any] = []
    refusal = Fault("ACCESS_DENIED", "no", reach="not_sent")
    run = begun(call("a"), Follows("first", told, Passed(call("b"), 7)), Follows("second", told, refusal))
    with pytest.raises(Fault) as raised:
        await run.before()
    told.clear()
    with pytest.raises(Fault) as again:
        run.failed(raised.value)
    assert again.value is raised.value is refusal
    assert told == [("first", "ended", "a", refusal, 7)]  # the call as it came: it was not let go on


async def test_a_fault_of_a_policy_in_after_is_not_told_before_it_is_known_what_follows() -> None:
    told: list[Any] = []

    class Refuses(Policy):
        name = "refuses"

        def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
            raise Fault("UPSTREAM_ERROR", "no", reach="executed")

    run = begun(call(), Follows("first", told), Refuses())
    await run.before()
    told.clear()
    with pytest.raises(Fault):
        run.after(DONE)
    assert told == []


async def test_an_error_of_a_policy_in_after_is_told_to_all_at_once() -> None:
    told: list[Any] = []

    class Breaks(Policy):
        name = "breaks"

        def after(self, call: Call, outcome: Outcome, ticket: Any) -> Outcome:
            raise ZeroDivisionError

    run = begun(call(), Follows("first", told), Breaks())
    await run.before()
    told.clear()
    with pytest.raises(ZeroDivisionError) as raised:
        run.after(DONE)
    assert told == [("first", "ended", "tool", raised.value, None)]


# Waiting, and asking.


async def test_who_cannot_tell_yet_is_asked_again_with_what_it_waited_for() -> None:
    told: list[Any] = []

    async def until() -> str:
        assert made.reached
        told.append((made.reached.waits_for, made.reached.is_let))
        return "found"

    made = call("a", reached=Reached())
    last = Says("last", told, Wait(until), Wait(until), Passed(call("b", reached=made.reached), 1))
    assert await begun(made, last).before() == call("b", reached=made.reached)
    assert made.reached and made.reached.is_let
    assert told == [
        ("last", "a", False, None),
        ("last", False),
        ("last", "a", False, "found"),
        ("last", False),
        ("last", "a", False, "found"),
    ]


async def test_it_waits_for_a_call_of_which_nobody_writes_down_how_far_it_got() -> None:
    async def until() -> int:
        return 5

    told: list[Any] = []
    assert await begun(call("a"), Says("waits", told, Wait(until))).before() == call("a")
    assert told == [("waits", "a", False, None), ("waits", "a", False, 5)]


async def test_the_next_round_after_a_question_tells_those_in_front_that_they_were_passed() -> None:
    told: list[Any] = []
    rounds: list[Call] = []
    asks = Says("asks", told, Required((QUESTION,), "state"))
    policies = compiled((Says("front", told), asks, Says("behind", told)))

    async def again(made: Call) -> Outcome:
        rounds.append(made)
        assert isinstance(await PolicyRun(made, policies, FakeClock()).before(), Call)
        return DONE

    asked = await Round(call("a"), policies, FakeClock(), next=again).before()
    assert isinstance(asked, NeedInput) and isinstance(asked.resume, Retry)
    assert asked.asks == (QUESTION,)
    assert told == [("front", "a", False, None), ("asks", "a", False, None)]
    told.clear()
    asked.resume.answer("sure", Answer(msgspec.Raw(b"{}")))
    assert await asked.resume.next() is DONE
    resumption = rounds[0].resumption
    assert resumption and (resumption.asker, resumption.state) == (Asker("policy", "asks"), "state")
    assert told == [("front", "a", True, None), ("asks", "a", False, None), ("behind", "a", False, None)]


async def test_what_is_answered_to_a_question_that_came_after_a_wait_is_the_next_round_too() -> None:
    async def until() -> int:
        return 5

    async def again(made: Call) -> Outcome:
        return Done(made.target.encode())

    asks = Says("asks", [], Required((QUESTION,), "state"))
    policies = compiled((Says("waits", [], Wait(until)), asks))
    asked = await Round(call("a"), policies, FakeClock(), next=again).before()
    assert isinstance(asked, NeedInput) and isinstance(asked.resume, Retry)
    asked.resume.answer("sure", Answer(msgspec.Raw(b"{}")))
    assert await asked.resume.next() == Done(b"a")


async def test_a_call_that_has_waited_and_is_refused_then_was_never_let_go_on() -> None:
    async def until() -> int:
        return 5

    async def anew() -> Any:
        raise Fault("ACCESS_DENIED", "it is off now")

    made = call("a", reached=Reached())
    run = Round(made, compiled((Says("waits", [], Wait(until)),)), FakeClock(), now=anew)
    with pytest.raises(Fault, match="it is off now"):
        await run.before()
    assert made.reached and not made.reached.is_let


async def test_while_a_policy_waits_in_a_later_round_it_is_still_told_that_it_was_passed() -> None:
    async def until() -> int:
        return 5

    told: list[Any] = []
    made = call("a", resumption=Resumption(Asker("policy", "asks"), {}))
    await begun(made, Says("front", told, Wait(until)), Says("asks", told)).before()
    assert told == [("front", "a", True, None), ("front", "a", True, 5), ("asks", "a", False, None)]


async def test_after_a_question_of_a_server_all_policies_were_passed() -> None:
    told: list[Any] = []
    made = call("a", resumption=Resumption(Asker("upstream", "asks"), {}))
    await begun(made, Says("first", told), Says("asks", told)).before()
    assert told == [("first", "a", True, None), ("asks", "a", True, None)]


async def test_a_retry_waits_by_the_clock_of_the_gateway() -> None:
    clock = FakeClock()

    async def again(_call: Call) -> Outcome:
        return DONE

    policies = compiled((Says("asks", [], Required((), "state")),))
    asked = await Round(call(), policies, clock, next=again).before()
    assert isinstance(asked, NeedInput)
    before = clock.now()
    assert await asked.resume.next() is DONE
    assert clock.now() > before


async def test_a_client_that_cannot_be_asked_is_told_which_capability_it_takes() -> None:
    with pytest.raises(Fault) as raised:
        await begun(call(client=Client()), Says("asks", [], Required((QUESTION,)))).before()
    fault = raised.value
    assert fault.code == "MISSING_CAPABILITY" and fault.reach == "not_sent"
    assert fault.message == "The call requires the client capability elicitation, which was not declared"
    assert fault.extra == {"requiredCapabilities": {"elicitation": {}}}


# Calls of what is not there.


def test_a_miss_goes_to_those_policies_alone_that_count_such() -> None:
    told: list[Any] = []
    fault = Fault("TOOL_NOT_FOUND", "no such tool", reach="not_sent")
    first, last = Counts("first", told, Passed(call("a"), 1)), Counts("last", told)
    assert missed(call("a"), fault, compiled((first, Follows("deaf", told), last))) is fault
    assert told == [
        ("first", "a", False, None),
        ("last", "a", False, None),
        ("last", "ended", "a", fault, None),
        ("first", "ended", "a", fault, 1),
    ]


def test_a_miss_that_a_policy_refuses_is_refused_in_its_words_and_that_is_told() -> None:
    told: list[Any] = []
    fault, refusal = Fault("TOOL_NOT_FOUND", "no such tool"), Fault("RATE_LIMITED", "too many")
    policies = compiled((Counts("first", told), Counts("full", told, refusal), Counts("last", told)))
    assert missed(call("a"), fault, policies) is refusal
    assert told == [("first", "a", False, None), ("full", "a", False, None), ("first", "ended", "a", refusal, None)]


def test_a_miss_of_a_later_round_was_counted_before() -> None:
    told: list[Any] = []

    class Silent(Says):
        sees_misses = True

    resumed = call("a", resumption=Resumption(Asker("upstream", "x"), {}))
    missed(resumed, Fault("TOOL_NOT_FOUND", "gone"), compiled((Silent("counts", told),)))
    assert told == [("counts", "a", True, None)]


# What has waited.


class Rechecks(Follows):
    def recheck(self, call: Call, ticket: Any) -> None:
        self.told.append((self.name, "recheck", call.target, ticket))
        if self.decisions:
            raise self.decisions.pop(0)


def rechecked(made: Call, now: Call | None, *policies: Policy) -> PolicyRun:
    """A run of a call that is `now` what it was `made` as; None: nothing has changed."""

    async def anew() -> Any:
        return None if now is None else (now, compiled(policies))

    return Round(made, compiled(policies), FakeClock(), now=anew)


async def test_a_call_that_has_waited_is_judged_once_more_with_the_tickets_of_who_let_it_go_on() -> None:
    told: list[Any] = []

    async def until() -> str:
        return "decided"

    first, last = Rechecks("first", told, Passed(call("a"), 7)), Rechecks("last", told, Wait(until))
    assert await rechecked(call("a"), call("a"), first, last).before() == call("a")
    assert told[-2:] == [("first", "recheck", "a", 7), ("last", "recheck", "a", None)]


async def test_what_has_not_waited_is_not_judged_once_more() -> None:
    told: list[Any] = []
    await rechecked(call("a"), call("a"), Rechecks("plain", told)).before()
    assert not [each for each in told if each[1] == "recheck"]


async def test_a_call_that_has_waited_and_is_the_same_is_judged_once_more_by_the_policies_that_it_has_passed() -> None:
    told: list[Any] = []

    async def until() -> str:
        return "decided"

    run = rechecked(call("a"), None, Rechecks("first", told, Passed(call("b"), 7)), Rechecks("last", told, Wait(until)))
    assert await run.before() == call("b")
    assert told[-2:] == [("first", "recheck", "b", 7), ("last", "recheck", "b", None)]
    as_made = msgspec.structs.replace(call("a"), server="")
    assert await run.recheck(as_made) is as_made
    assert told[-2:] == [("first", "recheck", "b", 7), ("last", "recheck", "b", None)]


@pytest.mark.parametrize("now", [call("b"), call("a", arguments=msgspec.Raw(b'{"x":1}'))])
async def test_a_call_that_has_become_another_while_it_waited_is_not_sent(now: Call) -> None:
    told: list[Any] = []
    run = rechecked(call("a"), now, Rechecks("last", told))
    with pytest.raises(Fault, match="a was changed while the call waited") as raised:
        await run.recheck(call("a"))
    assert raised.value.code == "INVALID_STATE" and raised.value.hint == "make the same call again"
    assert raised.value.reach == "not_sent" and not told


async def test_a_call_as_its_client_made_it_stands_for_what_was_let_go_on_and_its_tool_is_as_it_is_listed_now() -> None:
    let, listed = call("own"), ToolInfo(listed=b'{"name":"own"}')
    told: list[Any] = []
    run = rechecked(call("a"), call("a", tool_info=listed), Says("renames", told, let), Rechecks("last", told))
    await run.before()
    as_made = msgspec.structs.replace(call("a"), server="")
    assert await run.recheck(as_made) == msgspec.structs.replace(let, tool_info=listed)
    edited = call("own", arguments=msgspec.Raw(b'{"x":1}'))
    assert await run.recheck(edited) == msgspec.structs.replace(edited, tool_info=listed)


async def test_a_call_that_cannot_be_found_any_more_once_it_has_waited_was_not_sent() -> None:
    async def anew() -> Any:
        raise Fault("TOOL_NOT_FOUND", "gone", reach="sent_unknown")

    run = Round(call("a"), (), FakeClock(), now=anew)
    with pytest.raises(Fault, match="gone") as raised:
        await run.recheck(call("a"))
    assert raised.value.reach == "not_sent"


def test_a_hook_that_a_policy_does_not_have_costs_nothing() -> None:
    (none,), (all,) = compiled((Policy(),)), compiled((Rechecks("all", []),))
    assert (none.recheck, none.after, none.ended, none.applies) == (None, None, None, None)
    assert all.recheck and all.after and all.ended


async def test_who_sends_a_call_asks_still_where_its_round_ends_with_a_question() -> None:
    made = call("a", reached=Reached())
    run = rechecked(made, None, Says("plain", []))
    await run.before()
    run.may_wait()
    run.ended(NeedInput((QUESTION,), Retry(Asker("upstream", "x"), made, Required((QUESTION,)), _never, FakeClock())))
    assert made.reached and made.reached.recheck == run.recheck


async def test_whoever_sends_a_call_asks_until_its_round_is_over() -> None:
    made = call("a", reached=Reached())
    run = rechecked(made, None, Says("plain", []))
    await run.before()
    run.may_wait()
    assert made.reached and made.reached.is_let and made.reached.recheck == run.recheck
    run.after(DONE)
    assert made.reached.recheck is None
