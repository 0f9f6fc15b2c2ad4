"""JSON that stands in a text of JSON, as most control tools answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.core import counting, jsonrpc


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 65536])
@given(st.text('ab"\\\n\x01é€🙂', max_size=20))
def test_it_is_the_same_in_pieces_of_any_size(piece: int, text: str) -> None:
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(counting, "PIECE", piece)
        assert json.loads(bytes(jsonrpc.as_text(text.encode()))) == text
