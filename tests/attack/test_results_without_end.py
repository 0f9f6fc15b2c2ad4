"""A result of tens of megabytes is cut by limits in a thread, and no step of that takes as long as the result is."""

from __future__ import annotations

from typing import Any

import pytest
from inmemory import Scripted, Visitor, gateway, said, tools
from virtualtime import VirtualTimeLoop

from toolgate.config import Config, Limits
from toolgate.core import excerpts
from toolgate.policy import content_kinds
from toolgate.policy.truncate import Truncate
from toolgate.search import tokens

MIB = 1024 * 1024
LONG = ["harmless ", "1,", "abcdefghijklmnop1234567 ", "[", "-", " ", "\u00e9", "7", "A"]


@pytest.mark.parametrize("piece", LONG)
def test_of_a_long_text_no_more_than_a_part_is_counted(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = vars(tokens)["_counted"]

    def counts(text: str) -> float:
        counted.append(len(text))
        return count(text)

    text = piece * (4 * MIB // len(piece))
    monkeypatch.setattr(tokens, "_counted", counts)
    found = tokens.estimate(text)
    assert sum(counted) <= tokens.MOST_COUNTED
    counted.clear()
    assert tokens.has_more(text, 10_000) and not counted, "its size says so"
    part = count(piece * (MIB // len(piece))) * 4
    assert found == pytest.approx(max(part, len(text) // tokens.LONGEST), rel=0.01)


def test_what_stands_at_the_end_of_a_long_text_counts() -> None:
    assert tokens.estimate(" " * 2 * MIB + "1," * MIB) > MIB / 2


class Letters(str):
    """A text that counts how often a letter of it is looked at."""

    looks = 0

    def __getitem__(self, at: object) -> str:
        Letters.looks += 1
        return super().__getitem__(at)  # type: ignore[index]


@pytest.mark.parametrize("text", ["a" + "\u0301" * MIB, "\U0001f1e6" * MIB, "\u200d" * MIB])
def test_a_letter_with_marks_without_end_is_parted_somewhere(text: str) -> None:
    marks = Letters(text)
    for place in (0, 1, 100, len(text) // 2, len(text) - 1, len(text)):
        Letters.looks = 0
        assert 0 <= place - excerpts.boundary_before(marks, place) <= excerpts.MOST_TOGETHER
        assert 0 <= excerpts.boundary_after(marks, place) - place <= excerpts.MOST_TOGETHER
        assert Letters.looks <= 4 * excerpts.MOST_TOGETHER + 4


def test_a_letter_and_its_marks_stay_together() -> None:
    text = "abc" + "e" + "\u0301" * 3 + "xyz"
    assert [excerpts.boundary_before(text, place) for place in range(11)] == [0, 1, 2, 3, 3, 3, 3, 7, 8, 9, 10]
    assert [excerpts.boundary_after(text, place) for place in range(11)] == [0, 1, 2, 3, 7, 7, 7, 7, 8, 9, 10]


def test_whether_a_text_is_base64_its_beginning_tells() -> None:
    assert content_kinds.form("QUJD" * MIB) == "base64"
    assert content_kinds.form(("A" * 64 + "\n") * 20_000) == "base64"
    assert content_kinds.form("harmless words\n" * MIB) == ""


@pytest.mark.parametrize("limits", [Limits(result_limit=MIB), Limits(result_tokens=1000)])
@pytest.mark.parametrize("piece", ["harmless ", "1,", "a\u0301"])
async def test_a_large_result_is_cut_in_a_thread_and_kept(
    limits: Limits, piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[bool] = []  # whether in a thread
    shorten = Truncate.cut

    def spied(*everything: Any) -> Any:
        cut.append(VirtualTimeLoop.is_aside)
        return shorten(*everything)

    monkeypatch.setattr(Truncate, "cut", spied)
    whole = piece * (2 * MIB // len(piece))
    script = Scripted(tools_list=tools("x"), tools_call=said(whole))
    async with gateway(scripts={"there": script}, config=Config(limits=limits)) as app:
        visitor = Visitor(app)
        await visitor.initialize()
        called = (await visitor.ask("tools/call", name="there__x", arguments={})).result
        assert len(str(called)) <= MIB + 2000
        assert cut == [True], "in a thread, and nowhere else"
        [part] = called["_meta"]["toolgate/truncated"]["parts"]
        assert part["bytes"] == len(whole.encode())
        read = (await visitor.ask("resources/read", uri=part["uri"] + "?chars=0-99")).result
        assert read["contents"][0]["text"].startswith(piece)
