"""Running work that may ask: who owns it, how it ends, and when its time runs."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle, soon

from toolgate.core import crowds
from toolgate.core.exchange import Exchange, Retry, Then, run
from toolgate.core.fault import Fault
from toolgate.core.model import Answer, Ask, Asker, Call, Client, Done, NeedInput, Outcome, Required, Resumption

PARAMS = Raw(b'{"message":"?"}')
YES = Answer(result=Raw(b'{"action":"accept"}'))
NO = Answer(result=Raw(b'{"action":"decline"}'))
DONE = Done(b"{}")


class Told:
    """What the working side was told when it was given up."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def __call__(self, reason: str) -> None:
        self.reasons.append(reason)


def exchange(timeout: float | None = None, told: Told | None = None) -> Exchange:
    work = Exchange(Asker("upstream", "x"), FakeClock(), timeout, told)
    work.be_timed()
    return work


def ask(work: Exchange, method: str = "elicitation/create") -> asyncio.Future[Answer]:
    return work.ask(method, PARAMS)


async def asked(resume: Awaitable[Outcome]) -> tuple[Ask, ...]:
    outcome = await soon(resume)
    assert isinstance(outcome, NeedInput)
    return outcome.asks


# To its end.


async def test_what_was_finished_before_anybody_waited_is_there() -> None:
    work = exchange()
    work.finish(DONE)
    assert await work.next() is DONE
    assert await work.next() is DONE


async def test_the_end_wakes_who_waits() -> None:
    work = exchange()
    waiting = asyncio.ensure_future(work.next())
    await settle()
    work.finish(DONE)
    assert await soon(waiting) is DONE


async def test_a_failure_is_raised() -> None:
    work = exchange()
    work.fail(Fault("SERVER_FAILED", "gone"))
    with pytest.raises(Fault, match="gone"):
        await work.next()


async def test_it_ends_once() -> None:
    told = Told()
    work = exchange(told=told)
    work.finish(DONE)
    work.fail(Fault("SERVER_FAILED", "late"))
    work.finish(Done(b'{"late":1}'))
    work.cancel()
    assert await work.next() is DONE
    assert told.reasons == []


async def test_cancelling_tells_the_working_side_once() -> None:
    told = Told()
    work = exchange(told=told)
    work.cancel()
    work.cancel()
    assert told.reasons == ["cancelled by the client"]
    with pytest.raises(Fault) as caught:
        await work.next()
    assert caught.value.reach == "sent_unknown"


async def test_whoever_waits_and_is_cancelled_cancels_the_work() -> None:
    told = Told()
    work = exchange(told=told)
    waiting = asyncio.ensure_future(work.next())
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert told.reasons == ["cancelled by the client"]
    assert work.ended


# Questions.


async def test_a_question_comes_out_and_its_answer_goes_in() -> None:
    work = exchange()
    answer = ask(work)
    (question,) = await asked(work.next())
    assert (question.method, question.params) == ("elicitation/create", PARAMS)
    assert work.open_asks() == (question,)
    work.answer(question.key, YES)
    assert await soon(answer) is YES
    assert work.open_asks() == ()


async def test_questions_that_were_asked_together_come_out_together() -> None:
    work = exchange()
    ask(work), ask(work, "sampling/createMessage")
    questions = await asked(work.next())
    assert [question.method for question in questions] == ["elicitation/create", "sampling/createMessage"]
    assert len({question.key for question in questions}) == 2


async def test_a_question_comes_out_once() -> None:
    work = exchange()
    ask(work)
    first = await asked(work.next())
    waiting = asyncio.ensure_future(work.next())
    await settle()
    assert not waiting.done()
    ask(work)
    (second,) = await asked(waiting)
    assert second.key != first[0].key
    assert len(work.open_asks()) == 2


@pytest.mark.promise("spec.2026.mrtr.methods")
async def test_a_key_is_never_used_again() -> None:
    work = exchange()
    keys: list[str] = []
    for _ in range(5):
        ask(work)
        (question,) = await asked(work.next())
        work.answer(question.key, YES)
        keys.append(question.key)
    assert len(set(keys)) == 5


async def test_the_first_answer_counts_and_strange_ones_do_not() -> None:
    work = exchange()
    answer = ask(work)
    (question,) = await asked(work.next())
    work.answer("ask-99", NO)
    work.answer(question.key, YES)
    work.answer(question.key, NO)
    assert await soon(answer) is YES


async def test_a_question_that_was_answered_before_it_came_out_does_not_come_out() -> None:
    work = exchange()
    answer = ask(work)
    (question,) = work.open_asks()
    work.answer(question.key, YES)
    waiting = asyncio.ensure_future(work.next())
    await settle()
    assert answer.done() and not waiting.done()
    work.finish(DONE)
    assert await soon(waiting) is DONE


async def test_a_question_is_withdrawn_by_cancelling_it() -> None:
    work = exchange()
    answer = ask(work)
    answer.cancel()
    await settle()
    assert work.open_asks() == ()
    work.finish(DONE)
    assert await work.next() is DONE


async def test_open_questions_are_cancelled_when_it_ends() -> None:
    for end in (lambda work: work.finish(DONE), lambda work: work.cancel()):
        work = exchange()
        answer = ask(work)
        end(work)
        assert answer.cancelled()


async def test_after_its_end_nothing_is_asked() -> None:
    work = exchange()
    work.finish(DONE)
    assert ask(work).cancelled()
    assert await work.next() is DONE


# Time.


async def test_without_an_end_in_time_it_is_given_up() -> None:
    told = Told()
    work = exchange(10, told)
    waiting = asyncio.ensure_future(work.next())
    await FakeClock().advance(9)
    assert not waiting.done()
    await FakeClock().advance(2)
    with pytest.raises(Fault) as caught:
        await waiting
    assert (caught.value.code, caught.value.reach) == ("TIMEOUT", "sent_unknown")
    assert told.reasons == ["timed out"]


async def test_its_time_stands_still_while_a_question_is_open() -> None:
    clock, told = FakeClock(), Told()
    work = exchange(10, told)
    await clock.advance(6)
    first, second = ask(work), ask(work)
    await clock.advance(1000)
    one, other = work.open_asks()
    work.answer(one.key, YES)
    await clock.advance(1000)
    work.answer(other.key, YES)
    assert first.done() and second.done()
    await clock.advance(3)
    assert not work.ended
    await clock.advance(2)
    assert told.reasons == ["timed out"]


async def test_its_time_goes_on_when_a_question_is_withdrawn() -> None:
    clock, told = FakeClock(), Told()
    work = exchange(10, told)
    ask(work).cancel()
    await clock.advance(11)
    assert told.reasons == ["timed out"]


async def test_its_time_stands_still_while_another_is_asked_for_it() -> None:
    clock, told = FakeClock(), Told()
    work = exchange(10, told)
    work.pause()
    answer = ask(work)
    await clock.advance(100)
    work.answer(work.open_asks()[0].key, YES)
    await clock.advance(100)
    assert answer.done() and not work.ended
    work.go_on()
    await clock.advance(11)
    assert told.reasons == ["timed out"]


async def test_after_its_end_no_timer_is_left() -> None:
    clock, told = FakeClock(), Told()
    work = exchange(10, told)
    ask(work)
    work.finish(DONE)
    work.go_on()
    await clock.advance(100)
    assert told.reasons == []


# Work of our own.


def running(work: Callable[[Exchange], Awaitable[Outcome]], timeout: float | None = None) -> Exchange:
    return run(Asker("upstream", "x"), FakeClock(), timeout, work)


async def test_work_of_our_own_asks_and_ends() -> None:
    async def work(exchange: Exchange) -> Outcome:
        answer = await ask(exchange)
        return Done(answer.result)

    exchange = running(work)
    (question,) = await asked(exchange.next())
    exchange.answer(question.key, YES)
    assert await soon(exchange.next()) == Done(YES.result)


async def test_a_bug_in_work_of_our_own_is_its_calls_failure() -> None:
    async def work(exchange: Exchange) -> Outcome:
        raise ZeroDivisionError("oops")

    with pytest.raises(Fault, match="ZeroDivisionError: oops"):
        await soon(running(work).next())


async def test_a_fault_of_work_of_our_own_is_raised_as_it_is() -> None:
    async def work(exchange: Exchange) -> Outcome:
        raise Fault("INVALID_ARGS", "no")

    with pytest.raises(Fault) as caught:
        await soon(running(work).next())
    assert caught.value.code == "INVALID_ARGS"


@pytest.mark.parametrize("how", ["cancel", "timeout", "its task"])
async def test_work_of_our_own_is_cancelled_with_its_exchange(how: str) -> None:
    ended: list[str] = []

    async def work(exchange: Exchange) -> Outcome:
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cleaned up")

    exchange = running(work, timeout=5)
    waiting = asyncio.ensure_future(exchange.next())
    await settle()
    if how == "cancel":
        exchange.cancel()
    elif how == "timeout":
        await FakeClock().advance(6)
    else:
        waiting.cancel()
    await settle()
    assert ended == ["cleaned up"]
    with pytest.raises((Fault, asyncio.CancelledError)):
        await waiting


# The same call, made again.

CALL = Call("tools/call", "t", Client())


class Again:
    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def __call__(self, call: Call) -> Outcome:
        self.calls.append(call)
        return DONE

    @property
    def resumption(self) -> Resumption:
        (call,) = self.calls
        assert call.resumption
        return call.resumption


def retry(again: Again, *keys: str, state: str | None = "s", call: Call = CALL) -> Retry:
    asks = tuple(Ask(key, "elicitation/create", PARAMS) for key in keys)
    return Retry(Asker("upstream", "x"), call, Required(asks, state), again, FakeClock())


async def test_a_call_is_made_again_when_all_is_answered() -> None:
    again = Again()
    resume = retry(again, "a", "b")
    waiting = asyncio.ensure_future(resume.next())
    resume.answer("a", YES)
    resume.answer("unknown", YES)
    await settle()
    assert again.calls == []
    assert [ask.key for ask in resume.open_asks()] == ["b"]
    resume.answer("b", NO)
    resume.answer("a", NO)
    assert await soon(waiting) is DONE
    assert again.resumption.answers == {"a": YES, "b": NO}
    assert (again.resumption.state, again.resumption.asker, again.resumption.round) == ("s", Asker("upstream", "x"), 1)


async def test_an_asker_that_wants_only_its_state_back_gets_it_after_a_pause() -> None:
    again = Again()
    started = FakeClock().now()
    assert await soon(retry(again).next()) is DONE
    assert again.resumption.answers == {}
    assert FakeClock().now() - started == pytest.approx(Retry.PAUSES[0])


async def test_the_pauses_grow_and_then_stay() -> None:
    pauses: list[float] = []
    for round in range(Retry.ROUNDS):
        call = Call("tools/call", "t", Client(), resumption=Resumption(Asker("upstream", "x"), {}, round=round))
        started = FakeClock().now()
        await soon(retry(Again(), call=call).next())
        pauses.append(FakeClock().now() - started)
    assert pauses == pytest.approx([0.05, 0.1] + [0.25] * 8)


async def test_nobody_is_led_through_more_than_ten_rounds() -> None:
    call = Call("tools/call", "t", Client(), resumption=Resumption(Asker("upstream", "x"), {}, round=Retry.ROUNDS))
    again = Again()
    with pytest.raises(Fault, match="more than 10 rounds"):
        await soon(retry(again, call=call).next())
    assert again.calls == []


async def test_what_comes_later_goes_through_what_was_put_after_it() -> None:
    work = exchange()
    changed = Done(b'{"changed":1}')
    then = Then(work, lambda outcome: changed)
    answer = ask(work)
    assert (then.asker, then.is_live, then.state, then.origin) == (Asker("upstream", "x"), True, None, work)
    (question,) = then.open_asks()
    then.answer(question.key, YES)
    assert await soon(answer) is YES
    work.finish(DONE)
    assert await soon(then.next()) is changed
    other = exchange()
    Then(other, lambda outcome: outcome).cancel()
    assert other.ended


# Time that is looked at only when somebody waits.


async def test_the_time_of_one_that_is_not_timed_runs_from_its_beginning_and_ends_it_once_somebody_waits() -> None:
    told, clock = Told(), FakeClock()
    work = Exchange(Asker("upstream", "x"), clock, 10, told, clock.now())
    await clock.advance(7)
    waiting = asyncio.ensure_future(work.next())
    await settle()
    await clock.advance(2)
    await settle()
    assert not work.ended
    await clock.advance(2)
    with pytest.raises(Fault, match="No answer within the time limit"):
        await waiting
    assert told.reasons == ["timed out"]


async def test_one_whose_time_was_over_before_anybody_waited_ends_at_once() -> None:
    told, clock = Told(), FakeClock()
    work = Exchange(Asker("upstream", "x"), clock, 10, told, clock.now())
    await clock.advance(11)
    waiting = asyncio.ensure_future(work.next())
    await settle()
    await clock.advance(0.1)
    with pytest.raises(Fault, match="No answer within the time limit"):
        await waiting


async def test_a_question_stops_the_time_of_one_that_was_not_timed_yet() -> None:
    told, clock = Told(), FakeClock()
    work = Exchange(Asker("upstream", "x"), clock, 10, told, clock.now())
    question = ask(work)
    assert (await asked(work.next()))[0].key == "ask-1"
    await clock.advance(100)
    await settle()
    assert not work.ended
    work.answer("ask-1", YES)
    assert (await question) is YES
    waiting = asyncio.ensure_future(work.next())
    await settle()
    await clock.advance(11)
    with pytest.raises(Fault, match="No answer within the time limit"):
        await waiting


# Time that begins anew.


async def test_its_time_begins_anew_until_what_it_has_to_spare_is_used_up() -> None:
    told, clock = Told(), FakeClock()
    work = Exchange(Asker("upstream", "x"), clock, 10, told, clock.now(), spare=20)
    waiting = asyncio.ensure_future(work.next())
    for _ in range(3):  # 8 and 8 seconds of it, and 4 of the last 8
        await settle()
        await clock.advance(8)
        work.renew()
    await clock.advance(5)
    assert not work.ended
    await clock.advance(2)
    with pytest.raises(Fault, match="No answer within the time limit"):
        await waiting
    assert told.reasons == ["timed out"]


async def test_one_that_has_nothing_to_spare_or_waits_for_an_answer_has_no_more_time() -> None:
    clock = FakeClock()
    strict = Exchange(Asker("upstream", "x"), clock, 10, None, clock.now())
    asking = Exchange(Asker("upstream", "x"), clock, 10, None, clock.now(), spare=100)
    waiting = [asyncio.ensure_future(each.next()) for each in (strict, asking)]
    await settle()
    await clock.advance(6)
    question = ask(asking)
    await clock.advance(3)
    strict.renew()
    asking.renew()
    await clock.advance(2)
    assert strict.ended and not asking.ended
    asking.answer("ask-1", YES)
    await question
    await waiting[1]
    last = asyncio.ensure_future(asking.next())
    await settle()
    await clock.advance(3)
    asking.renew()
    await clock.advance(9)
    assert not asking.ended
    await clock.advance(2)
    for each in (waiting[0], last):
        with pytest.raises(Fault, match="No answer within the time limit"):
            await each


async def test_one_that_says_all_the_time_that_it_goes_on_costs_no_timer_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    work = Exchange(Asker("upstream", "x"), clock, 10, None, clock.now(), spare=100)
    work.be_timed()
    timers: list[float] = []
    monkeypatch.setattr(clock, "call_later", lambda seconds, then: timers.append(seconds))
    for _ in range(1000):
        work.renew()
    assert not timers
    work.cancel()


async def test_work_that_is_cancelled_leaves_nothing_of_what_it_had() -> None:
    class Data:
        """What its call has brought."""

    async def work(exchange: Exchange) -> Outcome:
        data = Data()
        left.append(weakref.ref(data))
        async with asyncio.TaskGroup():
            await asyncio.sleep(60)
        raise AssertionError(exchange)

    left: list[weakref.ref[Data]] = []
    gc.disable()
    try:
        exchange = run(Asker("upstream", "x"), FakeClock(), None, work)
        waiting = asyncio.ensure_future(exchange.next())
        await settle()
        exchange.cancel()
        with pytest.raises(Fault):
            await waiting
        await settle()
        assert left[0]() is None
    finally:
        gc.enable()


async def test_a_time_limit_that_waits_for_its_turn_ends_nothing_whose_time_stands_meanwhile() -> None:
    told = Told()
    work = exchange(1.0, told)
    waiting = asyncio.ensure_future(work.next())
    await asyncio.sleep(0.5)
    for _ in range(200):  # many others go on in that moment
        crowds.in_turn(lambda: None)
    work._is_late()  # type: ignore[reportPrivateUsage]
    ask(work)
    assert len(await asked(waiting)) == 1
    await settle()
    assert not work.ended and not told.reasons
    work.cancel()
