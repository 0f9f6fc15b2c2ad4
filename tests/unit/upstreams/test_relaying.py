"""A call that is part of other work: what is told of its waiting for the client."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw
from virtualtime import FakeClock, settle, soon

from toolgate.core.exchange import Exchange
from toolgate.core.fault import Fault
from toolgate.core.model import Accepted, Answer, Asker, Done
from toolgate.upstreams.inprocess import relaying


class Asked:
    """A call at a server, which has asked two questions, as a part of other work."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.given_up: list[str] = []
        self.call = Exchange(Asker("upstream", "there"), clock, on_cancel=self.given_up.append)
        self.whole = Exchange(Asker("upstream", "toolgate"), clock)
        self.answers = [self.call.ask("elicitation/create", Raw(b"{}")) for _ in range(2)]
        self.told: list[bool] = []

    async def end(self) -> Done | Accepted:
        return await relaying.to_the_end(await self.call.next(), self.whole, self.waits)

    def waits(self, does: bool) -> None:
        self.told.append(does)

    def answer_one(self) -> None:
        self.whole.answer(self.whole.open_asks()[0].key, Answer(result=Raw(b"{}")))


async def test_it_waits_for_the_client_until_no_question_is_open() -> None:
    asked = Asked()
    running = asyncio.ensure_future(asked.end())
    await settle()
    assert asked.told == [True]
    asked.answer_one()
    await settle()
    assert asked.told == [True] and [answer.done() for answer in asked.answers] == [True, False]
    asked.answer_one()
    await settle()
    assert asked.told == [True, False] and asked.answers[1].done()
    asked.call.ask("elicitation/create", Raw(b"{}"))
    await settle()
    assert asked.told == [True, False, True]
    asked.call.finish(Done(b"1"))
    assert await soon(running) == Done(b"1") and asked.told == [True, False] * 2


async def test_where_it_may_not_wait_the_call_is_given_up_and_nothing_is_asked() -> None:
    class Refused(Asked):
        def waits(self, does: bool) -> None:
            raise Fault("RATE_LIMITED", "enough wait already", reach="not_sent")

    asked = Refused()
    with pytest.raises(Fault, match="enough wait already"):
        await soon(asked.end())
    assert asked.given_up == ["cancelled by the client"] and not asked.whole.open_asks()


async def test_work_that_is_given_up_before_its_question_is_put_waits_no_more() -> None:
    asked = Asked()
    running = asyncio.ensure_future(asked.end())
    await asyncio.sleep(0)
    assert asked.told == [True] and not asked.whole.open_asks()
    running.cancel()
    await asyncio.wait([running])
    assert asked.told == [True, False] and asked.given_up
