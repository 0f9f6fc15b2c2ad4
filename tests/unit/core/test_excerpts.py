"""The beginning and the end of a text, by lines and by characters."""

from __future__ import annotations

from typing import Any

import pytest

from toolgate.core import excerpts
from toolgate.core.excerpts import Ends
from toolgate.core.fault import Fault

FIVE = "1\n2\n3\n4\n5"


@pytest.mark.parametrize(
    ("text", "head", "tail", "shown"),
    [
        (FIVE, 2, None, "1\n2"),
        (FIVE, None, 2, "4\n5"),
        (FIVE, 1, 2, "1\n...\n4\n5"),
        (FIVE, 2, 3, FIVE),
        (FIVE, 9, 9, FIVE),
        (FIVE, 5, None, FIVE),
        (FIVE, None, None, FIVE),
        (FIVE, 0, None, ""),
        (FIVE, None, 0, ""),
        (FIVE, 0, 2, "...\n4\n5"),
        (FIVE, 2, 0, "1\n2\n..."),
        (FIVE, 0, 0, "..."),
        ("one", 0, 0, "..."),
        ("", 0, 0, ""),
        ("1\n2\n3\n", 1, None, "1"),
        ("1\n2\n3\n", None, 1, "3\n"),
        ("1\n2\n3\n", 3, None, "1\n2\n3\n"),
        ("1\r\n2\r\n3\r\n4", 1, 1, "1\r\n...\r\n4"),
        ("1\r\n2\r\n3", 2, None, "1\r\n2"),
        ("a\x0bb\u2028c\rd\n2", 1, None, "a\x0bb\u2028c\rd"),
        ("\n\n\n", 1, 1, "\n...\n\n"),
    ],
)
def test_lines_are_kept_from_both_sides(text: str, head: int | None, tail: int | None, shown: str) -> None:
    cut = Ends(head, tail).cut(text)
    assert cut.text == shown
    assert cut.is_truncated == (shown != text)


def test_a_cut_says_how_much_there_was() -> None:
    assert Ends(2).cut(FIVE).members() == {"truncated": True, "total_lines": 5}
    assert Ends(9).cut(FIVE + "\n").members() == {"truncated": False, "total_lines": 5}
    assert Ends(2, unit="chars").cut(FIVE).members() == {"truncated": True, "total_chars": 9}


@pytest.mark.parametrize(
    ("text", "head", "tail", "shown"),
    [
        ("abcdef", 2, None, "ab"),
        ("abcdef", None, 2, "ef"),
        ("abcdef", 2, 2, "ab\n...\nef"),
        ("abcdef", 3, 3, "abcdef"),
        ("ae\u0301z", 2, None, "a"),
        ("ae\u0301z", None, 2, "z"),
        ("👩\u200d👧!", 2, None, ""),
        ("👍🏽!", 1, None, ""),
        ("🇩🇪!", 1, None, ""),
        ("a\r\nb", 2, None, "a"),
    ],
)
def test_characters_stay_with_what_belongs_to_them(text: str, head: int | None, tail: int | None, shown: str) -> None:
    assert Ends(head, tail, "chars").cut(text).text == shown


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "3", [], float("inf"), float("nan"), -0.5])
@pytest.mark.parametrize("name", ["head", "tail", "head_chars", "tail_chars"])
def test_a_count_is_an_integer_that_is_not_negative(name: str, wrong: Any) -> None:
    with pytest.raises(Fault, match=f'Invalid arguments: "{name}" must be a non-negative integer') as raised:
        excerpts.read_ends({name: wrong})
    assert raised.value.code == "INVALID_ARGS"


def test_whole_floats_are_integers_and_null_says_nothing() -> None:
    assert excerpts.read_ends({"head": 3.0, "tail": None}) == Ends(3)
    assert excerpts.read_ends({"tail_chars": 4, "head": None}) == Ends(None, 4, "chars")
    assert excerpts.read_ends({"server_id": "x"}) == Ends()
    assert Ends().cut(FIVE).text == FIVE


def test_lines_and_characters_are_not_mixed() -> None:
    with pytest.raises(Fault, match="by lines or by characters"):
        excerpts.read_ends({"head": 1, "tail_chars": 4})


@pytest.mark.parametrize(
    ("budget", "head", "tail", "shown"),
    [
        (4, None, None, "1\n2"),
        (5, None, None, "1\n2"),
        (4, None, 9, "4\n5"),
        (3, None, 9, "4\n5"),
        (4, 9, 9, "1\n...\n5"),
        (8, 1, 9, "1\n...\n3\n4\n5"),
        (8, 1, None, "1"),
        (8, 0, 0, "..."),
        (1, None, None, "1"),
        (0, None, None, ""),
    ],
)
def test_what_fits_is_whole_lines(budget: int, head: int | None, tail: int | None, shown: str) -> None:
    cut = excerpts.to_fit(FIVE, budget, head, tail)
    assert cut.text == shown
    assert cut.is_truncated


def test_of_a_line_that_is_alone_too_long_characters_are_shown() -> None:
    cut = excerpts.to_fit("ä" * 50 + "\nend", 11)
    assert (cut.text, cut.unit, cut.first, cut.total) == ("ä" * 5, "chars", 5, 54)
    both = excerpts.to_fit("x" * 50 + "\n" + "y" * 50, 10, 3, 3)
    assert both.text == "xxxxx\n...\nyyyyy"
