"""Places in a text are where they are, wherever its blocks end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core.excerpts import after_lines, count_lines
from toolgate.policy import places
from toolgate.policy.places import Places

texts = st.lists(
    st.sampled_from(["a", "ä", "€", "😀", "\n", "\r\n", "x" * 9 + "\n"]) | st.text(max_size=5), max_size=40
)


@given(texts.map("".join), st.integers(4, 20), st.integers(0, 120))
def test_a_place_is_where_it_is(text: str, block: int, count: int) -> None:
    data = text.encode(errors="ignore")
    text = data.decode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(places, "BLOCK", block)
        found = Places(data)
        assert (found.lines, found.chars) == (count_lines(data), len(text))
        assert found.after_lines(count) == after_lines(data, count)
        assert found.after_chars(count) == len(text[:count].encode())
