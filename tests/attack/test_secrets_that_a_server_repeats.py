"""A server repeats its own secret thousands of times, behind escapes too: to take it out of one message, or of all
questions of a call, takes no long step, and a result in which it stands is looked at in a thread."""

from __future__ import annotations

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from msgspec import Raw

from toolgate.config import Server
from toolgate.core import escapes, redaction
from toolgate.core.concurrency import FairThreads
from toolgate.core.model import Ask, Event
from toolgate.core.redaction import Redactor
from toolgate.policy.scrub import Scrubber

SECRET = "S3cretTokenAbcdefgh"
UNITS = {
    "in JSON in JSON": '\\\\\\"' + SECRET,
    "each character escaped": "".join(f"\\u{ord(each):04x}" for each in SECRET) + " ",
    "escaped twice": "".join(f"\\\\u{ord(each):04x}" for each in SECRET) + " ",
    "behind backslashes": "\\\\" * 20 + SECRET,
    "in the clear": SECRET + " ",
}


def of(unit: str, size: int) -> Raw:
    return Raw(('{"text":"' + unit * (size // len(unit)) + '"}').encode())


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each message took of its looks, and what went beyond."""
    noted: list[int] = []
    take = escapes.Looks.take

    def takes(self: escapes.Looks, many: int) -> None:
        noted.append(many)
        take(self, many)

    monkeypatch.setattr(escapes.Looks, "take", takes)
    return noted


@pytest.mark.parametrize("size", [30_000, 250_000, 900_000])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS.keys())
def test_to_take_it_out_of_one_message_takes_bounded_time(unit: str, size: int, taken: list[int]) -> None:
    scrubber = Scrubber(Redactor([SECRET]).of("any"), "known")
    assert SECRET.encode() not in bytes(scrubber.raw(of(unit, size)))
    assert sum(taken[:-1]) <= redaction.AT_ONCE


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS.keys())
def test_all_questions_of_a_call_together_have_one_bound(unit: str, taken: list[int]) -> None:
    scrubber = Scrubber(Redactor([SECRET]).of("any"), "known")
    shown = scrubber.asks([Ask(f"q{number}", "sampling/createMessage", of(unit, 88_000)) for number in range(14)])
    assert len(shown) == 14 and not any(SECRET.encode() in bytes(ask.params) for ask in shown)
    assert sum(taken[:-14]) <= redaction.AT_ONCE


async def test_a_result_in_which_it_stands_is_looked_at_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of 30 to 500 KB took 0.1 to 0.3 s each, in which nobody else was answered."""
    whose: list[str] = []
    in_thread = FairThreads.in_thread

    async def noted(self: FairThreads, who: str, *given: object) -> object:
        whose.append(who)
        return await in_thread(self, who, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(FairThreads, "in_thread", noted)
    wild = Server(id="wild", name="wild", type="stdio", command="memory", env={"API_TOKEN": SECRET})
    for text, is_aside in (("x" * 60_000, False), (f"{SECRET} " * 3000, True)):
        there = Scripted(tools_list=tools("act"), tools_call=said(text))
        async with gateway(wild, scripts={"wild": there}) as app:
            visitor = Visitor(app)
            await visitor.initialize()
            whose.clear()
            result = (await visitor.ask("tools/call", name="wild__act", arguments={})).result
            assert SECRET not in result["content"][0]["text"]
            assert any("\nwild" in each for each in whose) is is_aside


async def test_an_update_of_what_nobody_watches_is_not_searched_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sent updates of URIs of 15 KB without end had others wait for 0.3 to 0.7 s."""
    searched: list[str] = []
    event = Scrubber.event

    def noted(self: Scrubber, told: Event) -> Event:
        searched.append(told.uri)
        return event(self, told)

    monkeypatch.setattr(Scrubber, "event", noted)
    there = Scripted(tools_list=tools("act"))
    async with gateway(scripts={"wild": there}) as app:
        told = Event("wild", "updated", uri=f"x://{SECRET}", params=Raw(b'{"uri":"x://a"}'))
        assert app._changed(told) is None and not searched  # type: ignore[reportPrivateUsage]
