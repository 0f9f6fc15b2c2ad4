"""How a pending tool is shown to differ."""

from __future__ import annotations

import json

import pytest

from toolgate.catalog import pin_review
from toolgate.catalog.pins import Pending, Pin


def shown(before: list[str], now: list[str], most: int | None = None) -> pin_review.Shown:
    pin = Pin("d", 0.0, False, json.dumps({"description": "\n".join(before)}))
    pending = Pending("e", "changed", "", (), True, json.dumps({"description": "\n".join(now)}))
    return pin_review.shown({"tool": pin}, "tool", pending, most)


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        (["a", "b", "c", "d"], ["a", "b", "x", "d"], [" b", "-c", "+x", " d"]),
        (["a"], ["a", "b"], [" a", "+b"]),
        (["a", "b"], ["b"], ["-a", " b"]),
        (["a", "a"], ["a", "a", "a"], [" a", "+a"]),
        (["a"], ["b"], ["-a", "+b"]),
    ],
)
def test_what_is_gone_and_what_has_come_is_shown_with_a_line_around_it(
    before: list[str], now: list[str], lines: list[str]
) -> None:
    found = [each.replace("description: ", "") for each in shown(before, now).lines if not each.startswith("@@")]
    assert found == lines


def test_what_is_too_much_to_be_compared_is_shown_as_gone_and_come() -> None:
    most = pin_review.MOST_COMPARED
    before, now = [f"{at % 7}" for at in range(most + 20)], [f"{at % 5}" for at in range(most + 20)]
    lines = shown(["same", *before], ["same", *now]).lines
    first = next(at for at in range(most + 20) if before[at] != now[at])
    gone, come = before[first:], now[first:]
    while gone[-1] == come[-1]:
        gone.pop(), come.pop()
    assert lines == (*(f"-description: {each}" for each in gone), *(f"+description: {each}" for each in come))


def test_what_is_left_out_is_counted() -> None:
    found = shown([], [f"line {at}" for at in range(300)], 200)
    assert len(found.lines) == 200 and found.more > 100
