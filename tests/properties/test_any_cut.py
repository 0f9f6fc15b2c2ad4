"""Whatever is cut, however it is cut, shows the true beginning and the true end."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from toolgate.core import excerpts
from toolgate.core.excerpts import GAP, Ends

pieces = st.sampled_from(
    ["a", "b", "", "é", "e\u0301", "👩\u200d👧", "🇩🇪", "👍🏽", "\n", "\r\n", "\r", "\u2028", "\x0b", " "]
)
texts = st.lists(pieces | st.text(max_size=3), max_size=30).map("".join)
counts = st.none() | st.integers(0, 12) | st.just(10**30)


def lines(text: str) -> list[str]:
    found = re.split(r"(?<=\n)", text)
    return found if found[-1] else found[:-1]


@given(texts, counts, counts)
def test_lines_that_are_shown_are_the_first_and_the_last(text: str, head: int | None, tail: int | None) -> None:
    whole, cut = lines(text), Ends(head, tail).cut(text)
    assert cut.total == len(whole)
    if (head is None and tail is None) or (head or 0) + (tail or 0) >= len(whole):
        assert (cut.text, cut.is_truncated) == (text, False)
        return
    assert cut.is_truncated
    assert (cut.first, cut.last) == (head or 0, tail or 0)
    first, last = "".join(whole[: cut.first]), "".join(whole[len(whole) - cut.last :])
    if head is not None and tail is not None:
        assert re.fullmatch(re.escape(first) + re.escape(GAP) + r"(\r?\n)?" + re.escape(last), cut.text)
    else:
        assert cut.text == re.sub(r"\r?\n\Z", "", first) + last


@given(texts, counts, counts)
def test_characters_that_are_shown_are_the_first_and_the_last(text: str, head: int | None, tail: int | None) -> None:
    cut = Ends(head, tail, "chars").cut(text)
    if not cut.is_truncated:
        assert cut.text == text
        return
    first, last = text[: cut.first], text[len(text) - cut.last :]
    assert len(first) <= (head or 0) and len(last) <= (tail or 0)
    assert cut.text == first + (f"\n{GAP}\n" if head is not None and tail is not None else "") + last
    for place in (cut.first, len(text) - cut.last):
        assert not unicodedata.category((text[place:] or "a")[0]).startswith("M") or place == 0
        assert text[place - 1 : place + 1] != "\r\n"


@given(texts, st.integers(0, 60), counts, counts)
def test_what_must_fit_fits(text: str, budget: int, head: int | None, tail: int | None) -> None:
    cut = excerpts.to_fit(text, budget, head, tail)
    assert len(cut.text.encode()) <= budget + len(f"\n{GAP}\r\n")
    whole = lines(text) if cut.unit == "lines" else list(text)
    assert cut.total == len(whole)
    first, last = "".join(whole[: cut.first]), "".join(whole[len(whole) - cut.last :])
    assert cut.text.startswith(re.sub(r"\r?\n\Z", "", first)) and cut.text.endswith(last)
